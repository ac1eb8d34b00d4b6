"""Programs laid out over meshes, partitioned, compiled and run by real devices."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_modules import cases
from random_programs import Programs, arguments, check_outputs
from spmd_modules import MESHES, annotated, copied, flat, near, run_on_devices, split

from hloom.backends.spmd.backend import SpmdBackend
from hloom.compiler.communication import table
from hloom.ir.build import Builder
from hloom.ir.interpret import run
from hloom.ir.module import Module
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.types import DTYPES, Shape, TupleShape
from hloom.platforms.backend import CompileOptions

LEFT_OUT = ("custom_calls", "collectives", "collective_broadcast", "manual_computations")
NAMES = [c.name for c in cases() if c.name not in LEFT_OUT][::2]
F32 = DTYPES["f32"]


@pytest.mark.parametrize("name", NAMES)
def test_every_op_in_a_random_layout(name):
    case = next(c for c in cases() if c.name == name)
    drawn = random.Random(zlib.crc32(name.encode()) + 7)
    module = annotated(copied(case.module), drawn.choice(MESHES), drawn)
    if any(isinstance(e, TupleShape) for e in getattr(module.entry.root.shape, "elements", ())):
        return  # programs return arrays
    expected = flat(run(Module(module.name, module.entry), list(case.arguments)))
    for found, wanted in zip(run_on_devices(module, list(case.arguments)), expected, strict=True):
        near(found, wanted, 1e-3)


@settings(max_examples=25)
@given(st.randoms(use_true_random=False), st.sampled_from(MESHES), st.integers(1, 8))
def test_random_programs_in_random_layouts(drawn, mesh, size):
    programs = Programs(drawn)
    module = programs.module(size)
    arrays = arguments(module, drawn.randrange(1000))
    with np.errstate(all="ignore"):
        check_outputs(programs, module, run_on_devices(annotated(module, mesh, drawn, 0.7), arrays), arrays)


def test_a_product_of_parts_and_the_table_of_its_collectives():
    mesh = DeviceMesh(("x", "y"), (2, 4))
    b = Builder("main")
    x, w = b.parameter(Shape(F32, (16, 64))), b.parameter(Shape(F32, (64, 32)))
    x.sharding, w.sharding = Sharding(mesh, (("x",), ("y",))), Sharding(mesh, (("y",), ()))
    root = b.emit("tanh", b.emit("dot", x, w, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,)))
    root.sharding = Sharding(mesh, (("x",), ()))
    executable = SpmdBackend().compile(Module("m", b.finish(root), None, 1, 8), CompileOptions())
    (use,) = executable.collectives()
    assert (use.kind, use.axes, use.bytes, use.times) == ("all-reduce", ("y",), 2 * 8 * 32 * 4 * 3 // 4, 1)
    assert executable.cost_analysis()["bytes sent"] == use.bytes
    assert "all-reduce  y " in table([use])
    assert executable.input_shardings == [x.sharding, w.sharding] and executable.output_shardings == [root.sharding]
    rng = np.random.default_rng(0)
    given_arrays = [rng.standard_normal(p.dims).astype(np.float32) for p in (x, w)]
    found = executable([split(a, p.sharding) for a, p in zip(given_arrays, (x, w), strict=True)])[0]
    wanted = np.tanh(given_arrays[0] @ given_arrays[1])
    for device, part in enumerate(found):
        np.testing.assert_allclose(part, wanted[root.sharding.region(device, wanted.shape)], rtol=1e-4, atol=1e-5)
