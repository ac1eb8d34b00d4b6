"""Loops and branches compiled: random programs against the interpreter, and what is done in place."""

from __future__ import annotations

import numpy as np
import pytest
from loop_programs import LoopPrograms, arguments
from plan_simulator import simulate

import hloom as hl
from hloom import lax
from hloom.backends.cpu.compilation import compile_module
from hloom.compiler.pipeline import PIPELINE, UNFUSED, run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.schedule.steps import CopyStep, KernelStep, SwapStep
from hloom.compiler.targets.cpu.target import host_target
from hloom.ir.build import Builder, Value
from hloom.ir.interpret import run
from hloom.ir.module import Module
from hloom.ir.types import DTYPES, Shape, TupleShape
from hloom.ir.verify import verify

S32 = Shape(DTYPES["s32"], ())
F32 = Shape(DTYPES["f32"], ())


def results(value) -> tuple:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("first", range(0, 240, 40))
def test_random_programs_in_the_simulator(first):
    """Every access is checked, and every result compared bit for bit."""
    for seed in range(first, first + 40):
        module = LoopPrograms(seed).module()
        verify(module)
        given = arguments(module, seed)
        want = results(run(module, given))
        for names in (PIPELINE, UNFUSED):
            plan = make_plan(run_passes(module, names, verify=True), host_target(), whole=False)
            for got, expected in zip(simulate(plan, given), want, strict=True):
                np.testing.assert_array_equal(got, expected, err_msg=f"seed {seed}")


@pytest.mark.parametrize("fusion", [True, False])
@pytest.mark.parametrize("first", [1000, 1004, 1008])
def test_random_programs_compiled(first, fusion):
    """Run twice: what a first run leaves behind must not matter to the next. Fused, small loops are one kernel."""
    for seed in range(first, first + 4):
        module = LoopPrograms(seed).module()
        given = arguments(module, seed)
        want = results(run(module, given))
        compiled = compile_module(module, fusion=fusion)
        for _ in range(2):
            for got, expected in zip(compiled(given), want, strict=True):
                np.testing.assert_array_equal(got, expected, err_msg=f"seed {seed}")


# --- where the state lives ----------------------------------------------------------------------------------------


def loop(shapes, step, trips=5) -> Module:
    """while count < trips: state = step(count, *state), over Values."""
    state = TupleShape([S32, *shapes])
    b = Builder("condition")
    count = b.emit("get-tuple-element", b.parameter(state), index=0)
    condition = b.finish(b.emit("compare", count, b.constant(trips, "s32"), direction="LT"))
    b = Builder("body")
    parameter = b.parameter(state)
    values = [Value(b, b.emit("get-tuple-element", parameter, index=k)) for k in range(len(state.elements))]
    body = b.finish(b.tuple([v.instruction for v in (values[0] + 1, *step(*values))]))
    b = Builder("main")
    start = b.tuple([b.constant(0, "s32"), *(b.parameter(s) for s in shapes)])
    made = b.emit("while", start, condition=condition, body=body)
    outputs = [b.emit("get-tuple-element", made, index=k + 1) for k in range(len(shapes))]
    return Module("loop", b.finish(b.tuple(outputs)))


