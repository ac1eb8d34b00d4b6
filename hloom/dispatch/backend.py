"""Which backend compiles a call, and for which devices."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable

from hloom.arrays.array import common_device
from hloom.compiler.placement.user_devices import chosen_devices
from hloom.dispatch.signature import Call, JitOptions
from hloom.errors import ArgumentError
from hloom.ir.module import Module, below
from hloom.ir.ops.programs.transfer import WITHOUT_DEVICE
from hloom.platforms.backend import Backend, CompileOptions, DeviceBackend
from hloom.platforms.device import (
    Device,
    default_device,
    find_device,
    logged_name,
    note_devices,
    process_count,
    scoped_device,
)
from hloom.platforms.kinds import CLUSTER, MULTI_DEVICE, device_kind, load_backend
from hloom.tracing.trace import Traced


def select_backend(options: JitOptions, call: Call, traced: Traced) -> tuple[Backend, CompileOptions, Device | None]:
    """The backend, the compilation options, and the device of results for which the executable names none (None if no
    device was chosen).

    A program that names one device is compiled by that device's backend, one that names several by the multi-device
    backend. Raises DeviceError if arguments are on several devices and the function does not specify placement.
    """
    fusion, donated = call.key.settings.fusion, call.donated
    if options.target is not None:
        kind = device_kind(options.target.partition(":")[0])
        assert kind is not None  # `check_target` has accepted it
        return kind.backend, CompileOptions(target=options.target, donated=donated, fusion=fusion), None
    arguments = {k: str(a._device) for k, a in enumerate(call.leaves) if getattr(a, "_device", None) is not None}
    device = options.device or scoped_device()
    named = set(chosen_devices(traced.computation))
    if named:
        named |= set(arguments.values())
        device = device or next((a._device for a in call.leaves if getattr(a, "_device", None) is not None), None)
        if len(named) == 1 and device is None:
            device = find_device(next(iter(named)))
    else:
        device = device or common_device(call.leaves, f"'{traced.computation.name}'")
    home = device or _first(named) or default_device()
    single = named <= {str(home)} and not home.is_away
    for instruction in below(traced.computation.instructions):
        if (observer := instruction.attributes.get("observer")) is not None:
            observer.on_one_device(home)
    backend = home.kind_object.backend if single else load_backend(CLUSTER if _in_cluster(named) else MULTI_DEVICE)
    asked = CompileOptions(
        str(home),
        arguments,
        donated=donated,
        fusion=fusion,
        autotune=options.autotune,
        arguments=functools.partial(call.values, traced.wide) if traced.wide else call.values,
        steady=frozenset(range(options.steady)),
        updates=dict(call.updates),
    )
    return backend, asked, device


def takes_open_sizes(leaves: Iterable) -> bool:
    """Whether a program for arguments is for one device, whose backend compiles programs of open sizes."""
    device = scoped_device() or common_device(leaves, "a program") or default_device()
    if not isinstance(device, Device) or device.is_away:
        return False
    return type(device.kind_object.backend).compile_open is not DeviceBackend.compile_open


def _in_cluster(devices: Iterable[str]) -> bool:
    """Whether some are devices of a cluster's tasks."""
    return any(find_device(device).job for device in devices if device.startswith("/job:"))


def _first(named: set[str]) -> Device | None:
    """The device of unplaced work in a program that names devices of several processes: the first of them, in all
    processes."""
    found = [find_device(name) for name in named]
    if process_count() == 1 or not found:
        return None
    return min(found, key=lambda d: (d.process_index, d.index))


def log_placement(module: Module, *devices: str) -> None:
    """Prints the devices of each operation of a program that runs on one, or in parts on all of several
    (`hl.config.log_device_placement`)."""
    # Saves start-up time: placement is a matter of programs on several devices.
    from hloom.compiler.placement.placer import describe

    found = [device for device in devices if ":sm_" not in device]  # not a target without a device
    note_devices(found)
    where = ", ".join(logged_name(find_device(device)) if device in found else device for device in devices)
    everywhere = {i: where for c in module.computations() for i in c.instructions if i.opcode not in WITHOUT_DEVICE}
    for line in describe(module, everywhere):
        print(f"hloom: {line}", file=sys.stderr)


def check_target(target: str, device) -> None:
    """Raises AttributeValueError for an invalid target, ArgumentError if a device was chosen as well."""
    kind = device_kind(str(target).partition(":")[0])
    (kind.backend if kind is not None else load_backend(MULTI_DEVICE)).check_target(target)
    if device is not None:
        raise ArgumentError(
            f"jit(target={target!r}, device={str(device)!r})",
            "a target selects the machine to compile for, a device the one that runs it",
            "leave out one of them: a program that runs on a device is compiled for it",
        )
