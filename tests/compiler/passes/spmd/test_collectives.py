"""The table of collectives: what is sent, how often, and why."""

from __future__ import annotations

import numpy as np
import pytest
from spmd_modules import check, divided

from hloom.compiler.communication import bytes_sent, collective_uses, table
from hloom.ir.build import Builder, Value
from hloom.ir.module import Module
from hloom.ir.source import Source
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.types import DTYPES, Shape, TupleShape

pytestmark = pytest.mark.quick
MESH = DeviceMesh(("x",), (2,))


def laid_out(value, *dims):
    value = value.instruction if isinstance(value, Value) else value
    value.sharding = Sharding(MESH, tuple((d,) if d else () for d in dims))
    return value


def test_a_product_whose_sums_are_split():
    b = Builder("main")
    x, w = (Value(b, laid_out(b.parameter(Shape(DTYPES["f32"], (64, 64))), *d)) for d in (("", "x"), ("x", "")))
    b.source = Source("train.py", 7, "step")
    y = x.op("dot", w, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
    module = divided(Module("m", b.finish(laid_out(y, "", "")), partitions=2))
    (row,) = collective_uses(module, MESH)
    assert (row.kind, row.axes, row.bytes, row.times) == ("all-reduce", ("x",), 64 * 64 * 4, 1)
    assert str(row.source) == "train.py:7 in step" and row.why == "the layout of the results"
    assert bytes_sent([row]) == 16384
    assert "train.py:7" in table([row])


def test_collectives_in_a_scan_count_its_steps():
    carry, row = Shape(DTYPES["f32"], (4,)), Shape(DTYPES["f32"], (4, 4))
    b = Builder("body")
    h, w = laid_out(b.parameter(carry), ""), laid_out(b.parameter(row), "x", "")
    new = Value(b, h).op("dot", Value(b, w), lhs_contracting_dims=(0,), rhs_contracting_dims=(0,))
    root = b.tuple([laid_out(new, "")])
    root.sharding = (new.instruction.sharding,)
    body = b.finish(root)
    m = Builder("main")
    x, ws = laid_out(m.parameter(carry), ""), laid_out(m.parameter(Shape(DTYPES["f32"], (7, 4, 4))), "", "x", "")
    loop = m.emit("scan", x, ws, body=body, num_consts=0, num_carry=1, length=7)
    loop.sharding = (x.sharding,)
    result = laid_out(m.emit("get-tuple-element", loop, index=0), "")
    (found,) = collective_uses(divided(Module("m", m.finish(result), partitions=2)), MESH)
    assert (found.kind, found.times, found.bytes) == ("all-reduce", 7, 16)


def test_small_sums_become_one():
    b = Builder("main")
    x = Value(b, laid_out(b.parameter(Shape(DTYPES["f32"], (64, 8))), "x", ""))
    sums = [laid_out(v.sum((0,)), "") for v in (x, x * x, x.op("tanh"))]
    big = Value(b, laid_out(b.parameter(Shape(DTYPES["f32"], (2, 1 << 19))), "x", ""))
    root = b.tuple([*sums, laid_out(big.sum((0,)), "")])
    root.sharding = tuple(o.sharding for o in root.operands)
    uses = collective_uses(divided(Module("m", b.finish(root), partitions=2)), MESH)
    assert sorted((u.kind, u.bytes) for u in uses) == [("all-reduce", 96), ("all-reduce", 1 << 21)]


def test_what_a_loop_does_not_change_is_gathered_before_it():
    f32, s32 = DTYPES["f32"], DTYPES["s32"]
    state = TupleShape((Shape(s32), Shape(f32, (4, 4)), Shape(f32, (4, 4))))
    lay = (Sharding(MESH, ()), Sharding(MESH, ((), ())), Sharding(MESH, (("x",), ())))

    def element(b, p, k):
        e = b.emit("get-tuple-element", p, index=k)
        e.sharding = lay[k]
        return e

    c = Builder("condition")
    p = c.parameter(state)
    p.sharding = lay
    condition = c.finish(laid_out(c.emit("compare", element(c, p, 0), laid_out(c.constant(5, s32)), direction="LT")))
    b = Builder("body")
    p = b.parameter(state)
    p.sharding = lay
    k, h, w = (element(b, p, n) for n in range(3))
    more = laid_out(b.emit("add", k, laid_out(b.constant(1, s32))))
    whole = laid_out(b.emit("sharding-constraint", w, sharding=lay[1]), "", "")
    new = laid_out(b.emit("tanh", laid_out(b.emit("add", h, whole), "", "")), "", "")
    root = b.tuple([more, new, w])
    root.sharding = lay
    body = b.finish(root)
    m = Builder("main")
    h, w = laid_out(m.parameter(Shape(f32, (4, 4))), "", ""), laid_out(m.parameter(Shape(f32, (4, 4))), "x", "")
    start = m.tuple([laid_out(m.constant(0, s32)), h, w])
    start.sharding = lay
    loop = m.emit("while", start, condition=condition, body=body)
    loop.sharding = lay
    result = laid_out(m.emit("get-tuple-element", loop, index=1), "", "")
    module = Module("m", m.finish(result), partitions=2)
    (use,) = collective_uses(divided(module), MESH)
    assert (use.kind, use.times) == ("all-gather", 1)
    values = np.arange(32, dtype=np.float32).reshape(2, 4, 4) / 32
    check(module, list(values))