def planned(module: Module, names=PIPELINE):
    """The plan, and the steps of its one loop, after its results were compared, simulated and compiled."""
    generator = np.random.default_rng(3)
    given = [generator.standard_normal(p.dims).astype(p.dtype) for p in module.entry.parameters]
    want = results(run(module, given))
    plan = make_plan(run_passes(module, names, verify=True), host_target(), whole=False)
    for found in (simulate(plan, given), compile_module(module)(given)):
        for got, expected in zip(found, want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    first = next(k for k, s in enumerate(plan.steps) if type(s).__name__ == "BranchStep")
    last = max(k for k, s in enumerate(plan.steps) if type(s).__name__ == "JumpStep")
    return plan, plan.steps[first:last]


def count(steps, kind) -> int:
    return sum(isinstance(s, kind) for s in steps)


VECTOR = F32.with_dims((100,))


def test_element_wise_state_is_computed_in_place():
    _, steps = planned(loop([VECTOR], lambda n, x: [x * 2.0 + 1.0]))
    assert count(steps, CopyStep) == 0 and count(steps, SwapStep) == 0 and count(steps, KernelStep) == 2


def test_readers_come_before_what_overwrites():
    """y needs the old x, although x stands first in the state."""
    module = loop([VECTOR, VECTOR], lambda n, x, y: [x + 1.0, y + x.op("reverse", dimensions=(0,))])
    _, steps = planned(module, UNFUSED)
    assert count(steps, CopyStep) == 0 and count(steps, SwapStep) == 0


def test_an_update_is_made_in_place():
    def step(n, x, total):
        row = x.op("dynamic-slice", n, dynamic_slice_sizes=(1,))
        return [x.op("dynamic-update-slice", row * 2.0, n + 1), total + row.reshape(())]

    _, steps = planned(loop([VECTOR, F32], step))
    assert not any(isinstance(s, CopyStep) and s.bytes > 4 for s in steps) and count(steps, SwapStep) == 0


def test_what_cannot_be_in_place_changes_places():
    plan, steps = planned(loop([VECTOR], lambda n, x: [x + x.op("reverse", dimensions=(0,))], trips=4))
    assert count(steps, SwapStep) == 1 and count(steps, CopyStep) == 0
    planned(loop([VECTOR], lambda n, x: [x + x.op("reverse", dimensions=(0,))], trips=5))


def test_what_was_is_not_copied_to_become_what_was_before():
    """(x, the x before, the one before that): three places change their roles."""

    def step(n, a, b, c):
        return [a * 0.5 + b + c.op("reverse", dimensions=(0,)), a, b]

    _, steps = planned(loop([VECTOR] * 3, step, trips=4))
    assert count(steps, SwapStep) == 3 and not any(isinstance(s, CopyStep) and s.bytes > 4 for s in steps)
    for trips in (3, 5, 6):
        planned(loop([VECTOR] * 3, step, trips=trips))


@pytest.mark.parametrize("trips", [4, 5, 6])
@pytest.mark.parametrize("early", [0, 1, 2])
def test_places_that_move_on_stay_taken_until_the_last_of_them_is_read(trips, early):
    """What lies in which place after the loop depends on the number of steps; one element is read at once, two late."""

    def step(n, a, b, c):
        return [a * 0.5 + b + c.op("reverse", dimensions=(0,)), a, b]

    inner = loop([VECTOR] * 3, step, trips)
    builder = Builder("main")
    given = [builder.parameter(VECTOR) for _ in range(3)]
    start = builder.tuple([builder.constant(0, "s32"), *given])
    (original,) = [i for i in inner.entry.instructions if i.opcode == "while"]
    made = builder.emit("while", start, condition=original["condition"], body=original["body"])
    found = [Value(builder, builder.emit("get-tuple-element", made, index=k + 1)) for k in range(3)]
    value = found.pop(early)
    for _ in range(4):  # each in a buffer of its own
        value = value.op("reverse", dimensions=(0,)).op("sine")
    planned(Module("loop", builder.finish((value + found[0] * 2.0 + found[1]).instruction)), UNFUSED)


def test_two_that_become_the_same_are_copied_once():
    _, steps = planned(loop([VECTOR] * 3, lambda n, a, b, c: [a + b + c, a, a], trips=4))
    assert count(steps, CopyStep) >= 1


def test_small_state_is_copied():
    _, steps = planned(loop([F32, F32], lambda n, a, b: [b, a + b]))
    assert count(steps, SwapStep) == 0 and 1 <= count(steps, CopyStep) <= 2


@pytest.mark.parametrize("shape", [F32, VECTOR])
def test_elements_that_change_places(shape):
    planned(loop([shape, shape, shape], lambda n, a, b, c: [b, c, a]))
    planned(loop([shape, shape], lambda n, a, b: [b + 1.0, a * 2.0], trips=3))


def test_what_the_body_hands_on_is_not_copied():
    plan, _ = planned(loop([VECTOR, VECTOR], lambda n, x, y: [x, y + x]))
    sizes = [s.bytes for s in plan.steps if isinstance(s, CopyStep)]
    assert sizes.count(400) <= 2  # y into the state; x, which is an output too


def test_a_donated_argument_is_the_state():
    module = loop([VECTOR], lambda n, x: [x * 2.0])
    plan = make_plan(run_passes(module, PIPELINE), host_target(), frozenset([0]))
    assert plan.donated == {0: 0}
    assert not any(isinstance(s, CopyStep) and s.bytes == 400 for s in plan.steps)
    x = np.ones(100, np.float32)
    (found,) = compile_module(module, donated=frozenset([0]))([x])
    assert found.__array_interface__["data"] == x.__array_interface__["data"]
    np.testing.assert_array_equal(found, 32)


def test_a_branch_that_updates_an_array_copies_nothing():
    """x = cond(n > 2, update, identity) in a loop."""

    def step(n, x):
        b = x.builder
        shapes = TupleShape([S32, VECTOR])
        inner = Builder("update")
        p = inner.parameter(shapes)
        index, array = [Value(inner, inner.emit("get-tuple-element", p, index=k)) for k in range(2)]
        row = array.op("dynamic-slice", index, dynamic_slice_sizes=(1,)) + 1.0
        update = inner.finish(inner.tuple([array.op("dynamic-update-slice", row, index).instruction]))
        inner = Builder("identity")
        p = inner.parameter(shapes)
        identity = inner.finish(inner.tuple([inner.emit("get-tuple-element", p, index=1)]))
        argument = b.tuple([n.instruction, x.instruction])
        chosen = b.emit(
            "conditional", n.compare("GT", 2).instruction, argument, argument, branch_computations=(update, identity)
        )
        return [Value(b, b.emit("get-tuple-element", chosen, index=0))]

    _, steps = planned(loop([VECTOR], step))
    assert not any(isinstance(s, CopyStep) and s.bytes > 4 for s in steps) and count(steps, SwapStep) == 0


def test_nested_loops_share_the_state():
    """The inner loop works on the outer loop's array."""
    inner = loop([VECTOR], lambda n, x: [x * 1.5], trips=2).entry

    def step(n, x):
        b = x.builder
        made = b.inline(inner, [x.instruction])
        return [Value(b, made.operands[0])]

    _, steps = planned(loop([VECTOR], step, trips=3))
    assert not any(isinstance(s, CopyStep) and s.bytes > 4 for s in steps) and count(steps, SwapStep) == 0


def matrix(m: int, n: int) -> Shape:
    return F32.with_dims((m, n))


def times(x, y):
    return x.op("dot", y, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))


