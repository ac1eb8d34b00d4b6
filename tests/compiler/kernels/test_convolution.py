"""Convolutions compiled: kernel texts with bounds checked, and native code, against loops and the interpreter."""

from __future__ import annotations

import math

import numpy as np
import pytest
import window_programs as programs
from plan_simulator import simulate, small_cuts

from hloom.backends.cpu.compilation import compile_module
from hloom.compiler.analysis import instruction_flops
from hloom.compiler.kernels.contractions.convolution_dims import ConvolutionRoles
from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.targets.cpu.target import CpuTarget, host_target
from hloom.ir.build import Builder, Value
from hloom.ir.interpret import evaluate
from hloom.ir.module import Computation, Module
from hloom.ir.types import DTYPES, Shape
from hloom.ir.window import WindowDimension as W

DTYPE_NAMES = ("f32", "f64", "s32", "f32", "bf16", "s8", "c64", "pred", "f32", "u8")


def optimized(computation: Computation) -> Module:
    return run_passes(Module("main", computation), PIPELINE, verify=True)


def opcodes(module: Module) -> list[str]:
    inside = [c for i in module.entry.instructions if i.opcode == "fusion" for c in i.called()]
    return [i.opcode for c in [module.entry, *inside] for i in c.instructions]


@pytest.mark.parametrize("seed", range(120))
def test_kernel_texts_of_random_convolutions(seed, monkeypatch):
    if seed % 2:
        small_cuts(monkeypatch)
    rng = np.random.default_rng(seed)
    x, w, attributes = programs.random_convolution(rng, DTYPES[DTYPE_NAMES[seed % len(DTYPE_NAMES)]])
    computation = programs.single("convolution", [x, w], **attributes)
    plan = make_plan(optimized(computation), host_target(), frozenset())
    (found,) = simulate(plan, [x, w], reverse=seed % 4 > 1)
    np.testing.assert_array_equal(found, evaluate(computation, [x, w]))


@pytest.mark.parametrize("seed", range(200, 240))
def test_random_convolutions_compiled(seed):
    rng = np.random.default_rng(seed)
    x, w, attributes = programs.random_convolution(rng, DTYPES[DTYPE_NAMES[seed % len(DTYPE_NAMES)]])
    computation = programs.single("convolution", [x, w], **attributes)
    (found,) = compile_module(Module("main", computation))([x, w])
    np.testing.assert_array_equal(found, evaluate(computation, [x, w]))


LAYOUTS = ["b01f_01io->b01f", "bf01_oi01->bf01", "f01b_i01o->01bf", "fb01_io01->fb01", "b01f_01io->bf01"]


