"""Programs over several devices: which calls are such, the module with its shardings, and how it is called."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

from hloom.arrays.array import Array, common_device
from hloom.arrays.sharded import ShardedData, parts_of
from hloom.dispatch.kept_programs import KeptProgram
from hloom.dispatch.specialization import Specialization
from hloom.errors import ArgumentError, DeviceError
from hloom.ir.build import Builder
from hloom.ir.module import Computation, Instruction, Module, below, map_module
from hloom.ir.ops.programs.spmd import names_mesh
from hloom.ir.ops.specialize import Specialization as AtSizes
from hloom.ir.process import forking
from hloom.ir.spmd.sharding import Sharding as Layout
from hloom.ir.spmd.sharding import replicated
from hloom.ir.types import Shape
from hloom.platforms.backend import Backend, CompileOptions, Executable, OpenSpmd
from hloom.platforms.kinds import load_backend
from hloom.sharding.layouts import Assignment
from hloom.sharding.shardings import NamedSharding, PartitionSpec
from hloom.tracing.exact import exact_arguments
from hloom.tracing.trace import Traced

SPMD = "hloom.backends.spmd.backend:SpmdBackend"
_KEPT = 512  # programs of eager operations
_SIZES = 64  # sets of sizes of a function whose programs are kept, with the memory of each device


def sharding_of(leaf) -> NamedSharding | None:
    """The sharding of an argument over several devices."""
    place = getattr(leaf, "_device", None)
    return place if place.__class__ is NamedSharding else None


def is_over_several(leaves: Iterable, computation: Computation, out_shardings: Sequence = ()) -> bool:
    """Whether a program is for the devices of a mesh: an argument or result is split over them, or an instruction names
    a mesh."""
    return (
        any([sharding_of(leaf) is not None for leaf in leaves])
        or any(s is not None for s in out_shardings)
        or any(map(names_mesh, below(computation.instructions)))
    )


class SpmdProgram:
    """A computation with the shardings of its arguments and results: its module, and the data for calling it.

    in_shardings, out_shardings: by index; None if unspecified. Arguments without one are replicated on each device.
    Raises DeviceError for meshes over different devices.
    """

    def __init__(
        self,
        name: str,
        computation: Computation,
        in_shardings: Sequence[NamedSharding | None],
        out_shardings: Sequence[NamedSharding | None] = (),
        what: str = "",
    ):
        self.name, self.what = name, what or f"'{name}'"
        self.assignment = self._assignment(computation, [*in_shardings, *out_shardings])
        self.in_shardings = [self._as_split(s) for s in in_shardings]
        self.inputs = [p.shape for p in computation.parameters]
        self._asked = list(out_shardings)
        self.module = self._module(computation, out_shardings)
        self._orders = [self._order(s) for s in self.in_shardings]

    def _assignment(self, computation: Computation, shardings: list[NamedSharding | None]) -> Assignment:
        first = next((s for s in shardings if s is not None), None)
        if first is not None:
            return Assignment.of_sharding(first)
        found = None
        for instruction in below(computation.instructions):
            for layout in _layouts(instruction):
                if layout.mesh.device_ids:
                    return Assignment.of_layout(layout)
                found = found or layout
        assert found is not None, "is_over_several found a mesh"
        return Assignment.of_layout(found)

    def _module(self, computation: Computation, out_shardings: Sequence[NamedSharding | None]) -> Module:
        """The module whose parameters and constraints have shardings over the program's partitions."""
        assignment, what = self.assignment, self.what
        numbers = {p: k for k, p in enumerate(computation.parameters)}

        def layout(found: Layout, instruction: Instruction) -> Layout:
            source = f" at {instruction.source}" if instruction.source else ""
            return assignment.partition_layout(found, f"{instruction.opcode}{source} in {what}")

        def change(instruction: Instruction) -> Instruction:
            number = numbers.get(instruction)
            if number is None and not names_mesh(instruction):
                return instruction
            attributes = {
                name: _mapped(value, lambda found: layout(found, instruction))
                for name, value in instruction.attributes.items()
            }
            made = instruction.with_operands(instruction.operands, **attributes)
            if number is not None:
                made.sharding = self._parameter_layout(number, instruction.shape)
            elif instruction.sharding is not None:
                made.sharding = layout(instruction.sharding, instruction)
            return made

        module = Module(self.name, computation, partitions=assignment.size)
        module = map_module(module, change)
        if any(s is not None for s in out_shardings):
            module = module.with_entry(self._with_results(module.entry, out_shardings))
        return module

    def _parameter_layout(self, number: int, shape: Shape) -> Layout:
        sharding = self.in_shardings[number] if number < len(self.in_shardings) else None
        if sharding is None:
            return replicated(self.assignment.device_mesh, len(shape.dims))
        return self.assignment.partition_layout(sharding.layout(len(shape.dims)), f"argument {number} of {self.what}")

    def _with_results(self, entry: Computation, out_shardings: Sequence[NamedSharding | None]) -> Computation:
        """The computation with its results laid out as requested."""
        builder = Builder(entry.name)
        parameters = []
        for p in entry.parameters:
            made = builder.parameter(p.shape, p.hint, p.source)
            made.sharding = p.sharding
            parameters.append(made)
        root = builder.inline(entry, parameters)
        results = list(root.operands) if entry.root.opcode == "tuple" else [root]
        for k, sharding in enumerate(out_shardings):
            if sharding is not None:
                dims = results[k].shape.dims
                sharding.check_shape(results[k].shape, f"result {k} of {self.what}")
                layout = self.assignment.partition_layout(sharding.layout(len(dims)), f"out_shardings of {self.what}")
                results[k] = builder.emit("sharding-constraint", results[k], sharding=layout)
        return builder.finish(results[0] if entry.root.opcode != "tuple" else builder.tuple(results))

    def _as_split(self, sharding: NamedSharding | None) -> NamedSharding | None:
        """The sharding of an argument, if the program's axes can express it. One over the same devices in another order
        is put together for each call."""
        if sharding is None or not self.assignment.expresses(sharding, self.what):
            return None
        return sharding

    # --- calls ---

    def _order(self, sharding: NamedSharding | None) -> list[int] | None:
        """For each partition the number of its part in an argument; None if the mesh has the devices in order."""
        if sharding is None or sharding.devices == self.assignment.devices:
            return None
        return [sharding.devices.index(d) for d in self.assignment.devices]

    def arguments(self, arrays: Sequence[Array]) -> list[list]:
        """For each argument the parts of this process's partitions. Raises DonatedArrayError, ArgumentError."""
        found = []
        for k, array in enumerate(arrays):
            sharding = self.in_shardings[k] if k < len(self.in_shardings) else None
            if sharding is None:
                if array.is_sharded and not array.is_fully_addressable:
                    raise ArgumentError(
                        f"argument {k} of {self.what} over the mesh {self.assignment.mesh!s}",
                        f"{array._shape!r} is {array.sharding!r}, whose axes cut these devices in another order",
                        "use one mesh in a program over several processes",
                    )
                found.append([array._value()] * self.assignment.size)
                continue
            if array.is_sharded:
                parts = array._held().parts
            else:
                value = array._value()
                parts = parts_of(value, sharding.layout(value.ndim), sharding.indices(value.shape))
            order = self._orders[k]
            found.append(parts if order is None else [parts[j] for j in order])
        if self.assignment.own is None:
            return found
        return [[parts[j] for j in self.assignment.own] for parts in found]

    def results(self, outputs, shapes: Sequence[Shape], shardings: Sequence[NamedSharding]) -> list[ShardedData]:
        """The data of the program's results."""
        own, found = self.assignment.own, []
        for parts, shape, sharding in zip(outputs, shapes, shardings, strict=True):
            if own is not None:
                here = dict(zip(own, parts, strict=True))
                parts = [here.get(k) for k in range(self.assignment.size)]
            found.append(ShardedData(parts, sharding, shape))
        return found

    def compiled(self, options: CompileOptions) -> Executable:
        backend, is_open = spmd_backend(), any([shape.is_open for shape in self.inputs])
        return (backend.compile_open if is_open else backend.compile)(self.module, options)

    def options(self, **given) -> CompileOptions:
        return CompileOptions(devices=tuple(map(str, self.assignment.devices)), **given)

    def result_shardings(self, executable, shapes: Sequence[Shape]) -> list[NamedSharding]:
        layouts = executable.output_shardings
        found = [self.assignment.named(s, len(shape.dims)) for s, shape in zip(layouts, shapes, strict=True)]
        for k, asked in enumerate(self._asked):  # as the user writes it: with the entries that are None
            if asked is not None and asked.mesh == self.assignment.mesh and not asked.open_dims:
                found[k] = asked
        return found


