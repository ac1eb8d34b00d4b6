"""Loaded ONNX models: calls, names, shapes, gradients, errors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from onnx import numpy_helper as nph  # noqa: E402

import hloom as hl  # noqa: E402
import hloom.numpy as hnp  # noqa: E402

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def tensor(name, shape=None, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, initializers=(), functions=(), opsets=(("", 21),)):
    graph = helper.make_graph(nodes, "test", inputs, outputs, [nph.from_array(v, n) for n, v in initializers])
    imports = [helper.make_opsetid(*o) for o in opsets]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)


def layer():
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    return model(
        [helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="product"), helper.make_node("Relu", ["h"], ["y"])],
        [tensor("x", ["batch", 3])],
        [tensor("y", ["batch", 2])],
        [("w", w), ("b", np.array([-5, 1], np.float32))],
    )


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)


def expected(x):
    return np.maximum(x @ np.arange(6, dtype=np.float32).reshape(3, 2) + [-5, 1], 0)


def test_a_model_is_called_by_position_and_by_name(tmp_path, x):
    path = tmp_path / "layer.onnx"
    onnx.save(layer(), path)
    for source in (path, str(path), path.read_bytes(), path.open("rb"), layer()):
        loaded = hl.onnx.load(source)
        np.testing.assert_allclose(loaded(x), expected(x), rtol=1e-5)
    np.testing.assert_allclose(loaded(x=x[:2].tolist()), expected(x[:2]), rtol=1e-5)
    assert repr(loaded.inputs) == "(x: float32[batch,3],)" and loaded.outputs[0].shape == ("batch", 2)
    assert set(loaded.params) == {"w", "b"} and "Gemm" in loaded.as_text()
    assert "dot" in loaded.lower(x).as_text()


def test_several_outputs_have_names(x):
    loaded = hl.onnx.load(
        model(
            [helper.make_node("Split", ["x"], ["a", "b/1"], num_outputs=2)],
            [tensor("x", [4, 3])],
            [tensor("a"), tensor("b/1")],
        )  # fmt: skip
    )
    outputs = loaded(x)
    first, second = outputs
    assert outputs.names == ("a", "b/1") and outputs["b/1"] is second and outputs.as_dict()["a"] is first
    np.testing.assert_array_equal(second, x[2:])
    again = hl.jit(lambda x: loaded(x))(x)
    np.testing.assert_array_equal(again["a"], x[:2])
    with pytest.raises(KeyError, match="no output"):
        outputs["c"]


def test_models_differentiate_with_respect_to_weights_and_inputs(x):
    loaded = hl.onnx.load(layer())

    def loss(params):
        return hnp.sum(loaded.function(params, [x]) ** 2)

    gradient = hl.grad(loss)(loaded.params)
    y = expected(x)
    np.testing.assert_allclose(gradient["w"], x.T @ (2 * y), rtol=1e-4)
    by_input = hl.grad(lambda x: hnp.sum(loaded(x)))(hnp.asarray(x))
    np.testing.assert_allclose(by_input, (y > 0) @ np.arange(6).reshape(3, 2).T.astype(np.float32), rtol=1e-5)
    loaded.params["b"] = loaded.params["b"] + 100
    assert np.asarray(loaded(x)).min() > 50


def test_shapes_are_computed_while_tracing(x):
    loaded = hl.onnx.load(
        model(
            [
                helper.make_node("Shape", ["x"], ["s"]),
                helper.make_node("Gather", ["s", "zero"], ["n"]),
                helper.make_node("Concat", ["n", "rest"], ["t"], axis=0),
                helper.make_node("Reshape", ["x", "t"], ["y"]),
            ],
            [tensor("x", ["n", "k", 2])],
            [tensor("y")],
            [("zero", np.array([0])), ("rest", np.array([-1]))],
        )
    )
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert loaded(np.zeros((2, 3, 2), np.float32)).shape == (2, 6)
        assert loaded(np.zeros((5, 1, 2), np.float32)).shape == (5, 2)
    assert not warned
    assert "reshape" in loaded.lower(np.zeros((2, 3, 2), np.float32)).as_text()


def test_few_numbers_that_decide_shapes_compile_a_program_each(x):
    loaded = hl.onnx.load(
        model(
            [helper.make_node("Add", ["x", "x"], ["z"]), helper.make_node("Reshape", ["z", "t"], ["y"])],
            [tensor("x", [4, 3]), tensor("t", [2], INT64)],
            [tensor("y")],
        )  # fmt: skip
    )
    with pytest.warns(hl.errors.DataDependentWarning, match="compiled for the values of 't'"):
        assert loaded(x, np.array([6, 2])).shape == (6, 2)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        np.testing.assert_array_equal(loaded(x, np.array([2, -1])), (x + x).reshape(2, 6))
    assert not warned
    with pytest.raises(hl.errors.ConcretizationTypeError):
        hl.jit(loaded)(x, np.array([6, 2]))


def test_nodes_whose_results_depend_on_numbers_run_by_themselves(x):
    loaded = hl.onnx.load(
        model(
            [
                helper.make_node("Relu", ["x"], ["z"]),
                helper.make_node("NonZero", ["z"], ["places"]),
                helper.make_node("Transpose", ["places"], ["rows"]),
                helper.make_node("GatherND", ["x", "rows"], ["y"]),
            ],
            [tensor("x", [4, 3])],
            [tensor("y")],
        )
    )
    with pytest.warns(hl.errors.DataDependentWarning, match="NonZero 'places'.* by itself"):
        np.testing.assert_array_equal(loaded(x), x[x > 0])
    np.testing.assert_array_equal(loaded(-x), -x[x < 0])


def test_control_flow_is_compiled(x):
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["c1"]),
            helper.make_node("Mul", ["s", "factor"], ["s1"]),
            helper.make_node("Identity", ["s1"], ["row"]),
        ],
        "body",
        [tensor("k", [], INT64), tensor("c", [], TensorProto.BOOL), tensor("s", [4, 3])],
        [tensor("c1", [], TensorProto.BOOL), tensor("s1", [4, 3]), tensor("row", [4, 3])],
    )
    loop = model(
        [helper.make_node("Loop", ["n", "", "x"], ["last", "rows"], body=body)],
        [tensor("x", [4, 3])],
        [tensor("last"), tensor("rows")],
        [("n", np.array(20)), ("factor", np.array(1.5, np.float32))],
    )
    loaded = hl.onnx.load(loop)
    last, rows = loaded(x)
    np.testing.assert_allclose(last, x * 1.5**20, rtol=1e-5)
    assert rows.shape == (20, 4, 3) and "while" in loaded.lower(x).as_text() + str(loaded.lower(x).compile().as_text())
    branches = [
        helper.make_graph([helper.make_node(op, ["x"], [f"{op}_y"])], op, [], [tensor(f"{op}_y")])
        for op in ("Exp", "Neg")
    ]
    choice = hl.onnx.load(
        model(
            [helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])],
            [tensor("x", [4, 3]), tensor("c", [], TensorProto.BOOL)],
            [tensor("y")],
        )  # fmt: skip
    )
    np.testing.assert_allclose(choice(x, np.array(True)), np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(choice(x, False), -x)
    assert "conditional" in choice.lower(x, True).as_text()


def test_functions_of_the_model_are_expanded(x):
    function = helper.make_function(
        "mine", "Shifted", ["v"], ["r"], [
            helper.make_node("Constant", [], ["c"], value_float=0.0),
            helper.make_node("Add", ["v", "c"], ["r"]),
        ], [helper.make_opsetid("", 21)], ["by"],
    )  # fmt: skip
    function.node[0].attribute[0].ref_attr_name = "by"
    node = helper.make_node("Shifted", ["x"], ["y"], domain="mine", by=2.5)
    made = model([node], [tensor("x", [4, 3])], [tensor("y")], functions=[function], opsets=[("", 21), ("mine", 1)])
    np.testing.assert_allclose(hl.onnx.load(made)(x), x + 2.5)


def test_strings_run_on_the_host():
    made = model([helper.make_node("StringConcat", ["a", "b"], ["y"])], [tensor("a", ["n"], TensorProto.STRING)] * 1
                 + [tensor("b", ["n"], TensorProto.STRING)], [tensor("y", ["n"], TensorProto.STRING)])  # fmt: skip
    loaded = hl.onnx.load(made)
    assert loaded(np.array(["a", "b"]), np.array(["x", "y"], object)).tolist() == ["ax", "by"]
    with pytest.raises(hl.errors.DTypeError, match="array of strings"):
        loaded(np.zeros(2), np.zeros(2))


def test_indices_out_of_range_give_nan(x):
    for op, indices in (("Gather", [-1, 9]), ("GatherElements", [-1, 9]), ("GatherND", [[-1], [9]])):
        node = helper.make_node(op, ["x", "i"], ["y"])
        loaded = hl.onnx.load(model([node], [tensor("x", [3]), tensor("i", None, INT64)], [tensor("y")]))
        np.testing.assert_array_equal(loaded(np.arange(3, dtype=np.float32), np.array(indices)), [2, np.nan])


def test_training_of_old_opsets_is_refused(x):
    for node in (
        helper.make_node("Dropout", ["x"], ["y"], is_test=0),
        helper.make_node("BatchNormalization", ["x", "s", "s", "s", "s"], ["y"], is_test=0),
    ):
        made = model([node], [tensor("x", [4, 3])], [tensor("y")], [("s", np.ones(3, np.float32))], opsets=[("", 6)])
        with pytest.raises(hl.errors.UnsupportedError, match="training"):
            hl.onnx.load(made)(x)


def test_models_are_batched(x):
    loaded = hl.onnx.load(layer())
    np.testing.assert_allclose(hl.vmap(loaded)(np.stack([x, -x]))[1], expected(-x), rtol=1e-5)


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_wrong_inputs_are_named(x):
    loaded = hl.onnx.load(layer())
    for arguments, names, error, text in (
        ((), {}, hl.errors.ArgumentError, "no value for 'x'"),
        ((x, x), {}, hl.errors.ArgumentError, "2 arguments by position"),
        ((x,), {"x": x}, hl.errors.ArgumentError, "by position and by name"),
        ((x,), {"z": x}, hl.errors.ArgumentError, "an input called 'z'"),
        ((x[0],), {}, hl.errors.ShapeError, "2 axes"),
        ((x[:, :2],), {}, hl.errors.ShapeError, "axis 1 has size 3"),
        ((x.astype(np.float64),), {}, hl.errors.DTypeError, "astype.'float32'"),
        (("text",), {}, hl.errors.ArgumentError, "pass an array"),
    ):
        with pytest.raises(error, match=text) as caught:
            loaded(*arguments, **names)
        assert caught.value.repair and caught.value.found and "test_onnx_models.py" in str(caught.value)
    pair = hl.onnx.load(model([helper.make_node("Add", ["a", "b"], ["y"])], [tensor("a", ["n"]), tensor("b", ["n"])],
                              [tensor("y")]))  # fmt: skip
    with pytest.raises(hl.errors.ShapeError, match="n = 2 in 'a'"):
        pair(np.zeros(2, np.float32), np.zeros(3, np.float32))


def test_all_missing_ops_are_listed():
    made = model(
        [
            helper.make_node("First", ["x"], ["a"], name="one", domain="custom"),
            helper.make_node("First", ["a"], ["b"], name="two", domain="custom"),
            helper.make_node("Other", ["b"], ["y"], domain="custom"),
        ],
        [tensor("x", [3])], [tensor("y")], opsets=[("", 21), ("custom", 1)],
    )  # fmt: skip
    with pytest.raises(hl.errors.UnsupportedError) as caught:
        hl.onnx.load(made)
    assert "custom.First (1) at 'one', 'two'; custom.Other (1) at 'y'" in str(caught.value)


def test_missing_and_damaged_files(tmp_path):
    with pytest.raises(hl.errors.MissingFileError, match="absent.onnx"):
        hl.onnx.load(tmp_path / "absent.onnx")
    good = layer().SerializeToString()
    for content in (b"", b"not a model", good[: len(good) // 2], bytes(100), good[:40] + b"\xff" * 20 + good[60:]):
        (tmp_path / "bad.onnx").write_bytes(content)
        with pytest.raises(hl.errors.FileError) as caught:
            hl.onnx.load(tmp_path / "bad.onnx")
        assert caught.value.repair
    with pytest.raises(hl.errors.FileError, match="pass a path"):
        hl.onnx.load(3)


def test_tensors_whose_size_is_wrong_are_refused_before_memory_is_taken():
    for dims, raw in (((1 << 40,), b"1234"), ((2, -1), b""), ((3,), b"12345678")):
        made = layer()
        del made.graph.initializer[1].dims[:]
        made.graph.initializer[1].dims.extend(dims)
        made.graph.initializer[1].raw_data = raw
        with pytest.raises(hl.errors.FileError, match="tensor 'b'"):
            hl.onnx.load(made)
    made = layer()
    made.graph.initializer[1].ClearField("raw_data")
    with pytest.raises(hl.errors.FileError, match="0 numbers"):
        hl.onnx.load(made)


def test_external_data_stay_in_the_folder_of_the_model(tmp_path, x):
    folder = tmp_path / "model"
    folder.mkdir()
    onnx.save(layer(), folder / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    np.testing.assert_allclose(hl.onnx.load(folder / "m.onnx")(x), expected(x), rtol=1e-5)
    (tmp_path / "weights.bin").write_bytes((folder / "weights.bin").read_bytes())
    (folder / "link.bin").symlink_to(tmp_path / "weights.bin")
    proto = onnx.load(folder / "m.onnx", load_external_data=False)
    for location in ("../weights.bin", str(tmp_path / "weights.bin"), "link.bin", "", "absent.bin", "."):
        for initializer in proto.graph.initializer:
            for entry in initializer.external_data:
                if entry.key == "location":
                    entry.value = location
        (folder / "bad.onnx").write_bytes(proto.SerializeToString())
        with pytest.raises(hl.errors.FileError):
            hl.onnx.load(folder / "bad.onnx")
    with pytest.raises(hl.errors.FileError, match="without a folder"):
        hl.onnx.load(proto)


def test_graphs_that_make_no_sense_are_refused():
    def refused(made, text):
        with pytest.raises(hl.errors.FileError, match=text):
            hl.onnx.load(made)

    node = helper.make_node("Relu", ["missing"], ["y"], name="r")
    refused(model([node], [tensor("x", [3])], [tensor("y")]), "Relu 'r' reads 'missing'")
    twice = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"])]
    refused(model(twice, [tensor("x", [3])], [tensor("y")]), "a second time")
    refused(model([helper.make_node("Relu", ["x"], ["z"])], [tensor("x", [3])], [tensor("y")]), "the output 'y'")


def test_nodes_that_do_not_fit_their_schemas_are_refused():
    ports = [tensor("x", [3])], [tensor("y")]
    for node, text in (
        (helper.make_node("Relu", ["x", "x"], ["y"]), "2 inputs"),
        (helper.make_node("Relu", ["x"], ["y", "z"]), "2 outputs"),
        (helper.make_node("Cast", ["x"], ["y"]), "no attribute 'to'"),
        (helper.make_node("Cast", ["x"], ["y"], to="f"), "'to' of kind"),
    ):
        with pytest.raises(hl.errors.FileError, match=text):
            hl.onnx.load(model([node], *ports))
    few = helper.make_node("Split", ["x"], ["y", "b", "c", "d"], num_outputs=3)
    with pytest.raises(hl.errors.HloomError, match="Split 'y'"):
        hl.onnx.load(model([few], *ports))(np.zeros(3, np.float32))


def test_changed_bytes_end_in_errors_of_hloom(x):
    random = np.random.default_rng(1)
    good = layer().SerializeToString()
    for _ in range(300):
        content = bytearray(good)
        for place in random.integers(0, len(good), random.integers(1, 4)):
            content[place] = random.integers(0, 256)
        try:
            hl.onnx.load(bytes(content))(x)
        except hl.errors.HloomError as error:
            assert error.asked and error.repair


def test_a_model_without_nodes_returns_its_inputs(x):
    loaded = hl.onnx.load(model([], [tensor("x", [4, 3])], [tensor("x", [4, 3]), tensor("w")], [("w", x)]))
    np.testing.assert_array_equal(loaded(x)["w"], x)
    np.testing.assert_array_equal(loaded(x)[0], x)


def test_threads_call_one_model():
    from concurrent.futures import ThreadPoolExecutor

    loaded = hl.onnx.load(layer())
    inputs = [np.full((1 + k % 5, 3), k, np.float32) for k in range(40)]
    with ThreadPoolExecutor(4) as pool:
        for x, y in zip(inputs, pool.map(loaded, inputs), strict=True):
            np.testing.assert_allclose(y, expected(x), rtol=1e-5)


def test_huge_results_are_an_error():
    made = model([helper.make_node("ConstantOfShape", ["s"], ["y"])], [], [tensor("y")], [("s", np.array([1 << 50]))])
    with pytest.raises(hl.errors.HloomError):
        hl.onnx.load(made)()


def test_errors_name_the_node(x):
    made = model(
        [helper.make_node("MatMul", ["x", "x"], ["y"], name="square")], [tensor("x", ["n", "k"])], [tensor("y")]
    )
    with pytest.raises(hl.errors.ShapeError) as caught:
        hl.onnx.load(made)(x)
    assert any("MatMul 'square'" in note for note in caught.value.__notes__)


def test_the_command_runs_a_model(tmp_path, x, capsys):
    from hloom.commands import main

    onnx.save(layer(), tmp_path / "layer.onnx")
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "out.npz"
    assert main(["run", str(tmp_path / "layer.onnx"), "--inputs", f"x={tmp_path / 'x.npy'}", "--output", str(out)]) == 0
    np.testing.assert_allclose(np.load(out)["y"], expected(x), rtol=1e-5)
    assert main(["run", str(tmp_path / "layer.onnx"), "--random", "1", "--time", "--source"]) == 0
    printed = capsys.readouterr()
    assert "# y: f32[1,2]" in printed.out and "def " in printed.out and "# run" in printed.err
    assert main(["run", str(tmp_path / "layer.onnx"), "--inputs", "a.npy", "b.npy"]) == 2
    assert "hloom run: " in capsys.readouterr().err


def test_a_call_like_an_earlier_one_is_not_looked_at_again(x, monkeypatch):
    """Dtypes and shapes decide that; other weights take effect all the same."""
    loaded = hl.onnx.load(layer())
    loaded(x)
    looked = []
    arguments = loaded._arguments
    monkeypatch.setattr(loaded, "_arguments", lambda *a: looked.append(a) or arguments(*a))
    for call in (lambda: loaded(x), lambda: loaded(x=x.copy()), lambda: loaded(np.asfortranarray(x))):
        np.testing.assert_allclose(call(), expected(x), rtol=1e-5)
    np.testing.assert_allclose(loaded(hnp.asarray(x)), expected(x), rtol=1e-5)
    np.testing.assert_allclose(loaded(hnp.asarray(x)), expected(x), rtol=1e-5)
    assert len(looked) == 1  # an Array, where it was a NumPy array before
    loaded.params["b"] = np.array([3, 4], np.float32)
    other = np.maximum(x @ np.arange(6).reshape(3, 2) + [3, 4], 0)
    np.testing.assert_allclose(loaded(x), other, rtol=1e-5)
    with pytest.raises(hl.errors.DTypeError, match="float64"):
        loaded(x.astype(np.float64))
    with pytest.raises(hl.errors.ShapeError):
        loaded(x[:, :2])
    with pytest.raises(hl.errors.ArgumentError, match="no value for 'x'"):
        loaded()
    np.testing.assert_allclose(hl.jit(loaded)(x), loaded(x), rtol=1e-6)


def test_calls_of_several_programs_are_looked_at_once(x, monkeypatch):
    """The arguments are arrays from the first program on; an output that is an input is the caller's own."""
    nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("NonZero", ["a"], ["n"]),
             helper.make_node("Transpose", ["n"], ["t"]), helper.make_node("GatherND", ["x", "t"], ["y"])]  # fmt: skip
    loaded = hl.onnx.load(model(nodes, [tensor("x", ["n", 3])], [tensor("y"), tensor("x")]))
    x[0] = 0
    with pytest.warns(hl.errors.DataDependentWarning):
        loaded(x)
    monkeypatch.setattr(loaded, "_arguments", None)
    for value in (x.copy(), x):
        y, same = loaded(value)
        np.testing.assert_array_equal(y, value[np.nonzero(value)])
        value[...] = 7
        np.testing.assert_array_equal(same[0], 0)
    monkeypatch.undo()
    with pytest.raises(hl.errors.DTypeError):
        loaded(x.astype(np.float64))


def test_the_values_of_a_program_are_called_as_in_the_model(x):
    weights = [("1", np.ones((3, 3), np.float32)), ("a.b", np.ones(3, np.float32)), ("a/b", np.ones(3, np.float32))]
    nodes = [helper.make_node("Gemm", ["x", "1", "a.b"], ["h"]), helper.make_node("Add", ["h", "a/b"], ["y"])]
    loaded = hl.onnx.load(model(nodes, [tensor("x", ["n", 3])], [tensor("y")], weights))
    np.testing.assert_allclose(loaded(x), x @ np.ones((3, 3)) + 2, rtol=1e-5)
    (plan,) = loaded._program.plans.values()
    text = plan.function.lower(*[loaded.params[n] for n in plan.params], x).as_text()
    assert "%a_b = " in text and "%a_b.1 = " in text