@pytest.mark.parametrize("labels", LAYOUTS)
@pytest.mark.parametrize("stride", [1, 2])
def test_larger_convolutions_compiled(labels, stride):
    rng = np.random.default_rng(0)
    lhs, rhs, out = labels.replace("->", "_").split("_")
    sizes = {"b": 3, "f": 20, "0": 19, "1": 23}
    x = rng.normal(size=[sizes[c] for c in lhs]).astype(np.float32)
    w = rng.normal(size=[{"o": 18, "i": 20, "0": 3, "1": 5}[c] for c in rhs]).astype(np.float32)
    window = (W(3, stride, 1, 1), W(5, stride, 2, 2))
    computation = programs.single("convolution", [x, w], window=window, dim_labels=labels)
    (found,) = compile_module(Module("main", computation))([x, w])
    np.testing.assert_allclose(found, evaluate(computation, [x, w]), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("labels", LAYOUTS[:2])
def test_bias_and_activation_are_the_epilogue(labels):
    rng = np.random.default_rng(1)
    lhs, rhs, _ = labels.replace("->", "_").split("_")
    # So few features that space stays last where it is.
    x = rng.normal(size=[{"b": 2, "f": 2, "0": 9, "1": 8}[c] for c in lhs]).astype(np.float32)
    w = rng.normal(size=[{"o": 2, "i": 2, "0": 3, "1": 3}[c] for c in rhs]).astype(np.float32)
    b = rng.normal(size=2).astype(np.float32)
    builder = Builder("main")
    px, pw, pb = (Value(builder, builder.parameter(Shape(a.dtype, a.shape))) for a in (x, w, b))
    made = px.op("convolution", pw, window=(W(3, 1, 1, 1),) * 2, dim_labels=labels)
    spread = pb.broadcast(made.dims, (labels.split("->")[1].index("f"),))
    computation = builder.finish((made + spread).op("tanh").instruction)
    module = optimized(computation)
    assert [i.opcode for i in module.entry.instructions] == ["parameter"] * 3 + ["fusion"]
    (found,) = compile_module(Module("main", computation))([x, w, b])
    np.testing.assert_allclose(found, evaluate(computation, [x, w, b]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("batch", "extent", "stride"), [(4, 7, 1), (3, 13, 2), (5, 5, 1)])
def test_blocks_of_lines_that_do_not_fill_tiles(batch, extent, stride):
    """Lines of an image are shorter than two tiles: a block ends within one."""
    rng = np.random.default_rng(extent)
    x = rng.integers(-3, 4, (batch, extent, extent, 256)).astype(np.float32)
    w = rng.integers(-3, 4, (3, 3, 256, 40)).astype(np.float32)
    computation = programs.single("convolution", [x, w], window=(W(3, stride, 1, 1),) * 2, dim_labels=LAYOUTS[0])
    (found,) = compile_module(Module("main", computation))([x, w])
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::stride, ::stride]
    np.testing.assert_array_equal(found, np.einsum("bijcyx,yxco->bijo", windows, w, optimize=True))


def test_windows_of_one_element_are_a_dot():
    rng = np.random.default_rng(2)
    for labels, window, dims in (
        ("b01f_01io->b01f", (W(1), W(1)), ((2, 5, 4, 3), (1, 1, 3, 6))),
        ("bf01_oi01->bf01", (W(1, 2), W(1, 3)), ((2, 3, 5, 4), (6, 3, 1, 1))),
        ("b01f_01io->b01f", (W(5), W(4)), ((2, 5, 4, 3), (5, 4, 3, 6))),
        ("b01f_01io->f10b", (W(5), W(1, 2)), ((2, 5, 4, 3), (5, 1, 3, 6))),
    ):
        x, w = (programs.values(rng, np.float32, d) for d in dims)
        computation = programs.single("convolution", [x, w], window=window, dim_labels=labels)
        module = optimized(computation)
        assert "convolution" not in opcodes(module) and "dot" in opcodes(module)
        np.testing.assert_array_equal(evaluate(module.entry, [x, w]), evaluate(computation, [x, w]))


def test_a_group_for_each_feature_is_written_out():
    rng = np.random.default_rng(3)
    x, w = programs.values(rng, np.float32, (2, 6, 5, 4)), programs.values(rng, np.float32, (3, 3, 1, 8))
    how = {"window": (W(3, 1, 1, 1), W(3, 2, 1, 0)), "dim_labels": "b01f_01io->b01f", "feature_group_count": 4}
    computation = programs.single("convolution", [x, w], **how)
    module = optimized(computation)
    assert not {"convolution", "dot"} & set(opcodes(module))
    np.testing.assert_array_equal(evaluate(module.entry, [x, w]), evaluate(computation, [x, w]))


@pytest.mark.parametrize("layout", ["bf01_oi01->bf01", "b01f_01io->b01f", "bf01_oi01->b01f"])
@pytest.mark.parametrize("image", [(7, 7), (14, 9), (5, 40), (3, 6)])
@pytest.mark.parametrize(("stride", "dilation", "padding"), [(1, 1, 0), (1, 1, 2), (2, 1, 1), (1, 2, 2)])
@pytest.mark.parametrize(("groups", "outputs"), [(4, 1), (3, 2)])
def test_groups_of_one_feature_in_any_layout(layout, image, stride, dilation, padding, groups, outputs):
    """Short rows are computed as one; the elements between them are left out."""
    rng = np.random.default_rng(0)
    window = tuple(W(k, stride, padding, padding, window_dilation=dilation) for k in (3, 2))
    extents = {"b": 2, "f": groups, "0": image[0], "1": image[1]}
    kernel = {"o": groups * outputs, "i": 1, "0": 3, "1": 2}
    lhs, rhs = layout.split("->")[0].split("_")
    x = programs.values(rng, np.float32, tuple(extents[c] for c in lhs))
    w = programs.values(rng, np.float32, tuple(kernel[c] for c in rhs))
    computation = programs.single(
        "convolution", [x, w], window=window, dim_labels=layout, feature_group_count=groups
    )  # fmt: skip
    assert "convolution" not in opcodes(optimized(computation))
    (found,) = compile_module(Module("main", computation))([x, w])
    np.testing.assert_array_equal(found, evaluate(computation, [x, w]))


@pytest.mark.parametrize("labels", LAYOUTS[:2])
def test_gradients_of_strided_convolutions_multiply_no_zeros(labels):
    rng = np.random.default_rng(5)
    lhs, rhs, _ = labels.replace("->", "_").split("_")
    x = programs.values(rng, np.float32, [{"b": 2, "f": 3, "0": 5, "1": 4}[c] for c in lhs])
    w = programs.values(rng, np.float32, [{"o": 2, "i": 3, "0": 3, "1": 2}[c] for c in rhs])
    window = (W(3, 1, 2, 1, 2), W(2, 1, 0, 3, 3, 1, True))
    computation = programs.single("convolution", [x, w], window=window, dim_labels=labels)
    module = optimized(computation)
    flops = sum(map(instruction_flops, module.entry.instructions))
    assert flops < 2 * evaluate(computation, [x, w]).size * w.size / 2  # all taps, for each of two features
    (found,) = compile_module(Module("main", computation))([x, w])
    np.testing.assert_array_equal(found, evaluate(computation, [x, w]))


@pytest.mark.parametrize("dilation,runs", [(1, 3), (2, 9)])
def test_a_run_is_as_long_as_the_window_with_its_features(dilation, runs):
    """3 x 3 of 5 features: neighbours and their features lie side by side, unless the window is dilated."""
    window = (W(3, 1, 1, 1, 1, dilation), W(3, 1, 1, 1, 1, dilation))
    x, w = np.zeros((2, 9, 9, 5), np.float32), np.zeros((3, 3, 5, 4), np.float32)
    computation = programs.single("convolution", [x, w], window=window, dim_labels="b01f_01io->b01f")
    roles = ConvolutionRoles(computation.root)
    assert roles.extents[3] == 45
    assert math.prod(c.extent for c in roles.depths[:-1]) == runs


@pytest.mark.parametrize("low, stride, size", [(0, 1, 9), (1, 1, 12), (2, 2, 14), (3, 1, 5)])
def test_windows_inside_of_the_image_are_copied_run_by_run(low, stride, size):
    """Those at the edges clip their runs; all of them against the reference, bounds checked and compiled."""
    rng = np.random.default_rng(size)
    x, w = rng.integers(-4, 5, (2, size, size, 2)), rng.integers(-4, 5, (4, 4, 2, 7))
    x, w = x.astype(np.float32), w.astype(np.float32)
    window = (W(4, stride, low, low),) * 2
    computation = programs.single("convolution", [x, w], window=window, dim_labels="b01f_01io->b01f")
    plan = make_plan(optimized(computation), host_target(), frozenset())
    expected = evaluate(computation, [x, w])
    np.testing.assert_array_equal(simulate(plan, [x, w])[0], expected)
    module = compile_module(Module("main", computation))
    np.testing.assert_array_equal(module([x, w])[0], expected)


@pytest.mark.parametrize("low, stride, size", [(0, 1, 9), (2, 2, 14)])
def test_one_kernel_copies_the_runs_of_windows(low, stride, size, code_machine):
    x, w = np.zeros((2, size, size, 2), np.float32), np.zeros((4, 4, 2, 7), np.float32)
    window = (W(4, stride, low, low),) * 2
    computation = programs.single("convolution", [x, w], window=window, dim_labels="b01f_01io->b01f")
    target = CpuTarget(code_machine)
    sources = [step.launch.source for step in make_plan(optimized(computation), target, frozenset()).kernels()]
    # Kernels that all contractions share may copy rows of a panel of 8 columns.
    own = [source for source in sources if not source.name.startswith("contraction_")]
    assert sum("copy_f32_8(" in source.text for source in own) == 1


IMAGES = {
    "3 x 3": ("b01f_01io->b01f", (3, 9, 11, 8), (3, 3, 8, 5), (W(3, 1, 1, 1), W(3, 1, 1, 1))),
    "5 x 5, several steps": ("b01f_01io->b01f", (2, 9, 12, 32), (5, 5, 32, 3), (W(5, 1, 2, 2), W(5, 1, 2, 2))),
    "apart": ("b01f_01io->b01f", (2, 14, 13, 16), (3, 3, 16, 4), (W(3, 2, 0, 1), W(3, 2, 1, 0))),
    "dilated": ("b01f_01io->b01f", (2, 12, 13, 16), (3, 3, 16, 4), (W(3, 1, 2, 2, 1, 2), W(3, 1, 2, 2, 1, 2))),
    "places left out": ("b01f_01io->b01f", (2, 15, 20, 12), (2, 2, 12, 4), (W(2, 4, -1, 1), W(2, 3, -2, 3))),
    "runs in parts": ("b01f_01io->b01f", (1, 8, 8, 300), (3, 3, 300, 3), (W(3, 1, 1, 1), W(3, 1, 1, 1))),
    "one dimension": ("b0f_0io->b0f", (7, 30, 8), (5, 8, 6), (W(5, 1, 2, 2),)),
    "many images": ("b01f_01io->b01f", (40, 4, 7, 16), (3, 3, 16, 3), (W(3, 1, 1, 1), W(3, 1, 1, 1))),
    "the kernel's features first": ("b01f_o01i->b01f", (2, 9, 9, 16), (6, 3, 3, 16), (W(3, 1, 1, 1), W(3, 1, 1, 1))),
    "by the kernel": ("f01b_i01o->01bf", (3, 14, 15, 8), (3, 14, 15, 4), (W(14, 1, 1, 1), W(15, 1, 1, 1))),
    "by the kernel, apart": (
        "f01b_i01o->01bf",
        (4, 28, 29, 8),
        (4, 14, 14, 4),
        (W(14, 1, 1, 0, 1, 2), W(14, 1, 1, 0, 1, 2)),
    ),
    "by the kernel of one image": ("f01b_i01o->01bf", (1, 20, 16, 8), (1, 20, 16, 4), (W(20, 1, 2, 2), W(16, 1, 2, 2))),
}


@pytest.mark.parametrize("case", IMAGES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_windows_are_read_in_an_image(case, dtype):
    """Each plan stages its operand; all bounds are checked, and the bits those of sums that are exact."""
    labels, left, right, window = IMAGES[case]
    rng = np.random.default_rng(len(case))
    x, w = rng.integers(-4, 5, left).astype(dtype), rng.integers(-4, 5, right).astype(dtype)
    computation = programs.single("convolution", [x, w], window=window, dim_labels=labels)
    plan = make_plan(optimized(computation), host_target(), frozenset())
    assert any("t_lines = scratch_s64" in step.launch.source.text for step in plan.kernels())
    expected = evaluate(computation, [x, w])
    np.testing.assert_array_equal(simulate(plan, [x, w])[0], expected)
    np.testing.assert_array_equal(compile_module(Module("main", computation))([x, w])[0], expected)


def test_images_of_other_shapes_compile_nothing():
    texts = set()
    for places, features in ((9, 8), (12, 16), (28, 8)):
        x, w = np.zeros((2, places, places, features), np.float32), np.zeros((3, 3, features, 5), np.float32)
        computation = programs.single("convolution", [x, w], window=(W(3, 1, 1, 1),) * 2, dim_labels="b01f_01io->b01f")
        plan = make_plan(optimized(computation), host_target(), frozenset())
        texts |= {step.launch.source.text for step in plan.kernels() if "t_lines" in step.launch.source.text}
    assert len(texts) == 1
