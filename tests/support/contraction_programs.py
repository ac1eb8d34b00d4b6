"""Fused computations with a dot, and a harness that simulates their CUDA launches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from cuda_programs import computation, expected, inputs, request

from hloom.compiler.targets.cuda.contractions.launches import contraction_sources
from hloom.compiler.targets.cuda.contractions.tiles import Tile
from hloom.compiler.targets.cuda.machine import machine_of
from hloom.compiler.targets.cuda.simulator.simulator import simulate_launches
from hloom.ir.build import Value
from hloom.ir.module import Computation
from hloom.ir.types import DTYPES, Shape

MACHINE = machine_of("sm_90")
# Small ones, that take little time to simulate.
THREADS = Tile("thread", 16, 32, 4, 4, 16)
TENSOR = Tile("tensor", 32, 32, 16, 32, 32, 3)
TENSOR_WORDS = Tile("tensor", 32, 32, 32, 16, 16)


def dot(x: Value, y: Value, left: str = "ip", right: str = "pj", result: str | None = None) -> Value:
    """The product of operands whose dimensions are named: b batch, i and j free, p summed."""
    shape = None
    if result:
        extents = dict(zip(left, x.dims, strict=True)) | dict(zip(right, y.dims, strict=True))
        shape = Shape(DTYPES[result], tuple(extents[role] for role in "bij" if role in left + right))
    batch = {"lhs_batch_dims": (left.index("b"),), "rhs_batch_dims": (right.index("b"),)} if "b" in left else {}
    sums = {"lhs_contracting_dims": (left.index("p"),), "rhs_contracting_dims": (right.index("p"),)}
    return x.op("dot", y, shape=shape, **batch, **sums)


def product(
    extents: dict[str, int], dtype: str = "f32", left: str = "ip", right: str = "pj", before: Callable | None = None,
    after: Callable | None = None, result: str | None = None, more: list | None = None,
) -> Computation:  # fmt: skip
    """after(dot(*before(x, y)), *more): more operands by (dtype, extents)."""

    def build(x, y, *rest):
        if before:
            x, y = before(x, y)
        made = dot(x, y, left, right, result)
        return after(made, *rest) if after else made

    shapes = [(dtype, tuple(extents[role] for role in roles)) for roles in (left, right)]
    return computation(shapes + (more or []), build, "product")


def bias_gelu(total: Value, bias: Value) -> Value:
    v = total + bias.broadcast(total.dims, (len(total.dims) - 1,))
    return v * ((v + v * v * v * 0.044715) * 1.5957691).op("logistic")


def launches(program: Computation, shared=None, arch: str = "sm_90", **options):
    return contraction_sources(request(program, shared), machine_of(arch), **options)


def outputs(program: Computation, arrays, shared=None, reverse: bool = False, made=None, **options) -> list[np.ndarray]:
    """What the simulated launches write. made: launches in place of the program's own."""
    wanted = request(program, shared)
    memory = {f"in{k}": array for k, array in enumerate(arrays)}
    for k, output in enumerate(wanted.outputs):
        name = wanted.output_name(k)
        memory[name] = arrays[wanted.shared[k]].copy() if k in wanted.shared else np.zeros(output.dims, output.dtype)
    memory = simulate_launches(made or launches(program, shared, **options), memory, reverse)
    return [memory[wanted.output_name(k)] for k in range(len(wanted.outputs))]


def check(program: Computation, shared=None, tolerance: float = 2e-5, **options) -> None:
    """The simulated launches against the reference interpreter, relative to the largest element."""
    arrays = inputs(program)
    for got, want in zip(outputs(program, arrays, shared, **options), expected(program, arrays), strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        if want.dtype.kind in "biu":
            np.testing.assert_array_equal(got, want)
            continue
        bound = {"bfloat16": 2**-7, "float16": 2**-9, "float64": 1e-13}.get(want.dtype.name, tolerance)
        largest = max(1.0, float(np.abs(want.astype(np.float64)).max(initial=0)))
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=0, atol=bound * largest)
