"""pmap: a function mapped over the devices of one process."""

from __future__ import annotations

from hloom.dispatch.jit import jit
from hloom.errors import DeviceError
from hloom.platforms.device import devices as all_devices
from hloom.tracing.signatures import wraps
from hloom.tracing.trace import as_array
from hloom.transforms.vmap import vmap
from hloom.tree import pytrees as tree
from hloom.tree.prefixes import mapped_axes


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

    The devices of one process share its memory and threads, so the elements are computed by one compiled program, as
    `jit` of `vmap` does; the collectives of `hloom.lax` over `axis_name` exchange values between them. There must be a
    device for each: `hl.config.num_cpu_devices` (HLOOM_NUM_CPU_DEVICES) says how many there are.

    in_axes, out_axes, axis_size: as for `vmap`. static_broadcasted_argnums: arguments that are Python values and the
    same for all. devices: the devices to use, by default all. donate_argnums: as for `jit`. backend: accepted.
    Raises DeviceError where there are more elements than devices, and what `vmap` raises.
    """
    static = (
        (static_broadcasted_argnums,) if isinstance(static_broadcasted_argnums, int) else static_broadcasted_argnums
    )
    compiled: dict = {}

    def compiled_for(args, kwargs):
        axes = tuple(in_axes) if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
        axes = tuple(None if k in static else axis for k, axis in enumerate(axes))
        size = axis_size
        for k, (axis, arg) in enumerate(zip(axes, args, strict=False)):
            for leaf, one in zip(
                tree.leaves(arg), mapped_axes(axis, arg, f"in_axes of argument {k} of pmap"), strict=True
            ):
                if one is not None and size is None:
                    shape = as_array(leaf, f"argument {k} of pmap").shape
                    size = shape[one] if -len(shape) <= one < len(shape) else None
        there = len(devices) if devices is not None else len(all_devices())
        if size is not None and size > there:
            raise DeviceError(
                f"pmap of '{getattr(fun, '__name__', 'function')}' over {size} elements",
                f"{there} device{'s' * (there != 1)}",
                "set hl.config.num_cpu_devices, use vmap, or pass as many elements as there are devices",
            )
        key = len(args), tuple(sorted(kwargs))
        if key not in compiled:
            function = vmap(fun, axes, out_axes, axis_name, axis_size)
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
