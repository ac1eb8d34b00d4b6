"""Propagation through constraints, manual computations and calls; and what the partition of its result computes."""

from __future__ import annotations

import random

import derivative_cases
import manual_modules  # noqa: F401  (declares cases of op_modules)
import numpy as np
import op_modules
import pytest
from passes_support import draw
from sharded_programs import TEXTBOOK, sharding, text, textbook
from spmd_modules import MESHES, check, copied, divided, random_sharding
from test_propagate import check_valid, f32, program

from hloom.compiler.passes.spmd.propagate import propagate
from hloom.compiler.pipeline import SPMD_PIPELINE, run_passes
from hloom.ir.build import Builder, Value, scalar_computation
from hloom.ir.module import Module
from hloom.ir.records import replace
from hloom.ir.spmd.sharding import DeviceMesh, Sharding, on_device
from hloom.ir.types import Shape, TupleShape

SMALL = DeviceMesh(("data", "model"), (2, 2))


def result(module: Module):
    return propagate(module).entry.outputs()[0]


# --- constraints --------------------------------------------------------------------------------------------------


def test_a_constraint_fixes_a_value_and_what_makes_and_reads_it():
    def held(x):
        return (x + 1).op("sharding-constraint", sharding=sharding("data -")) * 2

    made = propagate(program(held, (f32(64, 64), None)))
    assert [text(p.sharding) for p in made.entry.parameters] == ["data -"]
    assert all(text(i.sharding) == "data -" for i in made.entry.instructions if getattr(i.shape, "dims", ()))
    (kept,) = (i for i in made.entry.instructions if i.opcode == "sharding-constraint")
    assert kept["sharding"] == sharding("data -")


def test_two_constraints_of_one_value_differ():
    def twice(x):
        first = x.op("sharding-constraint", sharding=sharding("data -"))
        return first.op("sharding-constraint", sharding=sharding("- data"))

    made = propagate(program(twice, (f32(64, 64), "model -")))
    first, second = (i for i in made.entry.instructions if i.opcode == "sharding-constraint")
    assert [text(i.sharding) for i in (first, second)] == ["data -", "- data"]


def test_open_dimensions_of_a_constraint():
    def held(x, w):
        y = x.op("sharding-constraint", sharding=sharding("- -", open=(1,)))
        return y * w

    module = program(held, (f32(64, 64), None), (f32(64, 64), "data model"))
    (kept,) = (i for i in propagate(module).entry.instructions if i.opcode == "sharding-constraint")
    assert text(kept.sharding) == "- model"


def test_axes_that_an_annotation_rules_out():
    module = program(lambda x, y: x + y, (f32(64, 64), None), (f32(64, 64), "data model"))
    module.entry.parameters[0].sharding = replace(sharding("- -", open=(0, 1)), replicated_axes=("model",))
    assert text(propagate(module).entry.parameters[0].sharding) == "data -"


def test_priorities():
    """Priority 1 is carried on when nothing of priority 0 is left to do."""

    def added(x, y):
        return x + y

    for priorities, expected in (((), "data -"), ((1, 1), "- data")):
        module = program(added, (f32(64, 64), None), (f32(64, 64), None))
        x, y = module.entry.parameters
        x.sharding = replace(sharding("data -", open=(0, 1)), priorities=priorities)
        y.sharding = sharding("- data", open=(0, 1))
        assert text(result(module).sharding) == expected


def test_what_one_device_has_is_computed_on_all():
    module = program(lambda x, y: x + y, (f32(64, 64), None), (f32(64, 64), "data -"))
    module.entry.parameters[0].sharding = on_device(0, 2)
    made = propagate(module)
    assert [text(p.sharding) for p in made.entry.parameters] == ["- -", "data -"]


def test_a_barrier_and_elements_of_tuples():
    def held(x, y):
        barrier = x.builder.emit("optimization-barrier", x.instruction, y.instruction)
        first, second = (Value(x.builder, x.builder.emit("get-tuple-element", barrier, index=k)) for k in range(2))
        return first + 1, second + 1

    module = program(held, (f32(64, 64), "data -"), (f32(64, 64), "- model"))
    made = propagate(module)
    assert [text(o.sharding) for o in made.entry.outputs()] == ["data -", "- model"]
    (barrier,) = (i for i in made.entry.instructions if i.opcode == "optimization-barrier")
    assert text(barrier.sharding) == "(data -, - model)"


# --- manual computations ------------------------------------------------------------------------------------------


