"""Values that decide shapes, in every place where a model can store or compute them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from onnx import numpy_helper as nph  # noqa: E402

import hloom as hl  # noqa: E402

F32, I64 = np.float32, np.int64
X = np.arange(24, dtype=F32).reshape(2, 3, 4)
IMAGE = np.arange(4, dtype=F32).reshape(1, 1, 2, 2)
TWICE = IMAGE.repeat(2, 2).repeat(2, 3)
HALVES = [X[:, :1], X[:, 1:]]


def node(op, *inputs, outputs=("y",), **attributes):
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


# op: (node, x, inputs that have to be known, output), where the first input is x or the op has none.
OPS = {
    "Resize scales": (node("Resize", "x", "", "s"), IMAGE, {"s": np.array([1, 1, 2, 2], F32)}, TWICE),
    "Resize sizes": (node("Resize", "x", "", "", "s"), IMAGE, {"s": np.array([1, 1, 4, 4], I64)}, TWICE),
    "Resize roi": (
        node("Resize", "x", "r", "s", coordinate_transformation_mode="tf_crop_and_resize"), IMAGE,
        {"r": np.array([0, 0, 0, 0, 1, 1, 1, 1], F32), "s": np.array([1, 1, 1, 1], F32)}, IMAGE,
    ),
    "Range": (node("Range", "a", "b", "c"), None, {"a": F32(1), "b": F32(4), "c": F32(1.5)}, np.array([1, 2.5], F32)),
    "Range of integers": (node("Range", "a", "b", "c"), None,
                          {"a": np.int32(0), "b": np.int32(6), "c": np.int32(4)}, np.array([0, 4], np.int32)),
    "OneHot": (node("OneHot", "x", "d", "v"), np.array([2, 0], I64),
               {"d": np.array(3, F32), "v": np.array([0, 1], F32)}, np.array([[0, 0, 1], [1, 0, 0]], F32)),
    "OneHot of integers": (node("OneHot", "x", "d", "v"), np.array([2, 0], np.int32),
                           {"d": np.array([3], np.int32), "v": np.array([0, 1], F32)},
                           np.array([[0, 0, 1], [1, 0, 0]], F32)),
    "Pad": (node("Pad", "x", "p", "v"), X[0, 0], {"p": np.array([1, 0], I64), "v": np.array(7, F32)},
            np.array([7, 0, 1, 2, 3], F32)),
    "Tile": (node("Tile", "x", "n"), X[0, 0], {"n": np.array([2], I64)}, np.tile(X[0, 0], 2)),
    "Expand": (node("Expand", "x", "n"), X[0, 0], {"n": np.array([2, 4], I64)}, np.stack([X[0, 0]] * 2)),
    "Slice": (node("Slice", "x", "a", "b", "k", "d"), X,
              {"a": np.array([1], np.int32), "b": np.array([9], np.int32), "k": np.array([2], np.int32),
               "d": np.array([2], np.int32)}, X[:, :, 1::2]),
    "Reshape": (node("Reshape", "x", "n"), X, {"n": np.array([-1, 8], I64)}, X.reshape(3, 8)),
    "TopK": (node("TopK", "x", "k", outputs=("y", "i")), X, {"k": np.array([2], I64)}, X[..., [3, 2]]),
    "Split": (node("Split", "x", "n", outputs=("y", "z"), axis=1), X, {"n": np.array([1, 2], I64)}, X[:, :1]),
    "ConstantOfShape": (node("ConstantOfShape", "n"), None, {"n": np.array([2, 3], I64)}, np.zeros((2, 3), F32)),
    "Unsqueeze": (node("Unsqueeze", "x", "n"), X, {"n": np.array([0, -1], I64)}, X[None, ..., None]),
    "Squeeze": (node("Squeeze", "x", "n"), X[None], {"n": np.array([0], I64)}, X),
    "ReduceSum": (node("ReduceSum", "x", "n", keepdims=0), X, {"n": np.array([1], I64)}, X.sum(1)),
    "ReduceMax": (node("ReduceMax", "x", "n"), X, {"n": np.array([-1], I64)}, X.max(-1, keepdims=True)),
    "CumSum": (node("CumSum", "x", "n"), X, {"n": np.array(1, np.int32)}, X.cumsum(1)),
    "Trilu": (node("Trilu", "x", "n"), X, {"n": np.array(1, I64)}, np.triu(X, 1)),
    "Loop": (node("Loop", "m", "", "x", body=helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Concat", ["s", "s"], ["t"], axis=0)], "body",
        [helper.make_tensor_value_info("k", TensorProto.INT64, []),
         helper.make_tensor_value_info("c", TensorProto.BOOL, []),
         helper.make_tensor_value_info("s", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []),
         helper.make_tensor_value_info("t", TensorProto.FLOAT, None)])),
        X, {"m": np.array(2, I64)}, np.concatenate([X] * 4)),
}  # fmt: skip
INTEGERS = {"int64", "int32"}


def port(name, value=None):
    kind = 0 if value is None else helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, kind, None) if kind else onnx.ValueInfoProto(name=name)


def model(nodes, x, initializers=(), inputs=(), functions=(), version=10):
    given = [] if x is None else [port("x", x)]
    graph = helper.make_graph(nodes, "g", [*given, *inputs], [port("y")],
                              [nph.from_array(np.asarray(v), n) for n, v in initializers])  # fmt: skip
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    made = helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=version)
    return hl.onnx.load(made)


def copied(proto):
    made = onnx.NodeProto()
    made.CopyFrom(proto)
    return made


def initializers(op, x, known):
    return model([op], x, known.items())


def constants(op, x, known):
    return model(
        [*(node("Constant", outputs=(n,), value=nph.from_array(np.asarray(v))) for n, v in known.items()), op], x
    )


def computed(op, x, known):
    """From other initializers."""
    op, nodes = copied(op), []
    for k, name in enumerate(op.input):
        if name in known:
            op.input[k] = f"{name}_of"
            kind = helper.np_dtype_to_tensor_dtype(np.asarray(known[name]).dtype)
            nodes += [node("Add", name, name, outputs=(f"{name}_2",)),
                      node("Sub", f"{name}_2", name, outputs=(f"{name}_1",)),
                      node("Cast", f"{name}_1", outputs=(f"{name}_of",), to=kind)]  # fmt: skip
    return model([*nodes, op], x, known.items())


def function(op, x, known):
    names = ([] if x is None else ["x"]) + list(known)
    made = helper.make_function("mine", "Called", names, ["y"], [op], [helper.make_opsetid("", 18)])
    return model([helper.make_node("Called", names, ["y"], domain="mine")], x, known.items(), functions=[made])


def branch(op, x, known):
    body = helper.make_graph([op], "body", [], [port("y")])
    other = helper.make_graph([node("Identity", next(iter(known)))], "other", [], [port("y")])
    chosen = node("If", "taken", then_branch=body, else_branch=other)
    return model([chosen], x, [*known.items(), ("taken", np.array(True))])


def defaults(op, x, known):
    """Inputs with a default, as up to IR 3 every initializer was one."""
    return model([op], x, known.items(), [port(n, np.asarray(v)) for n, v in known.items()], version=3)


PLACES = [initializers, constants, computed, function, branch, defaults]


@pytest.mark.parametrize("place", PLACES)
def test_no_place_of_a_known_value_costs_a_warning(place):
    for name, (op, x, known, expected) in OPS.items():
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found = place(op, x, known)(*[] if x is None else [x])
        np.testing.assert_array_equal(found, expected, err_msg=name)
        assert not warned, (name, warned[0].message)


def test_values_of_inputs_with_a_default_are_followed():
    op, x, known, _ = OPS["Resize scales"]
    loaded = defaults(op, x, known)
    with pytest.warns(hl.errors.DataDependentWarning, match="'s'"):
        found = loaded(x, s=np.array([1, 1, 1, 3], F32))
    np.testing.assert_array_equal(found, IMAGE.repeat(3, 3))
    np.testing.assert_array_equal(loaded(x), TWICE)


def test_half_precision_values_are_known():
    limits = {"a": np.float16(0), "b": np.float16(3), "c": np.float16(1)}
    np.testing.assert_array_equal(initializers(OPS["Range"][0], None, limits)(), np.arange(3, dtype=np.float16))


def test_a_model_with_known_floats_differentiates_and_traces():
    op, x, known, _ = OPS["Resize scales"]
    scaled = [node("Mul", "x", "w", outputs=("z",)), copied(op)]
    scaled[1].input[0] = "z"
    loaded = model(scaled, x, [*known.items(), ("w", np.ones(2, F32))])
    assert set(loaded.params) == {"w"}
    by = hl.grad(lambda p: loaded.function(p, [x]).sum())(loaded.params)
    np.testing.assert_array_equal(by["w"], IMAGE.sum((0, 1, 2)) * 4)


def test_weights_that_turn_out_to_decide_shapes_are_promoted():
    """A value that only the body of a step wants, computed of a weight and of what the loop carries."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]),
         helper.make_node("Resize", ["s", "", "w"], ["t"], mode="nearest")], "body",
        [port("k", np.array(0)), port("c", np.array(True)), port("s", X)], [port("d", np.array(True)), port("t", X)],
    )  # fmt: skip
    made = model([node("Loop", "m", "", "x", body=body)], IMAGE,
                 [("m", np.array(2)), ("w", np.array([1, 1, 2, 2], F32))])  # fmt: skip
    np.testing.assert_array_equal(made(IMAGE), TWICE.repeat(2, 2).repeat(2, 3))
    assert not made.params


