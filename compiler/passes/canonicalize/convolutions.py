"""canonicalize-convolutions: converts every convolution to the contraction nest's form, or to simpler ops.

The form (`normal_forms.is_normal_convolution`): no dilation of the operand, no reversal, no batch groups, real
numbers, the kernel's output features first or last in memory, the result's first, last or second. A convolution with
non-overlapping windows is a dot; a depthwise one is a sum over the window's elements.
"""

from __future__ import annotations

import math

import numpy as np

from hloom.compiler.fusibility import MASKED
from hloom.compiler.normal_forms import IN_WORDS, is_normal_convolution, is_normal_labels
from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.walk import change_computations, replaced
from hloom.ir.build import Builder, Value
from hloom.ir.module import Instruction, Module
from hloom.ir.ops import OPS
from hloom.ir.ops.linalg.convolution import Dimensions, Labels, groups_of, parse_labels, regrouped
from hloom.ir.records import record
from hloom.ir.types import (
    COMPLEX,
    DTYPES,
    FLOATS8,
    HOST_DTYPES,
    NARROW_FLOATS,
    PRED,
    SIGNED,
    Shape,
    real_dtype,
)
from hloom.ir.window import WindowDimension, window_of

NAME = "canonicalize-convolutions"
# Maximum number of window elements for which a depthwise convolution is expanded to a sum.
WRITTEN_OUT = 64
# Number of window elements that one kernel sums, as its number of instructions is limited: the rest is a separate
# kernel.
TOGETHER = 16
# Maximum row length of results whose rows are computed as one.
SHORT = 32
# Minimum number of products per element read or written for which the order of dimensions is changed.
TURNED = 12
# Number of instructions before a convolution searched for a transpose, and opcodes looked through besides element-wise
# ones.
LOOKED_AT = 64
LOOKED_THROUGH = ("pad", "slice", "concatenate", "optimization-barrier")
# Conversions of element types that kernels cannot load.
_STORED = {d: DTYPES["f32" if d in FLOATS8 else "s32" if d in SIGNED else "u32"] for d in HOST_DTYPES}


@module_pass(NAME, "convolution")
def canonicalize_convolutions(module: Module) -> Module:
    """Converts convolutions to the contraction nest's form, to dots, or to sums of products."""
    return change_computations(module, lambda computation: replaced(computation, NAME, _is_wanted, _simplified))


def _is_wanted(instruction: Instruction) -> bool:
    if instruction.opcode != "convolution":
        return False
    if not is_normal_convolution(instruction) or _is_dot(instruction) or _is_written_out(instruction):
        return True
    return _is_turned(instruction)


def _simplified(builder: Builder, instruction: Instruction, _) -> Instruction:
    """One convolution, simplified step by step until it is in normal form or eliminated."""
    left, right = (Value(builder, o) for o in instruction.operands)
    return _simplify(left, right, instruction.shape, dict(instruction.attributes)).instruction


def _simplify(x: Value, w: Value, shape: Shape, attributes: dict) -> Value:
    if 0 in x.dims or 0 in w.dims or 0 in shape.dims:
        return Value(x.builder, x.builder.splat(0, shape))
    converted = _of_one_kind(x, w, shape, attributes)
    if converted is not None:
        return converted
    labels = parse_labels(attributes["dim_labels"])
    window = attributes.get("window", ())
    w, window = _without_reversal(w, labels, window)
    attributes["window"] = window
    made = Instruction("convolution", (x.instruction, w.instruction), shape, attributes)
    if _is_turned(made) or (_is_written_out(made) and _comes_turned(x.instruction, labels)):
        return _turned(x, w, shape, labels, attributes)
    if _is_summed(made):
        return _summed(x, w, shape, labels, window)
    for k, d in enumerate(window):
        if d.base_dilation != 1 and d.stride == 1 and d.window_dilation == 1:
            return _by_phases(k, x, w, shape, labels, attributes)
    x, window = _without_dilation(x, labels, window)
    attributes["window"] = window
    batch_groups = attributes.pop("batch_group_count", 1)
    if batch_groups > 1:
        # A batch group is a feature group of an operand whose features are (group, feature).
        x = regrouped(x, labels.lhs.batch, batch_groups, labels.lhs.feature)
        attributes["feature_group_count"] = batch_groups
    made = Instruction("convolution", (x.instruction, w.instruction), shape, attributes)
    if _is_dot(made):
        return _as_dot(x, w, shape, labels, window)
    if _is_written_out(made):
        return _written_out(x, w, shape, labels, window)
    return _with_normal_labels(x, w, shape, labels, attributes)


