"""Convolution, reduce-window, select-and-scatter and batch normalization: references against loops, and errors."""

from __future__ import annotations

import numpy as np
import pytest
import window_programs as programs

from hloom.ir.build import Builder, scalar_computation
from hloom.ir.errors import AttributeValueError, DTypeError, HloomError, ShapeError
from hloom.ir.interpret import evaluate
from hloom.ir.ops.linalg import convolution
from hloom.ir.ops.reductions.window import comparison
from hloom.ir.types import DTYPES, Shape
from hloom.ir.window import WindowDimension as W

pytestmark = pytest.mark.quick

SOME = ("float32", "float64", "int32", "uint8", "complex64", "bfloat16", "bool")


def dtype_of(name):
    return DTYPES["bf16"] if name == "bfloat16" else np.dtype(name)


@pytest.mark.parametrize("seed", range(60))
def test_convolution_is_the_loop(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    dtype = dtype_of(SOME[seed % len(SOME)])
    x, w, attributes = programs.random_convolution(rng, dtype)
    if seed % 2:
        monkeypatch.setattr(convolution, "VIEW_BYTES", 0)  # one element of the window after the other
    found = evaluate(programs.single("convolution", [x, w], **attributes), [x, w])
    wide = {"bfloat16": np.float64, "bool": np.int64}.get(dtype.name, dtype)
    wanted = programs.loop_convolution(x, w, **attributes, dtype=wide)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, (wanted > 0) if dtype.kind == "b" else wanted.astype(dtype))


def test_convolution_of_two_dtypes():
    rng = np.random.default_rng(0)
    x, w = programs.values(rng, np.int8, (1, 6, 2)) * 30, programs.values(rng, np.int8, (3, 2, 2)) * 30
    how = {"window": (W(3),), "dim_labels": "b0f_0io->b0f"}
    found = evaluate(programs.single("convolution", [x, w], shape=Shape("s32", (1, 4, 2)), **how), [x, w])
    np.testing.assert_array_equal(found, programs.loop_convolution(x, w, **how, dtype=np.int32))
    with pytest.raises(AttributeValueError, match="convolution of two dtypes needs the dtype of its result"):
        programs.single("convolution", [x, w.astype(np.int32)], **how)


def test_convolution_of_nothing():
    how = {"window": (W(3, 1, 1, 1),), "dim_labels": "b0f_0io->b0f"}
    for x, w in (((0, 5, 2), (3, 2, 4)), ((2, 0, 2), (3, 2, 4)), ((2, 5, 0), (3, 0, 4)), ((2, 5, 2), (3, 2, 0))):
        x, w = np.zeros(x, np.float32), np.zeros(w, np.float32)
        found = evaluate(programs.single("convolution", [x, w], **how), [x, w])
        assert found.shape == (x.shape[0], x.shape[1], w.shape[2]) and not found.any()


@pytest.mark.parametrize("seed", range(60))
def test_reduce_window_is_the_loop(seed):
    rng = np.random.default_rng(seed)
    dtype = dtype_of(("float32", "int32", "bfloat16", "uint8", "complex64")[seed % 5])
    opcode = ("add", "maximum", "minimum", "multiply")[seed % 4] if dtype != np.complex64 else "add"
    x = programs.values(rng, dtype, rng.integers(1, 7, rng.integers(0, 4)))
    window = programs.random_window(rng, x.shape)
    start = programs.values(rng, dtype, ())
    computation = programs.single(
        "reduce-window", [x, start], window=window, to_apply=scalar_computation(opcode, dtype)
    )
    function = {"add": np.add, "maximum": np.maximum, "minimum": np.minimum, "multiply": np.multiply}[opcode]
    wide = np.float64 if dtype.name in ("float32", "bfloat16") else dtype
    wanted = programs.loop_reduce_window(function, x.astype(wide), start.astype(wide), window)
    np.testing.assert_array_equal(evaluate(computation, [x, start]), wanted.astype(dtype))