def packings(steps) -> int:
    return sum(isinstance(s, KernelStep) and s.launch.prepares for s in steps)


def test_what_a_loop_multiplies_by_is_packed_before_it():
    shapes = [matrix(40, 24), matrix(24, 24)]
    plan, steps = planned(loop(shapes, lambda n, x, w: [times(x, w) * 0.1, w]))
    assert packings(plan.steps) == 1 and packings(steps) == 0


def test_what_changes_in_a_loop_is_packed_in_it():
    shapes = [matrix(40, 24), matrix(24, 24)]
    plan, _ = planned(loop(shapes, lambda n, x, w: [times(x, w) * 0.1, w * 0.5]))
    assert packings(plan.steps) == 0


def test_what_is_made_in_a_loop_of_what_stays_is_packed_before_it():
    """The prologue, a scaled transpose, is of the packing kernel."""

    def step(n, x, w):
        return [times(x, w.op("transpose", dimensions=(1, 0)) * 0.1), w]

    plan, steps = planned(loop([matrix(40, 24), matrix(24, 24)], step))
    assert packings(plan.steps) <= 1 and packings(steps) == 0


def test_packing_leaves_all_the_loops_in_which_an_operand_stays():
    def nested(stays: bool) -> Module:
        inner = loop([matrix(40, 24), matrix(24, 24)], lambda n, x, w: [times(x, w) * 0.1, w], trips=3).entry

        def step(n, x, w):
            made = x.builder.inline(inner, [x.instruction, w.instruction])
            return [Value(x.builder, made.operands[0]), w if stays else w * 0.5]

        return loop([matrix(40, 24), matrix(24, 24)], step, trips=2)

    plan, steps = planned(nested(True))
    assert packings(plan.steps) == 1 and packings(steps) == 0
    plan, steps = planned(nested(False))
    assert packings(steps) == 1
    inner_start = max(k for k, s in enumerate(steps) if type(s).__name__ == "BranchStep")
    assert packings(steps[:inner_start]) == 1  # before the inner loop, in each step of the outer


def test_a_branch_packs_what_it_multiplies_by_itself():
    """It may not be taken, so its work is not done before the loop."""
    shapes = [matrix(40, 24), matrix(24, 24)]

    def step(n, x, w):
        b = x.builder
        branches = []
        for name in ("product", "identity"):
            inner = Builder(name)
            p = inner.parameter(TupleShape(shapes))
            y, v = (Value(inner, inner.emit("get-tuple-element", p, index=k)) for k in range(2))
            branches.append(inner.finish(inner.tuple([(times(y, v) if name == "product" else y).instruction])))
        argument = b.tuple([x.instruction, w.instruction])
        pred = n.compare("GT", 2).instruction
        chosen = b.emit("conditional", pred, argument, argument, branch_computations=tuple(branches))
        return [Value(b, b.emit("get-tuple-element", chosen, index=0)), w]

    plan, _ = planned(loop(shapes, step))
    assert packings(plan.steps) == 0


def test_sums_in_a_loop_are_the_same_for_every_number_of_threads():
    module = loop([F32.with_dims((300, 400)), F32], lambda n, x, t: [x * 0.5, t + x.sum([0, 1])], trips=7)
    from hloom.backends.cpu.driver import driver

    compiled = compile_module(module)
    given = [np.random.default_rng(1).standard_normal((300, 400)).astype(np.float32), np.zeros((), np.float32)]
    threads, found = driver().num_threads, []
    try:
        for number in (1, 2, 3):
            driver().set_num_threads(number)
            found.append(compiled(given)[1].tobytes())
    finally:
        driver().set_num_threads(threads)
    assert len(set(found)) == 1