# --- element types ------------------------------------------------------------------------------------------------


def _of_one_kind(x: Value, w: Value, shape: Shape, attributes: dict) -> Value | None:
    """The convolution in element types that kernels can accumulate; None if it is already."""
    if shape.dtype == PRED or x.dtype == PRED or w.dtype == PRED:
        wide = DTYPES["s32"] if shape.dtype == PRED else shape.dtype
        made = _simplify(x.convert(wide), w.convert(wide), shape.with_dtype(wide), attributes)
        return made.compare("GT", 0) if shape.dtype == PRED else made
    if shape.dtype in _STORED or x.dtype in _STORED or w.dtype in _STORED:
        wide = _STORED.get(shape.dtype, shape.dtype)
        return _simplify(x.convert(wide), w.convert(wide), shape.with_dtype(wide), attributes).convert(shape.dtype)
    if shape.dtype in COMPLEX or x.dtype in COMPLEX or w.dtype in COMPLEX:
        x, w = x.convert(shape.dtype), w.convert(shape.dtype)
        part = shape.with_dtype(real_dtype(shape.dtype))
        (a, b), (c, d) = ((v.op("real"), v.op("imag")) for v in (x, w))

        def product(p, q):
            return _simplify(p, q, part, dict(attributes))

        return (product(a, c) - product(b, d)).op("complex", product(a, d) + product(b, c))
    if x.dtype != w.dtype:
        narrow = shape.dtype == DTYPES["s32"] and IN_WORDS.issuperset((x.dtype, w.dtype))
        kind = DTYPES["s16"] if narrow else shape.dtype  # for `narrow-convolutions`
        return _simplify(x.convert(kind), w.convert(kind), shape, attributes)
    return None


# --- windows ------------------------------------------------------------------------------------------------------


def _without_reversal(w: Value, labels: Labels, window):
    """(kernel, window) with the reversal of the kernel done."""
    turned = tuple(k for k, d in zip(labels.rhs.spatial, window, strict=True) if d.reversed and d.size > 1)
    if turned:
        w = w.op("reverse", dimensions=turned)
    return w, tuple(d._replace(reversed=False) for d in window)


def _without_dilation(x: Value, labels: Labels, window):
    """(operand, window) with zeros between the operand's elements."""
    if any(d.base_dilation != 1 for d in window):
        padding = [(0, 0, 0)] * len(x.dims)
        for k, d in zip(labels.lhs.spatial, window, strict=True):
            padding[k] = (0, 0, d.base_dilation - 1)
        x = x.op("pad", _zero(x), padding=tuple(padding))
    return x, tuple(d._replace(base_dilation=1) for d in window)


