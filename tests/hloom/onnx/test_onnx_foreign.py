"""Ops that hloom has no rule for, rules of foreign domains, and attributes that name one of several ways."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper  # noqa: E402
from onnx import numpy_helper as nph  # noqa: E402
from onnx.reference.op_run import OpRun  # noqa: E402

import hloom as hl  # noqa: E402
import hloom.numpy as hnp  # noqa: E402
from hloom.onnx.choices import CHOICES  # noqa: E402
from hloom.onnx.table import OPS  # noqa: E402

F32 = np.float32
ML = "ai.onnx.ml"
X = np.arange(6, dtype=F32).reshape(2, 3)
# Attributes of strings whose values are data, or are read by the rule itself.
FREE = {"equation", "pattern", "delimiter", "stopwords", "locale", "activations", "value_string", "value_strings",
        "pool_strings", "classlabels_strings", "string_vocabulary", "default_string", "cats_strings", "classes_strings",
        "values_strings", "keys_strings", "xs", "zs", "y", "to"}  # fmt: skip


def model(nodes, x=X, initializers=(), functions=()):
    ports = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), [None] * x.ndim)]
    graph = helper.make_graph(nodes, "g", ports, [onnx.ValueInfoProto(name="y")],
                              [nph.from_array(v, n) for n, v in initializers])  # fmt: skip
    imports = [helper.make_opsetid(*o) for o in (("", 21), (ML, 3), ("mine", 1), ("com.microsoft", 1))]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)


CLASSES = helper.make_node("LinearClassifier", ["h"], ["label", "y"], "classes", domain=ML,
                           coefficients=[1.0, 0, 0, 0, 1, 1], intercepts=[0.5, 0],
                           classlabels_ints=[3, 7])  # fmt: skip
SCORES = X @ np.array([[2, 0], [0, 2], [0, 2]], F32) + F32([0.5, 0])


@pytest.fixture
def declared():
    """What a test declares is forgotten after it."""
    before = {key: list(entries) for key, entries in OPS.items()}
    yield
    OPS.clear()
    OPS.update(before)


def test_the_reference_evaluator_computes_ops_without_a_rule():
    loaded = hl.onnx.load(model([helper.make_node("Add", ["x", "x"], ["h"]), CLASSES]))
    with pytest.warns(hl.errors.FallbackWarning, match=r"LinearClassifier 'classes': ONNX's reference") as warned:
        y = loaded(X)
    np.testing.assert_allclose(y, SCORES)
    assert len(warned) == 1
    with warnings.catch_warnings(record=True) as again:
        warnings.simplefilter("always")
        np.testing.assert_allclose(loaded(2 * X), 2 * SCORES - F32([0.5, 0]))
    assert not again


def test_a_call_out_stays_in_the_program_where_shapes_are_inferred(declared):
    """Einsum has a rule, which is taken away: its shapes are inferred, and the nodes around it are one program."""
    del OPS["", "Einsum"]
    nodes = [helper.make_node("Add", ["x", "x"], ["h"]), helper.make_node("Einsum", ["h"], ["e"], equation="ij->ji"),
             helper.make_node("Neg", ["e"], ["y"])]  # fmt: skip
    loaded = hl.onnx.load(model(nodes))
    with pytest.warns(hl.errors.FallbackWarning, match="Einsum 'e'.*copies 48 bytes"):
        np.testing.assert_array_equal(hl.jit(loaded)(X), -2 * X.T)
    np.testing.assert_array_equal(loaded(X), -2 * X.T)
    np.testing.assert_array_equal(hl.vmap(loaded)(np.stack([X, -X]))[1], 2 * X.T)


def test_maps_are_results():
    labels = helper.make_node("ZipMap", ["h"], ["y"], domain=ML, classlabels_strings=["a", "b", "c"])
    loaded = hl.onnx.load(model([helper.make_node("Abs", ["x"], ["h"]), labels]))
    assert loaded(-X) == [{"a": 0, "b": 1, "c": 2}, {"a": 3, "b": 4, "c": 5}]
    labels.attribute[0].strings.append(b"d")
    with pytest.raises(hl.errors.ShapeError, match="4 labels for 3 columns"):
        hl.onnx.load(model([helper.make_node("Abs", ["x"], ["h"]), labels]))(X)


@pytest.mark.parametrize("form, expected", [("DENSE", [[5, 7]]), ("SPARSE", [[0, 5, 0, 7]])])
def test_maps_become_rows(form, expected):
    made = model([helper.make_node("CastMap", ["m"], ["y"], domain=ML, cast_to="TO_INT64", map_form=form, max_map=4)])
    made.graph.input.add(name="m").type.map_type.key_type = onnx.TensorProto.INT64
    np.testing.assert_array_equal(hl.onnx.load(made)(X, {3: 7.5, 1: 5.0}), expected)


def test_maps_are_inputs():
    node = helper.make_node("DictVectorizer", ["m"], ["y"], domain=ML, string_vocabulary=["b", "a", "c"])
    made = model([node])
    kind = made.graph.input.add(name="m").type.map_type
    kind.key_type = onnx.TensorProto.STRING
    loaded = hl.onnx.load(made)
    np.testing.assert_array_equal(np.ravel(loaded(X, {"a": 2.0, "b": 1.0})), [1, 2, 0])
    with pytest.raises(hl.errors.ArgumentError, match="pass a dict"):
        loaded(X, X)


class Shifted(OpRun):
    op_domain = "mine"

    def _run(self, x, by=None):
        return (x + np.float32(by),)


def test_classes_of_the_reference_evaluator_are_taken():
    nodes = [
        helper.make_node("Add", ["x", "x"], ["h"]),
        helper.make_node("Shifted", ["h"], ["y"], domain="mine", by=2.0),
    ]
    made = model(nodes)
    with pytest.raises(hl.errors.UnsupportedError, match=r"mine.Shifted \(1\) at 'y'"):
        hl.onnx.load(made)
    loaded = hl.onnx.load(made, new_ops=[Shifted])
    with pytest.warns(hl.errors.FallbackWarning, match="mine.Shifted 'y'"):
        np.testing.assert_array_equal(loaded(X), 2 * X + 2)
    with pytest.raises(hl.errors.ConcretizationTypeError, match="reference"):
        hl.jit(loaded)(X)
    for wrong in (3, np.sin):
        with pytest.raises(hl.errors.ArgumentError, match="new_ops"):
            hl.onnx.load(made, new_ops=[wrong])


def test_rules_of_foreign_domains_are_declared(declared):
    nodes = [helper.make_node("Shifted", ["x"], ["h"], domain="mine", by=2.0),
             helper.make_node("Rows", ["h", "n"], ["y"], domain="mine")]  # fmt: skip

    @hl.onnx.rule("Shifted", domain="mine")
    def shifted(x, *, by=1.0):
        return x + hnp.float32(by)

    @hl.onnx.rule("Rows Lines", domain="mine", static=(1,))
    def rows(x, count):
        return x[: int(count)]

    loaded = hl.onnx.load(model(nodes, initializers=[("n", np.array(1.0, F32))]))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        np.testing.assert_array_equal(loaded(X), X[:1] + 2)
    assert not warned and "Rows" in hl.onnx.supported_ops()["mine"]
    np.testing.assert_array_equal(hl.grad(lambda x: hnp.sum(loaded(x)))(hnp.asarray(X)), [[1] * 3, [0] * 3])

    @hl.onnx.rule("Shifted", domain="mine")
    def again(x, *, by=1.0):
        return x - hnp.float32(by)

    np.testing.assert_array_equal(hl.onnx.load(model([*nodes[:1], helper.make_node("Neg", ["h"], ["y"])]))(X), 2 - X)


def test_mistakes_in_rules_are_named():
    for arguments, text in (
        ({"names": "Relu", "domain": ""}, "a domain of ONNX"), ({"names": "Mine", "domain": ML}, "a domain of ONNX"),
        ({"names": " ", "domain": "mine"}, "no name"), ({"names": "A", "domain": "mine", "since": "1"}, "since='1'"),
    ):  # fmt: skip
        with pytest.raises(hl.errors.ArgumentError, match=text):
            hl.onnx.rule(**arguments)
    with pytest.raises(hl.errors.ArgumentError, match="not a function"):
        hl.onnx.rule("A", domain="mine")(3)


@pytest.mark.parametrize("backwards", [False, True])
def test_quantized_recurrent_layers(backwards):
    """Against the recurrence in NumPy with the weights' values, whose inputs are rounded to 8 bits."""
    random = np.random.default_rng(5)
    batch, inputs, hidden, directions = 2, 3, 4, 2 if backwards else 1
    shapes = [(directions, inputs, 4 * hidden), (directions, hidden, 4 * hidden)]
    quantized = [random.integers(0, 256, s).astype(np.uint8) for s in shapes]
    scales = [np.full(directions, 0.02, F32), random.uniform(0.01, 0.02, (directions, 4 * hidden)).astype(F32)]
    zeros = [np.full(directions, 120, np.uint8), np.full((directions, 4 * hidden), 128, np.uint8)]
    w, r = (
        (q.astype(F32) - z.reshape(directions, 1, -1)) * s.reshape(directions, 1, -1)
        for q, z, s in zip(quantized, zeros, scales, strict=True)
    )
    x = random.uniform(-1, 1, (5, batch, inputs)).astype(F32)

    def rounded(v):
        low, high = min(v.min(), 0), max(v.max(), 0)
        step = (high - low) / 255 or 1.0
        zero = np.round(-low / step)
        return (np.clip(np.round(v / step) + zero, 0, 255) - zero) * step

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    expected = np.zeros((5, directions, batch, hidden))
    for d in range(directions):
        h = c = np.zeros((batch, hidden))
        for t in reversed(range(5)) if d else range(5):
            i, o, f, g = np.split(rounded(x)[t] @ w[d] + rounded(h) @ r[d], 4, -1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            expected[t, d] = h
    names = ["w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node("DynamicQuantizeLSTM", ["x", *names], ["y"], domain="com.microsoft", hidden_size=hidden,
                            direction="bidirectional" if backwards else "forward")  # fmt: skip
    stored = zip(
        ("w", "r", "ws", "wz", "rs", "rz"), (*quantized, scales[0], zeros[0], scales[1], zeros[1]), strict=True
    )
    np.testing.assert_allclose(hl.onnx.load(model([node], x, stored))(x), expected, atol=2e-3)


# --- attributes that name one of several ways ------------------------------------------------------------------------


def test_every_attribute_of_strings_is_in_the_table():
    for schema in onnx.defs.get_all_schemas_with_history():
        for name, attribute in schema.attributes.items():
            if attribute.type.name in ("STRING", "STRINGS"):
                assert (schema.domain, schema.name, name) in CHOICES or name in FREE, (schema.name, name)


def test_the_table_has_the_words_of_the_schemas():
    texts: dict = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        for name, attribute in schema.attributes.items():
            key = schema.domain, schema.name, name
            texts[key] = f"{texts.get(key, '')} {attribute.description} {schema.doc}"
    for key, values in CHOICES.items():
        for value in values:
            assert str(value) in texts[key], (key, value)


@pytest.mark.parametrize("nested", ["graph", "function", "body"])
def test_misspelt_ways_are_refused(nested):
    wrong = [
        helper.make_node("DepthToSpace", ["v"], ["w"], blocksize=1, mode="CDR"),
        helper.make_node("LSTM", ["v", "v", "v"], ["w"], hidden_size=1, direction="backward"),
        helper.make_node("SoftmaxCrossEntropyLoss", ["v", "v"], ["w"], reduction="avg"),
        helper.make_node("AveragePool", ["v"], ["w"], kernel_shape=[1], auto_pad="SAME"),
        helper.make_node("ScatterND", ["v", "v", "v"], ["w"], reduction="sum"),
        helper.make_node("SVMRegressor", ["v"], ["w"], domain=ML, kernel_type="rbf"),
        helper.make_node("RNN", ["v", "v", "v"], ["w"], hidden_size=1, layout=2),
    ]
    for node in wrong:
        name = next(a.name for a in node.attribute if (node.domain, node.op_type, a.name) in CHOICES)
        if nested == "graph":
            nodes, functions = (
                [helper.make_node("Identity", ["x"], ["v"]), node, helper.make_node("Neg", ["w"], ["y"])],
                [],
            )
        elif nested == "function":
            functions = [helper.make_function("mine", "F", ["v"], ["w"], [node],
                                              [helper.make_opsetid("", 21), helper.make_opsetid(ML, 3)])]  # fmt: skip
            nodes = [helper.make_node("F", ["x"], ["y"], domain="mine")]
        else:
            body = helper.make_graph([node, helper.make_node("Identity", ["c"], ["d"])], "body",
                                     [onnx.ValueInfoProto(name=n) for n in ("k", "c", "v")],
                                     [onnx.ValueInfoProto(name=n) for n in ("d", "w")])  # fmt: skip
            nodes, functions = [helper.make_node("Loop", ["", "go", "x"], ["y"], body=body)], []
        made = model(nodes, initializers=[("go", np.array(False))], functions=functions)
        with pytest.raises(hl.errors.AttributeValueError, match=f"{name}=") as caught:
            hl.onnx.load(made)
        allowed = CHOICES[node.domain, node.op_type, name]
        assert all(repr(value) in caught.value.repair for value in allowed)


def test_ways_that_a_caller_gives_a_function_are_checked():
    inner = helper.make_node("Pad", ["v", "p"], ["w"])
    inner.attribute.append(onnx.AttributeProto(name="mode", ref_attr_name="how", type=onnx.AttributeProto.STRING))
    function = helper.make_function("mine", "F", ["v", "p"], ["w"], [inner], [helper.make_opsetid("", 21)], ["how"])
    pads = [("p", np.array([0, 1, 0, 0]))]
    for how in ("edge", "egde"):
        calls = [helper.make_node("F", ["x", "p"], ["h"], domain="mine", how="constant"),
                 helper.make_node("F", ["h", "p"], ["y"], domain="mine", how=how)]  # fmt: skip
        made = model(calls, initializers=pads, functions=[function])
        if how == "edge":
            assert hl.onnx.load(made)(X).shape == (2, 5)
            continue
        with pytest.raises(hl.errors.AttributeValueError, match="mode='egde'"):
            hl.onnx.load(made)(X)
