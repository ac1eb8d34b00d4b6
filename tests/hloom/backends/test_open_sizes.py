"""One executable for arrays of all sizes: `jitted.lower(shapes with Dims).compile()`."""

from __future__ import annotations

import numpy as np
import open_kernels
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import ArgumentError, FallbackWarning, ShapeError, UnsupportedError

N, M, K = hl.Dim("n"), hl.Dim("m"), hl.Dim("k")


def struct(*dims, dtype="float32"):
    return hl.ShapeDtypeStruct(dims, dtype)


def drawn(*dims, dtype="float32"):
    return np.random.default_rng(sum(dims)).standard_normal(dims).astype(dtype)


# name: (function, arguments, the most variants for the sizes below)
PROGRAMS = {
    "element-wise": (lambda x: hnp.tanh(x) * 2 + 1, [(N, 3)], 2),
    "layer": (lambda x, w, b: hnp.tanh(x @ w + b), [(N, 24), (24, 16), (16,)], 7),
    "softmax": (lambda x: hl.nn.softmax(x, axis=-1), [(N, 40)], 4),
    "standard deviation": (lambda x: (x - x.mean(0)) / (x.std(0) + 1), [(N, 16)], 4),
    "gram": (lambda x: x.T @ x, [(N, 6)], 6),
    "gradient": (hl.grad(lambda w, x: (hnp.tanh(x @ w) ** 2).mean()), [(24, 8), (N, 24)], 8),
    "scan": (lambda x: lax.scan(lambda c, v: (c * 0.5 + v, c), 0.0, x)[1], [(N,)], 3),
    "loop": (lambda x: lax.fori_loop(0, x.shape[0], lambda i, s: s * 0.5 + x[i], 0.0), [(N,)], 2),
    "sort": (lambda x: hnp.sort(x)[::-1], [(N,)], 4),
    "joined": (lambda x: hnp.concatenate([x, x[1:]])[None], [(N, 3)], 8),
    "mean of a size": (lambda x: x.sum() / x.shape[0], [(N,)], 4),
    "library": (lambda x: hnp.linalg.eigvals(x + 3 * hnp.eye(x.shape[0])).real.sum(), [(N, N)], 9),
    "branch": (lambda x: lax.cond(x.sum() > 0, lambda: x * 2, lambda: x - 1), [(N, 4)], 3),
    "vmap": (lambda x: hl.vmap(lambda row: row / row.sum())(hnp.abs(x) + 1), [(N, 5)], 4),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_all_sizes(name):
    function, arguments, most = PROGRAMS[name]
    compiled = hl.jit(function).lower(*[struct(*dims) for dims in arguments]).compile()
    for size in (5, 37, 1, 2, 64, 65, 200, 37, 1000 if name != "library" else 9):
        given = [drawn(*[size if d is N else d for d in dims]) for dims in arguments]
        found, wanted = compiled(*given), function(*[hnp.asarray(x) for x in given])
        assert found.shape == wanted.shape and found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4, err_msg=f"n = {size}")
    assert len(compiled.executable.variants) <= most, "\n".join(map(str, compiled.executable.variants))


def test_one_block_of_rows_is_no_guard():
    """The rows of a block were those of the first call: each six rows more were another variant."""
    step = hl.grad(lambda w, x: (hnp.tanh(x @ w) ** 2).mean())
    compiled = hl.jit(step).lower(struct(64, 128), struct(N, 64)).compile()
    for size in range(70, 120, 7):
        given = drawn(64, 128), drawn(size, 64)
        np.testing.assert_allclose(compiled(*given), step(*given), rtol=2e-4, atol=2e-4)
    assert len(compiled.executable.variants) == 1, "\n".join(map(str, compiled.executable.variants))


def test_a_step_of_training_is_decided_by_few_sizes():
    """What was no matter of a step was asked of its sizes too: 6 variants for the batches below."""

    def step(w, v, x, y):
        def loss(w, v):
            return ((hnp.tanh(hnp.tanh(x @ w) @ v) - y) ** 2).mean()

        return hl.grad(loss, (0, 1))(w, v)

    shapes = [(64, 256), (256, 10), (N, 64), (N, 10)]
    compiled = hl.jit(step).lower(*[struct(*dims) for dims in shapes]).compile()
    for size in (9, 16, 20, 28, 33, 53, 63, 66, 100, 128, 129, 168, 169, 180, 255):
        given = [drawn(*[size if d is N else d for d in dims]) * np.float32(0.1) for dims in shapes]
        for found, wanted in zip(compiled(*given), hl.jit(step)(*given), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5, err_msg=f"n = {size}")
    assert len(compiled.executable.variants) <= 4, "\n".join(map(str, compiled.executable.variants))


def test_few_rows_of_open_sizes():
    """Blocks of few rows of a wide matrix are as high as the matrix."""
    compiled = hl.jit(lambda x, w: x @ w).lower(struct(N, M), struct(M, K)).compile()
    w = drawn(4096, 1024)
    for size in (16, 3, 9, 1):
        x = drawn(size, 4096)
        np.testing.assert_allclose(compiled(x, w), x @ w, rtol=2e-4, atol=2e-3)
    assert not compiled.executable.variants[0].fixed


