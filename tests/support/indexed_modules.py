"""Cases for `op_modules`: gather, scatter, sort and topk."""

from __future__ import annotations

import numpy as np
from indexed_cases import COMBINERS, random_indices, random_windows
from op_modules import case, numbers

from hloom.ir.build import Builder, scalar_computation
from hloom.ir.ops.indexing.gather import gather_attributes, scatter_attributes
from hloom.ir.ops.indexing.sort import comparator
from hloom.ir.types import Shape


@case
def gathers(b, parameter):
    outputs = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        w = random_windows(rng)
        x = parameter(numbers("f32", w.operand, seed), f"x{seed}")
        i = parameter(random_indices(rng, w, [np.int32, np.uint8, np.int64][seed % 3]), f"i{seed}")
        outputs.append(b.emit("gather", x, i, **gather_attributes(w)))
    x = parameter(numbers("f32", (4, 3)), "x")
    i = parameter(np.array([[0], [2]], np.int32), "i")
    numbers_ = {"offset_dims": (1,), "collapsed_slice_dims": (0,), "start_index_map": (0,), "index_vector_dim": 1}
    return [*outputs, b.emit("gather", x, i, slice_sizes=(1, 3), indices_are_sorted=True, **numbers_)]


@case
def scatters(b, parameter):
    outputs = []
    for seed in range(12):
        rng = np.random.default_rng(50 + seed)
        w = random_windows(rng)
        while not w.mapped:  # all updates at the start: XLA's compiler for CPUs gets these wrong
            w = random_windows(rng)
        combiner = list(COMBINERS.values())[seed % len(COMBINERS)][0]
        x = parameter(numbers("f32", w.operand, seed), f"x{seed}")
        i = parameter(random_indices(rng, w), f"i{seed}")
        u = parameter(numbers("f32", w.dims(), seed + 1), f"u{seed}")
        outputs.append(b.emit("scatter", x, i, u, **scatter_attributes(w, combiner("f32"))))
    x, y = (parameter(numbers(d, (5,)), d) for d in ("f32", "s32"))
    i = parameter(np.array([3, 0], np.int32), "i")
    u, v = (parameter(numbers(d, (2,), 1), d) for d in ("f32", "s32"))
    builder = Builder("both")
    p = [builder.parameter(Shape(d)) for d in ("f32", "s32", "f32", "s32")]
    both = builder.finish(builder.tuple([builder.emit("add", p[0], p[2]), builder.emit("maximum", p[1], p[3])]))
    attributes = {
        "update_window_dims": (),
        "inserted_window_dims": (0,),
        "scatter_dims_to_operand_dims": (0,),
        "index_vector_dim": 1,
    }
    pair = b.emit("scatter", x, y, i, u, v, **attributes, unique_indices=True, to_apply=both)
    outputs += [b.emit("get-tuple-element", pair, index=k) for k in (0, 1)]
    add = scalar_computation("add", "f32")
    outputs.append(
        b.emit("scatter", x, i, u, **attributes, unique_indices=True, indices_are_sorted=False, to_apply=add)
    )
    return outputs


@case
def sorts(b, parameter):
    x, y = parameter(numbers("f32", (4, 7)), "x"), parameter(numbers("s32", (4, 7)) % 3, "y")
    c = parameter(numbers("c64", (5,)), "c")
    builder = Builder("nearer")
    p, q = (builder.parameter(Shape("f32")) for _ in range(2))
    nearer = builder.finish(builder.emit("compare", builder.emit("abs", p), builder.emit("abs", q), direction="LT"))
    pair = b.emit("sort", y, x, dimensions=(1,), is_stable=True, to_apply=comparator(["s32", "f32"], 2))
    top = b.emit("topk", x, k=3, largest=True)
    least = b.emit("topk", x, k=2, largest=False)
    return [
        b.emit("sort", x, dimensions=(0,), to_apply=comparator(["f32"])),
        b.emit("sort", x, dimensions=(1,), is_stable=True, to_apply=comparator(["f32"], 1, True)),
        b.emit("sort", x, dimensions=(1,), is_stable=True, to_apply=nearer),
        b.emit("sort", c, dimensions=(0,), is_stable=True, to_apply=comparator(["c64"])),
        *[b.emit("get-tuple-element", pair, index=k) for k in (0, 1)],
        *[b.emit("get-tuple-element", t, index=k) for t in (top, least) for k in (0, 1)],
    ]
