"""Open issues of ONNX Runtime (github.com/microsoft/onnxruntime) as tests that hloom does right."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import hloom as hl

onnx = pytest.importorskip("onnx")


def _run(nodes, inputs: dict, outputs: dict, constants: dict, opset: int = 18):
    """The results of a model of these nodes. outputs: name -> rank."""
    helper, types = onnx.helper, onnx.TensorProto
    kinds = {np.dtype(np.float32): types.FLOAT, np.dtype(np.int64): types.INT64}
    graph = helper.make_graph(
        [helper.make_node(*n[:3], **(n[3] if len(n) > 3 else {})) for n in nodes],
        "graph",
        [helper.make_tensor_value_info(n, kinds[v.dtype], v.shape) for n, v in inputs.items()],
        [helper.make_tensor_value_info(n, types.FLOAT, [f"{n}{k}" for k in range(r)]) for n, r in outputs.items()],
        [onnx.numpy_helper.from_array(v, n) for n, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    onnx.checker.check_model(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hl.errors.DataDependentWarning)
        found = hl.onnx.load(model)(**inputs)
    return np.asarray(found[0] if isinstance(found, (tuple, list)) else found)


@pytest.mark.parametrize(("extent", "target"), [(26, 64), (13, 32), (7, 1000), (1000, 7)])
def test_nearest_elements_of_a_resize_by_sizes(extent, target):
    """onnxruntime#12098: `Resize` to given sizes rounds their quotient, and takes the element before where a position
    is a whole number. hloom's positions are exact. Seen in onnxruntime 1.32.0: 26 to 64, element 32."""
    mode = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    x = np.arange(extent, dtype=np.float32).reshape(1, 1, extent)
    sizes = np.array([1, 1, target])
    got = _run([("Resize", ["x", "", "", "sizes"], ["y"], mode)], {"x": x}, {"y": 3}, {"sizes": sizes})
    np.testing.assert_array_equal(got.ravel(), [k * extent // target for k in range(target)])


def test_a_cast_to_the_same_type_before_a_quotient():
    """onnxruntime#32416: a Cast to the type that its operand has, before a product with a quotient of one, leaves a
    graph whose input is missing, and the model is refused. hloom computes it. Seen in onnxruntime 1.32.0."""
    nodes = [
        ("Cast", ["x"], ["cast"], {"to": onnx.TensorProto.FLOAT}),
        ("Div", ["one", "z"], ["inverse"]),
        ("Mul", ["cast", "inverse"], ["y"]),
    ]
    x, z = np.arange(3, dtype=np.float32), np.array([1, 2, 4], np.float32)
    np.testing.assert_array_equal(_run(nodes, {"x": x, "z": z}, {"y": 1}, {"one": np.ones((), np.float32)}), x / z)


def test_a_reshape_whose_shape_is_reshaped():
    """onnxruntime#32105: a Reshape of what is another's shape is fused with that one, as if it were its data, and the
    model is refused. hloom computes it. Seen in onnxruntime 1.32.0."""
    nodes = [("Reshape", ["sizes", "flat"], ["shape"]), ("Reshape", ["x", "shape"], ["y"])]
    x, sizes = np.arange(4, dtype=np.float32), np.array([[2, 2]])
    got = _run(nodes, {"x": x, "sizes": sizes}, {"y": 2}, {"flat": np.array([2])}, opset=21)
    np.testing.assert_array_equal(got, x.reshape(2, 2))
