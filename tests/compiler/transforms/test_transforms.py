"""The transforms as such: reductions, calls, sharing, provenance, errors, what is left out, speed."""

from __future__ import annotations

import time

import ml_dtypes
import numpy as np
import pytest
from derivative_cases import AFFINE, CASES, F64, MAXIMUM, S32, build, check, combiner, dot, reduce

from hloom.compiler.transforms.inline import inline_calls
from hloom.compiler.transforms.jvp import jvp
from hloom.compiler.transforms.reduction import reduction_tree
from hloom.compiler.transforms.vjp import gradient, linearize, vjp
from hloom.ir import records
from hloom.ir.build import Builder, Value
from hloom.ir.errors import DifferentiationError
from hloom.ir.interpret import evaluate
from hloom.ir.module import Module
from hloom.ir.ops import OPS, No
from hloom.ir.ops.programs.structure import CUSTOM_CALLS
from hloom.ir.source import Source
from hloom.ir.types import INEXACT, Shape
from hloom.ir.verify import verify

# --- reductions ---------------------------------------------------------------------------------------------------


def test_extreme_shares_its_tangent_among_ties():
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    computation = build(lambda x: x.reduce("maximum", -np.inf, (1,)), [x])
    g = evaluate(gradient(computation, [0]), [x, np.ones(2)])[1]
    np.testing.assert_array_equal(g, [[0, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3]])


def test_extreme_shares_its_tangent_with_an_initial_value_that_is_reached():
    x, start = np.array([1.0, 3.0, 3.0]), np.array(3.0)
    computation = build(reduce(MAXIMUM, (0,)), [x, start])
    _, gx, gs = evaluate(gradient(computation, [0, 1]), [x, start, np.ones(())])
    np.testing.assert_allclose(gx, [0, 1 / 3, 1 / 3])
    np.testing.assert_allclose(gs, 1 / 3)


def test_extreme_of_many_ties_in_float16():
    x = np.ones(70000, np.float16)
    computation = build(lambda x: x.reduce("maximum", -np.inf, (0,)), [x])
    tangent = evaluate(jvp(computation, [True]), [x, np.full(70000, 1e-2, np.float16)])[1]
    assert np.isfinite(tangent) and tangent == pytest.approx(1e-2, rel=2e-2)


def test_extreme_of_nothing_has_no_tangent():
    x = np.ones((0, 3))
    computation = build(lambda x: x.reduce("maximum", -np.inf, (0,)), [x])
    np.testing.assert_array_equal(evaluate(jvp(computation, [True]), [x, x])[1], np.zeros(3))


