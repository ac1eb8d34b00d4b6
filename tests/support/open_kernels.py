"""Kernels of open sizes, one executable for all, against the reference interpreter at each: `check(seed)`.

A seed is a product, a convolution or an attention of random layout, dtype and surroundings, some of whose sizes are
open, and a processor as in `scratch_cases`. It is called with several sizes, small ones among them and those around
powers of two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
from scratch_cases import _pick, _size, behind_guards, processor, target_of

import hloom as hl
import hloom.numpy as hnp
from hloom import lax, nn
from hloom.backends.cpu.open_sizes import OpenExecutable
from hloom.errors import HloomError, UndecidedSizeError
from hloom.ir.interpret import evaluate
from hloom.ir.ops.specialize import Specialization
from hloom.ir.sizes.expressions import Dim, Size, size_at
from hloom.platforms.backend import CompileOptions

CALLS = 6
WORK = 4_000_000  # multiplications of the reference at most
DTYPES = ("float32",) * 4 + ("float64", "bfloat16", "int32")

_Shapes = list[tuple[Size, ...]]
_Program = tuple[Callable, _Shapes, Callable[[dict[str, int]], int]]  # function, shapes, multiplications at sizes


def check(seed: int) -> tuple[int, int]:
    """Returns the calls and the variants that they needed. Raises AssertionError."""
    rng = np.random.default_rng([5, seed])
    made, dtype = _pick(rng, _product, _product, _convolution, _attention), _pick(rng, *DTYPES)
    if made is _attention and dtype not in ("float32", "float64"):
        dtype = "float32"
    function, shapes, work = made(rng)
    structs = [hl.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    with target_of(processor(seed)):
        try:
            module = hl.make_module(_surrounded(rng, function))(*structs)
        except UndecidedSizeError:  # the greatest element of what may be empty
            return 0, 0
        executable = OpenExecutable(module, CompileOptions())
        calls = 0
        for _ in range(CALLS):
            sizes = {name: _size(rng, 150) for name in executable.dims}
            if work(sizes) > WORK:
                sizes = {name: _size(rng, 20) for name in executable.dims}
            arrays = [_whole_numbers(rng, dtype, [size_at(d, sizes) for d in shape]) for shape in shapes]
            try:
                wanted = evaluate(Specialization(sizes).computation(module.entry), arrays)
            except HloomError:  # a size for which the program was not built
                continue
            calls += 1
            found = executable([behind_guards(a) for a in arrays])
            for got, expected in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
                assert got.shape == expected.shape and got.dtype == expected.dtype, (seed, sizes)
                got, expected = np.asarray(got).astype(float), np.asarray(expected).astype(float)
                same = np.array_equal(got, expected, equal_nan=True)
                if made is _attention and not same:
                    same = np.abs(got - expected).max() <= 2e-5 * max(np.abs(expected).max(), 1.0)
                assert same, f"seed {seed}, {dtype}, {shapes} at {sizes}"
    return calls, len(executable.variants)


def _whole_numbers(rng: np.random.Generator, dtype: str, dims: Sequence[int]) -> np.ndarray:
    """Of which sums are exact."""
    return rng.integers(-1, 2, dims).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def _sizes(rng: np.random.Generator, count: int, most: int) -> list[Size]:
    """Some of them open, at least one, some of these the same."""
    sizes: list[Size] = [_size(rng, most) for _ in range(count)]
    for k in rng.permutation(count)[: int(rng.integers(1, count + 1))]:
        sizes[int(k)] = Dim(_pick(rng, *"abc"))
    return sizes


def _product(rng: np.random.Generator) -> _Program:
    """A matrix product, perhaps of a batch, in any order of its axes."""
    sizes = dict(zip("bmnk", _sizes(rng, 4, 90), strict=True))
    left, right = (
        _permuted(rng, one) for one in _pick(rng, ("mk", "kn"), ("bmk", "kn"), ("bmk", "bkn"), ("bmk", "bk"))
    )
    result = _permuted(rng, "".join(c for c in "bmn" if c in left + right and c != "k"))
    shapes = [tuple(sizes[c] for c in one) for one in (left, right)]
    used = {*left, *right}

    def work(at: dict[str, int]) -> int:
        return int(np.prod([size_at(sizes[c], at) for c in used]))

    return lambda x, y: hnp.einsum(f"{left},{right}->{result}", x, y), shapes, work


def _permuted(rng: np.random.Generator, letters: str) -> str:
    return "".join(letters[int(k)] for k in rng.permutation(len(letters)))


def _convolution(rng: np.random.Generator) -> _Program:
    """Of one or two spatial dimensions, or its gradient with respect to one operand."""
    spaces = "WH"[: _pick(rng, 1, 2)]
    batch, features, outputs, *extents = _sizes(rng, 3 + len(spaces), 24)
    features, outputs = (s if isinstance(s, int) else _size(rng, 24) for s in (features, outputs))
    taps = [_pick(rng, 1, 2, 3, 3, 5) for _ in spaces]
    stride = [_pick(rng, 1, 1, 1, 2) for _ in spaces]
    lhs, rhs = _permuted(rng, "N" + spaces + "C"), _permuted(rng, spaces + "IO")
    by_name = dict(zip("NCIO" + spaces, (batch, features, features, outputs, *extents), strict=True))
    window = dict(zip(spaces, taps, strict=True)) | {"I": features, "O": outputs}
    shapes = [tuple(by_name[c] for c in lhs), tuple(window[c] for c in rhs)]
    same = _pick(rng, "SAME", "SAME", [(t // 2, t - 1) for t in taps])

    def convolution(x, w):
        return lax.conv_general_dilated(x, w, stride, same, dimension_numbers=(lhs, rhs, lhs))

    def work(at: dict[str, int]) -> int:
        return int(np.prod([size_at(s, at) for s in (batch, features, outputs, *extents, *taps)]))

    if rng.random() < 0.3:  # of a sum: all cotangents are 1
        which = _pick(rng, 0, 1)
        return (
            lambda x, w: hl.vjp(convolution, x, w)[1](hnp.ones_like(convolution(x, w)))[which], shapes, work
        )  # fmt: skip
    return convolution, shapes, work


def _attention(rng: np.random.Generator) -> _Program:
    """Softmax of scores, perhaps behind a mask, times values; or its gradient with respect to the queries."""
    batch, rows, keys = _sizes(rng, 3, 150)
    batch = batch if isinstance(batch, int) and batch < 9 else _size(rng, 8)
    depth, features = _size(rng, 70), _size(rng, 70)
    shapes = [(batch, rows, depth), (batch, keys, depth), (batch, keys, features)]
    masked, gradient = rng.random() < 0.4, rng.random() < 0.3

    def attend(q, k, v):
        scores = hnp.einsum("bid,bjd->bij", q, k) * 0.25
        if masked:
            inside = hnp.arange(rows)[:, None] + 1 >= hnp.arange(keys)[None]
            scores = hnp.where(inside, scores, -1e9)
        return hnp.einsum("bij,bjd->bid", nn.softmax(scores), v)

    def work(at: dict[str, int]) -> int:
        return int(np.prod([size_at(s, at) for s in (batch, rows, keys, depth + features)]))

    if gradient:
        return hl.grad(lambda q, k, v: attend(q, k, v).sum()), shapes, work
    return attend, shapes, work


def _surrounded(rng: np.random.Generator, function: Callable) -> Callable:
    """The function with what is fused into it, before it or behind."""
    before = _pick(rng, lambda x: x, lambda x: x, lambda x: hnp.maximum(x, 0), lambda x: hnp.flip(x, 0))
    after = _pick(
        rng, lambda r: r, lambda r: r, lambda r: hnp.maximum(r, 0), lambda r: r + r[:1], lambda r: (r, hnp.max(r)),
    )  # fmt: skip
    return lambda x, *others: after(function(before(x), *others))
