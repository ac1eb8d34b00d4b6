"""Propagation of shardings: textbook programs against Shardy and golden files, and what holds of all programs."""

from __future__ import annotations

import random
import time
import warnings

import numpy as np
import op_modules
import pytest
import shardy
from passes_support import GOLDEN
from random_graphs import Graphs
from sharded_programs import MESH, TEXTBOOK, sharding, text, textbook, transformer_step
from silence import no_warnings

from hloom.compiler.passes.spmd.meshes import programs
from hloom.compiler.passes.spmd.propagate import propagate
from hloom.compiler.pipeline import EXPORT, run_passes
from hloom.ir.build import Builder, Value, tuple_elements
from hloom.ir.errors import AttributeValueError, ReplicationWarning
from hloom.ir.module import Computation, Module
from hloom.ir.source import Source
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.types import Shape, TupleShape
from hloom.ir.verify import verify

F32, S32 = np.dtype(np.float32), np.dtype(np.int32)


def f32(*dims):
    return Shape(F32, dims)


# --- against Shardy -----------------------------------------------------------------------------------------------

# Where ours is another one. A backward product whose operands are split along one axis: Shardy takes the weights' (the
# larger ones'), here the activations are laid out by the forward part first. Shardy has no rule for
# chlo.top_k, and splits three elements in four parts.
OTHERS = {"mlp_fully_sharded": {"dot", "multiply"}, "ordered": {"topk", "slice"}}


@pytest.mark.parametrize("name", TEXTBOOK)
def test_as_shardy_does(name):
    pytest.importorskip("jaxlib.mlir.dialects.sdy")
    module = textbook(name)
    before = [p.sharding for p in module.entry.parameters]
    module = run_passes(module, EXPORT["stablehlo"])
    module.partitions = MESH.size
    assert [p.sharding for p in module.entry.parameters] == before
    expected = shardy.propagated(module, MESH)
    found = list(shardy.instructions(propagate(module).entry))
    assert len(expected) == len(found)
    others = []
    for (opcode, specs), instruction in zip(expected, found, strict=True):
        ours = instruction.sharding if isinstance(instruction.sharding, tuple) else (instruction.sharding,)
        if specs and any(text(a) not in b for a, b in zip(ours, specs, strict=True)):
            others.append(f"{instruction.opcode} {instruction.shape!r}: {list(map(text, ours))}, {opcode}: {specs}")
    assert {o.split()[0] for o in others} <= OTHERS.get(name, set()), "\n".join(others)
    assert len(others) <= 2, "\n".join(others)


# --- golden files -------------------------------------------------------------------------------------------------


def listing(module: Module) -> str:
    """The instructions of a module with their shardings, computations by the names of their first callers."""
    lines = []
    for computation in programs(module):
        names = {i: f"%{k}" for k, i in enumerate(computation.instructions)}
        lines.append(f"{computation.name}:")
        for instruction, name in names.items():
            operands = ", ".join(names[o] for o in instruction.operands)
            head = f"  {name} = {instruction.shape!r} {instruction.opcode}({operands})"
            lines.append(f"{head}  [{text(instruction.sharding)}]")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", TEXTBOOK)
def test_golden(name, request):
    path = GOLDEN / "propagation" / f"{name}.txt"
    found = listing(propagate(textbook(name)))
    if request.config.getoption("--bless"):
        path.write_text(found)
    assert found == path.read_text(), f"{path} differs; run pytest --bless and read the difference"


def test_transformer_block():
    """The layouts of Megatron: heads and hidden units by `model`, the batch by `data`, and gradients as their
    weights."""
    module = propagate(transformer_step(1))
    products = [i for i in module.entry.instructions if i.opcode == "dot"]
    hidden = [i for i in products if i.dims == (16, 128, 2048)]
    assert hidden and all(text(i.sharding) == "data - model" for i in hidden)
    scores = [i for i in products if i.dims == (16, 8, 128, 128)]
    assert scores and all(text(i.sharding) == "data model - -" for i in scores)
    parameters = {p.hint: p.sharding for p in module.entry.parameters}
    for result, (hint, found) in zip(module.entry.outputs()[1:], parameters.items(), strict=False):
        assert result.sharding == found, hint


# --- properties ---------------------------------------------------------------------------------------------------


def ranks_of(shape):
    return tuple(map(ranks_of, shape.elements)) if isinstance(shape, TupleShape) else len(shape.dims)


def found_ranks(found):
    return tuple(map(found_ranks, found)) if isinstance(found, tuple) else found.rank