def manual(inside, shape, given: Sharding, found: Sharding, axes):
    """A manual computation of one array."""
    builder = Builder("body")
    body = builder.finish(inside(Value(builder, builder.parameter(shape))).instruction)

    def run(x):
        made = x.builder.emit(
            "manual-computation", x.instruction, to_apply=body, in_shardings=(given,), out_shardings=(found,),
            manual_axes=axes,
        )  # fmt: skip
        return Value(x.builder, made)

    return run


def test_boundaries_fix_the_values_outside():
    run = manual(lambda x: x * 2, f32(16, 8), sharding("data model"), sharding("data model"), ("data", "model"))
    module = program(lambda x: run(x + 1) + 1, (f32(64, 64), None))
    made = propagate(module)
    assert text(made.entry.parameters[0].sharding) == "data model"
    assert text(made.entry.outputs()[0].sharding) == "data model"
    (call,) = (i for i in made.entry.instructions if i.opcode == "manual-computation")
    assert all(text(i.sharding).strip("- ") == "" for i in call["to_apply"].instructions)
    assert call["manual_axes"] == ("data.0", "data.1", "model.0", "model.1", "model.2")
    check_valid(made)


def test_automatic_axes_go_through_a_manual_computation():
    """`model` is not manual: it is carried through the body from both sides, behind the manual axis."""
    open_ = sharding("data -", open=(0, 1))
    run = manual(lambda x: x * 2, f32(16, 64), open_, open_, ("data",))
    for given, back in (("data model", None), (None, "data model"), ("data+model -", None)):
        module = program(run, (f32(64, 64), given))
        if back:
            module.entry.root.sharding = (sharding(back),)
        made = propagate(module)
        expected = given or back
        assert text(made.entry.parameters[0].sharding) == expected
        assert text(made.entry.outputs()[0].sharding) == expected
        (call,) = (i for i in made.entry.instructions if i.opcode == "manual-computation")
        inside = expected.replace("data+", "").replace("data", "-")
        assert {text(i.sharding) for i in call["to_apply"].instructions if i.dims} == {inside}
        assert [text(s) for s in (*call["in_shardings"], *call["out_shardings"])] == [expected] * 2


def test_manual_axes_split_nothing_inside():
    """A constraint of the body over an automatic axis, and one value that could get a manual one."""
    plain = sharding("data -")

    def inside(x):
        return x.op("sharding-constraint", sharding=sharding("- model")) + 1

    made = propagate(program(manual(inside, f32(16, 64), plain, plain, ("data",)), (f32(64, 64), "data -")))
    (call,) = (i for i in made.entry.instructions if i.opcode == "manual-computation")
    body = call["to_apply"]
    assert [text(p.sharding) for p in body.parameters] == ["- -"]
    assert text(body.root.sharding) == "- model"


@pytest.mark.parametrize("name", ["shardings", "manual_computations"])
def test_cases_of_manual_computations(name):
    case = next(c for c in op_modules.cases() if c.name == name)
    module = copied(case.module)
    module.partitions = 6
    made = propagate(module)
    check_valid(made)
    again = propagate(made)
    for one, two in zip(made.instructions(), again.instructions(), strict=True):
        assert one.sharding == two.sharding


# --- scans --------------------------------------------------------------------------------------------------------


def test_a_scan_before_it_is_lowered():
    """The carry, a constant, and what is walked over, whose first dimension is that of the steps."""
    builder = Builder("body")
    weight, carry, x = (Value(builder, builder.parameter(s)) for s in (f32(64, 64), f32(16, 64), f32(16, 64)))
    made = carry.op("dot", weight, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,)) + x
    body = builder.finish(builder.tuple([made.instruction, (made * 2).instruction]))

    def run(weight, start, xs):
        emit = weight.builder.emit
        given = [v.instruction for v in (weight, start, xs)]
        made = emit("scan", *given, body=body, num_consts=1, num_carry=1, length=10)
        return tuple(Value(weight.builder, emit("get-tuple-element", made, index=k)) for k in range(2))

    module = program(run, (f32(64, 64), "- model"), (f32(16, 64), None), (f32(10, 16, 64), "- data -"))
    made = propagate(module)
    check_valid(made)
    assert [text(o.sharding) for o in made.entry.outputs()] == ["data model", "- data model"]
    assert text(made.entry.parameters[1].sharding) == "data model"


# --- together with the partition ----------------------------------------------------------------------------------


