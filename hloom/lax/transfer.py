"""Arrays between devices and to the host: device_put, reshard, device_get, block_until_ready."""

from __future__ import annotations

import functools

import numpy as np

from hloom import sharding
from hloom.arrays.array import Array
from hloom.arrays.base import ArrayMethods
from hloom.arrays.eager import log_placement
from hloom.arrays.sharded import RemoteData
from hloom.dispatch.jit import jit
from hloom.dispatch.sharded import constrained, moved, resharded, spread
from hloom.errors import ArgumentError, DeviceError
from hloom.ir.source import current_source, device_scope
from hloom.platforms.device import Device, scoped_device
from hloom.sharding.explicit import hidden
from hloom.sharding.meshes import AxisType, get_abstract_mesh
from hloom.sharding.shardings import NamedSharding, PartitionSpec, Sharding, as_sharding, device_of, over_several
from hloom.tracing.trace import as_array, bind, current_trace, typed_sharding
from hloom.tree import pytrees as tree


def device_put(x, device=None, *, src=None, donate: bool = False, may_alias: bool | None = None):
    """The arrays of a tree placed on a device, or on several. NumPy arrays and scalars become Arrays. Raises
    DeviceError, ArgumentError, ShapeError.

    device: a name such as 'cpu:0', a Device, a sharding (a NamedSharding distributes the array over its mesh), a
    PartitionSpec for the current mesh, or a tree of these that is a prefix of x; None is the device of the enclosing
    scope, and outside of scopes arrays are not moved. For a device of another process, all processes make the call: the
    owner gets the value, which is sent if it was on a device of a third process. In a jitted function the value is sent
    from where it was computed. The other arguments, for sharing of memory, are accepted for compatibility with JAX.

    >>> x = hl.device_put({"w": np.ones((2, 3), np.float32)})
    >>> x["w"].shape
    (2, 3)
    """
    if device is None or not isinstance(device, (tuple, list, dict)) or isinstance(device, PartitionSpec):
        return put_all(x, device, "copy")
    leaves, structure = tree.flatten(x)
    places = spread(device, x, "the destinations of device_put")
    found = [put_all(leaf, place, "copy") for leaf, place in zip(leaves, places, strict=True)]
    return tree.unflatten(structure, found)


def put_all(x, device, logged: str = ""):
    """`device_put` of a tree to a single destination. logged: the operation named in the placement log; '' for none."""
    if isinstance(device, (Sharding, PartitionSpec)):
        place = as_sharding(device)
        if over_several(place):
            if logged and current_trace() is None:
                log_placement(logged, place)
            return tree.map(lambda leaf: resharded(as_array(leaf), place), x)
    target = scoped_device() if device is None else device_of(device)
    tracing, label = current_trace() is not None, ""

    def put(leaf):
        nonlocal label
        array = as_array(leaf)
        if tracing or not isinstance(array, Array):
            if device is None:
                return array
            with device_scope(str(target)):
                return bind("copy", array, weak=array.weak)
        if target is None:
            return Array(array._held(), array.weak, array._device, array._shape)
        if logged:
            log_placement(logged, target)
        if target.is_away or not array.is_fully_addressable:
            return _between_processes(array, target)
        kind = target.kind_object
        if not kind.keeps_arrays:
            return Array(array._value(), array.weak, target)
        label = label or _label()
        held = array._value() if array.is_sharded else array._held()
        return Array(kind.put(held, target.index, label), array.weak, target, array._shape)

    return tree.map(put, x)


def _between_processes(x: Array, target: Device) -> Array:
    """An array on a device of another process, or moved from one. Arrays without a process have the same value in all
    of them, so nothing is sent."""
    if x.is_sharded:
        x = jit(lambda x: x, out_shardings=NamedSharding(x._device.mesh, PartitionSpec()))(x).addressable_data(0)
    elif x._device is not None and x._device.process_index != target.process_index:
        return jit(lambda x: device_put(x, target))(x)
    return Array(RemoteData(x._shape, target) if target.is_away else x._held(), x.weak, target, x._shape)


def reshard(x, out_shardings):
    """x (an array or a tree of them) with a sharding: a NamedSharding, or a PartitionSpec for the current mesh. Raises
    DeviceError, ArgumentError, ShapeError.

    >>> mesh = hl.make_mesh((1,), ("data",))
    >>> hl.reshard(hnp.arange(4), hl.NamedSharding(mesh, hl.P("data"))).shape
    (4,)
    """
    return device_put(x, out_shardings)