@pytest.mark.parametrize(
    "extent, d", [(9, W(9, 1, 8, 0)), (20, W(7, 3, 2, 9)), (13, W(5, 2, 1, 0, 2, 3)), (4, W(30, 1, 9, 40))]
)
def test_large_windows_by_doubling(extent, d):
    x = np.arange(extent, dtype=np.float32) - 3
    for opcode, function in (("add", np.add), ("maximum", np.maximum)):
        to_apply = scalar_computation(opcode, np.dtype("float32"))
        computation = programs.single("reduce-window", [x, np.float32(-1)], window=(d,), to_apply=to_apply)
        wanted = programs.loop_reduce_window(function, x, np.float32(-1), (d,))
        np.testing.assert_array_equal(evaluate(computation, [x, np.float32(-1)]), wanted)


def test_reduce_window_of_a_combiner_that_is_not_commutative():
    builder = Builder("affine")
    a, b, c, d = (builder.parameter(Shape("f32")) for _ in range(4))
    scale = builder.emit("multiply", a, c)
    shift = builder.emit("add", builder.emit("multiply", b, c), d)
    affine = builder.finish(builder.tuple([scale, shift]))
    rng = np.random.default_rng(1)
    x, y = (programs.values(rng, np.float32, (6,)) for _ in range(2))
    arrays = [x, y, np.float32(1), np.float32(0)]
    computation = programs.single("reduce-window", arrays, window=(W(3, 2, 1, 2),), to_apply=affine)
    found = evaluate(computation, arrays)
    for k, position in enumerate((-1, 1, 3, 5)):
        scale, shift = 1.0, 0.0
        for at in range(max(position, 0), min(position + 3, 6)):
            scale, shift = scale * x[at], shift * x[at] + y[at]
        assert (found[0][k], found[1][k]) == (scale, shift)


@pytest.mark.parametrize("seed", range(40))
def test_select_and_scatter_is_the_loop(seed):
    rng = np.random.default_rng(seed)
    dtype = dtype_of(("float32", "int32", "bfloat16")[seed % 3])
    x = programs.values(rng, dtype, rng.integers(1, 7, rng.integers(1, 4)))
    window = programs.random_window(rng, x.shape, dilates=False)
    source = programs.values(rng, dtype, [d.output(e) for d, e in zip(window, x.shape, strict=True)])
    start = programs.values(rng, dtype, ())
    direction = ("GE", "GT", "LE", "LT")[seed % 4]
    ahead = {"GE": np.greater_equal, "GT": np.greater, "LE": np.less_equal, "LT": np.less}[direction]
    opcode, add = (("add", np.add), ("maximum", np.maximum))[seed % 2]
    arrays = [x, source, start]
    computation = programs.single(
        "select-and-scatter", arrays, window=window, select=comparison(direction, dtype),
        scatter=scalar_computation(opcode, dtype),
    )  # fmt: skip
    wanted = programs.loop_select_and_scatter(ahead, add, x, source, start, window)
    np.testing.assert_array_equal(evaluate(computation, arrays), wanted)


def test_select_and_scatter_of_any_combiner():
    builder = Builder("last")
    builder.parameter(Shape("f32"))
    last = builder.finish(builder.emit("add", builder.parameter(Shape("f32")), builder.constant(np.float32(0))))
    x, source = np.float32([1, 9, 2, 3]), np.float32([5, 6, 7])
    arrays = [x, source, np.float32(-1)]
    computation = programs.single(
        "select-and-scatter", arrays, window=(W(2),), select=comparison("GE", DTYPES["f32"]), scatter=last
    )
    np.testing.assert_array_equal(evaluate(computation, arrays), [-1, 6, -1, 7])


# --- errors -------------------------------------------------------------------------------------------------------

