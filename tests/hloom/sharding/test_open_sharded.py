"""Programs over several devices whose sizes are known when they are called, against those of the sizes of each call."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import NamedSharding, P, lax, nn
from hloom.errors import DonatedArrayError, ShapeError, UndecidedSizeError

N = hl.Dim("n", min=8, multiple_of=8)
M = hl.Dim("m", min=8, multiple_of=8)
SIZES = [(8, 16), (24, 8), (40, 40), (16, 8), (256, 24)]
RANDOM = np.random.default_rng(0)


def values(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def recurrent(x, w):
    def step(h, row):
        h = hnp.tanh(h @ w + row)
        return h, h.sum()

    h, sums = lax.scan(step, hnp.zeros(8), x)
    return h.sum() + sums.mean()


def every_other(x, w):
    return hnp.where(hnp.arange(x.shape[0])[:, None] % 2 == 0, x, w)


PROGRAMS = {
    "layers": (lambda x, w: (hnp.tanh(x @ w) @ w.T).sum(1), (N, 8), (8, M)),
    "products": (lambda x, w: x.T @ w, (N, 8), (N, M)),
    "attention": (lambda x, w: nn.softmax(x @ w @ x.T) @ x, (N, 8), (8, 8)),
    "normalized": (lambda x, w: (x - x.mean(0)) / (x.std(0) + 1) * w, (N, 16), (16,)),
    "shifted": (lambda x, w: hnp.roll(x, 3, 0) * hnp.flip(x, 1) + x[::-1] * w, (N, 8), (8,)),
    "cumulative": (lambda x, w: hnp.cumsum(x * w, 0), (N, M), (M,)),
    "sorted": (lambda x, w: hnp.sort(x, 0) * w, (N, 8), (N, 8)),
    "looked up": (lambda x, w: x[np.array([1, 5, 5, 0])] @ w, (N, M), (M, 4)),
    "recurrent": (recurrent, (N, 8), (8, 8)),
    "reshaped": (lambda x, w: x.reshape(x.shape[0] * 2, 4) @ w, (N, 8), (4, 3)),
    "joined": (lambda x, w: hnp.concatenate([x, w])[1:], (N, 8), (M, 8)),
    "alternating": (every_other, (N, 8), (8,)),
    "convolved": (lambda x, w: lax.conv(x[None, None], w[None, None], (1, 1), "SAME"), (N, M), (3, 3)),
    "branching": (lambda x, w: lax.cond(x.sum() > 0, lambda: x @ w, lambda: x * 2), (N, 8), (8, 8)),
}
ENTRIES = [(), ("x",), ("y",), ("x", "y")]


def layout(shape, draw):
    """A spec that splits each dimension of 8 or more by axes of the mesh of 4 x 2, or does not."""
    free, found = {"x", "y"}, []
    for size in shape:
        entry = ENTRIES[draw.integers(len(ENTRIES))]
        fits = free.issuperset(entry) and (not isinstance(size, int) or size % (8 if len(entry) == 2 else 4) == 0)
        found.append((entry or None) if fits else None)
        free -= set(entry) if fits else set()
    return P(*found)


def at(shape, n, m):
    return tuple([{N: n, M: m}.get(size, size) if isinstance(size, hl.Dim) else size for size in shape])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_for_all_sizes(mesh, name, seed):
    function, *shapes = PROGRAMS[name]
    draw = np.random.default_rng(seed)
    shardings = [NamedSharding(mesh, layout(shape, draw)) for shape in shapes]
    structs = [hl.ShapeDtypeStruct(s, "float32", sharding=one) for s, one in zip(shapes, shardings, strict=True)]
    compiled = hl.jit(function).lower(*structs).compile()
    for n, m in SIZES:
        arrays = [values(*at(shape, n, m)) for shape in shapes]
        given = [hl.device_put(a, s) for a, s in zip(arrays, shardings, strict=True)]
        found = compiled(*given)
        wanted = hl.jit(function)(*arrays)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)


def test_gradients_of_a_batch(mesh, put):
    def loss(w, x, y):
        return ((hnp.tanh(x @ w) - y) ** 2).mean()

    traces = []

    @hl.jit(dims={"x": (N, 8), "y": (N, 4)}, donate_argnums=0)
    def step(w, x, y):
        traces.append(x.shape)
        return w - 0.1 * hl.grad(loss)(w, x, y)

    w, wanted = put(values(8, 4)), None
    wanted = np.asarray(w).copy()
    for n in (16, 32, 8, 160, 64):
        x, y = values(n, 8), values(n, 4)
        before, w = w, step(w, put(x, "x"), put(y, "x"))
        wanted = wanted - 0.1 * np.asarray(hl.grad(loss)(wanted, x, y))
        np.testing.assert_allclose(w, wanted, rtol=1e-4, atol=1e-5)
        assert w.sharding.mesh == mesh
        with pytest.raises(DonatedArrayError):
            before + 1
    assert traces == [(N, 8)]


def test_a_new_size_compiles_nothing(mesh, put):
    compiled = (
        hl.jit(lambda x: hnp.sin(x) * 2)
        .lower(hl.ShapeDtypeStruct((N, 8), "float32", sharding=NamedSharding(mesh, P("x"))))
        .compile()
    )
    for n in range(8, 800, 8):
        x = values(n, 8)
        found = compiled(put(x, "x"))
        np.testing.assert_allclose(found, np.sin(x) * 2, rtol=1e-5, atol=1e-6)
        assert found.sharding.spec == P("x")
    assert len(compiled.executable.variants) <= 2


def test_results_are_laid_out_as_asked(mesh, put):
    wanted = NamedSharding(mesh, P(None, "y"))
    function = hl.jit(lambda x: x * 2, dims={"x": (N, 8)}, out_shardings=wanted)
    for n in (8, 48):
        found = function(put(values(n, 8), "x"))
        assert found.sharding == wanted and found.shape == (n, 8)


def test_a_size_that_an_axis_may_not_divide_is_undecided(mesh):
    function = hl.jit(lambda x: x * 2, out_shardings=NamedSharding(mesh, P("x")))
    with pytest.raises(UndecidedSizeError) as error:
        function.lower(hl.ShapeDtypeStruct((hl.Dim("k"),), "float32"))
    text = str(error.value)
    assert "k % 4" in text and "multiple_of=4" in text and "test_open_sharded.py" in text


def test_sizes_that_do_not_fit(mesh, put):
    function = hl.jit(lambda x, y: x.sum() + y.sum(), dims={"x": (N,), "y": (N,)})
    np.testing.assert_allclose(function(put(np.ones(16), "x"), put(np.ones(16), "y")), 32)
    with pytest.raises(ShapeError, match=r"called with arrays of the sizes \(16,\), \(24,\)"):
        function(put(np.ones(16), "x"), put(np.ones(24), "y"))
    with pytest.raises(ShapeError, match="min=8"):
        function(put(np.ones(4), "x"), put(np.ones(4), "y"))
