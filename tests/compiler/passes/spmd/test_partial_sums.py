"""Partial sums as the state of loops and the results of branches, where a program says so: summed once, behind them."""

from __future__ import annotations

import numpy as np
import pytest
from spmd_modules import check, divided

from hloom.compiler.communication import collective_uses
from hloom.compiler.passes.spmd.linear import widens
from hloom.compiler.passes.spmd.propagate import propagate
from hloom.compiler.pipeline import SPMD_PIPELINE, run_passes
from hloom.ir.build import Builder, Value
from hloom.ir.module import Module
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.stablehlo import parse_program, to_module
from hloom.ir.types import DTYPES, Shape

pytestmark = pytest.mark.quick
MESH = DeviceMesh(("x",), (2,))

PROGRAM = """
sdy.mesh @mesh = <["x"=2]>
func.func @main(%w: tensor<3x4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {}]>},
                %x: tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                %which: tensor<i1> {sdy.sharding = #sdy.sharding<@mesh, []>})
    -> (tensor<3x4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {}]>}) {
  %zero = stablehlo.constant dense<0.0> : tensor<3x4x4xf32>
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %start = sdy.sharding_constraint %zero <@mesh, [{}, {}, {}], unreduced={"x"}> : tensor<3x4x4xf32>
  BODY
  %sum = sdy.sharding_constraint %out <@mesh, [{}, {}, {}]> : tensor<3x4x4xf32>
  %r = stablehlo.subtract %w, %sum : tensor<3x4x4xf32>
  return %r : tensor<3x4x4xf32>
}
"""
PRODUCT = """
    %d = stablehlo.dot_general %x, %x, contracting_dims = [0] x [0] :
      (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %p = sdy.sharding_constraint %d <@mesh, [{}, {}], unreduced={"x"}> : tensor<4x4xf32>
    %row = stablehlo.reshape %p : (tensor<4x4xf32>) -> tensor<1x4x4xf32>
"""
PARTIAL = '%q = sdy.sharding_constraint %new <@mesh, [{}, {}, {}], unreduced={"x"}> : tensor<3x4x4xf32>'
LOOP = f"""
  %loop:2 = stablehlo.while(%k = %c0, %acc = %start) : tensor<i32>, tensor<3x4x4xf32>
  cond {{
    %go = stablehlo.compare LT, %k, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }} do {{
    {PRODUCT}
    STEP
    {PARTIAL}
    %next = stablehlo.add %k, %c1 : tensor<i32>
    stablehlo.return %next, %q : tensor<i32>, tensor<3x4x4xf32>
  }}
  %out = stablehlo.reshape %loop#1 : (tensor<3x4x4xf32>) -> tensor<3x4x4xf32>
"""
ADDED = """
    %rows = stablehlo.dot_general %w, %x, contracting_dims = [1] x [0] :
      (tensor<3x4x4xf32>, tensor<4x4xf32>) -> tensor<3x4x4xf32>
    %new = stablehlo.add %acc, %rows : tensor<3x4x4xf32>
"""
WITH_WHOLE = """
    %more = stablehlo.add %acc, %w : tensor<3x4x4xf32>
    %less = sdy.sharding_constraint %more <@mesh, [{}, {}, {}], unreduced={"x"}> : tensor<3x4x4xf32>
    %rows = stablehlo.dot_general %w, %x, contracting_dims = [1] x [0] :
      (tensor<3x4x4xf32>, tensor<4x4xf32>) -> tensor<3x4x4xf32>
    %new = stablehlo.subtract %rows, %less : tensor<3x4x4xf32>
"""
STACKED = """
    %new = stablehlo.dynamic_update_slice %acc, %row, %k, %c0, %c0 :
      (tensor<3x4x4xf32>, tensor<1x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x4x4xf32>
"""
BRANCHES = f"""
  %out = "stablehlo.if"(%which) ({{
    %new = stablehlo.dot_general %w, %x, contracting_dims = [1] x [0] :
      (tensor<3x4x4xf32>, tensor<4x4xf32>) -> tensor<3x4x4xf32>
    {PARTIAL}
    stablehlo.return %q : tensor<3x4x4xf32>
  }}, {{
    %new = stablehlo.dot_general %w, %x, contracting_dims = [2] x [0] :
      (tensor<3x4x4xf32>, tensor<4x4xf32>) -> tensor<3x4x4xf32>
    {PARTIAL}
    stablehlo.return %q : tensor<3x4x4xf32>
  }}) : (tensor<i1>) -> tensor<3x4x4xf32>
"""