F = np.float32
CONV = {"window": (W(3),), "dim_labels": "b0f_0io->b0f"}
ADD = scalar_computation("add", np.dtype("float32"))
GE = comparison("GE", np.dtype("float32"))
ERRORS = [
    ("convolution", [(2, 5, 3), (3, 3, 4)], CONV | {"dim_labels": "b0f_0io"}, AttributeValueError, "dimension labels"),
    ("convolution", [(2, 5, 3), (3, 3, 4)], CONV | {"dim_labels": "b0f_0ii->b0f"}, AttributeValueError, "labels"),
    ("convolution", [(2, 5), (3, 3, 4)], CONV, ShapeError, "arrays of rank 3"),
    ("convolution", [(2, 5, 3), (2, 3, 4)], CONV, ShapeError, "a window of the kernel's spatial sizes"),
    ("convolution", [(2, 5, 3), (3, 2, 4)], CONV, ShapeError, "3 features of .* 2 input features"),
    ("convolution", [(2, 5, 4), (3, 2, 3)], CONV | {"feature_group_count": 2}, ShapeError, "the groups divide"),
    ("convolution", [(2, 5, 4), (3, 2, 3)], CONV | {"feature_group_count": 0}, AttributeValueError, "positive"),
    ("convolution", [(3, 5, 2), (3, 2, 4)], CONV | {"batch_group_count": 2}, ShapeError, "a batch of 3"),
    ("convolution", [(2, 5, 3), (3, 3, 4)], CONV | {"window": (W(3, 0),)}, AttributeValueError, "stride of at least 1"),
    ("convolution", [(2, 5, 3), (3, 3, 4)], CONV | {"window": (W(3, 1, -4, -3),)}, ShapeError, "a size of at least"),
    ("convolution", [(2, 5, 3), (3, 3, 4)], CONV | {"window": ()}, AttributeValueError, "a window of 1 dimensions"),
    ("reduce-window", [(4,)], {"window": (W(2),), "to_apply": ADD}, ShapeError, "as many initial scalars"),
    ("reduce-window", [(4,), (1,)], {"window": (W(2),), "to_apply": ADD}, ShapeError, "scalar initial values"),
    ("reduce-window", [(4, 4), ()], {"window": (W(2),), "to_apply": ADD}, AttributeValueError, "2 dimensions"),
    ("reduce-window", [(4,), ()], {"window": (W(0),), "to_apply": ADD}, AttributeValueError, "size of at least 1"),
    ("reduce-window", [(4,), ()], {"window": (W(2),)}, AttributeValueError, "takes a computation to_apply"),
    ("reduce-window", [(4,), ()], {"window": (W(2),), "to_apply": GE}, DTypeError, "returns accumulators"),
    ("select-and-scatter", [(4,), (3,)], {"window": (W(2),), "select": GE, "scatter": ADD}, ShapeError, "an initial"),
    ("select-and-scatter", [(4,), (2,), ()], {"window": (W(2),), "select": GE, "scatter": ADD}, ShapeError, "a source"),
    ("select-and-scatter", [(4,), (3,), ()], {"window": (W(2),), "select": ADD, "scatter": ADD}, DTypeError, "select"),
    ("select-and-scatter", [(4,), (3,), ()], {"window": (W(2),), "select": GE, "scatter": GE}, DTypeError, "combiner"),
    (
        "select-and-scatter", [(4,), (2,), ()], {"window": (W(2, window_dilation=2),), "select": GE, "scatter": ADD},
        AttributeValueError, "without dilation",
    ),
    ("batch-norm-training", [(4, 3), (3,), (3,)], {"epsilon": 0.1, "feature_index": 2}, AttributeValueError, "index"),
    ("batch-norm-training", [(4, 3), (4,), (3,)], {"epsilon": 0.1, "feature_index": 1}, ShapeError, "operand 1 is"),
    (
        "batch-norm-grad", [(4, 3), (3,), (3,), (3,), (3, 4)], {"epsilon": 0.1, "feature_index": 1}, ShapeError,
        "a gradient of the operand's shape",
    ),
]  # fmt: skip


@pytest.mark.parametrize("opcode, dims, attributes, error, text", ERRORS)
def test_errors_say_what_was_asked_and_found(opcode, dims, attributes, error, text):
    with pytest.raises(error, match=text) as caught:
        programs.single(opcode, [np.zeros(d, F) for d in dims], **attributes)
    assert isinstance(caught.value, HloomError) and caught.value.asked and caught.value.found
