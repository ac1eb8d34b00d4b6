"""move-image-transposes: layers around convolutions meet in one order; outputs that may lie in any order stay so."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.backends.cpu.compilation import compile_module
from hloom.compiler.free_layouts import with_free_layouts
from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.ir.build import Builder, Value
from hloom.ir.interpret import evaluate
from hloom.ir.module import Module
from hloom.ir.types import DTYPES, Shape
from hloom.ir.window import WindowDimension as W

F32 = DTYPES["f32"]
LABELS = "bf01_oi01->bf01"


def convolution(x: Value, w: Value, stride: int = 1, **attributes) -> Value:
    size = w.dims[-1]
    pad = size // 2
    return x.op("convolution", w, window=(W(size, stride, pad, pad),) * 2, dim_labels=LABELS, **attributes)


def network(rng) -> tuple[Module, list[np.ndarray]]:
    """Two convolutions with, between them, what networks have there, in a random order."""
    dims = {"x": (2, 4, 12, 10), "first": (16, 4, 3, 3), "alone": (16, 1, 3, 3), "bias": (16,)}
    builder = Builder("main")
    given = {name: Value(builder, builder.parameter(Shape(F32, d))) for name, d in dims.items()}
    arrays = [rng.normal(size=d).astype(np.float32) for d in dims.values()]
    value = convolution(given["x"], given["first"])

    def shifted(v):
        zero = Value(builder, builder.constant(np.zeros((), F32)))
        height, width = v.dims[2:]
        v = v.op("pad", zero, padding=((0, 0, 0), (0, 0, 0), (1, 2, 0), (0, 1, 0)))
        return v.op("slice", slice=((0, v.dims[0], 1), (0, v.dims[1], 1), (0, height + 1, 1), (1, width + 1, 1)))

    def doubled(v):
        b, f, h, w = v.dims
        v = v.reshape((b, f, h, 1, w)).op("concatenate", v.reshape((b, f, h, 1, w)), dimensions=(3,))
        return v.reshape((b, f, 2 * h, w))

    def less_mean(v):
        mean = v.sum((0, 2, 3)) * np.float32(1 / (v.shape.size // 16))
        return v - mean.broadcast(v.dims, (1,))

    changes = [
        lambda v: v + given["bias"].broadcast(v.dims, (1,)),
        lambda v: v.op("tanh"),
        less_mean,
        shifted,
        doubled,
        lambda v: v.op("concatenate", v, dimensions=(2,)),
        lambda v: v.op("optimization-barrier"),
        lambda v: convolution(v, given["alone"], 2, feature_group_count=16),
    ]
    for k in rng.permutation(len(changes))[:5]:
        value = changes[k](value)
    second = rng.normal(size=(8, 16, 3, 3)).astype(np.float32)
    result = convolution(value, Value(builder, builder.parameter(Shape(F32, second.shape))))
    return Module("main", builder.finish(builder.tuple([value.instruction, result.instruction]))), [*arrays, second]


def transposes_of_images(module: Module) -> list:
    found = [i for c in module.computations() for i in c.instructions if i.opcode == "transpose"]
    return [i for i in found if len(i.dims) == 4 and 2 in (i.dims[0], i.dims[-1])]  # not of kernels


@pytest.mark.parametrize("seed", range(12))
def test_networks(seed):
    module, arrays = network(np.random.default_rng(seed))
    found = compile_module(module)(arrays)
    for a, b in zip(found, evaluate(module.entry, arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)
    # In at the beginning, back for each of the two results.
    assert len(transposes_of_images(run_passes(module, PIPELINE, verify=True))) <= 3


@pytest.mark.parametrize("seed", range(4))
def test_outputs_that_may_lie_in_any_order(seed):
    module, arrays = network(np.random.default_rng(seed))
    free, moved = with_free_layouts(module, [0, 1])
    assert moved == {0: (0, 3, 1, 2), 1: (0, 3, 1, 2)}
    found = compile_module(free)(arrays)
    for k, wanted in enumerate(evaluate(module.entry, arrays)):
        np.testing.assert_allclose(found[k].transpose(moved[k]), wanted, rtol=1e-4, atol=1e-3)
    assert len(transposes_of_images(run_passes(free, PIPELINE, verify=True))) == 1
    kept, moved = with_free_layouts(module, [])
    assert kept is module
    assert not moved


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "s32"])
@pytest.mark.parametrize(("stride", "size", "batch"), [(1, 3, 2), (2, 5, 3), (3, 2, 1)])
def test_gradient_of_a_kernel_with_a_group_for_each_feature(dtype, stride, size, batch):
    """As differentiation makes it: few places, windows as large as the image, batch groups."""
    rng = np.random.default_rng(size)
    places = (9 + 2 - size) // stride + 1
    x, g = rng.integers(-4, 5, (batch, 6, 9, 9)), rng.integers(-4, 5, (batch, 6, places, places))
    x, g = (v.astype(DTYPES[dtype]) for v in (x, g))
    builder = Builder("main")
    px, pg = (Value(builder, builder.parameter(Shape(v.dtype, v.shape))) for v in (x, g))
    high = (places - 1) * stride + size - 9 - 1
    window = (W(places, 1, 1, high, window_dilation=stride),) * 2
    made = px.op("convolution", pg, window=window, dim_labels="fb01_io01->fb01", batch_group_count=6)
    assert made.dims == (6, 1, size, size)
    computation = builder.finish(made.instruction)
    module = run_passes(Module("main", computation), PIPELINE, verify=True)
    assert not any(i.opcode == "convolution" for c in module.computations() for i in c.instructions)
    (found,) = compile_module(Module("main", computation))([x, g])
    np.testing.assert_array_equal(found, evaluate(computation, [x, g]))
