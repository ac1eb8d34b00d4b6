"""The cases of onnx's backend suite (onnx.backend.test) as functions to run on hloom, and the known failures."""

from __future__ import annotations

import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")

# Pattern of names: why these cases cannot pass or do not pass.
FAILING = {
    r"node/test_attention_4d(_gqa_with_past_and_present|_causal)?_fp16(_expanded)?$": (
        "float16: one unit in the last place off at a few elements, which is beyond the relative tolerance of 1e-3"
    ),
    r"node/test_bernoulli": "random numbers: the expected ones are NumPy's, which ONNX does not prescribe",
    r"node/test_training_dropout(_default)?(_mask)?$": "random numbers: the expected mask is NumPy's",
    r"node/test_loop16_seq_none": "the suite compares `len()` of an array without axes, which fails for any backend",
    r"node/test_dft_inverse(_opset19)?$": "absolute tolerance of 1e-7, below float32's rounding of the input",
}


class Case(NamedTuple):
    """One test of the suite: its kind and name, the model (a ModelProto or a file), and a function for the data."""

    kind: str
    test: Any

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.test.name}"


def cause(name: str) -> str | None:
    """Why a case is expected to fail, or None."""
    return next((text for pattern, text in FAILING.items() if re.match(pattern, name)), None)


@cache
def cases() -> tuple[Case, ...]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(Case(kind, test) for kind in KINDS for test in load_model_tests(kind=kind))


def real_models() -> list[tuple[str, Path, Path]]:
    """(name, model, file of the output for inputs 0, 1 / n, 2 / n, ...) of the networks that come with onnx."""
    import onnx.backend.test

    folder = Path(onnx.backend.test.__file__).parent / "data" / "light"
    return [(p.stem, p, folder / f"{p.stem}_output_0.pb") for p in sorted(folder.glob("*.onnx"))]


def _read(folder: str, kind: str) -> list[Any]:
    import onnx

    values = []
    for number in range(len(list(Path(folder).glob(f"{kind}_*.pb")))):
        tensor = onnx.TensorProto()
        tensor.ParseFromString(Path(folder, f"{kind}_{number}.pb").read_bytes())
        values.append(onnx.numpy_helper.to_array(tensor))
    return values


def _arrays(value):
    if isinstance(value, (list, tuple)):
        return [_arrays(v) for v in value]
    return None if value is None else np.asarray(value)


def run(case: Case) -> None:
    """Raises what the suite raises where hloom's outputs are not the expected ones."""
    from onnx.backend.test.runner import Runner, _normalize_tensor

    import hloom as hl

    test = case.test
    if test.model is not None:
        model = hl.onnx.load(test.model)
        sets = [([_normalize_tensor(v) for v in given], [_normalize_tensor(v) for v in wanted])
                for given, wanted in test.data_sets]  # fmt: skip
    else:
        model = hl.onnx.load(Path(test.model_dir, "model.onnx"))
        sets = [
            (_read(str(f), "input"), _read(str(f), "output")) for f in sorted(Path(test.model_dir).glob("test_data*"))
        ]
    assert sets
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hl.errors.DataDependentWarning)
        for given, wanted in sets:
            results = model(*given)
            found = list(results) if isinstance(results, hl.onnx.Outputs) else [results]
            Runner.assert_similar_outputs(wanted, _arrays(found), test.rtol, test.atol)


def run_real(path: Path, expected: Path) -> None:
    """One of the networks that come with onnx, on the inputs that its expected output is for."""
    import onnx

    import hloom as hl

    model = hl.onnx.load(path)
    inputs = []
    for port in model.inputs:
        shape = tuple(s if isinstance(s, int) else 1 for s in port.shape)
        count = int(np.prod(shape))
        inputs.append((np.arange(count).reshape(shape) / count).astype(np.float32))
    tensor = onnx.TensorProto()
    tensor.ParseFromString(expected.read_bytes())
    np.testing.assert_allclose(np.asarray(model(*inputs)), onnx.numpy_helper.to_array(tensor), rtol=1e-3, atol=1e-7)