def smaller(module: Module) -> Module:
    """The program over a mesh of 2 x 2 devices."""
    module.partitions = SMALL.size
    for parameter in module.entry.parameters:
        if parameter.sharding is not None:
            parameter.sharding = replace(parameter.sharding, mesh=SMALL)
    return module


@pytest.mark.parametrize("name", TEXTBOOK)
def test_partitioned_programs_compute_the_same(name):
    module = smaller(textbook(name))
    numbers = np.random.default_rng(0)
    arguments = [draw(numbers, p.shape, special=False) for p in module.entry.parameters]
    for k, parameter in enumerate(module.entry.parameters):
        if parameter.dtype.kind == "i":
            arguments[k] = numbers.integers(0, 10, parameter.dims).astype(parameter.dtype)
        else:
            arguments[k] = (0.1 * numbers.standard_normal(parameter.dims)).astype(parameter.dtype)
    check(propagate(module), arguments, rtol=1e-3)


def test_sums_in_a_scalar_computation_are_left_alone():
    add = scalar_computation("add", np.float32)

    def total(x):
        zero = x.builder.constant(np.float32(0))
        return Value(x.builder, x.builder.emit("reduce", x.instruction, zero, dimensions=(0,), to_apply=add))

    made = propagate(program(total, (f32(64, 64), "data model")))
    (reduce,) = (i for i in made.entry.instructions if i.opcode == "reduce")
    assert reduce["to_apply"] is add and text(reduce.sharding) == "model"
    assert isinstance(reduce.shape, Shape)


@pytest.mark.parametrize("algorithm", ["rng_default", "rng_three_fry"])
def test_random_bits_are_made_by_the_device_that_has_them(algorithm):
    builder = Builder("main")
    state = builder.parameter(Shape(np.dtype(np.uint64), (2,)))
    shape = TupleShape([state.shape, Shape(np.dtype(np.uint32), (64, 64))])
    made = builder.emit("rng-bit-generator", state, shape=shape, algorithm=algorithm)
    bits = builder.emit("get-tuple-element", made, index=1)
    root = builder.emit("sharding-constraint", bits, sharding=sharding("data -", SMALL))
    module = Module("bits", builder.finish(root), partitions=SMALL.size)
    laid_out = run_passes(module, SPMD_PIPELINE[: SPMD_PIPELINE.index("partition")])
    check(laid_out, [np.array([3, 5], np.uint64)])
    found = [i for i in divided(laid_out).instructions() if i.opcode.startswith(("philox", "threefry"))]
    whole = [i for i in laid_out.instructions() if i.opcode.startswith(("philox", "threefry"))]
    assert max(i.shape.size for i in found) == max(i.shape.size for i in whole) // 2


def test_a_normalization_exchanges_moments_only():
    builder = Builder("main")
    x, scale, offset = (builder.parameter(s) for s in (f32(64, 16, 8), f32(8), f32(8)))
    x.sharding = sharding("data - -", SMALL)
    made = builder.emit("batch-norm-training", x, scale, offset, epsilon=1e-3, feature_index=2)
    root = builder.tuple([builder.emit("get-tuple-element", made, index=k) for k in range(3)])
    module = Module("norm", builder.finish(root), partitions=SMALL.size)
    laid_out = run_passes(module, SPMD_PIPELINE[: SPMD_PIPELINE.index("partition")])
    numbers = np.random.default_rng(0)
    check(laid_out, [draw(numbers, p.shape, special=False) for p in module.entry.parameters])
    exchanged = [i for i in divided(laid_out).instructions() if i.opcode.startswith(("all-", "collective"))]
    assert exchanged and all(i.shape.size <= 8 for i in exchanged)


@pytest.mark.parametrize("seed", range(2))
def test_cases_with_some_annotations_compute_the_same(seed):
    """Small programs of every op, among them reductions by any computation whose initial values count once."""
    for given in derivative_cases.CASES:
        module = copied(Module(str(given), given.computation()))
        opcodes = {i.opcode for i in module.instructions()}
        if opcodes & {
            "custom-call",
            "sharding-constraint",
            "manual-computation",
        }:  # the last two have meshes of their own
            continue
        drawn = random.Random(f"{given}{seed}")
        mesh = drawn.choice(MESHES)
        module.partitions = mesh.size
        for instruction in module.entry.instructions:
            chance = 0.7 if instruction.opcode == "parameter" else 0.1
            if isinstance(instruction.shape, Shape) and drawn.random() < chance:
                instruction.sharding = random_sharding(drawn, mesh, instruction.shape)
        with np.errstate(all="ignore"):
            check(propagate(module), list(given.arguments()), 1e-3)
