"""What becomes one kernel: golden graphs, numbers of kernels, and that kernels can always be put in order."""

from __future__ import annotations

import numpy as np
import pytest
from plan_simulator import simulate
from random_programs import arguments, reference

import hloom as hl
import hloom.numpy as hnp
from hloom.compiler.passes.fusion.fuse import Grouping, explain
from hloom.compiler.passes.fusion.group import Facts
from hloom.compiler.pipeline import PIPELINE, UNFUSED, run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.targets.cpu.target import host_target
from hloom.ir.build import Builder, Value
from hloom.ir.module import Computation, Module
from hloom.ir.text import print_module
from hloom.ir.types import Shape, TupleShape
from hloom.ir.verify import verify

X = hl.ShapeDtypeStruct((64, 48), "f32")
ROW = hl.ShapeDtypeStruct((48,), "f32")


def softmax(x):
    power = hnp.exp(x - hnp.max(x, axis=-1, keepdims=True))
    return power / hnp.sum(power, axis=-1, keepdims=True)


def log_sum_exp(x):
    top = hnp.max(x, axis=1)
    return top + hnp.log(hnp.sum(hnp.exp(x - top[:, None]), axis=1))


def layer_norm(x, scale, shift):
    centred = x - hnp.mean(x, axis=-1, keepdims=True)
    variance = hnp.mean(centred * centred, axis=-1, keepdims=True)
    return centred / hnp.sqrt(variance + 1e-5) * scale + shift


def variance(x):
    return hnp.mean((x - hnp.mean(x, axis=1, keepdims=True)) ** 2, axis=1)


