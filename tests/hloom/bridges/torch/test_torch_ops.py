"""Ops against torch by torch's own samples (OpInfo), in f32, bf16 and s64: the first sample of each kind here, all of
them, in all dtypes, with derivatives and open sizes, by `python tests/torch_suites.py`."""

import pathlib

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'hloom[torch]'")
pytest.importorskip("expecttest", reason="torch's samples need expecttest: pip install expecttest")
import torch_samples  # noqa: E402

from hloom.bridges.torch.graphs import OF_SIZES  # noqa: E402
from hloom.bridges.torch.rules import RULES  # noqa: E402

NAMES = [tuple(line.split()) for line in
         pathlib.Path(torch_samples.__file__).with_name("torch_core_infos.txt").read_text().splitlines()]  # fmt: skip
# What they compute has sizes that depend on data, or dtypes that hloom has not; and random numbers.
REFUSED = {"nonzero", "argwhere", "chalf", "narrow", "repeat_interleave", "as_strided", "resize_"}
INFOS = {(op.name, op.variant_test_name or "-"): op for op in torch_samples.op_db}
UNREACHABLE = {"aten._local_scalar_dense.default", "aten.nonzero.default", "aten._native_batch_norm_legit.default"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in NAMES if n[0] not in REFUSED], ids=" ".join)
def test_samples(name):
    op = INFOS[name]
    for dtype in torch_samples.DTYPES.values():
        if dtype in op.supported_dtypes("cpu"):
            for sample in torch_samples.samples(op, dtype, 1):
                assert not torch_samples.difference(op, sample), f"{dtype}: {sample.summary()}"


def test_the_table_has_the_core_ops():
    """All but those whose sizes depend on data, and one that functionalization replaces."""
    assert torch_samples.CORE - {str(op) for op in (*RULES, *OF_SIZES)} == UNREACHABLE
