"""Cases of gather, scatter, sort and topk for `derivative_cases`."""

from __future__ import annotations

import numpy as np
from indexed_cases import COMBINERS, random_indices, random_windows

from hloom.ir.build import Builder, Value
from hloom.ir.ops.indexing.gather import gather_attributes, scatter_attributes
from hloom.ir.ops.indexing.sort import comparator
from hloom.ir.ops.indexing.windows import Windows
from hloom.ir.types import Shape

F64, S32 = np.dtype("float64"), np.dtype("int32")


def normal(rng, dims):
    return rng.normal(size=dims)


def complex_normal(rng, dims):
    return rng.normal(size=dims) + 1j * rng.normal(size=dims)


def places(rng, dims):
    """Some before the first element, some behind the last, some twice."""
    return rng.integers(-2, 6, dims).astype(S32)


def distinct(rng, dims):
    """Rows that no two updates share; one of them is outside."""
    return np.concatenate([rng.permutation(6)[: dims[0] - 1], [9]]).astype(S32).reshape(dims)


def apart(rng, dims):
    """Numbers that differ by far more than a finite difference, in any order."""
    return (rng.permutation(int(np.prod(dims))) * 0.5 + rng.uniform(0, 0.1, int(np.prod(dims)))).reshape(dims)


# Rows of a matrix; rows and columns with the components of an index first; a batching dimension with windows inside.
WINDOWS = {
    "rows": Windows((6, 3), (4, 1), (1,), (0,), (0,), (), (), 1, (1, 3)),
    "corners": Windows((5, 4), (2, 3), (0, 2), (), (1, 0), (), (), 0, (2, 3)),
    "batching": Windows((2, 5, 3), (2, 4, 1), (1, 3), (), (1,), (0,), (0,), 2, (1, 2, 3)),
    "scalar-index": Windows((6, 2), (), (0,), (0,), (0,), (), (), 0, (1, 2)),
}


def gather(w: Windows):
    return lambda x, i: x.op("gather", i, **gather_attributes(w))


def scatter(w: Windows, name: str, unique: bool = False):
    def apply(x, i, u):
        return x.op("scatter", i, u, **scatter_attributes(w, COMBINERS[name][0](x.dtype), unique=unique))

    return apply


def updates_only(w: Windows, name: str):
    """The scatter onto a constant array."""

    def apply(i, u):
        zeros = Value(u.builder, u.builder.splat(0.25, Shape(u.dtype, w.operand)))
        return zeros.op("scatter", i, u, **scatter_attributes(w, COMBINERS[name][0](u.dtype)))

    return apply


def by_absolute_value():
    """A comparator that no table of known ones has."""
    builder = Builder("nearer")
    a, b = (Value(builder, builder.parameter(Shape(F64))) for _ in range(2))
    return builder.finish((a * a).compare("LT", b * b).instruction)


def sort(axis: int, to_apply, inexact=None):
    def apply(*operands):
        result = operands[0].op("sort", *operands[1:], dimensions=(axis,), is_stable=True, to_apply=to_apply)
        if len(operands) == 1:
            return result
        return [result.op("get-tuple-element", index=k) for k in inexact or range(len(operands))]

    return apply


def topk(**attributes):
    return lambda x: x.op("topk", **attributes).op("get-tuple-element", index=0)


def register(case) -> None:
    for name, w in WINDOWS.items():
        case("gather", gather(w), (normal, w.operand), (places, w.indices), label=name)
        for combiner in ("add", "overwrite", "minimum", "maximum"):
            case(
                "scatter", scatter(w, combiner), (normal, w.operand), (places, w.indices), (normal, w.dims()),
                smooth=combiner in ("add", "overwrite"), label=f"{combiner}-{name}",
            )  # fmt: skip
        for combiner in ("add", "overwrite", "maximum"):
            case(
                "scatter", updates_only(w, combiner), (places, w.indices), (normal, w.dims()),
                smooth=combiner != "maximum", label=f"{combiner}-{name}-updates",
            )  # fmt: skip
    w = WINDOWS["rows"]
    case("gather", gather(w), (complex_normal, w.operand), (places, w.indices), label="complex")
    for combiner in ("add", "overwrite", "multiply"):
        drawn = ((normal, w.operand), (distinct, w.indices), (normal, w.dims()))
        case("scatter", scatter(w, combiner, True), *drawn, label=f"{combiner}-distinct")
        drawn = ((complex_normal, w.operand), (distinct, w.indices), (complex_normal, w.dims()))
        case("scatter", scatter(w, combiner, True), *drawn, label=f"{combiner}-distinct-complex")
    for seed in range(8):
        rng = np.random.default_rng(600 + seed)
        w = random_windows(rng)
        while 0 in w.dims():
            w = random_windows(rng)
        at = random_indices(rng, w)
        drawn = ((normal, w.operand), (lambda rng, dims, at=at: at, w.indices))
        case("gather", gather(w), *drawn, label=f"random-{seed}")
        case("scatter", scatter(w, "add"), *drawn, (normal, w.dims()), label=f"add-random-{seed}")
        case("scatter", scatter(w, "overwrite"), *drawn, (normal, w.dims()), label=f"overwrite-random-{seed}")

    one, two = comparator([F64]), comparator([F64, F64], 2)
    case("sort", sort(0, one), (apart, (5, 3)), label="first")
    case("sort", sort(1, comparator([F64], 1, True)), (apart, (2, 6)), label="descending")
    case("sort", sort(1, by_absolute_value()), (apart, (2, 6)), label="nearer")
    case("sort", sort(0, two), (apart, (7,)), (normal, (7,)), label="two-keys")
    case("sort", sort(1, comparator([S32, F64], 1), [1]), (places, (3, 7)), (normal, (3, 7)), label="by-integers")
    case("sort", sort(0, comparator([F64, F64, S32], 1), [1]), (apart, (6,)), (normal, (6,)), (places, (6,)),
         label="payload")  # fmt: skip
    case("sort", sort(0, comparator([np.dtype("complex128")])), (complex_normal, (6,)), label="complex")
    case("topk", topk(k=3, largest=True), (apart, (2, 6)), label="largest")
    case("topk", topk(k=2, largest=False), (apart, (7,)), label="smallest")
