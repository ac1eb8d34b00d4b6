"""The state of partitioning a computation: its values in the layouts in which devices hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.compiler.passes.spmd.choice import Chooser
from hloom.compiler.passes.spmd.resharding.layouts import Layout, Layouts, Numbers
from hloom.compiler.passes.spmd.resharding.mover import Mover
from hloom.compiler.passes.spmd.resharding.paths import Paths
from hloom.ir.build import Builder
from hloom.ir.errors import ReplicationWarning
from hloom.ir.module import Instruction
from hloom.ir.sizes.guards import typical
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.types import Shape, TupleShape, result_shapes


class Held:
    """An array as held by devices. versions: the instruction of a device's part, by layout; readers add layouts.
    readers: the number of instructions that read it."""

    __slots__ = ("shape", "versions", "readers")

    def __init__(self, shape: Shape, versions: dict[Layout, Instruction]):
        self.shape, self.versions = shape, versions
        self.readers = 0

    @property
    def layout(self) -> Layout:
        """The first one."""
        return next(iter(self.versions))

    @property
    def sums(self) -> tuple[str, ...]:
        """The axes of partial sums, if that is the only version so far."""
        if len(self.versions) > 1:
            return ()
        return self.layout.unreduced


Tree = Any  # a Held, or a list of trees for a tuple


class Partitioner:
    """The state of partitioning a module over one mesh."""

    def __init__(self, mesh: DeviceMesh, replicas: int):
        self.layouts = Layouts(mesh, replicas)
        self.paths = Paths(self.layouts)
        self.chooser = Chooser(self.layouts, lambda *given: self.paths.find(*given)[0])
        self.computations: dict[tuple, Any] = {}
        self.warned: set[tuple] = set()
        self.kept: list[Any] = []  # computations whose ids are keys
        self._layouts: dict[int, tuple[Sharding, Layout]] = {}

    def layout(self, sharding: Sharding | None, rank: int) -> Layout | None:
        """The layout of a sharding over the mesh; None without one."""
        if sharding is None:
            return None
        found = self._layouts.get(id(sharding))
        if found is None or found[0] is not sharding:
            found = self._layouts[id(sharding)] = (sharding, self._translated(sharding))
        return found[1]

    def _translated(self, sharding: Sharding) -> Layout:
        layouts = self.layouts
        if sharding.mesh is not layouts.mesh and sharding.mesh != layouts.mesh:
            sharding = sharding.atomic()
            if sharding.mesh != layouts.mesh:  # partition ids or names differ, or it is on one device
                return layouts.whole(sharding.rank)
        return layouts.of_sharding(sharding)


class Scope:
    """A computation under construction. values: by instruction of the whole program. sums: the axes along which the
    only reader of an instruction accepts partial sums."""

    def __init__(self, partitioner: Partitioner, name: str):
        self.partitioner = partitioner
        self.layouts = partitioner.layouts
        self.builder = Builder(name)
        self.numbers = Numbers(self.layouts, self.builder)
        self.mover = Mover(self.layouts, self.builder, self.numbers)
        self.values: dict[Instruction, Tree] = {}
        self.sums: dict[Instruction, tuple[str, ...]] = {}

    # --- layouts ---

    def wanted(self, instruction: Instruction) -> list[Layout | None]:
        """The layouts of an instruction's result, or of the elements of a tuple."""
        shapes = result_shapes(instruction.shape)
        sharding = instruction.sharding
        shardings = sharding if isinstance(sharding, (tuple, list)) else (sharding,) * len(shapes)
        return [
            self.partitioner.layout(s, shape.rank) if isinstance(shape, Shape) else None
            for s, shape in zip(shardings, shapes, strict=True)
        ]

    # --- values ---

    def read(self, held: Held, layout: Layout) -> Instruction:
        """A device's part of a value in a layout, by the cheapest path from the available ones."""
        found = held.versions.get(layout)
        if found is not None:
            return found
        dims, itemsize = held.shape.dims, held.shape.dtype.itemsize
        find = self.partitioner.paths.find
        start, (_, steps) = min(
            ((have, find(have, layout, dims, itemsize)) for have in held.versions), key=lambda pair: pair[1][0]
        )
        value = held.versions[start]
        for step in steps:
            known = held.versions.get(step.target)
            value = known if known is not None else self.mover.step(value, start, step, dims)
            start = step.target
            held.versions[start] = value
        return value

    def hold(self, instruction: Instruction, values: Sequence[Instruction], layouts: Sequence[Layout]) -> None:
        """Records the device version of an instruction's result or, for a tuple, of its elements."""
        if isinstance(instruction.shape, TupleShape):
            self.values[instruction] = [
                Held(shape, {layout: value})
                for shape, value, layout in zip(result_shapes(instruction.shape), values, layouts, strict=True)
            ]
        else:
            self.values[instruction] = Held(instruction.shape, {layouts[0]: values[0]})

    def elements(self, value: Instruction, count: int) -> list[Instruction]:
        """The elements of a tuple."""
        return [self.builder.emit("get-tuple-element", value, index=k) for k in range(count)]

    # --- trees of values ---

    def joined(self, tree: Tree, layouts) -> Instruction:
        """One instruction of a value or of a tuple of them. layouts: a tree of the same form."""
        if isinstance(tree, Held):
            return self.read(tree, layouts)
        return self.builder.tuple([self.joined(t, y) for t, y in zip(tree, layouts, strict=True)])

    def taken_apart(self, value: Instruction, shape, layouts) -> Tree:
        """The tree of held values of an instruction, whose shape in the whole program is `shape`."""
        if isinstance(shape, Shape):
            return Held(shape, {layouts: value})
        parts = self.elements(value, len(shape.elements))
        return [self.taken_apart(p, s, y) for p, s, y in zip(parts, shape.elements, layouts, strict=True)]

    def layout_tree(self, shape, sharding, other=None):
        """The layouts of a shape: a layout, or a list for a tuple. other: a tree of layouts for parts without a
        sharding; by default, these are replicated."""
        if isinstance(shape, TupleShape):
            given = sharding if isinstance(sharding, (tuple, list)) else (sharding,) * len(shape.elements)
            others = other if isinstance(other, list) else [None] * len(shape.elements)
            return [self.layout_tree(*each) for each in zip(shape.elements, given, others, strict=True)]
        return self.partitioner.layout(sharding, shape.rank) or other or self.layouts.whole(shape.rank)

    # --- warnings ---

    def warn(self, instruction: Instruction, given: Sequence[Held]) -> None:
        """Warns once that sharded arrays are gathered for an op that needs all dimensions as a whole."""
        size = typical(sum([h.shape.bytes for h in given if not h.layout.is_whole]))
        key = (instruction.opcode, str(instruction.source), size)
        if size == 0 or key in self.partitioner.warned:
            return
        self.partitioner.warned.add(key)
        ReplicationWarning.warn(
            instruction.opcode, "it needs all of its dimensions", size,
            "give it replicated operands, or a batch of them that is split", instruction.source, has_rule=True,
        )  # fmt: skip


def tree_shape(shape, layouts):
    """The shape of a device's part of a value or tuple. layouts: a tree of the same form."""
    if isinstance(shape, Shape):
        return shape.with_dims(layouts.local(shape.dims))
    return TupleShape([tree_shape(s, y) for s, y in zip(shape.elements, layouts, strict=True)])


def frozen(tree):
    """A hashable key of a tree of layouts."""
    return tuple(frozen(t) for t in tree) if isinstance(tree, list) else tree


def leaves(tree: Tree):
    """The Held of a tree."""
    if isinstance(tree, list):
        for each in tree:
            yield from leaves(each)
    else:
        yield tree