def test_sizes_of_one_hash_are_two():
    """hash(-1) is hash(-2), so a dict asked whether m - n is m - 2*n: an error, or the answer of the first call."""

    def parts(x, y):
        n = y.shape[0]
        hl.assume(x.shape[0] >= 2 * n + 2)
        return hnp.cumsum(x[2 * n :]), hnp.flip(x[n:]), hnp.arange(x.shape[0] - n), hnp.arange(x.shape[0] - 2 * n)

    compiled = hl.jit(parts).lower(struct(M), struct(N)).compile()
    for m, n in ((40, 3), (100, 7), (42, 20), (77, 1), (7, 2)):
        x = drawn(m)
        wanted = np.cumsum(x[2 * n :]), x[n:][::-1], np.arange(m - n), np.arange(m - 2 * n)
        for found, right in zip(compiled(x, drawn(n)), wanted, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)


def test_lengths_of_attention():
    """How many rows are in a block, and whether there are enough blocks, was a guard for nearly every length."""
    compiled = hl.jit(lambda q, k, v: hl.nn.softmax(q @ k.mT / 8) @ v).lower(*[struct(8, N, 64)] * 3).compile()
    for size in (100, 80, 90, 127, 70, 60, 50, 40, 30):
        q, k, v = (drawn(8, size, 64) for _ in range(3))
        weights = np.exp(q @ k.swapaxes(1, 2) / 8)
        wanted = weights / weights.sum(-1, keepdims=True) @ v
        np.testing.assert_allclose(compiled(q, k, v), wanted, rtol=2e-4, atol=2e-4)
    assert len(compiled.executable.variants) <= 2, "\n".join(map(str, compiled.executable.variants))


def test_a_part_of_a_constant_is_not_folded():
    """It was, at the size of the call, and each size was a variant."""
    table = np.arange(256, dtype=np.float32)
    compiled = hl.jit(lambda x: x + hnp.asarray(table)[: x.shape[0]]).lower(struct(hl.Dim("n", max=256))).compile()
    for size in (20, 21, 99, 256):
        np.testing.assert_array_equal(compiled(table[:size]), 2 * table[:size])
    assert len(compiled.executable.variants) == 1, "\n".join(map(str, compiled.executable.variants))


def test_rows_of_two_dimensions_are_not_ordered_by_guards():
    """The least size of a product's operands asked which of them is less."""
    compiled = hl.jit(lambda x, w: hnp.tanh(x @ w)).lower(struct(M, N, 24), struct(24, 16)).compile()
    for m, n in ((20, 10), (10, 20), (11, 30), (30, 30)):
        x, w = drawn(m, n, 24), drawn(24, 16)
        np.testing.assert_allclose(compiled(x, w), np.tanh(x @ w), rtol=2e-4, atol=2e-4)
    texts = [str(variant) for variant in compiled.executable.variants]
    assert not [text for text in texts if "m < n" in text or "n < m" in text], texts


@pytest.mark.parametrize("rank", [1, 2])
def test_images_of_open_sizes(rank):
    """Compilation compared hundreds of sums of quotients, for minutes, and then for one size."""
    window, labels = (3,) * rank, ("NWC", "WIO", "NWC") if rank == 1 else ("NHWC", "HWIO", "NHWC")

    def convolve(x, w):
        return lax.conv_general_dilated(x, w, (1,) * rank, "SAME", dimension_numbers=labels)

    compiled = hl.jit(convolve).lower(struct(2, *[N] * rank, 8), struct(*window, 8, 16)).compile()
    for size in (33, 1, 2, 7, 12, 40, 63):
        given = drawn(2, *[size] * rank, 8), drawn(*window, 8, 16)
        np.testing.assert_allclose(compiled(*given), convolve(*given), rtol=2e-4, atol=2e-4, err_msg=f"n = {size}")
    assert len(compiled.executable.variants) <= 4, "\n".join(map(str, compiled.executable.variants))


def test_a_guard_that_divides_by_0_does_not_hold():
    """A guard that is noted behind another may divide by what is 0 where that one fails."""
    assert open_kernels.check(53)[0] == open_kernels.CALLS


def test_shapes_that_guards_make_equal():
    """A padding that a guard makes a number gives a result whose size is written in another way."""
    assert open_kernels.check(143)[0] == open_kernels.CALLS


def test_cotangents_of_integers_of_open_sizes():
    """They are False everywhere, in the shape of the integers."""
    compiled = hl.jit(lambda n, x: hl.vjp(lambda n, x: n * x, n, x)[1](hnp.ones_like(x))).lower(
        struct(N, dtype="int32"), struct(N)
    )
    for size in (1, 4, 9):
        integers, floats = compiled.compile()(np.arange(size, dtype=np.int32), drawn(size))
        assert integers.shape == (size,) and not np.asarray(integers).any()
        np.testing.assert_array_equal(floats, np.arange(size))


