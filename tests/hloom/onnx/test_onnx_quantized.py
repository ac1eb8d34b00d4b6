"""ONNX's products and convolutions of 8-bit integers, and quantized weights: random ones against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from onnx import numpy_helper as nph  # noqa: E402

import hloom as hl  # noqa: E402
from hloom.compiler.targets.cpu.machine import host  # noqa: E402

KINDS = {"u8": np.uint8, "s8": np.int8}
SIGNS = [(a, b) for a in KINDS for b in KINDS]


def loaded(op, values, weights=(), domain="", **attributes):
    """A model of one node. values: name to array, of which those in `weights` are initializers, others inputs."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(v.dtype) for name, v in values.items() if v is not None}
    node = helper.make_node(op, [name if v is not None else "" for name, v in values.items()], ["y"], domain=domain,
                            **attributes)  # fmt: skip
    graph = helper.make_graph(
        [node],
        "quantized",
        [helper.make_tensor_value_info(n, kinds[n], values[n].shape) for n in kinds if n not in weights],
        [helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)],
        [nph.from_array(values[n], n) for n in kinds if n in weights],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = hl.onnx.load(helper.make_model(graph, opset_imports=imports, ir_version=10))
    return model, {n: values[n] for n in kinds if n not in weights}


def draw(random, kind, shape):
    """8-bit integers of a kind, of which the extremes, whose products are the largest, are many."""
    limits = np.iinfo(kind)
    drawn = random.integers(limits.min, limits.max + 1, shape)
    ends = np.where(random.random(shape) < 0.5, limits.min, limits.max)
    return np.where(random.random(shape) < 0.5, ends, drawn).astype(kind)


def shapes_of(random):
    """Operands of a product: vectors, matrices, batches of either side."""
    m, k, n = (int(x) for x in random.choice([1, 2, 3, 7, 16, 33, 64, 130], 3))
    return [
        ((m, k), (k, n)),
        ((2, m, k), (k, n)),
        ((3, 1, m, k), (2, k, n)),
        ((k,), (k, n)),
        ((m, k), (k,)),
        ((k,), (k,)),
    ][random.integers(6)]


@pytest.mark.parametrize("kinds", SIGNS, ids="-".join)
@pytest.mark.parametrize("seed", range(6))
def test_products_of_bytes_are_exact(kinds, seed):
    random = np.random.default_rng([seed, *map(ord, "".join(kinds))])
    a, b = (draw(random, KINDS[kind], shape) for kind, shape in zip(kinds, shapes_of(random), strict=True))
    rows, columns = a.shape[-2] if a.ndim > 1 else 1, b.shape[-1] if b.ndim > 1 else 1
    a_zero = [None, draw(random, a.dtype, ()), draw(random, a.dtype, (rows,))][random.integers(3)]
    middle = np.full((), 128, np.uint8).astype(b.dtype)
    b_zero = [None, draw(random, b.dtype, ()), draw(random, b.dtype, (columns,)), middle][random.integers(4)]
    if a.ndim > 1 and b.ndim > 1 and a_zero is not None and a_zero.size > 1 and random.random() < 0.5:
        a_zero = draw(random, a.dtype, (*a.shape[:-1], 1))
    weights = [(), ("b", "b_zero"), ("b", "a_zero", "b_zero"), ("a", "a_zero")][random.integers(4)]
    model, inputs = loaded("MatMulInteger", {"a": a, "b": b, "a_zero": a_zero, "b_zero": b_zero}, weights)

    def without(x, zero, axis):
        zero = np.zeros((), np.int64) if zero is None else zero.astype(np.int64)
        return x - (zero.reshape(-1, 1) if zero.ndim == 1 and axis == -2 and x.ndim > 1 else zero)

    wanted = np.matmul(without(a, a_zero, -2), without(b, b_zero, -1)).astype(np.int32)
    found = np.asarray(model(**inputs))
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.asarray(model(**inputs)), wanted)  # of prepared weights


