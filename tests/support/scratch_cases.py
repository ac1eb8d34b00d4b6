"""Random kernels with scratch memory, on random processors, against the reference interpreter: `run(number)`.

Each number is a case: a convolution, a product, a window, a Fourier transform, a softmax or an attention, small enough
that most take a few milliseconds. Numbers of the same `GROUP` share a processor: a level of x86-64, caches and cores,
and every other time scratch memory so small that small arrays are cut into blocks as large ones are.

Values are whole numbers wherever sums of them are exact, so that results are compared bit by bit. Arguments end where a
page begins that may not be touched; with `hl.config.guard_scratch` so do temporaries and scratch memory.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np
import window_programs as programs

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.backends.cpu.compilation import compile_module
from hloom.compiler.kernels.contractions import room
from hloom.compiler.targets.cpu.machine import host, valid_choices
from hloom.compiler.targets.cpu.target import CpuTarget
from hloom.ir.build import Builder, Value, scalar_computation
from hloom.ir.interpret import evaluate
from hloom.ir.module import Computation, Module
from hloom.ir.ops.reductions.window import comparison
from hloom.ir.records import record, replace
from hloom.ir.types import DTYPES, Shape
from hloom.ir.window import WindowDimension as W
from hloom.ir.window import dilated
from hloom.runtime import code_memory

GROUP = 50
# Of `room`: an image of a few kilobytes fills these.
SMALL = {"LEFT_BYTES": 24 << 10, "DEPTH": 128, "MOST_ROWS": 48, "EDGE_ROWS": 512, "COPIED": 24 << 10}
WORK = 30_000_000  # multiplications of the reference at most


@record(frozen=True)
class Processor:
    """level: of `valid_choices`. l2_bytes, cores: of a machine. small: whether scratch memory is SMALL."""

    level: str
    l2_bytes: int
    cores: int
    small: bool


def processor(number: int) -> Processor:
    """The processor of a case."""
    rng = np.random.default_rng([1, number // GROUP])
    levels = valid_choices()
    return Processor(
        levels[int(rng.integers(len(levels)))],
        int(rng.choice([64 << 10, 512 << 10, 2 << 20])),
        int(rng.choice([1, 4, 64])),
        bool(rng.random() < 0.5),
    )


@contextlib.contextmanager
def target_of(chosen: Processor) -> Iterator[CpuTarget]:
    """Within: code is made for this processor."""
    kept = {name: getattr(room, name) for name in SMALL}
    with hl.config(cpu=chosen.level):
        for name, value in SMALL.items() if chosen.small else ():
            setattr(room, name, value)
        try:
            yield CpuTarget(replace(host(), l2_bytes=chosen.l2_bytes, cores=chosen.cores))
        finally:
            for name, value in kept.items():
                setattr(room, name, value)


@record
class Case:
    """tolerance: 0 where the result has the reference's bits; otherwise relative to its largest element."""

    kind: str
    computation: Computation
    arrays: list[np.ndarray]
    tolerance: float = 0.0