def test_what_work_costs_is_no_guard():
    """Attention had a variant for each length."""
    compiled = hl.jit(lambda x: hl.nn.softmax(x @ x.swapaxes(-1, -2)) @ x).lower(struct(2, N, 64)).compile()
    for size in (100, 101, 102, 103, 104, 200, 201):
        x = 0.1 * drawn(2, size, 64)
        weights = np.exp(x @ x.swapaxes(-1, -2))
        np.testing.assert_allclose(compiled(x), weights / weights.sum(-1, keepdims=True) @ x, rtol=1e-4, atol=1e-5)
    assert len(compiled.executable.variants) <= 3


def test_two_sizes_and_a_tree():
    def f(pair):
        x, y = pair
        return {"outer": x[:, None] * y, "size": x.shape[0] * y.shape[0]}

    compiled = hl.jit(f).lower((struct(N), struct(M, dtype="float64"))).compile()
    for n, m in ((3, 4), (4, 3), (1, 7), (7, 1), (100, 30)):
        x, y = drawn(n), drawn(m, dtype="float64")
        found = compiled((x, y))
        np.testing.assert_allclose(found["outer"], x[:, None] * y)
        assert found["size"] == n * m


def test_what_a_variant_is_for_can_be_read():
    compiled = hl.jit(lambda x: x * 2).lower(struct(hl.Dim("rows", 1, 4096), 3)).compile()
    compiled(drawn(8, 3)), compiled(drawn(1, 3))
    first, second = map(str, compiled.executable.variants)
    assert "rows >= 2" in first and second == "rows == 1"
    assert "rows" in compiled.as_text() and second in compiled.source()
    for asked in (compiled.cost_analysis, compiled.memory_analysis, lambda: compiled.plan):
        with pytest.raises(ArgumentError, match="depends on sizes"):
            asked()


def test_sizes_out_of_bounds():
    rows = hl.Dim("rows", 2, 64, multiple_of=2)
    compiled = hl.jit(lambda x, y: x + y).lower(struct(rows, 3), struct(rows, 3)).compile()
    assert compiled(drawn(4, 3), drawn(4, 3)).shape == (4, 3)
    for first, second in (((66, 3), (66, 3)), ((5, 3), (5, 3)), ((4, 3), (6, 3)), ((4, 2), (4, 2))):
        with pytest.raises(ShapeError, match=r"(?s)Dim\('rows', min=2, max=64, multiple_of=2\).*test_open_sizes.py"):
            compiled(drawn(*first), drawn(*second))
    with pytest.raises(ArgumentError, match="lowered for"):
        compiled(drawn(4, 3), drawn(4, 3, dtype="float64"))
    with pytest.raises(ArgumentError, match="lowered for"):
        compiled(drawn(4, 3), drawn(4))


def test_a_size_that_is_negative_for_some_is_refused_for_these():
    compiled = hl.jit(lambda x: hnp.zeros(x.shape[0] - 5) + x[5:]).lower(struct(hl.Dim("n", 6))).compile()
    assert compiled(drawn(9)).shape == (4,)
    with pytest.raises(ShapeError, match="min=6"):
        compiled(drawn(3))


@pytest.mark.parametrize(("dtype", "function", "fits", "beyond"), [
    ("int32", lambda x: x[0] + x.shape[0] * x.shape[0], 46340, 46341),
    ("int8", lambda x: x + x.shape[0], 127, 128),
    ("int32", lambda x: hl.vmap(lambda row: row + x.shape[0] ** 3)(x), 1290, 1291),
])  # fmt: skip
def test_a_size_without_room_in_its_dtype_is_refused_for_these(dtype, function, fits, beyond):
    compiled = hl.jit(function).lower(struct(N, dtype=dtype)).compile()
    for size in (3, fits):
        wanted = function(hnp.zeros(size, dtype))
        np.testing.assert_array_equal(compiled(np.zeros(size, dtype)), wanted)
    with pytest.raises(ShapeError, match=r"(?s)at most has room.*test_open_sizes.py"):
        compiled(np.zeros(beyond, dtype))


def test_kernels_that_take_numbers_are_compiled_for_each_size():
    compiled = hl.jit(lambda x: hnp.fft.fft(x)).lower(struct(N)).compile()
    with pytest.warns(FallbackWarning, match="compiled for each size by itself"):
        compiled(drawn(12))
    for size in (12, 7, 64, 1):
        np.testing.assert_allclose(compiled(drawn(size)), np.fft.fft(drawn(size)), rtol=1e-4, atol=1e-4)
    assert len(compiled.executable.variants) == 4


def test_other_devices_say_that_they_have_none():
    with pytest.raises(UnsupportedError, match="open sizes run on one CPU device"):
        hl.jit(lambda x: x * 2, target="cuda:sm_90").lower(struct(N)).compile()