def _by_phases(k: int, x: Value, w: Value, shape: Shape, labels: Labels, attributes: dict) -> Value:
    """A convolution of a dilated operand (the gradient of a strided one) without the zeros between its elements.

    Positions a dilation apart along spatial dimension k use the same elements of the window: the kernel splits into one
    per phase of the dilation, whose results are interleaved.
    """
    window = attributes["window"]
    d, gap = window[k], window[k].base_dilation
    place, tap = labels.out.spatial[k], labels.rhs.spatial[k]
    extent, places = x.dims[labels.lhs.spatial[k]], -(-shape.dims[place] // gap)
    dims = list(shape.dims)
    dims[place] = places
    results = []
    for phase in range(gap):
        first = (d.low - phase) % gap
        size = max(-(-(d.size - first) // gap), 0)
        if size == 0:
            part = Value(x.builder, x.builder.splat(0, shape.with_dims(dims)))
        else:
            bounds = [(0, n, 1) for n in w.dims]
            bounds[tap] = (first, d.size, gap)
            low = (d.low - phase - first) // gap
            high = places - 1 + size - extent - low
            own = WindowDimension(size, 1, low, high)
            kernel = w.op("slice", slice=tuple(bounds))
            changed = attributes | {"window": (*window[:k], own, *window[k + 1 :])}
            part = _simplify(x, kernel, shape.with_dims(dims), changed)
        results.append(part.reshape((*dims[: place + 1], 1, *dims[place + 1 :])))
    whole = results[0].op("concatenate", *results[1:], dimensions=(place + 1,))
    whole = whole.reshape((*dims[:place], places * gap, *dims[place + 1 :]))
    if places * gap == shape.dims[place]:
        return whole
    return whole.op("slice", slice=tuple((0, n, 1) for n in shape.dims))


def _zero(value: Value) -> Value:
    return Value(value.builder, value.builder.constant(np.zeros((), value.dtype)))


# --- as a dot -----------------------------------------------------------------------------------------------------


def _is_dot(instruction: Instruction) -> bool:
    """Whether every window has one element, or there is one window, which is the whole array."""
    if groups_of(instruction.attributes) != (1, 1) or instruction.dtype in COMPLEX:
        return False
    labels, window = parse_labels(instruction["dim_labels"]), window_of(instruction)
    if any(d.low or d.high or d.base_dilation != 1 or d.reversed for d in window):
        return False
    extents = [instruction.operands[0].dims[k] for k in labels.lhs.spatial]
    whole = all(d.size == e or d.size == 1 for d, e in zip(window, extents, strict=True))
    if instruction.operands[0].dtype != instruction.operands[1].dtype:
        return False
    return whole and instruction.operands[0].dtype not in (PRED, *_STORED) and instruction.dtype != PRED


def _as_dot(x: Value, w: Value, shape: Shape, labels: Labels, window) -> Value:
    bounds = [(0, extent, 1) for extent in x.dims]
    contracted = [(labels.lhs.feature, labels.rhs.feature)]
    for d, k, t in zip(window, labels.lhs.spatial, labels.rhs.spatial, strict=True):
        if d.size == 1 and x.dims[k] != 1:
            bounds[k] = (0, x.dims[k], d.stride)
        else:
            contracted.append((k, t))
    if any(stride != 1 for _, _, stride in bounds):
        x = x.op("slice", slice=tuple(bounds))
    # Dimensions of the kernel with one element that are not contracted are dropped.
    own = [k for k, _ in contracted]
    other = [t for _, t in contracted]
    dropped = [t for t in range(len(w.dims)) if t not in other and t != labels.rhs.batch]
    kept = [t for t in range(len(w.dims)) if t not in dropped]
    w = w.reshape([w.dims[t] for t in kept])
    free = [k for k in range(len(x.dims)) if k not in own]
    dims = [*(x.dims[k] for k in free), w.dims[kept.index(labels.rhs.batch)]]
    made = x.op(
        "dot",
        w,
        shape=shape.with_dims(dims),
        lhs_contracting_dims=tuple(own),
        rhs_contracting_dims=tuple(kept.index(t) for t in other),
    )
    # The roles of the product's dimensions, with the contracted ones last (size 1).
    role = {labels.lhs.batch: labels.out.batch, **dict(zip(labels.lhs.spatial, labels.out.spatial, strict=True))}
    order = [*(role[k] for k in free), labels.out.feature]
    whole = [d for d in labels.out.spatial if d not in order]
    made = made.reshape([*made.dims, *[1] * len(whole)])
    order += whole
    return made.transpose([order.index(d) for d in range(len(order))])


# --- expanded -----------------------------------------------------------------------------------------------------


def _is_written_out(instruction: Instruction) -> bool:
    """Whether it is depthwise, with a small window."""
    groups, batch_groups = groups_of(instruction.attributes)
    labels, window = parse_labels(instruction["dim_labels"]), window_of(instruction)
    if batch_groups != 1 or groups == 1 or instruction.operands[1].dims[labels.rhs.feature] != 1:
        return False
    return math.prod(d.size for d in window) <= WRITTEN_OUT and instruction.dtype not in COMPLEX


def _written_out(x: Value, w: Value, shape: Shape, labels: Labels, window) -> Value:
    """The sum over window elements of shifted operands times kernel elements.

    It is computed in the operand's dimension order, or with features last if both the operand and the result have them
    last.
    """
    rank = len(window)
    sums = DTYPES["f32"] if shape.dtype in NARROW_FLOATS else shape.dtype
    last = labels.lhs.feature == labels.out.feature == rank + 1
    order = [labels.lhs.batch, *labels.lhs.spatial, labels.lhs.feature] if last else list(range(rank + 2))
    x = x.transpose(order)
    w = w.transpose([*labels.rhs.spatial, labels.rhs.feature, labels.rhs.batch])
    at, space = order.index(labels.lhs.feature), [order.index(d) for d in labels.lhs.spatial]
    groups, outputs = x.dims[at], w.dims[-1]
    # Padded once, instead of checking edges for each element of the window; rows of features are masked.
    x = _with_edges(x, space, window, apart=not last or outputs < MASKED)
    counts = [shape.dims[d] for d in labels.out.spatial]
    rows = _Rows.of(x, space, counts, window)
    if rows is not None:
        x = rows.joined(x)
    dims = list(x.dims)
    if rows is None:
        for k, n in zip(space, counts, strict=True):
            dims[k] = n
    else:
        dims[-1] = rows.reach
    kept = [k if k <= at else k + 1 for k in range(len(dims))]
    dims.insert(at + 1, outputs // groups)
    total: Value | None = None
    taps = list(np.ndindex(*(d.size for d in window)))
    together = -(-len(taps) // -(-len(taps) // TOGETHER))
    for number, tap in enumerate(taps):
        if total is not None and rows is None and number % together == 0:
            total = total.op("optimization-barrier")
        part = x.op("slice", slice=_shifted(x, tap, space, counts, window, rows)).convert(sums).broadcast(dims, kept)
        own = (*((t, t + 1, 1) for t in tap), (0, 1, 1), (0, outputs, 1))
        factor = w.op("slice", slice=own).reshape(dims[at : at + 2]).convert(sums).broadcast(dims, (at, at + 1))
        total = part * factor if total is None else total + part * factor
    assert total is not None  # a window has elements
    made = total.convert(shape.dtype).reshape((*dims[:at], outputs, *dims[at + 2 :]))
    if rows is not None:
        made = rows.parted(made)
    role = {labels.lhs.batch: labels.out.batch, labels.lhs.feature: labels.out.feature}
    role |= dict(zip(labels.lhs.spatial, labels.out.spatial, strict=True))
    roles = [role[d] for d in order]
    return made.transpose([roles.index(d) for d in range(rank + 2)])


def _with_edges(x: Value, space: list[int], window, apart: bool) -> Value:
    """The operand with the padding of its window along the dimensions `space`. apart: computed before the sum."""
    if not any(d.low or d.high for d in window):
        return x
    edges = [(0, 0, 0)] * len(x.dims)
    for k, d in zip(space, window, strict=True):
        edges[k] = (d.low, d.high, 0)
    padded = x.op("pad", _zero(x), padding=tuple(edges))
    return padded.op("optimization-barrier") if apart else padded


def _shifted(x: Value, tap: tuple[int, ...], space: list[int], counts: list[int], window, rows: _Rows | None):
    """The bounds of the operand's part that a window element multiplies."""
    starts = [t * d.window_dilation for t, d in zip(tap, window, strict=True)]
    bounds = [(0, n, 1) for n in x.dims]
    if rows is not None:
        first = starts[0] * rows.width + starts[1]
        bounds[-1] = (first, first + rows.reach, 1)
        return tuple(bounds)
    for k, start, d, n in zip(space, starts, window, counts, strict=True):
        bounds[k] = (start, start + (n - 1) * d.stride + 1, d.stride)
    return tuple(bounds)


@record(frozen=True)
class _Rows:
    """Short rows of an image computed as one: the padded image is one row, and a window element is a shift of it.
    Elements between the rows are computed and dropped.

    count, length: of the result's rows; width: of the operand's, padded; reach: elements from the result's first to its
    last.
    """

    count: int
    length: int
    width: int
    reach: int

    @classmethod
    def of(cls, x: Value, space, counts, window) -> _Rows | None:
        """If a window moves over an image of short rows in steps of 1, with space last; else None."""
        if len(space) != 2 or space != [len(x.dims) - 2, len(x.dims) - 1] or any(d.stride != 1 for d in window):
            return None
        width = x.dims[-1]
        if counts[1] > SHORT or counts[0] < 2:
            return None
        return cls(counts[0], counts[1], width, (counts[0] - 1) * width + counts[1])

    def joined(self, x: Value) -> Value:
        return x.reshape((*x.dims[:-2], x.dims[-2] * x.dims[-1]))

    def parted(self, x: Value) -> Value:
        x = x.op("optimization-barrier")
        edges = [(0, 0, 0)] * (len(x.dims) - 1) + [(0, self.count * self.width - self.reach, 0)]
        x = x.op("pad", _zero(x), padding=tuple(edges))
        x = x.reshape((*x.dims[:-1], self.count, self.width))
        return x.op("slice", slice=(*((0, n, 1) for n in x.dims[:-1]), (0, self.length, 1)))


def _is_summed(instruction: Instruction) -> bool:
    """Whether it is the gradient of a depthwise kernel: few positions, large windows."""
    groups, batch_groups = groups_of(instruction.attributes)
    labels, window = parse_labels(instruction["dim_labels"]), window_of(instruction)
    left, right = (o.dims for o in instruction.operands)
    if batch_groups == 1 or groups != 1 or instruction.dtype in COMPLEX:
        return False
    alone = batch_groups == left[labels.lhs.batch] == right[labels.rhs.batch]
    places = math.prod(instruction.dims[d] for d in labels.out.spatial)
    return alone and places <= WRITTEN_OUT and all(d.base_dilation == 1 and not d.reversed for d in window)


def _summed(x: Value, w: Value, shape: Shape, labels: Labels, window) -> Value:
    """One sum of products per position, over the window and the other contracted dimensions, with the groups last."""
    rank = len(window)
    sums = DTYPES["f32"] if shape.dtype in NARROW_FLOATS else shape.dtype
    x = x.transpose([labels.lhs.feature, *labels.lhs.spatial, labels.lhs.batch])
    w = w.transpose([labels.rhs.feature, *labels.rhs.spatial, labels.rhs.batch]).convert(sums)
    groups = w.dims[-1]
    if any(d.low or d.high for d in window):
        edges = [(0, 0, 0), *((d.low, d.high, 0) for d in window), (0, 0, 0)]
        x = x.op("pad", _zero(x), padding=tuple(edges)).op("optimization-barrier")
    counts = [shape.dims[d] for d in labels.out.spatial]
    parts = []
    for place in np.ndindex(*counts):
        bounds = [(0, n, 1) for n in x.dims]
        for k, (at, d) in enumerate(zip(place, window, strict=True)):
            start = at * d.stride
            bounds[k + 1] = (start, start + (d.size - 1) * d.window_dilation + 1, d.window_dilation)
        product = x.op("slice", slice=tuple(bounds)).convert(sums) * w
        parts.append(product.reduce("add", 0, range(rank + 1)).reshape((1, groups)))
    made = parts[0].op("concatenate", *parts[1:], dimensions=(0,)) if len(parts) > 1 else parts[0]
    made = made.convert(shape.dtype).reshape((*counts, groups, 1))
    roles = [*labels.out.spatial, labels.out.feature, labels.out.batch]
    return made.transpose([roles.index(d) for d in range(rank + 2)])


# --- labels -------------------------------------------------------------------------------------------------------


def _is_turned(instruction: Instruction) -> bool:
    """Whether to transpose the arrays to put features last: if the operand has space last, and there is so much work
    per element that reading everything once more is negligible."""
    labels = parse_labels(instruction["dim_labels"])
    left, right = (o.dims for o in instruction.operands)
    if not labels.lhs.spatial or len(left) - 1 not in labels.lhs.spatial or groups_of(instruction.attributes) != (1, 1):
        return False
    inputs, outputs = right[labels.rhs.feature], right[labels.rhs.batch]
    places = math.prod(instruction.dims[d] for d in labels.out.spatial)
    taps = math.prod(d.size for d in window_of(instruction))
    # For the gradient of a kernel, the window is large and has few positions. Zeros between the operand's elements are
    # not multiplied.
    spread = math.prod(d.base_dilation for d in window_of(instruction))
    work = left[labels.lhs.batch] * inputs * outputs * taps * places // spread
    return work > TURNED * (math.prod(left) + math.prod(instruction.dims) + math.prod(right))


def _comes_turned(operand: Instruction, labels: Labels) -> bool:
    """Whether the operand, with space last, is computed by element-wise ops and windows from an array with features
    last."""
    if not labels.lhs.spatial or len(operand.dims) - 1 not in labels.lhs.spatial:
        return False
    seen, stack = {operand}, [operand]
    while stack and len(seen) < LOOKED_AT:
        instruction = stack.pop()
        if instruction.opcode == "transpose":
            if instruction["dimensions"][labels.lhs.feature] == len(operand.dims) - 1:
                return True
        elif instruction.opcode in LOOKED_THROUGH or OPS[instruction.opcode].family == "elementwise":
            rank = len(operand.dims)
            images = [o for o in instruction.operands if isinstance(o.shape, Shape) and len(o.dims) == rank]
            found = [o for o in images if o not in seen]
            seen.update(found)
            stack += found
    return False


def _turned(x: Value, w: Value, shape: Shape, labels: Labels, attributes: dict) -> Value:
    """The convolution with the operand's second dimension (the features, or their role in a gradient) last, and the
    kernel's and the result's dimensions in the same order."""
    rank = len(labels.lhs.order)
    order = [k for k in range(rank) if k not in labels.lhs.spatial]
    order = [order[0], *labels.lhs.spatial, order[1]]
    role = {labels.lhs.batch: "b", labels.lhs.feature: "f", **{k: str(d) for d, k in enumerate(labels.lhs.spatial)}}
    lhs = "".join(role[k] for k in order)
    rhs = "".join(c for c in lhs.replace("f", "i") if c != "b") + "o"
    out = "".join(c for c in lhs if c != "f") + "f"
    new = parse_labels(f"{lhs}_{rhs}->{out}")

    def moved(old: Dimensions, target: Dimensions) -> list[int]:
        where = dict(zip(target.order, old.order, strict=True))
        return [where[k] for k in range(rank)]

    x, w = x.transpose(moved(labels.lhs, new.lhs)), w.transpose(moved(labels.rhs, new.rhs))
    to_new = moved(labels.out, new.out)
    shape = shape.with_dims([shape.dims[k] for k in to_new])
    made = _simplify(x, w, shape, attributes | {"dim_labels": new.text()})
    return made.transpose([to_new.index(k) for k in range(rank)])


def _with_normal_labels(x: Value, w: Value, shape: Shape, labels: Labels, attributes: dict) -> Value:
    rank = len(labels.out.order)
    groups = attributes.get("feature_group_count", 1)
    if labels.rhs.batch not in (0, rank - 1):
        order = [*labels.rhs.spatial, labels.rhs.feature, labels.rhs.batch]
        w = w.transpose(order)
        labels = labels._replace(rhs=Dimensions(rank - 1, rank - 2, tuple(range(rank - 2))))
    back = None
    if not is_normal_labels(labels, groups):
        order = [labels.out.batch, *labels.out.spatial, labels.out.feature]
        back = [order.index(d) for d in range(rank)]
        shape = shape.with_dims([shape.dims[d] for d in order])
        labels = labels._replace(out=Dimensions(0, rank - 1, tuple(range(1, rank - 1))))
    attributes = attributes | {"dim_labels": labels.text()}
    made = x.op("convolution", w, shape=shape, **attributes)
    return made if back is None else made.transpose(back)