def test_a_value_that_is_never_known_is_an_error_that_names_it():
    """A rule that asks again for numbers that it was given must not trace for ever."""
    from hloom.onnx.table import OPS as TABLE
    from hloom.onnx.table import NeedsValue

    @hl.onnx.rule("Never", domain="mine", since=1)
    def never(x):
        raise NeedsValue("it is never content", x)

    try:
        loaded = model([helper.make_node("Never", ["x"], ["y"], domain="mine")], X[0, 0])
        with pytest.raises(hl.errors.UnsupportedError, match="Never 'y'.*\n.*never content.*'x'"):
            loaded(X[0, 0])
    finally:
        del TABLE["mine", "Never"]


def test_a_branch_that_is_not_taken_does_not_have_to_fit():
    def product(name, w):
        return helper.make_graph([helper.make_node("MatMul", ["x", w], [name])], name, [], [port(name)])

    def unknown(name):
        return helper.make_graph([helper.make_node("Foreign", ["x"], [name], domain="mine")], name, [], [port(name)])

    x, a = X[0, :2], np.ones((4, 3), F32)
    for other in (product("e", "b"), unknown("e")):
        nodes = [node("Equal", "rate", "k", outputs=("c",)),
                 node("If", "c", then_branch=product("t", "a"), else_branch=other)]  # fmt: skip
        loaded = model(nodes, x, [("a", a), ("b", a[:2]), ("k", np.array(16))], [port("rate", np.array(0))])
        with pytest.warns(hl.errors.DataDependentWarning, match="else_branch does not fit"):
            np.testing.assert_array_equal(loaded(x, np.array(16)), x @ a)
        with pytest.raises((hl.errors.ShapeError, hl.errors.UnsupportedError)):
            loaded(x, np.array(8))
        with pytest.raises(hl.errors.ConcretizationTypeError, match="else_branch"):
            hl.jit(loaded)(x, np.array(16))


