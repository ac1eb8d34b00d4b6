"""The plan: where values live and how long, what is overwritten and what is copied, steps in Python, large graphs."""

from __future__ import annotations

import time

import numpy as np
import pytest
from cuda_programs import computation
from plan_simulator import simulate
from random_programs import arguments, reference

from hloom.backends.cpu.compilation import compile_module
from hloom.compiler.pipeline import PIPELINE, UNFUSED, run_passes
from hloom.compiler.schedule.scheduler import Plan, make_plan
from hloom.compiler.schedule.steps import CopyStep, HostStep, KernelStep, Place
from hloom.compiler.targets.cpu.target import host_target
from hloom.ir.build import Builder, Value
from hloom.ir.module import Module
from hloom.ir.ops.programs.structure import register_custom_call
from hloom.ir.types import Shape, TupleShape

pytestmark = pytest.mark.quick

register_custom_call("test.plan_double", lambda x: x + x)
register_custom_call("test.plan_parts", lambda x: (x + 1, x.sum(axis=0)))
register_custom_call("test.plan_broken", lambda x: (_ for _ in ()).throw(OSError("the disk is gone")))


def plan_of(program, fusion=False, donated=()) -> Plan:
    names = PIPELINE if fusion else UNFUSED
    return make_plan(run_passes(Module("plan", program), names, verify=True), host_target(), frozenset(donated))


def check(program, fusion=False, donated=()) -> Plan:
    """The plan, after its simulated and its compiled results were compared with the reference."""
    plan = plan_of(program, fusion, donated)
    module = Module("plan", program)
    arrays = arguments(module, 2)
    want, _, _ = reference(module, arrays)
    compiled = compile_module(module, fusion=fusion, donated=frozenset(donated))
    for results in (simulate(plan, arrays), compiled([a.copy() for a in arrays])):
        for got, expected in zip(results, want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-3)
    return plan


def chain(length, dims=(8,), opcode="sine"):
    def build(x):
        for _ in range(length):
            x = x.op(opcode)
        return x

    return computation([("f32", dims)], build)


# --- liveness -----------------------------------------------------------------------------------------------------


def accesses(step) -> tuple[list[tuple[Place, int]], list[tuple[Place, int]]]:
    """(read, written) places of a step, each with its bytes."""
    instruction = step.instruction
    shape = instruction.shape
    results = [s.bytes for s in (shape.elements if isinstance(shape, TupleShape) else (shape,))]
    operands = [o.shape.bytes for o in instruction.operands]
    if instruction.opcode != "fusion":
        operands = [o.shape.bytes for o in dict.fromkeys(instruction.operands)]
    if isinstance(step, CopyStep):
        return [(step.source, step.bytes)], [(step.target, step.bytes)]
    if isinstance(step, HostStep):
        return list(zip(step.inputs, operands, strict=True)), list(zip(step.outputs, results, strict=True))
    read, written = [], []
    for name, place in step.pointers.items():
        if name.startswith("in"):
            read.append((place, operands[int(name[2:])]))
        elif name.startswith(("out", "io")):
            both = (place, results[int(name.removeprefix("out").removeprefix("io"))])
            written.append(both)
            read += [both] if name.startswith("io") else []
        else:
            written.append((place, step.launch.temporaries[name]))
    return read, written


def assert_no_overlap(plan: Plan) -> None:
    """Every byte of the arena that a step reads was last written as part of the value that the step reads."""
    owner = np.full(plan.arena_bytes, -1)
    for step in plan.steps:
        read, written = accesses(step)
        for place, size in read:
            if place.kind == "arena":
                assert np.all(owner[place.number : place.number + size] == place.number), f"{step} reads another value"
        for place, size in written:
            if place.kind == "arena":
                assert place.number + size <= plan.arena_bytes
                owner[place.number : place.number + size] = place.number


