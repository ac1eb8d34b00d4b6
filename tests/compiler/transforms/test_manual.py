"""Derivatives and batching of manual computations: those of the same program on one device."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from manual_modules import ADD, MESH, over

from hloom.compiler.transforms.batch import batch
from hloom.compiler.transforms.jvp import jvp
from hloom.compiler.transforms.vjp import gradient, linearize
from hloom.ir.build import Builder
from hloom.ir.interpret import evaluate
from hloom.ir.module import Module, below
from hloom.ir.types import Shape
from hloom.ir.verify import verify

F32 = np.float32


def f32(*dims):
    return Shape("f32", dims)


def computation(name, shapes, body):
    builder = Builder(name)
    return builder.finish(builder.tuple(body(builder, *[builder.parameter(s) for s in shapes])))


def manual(name, shapes, body, operands, ins, outs, axes=("x", "y")):
    """A computation that is one manual computation. shapes: those of the body's parameters."""
    inner = computation(name, shapes, body)
    builder = Builder("main")
    parameters = [builder.parameter(s) for s in operands]
    return builder.finish(
        builder.emit(
            "manual-computation", *parameters, to_apply=inner, in_shardings=ins, out_shardings=outs, manual_axes=axes
        )
    )


def total(b, x, dimensions):
    return b.emit("reduce", x, b.constant(F32(0)), dimensions=dimensions, to_apply=ADD)


def psum(b, x, *axes):
    return b.emit("all-reduce", x, to_apply=ADD, axis_name=axes, axis_size=MESH.axis_size(*axes))


def spread(b, x, shape, dimensions=()):
    return b.emit("broadcast", x, shape=shape, dimensions=dimensions)


def layer(b, x, w, s, rows_over=(), all_over=()):
    """tanh(x w) s, the sum of squares of its rows' sums, and its column sums."""
    h = b.emit("multiply", b.emit("tanh", b.emit("multiply", x, spread(b, w, x.shape, (1,)))), spread(b, s, x.shape))
    rows = total(b, h, (1,))
    rows = psum(b, rows, *rows_over) if rows_over else rows
    squares = total(b, b.emit("multiply", rows, rows), (0,))
    squares = psum(b, squares, *all_over) if all_over else squares
    return [squares, h, total(b, h, (0,))]


def layers():
    whole = computation("whole", [f32(4, 9), f32(9), f32()], layer)
    split = manual(
        "split", [f32(2, 3), f32(3), f32()], lambda b, *p: layer(b, *p, ("y",), ("x",)), [f32(4, 9), f32(9), f32()],
        (over("x", "y"), over("y"), over()), (over(), over("x", "y"), over("y", unreduced=("x",))),
    )  # fmt: skip
    return whole, split


def gathered():
    """A weight that is gathered before its use, and a permutation along an axis."""

    def on_one(b, x, w):
        h = b.emit("multiply", x, spread(b, w, x.shape, (1,)))
        shifted = b.emit("concatenate", b.emit("slice", h, slice=((2, 4, 1), (0, 9, 1))),
                         b.emit("slice", h, slice=((0, 2, 1), (0, 9, 1))), dimensions=(0,))  # fmt: skip
        return [b.emit("multiply", h, shifted)]

    def on_each(b, x, w):
        w = b.emit("all-gather", w, dimensions=(0,), axis_name=("y",), axis_size=3)
        h = b.emit("multiply", x, spread(b, w, x.shape, (1,)))
        shifted = b.emit("collective-permute", h, source_target_pairs=((0, 1), (1, 0)), axis_name=("x",), axis_size=2)
        return [b.emit("multiply", h, shifted)]

    shapes = [f32(4, 9), f32(9)]
    split = manual("split", [f32(2, 9), f32(3)], on_each, shapes, (over("x", ""), over("y")), (over("x", ""),))
    return computation("whole", shapes, on_one), split


def numbered():
    """What differs by the number of a device, scattered sums, and an exchange of parts."""

    def on_one(b, x):
        rows = b.emit("iota", shape=f32(6, 6), iota_dimension=0)
        return [total(b, b.emit("multiply", x, rows), (1,)), b.emit("transpose", x, dimensions=(1, 0))]

    def on_each(b, x):
        number = b.emit("convert", b.emit("partition-id", axis_name=("y",), axis_size=3), shape=f32())
        rows = b.emit("iota", shape=x.shape, iota_dimension=0)
        rows = b.emit("add", rows, spread(b, b.emit("multiply", number, b.constant(F32(2))), x.shape))
        sums = total(b, b.emit("multiply", x, rows), (1,))
        swapped = b.emit("all-to-all", x, dimensions=(1,), axis_name=("y",), axis_size=3)
        parts = b.emit("reshape", swapped, shape=f32(2, 3, 2))
        parts = b.emit("transpose", parts, dimensions=(2, 1, 0))
        return [sums, b.emit("reshape", parts, shape=f32(2, 6))]

    split = manual("split", [f32(2, 6)], on_each, [f32(6, 6)], (over("y", ""),), (over("y"), over("y", "")), ("y",))
    return computation("whole", [f32(6, 6)], on_one), split