def gelu(x):
    return 0.5 * x * (1 + hnp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def mlp(x, w, b, v):
    return gelu(x @ w + b) @ v


def mlp_step(x, w, b, v):
    loss, gradients = hl.value_and_grad(lambda w, b, v: hnp.mean(mlp(x, w, b, v) ** 2), argnums=(0, 1, 2))(w, b, v)
    return loss, [p - 0.1 * g for p, g in zip((w, b, v), gradients, strict=True)]


def attention(q, k, v):
    """Scores never reach memory, nor does anything that is transposed."""
    seen = hnp.arange(q.shape[1])[:, None] >= hnp.arange(k.shape[1])
    scores = hnp.where(seen, hnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.25, -1e9)
    return hnp.einsum("bhqk,bkhd->bqhd", softmax(scores), v)


def siblings(x, y):
    """Several results of one input, over one domain: one pass over memory."""
    return hnp.sin(x), x * 2.0, hnp.max(y, axis=0), hnp.sum(y, axis=0)


W, V = hl.ShapeDtypeStruct((48, 96), "f32"), hl.ShapeDtypeStruct((96, 32), "f32")
B = hl.ShapeDtypeStruct((96,), "f32")
HEADS = hl.ShapeDtypeStruct((2, 32, 4, 16), "f32")
# name -> (function, arguments, kernels of the fused program)
GRAPHS = {
    "softmax": (softmax, (X,), 1),
    "log_sum_exp": (log_sum_exp, (X,), 1),
    "layer_norm": (layer_norm, (X, ROW, ROW), 1),
    "variance": (variance, (X,), 1),
    "gelu_mlp": (mlp, (X, W, B, V), 2),
    "siblings": (siblings, (X, X), 2),
    "attention": (attention, (HEADS, HEADS, HEADS), 1),
}


def fused(function, *args) -> Module:
    return run_passes(hl.make_module(function)(*args), PIPELINE, verify=True)


def kernel_count(module: Module) -> int:
    """Instructions of a fused module that are kernels."""
    free = {"parameter", "constant", "tuple", "get-tuple-element", "reshape", "bitcast-convert"}
    return sum(i.opcode not in free for i in module.entry.instructions)


@pytest.mark.parametrize("name", GRAPHS)
def test_golden(name, golden):
    function, args, kernels = GRAPHS[name]
    module = fused(function, *args)
    golden(f"fusion/{name}.hlo", print_module(module))
    assert kernel_count(module) == kernels


def test_golden_gradient_step(golden):
    module = fused(mlp_step, X, W, B, V)
    golden("fusion/gelu_mlp_step.hlo", print_module(module))
    dots = print_module(module).count(" dot(")
    # Two products forward, four backward but for the one that would be the input's gradient.
    assert dots == 5
    assert kernel_count(module) <= 9


@pytest.mark.parametrize("name", GRAPHS)
def test_fused_and_unfused_give_the_same_numbers(name):
    function, args, _ = GRAPHS[name]
    module = hl.make_module(function)(*args)
    arrays = arguments(module, 0)
    want, _, _ = reference(module, arrays)
    found = hl.jit(function)(*arrays), hl.jit(function, fusion=False)(*arrays)
    for results in found:
        for one, other in zip(hl.tree.leaves(results), want, strict=True):
            np.testing.assert_allclose(np.asarray(one), other, rtol=2e-5, atol=2e-4)


# --- spellings ----------------------------------------------------------------------------------------------------


def softmax_by_index(x):
    e = hnp.exp(x - x.max(axis=1)[:, None])
    return e / e.sum(axis=1)[:, None]


def softmax_by_reshape(x):
    e = hnp.exp(x - hnp.broadcast_to(hnp.reshape(hnp.max(x, 1), (x.shape[0], 1)), x.shape))
    return e / hnp.reshape(hnp.sum(e, axis=(1,)), (-1, 1))


def layer_norm_by_index(x, scale, shift):
    centred = x - x.mean(axis=1)[:, None]
    variance = (centred * centred).mean(axis=1)
    return centred / hnp.sqrt(variance + 1e-5)[:, None] * scale[None] + shift[None, :]


def layer_norm_by_reshape(x, scale, shift):
    centred = x - hnp.reshape(hnp.mean(x, -1), (-1, 1))
    variance = hnp.expand_dims(hnp.mean(centred * centred, 1), 1)
    return centred / hnp.sqrt(variance + 1e-5) * hnp.broadcast_to(scale, x.shape) + shift.reshape(1, -1)


def kernels(function, *args) -> list[str]:
    return [s.launch.source.text for s in make_plan(fused(function, *args), host_target()).kernels()]


@pytest.mark.parametrize("spellings,args", [
    ((softmax, softmax_by_index, softmax_by_reshape), (X,)),
    ((layer_norm, layer_norm_by_index, layer_norm_by_reshape), (X, ROW, ROW)),
], ids=["softmax", "layer_norm"])  # fmt: skip
def test_spellings_give_one_kernel(spellings, args):
    first, *others = [kernels(s, *args) for s in spellings]
    assert len(first) == 1
    for other in others:
        assert other == first


def test_results_that_share_their_work_are_one_kernel():
    """What both need is in neither's operands, so that they would not be taken for siblings."""

    def bisection(low, high, a, b):
        middle = 0.5 * (low + high)
        above = middle * middle * middle + a * middle > b
        return hnp.where(above, low, middle), hnp.where(above, middle, high)

    assert len(kernels(bisection, X, X, X, X)) == 1

    def waiting(x, y):
        """The second result needs all of the first."""
        shared = hnp.tanh(x * y)
        first = shared + x
        return first, shared - hnp.sort(first) * y

    assert len(kernels(waiting, X, X)) == 2


def test_sums_of_arrays_of_their_own_are_few_in_a_kernel():
    """Each has registers of its own: twenty in one kernel took twelve times as long as five kernels of four."""
    matrix, rows = hl.ShapeDtypeStruct((64, 300), "f32"), [hl.ShapeDtypeStruct((64,), "f32")] * 6
    made = kernels(lambda w, *rows: [hnp.tanh(row[:, None] * w).sum(0) for row in rows], matrix, *rows)
    assert len(made) == 4  # of four and of two sums, each with a kernel that joins its parts
    assert len(kernels(lambda x: [(x * k).sum(0) for k in range(2, 8)] + [(x + 1).sum(0)], matrix)) == 2


def test_a_one_hot_of_the_nearest_is_not_written_out():
    def step(points, centres):
        nearest = hnp.argmin(points @ centres.T, axis=1)
        member = (nearest[:, None] == hnp.arange(centres.shape[0])).astype("f32")
        return member.T @ points, member.sum(0)

    points, centres = hl.ShapeDtypeStruct((4096, 16), "f32"), hl.ShapeDtypeStruct((64, 16), "f32")
    large = [i for i in fused(step, points, centres).entry.instructions if i.shape.bytes >= 4096 * 64 * 4]
    assert [i.opcode for i in large if i.opcode != "parameter"] == ["dot"]


# --- order --------------------------------------------------------------------------------------------------------


def order_holds(module: Module) -> None:
    """Every instruction comes after its operands, and fused computations hold their own values only."""
    verify(module)
    seen = set()
    for instruction in module.entry.instructions:
        assert all(o in seen for o in instruction.operands)
        seen.add(instruction)


def diamond(builder: Builder) -> Computation:
    """A sum that two kernels need through one cheap broadcast, each of which the other needs."""
    x = Value(builder, builder.parameter(Shape("f32", (6,))))
    spread = x.sum([0]).broadcast((6,), ())
    difference = x - spread
    again = difference.sum([0])
    total = x + difference
    return builder.finish(builder.tuple(v.instruction for v in (total - spread, total, again, total)))


def through_a_reshape(builder: Builder) -> Computation:
    """A result needed by its kernel once more, through a reshape that is no kernel's work."""
    x = Value(builder, builder.parameter(Shape("s64", (1, 7, 1))))
    total = x.sum([1, 2])
    flat = total.reshape(())
    product = total * flat.broadcast((1,), ())
    return builder.finish(builder.tuple(v.instruction for v in (product.convert("s8"), flat.convert("s32"), product)))


@pytest.mark.parametrize("build", [diamond, through_a_reshape])
def test_kernels_can_be_ordered(build):
    module = Module("cycle", build(Builder("main")))
    optimized = run_passes(module, PIPELINE, verify=True)
    order_holds(optimized)
    arrays = arguments(module, 0)
    want, _, _ = reference(module, arrays)
    for got, expected in zip(simulate(make_plan(optimized, host_target()), arrays), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_every_value_is_computed_somewhere_and_outputs_once():
    grouping = Grouping(run_passes(hl.make_module(mlp_step)(X, W, B, V), UNFUSED).entry, host_target())
    grouping.producers()
    grouping.siblings()
    outputs = [o for g in grouping.groups for o in g.outputs]
    assert len(outputs) == len(set(outputs))
    for group in grouping.groups:
        assert set(group.outputs) <= group.members
        assert all(group in grouping.groups_of[m] for m in group.members)


# --- single decisions ---------------------------------------------------------------------------------------------


def test_one_operand_twice_stays_twice():
    builder = Builder("twice")
    x = builder.parameter(Shape("f32", (2, 3)))
    module = Module("twice", builder.finish(builder.emit("concatenate", x, x, dimensions=(1,))))
    assert run_passes(module, PIPELINE, verify=True).entry.root.operands == (x, x)


def test_an_expensive_value_is_not_computed_for_every_row():
    def outer(x, y):
        return hnp.exp(x)[:, None] * y

    module = fused(outer, hl.ShapeDtypeStruct((500,), "f32"), hl.ShapeDtypeStruct((500, 400), "f32"))
    # In rows it is computed outside of the inner loop, once for each row, so one kernel does it all.
    assert kernel_count(module) == 1

    def columns(x, y):
        return hnp.exp(x)[None, :] * y

    module = fused(columns, hl.ShapeDtypeStruct((400,), "f32"), hl.ShapeDtypeStruct((500, 400), "f32"))
    assert kernel_count(module) == 2


def test_large_kernels_are_cut():
    def chain(x):
        for _ in range(400):
            x = hnp.sin(x) + 1.0
        return x

    module = fused(chain, hl.ShapeDtypeStruct((8,), "f32"))
    assert 3 <= kernel_count(module) <= 12


def test_explain_says_why():
    before = run_passes(hl.make_module(lambda x, y: hnp.exp(x)[None, :] * y)(
        hl.ShapeDtypeStruct((400,), "f32"), hl.ShapeDtypeStruct((500, 400), "f32")), UNFUSED)  # fmt: skip
    text = "\n".join(explain(before.entry, host_target()))
    assert "would be computed 500 times" in text and "kept apart from" in text and "fused into" in text


def test_a_cheap_value_that_two_kernels_need_is_computed_in_both():
    """`x - mean` is not written for the last kernel to read: that one reads x instead."""
    x = hl.ShapeDtypeStruct((512, 64), "f32")
    module = fused(lambda x: (x - x.mean(0)) / (x - x.mean(0)).std(0), x)
    written = [i.shape.bytes for i in module.entry.instructions if i.opcode == "fusion" and i.dims == (512, 64)]
    assert len(written) == 1
    # An expensive one is.
    module = fused(lambda x: hnp.exp(x) / hnp.exp(x).sum(0), x)
    assert any(isinstance(i.shape, TupleShape) for i in module.entry.instructions if i.opcode == "fusion")


def test_only_updated_arrays_have_versions_that_are_read():
    """A slice reads a small part of an array: of one that is updated, an earlier update is ordered after it; one that
    nothing updates needs no order."""
    builder = Builder("main")
    updated, kept = (Value(builder, builder.parameter(Shape(np.dtype("f4"), (1000,)))) for _ in range(2))
    start = Value(builder, builder.parameter(Shape(np.dtype("i4"), ())))
    sliced = [array.op("dynamic-slice", start, dynamic_slice_sizes=(2,)) for array in (updated, kept)]
    update = updated.op("dynamic-update-slice", sliced[1], start)
    computation = builder.finish(builder.tuple([v.instruction for v in (*sliced, update)]))
    facts = Facts(computation.instructions, computation.users(), host_target())
    assert [a for _, a in facts.states_read(sliced[0].instruction)] == [updated.instruction]
    assert not list(facts.states_read(sliced[1].instruction)) and not facts.reads_updated(sliced[1].instruction)
    assert facts.reads_version(sliced[0].instruction, update.instruction)
