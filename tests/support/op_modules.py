"""One small module or more for every op of the table, with arguments, for the tests to print, parse and run.

Element-wise ops without attributes are found in the table and need nothing here. `test_text.py` fails where an op of
the table is in no module.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from hloom.ir.build import Builder, scalar_computation
from hloom.ir.errors import HloomError
from hloom.ir.module import Computation, Module
from hloom.ir.ops import OPS
from hloom.ir.text.attributes import is_required
from hloom.ir.types import COMPLEX, DTYPES, FLOATS, PRED, Shape

RUN_DTYPES = ("pred", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64", "c64", "c128")


@dataclass(frozen=True)
class Case:
    """A module and arguments for it. runs: XLA's compiler for CPUs can run it too."""

    name: str
    module: Module
    arguments: tuple[np.ndarray, ...]
    runs: bool = True


# Where functions of real numbers are defined, or not too steep for comparisons.
DOMAINS = {
    "log": (0.05, 9.0),
    "log2": (0.05, 9.0),
    "log10": (0.05, 9.0),
    "log-plus-one": (-0.9, 9.0),
    "sqrt": (0.0, 9.0),
    "rsqrt": (0.05, 9.0),
    "acosh": (1.05, 9.0),
    "atanh": (-0.9, 0.9),
    "asin": (-0.9, 0.9),
    "acos": (-0.9, 0.9),
    "tan": (-1.3, 1.3),
    "power": (0.2, 3.0),
    "erf-inv": (-0.9, 0.9),
    "lgamma": (0.1, 9.0),
    "digamma": (0.1, 9.0),
    "zeta": (1.2, 9.0),
    "polygamma": (2.0, 2.0),  # NaN for orders that are not whole
}