def read(body: str) -> Module:
    module = to_module(parse_program(PROGRAM.replace("BODY", body)), shardings=True)
    return run_passes(module, SPMD_PIPELINE[: SPMD_PIPELINE.index("partition")])


@pytest.mark.parametrize(
    "body",
    [*(LOOP.replace("STEP", step) for step in (ADDED, WITH_WHOLE, STACKED)), BRANCHES],
    ids=["added", "with a whole array", "stacked", "branches"],
)
def test_they_are_summed_behind_it(body):
    module = read(body)
    (found,) = collective_uses(divided(module), MESH)
    assert (found.kind, found.times) == ("all-reduce", 1)
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((3, 4, 4)).astype("f"), rng.standard_normal((4, 4)).astype("f")
    for which in (True, False):
        check(module, [w, x, np.asarray(which)])


def test_what_a_step_reads_of_the_sum_is_summed_in_it():
    squared = (
        ADDED.replace("%acc, %rows", "%square, %rows") + "%square = stablehlo.multiply %acc, %acc : tensor<3x4x4xf32>"
    )
    first, _, rest = squared.rpartition("\n")
    module = read(LOOP.replace("STEP", f"{rest}\n{first}"))
    assert max(use.times for use in collective_uses(divided(module), MESH)) == 3
    check(module, [np.full((3, 4, 4), 0.1, "f"), np.full((4, 4), 0.1, "f"), np.asarray(True)])


def test_a_scan_carries_and_stacks_them():
    whole, split = Sharding(MESH, ((), ())), Sharding(MESH, (("x",), ()))
    partial = Sharding(MESH, ((), ()), ("x",))
    shape = Shape(DTYPES["f32"], (4, 4))
    b = Builder("body")
    carry, x = b.parameter(shape), b.parameter(shape)
    added, stacked = (
        Value(b, x).op("dot", Value(b, x) * scale, lhs_contracting_dims=(0,), rhs_contracting_dims=(0,))
        for scale in (1, 2)
    )
    new = (Value(b, carry) + added).op("sharding-constraint", sharding=partial)
    body = b.finish(b.tuple([new.instruction, stacked.op("sharding-constraint", sharding=partial).instruction]))
    m = Builder("main")
    start, xs = m.parameter(shape), m.parameter(Shape(DTYPES["f32"], (5, 4, 4)))
    start.sharding, xs.sharding = whole, Sharding(MESH, ((), *split.dims))
    loop = m.emit("scan", start, xs, body=body, num_consts=0, num_carry=1, length=5)
    results = [m.emit("get-tuple-element", loop, index=k) for k in range(2)]
    root = m.tuple([Value(m, results[0]).op("negate").instruction, Value(m, results[1]).op("negate").instruction])
    root.sharding = (whole, Sharding(MESH, ((), (), ())))
    module = propagate(Module("m", m.finish(root), partitions=2))
    assert [use.times for use in collective_uses(divided(module), MESH)] == [1]
    rng = np.random.default_rng(0)
    check(module, [rng.standard_normal((4, 4)).astype("f"), rng.standard_normal((5, 4, 4)).astype("f")])


def test_conversions_that_widen_keep_them():
    f = {name: DTYPES[name] for name in ("f16", "bf16", "f32", "f64", "c64", "s32")}
    assert widens(f["bf16"], f["f32"]) and widens(f["f32"], f["f64"]) and widens(f["f32"], f["c64"])
    for source, target in (("f32", "bf16"), ("f16", "bf16"), ("s32", "f32"), ("f32", "s32"), ("c64", "f32")):
        assert not widens(f[source], f[target]), (source, target)
