"""Derivatives that have rules of their own, against torch's."""

import itertools

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'hloom[torch]'")
from torch.nn import functional  # noqa: E402


def check(function, *tensors):
    """Values and derivatives of every float tensor against torch's."""
    rows = []
    for call in (function, torch.compile(function, backend="hloom")):
        given = [t.clone().requires_grad_(t.is_floating_point()) for t in tensors]
        found = call(*given)
        torch.manual_seed(1)
        (found * torch.randn_like(found)).sum().backward()
        rows.append([found.detach(), *[t.grad for t in given]])
    torch.testing.assert_close(rows[1], rows[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding_idx", [None, 2])
@pytest.mark.parametrize("last", [True, False])
def test_embedding_bag(mode, padding_idx, last):
    indices = torch.tensor([1, 2, 2, 5, 4, 3, 2, 9, 1])
    offsets = torch.tensor([0, 2, 2, 5, 9] if last else [0, 2, 2, 5])  # the second bag has nothing
    check(
        lambda w: functional.embedding_bag(
            indices, w, offsets, mode=mode, padding_idx=padding_idx, include_last_offset=last
        ),
        torch.randn(10, 3),
    )


def test_weighted_embedding_bag():
    indices, offsets = torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 4])
    check(lambda w, s: functional.embedding_bag(indices, w, offsets, mode="sum", per_sample_weights=s),
          torch.randn(10, 3), torch.rand(6))  # fmt: skip


def test_embedding_with_a_largest_norm_changes_its_table():
    indices, table = torch.tensor([1, 2, 1]), torch.randn(5, 3) * 4
    tables = table.clone(), table.clone()
    for call, weight in zip((functional.embedding, torch.compile(functional.embedding, backend="hloom")), tables,
                            strict=True):  # fmt: skip
        call(indices, weight, max_norm=1.0)
    torch.testing.assert_close(*tables)
    assert not torch.equal(tables[0], table)


@pytest.mark.parametrize(
    ("mode", "padding", "corners"),
    [*itertools.product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (True, False))],
)
def test_grid_sample(mode, padding, corners):
    """Positions inside, outside, on pixels and on the border."""
    grid = torch.rand(2, 3, 5, 2) * 3 - 1.5
    grid[0, 0, :3] = torch.tensor([[-1.0, 1.0], [0.0, 0.0], [1.0, -1.0]])
    check(
        lambda x, g: functional.grid_sample(x, g, mode=mode, padding_mode=padding, align_corners=corners),
        torch.randn(2, 3, 4, 7),
        grid,
    )


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_grid_sample_in_three_dimensions(mode):
    check(
        lambda x, g: functional.grid_sample(x, g, mode=mode, padding_mode="border", align_corners=False),
        torch.randn(2, 3, 4, 5, 3),
        torch.rand(2, 2, 3, 4, 3) * 3 - 1.5,
    )


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_distances(p):
    x, y = torch.randn(2, 4, 3), torch.randn(2, 5, 3)
    y[0, 0] = x[0, 0]  # a distance of 0
    x[1, 1, 0] = y[1, 1, 0]
    check(lambda x, y: torch.cdist(x, y, p), x, y)
    check(lambda x: functional.pdist(x, p), x[0])


@pytest.mark.parametrize("sizes", [(2, 3), (5, 5), (1, 1)])
def test_adaptive_max_pool(sizes):
    check(lambda x: functional.adaptive_max_pool2d(x, sizes), torch.randn(2, 3, 7, 5))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.cummax(x, 1)[0], lambda x: torch.median(x, 1)[0], lambda x: torch.kthvalue(x, 2, 1)[0],
        lambda x: x.masked_scatter(x > 0.3, x * 2), lambda x: torch.take(x, torch.tensor([1, 5, 1])),
        lambda x: torch.diagonal_scatter(x, x[0, :4] * 2),
        lambda x: x.index_reduce(0, torch.tensor([1, 1, 0, 2]), x, "amax"),
    ],
    ids="cummax median kthvalue masked_scatter take diagonal_scatter index_reduce".split(),
)  # fmt: skip
def test_choices(function):
    check(function, torch.randn(4, 5))


def test_complex_rotations():
    """Rotary positions, as complex numbers."""

    def rotate(x, angle):
        turned = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * torch.polar(torch.ones_like(angle), angle)
        return torch.view_as_real(turned).flatten(-2)

    check(rotate, torch.randn(2, 5, 8), torch.randn(5, 4))


@pytest.mark.parametrize("needs_gradients", [True, False])
def test_constants_in_a_function(needs_gradients):
    """Tensors that the function makes of numbers: torch compiles where tensors have no elements."""
    function = torch.compile(lambda x: x * torch.tensor([1.0, 2.0]) + torch.arange(200.0)[:2], backend="hloom")
    x = torch.ones(2, requires_grad=needs_gradients)
    assert function(x).tolist() == [1, 3]


def test_lazily_conjugated_arguments():
    x = torch.randn(3, dtype=torch.complex64)
    function = torch.compile(lambda x: x * 2, backend="hloom")
    torch.testing.assert_close(function(x.conj()), x.conj() * 2)
    torch.testing.assert_close(function(x), x * 2)
    part = torch.compile(lambda x: x + 1, backend="hloom")
    torch.testing.assert_close(part(x.conj().imag), x.conj().imag + 1)