def check_valid(module: Module) -> None:
    """Every instruction, computations of scalars left out, has a sharding of its shape over one atomic mesh, without an
    axis twice."""
    meshes = set()

    def check_one(found):
        if isinstance(found, tuple):
            for each in found:
                check_one(each)
        else:
            meshes.add(found.mesh)
            axes = [*found.axes, *found.unreduced]
            assert len(set(axes)) == len(axes) and not found.open

    for computation in programs(module):
        for instruction in computation.instructions:
            assert found_ranks(instruction.sharding) == ranks_of(instruction.shape), instruction
            check_one(instruction.sharding)
    assert len(meshes) <= 1 and all(m == m.atomic() for m in meshes)


SPMD = ("sharding-constraint", "manual-computation")


def annotated(module: Module, seed: int) -> Module:
    """Random annotations of parameters and of some other values."""
    draw = np.random.default_rng(seed)
    module.partitions = MESH.size
    for instruction in module.entry.instructions:
        if isinstance(instruction.shape, Shape) and (instruction.opcode == "parameter" or draw.random() < 0.1):
            axes = [*draw.permutation(MESH.names)]
            words = []
            for size in instruction.dims:
                take = axes and draw.random() < 0.5 and size > 1
                words.append(axes.pop() if take else "-")
            open_ = [d for d in range(len(words)) if draw.random() < 0.3]
            instruction.sharding = sharding(words, open=open_)
    return module


def all_modules():
    for case in op_modules.cases():
        if not any(i.sharding or i.opcode in SPMD for i in case.module.instructions()):
            yield case.name, case.module
    for seed in range(40):
        yield f"graph{seed}", Graphs(random.Random(seed), integral=True).module(20)


@pytest.mark.parametrize("seed", range(3))
def test_random_annotations(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReplicationWarning)
        for name, module in all_modules():
            given = [i.sharding for i in annotated(module, seed).entry.instructions]
            made = propagate(module)
            verify(made)
            check_valid(made)
            assert [i.sharding for i in module.entry.instructions] == given, f"{name} was changed"
            for before, after in zip(module.entry.instructions, made.entry.instructions, strict=True):
                if before.sharding is not None:
                    kept = before.sharding.atomic()
                    for d, axes in enumerate(kept.dims):
                        assert after.sharding.dims[d][: len(axes)] == axes, name
                        assert d in kept.open or after.sharding.dims[d] == axes, name
            again = propagate(made)
            for one, two in zip(made.instructions(), again.instructions(), strict=True):
                assert one.sharding == two.sharding, f"{name}: {one} is not at a fixed point"
            for instruction in module.entry.instructions:
                instruction.sharding = None


def test_without_annotations_all_is_replicated():
    module = textbook("mlp_data")
    for parameter in module.entry.parameters:
        parameter.sharding = None
    made = propagate(module)
    assert all(i.sharding.is_replicated for i in made.entry.instructions if i.opcode != "tuple")
    assert made.entry.parameters[0].sharding.mesh.size == MESH.size


# --- single rules of the order ------------------------------------------------------------------------------------


def program(make, *parameters):
    """A module of a function of Values; parameters: (shape, spec or None)."""
    builder = Builder("main")
    given = []
    for k, (shape, spec) in enumerate(parameters):
        parameter = builder.parameter(shape, f"p{k}")
        parameter.sharding = None if spec is None else sharding(spec)
        given.append(Value(builder, parameter))
    made = make(*given)
    results = made if isinstance(made, tuple) else (made,)
    root = builder.tuple([r.instruction for r in results])
    return Module("main", builder.finish(root), partitions=MESH.size)


def dot(a, b):
    return a.op("dot", b, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))


def specs(module: Module) -> list[str]:
    """The layouts of the results."""
    return [text(o.sharding) for o in propagate(module).entry.outputs()]


def test_the_operand_with_more_bytes_wins():
    assert specs(program(dot, (f32(64, 8), "data -"), (f32(8, 16), "- data"))) == ["data -"]
    assert specs(program(dot, (f32(16, 8), "data -"), (f32(8, 64), "- data"))) == ["- data"]
    assert specs(program(dot, (f32(16, 8), "data -"), (f32(8, 16), "- data"))) == ["data -"]


def test_small_arrays_that_are_broadcast_do_not_decide():
    def biased(x, b):
        return dot(x, x.transpose((1, 0))) + b.broadcast((64, 64), (1,))

    assert specs(program(biased, (f32(64, 8), "data -"), (f32(64), "data"))) == ["data -"]
    assert specs(program(lambda b: b.broadcast((64, 64), (1,)), (f32(64), "data"))) == ["- data"]