def spmd_backend() -> Backend:
    return load_backend(SPMD)


def _layouts(instruction: Instruction) -> list[Layout]:
    """The shardings that an instruction names."""
    found: list[Layout] = [instruction.sharding] if isinstance(instruction.sharding, Layout) else []
    for value in instruction.attributes.values():
        _mapped(value, found.append)
    return found


def _mapped(value, change) -> Any:
    """An attribute with `change(sharding)` in place of its shardings."""
    if isinstance(value, Layout):
        return change(value)
    if isinstance(value, tuple) and any(isinstance(v, Layout) for v in value):
        return tuple(change(v) if isinstance(v, Layout) else v for v in value)
    return value


class SpmdSpecialization(Specialization):
    """A function compiled for arguments over several devices."""

    def __init__(
        self, program: SpmdProgram, traced: Traced, executable: Executable, donated: frozenset[int], kept: KeptProgram,
        shapes: Sequence[Shape] | None = None,
    ):  # fmt: skip
        """shapes: of the results; None: those that were traced."""
        super().__init__(program.name, traced, executable, donated, None, kept)
        self.program = program
        self.shapes = [o.shape for o in traced.computation.outputs()] if shapes is None else shapes
        self.shardings = program.result_shardings(executable, self.shapes)

    @property
    def input_shardings(self) -> list:
        whole = NamedSharding(self.program.assignment.mesh, PartitionSpec())
        return [s or whole for s in self.program.in_shardings]

    @property
    def output_shardings(self) -> list:
        return self.shardings

    def __call__(self, arrays: list[Array]):
        if self._wide:
            arrays = [*arrays, *exact_arguments(arrays, self._wide)]
        inputs = self.program.arguments(arrays)
        if self.donated:
            outputs = self.executable.call_donating(inputs, lambda: self._release(arrays, inputs))
            for k in self.donated:
                arrays[k]._data = None
        else:
            outputs = self._run(inputs)
        return self._wrap(outputs)

    def _wrap(self, outputs: list):
        found = self.program.results(outputs, self.shapes, self.shardings)
        arrays = [Array(data, w, data.sharding, data.shape) for data, w in zip(found, self._weak, strict=True)]
        return self._unflatten(arrays)

    def fast(self):
        return lambda args: self([*args])


