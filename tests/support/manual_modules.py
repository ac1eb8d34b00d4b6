"""Cases for `op_modules`: constraints and manual computations over a mesh of 2 x 3 devices."""

from __future__ import annotations

import numpy as np
from op_modules import callee, case, numbers

from hloom.ir.build import scalar_computation
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.types import Shape

MESH = DeviceMesh(("x", "y"), (2, 3))
ADD = scalar_computation("add", np.float32)


def over(*dims, unreduced=()):
    """A sharding over MESH: for each dimension the names of its axes, without blanks between."""
    return Sharding(MESH, tuple(tuple(axes) for axes in dims), unreduced)


@case(runs=False)
def shardings(b, parameter):
    x, w = parameter(numbers("f32", (4, 9)), "x"), parameter(numbers("f32", (9,), 1), "w")
    held = b.emit("sharding-constraint", x, sharding=over("x", "y"))
    spread = b.emit("broadcast", w, shape=held.shape, dimensions=(1,))
    return [b.emit("sharding-constraint", b.emit("add", held, spread), sharding=over("yx", ""))]


@case(runs=False)
def manual_computations(b, parameter):
    """Sums over an axis and over the other one; a part that stays unreduced."""
    x, w, s = (
        parameter(numbers("f32", dims, k), n) for k, (n, dims) in enumerate({"x": (4, 9), "w": (9,), "s": ()}.items())
    )

    def body(b, x, w, s):
        h = b.emit("tanh", b.emit("multiply", x, b.emit("broadcast", w, shape=x.shape, dimensions=(1,))))
        h = b.emit("multiply", h, b.emit("broadcast", s, shape=x.shape, dimensions=()))
        zero = b.constant(np.float32(0))
        rows = b.emit("reduce", h, zero, dimensions=(1,), to_apply=ADD)
        rows = b.emit("all-reduce", rows, to_apply=ADD, axis_name=("y",), axis_size=3)
        squares = b.emit("reduce", b.emit("multiply", rows, rows), zero, dimensions=(0,), to_apply=ADD)
        total = b.emit("all-reduce", squares, to_apply=ADD, axis_name=("x",), axis_size=2)
        return b.tuple([total, h, b.emit("reduce", h, zero, dimensions=(0,), to_apply=ADD)])

    shapes = [Shape("f32", (2, 3)), Shape("f32", (3,)), Shape("f32")]
    made = b.emit(
        "manual-computation", x, w, s, to_apply=callee("body", shapes, body),
        in_shardings=(over("x", "y"), over("y"), over()),
        out_shardings=(over(), over("x", "y"), over("y", unreduced=("x",))), manual_axes=("x", "y"),
    )  # fmt: skip
    half = b.emit(
        "manual-computation", w, to_apply=callee("half", [Shape("f32", (3,))], lambda b, w: b.emit("negate", w)),
        in_shardings=(over("y"),), out_shardings=(over("y"),), manual_axes=("y",),
    )  # fmt: skip
    return [*[b.emit("get-tuple-element", made, index=k) for k in range(3)], half]
