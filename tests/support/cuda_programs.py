"""Fused computations for the tests of the CUDA target, and a harness that simulates all of a computation's kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from kernel_nests import nests

from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.targets.cuda.simulator.simulator import simulate
from hloom.ir import interpret
from hloom.ir.build import Builder, Value
from hloom.ir.module import Computation
from hloom.ir.types import DTYPES, PRED, Shape


def computation(shapes: list[tuple[str, tuple[int, ...]]], build: Callable, name: str = "fused") -> Computation:
    """A computation of parameters of (dtype, extents); build(*values) -> a Value or several of them."""
    builder = Builder(name)
    values = [Value(builder, builder.parameter(Shape(DTYPES[dtype], dims))) for dtype, dims in shapes]
    result = build(*values)
    if isinstance(result, tuple):
        return builder.finish(builder.tuple([value.instruction for value in result]))
    return builder.finish(result.instruction)


def inputs(program: Computation, seed: int = 0) -> list[np.ndarray]:
    """Values for its parameters: floats around 0, small integers of both signs where there are, booleans."""
    rng = np.random.default_rng(seed)
    result = []
    for parameter in program.parameters:
        dtype, dims = parameter.dtype, parameter.dims
        if dtype == PRED:
            result.append(rng.random(dims) < 0.5)
        elif dtype.kind in "iu":
            result.append(rng.integers(-9 if dtype.kind == "i" else 0, 10, dims).astype(dtype))
        elif dtype.kind == "c":
            result.append((rng.standard_normal(dims) + 1j * rng.standard_normal(dims)).astype(dtype))
        else:
            result.append((rng.standard_normal(dims) * 2).astype(dtype))
    return [np.array(array, order="C") for array in result]


def request(program: Computation, shared: dict[int, int] | None = None) -> KernelRequest:
    return KernelRequest(program, dict(shared or {}))


def simulated(program: Computation, arrays: list[np.ndarray], shared=None, **options) -> list[np.ndarray]:
    """The outputs of a computation's kernels, one launch after the other."""
    wanted = request(program, shared)
    memory = {f"in{k}": array for k, array in enumerate(arrays)}
    for k, output in enumerate(wanted.outputs):
        if k in wanted.shared:
            memory[f"io{k}"] = arrays[wanted.shared[k]].copy()
        else:
            memory[f"out{k}"] = np.zeros(output.dims, output.dtype)
    for nest in nests(wanted):
        memory |= simulate(nest, memory, **options)
    return [memory[wanted.output_name(k)] for k in range(len(wanted.outputs))]


def expected(program: Computation, arrays: list[np.ndarray]) -> list[np.ndarray]:
    result = interpret.evaluate(program, arrays)
    return list(result) if isinstance(result, tuple) else [result]


def check(program: Computation, shared=None, tolerance: float = 2e-5, **options) -> None:
    """The simulated kernels against the reference interpreter."""
    arrays = inputs(program)
    for got, want in zip(simulated(program, arrays, shared, **options), expected(program, arrays), strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        if want.dtype.kind in "biu":
            np.testing.assert_array_equal(got, want)
        else:
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            bound = {"bfloat16": 2**-7, "float16": 2**-9}.get(want.dtype.name, tolerance)
            np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=bound, atol=bound)


# --- programs that several tests use ------------------------------------------------------------------------------


def softmax(rows: int, columns: int) -> Computation:
    def build(x):
        top = x.reduce("maximum", -np.inf, [1]).broadcast(x.dims, (0,))
        power = (x - top).op("exponential")
        return power / power.sum([1]).broadcast(x.dims, (0,))

    return computation([("f32", (rows, columns))], build, "softmax")


def layer_norm(rows: int, columns: int) -> Computation:
    def build(x, scale, shift):
        mean = x.sum([1]) * (1 / columns)
        centred = x - mean.broadcast(x.dims, (0,))
        variance = (centred * centred).sum([1]) * (1 / columns)
        inverse = (variance + 1e-5).op("rsqrt")
        normal = centred * inverse.broadcast(x.dims, (0,))
        return normal * scale.broadcast(x.dims, (1,)) + shift.broadcast(x.dims, (1,)), mean

    return computation([("f32", (rows, columns)), ("f32", (columns,)), ("f32", (columns,))], build, "layer_norm")


def log_sum_exp(rows: int, columns: int) -> Computation:
    def build(x):
        top = x.reduce("maximum", -np.inf, [1])
        return (x - top.broadcast(x.dims, (0,))).op("exponential").sum([1]).op("log") + top

    return computation([("f32", (rows, columns))], build, "log_sum_exp")


def transposed(outer: int, rows: int, columns: int, dtype: str = "f32") -> Computation:
    def build(x, y):
        turned = x.op("transpose", dimensions=(0, 2, 1))
        return turned.op("add", y) if dtype != "pred" else turned.op("and", y)

    return computation([(dtype, (outer, rows, columns)), (dtype, (outer, columns, rows))], build, "transposed")


def bias_gelu(rows: int, columns: int) -> Computation:
    def build(x, bias):
        v = x + bias.broadcast(x.dims, (1,))
        return v * ((v + v * v * v * 0.044715) * 1.5957691).op("logistic")

    return computation([("f32", (rows, columns)), ("f32", (columns,))], build, "bias_gelu")
