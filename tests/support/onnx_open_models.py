"""Small models whose inputs have names for sizes, as exporters write them: shapes are computed by nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx import numpy_helper as nph

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
END = np.iinfo(np.int64).max  # what exporters write for the end of an axis


class Maker:
    """Makes a graph node by node; a value is called by what makes it."""

    def __init__(self) -> None:
        self.nodes: list = []
        self.weights: list = []
        self._constants: dict[tuple, str] = {}
        self._random = np.random.default_rng(0)

    def __call__(self, op: str, *inputs: str, outputs: int = 1, **attributes) -> Any:
        names = [f"{op.lower()}_{len(self.nodes)}" + (f"_{k}" if outputs > 1 else "") for k in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=f"node_{len(self.nodes)}", **attributes))
        return names[0] if outputs == 1 else names

    def weight(self, *shape: int) -> str:
        name = f"weight_{len(self.weights)}"
        array = self._random.standard_normal(shape).astype(np.float32) / max(1, shape[0]) ** 0.5
        self.weights.append(nph.from_array(array, name))
        return name

    def constant(self, value, dtype=np.int64) -> str:
        array = np.asarray(value, dtype)
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._constants:
            self._constants[key] = f"constant_{len(self._constants)}"
            self.weights.append(nph.from_array(array, self._constants[key]))
        return self._constants[key]

    def size(self, x: str, axis: int) -> str:
        """The size of an axis, of one element."""
        return self("Gather", self("Shape", x), self.constant([axis]))

    def shape(self, *sizes: str | int) -> str:
        """A vector of sizes."""
        return self("Concat", *[s if isinstance(s, str) else self.constant([s]) for s in sizes], axis=0)

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        return self("Add", self("MatMul", x, self.weight(inputs, outputs)), self.weight(outputs))

    def norm(self, x: str, features: int) -> str:
        one = self.constant(np.ones(features), np.float32)
        return self("LayerNormalization", x, one, self.constant(np.zeros(features), np.float32), axis=-1)

    def expanded(self, x: str, shape: str, rank: int) -> str:
        """As torch exports expand: -1 in a target keeps a size."""
        ones = self("ConstantOfShape", self.constant([rank]), value=nph.from_array(np.ones(1, np.int64)))
        kept = self("Mul", ones, self.constant(-1))
        return self("Expand", x, self("Where", self("Equal", shape, kept), ones, shape))

    def model(self, inputs: Sequence[tuple], outputs: Sequence[str], opset: int = 18):
        """inputs: (name, type, dimensions)."""
        ports = [helper.make_tensor_value_info(name, kind, dims) for name, kind, dims in inputs]
        results = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
        for port in results:
            port.ClearField("type")
        graph = helper.make_graph(self.nodes, "test", ports, results, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def encoder(features: int = 16, heads: int = 2, layers: int = 2, words: int = 50, longest: int = 64):
    """An encoder of tokens (batch, sequence) with a mask, as BERT is."""
    n, depth = Maker(), features // heads
    batch, length = n.size("ids", 0), n.size("ids", 1)
    places = n("Slice", n.constant(np.arange(longest)[None]), n.constant([0]), length, n.constant([1]), n.constant([1]))
    x = n("Add", n("Gather", n.weight(words, features), "ids"), n("Gather", n.weight(longest, features), places))
    mask = n("Unsqueeze", n("Unsqueeze", "mask", n.constant([1])), n.constant([1]))
    mask = n.expanded(mask, n.shape(batch, -1, length, length), 4)
    hidden = n("Sub", n.constant(1, np.float32), n("Cast", mask, to=FLOAT))
    bias = n("Where", n("Cast", hidden, to=BOOL), n.constant(-1e9, np.float32), hidden)
    for _ in range(layers):
        parts = []
        for _ in range(3):
            split = n("Reshape", n.dense(x, features, features), n.shape(batch, length, heads, depth))
            parts.append(n("Transpose", split, perm=[0, 2, 1, 3]))
        q, k, v = parts
        scores = n("Div", n("MatMul", q, n("Transpose", k, perm=[0, 1, 3, 2])), n.constant(depth**0.5, np.float32))
        mixed = n("MatMul", n("Softmax", n("Add", scores, bias), axis=-1), v)
        mixed = n("Reshape", n("Transpose", mixed, perm=[0, 2, 1, 3]), n.shape(batch, length, features))
        x = n.norm(n("Add", x, n.dense(mixed, features, features)), features)
        x = n.norm(
            n("Add", x, n.dense(n("Relu", n.dense(x, features, 2 * features)), 2 * features, features)), features
        )
    axes = ["batch", "sequence"]
    return n.model([("ids", INT64, axes), ("mask", INT64, axes)], [x])


def decoder(features: int = 16, heads: int = 2, layers: int = 2, words: int = 50, longest: int = 128):
    """A decoder of tokens (batch, sequence) behind past ones, whose keys and values are inputs, as GPT is."""
    n, depth = Maker(), features // heads
    batch, length, past = n.size("ids", 0), n.size("ids", 1), n.size("past_0", 2)
    total = n("Add", length, past)
    first, last = (n("Squeeze", value, n.constant([0])) for value in (past, total))
    places = n("Range", first, last, n.constant(1))
    x = n("Add", n("Gather", n.weight(words, features), "ids"), n("Gather", n.weight(longest, features), places))
    every = n("Range", n.constant(0), last, n.constant(1))
    seen = n("LessOrEqual", n("Unsqueeze", every, n.constant([0])), n("Unsqueeze", places, n.constant([1])))
    present = []
    for layer in range(layers):
        joined = n.dense(n.norm(x, features), features, 3 * features)
        parts = n("Split", joined, n.constant([features] * 3), outputs=3, axis=2)
        q, k, v = (
            n("Transpose", n("Reshape", part, n.shape(batch, -1, heads, depth)), perm=[0, 2, 1, 3]) for part in parts
        )
        k = n("Concat", f"past_{2 * layer}", k, axis=2)
        v = n("Concat", f"past_{2 * layer + 1}", v, axis=2)
        present += [k, v]
        scores = n("Div", n("MatMul", q, n("Transpose", k, perm=[0, 1, 3, 2])), n.constant(depth**0.5, np.float32))
        weights = n("Softmax", n("Where", seen, scores, n.constant(-1e9, np.float32)), axis=-1)
        mixed = n("Transpose", n("MatMul", weights, v), perm=[0, 2, 1, 3])
        x = n("Add", x, n.dense(n("Reshape", mixed, n.shape(batch, length, features)), features, features))
        x = n(
            "Add", x, n.dense(n("Relu", n.dense(n.norm(x, features), features, 2 * features)), 2 * features, features)
        )
    logits = n("MatMul", x, n.weight(features, words))
    inputs = [("ids", INT64, ["batch", "sequence"])]
    inputs += [(f"past_{k}", FLOAT, ["batch", heads, "past", depth]) for k in range(2 * layers)]
    return n.model(inputs, [logits, *present])


def images(opset: int = 18):
    """A network of images (batch, 3, 8, 8)."""
    n = Maker()
    x = n("Relu", n("Conv", "x", n.weight(4, 3, 3, 3), n.weight(4), pads=[1] * 4))
    x = n("GlobalAveragePool", n("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
    x = n("Reshape", x, n.shape(n.size(x, 0), -1))
    return n.model([("x", FLOAT, ["batch", 3, 8, 8])], [n.dense(x, 4, 5)], opset)


def recurrent(hidden: int = 4):
    """An LSTM in both directions over tokens (batch, sequence), whose first states have the batch of the input."""
    n = Maker()
    x = n("Transpose", n("Gather", n.weight(20, 3), "ids"), perm=[1, 0, 2])
    state = n.expanded(n.constant(np.zeros((2, 1, hidden)), np.float32), n.shape(2, n.size("ids", 0), hidden), 3)
    y, last, _ = n("LSTM", x, n.weight(2, 4 * hidden, 3), n.weight(2, 4 * hidden, hidden), n.weight(2, 8 * hidden), "",
                   state, state, hidden_size=hidden, direction="bidirectional", outputs=3)  # fmt: skip
    y = n("Reshape", n("Transpose", y, perm=[2, 0, 1, 3]), n.constant([0, 0, -1]))
    return n.model([("ids", INT64, ["batch", "sequence"])], [n.dense(y, 2 * hidden, 3), last])


def made(function: Callable[[Maker], str | Sequence[str]], *inputs: tuple, opset: int = 18):
    """The model of what a function makes."""
    n = Maker()
    outputs = function(n)
    return n.model(inputs, [outputs] if isinstance(outputs, str) else outputs, opset)
