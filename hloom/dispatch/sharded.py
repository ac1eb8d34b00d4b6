"""Eager operations on arrays over several devices.

An element-wise operation on arrays that are split alike is computed part by part. Everything else is a program for
these devices, compiled when it is first run.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.checks import check_result
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.arrays.sharded import ShardedData, parts_of, split
from hloom.config import config
from hloom.dispatch.spmd import eager_programs
from hloom.errors import ArgumentError, TreeError
from hloom.ir.build import Builder
from hloom.ir.module import Computation, Instruction
from hloom.ir.op_table import No
from hloom.ir.ops import OPS
from hloom.ir.spmd.explicit import Rules
from hloom.ir.types import Shape, TupleShape
from hloom.platforms.device import Device
from hloom.sharding.explicit import explicit_dims, explicit_sizes, is_lenient, lenient
from hloom.sharding.meshes import current_mesh
from hloom.sharding.shardings import NamedSharding, PartitionSpec, Sharding, as_sharding, over_several
from hloom.tracing.trace import Tracer, as_array, bind, current_trace, on_several, typed_sharding
from hloom.tree import pytrees as tree


def is_place(value) -> bool:
    return value is None or isinstance(value, (Sharding, PartitionSpec, Device, str))


def spread(places, x, what: str) -> list:
    """The sharding of each leaf of x; `places` is a prefix of its tree, of shardings and None. Raises TreeError."""
    if is_place(places):
        return [places] * len(tree.leaves(x))
    if isinstance(places, list) and isinstance(x, tuple):
        places = tuple(places)
    try:
        found = tree.broadcast(places, x, is_leaf=is_place)
    except TreeError as error:
        raise TreeError(
            f"{what} are a prefix of the tree that they describe",
            error.found,
            "pass one for each subtree, or one for all",
        ) from None
    return tree.leaves(found, is_leaf=is_place)


def over_meshes(places) -> bool:
    """Whether a tree of shardings has one that may be over several devices."""
    return any(
        isinstance(place, PartitionSpec) or over_several(place) for place in tree.leaves(places, is_leaf=is_place)
    )


def spread_shardings(places, structure, what: str) -> list[NamedSharding | None]:
    """For each leaf of a tree of this structure its sharding over several devices; None for others."""
    found = spread(places, tree.unflatten(structure, [0] * structure.num_leaves), what)
    shardings = [as_sharding(place) for place in found]
    return [s if over_several(s) else None for s in shardings]


def placed_arguments(leaves: list, places, positional: tuple, what: str) -> tuple[list, tuple[int, ...]]:
    """The arguments of a call, laid out by `places`, a prefix of the positional ones; and the indices of those whose
    layout over explicit axes is not part of their type, as they had none when they were passed. Raises ArgumentError
    for an array that was laid out differently."""
    if len(positional) == 1 and not is_place(places) and not isinstance(places, (tuple, list)):
        places = (places,)
    found = [as_sharding(place) for place in spread(places, positional, what)]
    made, untyped = list(leaves), []
    for k, place in enumerate(found):
        leaf = leaves[k]
        if not over_several(place):
            continue
        bare = isinstance(leaf, (Array, ShapeDtypeStruct)) and leaf._device is None
        if bare and explicit_dims(place, len(leaf._shape.dims)) is not None:
            untyped.append(k)
        place.check_shape(leaf._shape, f"argument {k}, as {what} require,")
        if isinstance(leaf, ShapeDtypeStruct):
            made[k] = ShapeDtypeStruct(leaf.shape, leaf.dtype, leaf.weak, sharding=place)
        elif not isinstance(leaf, Array):
            made[k] = constrained(leaf, place)
        elif leaf._device is None or leaf._device == place:
            made[k] = leaf if leaf._device is not None else moved(leaf, place)
        elif not leaf.is_sharded or not leaf._device.is_equivalent_to(place, len(leaf.shape)):
            raise ArgumentError(
                f"argument {k} as {what} require: {place!r}",
                f"{leaf._shape!r} is {leaf.sharding!r}",
                "move it with hl.device_put, or leave its sharding out (None)",
            )
    return made, tuple(untyped)


def constrained(x, place: NamedSharding):
    """A traced value, laid out by a sharding. Raises ArgumentError for an axis that is manual here."""
    _check_manual(place)
    result = bind("sharding-constraint", x, weak=x.weak, sharding=place.annotation(len(x._shape.dims)))
    if isinstance(result, Tracer) and not place.open_dims:
        result.trace.note_layout(result.instruction, place)
    return result


def _check_manual(place: NamedSharding) -> None:
    around = current_mesh()
    if around is None or not (manual := set(around.manual_axes)) or not (manual & set(place.spec.names())):
        return
    name = next(n for n in place.spec.names() if n in manual)
    raise ArgumentError(
        f"a value in the body of a shard_map, laid out as {place.spec!r}",
        f"the axis {name!r} is manual there: each device has its part already",
        f"leave {name!r} out of the spec, or out of shard_map's axis_names",
    )


def resharded(x, place: NamedSharding):
    """An array or a traced value, laid out over the devices of a mesh. Raises ShapeError."""
    place.check_shape(x._shape, "an array")
    if current_trace() is not None or not isinstance(x, Array):
        return constrained(x, place)
    return moved(x, place)


def laid_out(make: Callable, out_sharding, *args, **options):
    """The arrays returned by `make(*args, **options)`, laid out by a function's argument `out_sharding`: a
    NamedSharding, or a PartitionSpec for the current mesh. Inside `make`, ambiguous layouts are not errors.
    """
    place = as_sharding(out_sharding)
    with lenient():
        result = make(*args, **options)
    return tree.map(lambda x: resharded(as_array(x), place), result) if over_several(place) else result


def takes_out_sharding(make: Callable) -> Callable:
    """A function whose keyword argument `out_sharding` lays its results out."""

    @functools.wraps(make)
    def placed(*args, out_sharding=None, **options):
        return make(*args, **options) if out_sharding is None else laid_out(make, out_sharding, *args, **options)

    return placed


def laid_out_as(x, model):
    """x, laid out as a model of the same shape: over its devices or, in a trace, along explicit mesh axes."""
    place = typed_sharding(model)
    if place is None or x._shape.dims != model._shape.dims:
        return x
    if current_trace() is None:
        return moved(x, place) if isinstance(x, Array) and isinstance(model, Array) else x
    return constrained(x, place) if explicit_dims(place, len(place.spec)) is not None else x


def as_primal(cotangent, primal_sharding: NamedSharding | None):
    """A cotangent, laid out as its primal where explicit axes of a mesh split that."""
    rank = len(cotangent._shape.dims)
    if primal_sharding is None or explicit_dims(primal_sharding, rank) is None:
        return cotangent
    if not primal_sharding.mesh.are_all_axes_explicit:
        entries = [e if e is not None else PartitionSpec.UNCONSTRAINED for e in primal_sharding.spec]
        primal_sharding = primal_sharding.update(spec=PartitionSpec(*entries))
    if current_trace() is not None or not isinstance(cotangent, Array):
        return constrained(cotangent, primal_sharding)
    return moved(cotangent, primal_sharding) if cotangent.is_sharded and not primal_sharding.open_dims else cotangent


def moved(x: Array, place: NamedSharding) -> Array:
    """An array laid out over the devices of a mesh."""
    if x._device == place:
        return Array(x._held(), x.weak, place, x._shape)
    if x.is_sharded:
        held = x._held()
        if x._device.is_equivalent_to(place, len(x.shape)) and x._device.devices == place.devices:
            return Array(ShardedData(held.parts, place, x._shape), x.weak, place, x._shape)
        if not x.is_fully_addressable and x._device.device_set == place.device_set:
            return _moved_by_program(x, place)
    data = split(x._value(), place, x._shape)
    if data.is_on_host() and not x.is_sharded and x._data.__class__ is np.ndarray and x._data.flags.writeable:
        # The parts must not be views of memory that may be donated, or written to, later.
        memory: dict[int, np.ndarray] = {}
        data = ShardedData(
            [None if p is None else memory.setdefault(id(p), np.array(p)) for p in data.parts], place, x._shape
        )
    return Array(data, x.weak, place, x._shape)


def _moved_by_program(x: Array, place: NamedSharding) -> Array:
    builder = Builder("reshard")
    computation = builder.finish(builder.parameter(x._shape, "x"))
    (found,) = eager_programs.run(computation, [x], ("reshard",), (place,))
    found.weak = x.weak
    return found


def run_op(opcode: str, arrays: list[Array], shape, attributes: dict, weak: bool):
    """The result of an op on arrays of which some are over several devices."""
    result = _result(opcode, arrays, shape, attributes, weak)
    if config.debug_nans or config.debug_infs:
        check_result(result, opcode, arrays)
    return result


def _result(opcode: str, arrays: list[Array], shape, attributes: dict, weak: bool):
    op = OPS[opcode]
    if op.family == "elementwise" and isinstance(shape, Shape) and shape.dims:
        found = _by_parts(opcode, arrays, shape, attributes)
        if found is not None:
            return Array(found, weak, found.sharding, shape)
    builder = Builder(opcode)
    parameters = [builder.parameter(a._shape, "") for a in arrays]
    instruction = builder.emit(opcode, *parameters, shape=shape, **attributes)
    key = _instruction_key(instruction, {p: k for k, p in enumerate(parameters)}, {})
    results = eager_programs.run(_finished(builder, instruction), arrays, key, _typed_results(instruction, arrays))
    for result in results:
        result.weak = weak
    return tuple(results) if isinstance(instruction.shape, TupleShape) else results[0]


def _typed_results(instruction: Instruction, arrays: list[Array]) -> tuple:
    """The layouts of an op's results that follow from explicit axes of its operands' mesh; () where there are none.
    Raises ShardingTypeError."""
    place = next((a._device for a in arrays if a.is_sharded and explicit_sizes(a._device.mesh)), None)
    if place is None or not place.mesh.are_all_axes_explicit:
        return ()
    rules = Rules(explicit_sizes(place.mesh), not is_lenient())
    found = rules.result(instruction, [explicit_dims(a._device, len(a.shape)) for a in arrays])
    names = {str(n): n for n in place.mesh.axis_names}
    return tuple(
        None if dims is None else place.update(spec=PartitionSpec(*(tuple(names[n] for n in axes) for axes in dims)))
        for dims in (found if isinstance(found, list) else [found])
    )


def _finished(builder: Builder, instruction: Instruction) -> Computation:
    if not isinstance(instruction.shape, TupleShape):
        return builder.finish(instruction)
    count = len(instruction.shape.elements)
    parts = [builder.emit("get-tuple-element", instruction, index=k) for k in range(count)]
    return builder.finish(builder.tuple(parts))


def _by_parts(opcode: str, arrays: list[Array], shape: Shape, attributes: dict) -> ShardedData | None:
    """The parts of an element-wise result, where all operands that are split are split alike; otherwise None."""
    places = {a._device for a in arrays if a.is_sharded and a._shape.dims}
    if len(places) != 1 or any(a._shape.dims not in ((), shape.dims) for a in arrays):
        return None
    (place,) = places
    layout, indices = place.layout(len(shape.dims)), place.indices(shape.dims)
    columns = []
    for array in arrays:
        if array.is_sharded and array._shape.dims:
            if not array._held().is_on_host():
                return None  # a program computes it in place
            columns.append(array._held().parts)
        elif array._shape.dims:
            columns.append(parts_of(array._value(), layout, indices))
        else:
            columns.append([array._value()] * layout.mesh.size)
    local = shape.with_dims(layout.local_dims(shape.dims))
    done: dict[tuple[int, ...], np.ndarray] = {}
    reference = OPS[opcode].reference
    assert not isinstance(reference, No), reference.reason
    parts: list[np.ndarray | None] = []
    for operands in zip(*columns, strict=True):
        if any(o is None for o in operands):
            parts.append(None)
            continue
        known = tuple(map(id, operands))
        if known not in done:
            with np.errstate(all="ignore"):  # of padding
                value = reference(*operands, shape=local, **attributes)
            done[known] = np.ascontiguousarray(value).reshape(local.dims)
        parts.append(done[known])
    return ShardedData(parts, place, shape)


def run_computation(computation: Computation, arrays: list[Array]) -> list[Array]:
    """The outputs of a computation on arrays of which some are over several devices."""
    return eager_programs.run(computation, arrays, computation_key(computation, {}), ())


def computation_key(computation: Computation, known: dict) -> tuple:
    """A key that is equal for equivalent computations."""
    found = known.get(id(computation))
    if found is None:
        numbers: dict[Instruction, int] = {p: k for k, p in enumerate(computation.parameters)}
        parts: list = [p.shape for p in computation.parameters]
        for instruction in computation.instructions:
            if instruction not in numbers:
                numbers[instruction] = len(numbers)
                parts.append(_instruction_key(instruction, numbers, known))
        found = known[id(computation)] = (*parts, numbers[computation.root])
    return found


def _instruction_key(instruction: Instruction, numbers: dict[Instruction, int], known: dict) -> tuple:
    operands = tuple(numbers[o] for o in instruction.operands)
    attributes = tuple((name, _value_key(value, known)) for name, value in sorted(instruction.attributes.items()))
    return instruction.opcode, operands, instruction.shape, attributes, instruction.sharding


def _value_key(value, known: dict):
    if isinstance(value, Computation):
        return computation_key(value, known)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).digest()
    if isinstance(value, (tuple, list)):
        return tuple(_value_key(v, known) for v in value)
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return type(value).__name__, value


on_several["op"], on_several["computation"] = run_op, run_computation

__all__ = [
    "as_primal", "computation_key", "constrained", "laid_out", "moved", "resharded", "run_computation", "run_op",
    "takes_out_sharding",
]  # fmt: skip