# --- simplify-loops -----------------------------------------------------------------------------------------------


def simplified(module: Module) -> Module:
    names = [n for n in PIPELINE if n != "fuse"]
    return run_passes(module, names, verify=True)


def the_loop(module: Module):
    (found,) = [i for i in module.entry.instructions if i.opcode == "while"]
    return found


def test_dead_elements_go():
    """The second element feeds only itself, and nobody reads it."""
    module = loop([F32, VECTOR], lambda n, x, y: [x + 1.0, y * 2.0])
    builder = Builder("main")
    parameters = [builder.parameter(p.shape) for p in module.entry.parameters]
    root = builder.inline(module.entry, parameters)
    module = Module("dead", builder.finish(root.operands[0]))
    planned(module)
    assert len(the_loop(simplified(module)).shape.elements) == 2


def test_constants_stand_in_the_body():
    def step(n, x, c):
        return [x * c.broadcast(x.dims, ()), c]

    module = loop([VECTOR, F32], step)
    builder = Builder("main")
    x = builder.parameter(VECTOR)
    root = builder.inline(module.entry, [x, builder.constant(0.5, "f32")])
    module = Module("constants", builder.finish(root.operands[0]))
    planned(module)
    found = the_loop(simplified(module))
    assert len(found.shape.elements) == 2
    assert any(i.opcode == "constant" and i["value"] == 0.5 for i in found["body"].instructions)


def test_dear_work_is_done_before_the_loop():
    square = F32.with_dims((4, 4))

    def step(n, x, m):
        product = m.op("dot", m, lhs_batch_dims=(), rhs_batch_dims=(), lhs_contracting_dims=(1,),
                       rhs_contracting_dims=(0,))  # fmt: skip
        return [x * 0.5 + product, m]

    module = loop([square, square], step)
    planned(module)
    assert not any(i.opcode == "dot" for i in the_loop(simplified(module))["body"].instructions)


@pytest.mark.parametrize("trips", [0, 1])
def test_loops_of_no_step_or_one_are_not_there(trips):
    module = loop([VECTOR], lambda n, x: [x * 2.0 + 1.0], trips=trips)
    x = np.ones(100, np.float32)
    assert not any(i.opcode == "while" for i in simplified(module).entry.instructions)
    np.testing.assert_array_equal(compile_module(module)([x])[0], 3 if trips else 1)


def test_a_known_branch_is_taken():
    b = Builder("main")
    x = b.parameter(F32)
    branches = []
    for opcode in ("negate", "exponential", "abs"):
        inner = Builder(opcode)
        branches.append(inner.finish(inner.emit(opcode, inner.parameter(F32))))
    index = b.constant(7, "s32")
    module = Module("known", b.finish(b.emit("conditional", index, x, x, x, branch_computations=tuple(branches))))
    assert [i.opcode for i in simplified(module).entry.instructions] == ["parameter", "abs"]


def test_state_in_nested_tuples():
    shape = TupleShape([S32, TupleShape([VECTOR, TupleShape([F32])])])
    b = Builder("condition")
    p = b.parameter(shape)
    condition = b.finish(
        b.emit("compare", b.emit("get-tuple-element", p, index=0), b.constant(3, "s32"), direction="LT")
    )
    b = Builder("body")
    p = b.parameter(shape)
    number, rest = [b.emit("get-tuple-element", p, index=k) for k in range(2)]
    x = b.emit("get-tuple-element", rest, index=0)
    following = b.emit("add", number, b.constant(1, "s32"))
    body = b.finish(b.tuple([following, b.tuple([b.emit("add", x, x), b.emit("get-tuple-element", rest, index=1)])]))
    b = Builder("main")
    x, y = b.parameter(VECTOR), b.parameter(F32)
    start = b.tuple([b.constant(0, "s32"), b.tuple([x, b.tuple([y])])])
    made = b.emit("while", start, condition=condition, body=body)
    rest = b.emit("get-tuple-element", made, index=1)
    last = b.emit("get-tuple-element", b.emit("get-tuple-element", rest, index=1), index=0)
    module = Module("nested", b.finish(b.tuple([b.emit("get-tuple-element", rest, index=0), last])))
    planned(module)


def test_a_loop_that_never_ends_and_whose_result_nobody_uses_is_removed():
    """docs/reference/numerics.md says so."""

    def function(x):
        lax.while_loop(lambda c: c > 0, lambda c: c, x)
        return x * 2

    assert hl.jit(function)(np.float32(1)) == 2
