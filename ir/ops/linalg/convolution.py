"""convolution: sums of products over windows, with HLO's dimension labels, dilations and groups."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hloom.ir.errors import AttributeValueError, ShapeError
from hloom.ir.op_table import No, op
from hloom.ir.ops.linalg.dot import require_same_dtype
from hloom.ir.ops.rules import require_count, require_kind
from hloom.ir.spmd.factors import FactorRule, RuleBuilder
from hloom.ir.types import BITS, DTYPES, INTEGERS, PRED, Shape, wide_dtype
from hloom.ir.window import WindowDimension, check_window, dilated, padded, window_of, window_output, window_view


class Dimensions(NamedTuple):
    """The batch dimension of an array (of the kernel: output features), the feature dimension, and the spatial ones."""

    batch: int
    feature: int
    spatial: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """batch, feature, spatial."""
        return (self.batch, self.feature, *self.spatial)

    def arrange(self, values) -> tuple:
        """(batch, feature, *spatial) values in the order of the array's dimensions."""
        result = [None] * len(self.order)
        for d, value in zip(self.order, values, strict=True):
            result[d] = value
        return tuple(result)

    def swapped(self) -> Dimensions:
        """Batch and feature exchanged."""
        return Dimensions(self.feature, self.batch, self.spatial)

    def text(self, batch: str, feature: str) -> str:
        names = [batch, feature, *map(str, range(len(self.spatial)))]
        return "".join(self.arrange(names))


class Labels(NamedTuple):
    """The dimension labels of a convolution. The kernel's batch is 'o' and its feature 'i'."""

    lhs: Dimensions
    rhs: Dimensions
    out: Dimensions

    def text(self) -> str:
        """HLO's text, such as b01f_01io->b01f. For at most ten spatial dimensions (labels are digits)."""
        return f"{self.lhs.text('b', 'f')}_{self.rhs.text('o', 'i')}->{self.out.text('b', 'f')}"


@lru_cache(maxsize=512)
def parse_labels(text: str) -> Labels:
    """The dimensions named by a string such as 'b01f_01io->b01f'. Raises AttributeValueError."""
    sides = text.replace("->", "_").split("_")
    found = []
    for side, (batch, feature) in zip(sides, (("b", "f"), ("o", "i"), ("b", "f")), strict=False):
        spatial = sorted(c for c in side if c.isdigit())
        expected = [batch, feature, *map(str, range(len(side) - 2))]
        if sorted(side) != sorted(expected):
            break
        found.append(Dimensions(side.index(batch), side.index(feature), tuple(side.index(c) for c in spatial)))
    if len(sides) != 3 or len(found) != 3 or len({len(side) for side in sides}) != 1:
        raise AttributeValueError(
            "convolution takes dimension labels of its operands and its result, each dimension named once",
            f"'{text}'",
            "write them as b01f_01io->b01f: b batch, f features, i and o the kernel's features, digits for space",
        )
    return Labels(*found)


def groups_of(attributes) -> tuple[int, int]:
    """(feature_group_count, batch_group_count)."""
    return attributes.get("feature_group_count", 1), attributes.get("batch_group_count", 1)


def _check_groups(left: Shape, right: Shape, labels: Labels, groups: int, batch_groups: int) -> None:
    features, inputs = left.dims[labels.lhs.feature], right.dims[labels.rhs.feature]
    batch, outputs = left.dims[labels.lhs.batch], right.dims[labels.rhs.batch]
    if groups < 1 or batch_groups < 1 or (groups > 1 and batch_groups > 1):
        raise AttributeValueError(
            "convolution takes a feature_group_count or a batch_group_count, positive and not both above 1",
            f"feature_group_count={groups}, batch_group_count={batch_groups}",
            "use one kind of group",
        )
    if features != inputs * groups:
        raise ShapeError(
            "convolution takes a kernel with the operand's features, divided by feature_group_count",
            f"{features} features of {left!r}, {inputs} input features of {right!r}, {groups} groups",
            "check the dimension labels, or set feature_group_count",
        )
    if outputs % groups or outputs % batch_groups or batch % batch_groups:
        raise ShapeError(
            "convolution takes output features (and with batch groups a batch) that the groups divide",
            f"{outputs} output features, a batch of {batch}, {max(groups, batch_groups)} groups",
            "choose a number of groups that divides them",
        )