def behind_guards(array: np.ndarray) -> np.ndarray:
    """A copy that ends, but for what rounds its size up to a cache line, where a page begins that nobody may touch."""
    size = -(-max(array.nbytes, 1) // 64) * 64
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, pages + mmap.PAGESIZE), np.uint8)
    code_memory.forbid(memory.ctypes.data + pages)
    made = memory[pages - size : pages - size + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def run(number: int) -> tuple[str, str]:
    """(the kind of a case, what is wrong with it: empty where nothing is)."""
    rng = np.random.default_rng([2, number])
    with target_of(processor(number)) as target, np.errstate(all="ignore"):
        case = _case(rng)
        want = evaluate(case.computation, case.arrays)
        executable = compile_module(Module("main", case.computation), target=target)
        found = executable([behind_guards(a) for a in case.arrays])
        for got, expected in zip(found, want if isinstance(want, tuple) else [want], strict=True):
            got, expected = np.asarray(got), np.asarray(expected)
            if fault := _difference(got, expected, case.tolerance):
                arrays = ", ".join(f"{a.dtype.name}{list(a.shape)}" for a in case.arrays)
                return case.kind, f"{number}: {case.kind} of {arrays}: {fault}"
    return case.kind, ""


def _difference(got: np.ndarray, expected: np.ndarray, tolerance: float) -> str:
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{got.dtype}{got.shape} for {expected.dtype}{expected.shape}"
    kind = np.complex128 if got.dtype.kind == "c" else np.float64
    if got.dtype.kind in "biu" or tolerance == 0:
        return "" if np.array_equal(got, expected, equal_nan=got.dtype.kind not in "biu") else "other values"
    got, expected = got.astype(kind), expected.astype(kind)
    away = np.abs(got - expected).max(initial=0)
    return "" if away <= tolerance * max(np.abs(expected).max(initial=0), 1.0) else f"differs by {away}"


def _case(rng: np.random.Generator) -> Case:
    kinds, weights = zip(*KINDS.items(), strict=True)
    return kinds[int(rng.choice(len(kinds), p=np.array(weights) / sum(weights)))](rng)


def _size(rng: np.random.Generator, most: int) -> int:
    """Small sizes more often than large ones, and sizes around powers of two."""
    size = int(np.exp(rng.random() * np.log(most)))
    if size > 6 and rng.random() < 0.3:
        size = (1 << (size.bit_length() - 1)) + int(rng.integers(-1, 2))
    return max(1, min(size, most))


def _pick(rng: np.random.Generator, *choices):
    return choices[int(rng.integers(len(choices)))]


def _operation(arrays: list[np.ndarray], build: Callable[..., Value], rng: np.random.Generator) -> Computation:
    """The computation of `build`, whose result sometimes stays a temporary, and is sometimes consumed."""
    builder = Builder("main")
    values = [Value(builder, builder.parameter(Shape(a.dtype, a.shape))) for a in arrays]
    result = build(*values)
    after = rng.random()
    if after < 0.15:
        result = result.op("optimization-barrier").op("negate") if result.dtype != DTYPES["pred"] else result
    elif after < 0.4 and result.dtype.kind not in "bc":
        result = result.op("maximum", Value(builder, builder.constant(0, result.dtype)).broadcast(result.dims, ()))
    return builder.finish(result.instruction)


# --- convolutions -----------------------------------------------------------------------------------------------------

CONVOLVED = ("f32",) * 6 + ("f64", "f64", "s32", "bf16", "f16", "s8", "u8", "c64")


def _of_bounded_values(rng: np.random.Generator, dtype, dims, products: int) -> np.ndarray:
    """Whole numbers whose sums of so many products are exact in the dtype's accumulator and, in narrow dtypes, rounded
    once."""
    values = programs.values(rng, dtype, dims)
    return values if products < 4000 else np.sign(values.real).astype(dtype) if np.dtype(dtype).kind != "u" else values


def any_convolution(rng: np.random.Generator) -> Case:
    """All attributes, tiny sizes."""
    x, w, attributes = programs.random_convolution(rng, DTYPES[_pick(rng, *CONVOLVED)])
    return Case("convolution", programs.single("convolution", [x, w], **attributes), [x, w])


def image_convolution(rng: np.random.Generator) -> Case:
    """Two spatial dimensions and some features, in the layouts of libraries: those that tiles read in an image."""
    dtype = DTYPES[_pick(rng, *CONVOLVED)]
    rank = _pick(rng, 2, 2, 2, 1)
    extents = [_size(rng, _pick(rng, 12, 40)) for _ in range(rank)]
    if rng.random() < 0.05:
        extents[-1] = int(rng.integers(600, 1400))
        extents[:-1] = [1] * (rank - 1)
    taps = [_pick(rng, 1, 2, 3, 3, 3, 5, 7) for _ in range(rank)]
    stride, dilation = _pick(rng, 1, 1, 1, 2, 3), _pick(rng, 1, 1, 1, 2)
    pad = [_pick(rng, 0, (k - 1) // 2, (k - 1) // 2, k - 1, -1) for k in taps]
    lhs_dilation = _pick(rng, 1, 1, 1, 1, 2)
    window = tuple(
        W(k, stride, p, p + _pick(rng, 0, 0, 1), lhs_dilation, dilation) for k, p in zip(taps, pad, strict=True)
    )
    groups = _pick(rng, 1, 1, 1, 1, 2, 4)
    batch_groups = 1 if groups > 1 else _pick(rng, 1, 1, 1, 1, 2)
    features, outputs = groups * _size(rng, 64), groups * batch_groups * _size(rng, 48)
    batch = batch_groups * _size(rng, 9)
    places = int(np.prod([max(d.output(n), 1) for d, n in zip(window, extents, strict=True)]))
    products = int(np.prod(taps)) * (features // groups)
    while batch * places * products * outputs > WORK and (batch > batch_groups or outputs > groups * batch_groups):
        batch = batch_groups * max(batch // batch_groups // 2, 1)
        outputs = groups * batch_groups * max(outputs // groups // batch_groups // 2, 1)
    if any(dilated(n, lhs_dilation) + d.low + d.high < 0 for d, n in zip(window, extents, strict=True)):
        return any_convolution(rng)
    spaces = "012"[:rank]
    labels = _pick(
        rng, f"b{spaces}f_{spaces}io->b{spaces}f", f"bf{spaces}_oi{spaces}->bf{spaces}",
        f"b{spaces}f_oi{spaces}->bf{spaces}", f"f{spaces}b_i{spaces}o->{spaces}bf",
    )  # fmt: skip
    sizes = {"b": batch, "f": features, "i": features // groups, "o": outputs}
    lhs, rhs, _ = labels.replace("->", "_").split("_")
    x = _of_bounded_values(rng, dtype, [sizes.get(c) or extents[int(c)] for c in lhs], products)
    w = _of_bounded_values(rng, dtype, [sizes.get(c) or taps[int(c)] for c in rhs], products)
    attributes = {
        "window": window,
        "dim_labels": labels,
        "feature_group_count": groups,
        "batch_group_count": batch_groups,
    }
    computation = _operation([x, w], lambda x, w: x.op("convolution", w, **attributes), rng)
    return Case("image convolution", computation, [x, w])


def staged_convolution(rng: np.random.Generator) -> Case:
    """Images that tiles read in scratch memory: as many positions, and products for each, as that takes at least."""
    dtype = DTYPES[_pick(rng, "f32", "f32", "f32", "f64", "s32")]
    extents = [_pick(rng, 1, _size(rng, 16), _size(rng, 32)), int(rng.integers(6, 36))]
    taps = [_pick(rng, 1, 3, 3, 5), _pick(rng, 3, 3, 5)]
    features = -(-96 // (taps[0] * taps[1])) + int(rng.integers(_pick(rng, 8, 30, 100)))
    outputs, stride = _size(rng, _pick(rng, 16, 80)), _pick(rng, 1, 1, 1, 2)
    pads = [_pick(rng, 0, k // 2, k // 2) for k in taps]
    if rng.random() < 0.1:
        pads[1] -= 1
    window = tuple(W(k, stride, p, p + _pick(rng, 0, 0, 1)) for k, p in zip(taps, pads, strict=True))
    places = int(np.prod([max(d.output(n), 1) for d, n in zip(window, extents, strict=True)]))
    batch = min(-(-int(rng.integers(96, 900)) // places), 16)
    labels = _pick(rng, "b01f_01io->b01f", "b01f_01io->b01f", "bf01_oi01->bf01")
    sizes = {"b": batch, "f": features, "i": features, "o": outputs}
    lhs, rhs, _ = labels.replace("->", "_").split("_")
    x = programs.values(rng, dtype, [sizes.get(c) or extents[int(c)] for c in lhs])
    w = programs.values(rng, dtype, [sizes.get(c) or taps[int(c)] for c in rhs])
    attributes = {"window": window, "dim_labels": labels}
    return Case(
        "staged convolution", _operation([x, w], lambda x, w: x.op("convolution", w, **attributes), rng), [x, w]
    )


def kernel_gradient(rng: np.random.Generator) -> Case:
    """The convolution of the gradient with respect to a kernel: the window is as large as the image."""
    features, outputs, batch = _size(rng, 24), _size(rng, 40), _size(rng, 6)
    extents = [_size(rng, 20), _size(rng, _pick(rng, 24, 24, 1400))]
    taps, stride, pad = [_pick(rng, 1, 3, 5), _pick(rng, 1, 3, 5)], _pick(rng, 1, 1, 2), _pick(rng, 0, 1, 2)
    if extents[1] > 100:
        extents[0] = _size(rng, 4)
    places = [(n + 2 * pad - k) // stride + 1 for n, k in zip(extents, taps, strict=True)]
    if min(places) < 1:
        return any_convolution(rng)
    dtype = DTYPES[_pick(rng, "f32", "f32", "f64")]
    while batch * np.prod(places) * np.prod(taps) * features * outputs > WORK and (outputs > 1 or features > 1):
        outputs, features = max(outputs // 2, 1), max(features // 2, 1)
    x = _of_bounded_values(rng, dtype, [batch, *extents, features], 0)
    y = _of_bounded_values(rng, dtype, [batch, *places, outputs], 0)
    window = tuple(
        W(p, 1, pad, pad - ((n + 2 * pad - k) % stride), 1, stride)
        for p, n, k in zip(places, extents, taps, strict=True)
    )
    attributes = {"window": window, "dim_labels": "f01b_i01o->01bf"}
    return Case("kernel gradient", _operation([x, y], lambda x, y: x.op("convolution", y, **attributes), rng), [x, y])


# --- products ---------------------------------------------------------------------------------------------------------


def product(rng: np.random.Generator) -> Case:
    """A dot with any dimension numbers; operands may be transposed, sliced, converted or computed."""
    name = _pick(rng, *("f32",) * 5, "f64", "f64", "s32", "s8", "u8", "s64", "bf16", "f16", "c64", "c128", "pred")
    dtype = DTYPES[name]
    m, n, k, b = (_size(rng, most) for most in (_pick(rng, 24, 200, 900), _pick(rng, 24, 200, 900), 200, 4))
    if rng.random() < 0.06:
        m, n, k = _size(rng, 20), _size(rng, 20), int(rng.integers(4000, 9000))
    elif rng.random() < 0.06:
        m, n, k = _size(rng, 16), int(rng.integers(500, 2500)), _size(rng, 1500)
    batched = rng.random() < 0.3
    while (b if batched else 1) * m * n * k > WORK:
        m, n, k = max(m // 2, 1), max(n // 2, 1), max(k // 2, 1)
    roles = [("b",) * batched + ("i", "p"), ("b",) * batched + ("p", "j")]
    if rng.random() < 0.2:  # two dimensions of a role
        roles = [(*roles[0], "q"), (*roles[1], "q")]
    sizes = {"b": b, "i": m, "j": n, "p": k, "q": 3}
    arrays, orders = [], []
    for names in roles:
        order = [names[int(d)] for d in rng.permutation(len(names))]
        orders.append(order)
        values = rng.integers(0, 2, [sizes[r] for r in order]).astype(bool) if name == "pred" else _of_bounded_values(
            rng, dtype, [sizes[r] for r in order], 8 * k
        )  # fmt: skip
        arrays.append(values)
    changes = [_pick(rng, "", "", "", "transpose", "slice", "sum") for _ in arrays]
    wide = {"s8": "s32", "u8": "s32", "bf16": "f32", "f16": "f32"}.get(name) if rng.random() < 0.5 else None

    def build(*operands: Value) -> Value:
        sides = []
        for value, order, change in zip(operands, orders, changes, strict=True):
            axes = {role: d for d, role in enumerate(order)}
            if change == "transpose":
                turned = tuple(reversed(range(len(order))))
                value = value.transpose(turned)
                axes = {role: len(order) - 1 - d for role, d in axes.items()}
            elif change == "sum" and value.dtype.kind != "b":
                value = value + value
            sides.append((value, axes))
        (x, left), (y, right) = sides
        batch, summed = (("b",) if batched else ()), [r for r in ("p", "q") if r in left]
        dims = [sizes["b"]] * batched + [m, n]
        shape = Shape(DTYPES[wide or name], tuple(dims)) if wide else None
        return x.op(
            "dot", y, shape=shape,
            lhs_batch_dims=tuple(left[r] for r in batch), rhs_batch_dims=tuple(right[r] for r in batch),
            lhs_contracting_dims=tuple(left[r] for r in summed), rhs_contracting_dims=tuple(right[r] for r in summed),
        )  # fmt: skip

    return Case("product", _operation(arrays, build, rng), arrays)


# --- windows ----------------------------------------------------------------------------------------------------------

WINDOWED = ("f32", "f64", "s32", "bf16", "s8", "c64", "u8", "f16")


def window(rng: np.random.Generator) -> Case:
    dtype = DTYPES[_pick(rng, *WINDOWED)]
    opcode = "add" if dtype.kind == "c" else _pick(rng, "add", "maximum", "minimum")
    dims = [_size(rng, _pick(rng, 6, 40)) for _ in range(int(rng.integers(0, 4)))]
    chosen = tuple(W(1) if rng.random() < 0.4 else d for d in programs.random_window(rng, dims))
    if dims and rng.random() < 0.25:  # a running sum
        dims[-1] = _size(rng, 3000)
        last = _pick(rng, W(dims[-1], 1, dims[-1] - 1, 0), W(dims[-1], 1, 0, dims[-1] - 1), W(dims[-1]))
        chosen = (*(W(1) for _ in dims[:-1]), last)
    x = np.sign(programs.values(rng, dtype, dims)) if dtype.itemsize < 4 else programs.values(rng, dtype, dims)
    arrays = [x.astype(dtype), programs.values(rng, dtype, ())]
    combiner = scalar_computation(opcode, dtype)
    return Case("window", programs.single("reduce-window", arrays, window=chosen, to_apply=combiner), arrays)


def selection(rng: np.random.Generator) -> Case:
    dtype = DTYPES[_pick(rng, "f32", "f64", "s32")]
    dims = [_size(rng, 12) for _ in range(int(rng.integers(1, 4)))]
    chosen = programs.random_window(rng, dims, dilates=False)
    places = [d.output(n) for d, n in zip(chosen, dims, strict=True)]
    arrays = [programs.values(rng, dtype, d) for d in (dims, places, ())]
    computation = programs.single(
        "select-and-scatter", arrays, window=chosen, select=comparison(_pick(rng, "GE", "LE"), dtype),
        scatter=scalar_computation("add", dtype),
    )  # fmt: skip
    return Case("selection", computation, arrays)


# --- functions of rows ------------------------------------------------------------------------------------------------


def _traced(kind: str, function: Callable, arrays: list[np.ndarray], tolerance: float) -> Case:
    return Case(kind, hl.make_module(function)(*arrays).entry, arrays, tolerance)


def transform(rng: np.random.Generator) -> Case:
    double = rng.random() < 0.4
    name = _pick(rng, "fft", "fft", "ifft", "rfft", "irfft", "fft2", "rfft2")
    n = _pick(rng, _size(rng, 64), _size(rng, 600), _pick(rng, 1024, 2048, 4096, 5000, 3 * 1024, 77, 97, 8192))
    dims = [_size(rng, 20), n] if n < 1000 else [_size(rng, 3), n]
    axis = -1
    if rng.random() < 0.3:
        dims, axis = dims[::-1], 0
    x = rng.standard_normal(dims)
    if not name.startswith("rfft"):
        x = x + 1j * rng.standard_normal(dims)
    x = x.astype({(False, "f"): "f4", (True, "f"): "f8", (False, "c"): "c8", (True, "c"): "c16"}[double, x.dtype.kind])
    options = {} if name.endswith("2") else {"axis": axis}
    if name == "irfft" and x.shape[axis] < 2:
        name = "ifft"
    # Elements are of the size of the norm, and rounding errors are small against that.
    tolerance = (1e-13 if double else 5e-6) * np.sqrt(np.log2(max(n, 2)))
    return _traced("transform", lambda x: getattr(hnp.fft, name)(x, **options), [x], tolerance)


NEAR = {"f4": 3e-5, "f8": 1e-12, "bf16": 2e-2, "f2": 4e-3}


def rows(rng: np.random.Generator) -> Case:
    name = _pick(rng, "f4", "f4", "f8", "bf16", "f2")
    dims = [_size(rng, 8) for _ in range(int(rng.integers(0, 3)))] + [_size(rng, _pick(rng, 30, 3000))]
    x = rng.standard_normal(dims).astype(ml_dtypes.bfloat16 if name == "bf16" else name)
    axis = int(rng.integers(len(dims)))
    function = _pick(
        rng, lambda x: hl.nn.softmax(x, axis=axis), lambda x: hl.nn.logsumexp(x, axis=axis),
        lambda x: (x - hnp.mean(x, axis, keepdims=True)) * hnp.std(x, axis, keepdims=True),
        lambda x: hnp.sort(x, axis=axis), lambda x: lax.top_k(x, min(3, x.shape[-1]))[0],
        lambda x: hnp.cumsum(x, axis=axis) / 100, lambda x: hnp.swapaxes(x, 0, -1) * 2,
    )  # fmt: skip
    return _traced("rows", function, [x], NEAR[name])


def attention(rng: np.random.Generator) -> Case:
    name = _pick(rng, "f4", "f4", "f4", "f8", "bf16", "f2")
    batch, queries, keys = (
        _size(rng, 9),
        int(rng.integers(1, _pick(rng, 60, 300))),
        _size(rng, _pick(rng, 60, 700, 3000)),
    )
    features, out = _size(rng, _pick(rng, 70, 70, 300)), _size(rng, _pick(rng, 70, 70, 300))
    if rng.random() < 0.7:  # enough rows for one kernel
        batch, queries, keys = batch + 3, queries + 24, keys + 8
    while batch * queries * keys * (features + out) > WORK and keys > 8:
        keys = keys // 2 + 1
    dtype = ml_dtypes.bfloat16 if name == "bf16" else name
    shapes = (batch, queries, features), (batch, keys, features), (batch, keys, out)
    causal, middle = rng.random() < 0.4, rng.random() < 0.3
    if middle:
        shapes = tuple((t, b, f) for b, t, f in shapes)
    arrays = [rng.standard_normal(dims).astype(dtype) for dims in shapes]

    def function(q, k, v):
        if middle:
            q, k, v = (hnp.swapaxes(x, 0, 1) for x in (q, k, v))
        scores = hnp.matmul(q, hnp.swapaxes(k, -1, -2)) * 0.25
        if causal:
            rows, columns = hnp.arange(scores.shape[-2])[:, None], hnp.arange(scores.shape[-1])
            scores = hnp.where(rows >= columns, scores, -1e9 if name in ("f4", "f8") else -6e4)
        return hnp.matmul(hl.nn.softmax(scores), v)

    return _traced("attention", function, arrays, NEAR[name])


# kind of case -> how often, in relation to the others
KINDS: dict[Callable[[np.random.Generator], Case], int] = {
    any_convolution: 8, image_convolution: 14, staged_convolution: 16, kernel_gradient: 10, product: 24, window: 7,
    selection: 3, transform: 6, rows: 5, attention: 9,
}  # fmt: skip
