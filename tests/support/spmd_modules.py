"""Modules laid out over meshes for tests: annotated at random, split, run on all devices, and put together again."""

from __future__ import annotations

import warnings

import numpy as np

from hloom.backends.spmd.backend import SpmdBackend
from hloom.compiler.passes.spmd.meshes import programs
from hloom.compiler.pipeline import run_passes
from hloom.ir.interpret import run
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.spmd.interpret import run_spmd
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.types import COMPLEX, INEXACT, NARROW_FLOATS, Shape, TupleShape
from hloom.ir.verify import verify
from hloom.platforms.backend import CompileOptions

MESHES = [DeviceMesh(tuple("xyz"[: len(sizes)]), sizes) for sizes in ((2,), (4,), (2, 2), (2, 4), (8,), (3,), (2, 3))]


def random_sharding(random, mesh: DeviceMesh, shape: Shape) -> Sharding:
    """Some of the axes on dimensions of the shape, at random."""
    mesh = mesh.atomic()
    dims: list[tuple[str, ...]] = [()] * shape.rank
    for axis in random.sample(mesh.names, len(mesh.names)):
        if shape.rank and random.random() < 0.7:
            d = random.randrange(shape.rank)
            dims[d] += (axis,)
    return Sharding(mesh, tuple(dims))


def annotated(module: Module, mesh: DeviceMesh, random, chance: float = 0.8) -> Module:
    """Gives each instruction of the module a random sharding (in place), or that of no axes; bodies of manual
    computations stay as they are. A module whose constraints or manual computations name a mesh has that one."""
    for instruction in module.instructions():
        said = instruction.attributes.get("in_shardings") or [instruction.attributes.get("sharding")]
        mesh = mesh if said[0] is None else said[0].mesh
    mesh = mesh.atomic()

    def one(shape):
        if isinstance(shape, TupleShape):
            return tuple(one(s) for s in shape.elements)
        if random.random() > chance:
            return Sharding(mesh, ((),) * shape.rank)
        return random_sharding(random, mesh, shape)

    manual = {id(i["to_apply"]) for i in module.instructions() if i.opcode == "manual-computation"}
    for computation in programs(module):  # computations of scalars are shared by all modules
        for instruction in computation.instructions:
            if id(computation) not in manual:
                instruction.sharding = one(instruction.shape)
    module.partitions = mesh.size
    return module


GARBAGE = 77


def split(array, sharding: Sharding) -> list[np.ndarray]:
    """The part of each device; what is padding holds garbage."""
    array = np.asarray(array)
    parts = []
    for partition_id in range(sharding.mesh.size):
        part = np.full(sharding.local_dims(array.shape), GARBAGE).astype(array.dtype)
        if array.dtype in INEXACT:
            part[...] = np.nan
        own = array[sharding.region(partition_id, array.shape)]
        part[tuple(slice(0, n) for n in own.shape)] = own
        at = sharding.mesh.coordinates(partition_id)
        if any(at[a] for a in sharding.unreduced):
            part = np.zeros_like(part)
        parts.append(part)
    return parts


def joined(parts, sharding: Sharding, shape: Shape) -> np.ndarray:
    """The array of all devices' parts, partial sums added up; those that hold the same must agree to the bit."""
    result = np.zeros(shape.dims, shape.dtype)
    seen = np.zeros(shape.dims, bool)
    same: dict[tuple, np.ndarray] = {}  # by where a partial sum is, and which one it is
    for partition_id, part in enumerate(parts):
        assert part.shape == sharding.local_dims(shape.dims), (part.shape, sharding, shape)
        region = sharding.region(partition_id, shape.dims)
        own = np.asarray(part)[tuple(slice(0, s.stop - s.start) for s in region)]
        at = sharding.mesh.coordinates(partition_id)
        which = (*(s.start for s in region), *(at[a] for a in sharding.unreduced))
        known = same.setdefault(which, own)
        equal = np.array_equal(known.astype(np.complex128), own.astype(np.complex128), equal_nan=True)
        assert equal, f"devices that hold the same part differ: {known}, {own}"
        if known is own:
            result[region] = result[region] + own if sharding.unreduced else own
        seen[region] = True
    assert seen.all()
    return result


def divided(module: Module) -> Module:
    """What each device runs of a module in which every value has a layout."""
    return run_passes(module, ("partition", "combine-collectives"))


def run_partitioned(module: Module, arguments) -> list[np.ndarray]:
    """The results of an annotated module by its partition, on split arguments."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        made = divided(module)
    verify(made)
    shards = [split(a, p.sharding) for a, p in zip(arguments, module.entry.parameters, strict=True)]
    results = run_spmd(made, list(zip(*shards, strict=True)) or [[]] * module.partitions)
    root = module.entry.root
    return _gathered(results, root.sharding, root.shape)


def _gathered(parts, sharding, shape) -> list[np.ndarray]:
    """The arrays of a result; of a tuple, of its elements at any depth."""
    if not isinstance(shape, TupleShape):
        return [joined(parts, sharding, shape)]
    columns = list(zip(*parts, strict=True))
    return [a for each in zip(columns, sharding, shape.elements, strict=True) for a in _gathered(*each)]


def run_on_devices(module: Module, given_arrays) -> list[np.ndarray]:
    """The results of an annotated module, compiled for the devices of this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        executable = SpmdBackend().compile(module, CompileOptions())
    entry = module.entry
    results = executable([split(a, s) for a, s in zip(given_arrays, executable.input_shardings, strict=True)])
    shape = entry.root.shape
    shapes = shape.elements if isinstance(shape, TupleShape) else (shape,)
    each = zip(results, executable.output_shardings, shapes, strict=True)
    return [joined(parts, sharding, shape) for parts, sharding, shape in each]


def flat(value) -> list[np.ndarray]:
    """The arrays of a tuple at any depth, or the one array."""
    return [a for v in value for a in flat(v)] if isinstance(value, tuple) else [np.asarray(value)]


def check(module: Module, arguments, rtol: float = 1e-4, run_split=run_partitioned) -> None:
    """The partitioned program's results are the whole one's: equal for integers, near for floats."""
    expected = run(Module(module.name, module.entry), arguments)
    for found, wanted in zip(run_split(module, arguments), flat(expected), strict=True):
        near(found, wanted, rtol)


def copied(module: Module) -> Module:
    """The module with instructions of its own, which a test may annotate."""
    done: dict[int, Computation] = {}
    for computation in module.computations():
        mapped: dict[Instruction, Instruction] = {}
        for instruction in computation.instructions:
            made = instruction.replaced(mapped, done)
            mapped[instruction] = made if made is not instruction else instruction.with_operands(instruction.operands)
        done[id(computation)] = Computation(
            computation.name,
            [mapped[p] for p in computation.parameters],
            list(mapped.values()),
            mapped[computation.root],
        )
    return Module(module.name, done[id(module.entry)])


def near(found: np.ndarray, wanted: np.ndarray, rtol: float) -> None:
    """Equal for integers; for floats near in comparison with the largest number of all."""
    if wanted.dtype not in INEXACT:
        np.testing.assert_array_equal(found, wanted)
        return
    rtol = max(rtol, 0.05) if wanted.dtype in NARROW_FLOATS else rtol
    wide = np.complex128 if wanted.dtype in COMPLEX else np.float64
    found, wanted = found.astype(wide), wanted.astype(wide)
    if wanted.dtype == np.complex128:
        near(found.real, wanted.real, rtol)
        near(found.imag, wanted.imag, rtol)
        return
    finite = np.isfinite(wanted)
    largest = float(np.abs(wanted[finite]).max(initial=1.0))
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol * largest)
