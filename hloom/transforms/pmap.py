"""pmap: a function mapped over the devices of one process."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.dispatch.jit import jit
from hloom.errors import DeviceError, ShapeError
from hloom.platforms.device import program_devices
from hloom.sharding.meshes import Mesh
from hloom.sharding.shardings import PartitionSpec
from hloom.tracing.conversion import reshape_to
from hloom.tracing.signatures import wraps
from hloom.tracing.trace import as_array
from hloom.transforms.shard_map import on_shards
from hloom.transforms.vmap import vmap
from hloom.tree import pytrees as tree
from hloom.tree.prefixes import mapped_axes

_UNNAMED = "_pmap"  # the mesh axis of a pmap without axis_name


def pmap(
    fun,
    axis_name=None,
    *,
    in_axes=0,
    out_axes=0,
    static_broadcasted_argnums=(),
    devices=None,
    backend=None,
    axis_size: int | None = None,
    donate_argnums=(),
):
    """The function applied to each element of its arguments along an axis, one element per device.

    Element k is computed by device k, as `jit` of a `shard_map` does, and the results are arrays over these devices;
    the collectives of `hloom.lax` over `axis_name` exchange values between them. There must be a device for each:
    `hl.config.num_cpu_devices` (HLOOM_NUM_CPU_DEVICES) sets their number.

    in_axes, out_axes, axis_size: as for `vmap`. static_broadcasted_argnums: arguments that are Python values and the
    same for all. devices: the devices to use, by default all. donate_argnums: as for `jit`. backend: accepted.
    Raises DeviceError if there are more elements than devices, and the errors of `vmap`.

    >>> hl.pmap(lambda x: x / hl.lax.psum(x, "i"), axis_name="i")(hnp.array([4.0]))
    Array([1.], dtype=float32)
    """
    static = (
        (static_broadcasted_argnums,) if isinstance(static_broadcasted_argnums, int) else static_broadcasted_argnums
    )
    compiled: dict = {}

    def compiled_for(args, kwargs):
        axes = tuple(in_axes) if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
        axes = tuple(None if k in static else axis for k, axis in enumerate(axes))
        size = _size(args, axes, kwargs, axis_size)
        there = list(devices) if devices is not None else program_devices()
        if size is not None and size > len(there):
            raise DeviceError(
                f"pmap of '{getattr(fun, '__name__', 'function')}' over {size} elements",
                f"{len(there)} device{'s' * (len(there) != 1)}",
                "set hl.config.num_cpu_devices, use vmap, or pass as many elements as there are devices",
            )
        key = len(args), tuple(sorted(kwargs)), size
        if key not in compiled:
            if size is None or size == 1:
                function = vmap(fun, axes, out_axes, axis_name, axis_size)
            else:
                mesh = Mesh(np.array(there[:size]), (_UNNAMED if axis_name is None else axis_name,))
                function = _over_devices(fun, axes, out_axes, mesh)
            compiled[key] = jit(function, static_argnums=tuple(static), donate_argnums=donate_argnums)
        return compiled[key]

    @wraps(fun)
    def mapped(*args, **kwargs):
        return compiled_for(args, kwargs)(*args, **kwargs)

    def lower(*args, **kwargs):
        """The mapped function traced for these arguments, as `jit(f).lower` returns it."""
        return compiled_for(args, kwargs).lower(*args, **kwargs)

    mapped.lower = lower
    return mapped


def _size(args, axes, kwargs, size: int | None) -> int | None:
    """The number of elements; None where no argument is mapped over an axis that it has."""
    for k, (axis, arg) in enumerate(zip(axes, args, strict=False)):
        if axis is not None:
            for leaf, one in zip(
                tree.leaves(arg), mapped_axes(axis, arg, f"in_axes of argument {k} of pmap"), strict=True
            ):
                shape = as_array(leaf, f"argument {k} of pmap").shape if one is not None else ()
                if one is None or not -len(shape) <= one < len(shape):
                    continue
                if size is not None and size != shape[one]:
                    raise ShapeError(
                        f"pmap over {size} elements, by an earlier argument or axis_size",
                        f"argument {k} has {shape[one]} along its axis {one}",
                        "pass arguments with as many elements each, or in_axes=None for one that is the same for all",
                    )
                size = shape[one]
    if size is None and kwargs:
        size = as_array(tree.leaves(kwargs)[0], "an argument of pmap").shape[0]
    return size


def _over_devices(fun, in_axes: tuple, out_axes, mesh: Mesh):
    """The function of whole arguments whose elements are computed by the devices of a mesh of one axis."""
    (name,) = mesh.axis_names

    def spec(axis: int | None, rank: int) -> PartitionSpec:
        return PartitionSpec() if axis is None else PartitionSpec(*[None] * (axis % rank), name)

    def function(*args, **kwargs):
        leaves, structure = tree.flatten((args, kwargs))
        axes: list[int | None] = []
        for k, (arg, axis) in enumerate(zip(args, in_axes, strict=True)):
            axes += mapped_axes(axis, arg, f"in_axes of argument {k} of pmap")
        axes += [0] * (len(leaves) - len(axes))
        # Leaves other than arrays (static arguments) bypass the mapped function.
        mapped = [(k, axis) for k, axis in enumerate(axes) if axis is not None]
        arrays = [as_array(leaves[k], "an argument of pmap") for k, _ in mapped]
        ranks = [len(a.shape) for a in arrays]
        found: dict[str, Any] = {}

        def one(*parts):
            flat = list(leaves)
            for (k, axis), part, rank in zip(mapped, parts, ranks, strict=True):
                axis %= rank
                flat[k] = reshape_to(part, (*part.shape[:axis], *part.shape[axis + 1 :]))
            given, named = tree.unflatten(structure, flat)
            results, found["tree"] = tree.flatten(fun(*given, **named))
            value = tree.unflatten(found["tree"], [0] * len(results))
            found["axes"] = mapped_axes(out_axes, value, "out_axes of pmap")
            opened = []
            for result, axis in zip(results, found["axes"], strict=True):
                result = as_array(result, "a result of pmap")
                place = None if axis is None else axis % (len(result.shape) + 1)
                opened.append(
                    result if place is None else reshape_to(result, (*result.shape[:place], 1, *result.shape[place:]))
                )
            return opened

        def out_specs(shapes):
            return [spec(axis, len(shape.dims)) for axis, shape in zip(found["axes"], shapes, strict=True)]

        in_specs = tuple(spec(axis, rank) for (_, axis), rank in zip(mapped, ranks, strict=True))
        results = on_shards(one, mesh, in_specs, out_specs)(*arrays)
        return tree.unflatten(found["tree"], results)

    return function