class OpenSpmdSpecialization(Specialization):
    """A function compiled for arguments over several devices whose sizes are known when it is called."""

    def __init__(
        self, program: SpmdProgram, traced: Traced, executable: OpenSpmd, donated: frozenset[int], kept: KeptProgram
    ):
        super().__init__(program.name, traced, executable, donated, None, kept)
        self.program = program
        self._at: dict[tuple, SpmdSpecialization] = {}  # by the shapes of arguments
        self._lock = forking.lock()

    def __call__(self, arrays: list[Array]):
        shapes = tuple([array.shape for array in arrays])
        serves = self._at.get(shapes)
        if serves is None:
            serves = self._serving(arrays)
            with self._lock:
                self._at[shapes] = serves
                if len(self._at) > _SIZES:
                    del self._at[next(iter(self._at))]
        return serves(arrays)

    def _serving(self, arrays: list[Array]) -> SpmdSpecialization:
        """Raises ShapeError for sizes that the program does not take."""
        exact = exact_arguments(arrays, self._wide) if self._wide else []
        executable = self.executable
        assert isinstance(executable, OpenSpmd)
        sizes = executable.sizes([array.shape for array in (*arrays, *exact)])
        shapes = [AtSizes(sizes).shape(shape) for shape in self.shapes]
        return SpmdSpecialization(self.program, self.traced, executable.at(sizes), self.donated, self.kept, shapes)

    def fast(self):
        return lambda args: self([*args])


# --- eager operations ---------------------------------------------------------------------------------------------


class _EagerPrograms:
    """The compiled programs of eager operations, the least recently used ones first."""

    def __init__(self) -> None:
        self._found: OrderedDict[Any, tuple[SpmdProgram, Executable, list[Shape], list[NamedSharding]]] = OrderedDict()

    def clear(self) -> None:
        self._found.clear()

    def run(self, computation: Computation, arrays: list[Array], key, out_shardings: tuple = ()) -> list[Array]:
        places = tuple(sharding_of(a) for a in arrays)
        known = key, tuple(a._shape for a in arrays), places, out_shardings
        found = self._found.get(known)
        if found is None:
            common_device(arrays, computation.name)
            program = SpmdProgram(computation.name, computation, places, out_shardings)
            executable = program.compiled(program.options())
            shapes = [o.shape for o in computation.outputs()]
            found = program, executable, shapes, program.result_shardings(executable, shapes)
            self._found[known] = found
            if len(self._found) > _KEPT:
                self._found.popitem(last=False)
        self._found.move_to_end(known)
        program, executable, shapes, shardings = found
        outputs = executable(program.arguments(arrays))
        return [Array(d, False, d.sharding, d.shape) for d in program.results(outputs, shapes, shardings)]


eager_programs = _EagerPrograms()


def check_one_place(options_device, leaves: Sequence, what: str) -> None:
    """Raises DeviceError if a function over several devices is compiled for one, or its arguments are apart."""
    place = common_device(leaves, what)
    if options_device is not None and place.__class__ is NamedSharding:
        raise DeviceError(
            f"{what} on {options_device}",
            f"its arguments are {place!r}",
            "leave out device=, or move them to it with hl.device_put(x, device)",
        )


__all__ = [
    "OpenSpmdSpecialization",
    "SpmdProgram",
    "SpmdSpecialization",
    "check_one_place",
    "eager_programs",
    "is_over_several",
    "sharding_of",
]
