"""What the dimensions of a convolution are to the contraction that it is: rows, products, columns and batch."""

from __future__ import annotations

import math

from hloom.compiler.kernels.codegen.affine import row_major_strides
from hloom.compiler.normal_forms import is_batch_first
from hloom.ir.module import Instruction
from hloom.ir.ops.linalg.convolution import Labels, groups_of, parse_labels
from hloom.ir.records import record
from hloom.ir.window import window_of


@record(frozen=True)
class Component:
    """A part of i or p: `extent` values, each `step` further along spatial dimension `space`, or in memory (None)."""

    extent: int
    step: int
    space: int | None = None


@record(frozen=True)
class Space:
    """A spatial dimension of the operand: where its positions start, its extent, its stride in memory, and whether
    positions can be outside."""

    start: int
    extent: int
    stride: int
    checked: bool


class ConvolutionRoles:
    """Which part of a convolution in normal form is batch, row, depth and column (as `product._Roles` for a dot)."""

    def __init__(self, instruction: Instruction):
        left, right = (o.dims for o in instruction.operands)
        labels, window = parse_labels(instruction["dim_labels"]), window_of(instruction)
        self.groups = groups_of(instruction.attributes)[0]
        strides = row_major_strides(left)
        out = instruction.dims
        batched = is_batch_first(labels) and self.groups == 1
        rows = [d for d in sorted(labels.out.order) if d != labels.out.feature and not (batched and d == 0)]
        depths = [d for d in sorted(labels.rhs.order) if d != labels.rhs.batch]
        self.rows = [self._row(d, labels, window, out, strides) for d in rows]
        self.depths = [self._depth(d, labels, window, right, strides) for d in depths]
        outputs = out[labels.out.feature]
        batch = out[0] if batched else self.groups
        columns = outputs // self.groups
        self.extents = (batch, _count(self.rows), columns, _count(self.depths))
        self.batch_stride = strides[0] if batched else right[labels.rhs.feature] * strides[labels.lhs.feature]
        if batched:
            self.batch_stride = strides[labels.lhs.batch]
        self.spaces = []
        for d, (place, w) in enumerate(zip(labels.out.spatial, window, strict=True)):
            extent = left[labels.lhs.spatial[d]]
            last = (out[place] - 1) * w.stride + (w.size - 1) * w.window_dilation - w.low
            checked = w.low > 0 or last >= extent
            self.spaces.append(Space(-w.low, extent, strides[labels.lhs.spatial[d]], checked))
        self._join_features()
        # The kernel is [p, j] or [j, p] in memory.
        if labels.rhs.batch == 0:
            self.rhs_strides = (columns * self.extents[3] if self.groups > 1 else 0, 1, self.extents[3])
        else:
            self.rhs_strides = (columns if self.groups > 1 else 0, outputs, 1)
        if batched:
            self.result = ["b", "j", "i"] if labels.out.feature == 1 else ["b", "i", "j"]
        else:
            features = "bj" if self.groups > 1 else "j"
            self.result = [features, "i"] if labels.out.feature == 0 else ["i", features]
        sizes = dict(zip("bij", self.extents[:3], strict=True)) | {"bj": outputs}
        self.dims = tuple(sizes[role] for role in self.result)

    def _join_features(self) -> None:
        """Where neighbours along the innermost part of the window lie side by side with all their features, a run is as
        long as both: the two are one spatial dimension, whose positions are those of elements."""
        if len(self.depths) < 2:
            return
        window, features = self.depths[-2:]
        d = window.space
        if d is None or features.space is not None or window.extent == 1 or (window.step, features.step) != (1, 1):
            return
        space, count = self.spaces[d], features.extent
        if space.stride != count:
            return
        self.spaces[d] = Space(space.start * count, space.extent * count, 1, space.checked)
        self.depths[-2:] = [Component(window.extent * count, 1, d)]
        self.rows = [Component(c.extent, c.step * count, d) if c.space == d else c for c in self.rows]

    def _row(self, d: int, labels: Labels, window, out, strides) -> Component:
        if d == labels.out.batch:
            return Component(out[d], strides[labels.lhs.batch])
        space = labels.out.spatial.index(d)
        return Component(out[d], window[space].stride, space)

    def _depth(self, d: int, labels: Labels, window, right, strides) -> Component:
        if d == labels.rhs.feature:
            return Component(right[d], strides[labels.lhs.feature])
        space = labels.rhs.spatial.index(d)
        return Component(right[d], window[space].window_dilation, space)

    def memory_step(self, component: Component) -> int:
        """How far apart in memory neighbours along a component are."""
        if component.space is None:
            return component.step
        return component.step * self.spaces[component.space].stride

    def fast(self) -> str:
        """'p' or 'i': the one whose innermost component is contiguous in memory, of two the longer."""
        found = {}
        for name, components in (("p", self.depths), ("i", self.rows)):
            inner = _inner(components)
            found[name] = (self.memory_step(inner) == 1 and inner.extent > 1, inner.extent, name == "p")
        return max(found, key=found.__getitem__)


def _count(components) -> int:
    return math.prod(c.extent for c in components)


def _inner(components) -> Component:
    wide = [c for c in components if c.extent != 1]
    return wide[-1] if wide else Component(1, 1)