def _convolution_infer(operands, attributes, shape):
    require_count("convolution", operands, 2)
    left, right = operands
    for operand in operands:
        require_kind("convolution", operand, ())
    labels = parse_labels(attributes.get("dim_labels", ""))
    window = attributes.get("window", ())
    rank = len(labels.lhs.order)
    if left.rank != rank or right.rank != rank:
        raise ShapeError(
            f"convolution with labels '{attributes['dim_labels']}' takes arrays of rank {rank}",
            f"{left!r} and {right!r}",
            "give labels for every dimension, or reshape the operands",
        )
    check_window("convolution", window, rank - 2)
    sizes = tuple(right.dims[d] for d in labels.rhs.spatial)
    if tuple(d.size for d in window) != sizes:
        raise ShapeError(
            "convolution takes a window of the kernel's spatial sizes",
            f"window {tuple(d.size for d in window)}, kernel {sizes} of {right!r}",
            "give the window the kernel's sizes",
        )
    groups, batch_groups = groups_of(attributes)
    _check_groups(left, right, labels, groups, batch_groups)
    places = window_output("convolution", [left.dims[d] for d in labels.lhs.spatial], window)
    batch = left.dims[labels.lhs.batch] // batch_groups
    dims = labels.out.arrange((batch, right.dims[labels.rhs.batch], *places))
    if shape is None:
        require_same_dtype(left, right, "convolution")
        return left.with_dims(dims)
    if not isinstance(shape, Shape) or shape.dims != dims:
        raise ShapeError("convolution's result has another shape", f"{shape!r}, expected {dims}", "leave the shape out")
    return shape


def _compute_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the reference's sums: one step wider for floats, for the most accurate result."""
    return DTYPES["s32"] if dtype == PRED or (dtype in BITS and dtype in INTEGERS) else wide_dtype(dtype)


VIEW_BYTES = 1 << 26  # the reference copies whole windows up to this size, and proceeds tap by tap beyond