def network(x, w, v):
    h = x.op("dot", w, lhs_batch_dims=(), rhs_batch_dims=(), lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
    a, b = h.op("tanh"), h.op("sine")
    mixed = a * b + a.sum([1]).broadcast(a.dims, (0,))
    return mixed.op("dot", v, lhs_batch_dims=(), rhs_batch_dims=(), lhs_contracting_dims=(1,),
                    rhs_contracting_dims=(0,)).sum([0])  # fmt: skip


@pytest.mark.parametrize("fusion", [True, False])
def test_no_two_live_values_overlap(fusion):
    program = computation([("f32", (40, 30)), ("f32", (30, 50)), ("f32", (50, 70))], network)
    plan = check(program, fusion)
    assert_no_overlap(plan)
    assert plan.arena_bytes % 64 == 0


def test_dead_values_give_their_place_to_later_ones():
    def build(x):
        for _ in range(30):
            x = x.op("transpose", dimensions=(1, 0)).op("reverse", dimensions=(0,))
        return x + 1.0

    plan = check(computation([("f32", (30, 40))], build))
    assert_no_overlap(plan)
    assert plan.arena_bytes <= 3 * (4800 + 64)


# --- in place -----------------------------------------------------------------------------------------------------


def test_a_chain_runs_in_one_place():
    plan = check(chain(6))
    assert [min(s.pointers)[:2] for s in plan.kernels()] == ["in", "io", "io", "io", "io", "in"]
    assert plan.arena_bytes == 64


def test_an_operand_that_lives_on_is_not_overwritten():
    def build(x):
        y = x.op("sine")
        return y.op("cosine").op("tanh") + y

    plan = check(computation([("f32", (9,))], build))
    cosine = next(s for s in plan.kernels() if s.instruction.opcode == "cosine")
    assert not any(n.startswith("io") for n in cosine.pointers)


def test_an_operand_read_across_is_not_overwritten():
    def build(x):
        y = x.op("sine")
        return (y + y.op("transpose", dimensions=(1, 0))).op("reverse", dimensions=(1,)) + 1.0

    plan = check(computation([("f32", (20, 20))], build), fusion=True)
    across = [s for s in plan.kernels() if s.instruction.opcode == "fusion"]
    assert across and not any(n.startswith("io") for s in across for n in s.pointers)


def test_a_value_of_another_dtype_is_not_overwritten():
    plan = check(computation([("f32", (9,))], lambda x: x.op("sine").convert("s32").op("negate").convert("f32")))
    convert = [s for s in plan.kernels() if s.instruction.opcode == "convert"]
    assert not any(n.startswith("io") for s in convert for n in s.pointers)


# --- donation -----------------------------------------------------------------------------------------------------


def test_a_donated_input_becomes_the_output():
    program = computation([("f32", (30,)), ("f32", (30,))], lambda x, y: x * 2.0 + y)
    plan = check(program, fusion=True, donated=[1])
    assert plan.donated == {0: 1}
    (step,) = plan.kernels()
    assert step.pointers["io0"] == Place("output", 0)


def test_a_donated_input_that_is_needed_later_is_kept():
    """The first output is made before the last use of the donated argument."""

    def build(x):
        first = x.op("sine")
        return first, x.op("reverse", dimensions=(0,)) + first

    for fusion in (True, False):
        check(computation([("f32", (30,))], build), fusion, donated=[0])

    def slice_later(x, y):
        return y * y, x.op("slice", slice=((3, 5, 1),)), x.op("reverse", dimensions=(0,)).sum([0])

    plan = check(computation([("f32", (30,)), ("f32", (30,))], slice_later), donated=[0, 1])
    assert plan.donated.get(0) == 1 or not plan.donated


@pytest.mark.parametrize("target", ["s32", "bf16", "u8"])
def test_a_donated_buffer_of_another_dtype(target):
    """The result has the buffer's bytes, but neither its dtype nor, perhaps, its extents."""
    factor = {"s32": 1, "bf16": 2, "u8": 4}[target]
    program = computation([("f32", (6,)), (target, (6 * factor,))], lambda x, y: (x.sum([0]), y + y))
    plan = check(program, donated=[0])
    assert plan.donated == {} or plan.donated == {1: 0}


def test_a_donated_input_that_is_returned_stays():
    program = computation([("f32", (5,))], lambda x: (x, x + 1.0))
    plan = check(program, donated=[0])
    assert plan.donated == {}


# --- copies -------------------------------------------------------------------------------------------------------


def copies(plan: Plan) -> list[tuple[str, int]]:
    return [(s.source.kind, s.target.number) for s in plan.steps if isinstance(s, CopyStep)]


@pytest.mark.parametrize("fusion", [True, False])
def test_outputs_that_nothing_computes_are_copied(fusion):
    def build(x):
        y = x * 2.0
        table = Value(x.builder, x.builder.constant(np.arange(6, dtype=np.float32)))
        return x, y, y, table, x.reshape((2, 3)), y.reshape((3, 2))

    plan = check(computation([("f32", (6,))], build), fusion)
    assert copies(plan) == [("input", 0), ("output", 2), ("constant", 3), ("input", 4), ("output", 5)]


def test_the_root_may_be_a_parameter_a_constant_or_a_reshape():
    assert copies(check(computation([("s32", (3,))], lambda x: x))) == [("input", 0)]
    assert copies(check(computation([("s32", (3,))], lambda x: x.reshape((3, 1))))) == [("input", 0)]
    builder = Builder("constant")
    assert copies(check(builder.finish(builder.constant(np.array([3, 1, 4]))))) == [("constant", 0)]


def test_nothing_is_copied_where_there_is_nothing():
    assert plan_of(computation([("s32", (0, 3))], lambda x: x)).steps == []
    builder = Builder("empty")
    assert check(builder.finish(builder.tuple([]))).output_shapes == []


# --- dynamic-update-slice -----------------------------------------------------------------------------------------


def update(x, piece, start):
    return x.op("dynamic-update-slice", piece, start)


def test_an_update_of_a_dead_value_is_made_in_place():
    plan = check(computation([("f32", (9,)), ("f32", (3,)), ("s32", ())], lambda x, p, s: update(x + x, p, s) * 3.0))
    assert not copies(plan)
    assert sum(s.launch.items for s in plan.kernels() if s.instruction.opcode == "dynamic-update-slice") == 3


def test_a_result_is_updated_where_it_is_returned():
    """What is updated is computed in the caller's buffer: neither a copy nor memory of the arena."""
    plan = check(computation([("f32", (9,)), ("f32", (3,)), ("s32", ())], lambda x, p, s: update(x + x, p, s)))
    assert not copies(plan) and not plan.arena_bytes
    plan = check(computation([("f32", (9,)), ("f32", (3,)), ("s32", ())], lambda x, p, s: (update(x + x, p, s), x - x)))
    assert not copies(plan) and not plan.arena_bytes
    twice = check(
        computation([("f32", (9,)), ("f32", (3,)), ("s32", ())], lambda x, p, s: update(update(x + x, p, s), p, s + s))
    )
    assert not copies(twice)


def test_an_update_of_a_live_value_is_made_in_a_copy():
    def build(x, p, s):
        y = x + x
        return update(y, p, s), y

    plan = check(computation([("f32", (9,)), ("f32", (3,)), ("s32", ())], build))
    assert len(copies(plan)) == 1


def test_an_argument_is_copied_before_it_is_updated_unless_it_is_donated():
    program = computation([("f32", (9,)), ("f32", (3,)), ("s32", ())], update)
    assert len(copies(check(program))) == 1
    assert not copies(check(program, donated=[0]))


def test_an_update_by_a_part_of_itself():
    def build(x, s):
        y = x + 1.0
        return y.op("dynamic-update-slice", y.op("dynamic-slice", s, dynamic_slice_sizes=(4,)), s * 2)

    for fusion in (True, False):
        check(computation([("f32", (9,)), ("s32", ())], build), fusion)


# --- Python between kernels ---------------------------------------------------------------------------------------


def custom(value: Value, target: str, shape) -> Value:
    made = value.builder.emit("custom-call", value.instruction, shape=shape, custom_call_target=target)
    return Value(value.builder, made)


def test_steps_in_python():
    def build(x):
        y = custom(x * 2.0, "test.plan_double", x.shape)
        both = custom(y + 1.0, "test.plan_parts", TupleShape((x.shape, Shape("f32", (4,)))))
        first, second = (both.op("get-tuple-element", index=k) for k in range(2))
        return first * y, second.broadcast(x.dims, (1,)) + first

    plan = check(computation([("f32", (3, 4))], build), fusion=True)
    kinds = [type(s) for s in plan.steps]
    assert kinds.count(HostStep) == 2 and KernelStep in kinds
    assert_no_overlap(plan)


def test_a_python_step_that_raises_leaves_the_program_usable():
    program = computation([("f32", (3,))], lambda x: custom(x * 2.0, "test.plan_broken", x.shape) + 1.0)
    compiled = compile_module(Module("broken", program))
    for _ in range(3):
        with pytest.raises(OSError, match="the disk is gone"):
            compiled([np.ones(3, np.float32)])


# --- large graphs -------------------------------------------------------------------------------------------------


def wide(count):
    """Many values, many of them alive for long, many outputs."""

    def build(x):
        values = [x]
        for k in range(count // 2):
            values.append(values[-1].op("sine") * values[k // 2])
        return tuple(values[-40:])

    return computation([("f32", (64, 8))], build)


def seconds(program, names) -> float:
    started = time.process_time()
    make_plan(run_passes(Module("large", program), names), host_target())
    return time.process_time() - started


@pytest.mark.parametrize("names", [PIPELINE, UNFUSED], ids=["fused", "unfused"])
@pytest.mark.parametrize("build", [wide, chain])
def test_time_grows_with_the_graph_not_its_square(build, names):
    # The shortest of three: other work on the machine makes a single one several times as long.
    small, large = (min(seconds(build(count), names) for _ in range(3)) for count in (500, 3000))
    assert large < 14 * small + 0.1, f"{small:.2f} s for 500 operations, {large:.2f} s for 3,000"
