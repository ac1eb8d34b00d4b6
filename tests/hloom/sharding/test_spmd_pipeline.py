"""Partition as passes: which run, in which order, how often, and what becomes of those who ask for layouts."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.compiler.opt import optimize_text
from hloom.compiler.passes import all_passes
from hloom.compiler.passes.registry import Team
from hloom.compiler.passes.spmd import propagate
from hloom.compiler.passes.spmd.custom import report_layouts
from hloom.compiler.pipeline import PIPELINE, SPMD_PIPELINE, run_passes
from hloom.ir.build import Builder
from hloom.ir.module import Module
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.types import DTYPES, Shape
from hloom.sharding import PartitionSpec as P

DEVICES = ("cpu:0", "cpu:1")
LAID_OUT = """HloModule m, entry_computation_layout={(f32[8,4]{1,0})->f32[]}, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(f32[] %a, f32[] %b)
}

ENTRY %main (x: f32[8,4]) -> f32[] {
  %x = f32[8,4]{1,0} parameter(0), sharding={devices=[2,1]<=[2]}
  %zero = f32[] constant(0)
  ROOT %r = f32[] reduce(f32[8,4]{1,0} %x, f32[] %zero), dimensions={0,1}, to_apply=%add
}
"""


@pytest.fixture
def runs(monkeypatch):
    """How often layouts were propagated."""
    count = [0]
    real = propagate.Propagation.run

    def run(self):
        count[0] += 1
        real(self)

    monkeypatch.setattr(propagate.Propagation, "run", run)
    return count


@pytest.fixture
def rows(put):
    return put(np.ones((8, 4), np.float32), "x", None)


def test_layouts_are_propagated_once(runs, rows):
    assert float(hl.jit(lambda x: hnp.tanh(x).sum())(rows)) == pytest.approx(32 * np.tanh(1))
    assert runs == [1]


def test_who_asks_for_a_layout_is_told_the_one_of_the_program(runs, rows):
    seen = []

    def f(x):
        y = x * 2
        hl.debug.inspect_array_sharding(y, callback=seen.append)
        return y.sum()

    assert float(hl.jit(f)(rows)) == 64
    assert [s.spec for s in seen] == [P("x")] and runs == [1]


def test_dumps_show_partition_and_what_follows_it(tmp_path, rows):
    with hl.config(dump_to=str(tmp_path), verify=True):
        hl.jit(lambda x: x.sum() - 1)(rows)
    names = [p.name.split(".")[1].split("_", 1)[1] for p in sorted(tmp_path.glob("*.hlo"))]
    assert names == ["traced", *SPMD_PIPELINE, *PIPELINE]
    (before,) = tmp_path.glob("*_propagate-shardings.hlo")
    (after,) = tmp_path.glob("*_partition.hlo")
    assert "all-reduce" in after.read_text() and "all-reduce" not in before.read_text()


def test_opt_runs_them():
    text = optimize_text(LAID_OUT, SPMD_PIPELINE, verify=True)
    assert "f32[4,4]" in text and "all-reduce" in text


def test_a_module_for_one_device_stays_as_it_is():
    builder = Builder("main")
    module = Module("one", builder.finish(builder.emit("negate", builder.parameter(Shape(DTYPES["f32"], (3,))))))
    assert run_passes(module, SPMD_PIPELINE) is module


def test_observers_are_told_whether_axes_are_manual():
    mesh = DeviceMesh(("x",), (2,))
    told = []

    class Observer:
        def laid_out(self, sharding, devices, is_manual):
            told.append((sharding.dims, devices, is_manual))

    def observed(builder, value):
        same = Builder("same")
        callee = same.finish(same.parameter(value.shape))
        return builder.emit("call", value, to_apply=callee, observer=Observer())

    inner = Builder("inner")
    body = inner.finish(observed(inner, inner.parameter(Shape(DTYPES["f32"], (4,)))))
    builder = Builder("main")
    x = builder.parameter(Shape(DTYPES["f32"], (8,)))
    x.sharding = rows = Sharding(mesh, (("x",),))
    parts = builder.emit(
        "manual-computation", observed(builder, x), to_apply=body, in_shardings=(rows,), out_shardings=(rows,),
        manual_axes=("x",),
    )  # fmt: skip
    module = propagate.propagate(Module("m", builder.finish(parts), partitions=2))
    result = report_layouts(module, team=Team(DEVICES))
    assert [(devices, manual) for _, devices, manual in told] == [
        (("cpu:0", "cpu:1"), False),
        (("cpu:0", "cpu:1"), True),
    ]
    assert told[0][0] == (("x",),)
    assert not any("observer" in i.attributes for i in result.instructions())
    assert report_layouts(result, team=Team()) is result


def test_all_are_registered_with_a_summary():
    assert all(all_passes()[name].summary.endswith(".") for name in SPMD_PIPELINE)
