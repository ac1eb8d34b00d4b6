"""Cases of convolution, reduce-window, select-and-scatter and batch normalization for `derivative_cases`."""

from __future__ import annotations

import numpy as np

from hloom.ir.build import Builder, Value, scalar_computation
from hloom.ir.ops.reductions.window import comparison, selecting_combiner
from hloom.ir.types import Shape
from hloom.ir.window import WindowDimension as W

F64 = np.dtype("float64")
ADD = scalar_computation("add", F64)
MAXIMUM, MINIMUM, MULTIPLY = (scalar_computation(name, F64) for name in ("maximum", "minimum", "multiply"))


def normal(rng, dims):
    return rng.normal(size=dims)


def positive(rng, dims):
    return rng.uniform(0.4, 2.5, size=dims)


def complex_normal(rng, dims):
    return rng.normal(size=dims) + 1j * rng.normal(size=dims)


def whole(rng, dims):
    """Distinct whole numbers: every extreme is reached once."""
    return rng.permutation(int(np.prod(dims))).astype(F64).reshape(dims)


def convolution(labels, *window, **groups):
    return lambda x, w: x.op("convolution", w, window=window, dim_labels=labels, **groups)


def reduce_window(to_apply, *window):
    return lambda x, v: x.op("reduce-window", v, window=window, to_apply=to_apply)


def extreme(to_apply, neutral, *window):
    def apply(x):
        start = Value(x.builder, x.builder.constant(np.asarray(neutral, x.dtype)))
        return x.op("reduce-window", start, window=window, to_apply=to_apply)

    return apply


def combiner(function, count):
    builder = Builder("combiner")
    values = [Value(builder, builder.parameter(Shape(F64))) for _ in range(2 * count)]
    results = [r.instruction for r in function(*values)]
    return builder.finish(results[0] if count == 1 else builder.tuple(results))


LOG_ADD = combiner(lambda a, x: [a.op("maximum", x) + (-(a - x).op("abs")).op("exponential").op("log-plus-one")], 1)
AFFINE = combiner(lambda a, b, c, d: [a * c, b * c + d], 2)


def pairs(to_apply, *window):
    def apply(x, y, a, b):
        made = x.op("reduce-window", y, a, b, window=window, to_apply=to_apply)
        return [made.op("get-tuple-element", index=k) for k in range(2)]

    return apply


def selection(*window):
    """The element of y where x is largest, by a variadic reduce-window."""

    def apply(x, y):
        starts = [Value(x.builder, x.builder.constant(np.float64(v))) for v in (-np.inf, 0)]
        made = x.op("reduce-window", y, *starts, window=window, to_apply=selecting_combiner("GE", F64, F64))
        return [made.op("get-tuple-element", index=k) for k in range(2)]

    return apply


def scatter(direction, *window):
    def apply(x, s, v):
        return x.op("select-and-scatter", s, v, window=window, select=comparison(direction, F64), scatter=ADD)

    return apply


def batch_norm(opcode, feature, outputs):
    def apply(x, *rest):
        if opcode == "batch-norm-inference":
            return x.op(opcode, *rest, epsilon=0.01, feature_index=feature)
        made = x.op(opcode, *rest, epsilon=0.01, feature_index=feature)
        return [made.op("get-tuple-element", index=k) for k in range(outputs)]

    return apply