@pytest.mark.parametrize("length", range(10))
def test_tree_of_a_combiner_that_is_not_commutative(length):
    rng = np.random.default_rng(length)
    arrays = [rng.normal(size=(2, length, 3)), rng.normal(size=(2, length, 3))]
    arguments = [*arrays, np.array(1.5), np.array(-0.5)]
    builder = Builder("tree")
    operands = [builder.parameter(Shape(a.dtype, a.shape)) for a in arguments]
    original = Builder("").emit("reduce", *operands, dimensions=(1,), to_apply=AFFINE)
    tree = builder.finish(builder.tuple(reduction_tree(builder, original)))
    expected = evaluate(build(lambda *v: reduce(AFFINE, (1,))(*v), arguments), arguments)
    for found, wanted in zip(evaluate(tree, arguments), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_combiner_that_calls():
    inner = combiner(lambda a, x: [(a * a + x * x).op("sqrt")], 1)
    builder = Builder("outer")
    a, x = builder.parameter(Shape(F64)), builder.parameter(Shape(F64))
    outer = builder.finish(builder.emit("call", a, x, to_apply=inner))
    arguments = [np.array([3.0, 4.0]), np.array(0.0)]
    computation = build(lambda x, s: reduce(outer, (0,))(x, s + 1e-3), arguments)
    check(computation, arguments)


def test_combiner_that_cannot_be_lifted_says_where():
    inner_product = dot((), (), (0,), (0,))
    bad = combiner(lambda a, x: [inner_product(a.broadcast((3,), ()), x.broadcast((3,), ()))], 1)
    x = [np.ones(4), np.ones(())]
    computation = build(reduce(bad, (0,)), x, Source("model.py", 12, "loss"))
    with pytest.raises(DifferentiationError, match="combiner") as error:
        jvp(computation, [True, False])
    assert (error.value.source.file, error.value.source.line) == ("model.py", 12)


# --- structure ----------------------------------------------------------------------------------------------------


def test_calls_are_inlined_at_any_depth():
    x = np.array([0.3, -1.2])
    square = build(lambda v: v * v, [x])

    def twice(v):
        builder = v.builder
        once = Value(builder, builder.emit("call", v.instruction, to_apply=square))
        return [Value(builder, builder.emit("call", once.instruction, to_apply=square)), once]

    fourth = build(twice, [x])

    def outer(v):
        packed = v.builder.emit("call", v.op("sine").instruction, to_apply=fourth)
        return Value(v.builder, packed).op("get-tuple-element", index=0) + v

    computation = build(outer, [x])
    check(computation, [x])
    inlined = inline_calls(computation)
    assert not any(i.opcode in ("call", "tuple", "get-tuple-element") for i in inlined.instructions)
    assert len(set(inlined.instructions)) == len(inlined.instructions)
    np.testing.assert_array_equal(evaluate(inlined, [x]), evaluate(computation, [x]))


def test_inlining_hands_known_values_on():
    x = np.array([0.3, -1.2])
    square = build(lambda v: v * v, [x])

    def after(v):
        return Value(v.builder, v.builder.emit("call", v.instruction, to_apply=square)).op("sine")

    computation = build(after, [x])
    known = {computation.root: np.array([7.0, 8.0])}
    inlined = inline_calls(computation, known)
    np.testing.assert_array_equal(evaluate(inlined, [x], known=known), [7.0, 8.0])


def test_a_computation_without_calls_is_itself():
    computation = build(lambda v: v * v, [np.ones(2)])
    assert inline_calls(computation) is computation


def test_fan_out_and_outputs_that_are_parameters_or_the_same():
    x, y = np.array([1.0, 2.0]), np.array([3.0, -1.0])

    def function(x, y):
        z = x * y
        return [z, x, z, z + z * x, y]

    check(build(function, [x, y]), [x, y])


def test_integers_have_no_tangents_and_outputs_that_do_not_depend_have_zeros():
    x, i = np.array([1.5, 2.0]), np.array([1, 2], S32)
    computation = build(lambda x, i: [x * i.convert(F64), i + i, i.convert(F64)], [x, i])
    made = jvp(computation, [True, False])
    assert [o.dtype.name for o in made.outputs()] == ["float64", "int32", "float64", "float64", "float64"]
    results = evaluate(made, [x, i, np.ones(2)])
    np.testing.assert_array_equal(results[3], [1, 2])
    np.testing.assert_array_equal(results[4], [0, 0])
    with pytest.raises(DifferentiationError, match="parameter 1"):
        jvp(computation, [True, True])


def test_gradient_of_what_does_not_depend_is_zeros():
    x = np.ones((2, 3))
    computation = build(lambda x, y: x * 2.0, [x, x])
    made = gradient(computation, [1, 0])
    results = evaluate(made, [x, x, x])
    np.testing.assert_array_equal(results[1], np.zeros((2, 3)))
    np.testing.assert_array_equal(results[2], np.full((2, 3), 2.0))


def test_only_the_chosen_outputs_are_differentiated():
    x = np.array([0.5, 2.0])
    computation = build(lambda x: [x * x, x.op("sine"), x.op("exponential")], [x])
    made = gradient(computation, [0], by=(1,))
    assert len(made.parameters) == 2
    assert "cosine" in {i.opcode for i in made.instructions}
    np.testing.assert_allclose(evaluate(made, [x, np.ones(2)])[3], np.cos(x))
    made = jvp(computation, [True], of=(0,))
    assert len(made.outputs()) == 4


def test_no_junk_is_left():
    """The gradient of tanh(x * y) by x: the forward pass, 1 - v * v, two products, and nothing that stays unused."""
    x = np.ones(3)
    made = gradient(build(lambda x, y: (x * y).op("tanh"), [x, x]), [0])
    assert sorted(i.opcode for i in made.instructions) == [
        "broadcast", "constant", "multiply", "multiply", "multiply", "multiply",
        "parameter", "parameter", "parameter", "subtract", "tanh", "tuple",
    ]  # fmt: skip
    users = made.users()
    assert all(users[i] or i is made.root or i.opcode == "parameter" for i in made.instructions)


def test_residuals_are_few():
    """The backward pass of a row-wise scaling keeps the vector and the matrix, and not the vector broadcast."""
    x, v = np.ones((4, 3)), np.ones(3)
    computation = build(lambda x, v: (x * v.broadcast((4, 3), (1,))).sum((0, 1)), [x, v])
    forward, backward = vjp(computation, [0, 1])
    kept = [o.dims for o in forward.outputs()[1:]]
    assert sorted(kept) == [(3,), (4, 3)]
    assert [p["index"] for p in backward.parameters] == list(range(len(backward.parameters)))


def test_the_original_is_shared_and_unchanged():
    x = np.ones(3)
    computation = build(lambda x: (x * x).op("sine"), [x])
    before = list(computation.instructions)
    made = gradient(computation, [0])
    assert computation.instructions == before
    assert set(before) <= set(made.instructions)


def test_what_is_made_is_valid():
    for given in CASES:
        computation = given.computation()
        wrt = [k for k, p in enumerate(computation.parameters) if p.dtype in INEXACT]
        forward = jvp(computation, [k in wrt for k in range(len(computation.parameters))])
        for made in (forward, gradient(computation, wrt), *vjp(computation, wrt), *linearize(computation, wrt)):
            verify(Module("m", made))
            assert {i for i in made.instructions if i.opcode == "parameter"} == set(made.parameters)


def test_provenance():
    line = Source("model.py", 7, "loss")
    computation = build(lambda x: x.op("sine"), [np.ones(3)], line)
    made = gradient(computation, [0])
    (product,) = [i for i in made.instructions if i.opcode == "multiply"]
    assert product.source == line
    assert product.made_by == ("jvp", "transpose")
    (cosine,) = [i for i in made.instructions if i.opcode == "cosine"]
    assert (cosine.source, cosine.made_by) == (line, ("jvp",))


def test_a_missing_derivative_names_the_op_and_the_line(monkeypatch):
    x = np.ones(3)

    def function(x):
        return x.op("custom-call", shape=x.shape, custom_call_target="solver")

    computation = build(function, [x], Source("model.py", 31, "step"))
    with pytest.raises(DifferentiationError) as error:
        gradient(computation, [0])
    assert "custom-call" in error.value.asked
    assert (error.value.source.file, error.value.source.line) == ("model.py", 31)
    assert error.value.repair
    # It is fine where no tangent reaches it.
    monkeypatch.setitem(CUSTOM_CALLS, "solver", lambda a: a * 0.5)
    made = gradient(build(lambda x: x * function(x.op("copy", stop_gradient=True)), [x]), [0])
    np.testing.assert_array_equal(evaluate(made, [x, x])[1], x * 0.5)


def test_a_missing_transpose_names_the_op_and_the_line(monkeypatch):
    monkeypatch.setitem(OPS, "reverse", records.replace(OPS["reverse"], transpose=No("not written")))
    x = np.ones(3)
    computation = build(lambda x: x.op("reverse", dimensions=(0,)), [x], Source("model.py", 5, "step"))
    with pytest.raises(DifferentiationError) as error:
        gradient(computation, [0])
    assert "reverse" in error.value.asked and "not written" in error.value.found
    assert (error.value.source.file, error.value.source.line) == ("model.py", 5)
    np.testing.assert_array_equal(evaluate(jvp(computation, [True]), [x, x])[1], x)


def test_mixed_precision_dot():
    """bfloat16 operands, float32 result: the gradients are bfloat16 and every product is of one dtype."""
    rng = np.random.default_rng(5)
    x, y = (rng.integers(-4, 5, d).astype(ml_dtypes.bfloat16) for d in ((3, 4), (4, 2)))

    def function(x, y):
        return x.op("dot", y, shape=Shape("f32", (3, 2)), lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))

    made = gradient(build(function, [x, y]), [0, 1])
    for instruction in made.instructions:
        if instruction.opcode == "dot":
            assert instruction.operands[0].dtype == instruction.operands[1].dtype
    g = rng.integers(-4, 5, (3, 2)).astype(np.float32)
    _, gx, gy = evaluate(made, [x, y, g])
    assert gx.dtype == gy.dtype == x.dtype
    np.testing.assert_array_equal(gx.astype("f4"), g @ y.astype("f4").T)
    np.testing.assert_array_equal(gy.astype("f4"), x.astype("f4").T @ g)