def _convolution_reference(left, right, shape, dim_labels, window=(), feature_group_count=1, batch_group_count=1):
    labels = parse_labels(dim_labels)
    dtype = _compute_dtype(shape.dtype)
    x = np.transpose(left, labels.lhs.order).astype(dtype)
    w = np.transpose(right, labels.rhs.order).astype(dtype)
    places = tuple(shape.dims[d] for d in labels.out.spatial)
    x = padded(x, dtype.type(0), (*[WindowDimension(1)] * 2, *window))
    groups = max(feature_group_count, batch_group_count)
    # [group, batch, space, features] and [group, output features, features, window] -> [group, batch, places, outputs]
    batch, features = x.shape[:2]
    if feature_group_count > 1:
        x = np.moveaxis(x.reshape(batch, groups, features // groups, *x.shape[2:]), 1, 0)
    else:
        x = x.reshape(groups, batch // groups, *x.shape[1:])
    x = np.ascontiguousarray(np.moveaxis(x, 2, -1))
    w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    with np.errstate(all="ignore"):
        sums = _grouped_sums(x, w, window, places)
    if shape.dtype == PRED:
        sums = sums > 0
    # [group, batch, places, outputs] -> [batch, (group, outputs), places]
    sums = np.moveaxis(np.moveaxis(sums, -1, 1), 2, 0)
    sums = sums.reshape(sums.shape[0], sums.shape[1] * sums.shape[2], *places)
    return np.ascontiguousarray(np.transpose(sums, np.argsort(labels.out.order)).astype(shape.dtype))


def _grouped_sums(x, w, window, places):
    groups, batch, inputs = x.shape[0], x.shape[1], x.shape[-1]
    outputs = w.shape[1]
    count = math.prod(places)
    sizes = tuple(d.size for d in window)
    taps = math.prod(sizes)
    if 0 in (groups, batch, inputs, outputs, count):
        return np.zeros((groups, batch, *places, outputs), x.dtype)
    rows = batch * count
    if groups * rows * taps * inputs * x.itemsize <= VIEW_BYTES:
        first = np.moveaxis(x, -1, 0)
        view = window_view(first, (*[WindowDimension(1)] * 3, *window), (inputs, groups, batch, *places))
        # [features, group, batch, places, 1, 1, 1, window] -> [group, rows, window * features]
        view = view.reshape((inputs, groups, batch, *places, *sizes))
        view = np.moveaxis(view, 0, -1).reshape(groups, rows, taps * inputs)
        kernel = np.moveaxis(w, 2, -1).reshape(groups, outputs, taps * inputs)
        return np.matmul(view, kernel.swapaxes(1, 2)).reshape(groups, batch, *places, outputs)
    total = np.zeros((groups, rows, outputs), x.dtype)
    for tap in np.ndindex(sizes):
        slices = []
        for t, d, n in zip(tap, window, places, strict=True):
            start = (d.size - 1 - t if d.reversed else t) * d.window_dilation
            slices.append(slice(start, start + (n - 1) * d.stride + 1, d.stride))
        part = x[(slice(None), slice(None), *slices)].reshape(groups, rows, inputs)
        total += np.matmul(part, w[(slice(None), slice(None), slice(None), *tap)].swapaxes(1, 2))
    return total.reshape(groups, batch, *places, outputs)


# --- derivatives --------------------------------------------------------------------------------------------------


def _convolution_jvp(build, instruction, primals, tangents):
    (left, right), (t_left, t_right) = primals, tangents
    total = None
    for a, b in ((t_left, right), (left, t_right)):
        if a is not None and b is not None:
            term = a.op("convolution", b, shape=instruction.shape, **instruction.attributes)
            total = term if total is None else total + term
    return total


def regrouped(value, dimension: int, groups: int, into: int):
    """Moves the slow part (of size `groups`) of one dimension into the slow part of another."""
    dims = list(value.dims)
    split = [*dims[:dimension], groups, dims[dimension] // groups, *dims[dimension + 1 :]]
    target = into + (into > dimension)  # its position after the split
    order = [k for k in range(len(split)) if k != dimension]
    order.insert(order.index(target), dimension)
    dims[dimension] //= groups
    dims[into] *= groups
    return value.reshape(split).transpose(order).reshape(dims)


def _convolution_transpose(build, instruction, g, operands):
    labels = parse_labels(instruction["dim_labels"])
    window = window_of(instruction)
    groups, batch_groups = groups_of(instruction.attributes)
    if operands[0] is None:
        return [_by_operand(instruction, g, operands[1], labels, window, groups, batch_groups), None]
    return [None, _by_kernel(instruction, g, operands[0], labels, window, groups, batch_groups)]


def _by_operand(instruction, g, kernel, labels, window, groups, batch_groups):
    """The cotangent of the operand: the cotangent of the result convolved with the flipped kernel."""
    target = instruction.operands[0].shape
    sizes = [target.dims[d] for d in labels.lhs.spatial]
    places = [g.dims[d] for d in labels.out.spatial]
    back = tuple(d.transposed(e, n) for d, e, n in zip(window, sizes, places, strict=True))
    kernel = kernel.convert(g.dtype)
    count = max(groups, batch_groups)
    # Outputs of a group become its inputs: [(group, o), i] -> input o, outputs (group, i).
    if count > 1:
        kernel = regrouped(kernel, labels.rhs.batch, count, labels.rhs.feature)
    attributes = {
        "window": back,
        "dim_labels": Labels(labels.out, labels.rhs.swapped(), labels.lhs).text(),
        "feature_group_count": count,
    }
    if batch_groups == 1:
        shape = target.with_dtype(g.dtype)
        return g.op("convolution", kernel, shape=shape, **attributes).convert(target.dtype)
    dims = list(target.dims)
    dims[labels.lhs.batch] //= count
    dims[labels.lhs.feature] *= count
    made = g.op("convolution", kernel, shape=Shape(g.dtype, tuple(dims)), **attributes)
    return regrouped(made, labels.lhs.feature, count, labels.lhs.batch).convert(target.dtype)


def _by_kernel(instruction, g, left, labels, window, groups, batch_groups):
    """The cotangent of the kernel: the operand convolved with the cotangent, summed over the batch."""
    target = instruction.operands[1].shape
    sizes = [left.dims[d] for d in labels.lhs.spatial]
    places = [g.dims[d] for d in labels.out.spatial]
    if 0 in places:
        return _zeros(g, target)
    across = tuple(
        WindowDimension(
            n, d.window_dilation, d.low,
            (d.size - 1) * d.window_dilation + dilated(n, d.stride) - dilated(e, d.base_dilation) - d.low,
            d.base_dilation, d.stride,
        )
        for d, e, n in zip(window, sizes, places, strict=True)
    )  # fmt: skip
    attributes = {
        "window": across,
        "dim_labels": Labels(labels.lhs.swapped(), labels.out.swapped(), labels.rhs.swapped()).text(),
    }
    if groups > 1:
        attributes["batch_group_count"] = groups
    if batch_groups > 1:
        attributes["feature_group_count"] = batch_groups
    left = left.convert(g.dtype)
    made = left.op("convolution", g, shape=target.with_dtype(g.dtype), **attributes)
    turned = tuple(d for d, w in zip(labels.rhs.spatial, window, strict=True) if w.reversed and w.size > 1)
    made = made.op("reverse", dimensions=turned) if turned else made
    return made.convert(target.dtype)


def _zeros(g, shape):
    return g.filled(0, shape)


# --- batching -----------------------------------------------------------------------------------------------------


def _folded(build, value, dimension: int, groups: int):
    """A mapped value whose new dimension is folded into another, between the group index and the index within a
    group."""
    dims = list(value.dims)
    at = dimension + 1  # in the mapped value
    split = [*dims[:at], groups, dims[at] // groups, *dims[at + 1 :]]
    order = list(range(1, len(split)))
    order.insert(order.index(at) + 1, 0)
    merged = [*dims[1:at], build.size * dims[at], *dims[at + 1 :]]
    return value.reshape(split).transpose(order).reshape(merged)


def _unfolded(build, value, dimension: int, groups: int):
    """The inverse of `_folded`."""
    dims = list(value.dims)
    inside = dims[dimension] // (groups * build.size) if build.size else 0
    split = [*dims[:dimension], groups, build.size, inside, *dims[dimension + 1 :]]
    order = [k for k in range(len(split)) if k != dimension + 1]
    opened = value.reshape(split).transpose([dimension + 1, *order])
    dims[dimension] = groups * inside
    return opened.reshape([build.size, *dims])


def _convolution_batch(build, instruction, operands, mapped):
    """The new dimension becomes part of the batch, of the output features, or of the groups."""
    labels = parse_labels(instruction["dim_labels"])
    groups, batch_groups = groups_of(instruction.attributes)
    left, right = operands
    attributes = dict(instruction.attributes)
    out = list(instruction.dims)
    if mapped[0] and not mapped[1]:
        left = _folded(build, left, labels.lhs.batch, batch_groups)
        dimension, inner = labels.out.batch, 1
    elif mapped[1] and not mapped[0]:
        inner = max(groups, batch_groups)
        right = _folded(build, right, labels.rhs.batch, inner)
        dimension = labels.out.feature
    else:
        right = _folded(build, right, labels.rhs.batch, 1)
        dimension, inner = labels.out.feature, 1
        if batch_groups > 1:
            left = _folded(build, left, labels.lhs.batch, 1)
            attributes["batch_group_count"] = batch_groups * build.size
        else:
            left = _folded(build, left, labels.lhs.feature, 1)
            attributes["feature_group_count"] = groups * build.size
        if not build.size:
            return _zeros(left, instruction.shape.with_dims((0, *instruction.dims)))
    out[dimension] *= build.size
    shape = instruction.shape.with_dims(out)
    made = left.op("convolution", right, shape=shape, **attributes)
    return _unfolded(build, made, dimension, inner)


# --- factors ------------------------------------------------------------------------------------------------------


def _convolution_factors(instruction) -> FactorRule:
    """Groups are the major factor of the features that they divide. A spatial dimension of the operand corresponds to
    the result's, or, if the kernel's is longer (the derivative with respect to a kernel), to that one, and is a
    reduction."""
    lhs, rhs, out = parse_labels(instruction["dim_labels"])
    groups, batch_groups = groups_of(instruction.attributes)
    rule = RuleBuilder(instruction, "or" if instruction.shape.dtype == PRED else "add")
    left, right = rule.operand_dims
    outputs = right[rhs.batch]
    if groups > 1:
        rule.add({0: lhs.feature, 1: rhs.batch}, {0: out.feature}, size=groups, local="feature_group_count")
    elif batch_groups > 1:
        rule.add({0: lhs.batch, 1: rhs.batch}, {0: out.feature}, size=batch_groups, local="batch_group_count")
    rule.add({0: lhs.batch}, {0: out.batch}, size=left[lhs.batch] // batch_groups)
    rule.add({1: rhs.batch}, {0: out.feature}, size=outputs // max(groups, batch_groups))
    rule.add({0: lhs.feature, 1: rhs.feature}, {}, "reduction", size=right[rhs.feature])
    for a, b, c, window in zip(lhs.spatial, rhs.spatial, out.spatial, window_of(instruction), strict=True):
        if window.is_plain():
            rule.add({0: a}, {0: c})
        elif right[b] > instruction.shape.dims[c]:
            rule.add({0: a, 1: b}, {}, "reduction", "windows")
        else:
            rule.add({0: a}, {0: c}, "windows")
    return rule.finish()


op(
    "convolution",
    family="contraction",
    infer=_convolution_infer,
    reference=_convolution_reference,
    code=No("a contraction nest over windows, or a loop over them"),
    jvp=_convolution_jvp,
    transpose=_convolution_transpose,
    batch=_convolution_batch,
    factors=_convolution_factors,
    # In XLA's printing order.
    attributes={
        "window": "window?",
        "dim_labels": "dim_labels",
        "feature_group_count": "int?",
        "batch_group_count": "int?",
    },
    flops=2,
    dialects="hlo",
)
