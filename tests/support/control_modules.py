"""Cases for `op_modules`: loops, branches and maps."""

from __future__ import annotations

import numpy as np
from op_modules import callee, case, numbers

from hloom.ir.build import Builder
from hloom.ir.types import Shape, TupleShape

F32, S32 = Shape("f32"), Shape("s32")


def elements(b, value):
    return [b.emit("get-tuple-element", value, index=k) for k in range(len(value.shape.elements))]


@case
def loops(b, parameter):
    """x doubles, and y grows by x, until a count or a bound of x is reached."""
    x, y = parameter(numbers("f32", (4,)), "x"), parameter(numbers("f32", (4,), 1), "y")
    start = parameter(np.int32(1), "start")
    state = TupleShape([S32, x.shape, y.shape])

    def counts(b, p):
        return b.emit("compare", elements(b, p)[0], b.constant(6, "s32"), direction="LT")

    def is_small(b, p):
        count, x, _ = elements(b, p)
        maximum = callee("maximum", [F32, F32], lambda b, p, q: b.emit("maximum", p, q))
        largest = b.emit("reduce", x, b.constant(np.float32(-np.inf)), dimensions=(0,), to_apply=maximum)
        below = b.emit("compare", largest, b.constant(np.float32(90)), direction="LT")
        few = b.emit("compare", count, b.constant(20, "s32"), direction="LT")
        return b.emit("and", below, few)

    def step(b, p):
        count, x, y = elements(b, p)
        more = b.emit("add", count, b.constant(1, "s32"))
        return b.tuple([more, b.emit("add", x, x), b.emit("add", y, x)])

    outputs = []
    for condition in (counts, is_small):
        called = {"condition": callee("goes_on", [state], condition), "body": callee("step", [state], step)}
        outputs += elements(b, b.emit("while", b.tuple([start, x, y]), **called))
    return outputs


@case
def branches(b, parameter):
    which, truth = parameter(np.int32(1), "which"), parameter(np.bool_(True), "truth")
    x, y = parameter(numbers("f32", (3, 2)), "x"), parameter(numbers("f32", (3, 2), 1), "y")
    both = TupleShape([x.shape, y.shape])

    def of_two(opcode):
        return callee(opcode, [both], lambda b, p: b.tuple([b.emit(opcode, *elements(b, p)), elements(b, p)[0]]))

    pair = b.tuple([x, y])
    three = tuple(of_two(name) for name in ("add", "subtract", "multiply"))
    chosen = b.emit("conditional", which, pair, pair, pair, branch_computations=three)
    ones = tuple(callee(name, [x.shape], lambda b, p, name=name: b.emit(name, p)) for name in ("negate", "exponential"))
    return [*elements(b, chosen), b.emit("conditional", truth, x, y, branch_computations=ones)]


@case
def scans(b, parameter):
    """carry' = carry * factor + x; y = carry' - first, forwards and backwards."""
    factor, carry = parameter(numbers("f32", ()), "factor"), parameter(numbers("f32", (3,), 1), "carry")
    xs = parameter(numbers("f32", (5, 3), 2), "xs")

    def step(b, factor, carry, x):
        spread = b.emit("broadcast", factor, dimensions=(), shape=carry.shape)
        new = b.emit("add", b.emit("multiply", carry, spread), x)
        return b.tuple([new, b.emit("subtract", new, carry)])

    body = callee("step", [F32, carry.shape, carry.shape], step)
    outputs = []
    for reverse in (False, True):
        how = {"num_consts": 1, "num_carry": 1, "length": 5, "reverse": reverse, "body": body}
        outputs += elements(b, b.emit("scan", factor, carry, xs, **how))
    return outputs


@case
def maps(b, parameter):
    x, y = parameter(numbers("f32", (3, 2)), "x"), parameter(numbers("f32", (3, 2), 1), "y")
    builder = Builder("hypot")
    p, q = builder.parameter(F32), builder.parameter(F32)
    sum_ = builder.emit("add", builder.emit("multiply", p, p), builder.emit("multiply", q, q))
    return b.emit("map", x, y, to_apply=builder.finish(builder.emit("sqrt", sum_)), dimensions=(0, 1))
