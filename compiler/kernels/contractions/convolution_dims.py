"""What the dimensions of a convolution are to the contraction that it is: rows, products, columns and batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from hloom.compiler.kernels.codegen.affine import row_major_strides
from hloom.compiler.normal_forms import is_batch_first
from hloom.ir.module import Instruction
from hloom.ir.ops.linalg.convolution import groups_of, parse_labels
from hloom.ir.records import record
from hloom.ir.sizes.guards import typical
from hloom.ir.window import window_of


@record(frozen=True)
class Component:
    """A part of i or p: `extent` values, `step` apart along spatial dimension `space`, or in memory (None)."""

    extent: int
    step: int
    space: int | None = None


@record(frozen=True)
class Space:
    """A spatial dimension of the operand: where its positions start, its size, its stride in memory, and whether
    positions can be outside."""

    start: int
    extent: int
    stride: int
    checked: bool


class ConvolutionRoles:
    """Which part of a convolution in normal form is batch, row, depth and column (as `operands.Roles` for a dot)."""

    def __init__(self, instruction: Instruction):
        left, right = (o.dims for o in instruction.operands)
        labels, window = parse_labels(instruction["dim_labels"]), window_of(instruction)
        self.groups = groups_of(instruction.attributes)[0]
        strides = row_major_strides(left)
        out = instruction.dims
        batched = is_batch_first(labels) and self.groups == 1
        row_spaces = [(d, w.stride) for d, w in zip(labels.out.spatial, window, strict=True)]
        depth_spaces = [(d, w.window_dilation) for d, w in zip(labels.rhs.spatial, window, strict=True)]
        rows = _components(out, labels.out.batch, strides[labels.lhs.batch], row_spaces)
        depths = _components(right, labels.rhs.feature, strides[labels.lhs.feature], depth_spaces)
        self.rows = [c for d, c in sorted(rows.items()) if not (batched and d == 0)]
        self.depths = [c for _, c in sorted(depths.items())]
        outputs = out[labels.out.feature]
        batch = out[0] if batched else self.groups
        columns = outputs // self.groups
        self.extents = (batch, _count(self.rows), columns, _count(self.depths))
        of_groups = right[labels.rhs.feature] * strides[labels.lhs.feature]
        self.batch_stride = strides[labels.lhs.batch] if batched else of_groups
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

    @cached_property
    def along(self) -> int:
        """The spatial dimension with the smallest stride, whose neighbours are next to each other in memory."""
        return min(range(len(self.spaces)), key=lambda d: self.spaces[d].stride)

    @property
    def across(self) -> int | None:
        """The other one of two spatial dimensions."""
        return 1 - self.along if len(self.spaces) == 2 else None

    def is_along(self, component: Component) -> bool:
        """Whether a component walks positions along `along`, or features."""
        return component.space == self.along or (component.space is None and component.step == 1)

    def is_batch(self, component: Component) -> bool:
        return component.space is None and component.step != 1

    def memory_step(self, component: Component) -> int:
        """How far apart in memory neighbours along a component are."""
        if component.space is None:
            return component.step
        return component.step * self.spaces[component.space].stride

    def fast(self) -> str:
        """'p' or 'i': the one whose innermost component is contiguous in memory, of two the longer."""

        def rank(components: Sequence[Component]) -> tuple[bool, int]:
            inner = next((c for c in reversed(components) if c.extent != 1), Component(1, 1))
            return bool(self.memory_step(inner) == 1 and inner.extent > 1), typical(inner.extent)

        return "i" if rank(self.rows) > rank(self.depths) else "p"


def _components(
    dims: Sequence[int], plain: int, stride: int, spaces: Sequence[tuple[int, int]]
) -> dict[int, Component]:
    """The components of dimension `plain`, `stride` in memory, and of the spatial ones, (dimension, step) each."""
    found = {d: Component(dims[d], step, space) for space, (d, step) in enumerate(spaces)}
    return found | {plain: Component(dims[plain], stride)}


def _count(components: Sequence[Component]) -> int:
    return math.prod(c.extent for c in components)
