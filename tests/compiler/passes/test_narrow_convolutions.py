"""narrow-convolutions, and dots of narrow integers whose operands are computed: the same sums, in words of several."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.backends.cpu.compilation import compile_module
from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.ir.interpret import evaluate

ENDS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}


def drawn(seed: int):
    """(a function of an image and a kernel of narrow integers, the two), with extreme values among them."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    features, outputs, batch = (int(rng.choice(sizes)) for sizes in ((1, 3, 8, 20), (4, 8, 13, 24), (1, 2)))
    sizes, window = [int(n) for n in rng.integers(4, 10, rank)], [int(n) for n in rng.integers(1, 4, rank)]
    letters = "DHW"[:rank]
    first, last = "NC" + letters, "N" + letters + "C"
    orders = [(first, "OI" + letters, first), (last, letters + "IO", last), (first, letters + "OI", last)]
    numbers = orders[int(rng.integers(3))]
    extents = dict(zip("NCOI" + letters, (batch, features, outputs, features, *sizes), strict=True))
    kernel = {**extents, **dict(zip(letters, window, strict=True))}
    kinds = [str(rng.choice(list(ENDS))) for _ in range(2)]
    arrays = []
    for kind, order, of in zip(kinds, numbers[:2], (extents, kernel), strict=True):
        low, high = ENDS[kind]
        values = rng.integers(low, high + 1, [of[letter] for letter in order])
        arrays.append(np.where(rng.random(values.shape) < 0.1, low, values).astype(kind))
    strides = [int(n) for n in rng.integers(1, 3, rank)]
    dilations = [int(n) for n in rng.integers(1, 3, rank)]
    padding = [(int(a), int(b)) for a, b in rng.integers(-1 if seed % 5 == 0 else 0, 3, (rank, 2))]
    if any(n + a + b < (k - 1) * d + 1 for n, (a, b), k, d in zip(sizes, padding, window, dilations, strict=True)):
        padding = [(2, 2)] * rank

    def function(x, w):
        if seed % 2:
            x, w = x[::-1], w * w.dtype.type(1)
        return lax.conv_general_dilated(x, w, strides, padding, rhs_dilation=dilations, dimension_numbers=numbers,
                                        preferred_element_type=np.int32)  # fmt: skip

    return function, arrays


def check(seed: int) -> None:
    """Raises AssertionError for other sums than the reference's."""
    function, arrays = drawn(seed)
    module = hl.make_module(function)(*map(hnp.asarray, arrays))
    wanted = evaluate(module.entry, arrays)
    with hl.config(num_threads=1 + seed % 2):
        np.testing.assert_array_equal(compile_module(module, steady=frozenset([seed % 3]))(arrays)[0], wanted)
    passes = PIPELINE[: PIPELINE.index("merge-dots")]
    np.testing.assert_array_equal(evaluate(run_passes(module, passes, verify=True).entry, arrays), wanted)


@pytest.mark.parametrize("seed", range(16))
def test_random_convolutions(seed):
    check(seed)


def test_the_random_convolutions_are_dots():
    passes = PIPELINE[: PIPELINE.index("merge-dots")]
    left = 0
    for seed in range(30):
        function, arrays = drawn(seed)
        module = run_passes(hl.make_module(function)(*map(hnp.asarray, arrays)), passes)
        left += any(i.opcode == "convolution" for i in module.entry.instructions)
    assert left < 20


def kernels_of(function, *arguments) -> str:
    return hl.jit(function).lower(*arguments).compile().source()


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16"])
def test_operands_that_are_computed_are_multiplied_in_words(kind):
    rng = np.random.default_rng(0)
    x, w = (rng.integers(0, 100, shape).astype(kind) for shape in ((20, 31), (31, 40)))

    def product(x, w):
        x, w = x - x.dtype.type(3), hnp.maximum(w, x.dtype.type(5))
        return lax.dot_general(x, w, (((1,), (0,)), ((), ())), preferred_element_type=np.int32) + 1

    assert "pair32" in kernels_of(product, x, w)
    near = (x - x.dtype.type(3)).astype(np.int32), np.maximum(w, 5).astype(np.int32)
    np.testing.assert_array_equal(hl.jit(product)(x, w), near[0] @ near[1] + 1)


def test_sums_that_words_do_not_have_stay():
    """Of a group for each feature, of few outputs, of a wider result."""
    x, w = np.ones((1, 4, 8, 8), np.int8), np.ones((4, 4, 3, 3), np.int8)

    def convolutions(x, w):
        few = lax.conv_general_dilated(x, w, (1, 1), "SAME", preferred_element_type=np.int32)
        v = hnp.concatenate([w[:, :1]] * 2)
        return few, lax.conv_general_dilated(x, v, (1, 1), "SAME", feature_group_count=4,
                                             preferred_element_type=np.int32)  # fmt: skip

    module = hl.make_module(convolutions)(x, w)
    assert run_passes(module, ("narrow-convolutions",)) is module
    for got, wanted in zip(compile_module(module)([x, w]), evaluate(module.entry, [x, w]), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("labels", [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC")], ids="-".join)
def test_windows_of_two_kinds_of_bytes_stay_bytes(labels):
    random = np.random.default_rng(0)
    x, w = random.integers(0, 256, (2, 9, 11, 12)), random.integers(-128, 128, (16, 12, 3, 2))
    x, w = np.moveaxis(x, -1, 1).astype(np.uint8), w.astype(np.int8)
    wanted = np.zeros((2, 16, 4, 6), np.int64)
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 0), (0, 2)))
    for i in range(3):
        for j in range(2):
            taken = padded[:, :, i : i + 7 : 2, 2 * j : 2 * j + 11 : 2]
            wanted += np.einsum("nchw,oc->nohw", taken, w[:, :, i, j].astype(np.int64))
    if labels[0] == "NHWC":
        x, wanted, w = x.transpose(0, 2, 3, 1), wanted.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0)
    convolve = hl.jit(lambda x, w: hl.lax.conv_general_dilated(
        x, w, (2, 2), ((1, 0), (0, 2)), rhs_dilation=(1, 2), dimension_numbers=labels,
        preferred_element_type=np.int32))  # fmt: skip
    np.testing.assert_array_equal(np.asarray(convolve(x, w)), wanted)
    assert "s16[" not in convolve.lower(x, w).compile().as_text()