def test_constants_carry_nothing_from_one_reader_to_another():
    def two(x, y):
        zeros = x.filled(0, x.shape)
        return x.op("maximum", zeros), y.op("maximum", zeros)

    assert specs(program(two, (f32(64, 64), "data -"), (f32(64, 64), "- -"))) == ["data -", "- -"]


def test_open_dimensions_get_more_axes_and_closed_ones_do_not():
    for open_, expected in (((), "data -"), ((0,), "data+model -"), ((1,), "data -"), ((0, 1), "data+model -")):
        module = program(lambda x, y: x + y, (f32(64, 64), None), (f32(64, 64), "data+model -"))
        module.entry.parameters[0].sharding = sharding("data -", open=open_)
        made = propagate(module)
        assert text(made.entry.parameters[0].sharding) == expected


def test_results_fix_what_makes_them():
    module = program(lambda x: x * 2, (f32(64, 64), None))
    module.entry.root.sharding = (sharding("- model"),)
    made = propagate(module)
    assert text(made.entry.parameters[0].sharding) == "- model"
    module = program(lambda x: x * 2, (f32(64, 64), "data -"))
    module.entry.root.sharding = (sharding("- data"),)
    made = propagate(module)
    assert [text(made.entry.outputs()[0].sharding), text(made.entry.root.sharding)] == ["data -", "(- data)"]


@pytest.mark.parametrize(
    ("old", "new", "given", "expected"),
    [
        ((32, 16), (512,), "data model", "data"),
        ((4, 16), (64,), "data model", "data+model"),
        ((512,), (32, 16), "data", "data -"),
        ((64,), (4, 16), "data+model", "data model"),
        ((64,), (2, 32), "data+model", "data.0 data.1+model"),
        ((6, 64), (384,), "data -", "data.0"),
        ((7, 64), (448,), "data -", "-"),
        ((64, 6, 64), (64, 384), "data - model", "data -"),
        ((64, 32, 64), (64, 2048), "data model -", "data model"),
    ],
)
def test_reshape(old, new, given, expected):
    assert specs(program(lambda x: x.reshape(new), (f32(*old), given))) == [expected]


# --- computations -------------------------------------------------------------------------------------------------


def called(make, *shapes) -> Computation:
    builder = Builder("called")
    made = make(*[Value(builder, builder.parameter(s)) for s in shapes])
    return builder.finish(made.instruction)


def test_a_computation_is_copied_for_callers_that_disagree():
    double = called(lambda x: x * 2, f32(64, 64))

    def three(x, y, z):
        return tuple(Value(v.builder, v.builder.emit("call", v.instruction, to_apply=double)) for v in (x, y, z))

    shape = f32(64, 64)
    module = program(three, (shape, "data -"), (shape, "- model"), (shape, "data -"))
    made = propagate(module)
    assert specs(module) == ["data -", "- model", "data -"]
    first, second, third = (i["to_apply"] for i in made.entry.instructions if i.opcode == "call")
    assert first is third and first is not second
    verify(made)


def test_many_calls_of_calls_stay_few():
    """Each computation calls the next one twice: with a copy for each place there would be 2^40."""
    inner = called(lambda x: x * 2, f32(64, 64))
    for _ in range(40):
        builder = Builder("outer")
        value = builder.parameter(f32(64, 64))
        for _ in range(2):
            value = builder.emit("call", value, to_apply=inner)
        inner = builder.finish(value)
    module = program(
        lambda x: Value(x.builder, x.builder.emit("call", x.instruction, to_apply=inner)), (f32(64, 64), "data -")
    )
    start = time.perf_counter()
    made = propagate(module)
    assert specs(module) == ["data -"] and time.perf_counter() - start < 5
    assert len(made.computations()) <= len(module.computations())


def loop(body, start, condition=None):
    """A while loop over a tuple of Values (a counter first)."""
    builder = start[0].builder
    shapes = [v.instruction.shape for v in start]
    state = TupleShape(shapes)

    def computation(make):
        inner = Builder("step")
        elements = [Value(inner, e) for e in tuple_elements(inner, inner.parameter(state))]
        made = make(*elements)
        return inner.finish(inner.tuple([m.instruction for m in made]) if isinstance(made, tuple) else made.instruction)

    made = builder.emit(
        "while",
        builder.tuple([v.instruction for v in start]),
        condition=computation(lambda k, *rest: k.compare("LT", 10)),
        body=computation(body),
    )
    return [Value(builder, e) for e in tuple_elements(builder, made)]


