"""Networks with integer weights, on hloom and ONNX Runtime: `python -m hloom.benchmarks.onnx_quantized [--only NAME]`.

Each network is written in f32 and with 8-bit or 4-bit weights, as ONNX Runtime's tools write it: dynamically quantized
products, convolutions between QuantizeLinear and DequantizeLinear, MatMulNBits. Steps of hloom's f32, of hloom's and of
ONNX Runtime's integers alternate, with two threads each; the lowest time counts. Prints a table for BRIDGES.md.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hloom.benchmarks.onnx_models import difference, peer, run
from hloom.config import config
from hloom.onnx import load
from hloom.onnx.reader import package

BLOCK = 32  # 4-bit weights that share a scale


class Network:
    """A graph that is written node by node: in f32, or with integer weights. kind: f32, dynamic, qdq or int4."""

    def __init__(self, kind: str, shape: tuple[int, ...]):
        self.kind, self.shape = kind, shape
        self.onnx = package()
        self.random = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def add(self, op: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any) -> Any:
        """A node; the names of its outputs."""
        names = [f"v{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(self.onnx.helper.make_node(op, list(inputs), names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def weight(self, array: Any, dtype: Any = None) -> str:
        """An initializer. dtype: of numbers that are no array."""
        name = f"w{len(self.weights)}"
        self.weights.append(self.onnx.numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def drawn(self, *shape: int) -> np.ndarray:
        return (self.random.standard_normal(shape) / math.sqrt(np.prod(shape[:-1]))).astype(np.float32)

    def product(self, x: str, inputs: int, outputs: int) -> str:
        """x by a weight (inputs, outputs), and a bias."""
        w, bias = self.drawn(inputs, outputs), self.weight(self.drawn(1, outputs)[0])
        if self.kind == "dynamic":
            scale = np.abs(w).max(0) / np.float32(127)
            whole = np.round(w / scale).astype(np.int8)
            q, x_scale, zero = self.add("DynamicQuantizeLinear", x, outputs=3)
            total = self.add("MatMulInteger", q, self.weight(whole), zero, self.weight(np.zeros(outputs, np.int8)))
            scales = self.add("Mul", x_scale, self.weight(scale))
            y = self.add("Mul", self.add("Cast", total, to=self.onnx.TensorProto.FLOAT), scales)
        elif self.kind == "int4":
            blocks = w.T.reshape(outputs, inputs // BLOCK, BLOCK)
            scale = np.abs(blocks).max(-1) / np.float32(7)
            whole = (np.round(blocks / scale[..., None]) + 8).clip(0, 15).astype(np.uint8)
            packed = whole[..., ::2] | whole[..., 1::2] << 4
            y = self.add("MatMulNBits", x, self.weight(packed), self.weight(scale.reshape(-1)), domain="com.microsoft",
                         K=inputs, N=outputs, bits=4, block_size=BLOCK)  # fmt: skip
        else:
            y = self.add("MatMul", x, self.weight(w))
        return self.add("Add", y, bias)

    def rounded(self, x: str, scale: float, zero: int) -> str:
        """x, quantized to u8 and back where the network is."""
        if self.kind != "qdq":
            return x
        how = self.weight(scale, np.float32), self.weight(zero, np.uint8)
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, *how), *how)

    def convolution(self, x: str, inputs: int, outputs: int, size: int, stride: int = 1) -> str:
        """x by a weight of size x size, and a bias."""
        w = self.random.standard_normal((outputs, inputs, size, size)).astype(np.float32)
        w *= np.float32(1 / math.sqrt(inputs * size * size))
        bias = self.random.standard_normal(outputs).astype(np.float32)
        if self.kind == "qdq":
            scale = np.abs(w).max((1, 2, 3)) / np.float32(127)
            whole = np.round(w / scale.reshape(-1, 1, 1, 1)).astype(np.int8)
            zeros = self.weight(np.zeros(outputs, np.int8))
            weight = self.add("DequantizeLinear", self.weight(whole), self.weight(scale), zeros, axis=0)
        else:
            weight = self.weight(w)
        return self.add("Conv", x, weight, self.weight(bias), pads=[size // 2] * 4, strides=[stride] * 2)

    def bytes(self, result: str) -> bytes:
        helper, kind = self.onnx.helper, self.onnx.TensorProto.FLOAT
        inputs = [helper.make_tensor_value_info("x", kind, self.shape)]
        outputs = [helper.make_tensor_value_info(result, kind, None)]
        graph = helper.make_graph(self.nodes, "network", inputs, outputs, self.weights)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def mlp(kind: str, rows: int) -> bytes:
    """784 - 1024 - 1024 - 1024 - 10."""
    net = Network(kind, (rows, 784))
    x, sizes = "x", (784, 1024, 1024, 1024, 10)
    for inputs, outputs in itertools.pairwise(sizes):
        x = net.product(x, inputs, outputs)
        x = net.add("Relu", x) if outputs > 10 else x
    return net.bytes(x)


def encoder(kind: str, rows: int) -> bytes:
    """A layer of a transformer: 384 features, 6 heads, 1536 features between."""
    heads, size, width = 6, 64, 384
    net = Network(kind, (rows, width))
    split = net.weight([rows, heads, size], np.int64)
    q, k, v = (net.add("Reshape", net.product("x", width, width), split) for _ in range(3))
    q, v = (net.add("Transpose", a, perm=[1, 0, 2]) for a in (q, v))
    scores = net.add("MatMul", q, net.add("Transpose", k, perm=[1, 2, 0]))
    weights = net.add("Softmax", net.add("Mul", scores, net.weight(size**-0.5, np.float32)), axis=-1)
    joined = net.add("Transpose", net.add("MatMul", weights, v), perm=[1, 0, 2])
    attended = net.product(net.add("Reshape", joined, net.weight([rows, width], np.int64)), width, width)
    x = norm(net, net.add("Add", "x", attended), width)
    y = net.product(net.add("Relu", net.product(x, width, 4 * width)), 4 * width, width)
    return net.bytes(norm(net, net.add("Add", x, y), width))


def norm(net: Network, x: str, width: int) -> str:
    scale, bias = net.weight(np.ones(width, np.float32)), net.weight(np.zeros(width, np.float32))
    return net.add("LayerNormalization", x, scale, bias)


def residual(kind: str, batch: int) -> bytes:
    """A stem and four blocks of two convolutions 3 x 3 of 64 and 128 features, 56 x 56 and 28 x 28."""
    net = Network(kind, (batch, 3, 112, 112))
    x = net.rounded(net.add("Relu", net.convolution(net.rounded("x", 0.03, 128), 3, 64, 7, 2)), 0.03, 0)
    for inputs, outputs in ((64, 64), (64, 64), (64, 128), (128, 128)):
        stride = outputs // inputs
        short = x if stride == 1 else net.rounded(net.convolution(x, inputs, outputs, 1, stride), 0.05, 128)
        y = net.rounded(net.add("Relu", net.convolution(x, inputs, outputs, 3, stride)), 0.03, 0)
        y = net.rounded(net.convolution(y, outputs, outputs, 3), 0.05, 128)
        x = net.rounded(net.add("Relu", net.add("Add", y, short)), 0.05, 0)
    return net.bytes(net.add("GlobalAveragePool", x))


def pointwise(kind: str, batch: int) -> bytes:
    """Six convolutions 1 x 1 that widen and narrow 32 and 64 features sixfold, 56 x 56."""
    net = Network(kind, (batch, 32, 56, 56))
    x = net.rounded("x", 0.03, 128)
    for inputs, outputs in ((32, 192), (192, 32), (32, 192), (192, 64), (64, 384), (384, 64)):
        x = net.rounded(net.add("Relu", net.convolution(x, inputs, outputs, 1)), 0.03, 0)
    return net.bytes(x)


def decoder(kind: str, rows: int) -> bytes:
    """The products of two layers of a language model: 1024 features, 2816 between, gated."""
    width, between = 1024, 2816
    net, x = Network(kind, (rows, width)), "x"
    for _ in range(2):
        mixed = net.product(net.product(x, width, 3 * width), 3 * width, width)
        x = norm(net, net.add("Add", x, mixed), width)
        gate = net.product(x, width, between)
        gate = net.add("Mul", gate, net.add("Sigmoid", gate))
        gated = net.add("Mul", gate, net.product(x, width, between))
        x = norm(net, net.add("Add", x, net.product(gated, between, width)), width)
    return net.bytes(x)


NETWORKS: list[tuple[str, Callable[[str, int], bytes], str, int]] = [
    ("MLP, dynamic int8, batch 1", mlp, "dynamic", 1),
    ("MLP, dynamic int8, batch 64", mlp, "dynamic", 64),
    ("encoder layer, dynamic int8, 128 tokens", encoder, "dynamic", 128),
    ("residual convolutions, QDQ int8, batch 1", residual, "qdq", 1),
    ("residual convolutions, QDQ int8, batch 8", residual, "qdq", 8),
    ("convolutions 1 x 1, QDQ int8, batch 1", pointwise, "qdq", 1),
    ("convolutions 1 x 1, QDQ int8, batch 8", pointwise, "qdq", 8),
    ("decoder products, int4 weights, 1 token", decoder, "int4", 1),
    ("decoder products, int4 weights, 64 tokens", decoder, "int4", 64),
]
HEADER = """| network | hloom f32, ms | hloom, ms | ONNX Runtime, ms | over f32 | over ONNX Runtime | difference |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |"""


def measure(name: str, network: Callable, kind: str, rows: int, runtime: Any, threads: int, seconds: float) -> str:
    """A row: the steps' times, hloom's speed over its own f32 and over ONNX Runtime, and the greatest difference of an
    output from ONNX Runtime's, relative to its greatest number."""
    model = network(kind, rows)
    plain, ours = load(network("f32", rows)), load(model)
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # they would take the others' processor
    options.log_severity_level = 3
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    shape = [s if isinstance(s, int) else 1 for s in ours.inputs[0].shape or ()]
    feed = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    mine, theirs = run(ours, feed), session.run(None, feed)
    steps: list[Callable] = [lambda: run(plain, feed), lambda: run(ours, feed), lambda: session.run(None, feed)]
    best, end = [math.inf] * 3, time.perf_counter() + seconds
    while best[0] == math.inf or time.perf_counter() < end:
        for k, step in enumerate(steps):
            start = time.perf_counter()
            step()
            best[k] = min(best[k], time.perf_counter() - start)
    error = max(difference(a, b) for a, b in zip(mine, theirs, strict=True))
    times = " | ".join(f"{t * 1e3:.3g}" for t in best)
    return f"| {name} | {times} | {best[0] / best[1]:.2f} | {best[2] / best[1]:.2f} | {error:.1e} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="networks whose names contain this")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0, help="of steps of each network")
    options = parser.parse_args()
    runtime = peer()
    if runtime is None:
        return 2
    config.num_threads = options.threads
    print(HEADER)
    for name, network, kind, rows in NETWORKS:
        if options.only in name:
            print(measure(name, network, kind, rows, runtime, options.threads, options.seconds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
