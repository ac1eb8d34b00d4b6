"""One mesh for all shardings of a module: annotations may refer to the same devices through meshes with different
axes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hloom.ir.errors import AttributeValueError
from hloom.ir.module import Computation, Instruction, Module, callees_first
from hloom.ir.records import replace
from hloom.ir.spmd.sharding import DeviceMesh, Sharding

# Attributes that contain a sharding, or a tuple of them.
ANNOTATIONS = ("sharding", "in_shardings", "out_shardings")


def shardings_in(value) -> Iterator[Sharding]:
    """The shardings in a sharding or in tuples of them, without None."""
    if isinstance(value, Sharding):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from shardings_in(each)


# Ops whose computations are parts of the program. All others call scalar computations, which have no layouts.
PROGRAMS = frozenset(("call", "fusion", "while", "conditional", "scan", "manual-computation"))


def programs(module: Module) -> list[Computation]:
    """The computations of a module that are parts of the program, callees first."""
    return callees_first(module.entry, lambda i: i.called() if i.opcode in PROGRAMS else [])


def annotated(instructions: Iterable[Instruction]) -> Iterator[tuple[Instruction, Sharding]]:
    for instruction in instructions:
        if instruction.sharding is not None:
            for found in shardings_in(instruction.sharding):
                yield instruction, found
        if instruction.attributes:
            for name in ANNOTATIONS:
                if name in instruction.attributes:
                    for found in shardings_in(instruction.attributes[name]):
                        yield instruction, found


class CommonMesh:
    """The atomic mesh of a module's annotations, and their shardings in its axes.

    The axes are named by the mesh of the first manual computation, or else of the first annotation. An axis of another
    mesh is identified with one of its axes if the devices vary along both in the same way. Raises AttributeValueError,
    with the line of the annotation, for a mesh with an unmatched axis, or with another number of devices.
    """

    def __init__(self, module: Module):
        self.mesh: DeviceMesh | None = None
        self._partitions = module.partitions
        self._names: dict[DeviceMesh, dict[str, str]] = {}
        self._found: dict[int, tuple[Sharding, Sharding]] = {}
        instructions = [i for computation in programs(module) for i in computation.instructions]
        manual = [i for i in instructions if i.opcode == "manual-computation"]
        for instruction, sharding in (*annotated(manual), *annotated(instructions)):
            self.add(sharding.mesh, instruction)
        if self.mesh is None:
            self.add(DeviceMesh(("devices",), (module.partitions,)), None)

    def add(self, mesh: DeviceMesh, instruction: Instruction | None) -> None:
        if mesh in self._names or not mesh.names:
            return
        if mesh.size == 1 < self._partitions:  # for programs on one device: its axes split nothing
            self._names[mesh] = {}
            return
        atomic = mesh.atomic()
        if self.mesh is None:
            self.mesh = atomic
        if atomic == self.mesh:
            self._names[mesh] = {name: name for name in atomic.names}
            return
        names = common_axes(self.mesh, atomic)
        if names is None:
            assert instruction is not None
            raise AttributeValueError(
                "a program was laid out over two meshes",
                f"{_text(self.mesh)} and {_text(mesh)}, which do not split the devices along common axes",
                "lay all of its arrays out over one mesh",
                source=instruction.source,
            )
        self._names[mesh] = names

    def axes_named(self, names: Iterable[str], shardings) -> Iterator[str]:
        """The axes of the common mesh that these named axes consist of: axes of the mesh of these shardings, or of
        any."""
        meshes = [s.mesh for s in shardings_in(tuple(shardings))] + list(self._names)
        for name in names:
            yield from next((self.names_of(mesh, name) for mesh in meshes if name in mesh.names), ())

    def names_of(self, mesh: DeviceMesh, name: str) -> tuple[str, ...]:
        """The axes of the common mesh that an axis of one of the annotations' meshes consists of."""
        known = self._names[mesh]
        return tuple(known[atom] for atom in mesh.atoms(name) if atom in known)

    def common(self, sharding: Sharding) -> Sharding:
        """A sharding of one of the annotations' meshes over the common mesh. A value on one device (a mesh without
        axes) is replicated: it is computed everywhere."""
        known = self._found.get(id(sharding))
        if known is None:
            assert self.mesh is not None
            known = self._found[id(sharding)] = sharding, self._common(sharding, self.mesh)
        return known[1]

    def _common(self, sharding: Sharding, mesh: DeviceMesh) -> Sharding:
        def ours(axes) -> tuple[str, ...]:
            return tuple(n for axis in axes for n in self.names_of(sharding.mesh, axis))

        dims = tuple(ours(axes) for axes in sharding.dims)
        return replace(
            sharding, mesh=mesh, dims=dims, unreduced=ours(sharding.unreduced),
            replicated_axes=ours(sharding.replicated_axes),
        )  # fmt: skip


def common_axes(ours: DeviceMesh, theirs: DeviceMesh) -> dict[str, str] | None:
    """For each axis of an atomic mesh with more than one device, the identical axis of another mesh; None if one is
    missing."""
    steps = {_steps(ours, name): name for name in ours.names}
    wanted = {name: _steps(theirs, name) for name in theirs.names if theirs.axis_size(name) > 1}
    if ours.size != theirs.size or any(found not in steps for found in wanted.values()):
        return None
    return {name: steps[found] for name, found in wanted.items()}


def _steps(mesh: DeviceMesh, name: str) -> tuple[int, ...]:
    """The position of each partition along an axis, which identifies the axis regardless of its name."""
    return tuple(mesh.coordinates(partition)[name] for partition in range(mesh.size))


def _text(mesh: DeviceMesh) -> str:
    sizes = ", ".join(f"{name}={size}" for name, size in zip(mesh.names, mesh.sizes, strict=True))
    return f"a mesh ({sizes})"


def mesh_of(module: Module) -> DeviceMesh | None:
    """The mesh that names the axes of a module (`CommonMesh`); None if nothing is sharded."""
    if module.partitions == 1:
        return None
    found = [i for computation in programs(module) for i in computation.instructions]
    manual = [i for i in found if i.opcode == "manual-computation"]
    meshes = (sharding.mesh for _, sharding in (*annotated(manual), *annotated(found)))
    return next((mesh for mesh in meshes if mesh.names and mesh.size == module.partitions), None)


def over_axes(sharding, mesh: DeviceMesh | None):
    """A sharding over the atoms of a mesh as one over its axes, if these are complete."""
    if mesh is None or not isinstance(sharding, Sharding) or sharding.mesh == mesh or sharding.mesh != mesh.atomic():
        return sharding

    def joined(atoms: tuple[str, ...]) -> tuple[str, ...] | None:
        found: list[str] = []
        while atoms:
            name = next((n for n in mesh.names if mesh.atoms(n) == atoms[: len(mesh.atoms(n))]), None)
            if name is None:
                return None
            found.append(name)
            atoms = atoms[len(mesh.atoms(name)) :]
        return tuple(found)

    dims = [joined(axes) for axes in sharding.dims]
    others = [joined(axes) for axes in (sharding.unreduced, sharding.replicated_axes)]
    if None in dims or None in others:
        return sharding
    return replace(sharding, mesh=mesh, dims=tuple(dims), unreduced=others[0], replicated_axes=others[1])
