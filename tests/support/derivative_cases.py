"""Cases of every op that has a derivative, and the checks that a derivative has to pass.

A cotangent c and a tangent t pair to Re(sum(c * t)), without a conjugate: what the transpose rules are written for.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import place_cases
import pytest
import special_cases
import window_cases

from hloom.compiler.transforms.jvp import jvp
from hloom.compiler.transforms.vjp import gradient, linearize, vjp
from hloom.ir.build import Builder, Value, scalar_computation
from hloom.ir.errors import HloomError
from hloom.ir.interpret import evaluate
from hloom.ir.ops import OPS
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.types import INEXACT, Shape

F64, C128, PRED, S32 = (np.dtype(t) for t in ("float64", "complex128", "bool", "int32"))

# --- cases --------------------------------------------------------------------------------------------------------


def normal(rng, dims):
    return rng.normal(size=dims)


def positive(rng, dims):
    return rng.uniform(0.4, 2.5, size=dims)


def unit(rng, dims):
    return rng.uniform(-0.8, 0.8, size=dims)


def above_one(rng, dims):
    return rng.uniform(1.2, 3.0, size=dims)


def complex_normal(rng, dims):
    return rng.normal(size=dims) + 1j * rng.normal(size=dims)


def with_zeros(rng, dims):
    return np.where(rng.random(size=dims) < 0.4, 0.0, rng.normal(size=dims))


def mask(rng, dims):
    return rng.random(size=dims) < 0.5


def small_int(rng, dims):
    return rng.integers(-1, 4, size=dims).astype(S32)


@dataclass(frozen=True)
class Case:
    """`build(*Values) -> Value or list of Values` on arguments drawn from `draw`, one (sampler, extents) each."""

    opcode: str
    build: Callable
    draw: tuple
    smooth: bool = True
    label: str = ""

    def __str__(self):
        return f"{self.opcode}-{self.label}" if self.label else self.opcode

    def arguments(self):
        rng = np.random.default_rng(zlib.crc32(str(self).encode()))
        return [np.asarray(sampler(rng, dims)) for sampler, dims in self.draw]

    def computation(self):
        return build(self.build, self.arguments())


def build(function, arguments, source=None):
    builder = Builder("f")
    builder.source = source
    values = [Value(builder, builder.parameter(Shape(a.dtype, a.shape), f"x{k}")) for k, a in enumerate(arguments)]
    result = function(*values)
    if isinstance(result, list):
        return builder.finish(builder.tuple([r.instruction for r in result]))
    return builder.finish(result.instruction)


def full(like, value, dims):
    """A constant array in the computation of `like`."""
    return Value(like.builder, like.builder.splat(value, Shape(F64, dims)))


CASES: list[Case] = []
D = (3, 4)


def case(opcode, function, *draw, **parts):
    CASES.append(Case(opcode, function, draw, **parts))


def elementwise(opcode, *samplers, smooth=True):
    """The op on (3, 4) arrays of these samplers, and on complex arrays where it takes them."""

    def apply(first, *rest):
        return first.op(opcode, *rest)

    case(opcode, apply, *((s, D) for s in samplers), smooth=smooth)
    try:
        OPS[opcode].infer([Shape(C128, D)] * len(samplers), {}, None)
    except HloomError:
        return
    case(opcode, apply, *((complex_normal, D) for _ in samplers), label="complex", smooth=smooth)


for name in (
    "exponential",
    "exponential-minus-one",
    "logistic",
    "erf",
    "sine",
    "cosine",
    "tanh",
    "sinh",
    "cosh",
    "asinh",
):
    elementwise(name, normal)
for name in ("log", "log2", "log10", "log-plus-one", "sqrt", "rsqrt", "cbrt"):
    elementwise(name, positive)
for name in ("tan", "asin", "acos", "atanh"):
    elementwise(name, unit)
elementwise("acosh", above_one)
elementwise("negate", normal)
elementwise("abs", positive)
case("abs", lambda x: x.op("abs"), (normal, D), label="signs", smooth=False)
elementwise("real", normal)
elementwise("imag", normal)
for name in ("add", "subtract", "multiply"):
    elementwise(name, normal, normal)
elementwise("divide", normal, positive)
elementwise("power", positive, normal)
elementwise("atan2", normal, normal)
elementwise("complex", normal, normal)
elementwise("maximum", normal, normal)
elementwise("minimum", normal, normal)
elementwise("remainder", normal, positive)
case("power", lambda x: x.op("power", 3), (normal, D), label="cube-of-negatives")
case("power", lambda x: x.op("power", 2), (with_zeros, D), label="square-of-zeros", smooth=False)
case("power", lambda y: y.like(0).op("power", y), (positive, D), label="base-zero", smooth=False)
# Complex numbers have no sign that is locally constant: x / |x| turns.
case("sign", lambda x: x.op("sign"), (complex_normal, D), label="complex")

case("select", lambda c, x, y: c.where(x, y), (mask, D), (normal, D), (normal, D))
case("select", lambda c, x, y: c.where(x, y), (mask, ()), (normal, D), (normal, D), label="scalar-condition")
case("select", lambda c, x: c.where(x, 2.0), (mask, D), (complex_normal, D), label="one-constant")
case("clamp", lambda a, x, b: a.op("clamp", x, b + 1.0), (unit, D), (normal, D), (positive, D))
case("clamp", lambda a, x, b: a.op("clamp", x, b + 1.0), (unit, ()), (normal, D), (positive, ()), label="scalar-bounds")
case("convert", lambda x: x.convert(C128), (normal, D), label="to-complex")
case("convert", lambda x: x.convert(F64), (complex_normal, D), label="to-real")
case("copy", lambda x: x.op("copy"), (normal, D))
case(
    "reduce-precision",
    lambda x: x.op("reduce-precision", exponent_bits=11, mantissa_bits=52),
    (normal, D),
)

case("broadcast", lambda x: x.broadcast((2, 3, 5, 4), (1, 3)), (normal, D))
case("broadcast", lambda x: x.broadcast((2, 3), ()), (normal, ()), label="scalar")
case("reshape", lambda x: x.reshape((2, 6)), (normal, D))
case("transpose", lambda x: x.transpose((2, 0, 1)), (normal, (2, 3, 4)))
case("reverse", lambda x: x.op("reverse", dimensions=(1,)), (normal, D))
case("slice", lambda x: x.op("slice", slice=((1, 3, 1), (0, 4, 3))), (normal, D))
case("slice", lambda x: x.op("slice", slice=((1, 1, 1), (0, 4, 3))), (normal, D), label="empty")
case("slice", lambda x: x.op("slice", slice=((0, 6, 4), (1, 4, 2))), (normal, (7, 4)), label="remainder")
case("pad", lambda x, v: x.op("pad", v, padding=((1, 2, 0), (0, 1, 2))), (normal, D), (normal, ()))
case("pad", lambda x, v: x.op("pad", v, padding=((-1, 2, 1), (2, -3, 1))), (normal, D), (normal, ()), label="negative")
case("pad", lambda v: full(v, 2.0, D).op("pad", v, padding=((1, 1, 1),) * 2), (normal, ()), label="value-only")
case("concatenate", lambda x, y, z: x.op("concatenate", y, z, dimensions=(1,)), *((normal, (3, n)) for n in (2, 1, 3)))
case("concatenate", lambda x: x.op("concatenate", x.like(1.0), x, dimensions=(0,)), (normal, D), label="twice")
case(
    "dynamic-slice",
    lambda x, i, j: x.op("dynamic-slice", i, j, dynamic_slice_sizes=(2, 3)),
    (normal, (5, 6)), (small_int, ()), (small_int, ()),
)  # fmt: skip
case(
    "dynamic-update-slice",
    lambda x, u, i, j: x.op("dynamic-update-slice", u, i, j),
    (normal, (5, 6)), (normal, (2, 3)), (small_int, ()), (small_int, ()),
)  # fmt: skip
case(
    "dynamic-update-slice",
    lambda u, i: full(u, 3.0, (6,)).op("dynamic-update-slice", u, i),
    (normal, (3,)), (small_int, ()), label="update-only",
)  # fmt: skip


def dot(lb, rb, lc, rc):
    return lambda x, y: x.op(
        "dot", y, lhs_batch_dims=lb, rhs_batch_dims=rb, lhs_contracting_dims=lc, rhs_contracting_dims=rc
    )


case("dot", dot((), (), (1,), (0,)), (normal, (3, 4)), (normal, (4, 2)), label="matrices")
case("dot", dot((), (), (0,), (0,)), (complex_normal, (4,)), (complex_normal, (4,)), label="complex-vectors")
case("dot", dot((), (), (), ()), (normal, (3,)), (normal, (2,)), label="outer")
case("dot", dot((2, 0), (0, 3), (1, 4), (4, 1)), (normal, (3, 4, 2, 2, 5)), (normal, (2, 5, 2, 3, 4)), label="general")
case("dot", lambda x: dot((), (), (1,), (0,))(x, x), (normal, (3, 3)), label="square")

# --- cases of reduce ----------------------------------------------------------------------------------------------


def combiner(function, count, dtypes=None):
    builder = Builder("combiner")
    dtypes = dtypes or [F64] * count
    values = [Value(builder, builder.parameter(Shape(dtype))) for dtype in [*dtypes, *dtypes]]
    results = [r.instruction for r in function(*values)]
    return builder.finish(results[0] if count == 1 else builder.tuple(results))


def reduce(to_apply, dimensions):
    """The reduce of the first half of the operands; the second half are the initial values."""

    def apply(*operands):
        result = operands[0].op("reduce", *operands[1:], dimensions=dimensions, to_apply=to_apply)
        count = len(operands) // 2
        if count == 1:
            return result
        elements = [result.op("get-tuple-element", index=k) for k in range(count)]
        return [e for e in elements if e.dtype in INEXACT]

    return apply


ADD, MULTIPLY = scalar_computation("add", F64), scalar_computation("multiply", F64)
MAXIMUM, MINIMUM = scalar_computation("maximum", F64), scalar_computation("minimum", F64)
HYPOT = combiner(lambda a, x: [(a * a + x * x).op("sqrt")], 1)
LOG_ADD = combiner(lambda a, x: [a.op("maximum", x) + (-(a - x).op("abs")).op("exponential").op("log-plus-one")], 1)
WITH_CONSTANT = combiner(lambda a, x: [a + x + a * x * 0.5], 1)
COMPLEX_PRODUCT = combiner(lambda a, b, c, d: [a * c - b * d, a * d + b * c], 2)
# An affine map after another: associative, not commutative.
AFFINE = combiner(lambda a, b, c, d: [a * c, b * c + d], 2)
ARGMAX = combiner(
    lambda a, i, b, j: [a.compare("GE", b).where(a, b), a.compare("GE", b).where(i, j)],
    2,
    [F64, S32],
)
SCALAR = ((normal, ()),)

case("reduce", reduce(ADD, (1,)), (normal, (3, 5)), *SCALAR, label="add")
case("reduce", reduce(ADD, (0, 2)), (normal, (3, 5, 2)), *SCALAR, label="add-two")
case("reduce", reduce(ADD, ()), (normal, (3,)), *SCALAR, label="add-none")
case("reduce", reduce(ADD, (0,)), (normal, (0, 3)), *SCALAR, label="add-empty")
case("reduce", lambda v: reduce(ADD, (0,))(full(v, 2.0, D), v), *SCALAR, label="add-initial")
for n in (1, 2, 3, 5, 8, 13):
    case("reduce", reduce(MULTIPLY, (1,)), (normal, (2, n)), *SCALAR, label=f"multiply-{n}")
    case("reduce", reduce(AFFINE, (0,)), (normal, (n, 2)), (normal, (n, 2)), *SCALAR * 2, label=f"affine-{n}")
case("reduce", reduce(MULTIPLY, (0, 1)), (with_zeros, (4, 3)), (positive, ()), label="multiply-zeros")
case("reduce", reduce(MULTIPLY, (0,)), (normal, (0, 3)), *SCALAR, label="multiply-empty")
case("reduce", reduce(MAXIMUM, (1,)), (normal, (3, 7)), *SCALAR, label="maximum", smooth=False)
case("reduce", reduce(MINIMUM, (0, 2)), (normal, (3, 7, 2)), *SCALAR, label="minimum", smooth=False)
case("reduce", lambda x: x.reduce("maximum", -np.inf, (0,)), (normal, (6, 3)), label="maximum-neutral", smooth=False)
case("reduce", reduce(HYPOT, (1,)), (normal, (3, 7)), (positive, ()), label="hypot")
case("reduce", reduce(LOG_ADD, (0,)), (normal, (6, 2)), (unit, ()), label="log-add-exp")
case("reduce", reduce(WITH_CONSTANT, (0, 1)), (unit, (3, 3)), *SCALAR, label="constant-inside")
case("reduce", reduce(COMPLEX_PRODUCT, (1,)), (normal, (2, 5)), (normal, (2, 5)), *SCALAR * 2, label="complex-product")
case(
    "reduce", reduce(ARGMAX, (1,)), (normal, (3, 6)), (small_int, (3, 6)), (normal, ()), (small_int, ()),
    label="argmax", smooth=False,
)  # fmt: skip

case("optimization-barrier", lambda x: x.op("optimization-barrier"), (normal, D), label="one")


def barrier(x, i, y):
    held = x.op("optimization-barrier", i, y)
    return [held.op("get-tuple-element", index=k) for k in (0, 2)]


def barrier_of_tuple(x, i, y):
    builder = x.builder
    packed = Value(builder, builder.tuple([v.instruction for v in (x, i, y)])).op("optimization-barrier")
    return [packed.op("get-tuple-element", index=k) for k in (2, 0, 2)]


case("optimization-barrier", barrier, (normal, D), (small_int, D), (normal, D), label="three")
case("optimization-barrier", barrier_of_tuple, (normal, D), (small_int, D), (normal, D), label="tuple")

window_cases.register(case)
place_cases.register(case)
special_cases.register(case)

# One participant, for whom collectives are the identity; `tests/hloom/lax/test_parallel.py` has more of them.
ALONE = {"replica_groups": ((0,),)}
case("all-reduce", lambda x: x.op("all-reduce", to_apply=ADD, **ALONE), (normal, D))
case("all-reduce", lambda x: x.op("all-reduce", to_apply=MAXIMUM, **ALONE), (normal, D), label="maximum")
case("all-gather", lambda x: x.op("all-gather", dimensions=(1,), **ALONE), (normal, D))
case("reduce-scatter", lambda x: x.op("reduce-scatter", dimensions=(0,), to_apply=ADD, **ALONE), (normal, D))
case("all-to-all", lambda x: x.op("all-to-all", dimensions=(0,), **ALONE), (normal, D))
case("collective-permute", lambda x: x.op("collective-permute", source_target_pairs=((0, 0),)), (normal, D))
case("collective-broadcast", lambda x: x.op("collective-broadcast", **ALONE), (normal, D))

SPLIT = Sharding(DeviceMesh(("x",), (2,)), (("x",), ()))
case("sharding-constraint", lambda x: x.op("sharding-constraint", sharding=SPLIT), (normal, D))

# Tested where functions make them: test_control_transforms.py, test_custom_derivatives.py, test_manual.py, and
# tests/hloom/kernels.
ELSEWHERE = {"call", "while", "conditional", "scan", "manual-computation", "kernel", "kernel-map"}

# Derivative zero wherever there is one: functions of a float array.
STEPS = {
    "sign": lambda x: x.op("sign"),
    "floor": lambda x: x.op("floor"),
    "ceil": lambda x: x.op("ceil"),
    "round-nearest-even": lambda x: x.op("round-nearest-even"),
    "round-nearest-afz": lambda x: x.op("round-nearest-afz"),
    "is-finite": lambda x: x.op("is-finite").convert(F64),
    "compare": lambda x: x.compare("GT", 0.3).convert(F64),
    "convert": lambda x: x.convert(S32).convert(F64),
    "bitcast-convert": lambda x: x.op("bitcast-convert", shape=Shape("s64", D)).op("not").convert(PRED).convert(F64),
    "constant": lambda x: x.like(2.0),
    "iota": lambda x: Value(x.builder, x.builder.emit("iota", shape=Shape(F64, D), iota_dimension=1)),
}

# --- the checks ---------------------------------------------------------------------------------------------------


def as_list(result):
    return list(result) if isinstance(result, tuple) else [result]


def direction(rng, like):
    t = rng.normal(size=like.shape)
    return (t + 1j * rng.normal(size=like.shape)) if like.dtype == C128 else t


def pairing(cotangents, tangents):
    return sum(float(np.real(np.sum(c * t))) for c, t in zip(cotangents, tangents, strict=True))


def check(computation, arguments, tolerance=2e-6, seed=0):
    """Forward mode against central differences; reverse mode, and both cut in two, against forward mode."""
    rng = np.random.default_rng(seed)
    wrt = [k for k, a in enumerate(arguments) if a.dtype in INEXACT]
    tangents = [direction(rng, arguments[k]) for k in wrt]
    outputs = as_list(evaluate(computation, arguments))
    cotangents = [direction(rng, o) for o in outputs]

    forward = as_list(evaluate(jvp(computation, [k in wrt for k in range(len(arguments))]), [*arguments, *tangents]))
    found = forward[len(outputs) :]
    for a, b in zip(forward, outputs, strict=False):
        np.testing.assert_array_equal(a, b)

    step = 1e-6

    def moved(sign):
        shifted = list(arguments)
        for k, t in zip(wrt, tangents, strict=True):
            shifted[k] = np.asarray(arguments[k] + sign * step * t)
        return as_list(evaluate(computation, shifted))

    for up, down, tangent in zip(moved(1), moved(-1), found, strict=True):
        expected = np.where(up == down, 0, np.subtract(up, down, where=up != down, out=np.zeros_like(up)) / (2 * step))
        assert np.isfinite(expected).all()
        scale = 1 + np.max(np.abs(expected), initial=0)
        np.testing.assert_allclose(tangent / scale, expected / scale, rtol=0, atol=tolerance)

    both = as_list(evaluate(gradient(computation, wrt), [*arguments, *cotangents]))
    gradients = both[len(outputs) :]
    for a, b in zip(both, outputs, strict=False):
        np.testing.assert_array_equal(a, b)
    for k, g in zip(wrt, gradients, strict=True):
        assert (g.dtype, g.shape) == (arguments[k].dtype, arguments[k].shape)
    left, right = pairing(gradients, tangents), pairing(cotangents, found)
    assert left == pytest.approx(right, rel=1e-9, abs=1e-9 * (1 + sum(np.abs(c).sum() for c in cotangents)))

    first, second = vjp(computation, wrt)
    kept = as_list(evaluate(first, arguments))[len(outputs) :]
    for a, b in zip(as_list(evaluate(second, [*kept, *cotangents])), gradients, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    first, second = linearize(computation, wrt)
    kept = as_list(evaluate(first, arguments))[len(outputs) :]
    for a, b in zip(as_list(evaluate(second, [*kept, *tangents])), found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