def register(case) -> None:
    one, conv = W(1), "convolution"
    case(conv, convolution("b0f_0io->b0f", W(3, 1, 1, 1)), (normal, (2, 6, 3)), (normal, (3, 3, 4)), label="same")
    case(
        conv, convolution("bf01_oi01->bf01", W(3, 2, 1, 2), W(2, 1, 0, -1)),
        (normal, (2, 2, 6, 5)), (normal, (3, 2, 3, 2)), label="strided",
    )  # fmt: skip
    case(
        conv, convolution("f0b1_1o0i->0fb1", W(3, 1, 2, 1, 2, 1, True), W(2, 3, 1, 2, 3, 2)),
        (normal, (2, 4, 2, 3)), (normal, (2, 3, 3, 2)), label="dilated",
    )  # fmt: skip
    case(
        conv, convolution("b0f_0io->b0f", W(2, 2, 1, 0), feature_group_count=2),
        (normal, (2, 5, 4)), (normal, (2, 2, 6)), label="feature-groups",
    )  # fmt: skip
    case(
        conv, convolution("b0f_0oi->b0f", W(2, 1, 1, 0, 1, 2, True), batch_group_count=2),
        (normal, (4, 5, 3)), (normal, (2, 4, 3)), label="batch-groups",
    )  # fmt: skip
    case(conv, convolution("bf_io->bf"), (normal, (2, 3)), (normal, (3, 4)), label="no-space")
    case(
        conv, convolution("b0f_0io->b0f", W(2)), (complex_normal, (1, 4, 2)), (complex_normal, (2, 2, 2)),
        label="complex",
    )  # fmt: skip
    case(conv, convolution("b0f_0io->b0f", W(3)), (normal, (2, 2, 2)), (normal, (3, 2, 2)), label="no-place")
    case(conv, lambda x: convolution("0bf_0io->0bf", W(3, 1, 1, 1))(x, x), (normal, (3, 2, 2)), label="itself")

    name, start = "reduce-window", (normal, ())
    case(name, reduce_window(ADD, one, W(3, 2, 1, 2)), (normal, (2, 6)), start, label="add")
    case(name, reduce_window(ADD, W(2, 3, 1, 1, 2, 2), W(3, 1, -1, 2)), (normal, (4, 6)), start, label="add-dilated")
    case(name, reduce_window(ADD, W(6, 1, 5, 0)), (normal, (6,)), start, label="add-cumulative")
    case(name, reduce_window(ADD, W(3)), (normal, (2,)), start, label="add-nowhere")
    case(name, reduce_window(MULTIPLY, one, W(5, 2, 1, 0)), (normal, (2, 8)), start, label="multiply")
    case(name, reduce_window(LOG_ADD, W(3, 1, 1, 1), W(2)), (normal, (3, 4)), start, label="log-add-exp")
    case(name, pairs(AFFINE, W(3, 1, 2, 0)), (normal, (5,)), (normal, (5,)), start, start, label="affine")
    window = (W(3, 2, 1, 1), W(2, 1, 0, 1))
    case(name, extreme(MAXIMUM, -np.inf, *window), (whole, (6, 5)), smooth=False, label="maximum")
    case(name, extreme(MINIMUM, np.inf, W(2, 1, 1, 1, 3, 2)), (whole, (5,)), smooth=False, label="minimum-dilated")
    case(name, reduce_window(MAXIMUM, W(2, 1, 1, 0)), (normal, (5,)), start, smooth=False, label="maximum-from")
    case(name, selection(W(3, 2, 1, 1), W(2)), (whole, (6, 4)), (normal, (6, 4)), smooth=False, label="selection")

    name = "select-and-scatter"
    sampled = ((whole, (6, 5)), (normal, (3, 5)), start)
    case(name, scatter("GE", *window), *sampled, smooth=False, label="greatest")
    case(name, scatter("LT", W(2, 2), W(3, 1)), (whole, (6, 5)), (normal, (3, 3)), start, smooth=False, label="least")

    features = (normal, (4,))
    case(
        "batch-norm-training", batch_norm("batch-norm-training", 2, 3), (normal, (3, 2, 4)), features, features
    )  # fmt: skip
    case(
        "batch-norm-inference", batch_norm("batch-norm-inference", 1, 1),
        (normal, (3, 4, 2)), features, features, features, (positive, (4,)),
    )  # fmt: skip
    case(
        "batch-norm-grad", batch_norm("batch-norm-grad", 0, 3),
        (normal, (4, 3)), features, features, (positive, (4,)), (normal, (4, 3)),
    )  # fmt: skip
