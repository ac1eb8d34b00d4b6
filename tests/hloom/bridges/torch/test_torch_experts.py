"""Products of groups of rows, by which mixtures of experts are computed, against torch itself."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'hloom[torch]'")
from torch.nn import functional as F  # noqa: E402

import hloom as hl  # noqa: E402
from hloom.bridges.torch import hloom, table  # noqa: E402
from hloom.bridges.torch.rules.linear_algebra import library_grouped_mm  # noqa: E402
from hloom.errors import FallbackWarning  # noqa: E402

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 5e-2, torch.float16: 1e-2}
# Few rows for each matrix, whose matrices are gathered; several blocks; empty groups; rows after the last group.
ENDS = [[2, 2, 5, 6], [0, 17, 17, 40], [70, 70, 150, 200], [64, 64, 128, 160], [0, 0, 0, 0]]


@pytest.fixture(autouse=True)
def nothing_is_left_to_torch():
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        yield


def check(function, operands, *, gradients: bool = True, **options):
    """Results and derivatives: elements, dtypes, strides."""
    own = [x.clone().requires_grad_(gradients and x.is_floating_point()) for x in operands]
    wanted, found = function(*own), torch.compile(function, backend=hloom, **options)(*own)
    compare(found, wanted)
    if gradients:
        inputs, weights = [x for x in own if x.requires_grad], torch.randn_like(wanted)
        for one, other in zip(
            torch.autograd.grad(found, inputs, weights), torch.autograd.grad(wanted, inputs, weights), strict=True
        ):
            compare(one, other)


def compare(found, wanted):
    tolerance = TOLERANCE[wanted.dtype]
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
    assert found.stride() == wanted.stride()


def operands(rows: int, ends: list[int], dtype, transposed: bool):
    matrices = torch.randn(4, 24, 16, dtype=dtype).mT if transposed else torch.randn(4, 16, 24, dtype=dtype)
    return torch.randn(rows, 16, dtype=dtype), matrices, torch.tensor(ends, dtype=torch.int32)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("ends", ENDS[:3])
def test_each_group_of_rows_has_its_matrix(ends, transposed):
    check(lambda x, m, e: F.grouped_mm(x, m, offs=e), operands(ends[-1], ends, torch.bfloat16, transposed))


def test_groups_of_columns_of_sums_and_none():
    ends = torch.tensor([64, 64, 128, 160], dtype=torch.int32)
    x, y = torch.randn(160, 16).bfloat16(), torch.randn(160, 24).bfloat16()
    check(lambda x, y, e: torch._grouped_mm(x.mT, y, offs=e), (x, y, ends), gradients=False)
    check(lambda x, y, e: torch._grouped_mm(y, x, offs=e), (torch.randn(16, 160).bfloat16(),
          torch.randn(4, 8, 16).bfloat16(), ends), gradients=False)  # fmt: skip
    check(lambda x, y: torch._grouped_mm(x, y), (torch.randn(3, 8, 16).bfloat16(), torch.randn(3, 16, 8).bfloat16()))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("ends", ENDS)
def test_the_op_of_transformers_for_other_dtypes(ends, dtype, dynamic):
    pytest.importorskip("transformers.integrations.moe")
    rows = max(200 if ends[-1] == 160 else ends[-1], 8)
    for transposed in (False, True):
        check(
            lambda x, m, e: torch.ops.transformers.grouped_mm_fallback(x, m, e),
            operands(rows, ends, dtype, transposed),
            dynamic=dynamic,
        )


@pytest.mark.parametrize("rows", [12, 96])
def test_a_routed_layer(rows):
    """As transformers computes it: rows sorted by their experts, two products, rows back in order and weighted."""

    def layer(x, gate, up, down):
        shares, chosen = torch.topk(torch.softmax(x @ gate, -1), 2, -1)
        ids, order = torch.sort(chosen.reshape(-1))
        ends = torch.cumsum(torch.histc(ids.float(), bins=4, min=0, max=3), 0, dtype=torch.int32)
        y = F.grouped_mm(x[order // 2], up.mT, offs=ends)
        y = F.grouped_mm(F.silu(y), down.mT, offs=ends) * shares.reshape(-1)[order].unsqueeze(-1)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.shape[0])
        return y[back].view(rows, 2, -1).sum(1)

    dtype = torch.bfloat16
    check(layer, (torch.randn(rows, 16, dtype=dtype), torch.randn(16, 4, dtype=dtype),
                  torch.randn(4, 32, 16, dtype=dtype) / 4, torch.randn(4, 16, 32, dtype=dtype) / 4))  # fmt: skip


@pytest.mark.parametrize("ends", [[5, 3, 9, 2], [-4, 2**31 - 1, -7, 2**31 - 1]])
@pytest.mark.parametrize("rows", [8, 200])
def test_wrong_ends_end_the_loop_within_the_rows(rows, ends):
    x, matrices = np.ones((rows, 4), np.float32), np.ones((4, 4, 8), np.float32)
    product = hl.jit(lambda x, m, e: library_grouped_mm(x, m, e, contiguous=True))
    found = np.asarray(product(x, matrices, np.array(ends, np.int32)))
    assert found.shape == (rows, 8) and set(np.unique(found)) <= {0.0, 4.0}


def test_an_op_registered_after_its_rule_is_found_by_its_name(monkeypatch):
    monkeypatch.setattr(table, "_OF_LIBRARIES", {})
    table.rule("hloom_late::tripled.default")(lambda x: x * 3)

    @torch.library.custom_op("hloom_late::tripled", mutates_args=())
    def tripled(x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("torch calls it")

    tripled.register_fake(torch.empty_like)
    x = torch.randn(5)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(lambda x: tripled(x) + 1, backend=hloom)(x), x * 3 + 1)
