"""Results, arguments and saved tensors that share memory: views, lazy conjugates and negatives, changes in place."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'hloom[torch]'")
import torch_view_programs  # noqa: E402

from hloom.bridges.torch import hloom  # noqa: E402
from hloom.errors import FallbackWarning  # noqa: E402


def compiled(function, **options):
    return torch.compile(function, backend=hloom, **options)


def outcome(function, *tensors):
    """Results and gradients."""
    leaves = [t.clone().requires_grad_() for t in tensors]
    results = function(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    torch.manual_seed(0)
    directions = [torch.randn(r.shape, dtype=r.dtype) for r in results]
    directions = [d.conj() if d.is_complex() else d for d in directions]
    slopes = torch.autograd.grad(results, leaves, directions, allow_unused=True)
    return [t.detach().resolve_conj().resolve_neg() for t in (*results, *slopes) if t is not None]


CONJUGATES = {
    "product": lambda z, w: z * w,
    "a value and its conjugate": lambda z, w: (z * 2, (z * 2).conj(), w * 1),
    "adjoint": lambda z, w: (z @ w).mH @ z,
    "einsum": lambda z, w: torch.einsum("ij,kj->ik", z, w.conj()),
    "solve": lambda z, w: torch.linalg.solve(z, w),
    "imaginary part": lambda z, w: (z * w).conj().imag,
    "modulus": lambda z, w: (z * z.conj()).real + w.abs(),
    "spectrum": lambda z, w: torch.fft.fft(z).conj() * w,
    "an argument's conjugate": lambda z, w: (z.conj() * w, z.mH.contiguous()),
}


@pytest.mark.parametrize("name", CONJUGATES)
def test_conjugates_and_their_gradients_are_those_of_torch(name):
    z, w = torch.randn(3, 3, dtype=torch.complex128), torch.randn(3, 3, dtype=torch.complex128)
    for found, wanted in zip(outcome(compiled(CONJUGATES[name]), z, w), outcome(CONJUGATES[name], z, w), strict=True):
        torch.testing.assert_close(found, wanted)


def test_a_value_and_its_lazy_conjugate_share_memory():
    y, c = compiled(lambda z: (lambda y: (y, y.conj()))(z * 2))(torch.tensor([1 + 2j]))
    assert c.resolve_conj().item() == 2 - 4j
    y.mul_(2)
    assert c.resolve_conj().item() == 4 - 8j


def test_an_argument_that_is_conjugated_lazily_is_changed_in_place():
    z = torch.tensor([1 + 2j, 3 - 1j])
    compiled(lambda z: z.add_(1j))(z.conj())
    assert z.tolist() == [1 + 1j, 3 - 2j]


def test_a_tangent_that_is_negated_lazily():
    x = torch.randn(3, requires_grad=True)
    tangent = torch.tensor([1 + 2j, 3j, 4 - 1j]).conj().imag
    (slope,) = torch.autograd.grad(compiled(lambda x: x * 2)(x), x, tangent)
    assert slope.tolist() == [-4, -6, 2]


def _transposed(x):
    a = x * 2
    b = a.t()
    b.mul_(3)
    torch._dynamo.graph_break()
    b.add_(1)
    return a


def _column(x):
    a = torch.arange(3.0)
    b = a.view(3, 1)
    b[0] = 5
    torch._dynamo.graph_break()
    b.add_(1)
    return a + x[0, 0]


def _flat(x):
    a = x.clone()
    b = a.view(-1)
    torch._dynamo.graph_break()
    a.add_(1)
    return b


def _row(x):
    whole = torch.zeros(2, 2)
    row = whole[0]
    torch._dynamo.graph_break()
    row += x[0]
    return whole


def _bits(x):
    a = x * 2
    b = a.view(torch.int32)
    torch._dynamo.graph_break()
    b.bitwise_or_(1)
    return a


def _windows(x):
    a = x + 1
    rows, corner = a.unfold(0, 1, 1), a[1:, 1:]
    torch._dynamo.graph_break()
    corner.zero_()
    return rows


@pytest.mark.parametrize("program", [_transposed, _column, _flat, _row, _bits, _windows])
def test_results_that_share_memory_share_it_over_a_graph_break(program):
    x = torch.randn(2, 2)
    torch.testing.assert_close(compiled(program)(x), program(x), rtol=0, atol=0)


SHARED_ARGUMENTS = {
    "a part and the whole": lambda x: (x[0], x),
    "overlapping parts": lambda x: (x[:2], x[1:]),
    "a column of a transposed matrix": lambda x: (x.t()[:, 1], x),
    "every second one": lambda x: (x[..., ::2], x.view(-1)),
}


@pytest.mark.parametrize("name", SHARED_ARGUMENTS)
def test_arguments_that_share_memory_are_changed_in_place(name):
    def change(a, b):
        a.mul_(2)
        c = b * 3
        b[-1] += 1
        return a + 1, c, a[..., -1:]

    x, y = torch.arange(12.0).view(3, 4), torch.arange(12.0).view(3, 4)
    for found, wanted in zip(
        compiled(change)(*SHARED_ARGUMENTS[name](x)), change(*SHARED_ARGUMENTS[name](y)), strict=True
    ):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    torch.testing.assert_close(x, y, rtol=0, atol=0)


def test_views_by_strides_are_of_the_memory_and_not_of_the_view():
    def f(x):
        y = x * 2
        return torch.as_strided(y[:2], (3, 2), (2, 1), 1), torch.as_strided(x, (2, 2), (3, 1)), x.unfold(0, 2, 1)

    for x in (torch.arange(8.0), torch.arange(24.0).view(3, 8)[0], torch.arange(24.0)[::3]):
        for found, wanted in zip(compiled(f)(x), f(x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_strides_with_gaps_are_kept():
    def f(x):
        y = torch.empty_strided((2, 2), (4, 1))
        y[:] = x
        return y

    x = torch.randn(2, 2)
    found = compiled(f)(x)
    assert found.stride() == (4, 1)
    assert torch.equal(found, x)


def test_a_view_of_the_derivative_reads_the_argument_where_it_lies_now():
    function = compiled(lambda x, w: (x.t() @ w).sum())
    memory, w = torch.randn(4, 3), torch.randn(2, 5, requires_grad=True)
    for start in (1, 2):
        x = memory[start : start + 2]
        (slope,) = torch.autograd.grad(function(x, w), w)
        torch.testing.assert_close(slope, x.sum(1, keepdim=True).expand(2, 5))


def test_what_aotautograd_does_not_take_is_left_to_torch():
    def change(a, b):
        a.add_(1)
        return b * 2

    x, y = torch.zeros(4), torch.zeros(4)
    with pytest.warns(FallbackWarning, match="eager mode"):
        found = compiled(change)(x, x.view(torch.int32))
    assert torch.equal(found, change(y, y.view(torch.int32)))


@pytest.mark.parametrize("seed", [16, 25, 39, 96])
def test_random_programs_of_views_and_changes(seed):
    assert torch_view_programs.difference(seed) is None