def test_loop_state_has_one_layout():
    def run(x, w):
        counter = x.builder.constant(np.int32(0))
        zeros = x.filled(0, x.shape)
        _, total, _, _ = loop(
            lambda k, total, x, w: (k + 1, total + dot(x, w), x, w), [Value(x.builder, counter), zeros, x, w]
        )
        return total

    module = program(run, (f32(64, 64), "data -"), (f32(64, 64), "- model"))
    assert specs(module) == ["data model"]
    made = propagate(module)
    (while_,) = (i for i in made.entry.instructions if i.opcode == "while")
    assert text(while_.sharding) == "(, data model, data -, - model)"
    assert while_["body"].parameters[0].sharding == while_.sharding == while_["condition"].parameters[0].sharding
    check_valid(made)


def test_a_conditional_joins_its_branches():
    first = called(lambda x: x * 2, f32(64, 64))
    second = called(lambda x: x + x, f32(64, 64))

    def run(p, x, y):
        emit = x.builder.emit
        made = emit("conditional", p.instruction, x.instruction, y.instruction, branch_computations=(first, second))
        return Value(x.builder, made)

    shape = f32(64, 64)
    module = program(run, (Shape(np.dtype(bool), ()), ""), (shape, "data -"), (shape, None))
    made = propagate(module)
    assert [text(p.sharding) for p in made.entry.parameters] == ["", "data -", "data -"]
    assert text(made.entry.outputs()[0].sharding) == "data -"


# --- meshes -------------------------------------------------------------------------------------------------------


def test_meshes_of_different_axes_over_the_same_devices():
    """x over 2 x 4 devices in order, y over 8 devices, and z over 4 x 2 in transposed order."""
    module = program(lambda x, y, z: (x, y, z), *[(f32(64, 64), None)] * 3)
    x, y, z = module.entry.parameters
    x.sharding = Sharding(DeviceMesh(("a", "b"), (2, 4)), (("a",), ("b",)))
    y.sharding = Sharding(DeviceMesh(("c",), (8,)), (("c",), ()))
    z.sharding = Sharding(DeviceMesh(("d", "e"), (4, 2), (0, 4, 1, 5, 2, 6, 3, 7)), (("d",), ("e",)))
    module.partitions = 8
    made = propagate(module)
    x, y, z = made.entry.parameters
    assert x.sharding.mesh == y.sharding.mesh == z.sharding.mesh == DeviceMesh(("a", "b.0", "b.1"), (2, 2, 2))
    assert y.sharding.dims == (("a", "b.0", "b.1"), ())
    assert z.sharding.dims == (("b.0", "b.1"), ("a",))


def test_meshes_that_do_not_fit_together():
    module = program(lambda x, y: (x, y), *[(f32(64, 64), None)] * 2)
    x, y = module.entry.parameters
    x.sharding = Sharding(DeviceMesh(("a", "b"), (2, 3)), (("a",), ("b",)))
    y.sharding = Sharding(DeviceMesh(("a", "b"), (3, 2)), (("a",), ("b",)))
    y.source = Source("program.py", 7, "f")
    with pytest.raises(AttributeValueError, match=r"two meshes(.|\n)*a=2, b=3(.|\n)*program.py:7"):
        propagate(module)
    y.sharding = Sharding(DeviceMesh(("a",), (4,)), (("a",), ()))
    with pytest.raises(AttributeValueError, match="two meshes"):
        propagate(module)


def test_a_sharding_of_another_rank():
    module = program(lambda x: x, (f32(64, 64), "data"))
    with pytest.raises(AttributeValueError, match=r"1 dimensions for f32\[64,64\]"):
        propagate(module)


# --- warnings -----------------------------------------------------------------------------------------------------


def test_an_op_without_a_rule_warns_once_of_what_it_gathers():
    def run(x):
        builder = x.builder
        builder.source = Source("train.py", 12, "step")
        made = builder.emit("custom-call", x.instruction, shape=x.shape, custom_call_target="test.double")
        return Value(builder, made)

    module = program(run, (f32(64, 64), "data -"))
    with pytest.warns(
        ReplicationWarning, match=r"custom-call of test.double(.|\n)*16,384 bytes(.|\n)*train.py:12"
    ) as found:
        assert specs(module) == ["- -"]
    assert len(found) == 1
    with no_warnings():
        propagate(program(run, (f32(64, 64), "- -")))


# --- speed --------------------------------------------------------------------------------------------------------


def test_ten_thousand_instructions_take_less_than_a_second():
    module = transformer_step(21)
    count = sum(1 for _ in module.instructions())
    assert count > 10_000
    times = []
    for _ in range(3):
        start = time.process_time()
        propagate(module)
        times.append(time.process_time() - start)
    assert min(times) < 1, f"{count} instructions: {min(times):.2f} s"  # 0.15 s on a quiet machine
