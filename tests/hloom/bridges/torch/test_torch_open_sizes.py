"""Sizes that torch leaves open: one translation and one executable for all of them."""

import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'hloom[torch]'")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from hloom.bridges.torch.open_sizes import graphs  # noqa: E402
from hloom.bridges.torch.open_sizes.graphs import OpenGraph  # noqa: E402
from hloom.bridges.torch.rules import RULES  # noqa: E402
from hloom.bridges.torch.table import Rule  # noqa: E402
from hloom.errors import FallbackWarning  # noqa: E402

SIZES = (5, 37, 4, 64, 9, 37, 200)


@pytest.fixture
def made(monkeypatch):
    """The open graphs that are made in a test."""
    found = []

    class Noted(OpenGraph):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            found.append(self)

    monkeypatch.setattr(graphs, "OpenGraph", Noted)
    return found


def compiled(function, **options):
    return torch.compile(function, backend="hloom", dynamic=True, **options)


def attention(x):
    q, k, v = (x.reshape(-1, x.shape[0], 4, 8).transpose(1, 2) * s for s in (1.0, 0.5, 2.0))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


# name: a function of x, f32[n, 32]
PROGRAMS = {
    "element-wise": lambda x: torch.tanh(x) * 2 + 1,
    "means": lambda x: (x.mean(), x.mean(0), x.mean(1), x.sum(0), x.amax(0)),
    "variances": lambda x: (x.var(0), x.std(), torch.var_mean(x, 0, correction=0)),
    "a layer norm over all": lambda x: F.layer_norm(x, x.shape),
    "a batch norm": lambda x: F.batch_norm(x, torch.zeros(32), torch.ones(32), training=True),
    "softmax": lambda x: (x.softmax(0), x.log_softmax(1)),
    "products": lambda x: (x @ x.T, x.T @ x, x @ x.new_ones(32, 3)),
    "attention": attention,
    "joined": lambda x: torch.cat([x, x * 2, x[:1]]),
    "slices": lambda x: (x[1:], x[:-1], x[::2], x[x.shape[0] // 2 :], x[-1]),
    "values of sizes": lambda x: x * x.shape[0] + torch.arange(x.shape[0])[:, None] / x.numel(),
    "filled": lambda x: (torch.full((x.shape[0],), x.shape[0]), x.new_zeros(x.shape[0], 2), torch.ones_like(x)),
    "views": lambda x: (x.T, x.view(-1), x.unsqueeze(1).expand(-1, 3, -1), x.flatten()),
    "sorted": lambda x: x.sort(0),
    "largest": lambda x: (x.argmax(0), x.topk(2, 1), x.cumsum(0)),
    "rows by numbers": lambda x: x[torch.arange(x.shape[0]).flip(0)],
    "masks": lambda x: torch.where(torch.ones(x.shape[0], x.shape[0]).tril().bool(), 1.0, -1.0) @ x,
    "padded": lambda x: F.pad(x, (0, 0, 1, 2)),
    "repeated": lambda x: (x.repeat(2, 1), x.roll(1, 0), x.flip(0)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_translation_runs_all_sizes(made, name):
    function = PROGRAMS[name]
    found = compiled(function)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        for n in SIZES:
            x = torch.randn(n, 32)
            torch.testing.assert_close(found(x), function(x), rtol=1e-4, atol=1e-4, equal_nan=True)
    open_graphs = [graph for graph in made if graph.translations]
    assert len(open_graphs) == 1
    assert len(open_graphs[0].translations) == 1


@pytest.mark.parametrize("name", ["means", "softmax", "products", "attention", "joined", "slices"])
def test_derivatives(made, name):
    function = PROGRAMS[name]
    found = compiled(function)
    for n in (5, 37, 4, 64):
        slopes = []
        for call in (found, function):
            x = torch.linspace(-1, 1, n * 32).reshape(n, 32).requires_grad_()
            results = call(x)
            results = results if isinstance(results, tuple) else (results,)
            flat = [t for r in results for t in (r if isinstance(r, tuple) else (r,))]
            slopes += torch.autograd.grad(sum(t.sin().sum() for t in flat), x)
        torch.testing.assert_close(*slopes, rtol=1e-3, atol=1e-4)
    assert {len(graph.translations) for graph in made} == {1}


def test_sizes_are_compiled_in_few_variants(made):
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))
    found = compiled(model)
    with torch.no_grad():
        for n in range(20, 40):
            x = torch.randn(n, 16)
            torch.testing.assert_close(found(x), model(x), rtol=1e-4, atol=1e-5)
    ((translation,),) = (graph.translations for graph in made)
    assert len(translation.executable.variants) <= 8, "\n".join(map(str, translation.executable.variants))


def test_arguments_of_open_sizes_are_changed_in_place(made):
    def f(x, y):
        x.mul_(2).add_(y[: x.shape[0]])
        return x.sum(), y

    found = compiled(f)
    for n in (3, 9, 4):
        x, y = torch.randn(n, 4), torch.randn(n + 2, 4)
        wanted = x * 2 + y[:n]
        with torch.no_grad():
            total, same = found(x, y)
        torch.testing.assert_close(x, wanted)
        torch.testing.assert_close(total, wanted.sum())
        assert same is y
    assert [len(graph.translations) for graph in made] == [1]


def test_sizes_that_a_rule_asks_for_are_numbers(made):
    """Places that resampling reads are a table of numbers."""

    def f(x):
        return F.interpolate(x[None, None], size=(6, 7), mode="bilinear") * 2

    found = compiled(f)
    for n in (5, 8, 5):
        x = torch.randn(n, 9)
        torch.testing.assert_close(found(x), f(x), rtol=1e-4, atol=1e-5)


def test_a_mark_is_enough(made):
    found = torch.compile(lambda x: x.softmax(0) * x.shape[0], backend="hloom")
    for n in (4, 6, 90):
        x = torch.randn(n, 3)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=100)
        torch.testing.assert_close(found(x), x.softmax(0) * n)
    (graph,) = made
    (translation,) = graph.translations
    assert [dim.declaration() for dim in translation.dims.values()] == [f"Dim({next(iter(translation.dims))!r}, "
                                                                        "min=2, max=100)"]  # fmt: skip


def test_numbers_of_arguments_with_other_dtypes_stay_open(made):
    """Calls with integers, which are tried once on zeros, were captured for one size."""
    found = compiled(lambda k: torch.arange(k.shape[0]) + k)
    for n in (3, 8, 5):
        k = torch.arange(n)
        torch.testing.assert_close(found(k), k + k)
    assert [len(graph.translations) for graph in made] == [1]


def test_what_sizes_are_refused_for_is_compiled_for_each(made, monkeypatch):
    def build(x):
        if not isinstance(x.shape[0], int):
            raise ValueError("numbers alone")
        return x + 1

    monkeypatch.setitem(RULES, torch.ops.aten.sinc.default, Rule(build))
    monkeypatch.setitem(RULES, torch.ops.aten.floor.default, Rule(build))
    found = compiled(torch.floor)
    with pytest.warns(FallbackWarning, match=r"compiled for each set of sizes by itself: .*numbers alone"):
        torch.testing.assert_close(found(torch.ones(4)), torch.full((4,), 2.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(found(torch.ones(5)), torch.full((5,), 2.0))
    assert [graph.translations for graph in made] == [[]]


def test_parts_have_open_sizes(made):
    def f(x):
        return torch.special.bessel_y0(x.abs() + 1).sum(1) * x.shape[0] + x.mean()

    found = compiled(f)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in (3, 4, 9):
            x = torch.randn(n, 8)
            torch.testing.assert_close(found(x), f(x))
    assert {len(graph.translations) for graph in made[1:]} == {1}


def test_an_index_out_of_bounds_names_the_size_of_the_call():
    found = compiled(lambda x, k: x[k])
    for n in (4, 7):
        x = torch.arange(float(n))
        torch.testing.assert_close(found(x, torch.tensor([0, n - 1])), x[[0, n - 1]])
        with pytest.raises(IndexError, match=f"index {n} is out of bounds for dimension 0 with size {n}"):
            found(x, torch.tensor([0, n]))
