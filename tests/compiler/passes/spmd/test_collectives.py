"""The table of collectives: what is sent, how often, and why."""

from __future__ import annotations

import pytest

from hloom.compiler.communication import bytes_sent, collective_uses, table
from hloom.compiler.passes.spmd.partition import partition
from hloom.ir.build import Builder, Value
from hloom.ir.module import Module
from hloom.ir.source import Source
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.types import DTYPES, Shape

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
    module = partition(Module("m", b.finish(laid_out(y, "", "")), partitions=2))
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
    (found,) = collective_uses(partition(Module("m", m.finish(result), partitions=2)), MESH)
    assert (found.kind, found.times, found.bytes) == ("all-reduce", 7, 16)