def numbers(dtype, dims, seed=0, low=-4.0, high=4.0) -> np.ndarray:
    """Numbers of any dtype: floats between low and high, integers of every size with the extremes among them."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[dtype] if isinstance(dtype, str) else dtype
    size = int(np.prod(dims, dtype=int))
    if dtype == PRED:
        values = rng.integers(0, 2, size)
    elif dtype in FLOATS:
        values = rng.uniform(low, high, size)
    elif dtype in COMPLEX:
        values = rng.uniform(low, high, size) + 1j * rng.uniform(-2, 2, size)
    elif dtype.kind not in "iu":
        values = rng.integers(0, 8, size)
    else:
        info = np.iinfo(dtype)
        values = rng.integers(info.min, info.max, size, dtype=dtype, endpoint=True) >> (
            rng.integers(0, info.bits, size).astype(dtype)
        )
        special = np.array([0, 1, info.max, info.min, 2, info.max - 1], dtype)
        values[: min(size, 6)] = np.roll(special, seed)[: min(size, 6)]
    return values.astype(dtype).reshape(dims)


def arity(name: str) -> tuple[int, list[str]]:
    """How many operands an element-wise op takes, and the dtypes that it takes; (0, []) for other ops."""
    entry = OPS[name]
    if entry.family != "elementwise" or any(map(is_required, entry.attributes.values())) or entry.shaped:
        return 0, []
    for count in (1, 2, 3):
        dtypes = []
        for dtype in DTYPES:
            try:
                entry.infer([Shape(dtype, (2,))] * count, {}, None)
            except HloomError:
                continue
            dtypes.append(dtype)
        if dtypes:
            return count, dtypes
    return 0, []


# What XLA's parser accepts but its compiler for CPUs does not have (jaxlib 0.10.2).
_NOT_IN_XLA = {
    **dict.fromkeys(("asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh"), RUN_DTYPES),
    **dict.fromkeys(("abs", "sign"), ("u8", "u16", "u32", "u64")),
    # custom calls that XLA knows no function for
    **{name: RUN_DTYPES for name, entry in OPS.items() if entry.is_custom_call},
    "cbrt": ("c64", "c128"),
    "complex": ("f16", "bf16"),
}


def _elementwise(dtype: str, runs: bool) -> Case:
    """All element-wise ops of a dtype that XLA can run, or all that it cannot."""
    builder = Builder("main")
    arguments, outputs = [], []
    for name in OPS:
        count, dtypes = arity(name)
        if dtype not in dtypes or (dtype in _NOT_IN_XLA.get(name, ())) == runs:
            continue
        low, high = DOMAINS.get(name, (-4.0, 4.0))
        operands = []
        for k in range(count):
            operands.append(builder.parameter(Shape(dtype, (3, 7)), f"{name}_{'xyz'[k]}"))
            arguments.append(numbers(dtype, (3, 7), k + 1, low, high))
        if name == "power" and DTYPES[dtype].kind in "iu":
            # XLA squares six times only, so it is wrong where the exponent has more bits; small and negative ones.
            lowest = -2 if DTYPES[dtype].kind == "i" else 0
            arguments[-1] = (arguments[-1] % 9 + lowest).astype(DTYPES[dtype])
        outputs.append(builder.emit(name, *operands, hint=name))
    computation = builder.finish(builder.tuple(outputs))
    name = f"elementwise_{dtype}" if runs else f"elementwise_{dtype}_not_in_xla"
    return Case(name, Module(name, computation), tuple(arguments), runs)


_MAKERS: list = []


def case(function=None, *, runs=True):
    """Declares a case: function(builder, parameter) -> the outputs, where parameter(array, hint) adds an argument."""

    def declare(function):
        @functools.wraps(function)
        def make() -> Case:
            builder, arguments = Builder("main"), []

            def parameter(array, hint=""):
                array = np.asarray(array)
                arguments.append(array)
                return builder.parameter(Shape(array.dtype, array.shape), hint)

            outputs = function(builder, parameter)
            root = builder.tuple(outputs) if isinstance(outputs, list) else outputs
            name = function.__name__.strip("_")
            return Case(name, Module(name, builder.finish(root)), tuple(arguments), runs)

        _MAKERS.append(make)
        return function

    return declare if function is None else declare(function)


@functools.cache
def cases() -> tuple[Case, ...]:
    table = [_elementwise(dtype, runs) for dtype in RUN_DTYPES for runs in (True, False)]
    return tuple(c for c in table if c.module.entry.outputs()) + tuple(make() for make in _MAKERS)


def callee(name: str, shapes, body) -> Computation:
    builder = Builder(name)
    return builder.finish(body(builder, *[builder.parameter(s) for s in shapes]))


# --- structure ----------------------------------------------------------------------------------------------------


@case
def scalar(b, parameter):
    return b.emit("negate", parameter(np.float32(2.5), "x"))


@case
def calls(b, parameter):
    x = parameter(numbers("f32", (4,)), "x")
    inner = callee("inner", [x.shape], lambda b, p: b.emit("multiply", p, p))
    outer = callee("outer", [x.shape], lambda b, p: b.emit("add", p, b.emit("call", p, to_apply=inner)))
    both = callee("both", [x.shape], lambda b, p: b.tuple([p, b.emit("negate", p)]))
    pair = b.emit("call", x, to_apply=both)
    return [
        b.emit("call", x, to_apply=outer),
        b.emit("call", x, to_apply=inner),
        b.emit("get-tuple-element", pair, index=0),
        b.emit("get-tuple-element", pair, index=1),
    ]


@case
def fusions(b, parameter):
    x, y = parameter(numbers("f32", (5, 6)), "x"), parameter(numbers("f32", (6,), 1), "y")

    def body(b, p, q):
        spread = b.emit("broadcast", q, shape=p.shape, dimensions=(1,))
        return b.emit("tanh", b.emit("add", p, spread))

    def total(b, p):
        return b.emit(
            "reduce", p, b.constant(np.float32(0)), dimensions=(1,), to_apply=scalar_computation("add", np.float32)
        )

    loop = b.emit("fusion", x, y, kind="kLoop", calls=callee("fused_tanh", [x.shape, y.shape], body))
    summed = b.emit("fusion", loop, kind="kLoop", calls=callee("fused_sum", [x.shape], total))
    several = b.emit(
        "fusion", x, kind="kLoop", calls=callee("fused_pair", [x.shape], lambda b, p: b.tuple([p, b.emit("abs", p)]))
    )
    return [loop, summed, b.emit("get-tuple-element", several, index=1)]


@case
def barriers(b, parameter):
    x = parameter(numbers("f32", (3,)), "x")
    y = parameter(numbers("s32", (2, 2)), "y")
    held = b.emit("optimization-barrier", b.tuple([x, y]))
    return [
        b.emit("optimization-barrier", x),
        b.emit("get-tuple-element", held, index=0),
        b.emit("get-tuple-element", held, index=1),
        b.emit("copy", x, stop_gradient=True),
        b.emit("copy", x),
    ]


@case(runs=False)
def custom_calls(b, parameter):
    x = parameter(numbers("f32", (3,)), "x")
    target = 'a "target"\\ of ö\n'
    return [
        b.emit("custom-call", x, shape=Shape("f32", (3,)), custom_call_target=target, custom_call_has_side_effect=True),
        b.emit("custom-call", shape=Shape("s32"), custom_call_target="other"),
    ]


@case
def many_outputs(b, parameter):
    x = parameter(numbers("f32", (2,)), "x")
    many = callee("many", [x.shape] * 12, lambda b, *ps: b.tuple(ps))
    pair = b.emit("call", *[x] * 12, to_apply=many)
    return [b.emit("get-tuple-element", pair, index=11), *[x] * 7, b.tuple([x, b.tuple([])])]


def _constants(dtype):
    @case
    def constants(b, parameter):
        outputs = [parameter(np.float32(0))]
        outputs.append(b.constant(numbers(dtype, ())))
        for dims in ((3,), (2, 3), (2, 1, 3, 2), (0,), (2, 0), (0, 2), (1, 2, 0), (13,)):
            outputs.append(b.constant(numbers(dtype, dims, 3)))
        if DTYPES[dtype] in FLOATS:
            special = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-3, 1 / 3, 12345.678, 1e-40]
            outputs.append(b.constant(np.asarray(special).astype(DTYPES[dtype])))
        return outputs

    constants.__name__ = f"constants_{dtype}"


for _dtype in RUN_DTYPES:
    _constants(_dtype)


@case(runs=False)
def constants_of_storage_dtypes(b, parameter):
    parameter(np.float32(0))
    return [b.constant(numbers(d, (2, 3))) for d in ("s4", "u4", "f8e4m3fn", "f8e5m2")]


# --- movement -----------------------------------------------------------------------------------------------------


@case
def movement(b, parameter):
    x = parameter(numbers("f32", (4, 6)), "x")
    v = parameter(numbers("s32", (6,)), "v")
    s = parameter(numbers("bf16", ()), "s")
    emit = b.emit
    return [
        emit("broadcast", v, shape=Shape("s32", (2, 6, 3)), dimensions=(1,)),
        emit("broadcast", s, shape=Shape("bf16", (2, 2)), dimensions=()),
        emit("broadcast", s, shape=Shape("bf16"), dimensions=()),
        emit("reshape", x, shape=Shape("f32", (3, 8))),
        emit("reshape", x, shape=Shape("f32", (2, 2, 1, 6))),
        emit("transpose", x, dimensions=(1, 0)),
        emit("reverse", x, dimensions=(1,)),
        emit("reverse", x, dimensions=(0, 1)),
        emit("reverse", x, dimensions=()),
        emit("slice", x, slice=((0, 4, 1), (1, 5, 1))),
        emit("slice", x, slice=((1, 4, 2), (0, 6, 4))),
        emit("slice", x, slice=((2, 2, 1), (0, 6, 1))),
        emit("concatenate", x, x, emit("slice", x, slice=((0, 4, 1), (0, 1, 1))), dimensions=(1,)),
        emit("concatenate", v, dimensions=(0,)),
    ]


@case
def pads(b, parameter):
    x = parameter(numbers("f32", (4, 6)), "x")
    v = parameter(np.float32(7), "v")
    empty = b.constant(np.zeros((0, 3), np.float32))
    return [
        b.emit("pad", x, v, padding=((1, 2, 0), (0, 3, 0))),
        b.emit("pad", x, v, padding=((0, 0, 1), (0, 0, 2))),
        b.emit("pad", x, v, padding=((-1, 2, 1), (3, -2, 0))),
        b.emit("pad", x, v, padding=((-3, -1, 0), (0, 0, 0))),
        b.emit("pad", empty, v, padding=((1, 1, 3), (0, 0, 1))),
    ]


@case
def dynamic(b, parameter):
    x = parameter(numbers("f32", (5, 4)), "x")
    u = parameter(numbers("f32", (2, 3), 5), "u")
    starts = [parameter(np.int32(k), f"s{k + 9}") for k in (-9, 1, 2, 99)]
    outputs = []
    for i in starts:
        outputs.append(b.emit("dynamic-slice", x, i, starts[1], dynamic_slice_sizes=(2, 3)))
        outputs.append(b.emit("dynamic-update-slice", x, u, i, starts[1]))
    return outputs


@case
def iotas(b, parameter):
    shapes = [("s32", (3, 4), 0), ("s32", (3, 4), 1), ("f32", (5,), 0), ("u8", (2, 300), 1), ("c64", (3,), 0)]
    return [parameter(np.float32(0))] + [
        b.emit("iota", shape=Shape(d, dims), iota_dimension=axis) for d, dims, axis in [*shapes, ("bf16", (0, 2), 0)]
    ]


# --- selection and types ------------------------------------------------------------------------------------------


@case
def selections(b, parameter):
    x, y = parameter(numbers("f32", (3, 4)), "x"), parameter(numbers("f32", (3, 4), 1), "y")
    i, j = parameter(numbers("u8", (9,)), "i"), parameter(numbers("u8", (9,), 1), "j")
    c = parameter(numbers("c64", (3,)), "c")
    p, q = parameter(numbers("pred", (3, 4)), "p"), parameter(np.bool_(True), "q")
    low, high = b.constant(np.float32(-1)), b.constant(np.float32(2))
    outputs = [b.emit("compare", x, y, direction=d) for d in ("EQ", "NE", "LT", "LE", "GT", "GE")]
    outputs += [b.emit("compare", i, j, direction=d) for d in ("EQ", "LT", "GE")]
    outputs += [b.emit("compare", p, p, direction="LE"), b.emit("compare", c, c, direction="NE")]
    outputs += [b.emit("select", p, x, y), b.emit("select", q, x, y), b.emit("select", q, c, c)]
    outputs += [b.emit("clamp", low, x, high), b.emit("clamp", y, x, x)]
    return outputs


@case
def conversions(b, parameter):
    outputs = []
    some = ("pred", "s8", "s32", "u64", "f16", "bf16", "f32", "f64", "c64")
    for source in some:
        x = parameter(numbers(source, (3, 3), 2, 0.0, 100.0), source)
        for target in some:
            if DTYPES[source] in COMPLEX and DTYPES[target] not in COMPLEX:
                continue  # XLA has none; hloom's takes the real part
            outputs.append(b.emit("convert", x, shape=x.shape.with_dtype(target)))
    return outputs


@case
def bitcasts(b, parameter):
    x, h = parameter(numbers("f32", (2, 4)), "x"), parameter(numbers("bf16", (3, 2)), "h")
    return [
        b.emit("bitcast-convert", x, shape=Shape("s32", (2, 4))),
        b.emit("bitcast-convert", x, shape=Shape("u8", (2, 4, 4))),
        b.emit("bitcast-convert", x, shape=Shape("f16", (2, 4, 2))),
        b.emit("bitcast-convert", h, shape=Shape("u16", (3, 2))),
        b.emit("bitcast-convert", h, shape=Shape("u32", (3,))),
    ]


@case
def precisions(b, parameter):
    x = parameter(np.float32([1 / 3, 1e-8, 70000.0, -1e38, 0.0, -0.0, np.inf, np.nan, 65519.0, 65520.0]), "x")
    d = parameter(numbers("f64", (4,)), "d")
    return [
        b.emit("reduce-precision", x, exponent_bits=5, mantissa_bits=10),
        b.emit("reduce-precision", x, exponent_bits=8, mantissa_bits=7),
        b.emit("reduce-precision", x, exponent_bits=8, mantissa_bits=23),
        b.emit("reduce-precision", d, exponent_bits=8, mantissa_bits=23),
    ]


# --- reductions and contractions ----------------------------------------------------------------------------------


def argmax_combiner() -> Computation:
    """(value, index, value, index) -> the larger value and its index, the smaller index of equal values."""
    builder = Builder("argmax")
    f, s = Shape("f32"), Shape("s32")
    v1, i1 = builder.parameter(f, "v1"), builder.parameter(s, "i1")
    v2, i2 = builder.parameter(f, "v2"), builder.parameter(s, "i2")
    more = builder.emit("compare", v1, v2, direction="GT")
    same = builder.emit("compare", v1, v2, direction="EQ")
    first = builder.emit("and", same, builder.emit("compare", i1, i2, direction="LT"))
    keep = builder.emit("or", more, first)
    value, index = builder.emit("select", keep, v1, v2), builder.emit("select", keep, i1, i2)
    return builder.finish(builder.tuple([value, index]))


@case
def reductions(b, parameter):
    x = parameter(numbers("f32", (3, 4, 5)), "x")
    i = parameter(numbers("s32", (3, 4)) % 100, "i")
    p = parameter(numbers("pred", (3, 4)), "p")
    c = parameter(numbers("c64", (6, 2)), "c")
    outputs = []
    for opcode, start in (("add", 0), ("multiply", 1), ("maximum", -np.inf), ("minimum", np.inf)):
        for dims in ((0,), (2,), (0, 2), (0, 1, 2), ()):
            initial = b.constant(np.float32(start))
            apply = scalar_computation(opcode, np.float32)
            outputs.append(b.emit("reduce", x, initial, dimensions=dims, to_apply=apply))
    for opcode in ("add", "maximum", "and", "or", "xor"):
        apply = scalar_computation(opcode, np.int32)
        outputs.append(b.emit("reduce", i, b.constant(np.int32(3)), dimensions=(1,), to_apply=apply))
    for opcode, start in (("and", True), ("or", False)):
        apply = scalar_computation(opcode, bool)
        outputs.append(b.emit("reduce", p, b.constant(np.bool_(start)), dimensions=(1,), to_apply=apply))
    apply = scalar_computation("add", np.complex64)
    outputs.append(b.emit("reduce", c, b.constant(np.complex64(0)), dimensions=(0,), to_apply=apply))
    index = b.emit("iota", shape=Shape("s32", (3, 4, 5)), iota_dimension=1)
    start = b.constant(np.float32(-np.inf)), b.constant(np.int32(0))
    pair = b.emit("reduce", x, index, *start, dimensions=(1,), to_apply=argmax_combiner())
    outputs += [b.emit("get-tuple-element", pair, index=k) for k in (0, 1)]
    empty = b.constant(np.zeros((0, 3), np.float32))
    apply = scalar_computation("add", np.float32)
    outputs += [b.emit("reduce", empty, b.constant(np.float32(2)), dimensions=(d,), to_apply=apply) for d in (0, 1)]
    return outputs


@case
def dots(b, parameter):
    x, y = parameter(numbers("f32", (3, 4)), "x"), parameter(numbers("f32", (4, 5), 1), "y")
    bx, by = parameter(numbers("f32", (2, 6, 3, 4)), "bx"), parameter(numbers("f32", (4, 2, 5, 6), 1), "by")
    hx, hy = parameter(numbers("bf16", (3, 4)), "hx"), parameter(numbers("bf16", (4, 2), 1), "hy")
    c = parameter(numbers("c64", (4, 3)), "c")
    i = parameter(numbers("s32", (3, 4)) % 50, "i")
    matrix = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)}
    batched = {
        "lhs_batch_dims": (0, 1),
        "rhs_batch_dims": (1, 3),
        "lhs_contracting_dims": (3,),
        "rhs_contracting_dims": (0,),
    }
    return [
        b.emit("dot", x, y, **matrix),
        b.emit("dot", x, y, lhs_contracting_dims=(), rhs_contracting_dims=()),
        b.emit("dot", x, x, lhs_contracting_dims=(0, 1), rhs_contracting_dims=(0, 1)),
        b.emit("dot", bx, by, **batched),
        b.emit("dot", hx, hy, shape=Shape("f32", (3, 2)), **matrix),
        b.emit("dot", hx, hy, **matrix),
        b.emit("dot", c, c, lhs_contracting_dims=(0,), rhs_contracting_dims=(0,)),
        b.emit("dot", i, i, lhs_contracting_dims=(1,), rhs_contracting_dims=(1,)),
    ]


import control_modules  # noqa: E402, F401  (declares its cases)
import indexed_modules  # noqa: E402, F401  (declares its cases)
import manual_modules  # noqa: E402, F401
import special_modules  # noqa: E402, F401  (declares its cases)
import window_modules  # noqa: E402, F401  (declares its cases)

# --- linear algebra and Fourier transforms ------------------------------------------------------------------------


def _definite(dtype, n=3) -> np.ndarray:
    a = numbers(dtype, (2, n, n), 3)
    return a @ a.swapaxes(-1, -2).conj() + np.eye(n, dtype=a.dtype)


@case
def solvers(b, parameter):
    outputs = []
    for dtype in ("f32", "c128"):
        # XLA leaves the other triangle of its result as it is: the solves below read one only.
        a = parameter(_definite(dtype), "a")
        factor = b.emit("cholesky", a, lower=True)
        right = parameter(numbers(dtype, (2, 3, 4)), "right")
        for how in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"):
            flags = {"left_side": True, "lower": True, "unit_diagonal": False}
            outputs.append(b.emit("triangular-solve", factor, right, **flags, transpose_a=how))
        rows = b.emit("transpose", right, dimensions=(0, 2, 1))
        outputs.append(b.emit("triangular-solve", a, rows, unit_diagonal=True, transpose_a="NO_TRANSPOSE"))
    return outputs


@case
def transforms(b, parameter):
    outputs = []
    for dtype in ("c64", "c128"):
        x = parameter(numbers(dtype, (3, 4, 8)), "x")
        outputs.append(b.emit("fft", x, fft_type="FFT", fft_length=(8,)))
        outputs.append(b.emit("fft", x, fft_type="IFFT", fft_length=(4, 8)))
        outputs.append(b.emit("fft", b.emit("real", x), fft_type="RFFT", fft_length=(3, 4, 8)))
        outputs.append(b.emit("fft", x, fft_type="IRFFT", fft_length=(15,)))
    return outputs


@case(runs=False)
def decompositions(b, parameter):
    a = parameter(_definite("f64"), "a")
    v = parameter(numbers("f64", (2, 3)), "v")
    made = [
        b.emit("qr", a, full_matrices=True),
        b.emit("qr", a, pivoting=True),
        b.emit("lu", a),
        b.emit("eigh", a, lower=True),
        b.emit("eig", a, left=True, right=False),
        b.emit("svd", a, full_matrices=False, compute_uv=True),
        b.emit("schur", a, vectors=True),
        b.emit("hessenberg", a),
        b.emit("tridiagonal", a, lower=True),
        b.emit("geqrf", a),
    ]
    outputs = [b.emit("get-tuple-element", x, index=0) for x in made]
    outputs[5] = b.emit("abs", outputs[5])  # singular vectors are so up to their signs: a kernel's may be others
    outputs.append(b.emit("householder-product", a, v))
    outputs.append(b.emit("tridiagonal-solve", v, v, v, a))
    outputs.append(b.emit("pinv", a, b.constant(np.full(2, 1e-9))))
    outputs += [b.emit("solve", a, a), b.emit("sylvester", a, a, a)]
    outputs += [b.emit(name, a) for name in ("det", "adjugate", "sqrtm")]
    pivots = b.emit("get-tuple-element", made[2], index=1)
    outputs.append(b.emit("lu-pivots-to-permutation", pivots, shape=Shape("s32", (2, 4))))
    return outputs


@case
def collectives(b, parameter):
    """Collectives of one participant, which XLA runs as hloom does."""
    x = parameter(numbers("f32", (4, 2)), "x")
    groups, add = {"replica_groups": ((0,),)}, scalar_computation("add", "f32")
    pair = b.emit("all-reduce", x, b.emit("negate", x), to_apply=add, **groups)
    return [
        b.emit("all-reduce", x, to_apply=add, **groups),
        b.emit("get-tuple-element", pair, index=1),
        b.emit("all-gather", x, dimensions=(1,), **groups),
        b.emit("reduce-scatter", x, dimensions=(0,), to_apply=add, **groups),
        b.emit("all-to-all", x, dimensions=(0,), **groups),
        b.emit("collective-permute", x, source_target_pairs=((0, 0),)),
        b.emit("partition-id"),
        b.emit("replica-id"),
    ]


@case(runs=False)
def collective_broadcast(b, parameter):
    return b.emit("collective-broadcast", parameter(numbers("f32", (4, 2)), "x"), replica_groups=((0,),))