def with_sharding_constraint(x, shardings):
    """x (an array or a tree of them) with the layouts `shardings` (a tree that is a prefix of x).

    In a jitted function it fixes how a value is split over the mesh; the compiler chooses unspecified layouts, and
    dimensions that a spec has as `P.UNCONSTRAINED`. Raises ArgumentError for a PartitionSpec without a current mesh.

    >>> mesh = hl.make_mesh((1,), ("data",))
    >>> f = hl.jit(lambda x: hl.lax.with_sharding_constraint(x + 1, hl.NamedSharding(mesh, hl.P("data"))))
    >>> f(hnp.arange(4))
    Array([1, 2, 3, 4], dtype=int32)
    """
    leaves, structure = tree.flatten(x)
    found = []
    for leaf, place in zip(leaves, spread(shardings, x, "shardings"), strict=True):
        array, target = as_array(leaf, "with_sharding_constraint"), as_sharding(place)
        if not over_several(target):
            found.append(array)
            continue
        target.check_rank(len(array.shape), f"{array._shape!r}")
        if current_trace() is None and isinstance(array, Array):
            if array.is_sharded and array._device.device_set != target.device_set:
                raise DeviceError(
                    f"with_sharding_constraint to {target!r}",
                    f"{array._shape!r} is {array._device!r}, on other devices",
                    "move it with hl.device_put",
                )
            if target.open_dims:
                raise ArgumentError(
                    "an array laid out as the compiler likes",
                    f"{target.spec!r} outside of jit",
                    "call it within hl.jit",
                )
            found.append(moved(array, target))
        else:
            found.append(constrained(array, target))
    return tree.unflatten(structure, found)


def _label() -> str:
    """The user's name for an array being created: the variable that it is assigned to, or the line."""
    source = current_source()
    return (source.variable or f"an array of {source}") if source else "an array"


def block_until_ready(x):
    """Waits until the arrays of a tree are computed, and returns it.

    >>> hl.block_until_ready(hnp.array([1, 2]) + 1)
    Array([2, 3], dtype=int32)
    """
    for leaf in tree.leaves(x):
        if isinstance(leaf, Array):
            leaf.block_until_ready()
    return x


def device_get(x):
    """The arrays of a tree as NumPy arrays; everything else unchanged. Raises TracerConversionError.

    >>> hl.device_get({"w": hnp.array([1, 2])})
    {'w': array([1, 2], dtype=int32)}
    """
    return tree.map(lambda leaf: np.array(leaf) if isinstance(leaf, ArrayMethods) else leaf, x)


def copy_to_host_async(x):
    """x itself: CPU devices use host memory, and arrays on a GPU are copied when read."""
    return x


def _axis_names(axes, args) -> tuple:
    """The given axes; by default all explicit ones of arguments, of the trace and of the current mesh."""
    if axes is not None:
        return (axes,) if isinstance(axes, str) else tuple(axes)
    places = [typed_sharding(leaf) for leaf in tree.leaves(args)]
    meshes = [p.mesh for p in places if p is not None]
    trace = current_trace()
    if trace is not None and trace.layouts is not None:
        meshes.append(trace.layouts.mesh)
    return tuple(dict.fromkeys(name for mesh in [*meshes, get_abstract_mesh()] for name in mesh.explicit_axes))


def auto_axes(f=None, /, *, axes=None, out_sharding=None):
    """f with explicit mesh axes left to the compiler; its results have the layout out_sharding.

    axes: their names, by default all. Within f types do not include them, and no layout is ambiguous. out_sharding: a
    tree of shardings that is a prefix of the result; calls also accept out_sharding=.
    """
    if f is None:
        return functools.partial(auto_axes, axes=axes, out_sharding=out_sharding)

    @functools.wraps(f)
    def called(*args, out_sharding=out_sharding, **kwargs):
        with hidden(_axis_names(axes, (args, kwargs))):
            result = f(*args, **kwargs)
        return result if out_sharding is None else device_put(result, out_sharding)

    return called


def explicit_axes(f=None, /, *, axes=None, in_sharding=None):
    """f with automatic axes made explicit; its arguments have the layout in_sharding.

    axes: their names, by default all of the current mesh. in_sharding: a tree of shardings that is a prefix of the
    tuple of arguments; calls also accept in_sharding=.
    """
    if f is None:
        return functools.partial(explicit_axes, axes=axes, in_sharding=in_sharding)

    @functools.wraps(f)
    def called(*args, in_sharding=in_sharding, **kwargs):
        if in_sharding is None:
            return f(*args, **kwargs)
        leaves, structure = tree.flatten(args)
        places = [as_sharding(p) for p in spread(in_sharding, args, "in_sharding of explicit_axes")]
        placed = [
            resharded(as_array(x), _explicit(p, axes)) if over_several(p) else x
            for x, p in zip(leaves, places, strict=True)
        ]
        return f(*tree.unflatten(structure, placed), **kwargs)

    return called


def _explicit(place: NamedSharding, axes) -> NamedSharding:
    """The same over a mesh whose axes (by default all) are explicit."""
    names = place.mesh.axis_names if axes is None else (axes,) if isinstance(axes, str) else axes
    return place.update(mesh=place.mesh.update_axis_types(dict.fromkeys(names, AxisType.Explicit)))


# JAX has them there; that package does not import ops.
for _function in (reshard, auto_axes, explicit_axes):
    setattr(sharding, _function.__name__, _function)


__all__ = [
    "auto_axes",
    "block_until_ready",
    "copy_to_host_async",
    "device_get",
    "device_put",
    "explicit_axes",
    "reshard",
    "with_sharding_constraint",
]