def test_maximum_of_equals_is_shared():
    x = np.array([1.0, 2.0])
    made = gradient(build(lambda x, y: x.op("maximum", y), [x, x]), [0, 1])
    _, gx, gy = evaluate(made, [x, np.array([1.0, 5.0]), np.ones(2)])
    np.testing.assert_array_equal(gx, [0.5, 0])
    np.testing.assert_array_equal(gy, [0.5, 1])


def test_accuracy_of_derivatives_where_formulas_cancel():
    x = np.array([1 - 2.0**-50])
    exact = 1 / np.sqrt(2.0**-50 * (2 - 2.0**-50))
    made = jvp(build(lambda x: x.op("asin"), [x]), [True])
    np.testing.assert_allclose(evaluate(made, [x, np.ones(1)])[1], exact, rtol=1e-14)


def test_gradients_of_large_computations_are_made_quickly():
    """In proportion: eight times the ops take about eight times as long, and nothing quadratic."""

    def chain(count):
        def function(x, y):
            v = x
            for _ in range(count // 2):
                v = (v * y).op("tanh")
            return v

        return build(function, [np.ones(3), np.ones(3)])

    def seconds(computation):
        best = np.inf
        for _ in range(5):
            start = time.process_time()
            gradient(computation, [0, 1])
            best = min(best, time.process_time() - start)
        return best

    assert seconds(chain(4000)) < 20 * seconds(chain(500))
