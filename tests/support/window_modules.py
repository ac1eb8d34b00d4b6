"""Modules of convolution, reduce-window, select-and-scatter and batch normalization for `op_modules`."""

from __future__ import annotations

import numpy as np
from op_modules import argmax_combiner, case, numbers

from hloom.ir.build import scalar_computation
from hloom.ir.ops.reductions.window import comparison
from hloom.ir.types import Shape
from hloom.ir.window import WindowDimension as W

F32 = np.dtype("float32")


@case
def convolutions(b, parameter):
    x, w = parameter(numbers("f32", (2, 7, 6, 4)), "x"), parameter(numbers("f32", (3, 2, 4, 6), 1), "w")
    grouped = parameter(numbers("f32", (3, 2, 2, 6), 2), "grouped")
    image, kernel = parameter(numbers("f32", (4, 3, 9)), "image"), parameter(numbers("f32", (5, 3, 2), 1), "kernel")
    i, j = parameter(numbers("s32", (1, 5, 2)) % 50, "i"), parameter(numbers("s32", (2, 2, 3)) % 50, "j")
    h = parameter(numbers("bf16", (2, 5, 2)), "h")
    hw = parameter(numbers("bf16", (3, 2, 2), 1), "hw")
    flat, matrix = parameter(numbers("f32", (3, 4)), "flat"), parameter(numbers("f32", (4, 5)), "matrix")
    batched = parameter(numbers("f32", (4, 6, 2), 1), "batched")
    outputs = parameter(numbers("f32", (3, 2, 4), 1), "outputs")

    def conv(x, w, labels, *window, **rest):
        return b.emit("convolution", x, w, window=window, dim_labels=labels, **rest)

    return [
        conv(x, w, "b01f_01io->b01f", W(3), W(2)),
        conv(x, w, "b01f_01io->b01f", W(3, 2, 1, 1), W(2, 1, 0, 1)),
        conv(x, w, "b01f_01io->fb01", W(3, 2, 1, 1, 2, 2), W(2, 3, -1, 2, 3)),
        conv(x, w, "b01f_01io->b01f", W(3, 1, 0, 0, 1, 1, True), W(2, 1, 2, 2, 1, 1, True)),
        conv(x, grouped, "b01f_01io->b01f", W(3), W(2), feature_group_count=2),
        conv(image, kernel, "bf0_oi0->bf0", W(2)),
        conv(batched, outputs, "b0f_0io->b0f", W(3), batch_group_count=2),
        conv(i, j, "b0f_0io->b0f", W(2)),
        conv(h, hw, "b0f_0io->b0f", W(3, 1, 1, 1)),
        conv(h, hw, "b0f_0io->b0f", W(3), shape=Shape("f32", (2, 3, 2))),
        conv(flat, matrix, "bf_io->bf"),
    ]


@case
def windows(b, parameter):
    x = parameter(numbers("f32", (5, 8)), "x")
    i = parameter(numbers("s32", (4, 6)) % 100, "i")
    p = parameter(numbers("pred", (4, 6)), "p")
    c = parameter(numbers("c64", (6,)), "c")
    v = parameter(np.float32(0.5), "v")

    def reduce(x, start, opcode, *window):
        start = b.constant(np.asarray(start, x.dtype)) if not hasattr(start, "opcode") else start
        return b.emit("reduce-window", x, start, window=window, to_apply=scalar_computation(opcode, x.dtype))

    outputs = [
        reduce(x, 0, "add", W(2), W(3)),
        reduce(x, v, "add", W(2, 2, 1, 0), W(3, 1, 1, 1)),
        reduce(x, 0, "add", W(1), W(8, 1, 7, 0)),
        reduce(x, 1, "multiply", W(2, 1, 0, 0, 2, 1), W(2, 1, 0, 0, 1, 3)),
        reduce(x, -np.inf, "maximum", W(3, 2, 1, 1), W(3, 2, 0, 1)),
        reduce(x, v, "minimum", W(3, 2, -1, 1), W(3, 2, 0, 1)),
        reduce(i, 3, "add", W(2), W(2)),
        reduce(i, -5, "maximum", W(4), W(1, 2)),
        reduce(p, False, "or", W(2), W(3)),
        reduce(p, True, "and", W(1), W(3, 3)),
        reduce(c, 0, "add", W(3, 1, 1, 1)),
    ]
    index = b.emit("iota", shape=Shape("s32", (5, 8)), iota_dimension=1)
    start = b.constant(np.float32(-np.inf)), b.constant(np.int32(0))
    pair = b.emit("reduce-window", x, index, *start, window=(W(2), W(3, 2)), to_apply=argmax_combiner())
    return outputs + [b.emit("get-tuple-element", pair, index=k) for k in (0, 1)]


@case
def selections_over_windows(b, parameter):
    x = parameter(numbers("f32", (6, 8)), "x")
    s, t = parameter(numbers("f32", (3, 4), 1), "s"), parameter(numbers("f32", (5, 7), 1), "t")
    zero = b.constant(np.float32(0))
    add, largest = scalar_computation("add", F32), scalar_computation("maximum", F32)
    outputs = []
    for direction in ("GE", "GT", "LE"):
        chosen = comparison(direction, F32)
        outputs.append(b.emit("select-and-scatter", x, s, zero, window=(W(2, 2), W(2, 2)), select=chosen, scatter=add))
    chosen = comparison("GE", F32)
    outputs.append(b.emit("select-and-scatter", x, t, zero, window=(W(2), W(2)), select=chosen, scatter=add))
    outputs.append(
        b.emit("select-and-scatter", x, s, zero, window=(W(3, 2, 1, 0), W(3, 2, 0, 1)), select=chosen, scatter=largest)
    )
    return outputs


@case
def batch_normalizations(b, parameter):
    x, g = parameter(numbers("f32", (5, 3, 4)), "x"), parameter(numbers("f32", (5, 3, 4), 1), "g")
    scale, offset, mean = (parameter(numbers("f32", (3,), k), n) for k, n in ((2, "scale"), (3, "offset"), (4, "mean")))
    variance = parameter(numbers("f32", (3,), 5, 0.5, 4.0), "variance")
    how = {"epsilon": 0.125, "feature_index": 1}
    training = b.emit("batch-norm-training", x, scale, offset, **how)
    grad = b.emit("batch-norm-grad", x, scale, mean, variance, g, **how)
    inference = b.emit("batch-norm-inference", x, scale, offset, mean, variance, **how)
    return [inference] + [b.emit("get-tuple-element", t, index=k) for t in (training, grad) for k in range(3)]