def scattered():
    def on_one(b, x):
        return [total(b, b.emit("multiply", x, x), (0,))]

    def on_each(b, x):
        squares = total(b, b.emit("multiply", x, x), (0,))
        return [b.emit("reduce-scatter", squares, dimensions=(0,), to_apply=ADD, axis_name=("y", "x"), axis_size=6)]

    split = manual("split", [f32(2, 6)], on_each, [f32(12, 6)], (over(("y", "x"), ""),), (over(("y", "x")),))
    return computation("whole", [f32(12, 6)], on_one), split


def agreed():
    """Results of which only the user knows that all devices have the same."""

    def on_one(b, x):
        return [b.emit("sine", x)]

    def on_each(b, x):
        return [b.emit("all-gather", b.emit("sine", x), dimensions=(0,), axis_name=("y",), axis_size=3)]

    return computation("whole", [f32(6)], on_one), manual(
        "split", [f32(2)], on_each, [f32(6)], (over("y"),), (over(""),)
    )


def loops():
    """Sums over devices in the steps of a loop."""

    def body(over_axis):
        def make(b, x):
            step = Builder("step")
            carry = step.parameter(Shape("f32", (2,) if over_axis else (6,)))
            part = total(step, step.emit("multiply", carry, carry), (0,))
            part = psum(step, part, "y") if over_axis else part
            scale = spread(step, step.emit("tanh", part), carry.shape)
            new = step.emit("multiply", carry, scale)
            made = b.emit(
                "scan", x, num_consts=0, num_carry=1, length=3, reverse=False, body=step.finish(step.tuple([new]))
            )
            return [b.emit("get-tuple-element", made, index=0)]

        return make

    split = manual("split", [f32(2)], body(True), [f32(6)], (over("y"),), (over("y"),))
    return computation("whole", [f32(6)], body(False)), split


PROGRAMS = {f.__name__: f for f in (layers, gathered, numbered, scattered, agreed, loops)}


def numbers(shapes, seed):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=s.dims).astype(F32) for s in shapes]


def check(a, b, arguments):
    verify(Module("whole", a))
    verify(Module("split", b, partitions=6))
    for x, y in zip(evaluate(a, arguments), evaluate(b, arguments), strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_are_those_on_one_device(name):
    whole, split = PROGRAMS[name]()
    shapes = [p.shape for p in whole.parameters]
    outputs = [o.shape for o in whole.outputs()]
    primals, tangents, cotangents = numbers(shapes, 0), numbers(shapes, 1), numbers(outputs, 2)
    check(whole, split, primals)
    for nonzero in itertools.product([True, False], repeat=len(shapes)):
        if any(nonzero):
            given = [t for t, n in zip(tangents, nonzero, strict=True) if n]
            check(jvp(whole, nonzero), jvp(split, nonzero), [*primals, *given])
            wrt = [k for k, n in enumerate(nonzero) if n]
            check(gradient(whole, wrt), gradient(split, wrt), [*primals, *cotangents])
    for k in range(len(outputs)):
        wrt = range(len(shapes))
        check(gradient(whole, wrt, [k]), gradient(split, wrt, [k]), [*primals, cotangents[k]])
    # forward over reverse
    second = [jvp(gradient(c, [0]), [True] * len(shapes) + [False] * len(outputs)) for c in (whole, split)]
    check(*second, [*primals, *cotangents, *tangents])


@pytest.mark.parametrize("name", PROGRAMS)
def test_batches_are_those_on_one_device(name):
    whole, split = PROGRAMS[name]()
    shapes = [p.shape for p in whole.parameters]
    outputs = [o.shape for o in whole.outputs()]
    for mapped in ([True] * len(shapes), [k == 0 for k in range(len(shapes))]):
        batched = [s.with_dims((5, *s.dims)) if m else s for s, m in zip(shapes, mapped, strict=True)]
        made = [batch(c, mapped, 5, [True] * len(outputs))[0] for c in (whole, split)]
        check(*made, numbers(batched, 0))
        flags = [*mapped, *[True] * len(outputs)]
        backs = [gradient(c, range(len(shapes))) for c in (whole, split)]
        made = [batch(c, flags, 5, [True] * (len(outputs) + len(shapes)))[0] for c in backs]
        check(*made, numbers([*batched, *(s.with_dims((5, *s.dims)) for s in outputs)], 3))


def reductions(computation):
    """(axes, shape) of the sums over devices, at any depth."""
    return sorted((i["axis_name"], i.shape.dims) for i in below(computation.instructions) if i.opcode == "all-reduce")


def test_a_gradient_adds_one_sum_for_each_parameter_that_devices_share():
    _, split = layers()
    made = gradient(split, [0, 1, 2], [0])
    assert reductions(made) == sorted([(("x",), ()), (("y",), (2,)), (("x",), (3,)), (("x", "y"), ())])
    only = gradient(split, [0], [0])
    assert reductions(only) == [(("x",), ()), (("y",), (2,))], "those of the forward pass"


def test_linear_parts_of_a_manual_computation():
    whole, split = layers()
    primals, tangents = numbers([p.shape for p in whole.parameters], 0), numbers([p.shape for p in whole.parameters], 1)
    found = []
    for one in (whole, split):
        forward, linear = linearize(one, [0, 1, 2])
        residuals = evaluate(forward, primals)[3:]
        found.append(evaluate(linear, [*residuals, *tangents]))
    for x, y in zip(*found, strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-5)
