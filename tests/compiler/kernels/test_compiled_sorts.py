"""sort and topk compiled, differentiated and batched."""

from __future__ import annotations

import numpy as np
import pytest
from derivative_cases import check

import hloom as hl
from hloom.backends.cpu.compilation import compile_module
from hloom.compiler.pipeline import run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.schedule.steps import HostStep
from hloom.compiler.targets.cpu import codegen
from hloom.compiler.targets.cpu.target import host_target
from hloom.compiler.transforms.batch import batch
from hloom.ir.build import Builder, Value
from hloom.ir.interpret import evaluate
from hloom.ir.module import Module
from hloom.ir.ops.indexing.sort import comparator
from hloom.ir.types import DTYPES, Shape


def sort_computation(dims, axis, dtypes=("f64",), num_keys=1, scaled=False):
    builder = Builder("f")
    arrays = [Value(builder, builder.parameter(Shape(d, dims))) for d in dtypes]
    given = [a * 2 if scaled else a for a in arrays]
    to_apply = comparator([a.dtype for a in arrays], num_keys)
    result = given[0].op("sort", *given[1:], dimensions=(axis,), is_stable=True, to_apply=to_apply)
    if len(arrays) == 1:
        return builder.finish((result * 3 if scaled else result).instruction)
    return builder.finish(
        builder.tuple([result.op("get-tuple-element", index=k).instruction for k in range(len(arrays))])
    )


def topk_computation(dims, k, places=True):
    builder = Builder("f")
    result = Value(builder, builder.parameter(Shape("f64", dims))).op("topk", k=k, largest=True)
    return builder.finish(
        builder.tuple([result.op("get-tuple-element", index=i).instruction for i in range(1 + places)])
    )


def test_compiled_between_kernels():
    x = np.random.default_rng(0).normal(size=(50, 30)).astype(np.float32)
    computation = sort_computation((50, 30), 0, ("f32",), scaled=True)
    (found,) = compile_module(Module("m", computation))([x])
    np.testing.assert_array_equal(found, np.sort(x * 2, axis=0) * 3)


def test_compiled_with_several_results():
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 5, (4, 9)).astype(np.int32), rng.normal(size=(4, 9)).astype(np.float32)
    a, b = compile_module(Module("m", sort_computation((4, 9), 1, ("s32", "f32"), 2)))([x, y])
    for row in range(4):
        order = np.lexsort((y[row], x[row]))
        np.testing.assert_array_equal(a[row], x[row][order])
        np.testing.assert_array_equal(b[row], y[row][order])
    v, i = compile_module(Module("m", topk_computation((4, 9), 3)))([y.astype(np.float64)])
    np.testing.assert_array_equal(i, np.argsort(-y, axis=1)[:, :3])
    np.testing.assert_array_equal(v, np.take_along_axis(y.astype(np.float64), i, 1))


@pytest.mark.parametrize("axis", [0, 1])
def test_derivative_of_sort(axis):
    rng = np.random.default_rng(2)
    check(sort_computation((5, 4), axis), [rng.normal(size=(5, 4))])
    check(sort_computation((5, 4), axis, ("f64", "f64")), [rng.normal(size=(5, 4)) for _ in range(2)])
    check(topk_computation((3, 6), 2, places=False), [rng.normal(size=(3, 6))])


@pytest.mark.parametrize("mapped", [(True, True), (True, False), (False, True)])
def test_batched_sort(mapped):
    rng = np.random.default_rng(3)
    computation = sort_computation((4, 5), 0, ("f64", "f64"))
    arguments = [rng.normal(size=((3, 4, 5) if m else (4, 5))) for m in mapped]
    made, out = batch(computation, mapped, 3)[:2]
    assert out == [True, True]
    found = evaluate(made, arguments)
    for k in range(3):
        expected = evaluate(computation, [a[k] if m else a for a, m in zip(arguments, mapped, strict=True)])
        for f, e in zip(found, expected, strict=True):
            np.testing.assert_array_equal(f[k], e)