def convolved(x, w, strides, pads, group):
    """The convolution (N, C, H, W) by (M, C / group, h, w) in int64."""
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))[:, :, :: strides[0], :: strides[1]]
    parts = np.split(windows, group, 1), np.split(w, group)
    return np.concatenate([np.einsum("nchwyx,mcyx->nmhw", p, q) for p, q in zip(*parts, strict=True)], 1)


@pytest.mark.parametrize("kinds", SIGNS, ids="-".join)
@pytest.mark.parametrize("seed", range(4))
def test_convolutions_of_bytes_are_exact(kinds, seed):
    random = np.random.default_rng([seed, *map(ord, "".join(kinds))])
    group = int(random.choice([1, 1, 2]))
    taps = tuple(map(int, random.integers(1, 4, 2)))
    channels, features = (group * int(c) for c in random.choice([1, 3, 8, 20], 2))
    x = draw(random, KINDS[kinds[0]], (int(random.integers(1, 3)), channels, 9, 11))
    w = draw(random, KINDS[kinds[1]], (features, channels // group, *taps))
    x_zero = [None, draw(random, x.dtype, ())][random.integers(2)]
    same = np.full((), 128 if w.dtype == np.uint8 else 0, w.dtype)
    w_zero = [None, same, draw(random, w.dtype, ()), draw(random, w.dtype, (features,))][seed]
    weights = [("w", "w_zero"), ("w", "x_zero", "w_zero"), ()][random.integers(3)]
    pads, strides = list(map(int, random.integers(0, 3, 4))), list(map(int, random.integers(1, 3, 2)))
    model, inputs = loaded("ConvInteger", {"x": x, "w": w, "x_zero": x_zero, "w_zero": w_zero}, weights, pads=pads,
                           strides=strides, group=group)  # fmt: skip
    dx = x.astype(np.int64) - (0 if x_zero is None else int(x_zero))
    dw = w.astype(np.int64) - (0 if w_zero is None else w_zero.astype(np.int64).reshape(-1, 1, 1, 1))
    np.testing.assert_array_equal(np.asarray(model(**inputs)), convolved(dx, dw, strides, pads, group))


@pytest.mark.parametrize("weights", [("w",), ("w", "x_zero"), ()], ids=str)
def test_convolutions_with_many_weights(weights):
    """More than are constants of the program."""
    random = np.random.default_rng(0)
    x, w, zero = draw(random, np.uint8, (2, 20, 9, 9)), draw(random, np.int8, (16, 20, 3, 3)), np.array(77, np.uint8)
    model, inputs = loaded("ConvInteger", {"x": x, "w": w, "x_zero": zero}, weights, pads=[1] * 4)
    wanted = convolved(x.astype(np.int64) - 77, w.astype(np.int64), (1, 1), (1,) * 4, 1)
    np.testing.assert_array_equal(np.asarray(model(**inputs)), wanted)


def test_sums_beyond_32_bits_wrap():
    """1 << 16 products of 255 by 255."""
    depth = 1 << 16
    a, b = np.full((2, depth), 255, np.uint8), np.full((depth, 3), 255, np.uint8)
    model, inputs = loaded("MatMulInteger", {"a": a, "b": b, "z": None, "w": np.uint8(3)[None]}, ("b", "w"))
    wanted = np.array(255 * 252 * depth).astype(np.int32)
    np.testing.assert_array_equal(np.asarray(model(**inputs)), np.full((2, 3), wanted))


def packed(integers, bits):
    """Integers (..., count), several in a byte along the last axis, the first in the lowest bits."""
    count = 8 // bits
    missing = -integers.shape[-1] % count
    padded = np.pad(integers, [(0, 0)] * (integers.ndim - 1) + [(0, missing)])
    parts = padded.reshape(*integers.shape[:-1], -1, count) << np.arange(0, 8, bits)
    return parts.sum(-1).astype(np.uint8)


@pytest.mark.parametrize("points", ["none", "packed", "floats"])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("lead", [(1,), (2, 3), (20,), (2, 3, 7)], ids=str)
def test_products_with_weights_of_few_bits(lead, bits, points):
    random = np.random.default_rng([bits, *lead])
    rows, columns, size = 37, int(random.choice([96, 80, 33])), int(random.choice([16, 32]))
    blocks = -(-columns // size)
    whole = random.integers(0, 1 << bits, (rows, blocks, size))
    scales = (random.random((rows, blocks)) + 0.5).astype(np.float32)
    zeros = np.full((rows, blocks), 1 << (bits - 1), np.float32)
    given = None
    if points == "packed":
        drawn = random.integers(0, 1 << bits, (rows, blocks))
        zeros, given = drawn.astype(np.float32), packed(drawn, bits)
    elif points == "floats":
        zeros = given = (random.random((rows, blocks)) * (1 << bits)).astype(np.float32)
    bias = random.standard_normal(rows).astype(np.float32) if bits == 4 else None
    values = {"x": random.standard_normal((*lead, columns)).astype(np.float32), "w": packed(whole, bits),
              "scales": scales.reshape(-1) if points == "none" else scales, "points": given, "group": None,
              "bias": bias}  # fmt: skip
    model, inputs = loaded("MatMulNBits", values, ("w", "scales", "points", "bias"), "com.microsoft", K=columns,
                           N=rows, bits=bits, block_size=size)  # fmt: skip
    weights = ((whole - zeros[..., None]) * scales[..., None].astype(np.float64)).reshape(rows, -1)[:, :columns]
    wanted = values["x"].astype(np.float64) @ weights.T + (0 if bias is None else bias)
    size = np.abs(values["x"]).astype(np.float64) @ np.full((columns, rows), 1.5 * (1 << bits))
    assert np.all(np.abs(np.asarray(model(**inputs)) - wanted) <= 2.0**-22 * size)


def test_the_activations_of_packed_weights_keep_their_type():
    weights, scales = np.full((4, 1, 8), 0x97, np.uint8), np.ones(4, np.float16)
    model, inputs = loaded("MatMulNBits", {"x": np.ones((2, 16), np.float16), "w": weights, "scales": scales},
                           ("w", "scales"), "com.microsoft", K=16, N=4, bits=4, block_size=16)  # fmt: skip
    found = np.asarray(model(**inputs))
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, np.zeros((2, 4)))  # each byte is 7 - 8 and 9 - 8


@pytest.mark.parametrize("changed, error, text", [
    ({"bits": 3}, hl.errors.UnsupportedError, "bits=3"),
    ({"K": 48}, hl.errors.ShapeError, r"pass \[4, 3, 8\]"),
    ({"group": np.zeros(16, np.int32)}, hl.errors.UnsupportedError, "g_idx"),
])  # fmt: skip
def test_packed_weights_that_cannot_be_read_are_refused(changed, error, text):
    attributes = {"K": 16, "N": 4, "bits": 4, "block_size": 16} | {k: v for k, v in changed.items() if k != "group"}
    values = {"x": np.ones((2, 16), np.float32), "w": np.zeros((4, 1, 8), np.uint8), "s": np.ones(4, np.float32),
              "points": None, "group": changed.get("group")}  # fmt: skip
    model, inputs = loaded("MatMulNBits", values, ("w", "s", "group"), "com.microsoft", **attributes)
    with pytest.raises(error, match=text) as found:
        model(**inputs)
    assert "MatMulNBits 'y'" in "".join(found.value.__notes__)


def through_integers(kind, shapes, zeros, scales, axis=1, **attributes):
    """(A model of a node between what DequantizeLinear makes of an input and of weights, the integers, what they stand
    for). zeros, scales: of both."""
    random = np.random.default_rng(3)
    whole = [draw(random, zero.dtype, shape) for zero, shape in zip(zeros, shapes, strict=True)]
    names = ("x", "xs", "xz"), ("w", "ws", "wz")
    nodes = [helper.make_node("DequantizeLinear", list(n), [f"d{n[0]}"], axis=axis) for n in names]
    nodes.append(helper.make_node(kind, ["dx", "dw"], ["y"], **attributes))
    stored = {"w": whole[1], "xs": scales[0], "ws": scales[1], "xz": zeros[0], "wz": zeros[1]}
    graph = helper.make_graph(
        nodes,
        "quantized",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(whole[0].dtype), shapes[0])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [nph.from_array(v, n) for n, v in stored.items()],
    )
    model = hl.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    values = []
    for x, zero, scale in zip(whole, zeros, scales, strict=True):
        at = [-1 if k == axis else 1 for k in range(x.ndim)] if scale.ndim else []
        values.append((x.astype(np.float64) - zero.astype(np.float64).reshape(at)) * scale.reshape(at))
    return model, whole[0], values


FAST = host().multiplies_bytes
F32 = np.float32(0.02)
PER_FEATURE = np.linspace(0.01, 0.03, 16, dtype=np.float32)


def of_type(number, dtype, count=None):
    return np.full(() if count is None else (count,), number, dtype)


@pytest.mark.parametrize("zeros, scales, axis, group, integers", [
    ((of_type(9, np.uint8), of_type(0, np.int8, 16)), (np.array(F32), PER_FEATURE), 0, 1, True),
    ((of_type(-9, np.int8), of_type(0, np.int8)), (np.array(F32), np.array(F32)), 0, 1, True),
    ((of_type(200, np.uint8), of_type(128, np.uint8)), (np.array(F32), np.array(F32)), 0, 1, True),
    ((of_type(9, np.uint8), of_type(5, np.int8)), (np.array(F32), np.array(F32)), 0, 1, False),
    ((of_type(9, np.uint8), of_type(0, np.int8)), (np.array(F32), np.array(F32)), 0, 2, False),
    ((of_type(9, np.uint8, 16), of_type(0, np.int8, 16)), (PER_FEATURE, PER_FEATURE), 1, 1, False),
])  # fmt: skip
def test_convolutions_of_dequantized_integers(zeros, scales, axis, group, integers):
    shapes = (2, 16, 9, 9), (16, 16 // group, 3, 3)
    if axis == 1 and scales[0].ndim:
        shapes = (2, 16, 9, 9), (8, 16, 3, 3)
    options = {"pads": [1] * 4, "strides": [2, 2], "group": group}
    model, x, (dx, dw) = through_integers("Conv", shapes, zeros, scales, axis, **options)
    wanted = convolved(dx, dw, (2, 2), (1,) * 4, group)
    bound = convolved(np.abs(dx), np.abs(dw), (2, 2), (1,) * 4, group)
    assert np.all(np.abs(np.asarray(model(x)) - wanted) <= 2.0**-20 * bound)
    assert has_integer_sums(model, x) == (FAST and integers)


def has_integer_sums(model, x):
    """Whether a dot or convolution of the traced program sums in s32."""
    lines = model.lower(x).as_text().splitlines()
    products = [line for line in lines if " dot(" in line or " convolution(" in line]
    assert products
    return any("= s32[" in line for line in products)


@pytest.mark.parametrize("features, taps", [(8, 3), (7, 3), (8, 9), (3, 1)], ids=str)
def test_convolutions_without_fast_sums_of_integers_are_of_floats(features, taps):
    zeros, scales = (of_type(9, np.uint8), of_type(0, np.int8)), (np.array(F32), np.array(F32))
    shapes = (1, 70, 9, 9), (features, 70, taps, taps)
    model, x, (dx, dw) = through_integers("Conv", shapes, zeros, scales, 0)
    wanted = convolved(dx, dw, (1, 1), (0,) * 4, 1)
    bound = convolved(np.abs(dx), np.abs(dw), (1, 1), (0,) * 4, 1)
    assert np.all(np.abs(np.asarray(model(x)) - wanted) <= 2.0**-20 * bound)
    assert has_integer_sums(model, x) == (FAST and (taps == 1 or (features >= 8 and taps < 8)))


@pytest.mark.parametrize("kind, shapes, axis, attributes, integers", [
    ("MatMul", ((5, 40), (40, 16)), 1, {}, True),
    ("MatMul", ((2, 5, 40), (40, 16)), 1, {}, True),
    ("MatMul", ((5, 16), (16, 30)), 0, {}, False),
    ("Gemm", ((5, 40), (40, 16)), 1, {"alpha": 0.5}, True),
    ("Gemm", ((40, 5), (16, 40)), 0, {"transA": 1, "transB": 1}, True),
    ("Gemm", ((5, 16), (30, 16)), 1, {"transB": 1}, False),
])  # fmt: skip
@pytest.mark.parametrize("zeros", [(of_type(9, np.uint8), 0), (of_type(-3, np.int8), -7)], ids=str)
def test_products_of_dequantized_integers(kind, shapes, axis, attributes, integers, zeros):
    zeros = zeros[0], of_type(zeros[1], np.int8, 16)
    model, x, (dx, dw) = through_integers(kind, shapes, zeros, (np.array(F32), PER_FEATURE), axis, **attributes)
    dx, dw = dx.T if "transA" in attributes else dx, dw.T if "transB" in attributes else dw
    wanted, bound = dx @ dw * attributes.get("alpha", 1), np.abs(dx) @ np.abs(dw)
    assert np.all(np.abs(np.asarray(model(x)) - wanted) <= 2.0**-20 * bound)
    assert has_integer_sums(model, x) == (FAST and integers)


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "also an output"])
@pytest.mark.parametrize("kind", ["int4", "uint4", "int2", "uint2"])
@pytest.mark.parametrize("block", [0, 8])
def test_stored_weights_of_few_bits(kind, block, shared):
    """They are bytes for DequantizeLinear alone, and have the type of the model for others."""
    random = np.random.default_rng(4)
    bits, first = int(kind[-1]), 0 if kind[0] == "u" else -(1 << (int(kind[-1]) - 1))
    whole = random.integers(first, first + (1 << bits), (32, 48))
    zero = random.integers(first, first + (1 << bits), (4, 48) if block else (48,))
    scale = (random.random(zero.shape) + 0.5).astype(np.float32)
    stored = [helper.make_tensor(n, getattr(TensorProto, kind.upper()), v.shape, v.reshape(-1).tolist())
              for n, v in (("w", whole), ("z", zero))]  # fmt: skip
    options = {"axis": 0, "block_size": block} if block else {"axis": 1}
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], **options),
             helper.make_node("MatMul", ["x", "d"], ["y"])]  # fmt: skip
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    if shared:
        nodes.append(helper.make_node("Identity", ["w"], ["v"]))
        outputs.append(helper.make_tensor_value_info("v", getattr(TensorProto, kind.upper()), None))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 32])]
    graph = helper.make_graph(nodes, "stored", inputs, outputs, [*stored, nph.from_array(scale, "s")])
    opset = 25 if bits == 2 else 21
    model = hl.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11))
    assert np.dtype(model.params["w"].dtype).name == (kind if shared else kind.rstrip("24") + "8")
    zeros, scales = (np.repeat(a, block, 0) if block else a for a in (zero, scale))
    x = random.standard_normal((3, 32)).astype(np.float32)
    found = model(x)
    y = np.asarray(found["y"] if shared else found)
    np.testing.assert_allclose(y, x @ ((whole - zeros) * scales), rtol=1e-4, atol=1e-4)
    if shared:
        assert np.dtype(found["v"].dtype).name == kind
        np.testing.assert_array_equal(np.asarray(found["v"]).astype(np.int32), whole)