def test_negative_sizes_and_names_without_letters_are_unknown_sizes():
    graph = helper.make_graph([node("Add", "x", "z")], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [-1, "?", 4]),
                               helper.make_tensor_value_info("z", TensorProto.FLOAT, ["?", -1, 4])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [-1, -1, 4])])  # fmt: skip
    loaded = hl.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    assert loaded.inputs[0].shape == (None, None, 4)
    np.testing.assert_array_equal(loaded(X, X[:1]), X + X[:1])


def test_numbers_too_large_for_an_input_are_an_error_of_hloom():
    loaded = model([node("Identity", "x")], np.zeros(1, np.int32))
    with pytest.raises(hl.errors.ArgumentError, match="the input x"):
        loaded(1 << 40)
    loaded = model([node("Range", "a", "b", "c")], None,
                   [("a", F32(0)), ("b", F32(np.inf)), ("c", F32(1))])  # fmt: skip
    with pytest.raises(hl.errors.HloomError, match="Range 'y'"):
        loaded()


def test_scans_whose_bodies_need_numbers_run_step_by_step():
    body = helper.make_graph(
        [helper.make_node("NonZero", ["r"], ["n"]), helper.make_node("Shape", ["n"], ["u"], start=1),
         helper.make_node("Add", ["s", "u"], ["t"]), helper.make_node("Identity", ["t"], ["o"])], "body",
        [port("s", np.zeros(1, I64)), port("r", X)], [port("t", np.zeros(1, I64)), port("o", np.zeros(1, I64))],
    )  # fmt: skip
    made = helper.make_node("Scan", ["first", "x"], ["last", "y"], body=body, num_scan_inputs=1)
    loaded = model([made], X[0], [("first", np.zeros(1, I64))])
    with pytest.warns(hl.errors.DataDependentWarning):
        np.testing.assert_array_equal(loaded(X[0]), [[3], [7], [11]])