def test_batched_topk():
    x = np.random.default_rng(4).normal(size=(3, 2, 6))
    found = evaluate(batch(topk_computation((2, 6), 3), [True], 3)[0], [x])
    for k in range(3):
        for f, e in zip(found, evaluate(topk_computation((2, 6), 3), [x[k]]), strict=True):
            np.testing.assert_array_equal(f[k], e)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "s32", "u8", "u32", "s64", "pred", "u64", "s4"])
def test_topk_kernel(dtype, largest):
    """Ties by place, zeros by sign, NaN at the end; 64-bit unsigned and 4-bit numbers take NumPy's route."""
    rng = np.random.default_rng(6)
    shape = Shape(dtype, (6, 200))
    x = rng.integers(0, 8, (6, 200)) if shape.dtype.kind in "bui" else np.round(rng.normal(size=(6, 200)) * 4) / 2 - 0.0
    x = x.astype(shape.dtype)
    if shape.dtype.kind in "fV" and dtype != "s4":
        x[0, ::9], x[1, ::7], x[2], x[3, 5] = np.nan, -0.0, -np.inf, np.inf
    for k in (1, 7, 200):
        builder = Builder("f")
        result = Value(builder, builder.parameter(shape)).op("topk", k=k, largest=largest)
        root = builder.tuple([result.op("get-tuple-element", index=i).instruction for i in range(2)])
        computation = builder.finish(root)
        compiled = compile_module(Module("m", computation))
        for got, want in zip(compiled([x]), evaluate(computation, [x]), strict=True):
            assert got.tobytes() == want.tobytes(), k
        on_host = any(isinstance(s, HostStep) for s in compiled.plan.steps)
        assert on_host == (dtype in ("u64", "s4") or k > 128)


def test_rows_are_sorted_in_parts():
    """Large sorts of rows are shared by threads; each row is sorted alone, so nothing else changes."""
    x = np.random.default_rng(4).standard_normal((301, 500)).astype(np.float32)
    x[7, 3:9] = np.nan
    np.testing.assert_array_equal(np.asarray(hl.jit(lambda x: hl.numpy.sort(x, axis=1))(x)), np.sort(x, 1))
    np.testing.assert_array_equal(
        np.asarray(hl.jit(lambda x: hl.numpy.argsort(x, axis=1))(x)), np.argsort(x, 1, "stable")
    )
    np.testing.assert_array_equal(np.asarray(hl.jit(lambda x: hl.numpy.sort(x, axis=0))(x)), np.sort(x, 0))


@pytest.mark.parametrize("count", [1, 20, 700])
@pytest.mark.parametrize("axis", [0, 1])
def test_many_keys_and_many_results(count, axis):
    """More than have passes, or stores, of their own in the kernel's text."""
    rng = np.random.default_rng(count)
    dtypes = ["f64", "s32", "pred", "bf16", "u64", "f32", "u8", "s64", "f16"]
    dims = (3, count) if axis else (count, 3)
    arrays = [(rng.integers(0, 3, dims) - (d[0] != "u") * (d != "pred")).astype(DTYPES[d]) for d in dtypes]
    arrays[0][0, 0] = np.nan
    arrays[5][rng.random(dims) < 0.3] = -0.0
    for num_keys in (1, 4, 9):
        computation = sort_computation(dims, axis, dtypes, num_keys)
        compiled = compile_module(Module("m", computation))
        assert not any(isinstance(s, HostStep) for s in compiled.plan.steps)
        for got, want in zip(compiled(arrays), evaluate(computation, arrays), strict=True):
            assert got.tobytes() == want.tobytes(), num_keys


def test_code_of_many_keys_and_results():
    """One more key costs a line of text and a call."""
    sizes = []
    for count in (20, 40):
        computation = sort_computation((16,), 0, ["f64"] * count, count)
        (step,) = make_plan(run_passes(Module("m", computation)), host_target()).kernels()
        sizes.append(codegen.llvm_ir(step.launch.source).count("\n"))
    assert sizes[1] - sizes[0] < 20 * 16
