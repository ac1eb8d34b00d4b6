"""Devices and results of eager operations: Arrays that own their memory, checked and logged as set in `hl.config`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hloom.arrays.array import Array, Strided, common_device
from hloom.arrays.checks import check_result
from hloom.compiler.placement.user_devices import chosen_devices, chosen_devices_of
from hloom.config import config
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops.programs.transfer import WITHOUT_DEVICE
from hloom.ir.source import current_source, device_scopes
from hloom.ir.types import Shape
from hloom.platforms.device import (
    Device,
    default_device,
    find_device,
    for_eager_operation,
    log_operation,
    scoped_device,
)


def eager_result(value, weak: bool, device, opcode: str, operands) -> Array:
    """The Array of an eagerly computed NumPy array or scalar, which must not be written to.

    A view in another order than row-major stays one, unless it would keep a much larger array alive.
    """
    if _logged:
        log_placement(opcode, device)
    value = np.asarray(value)
    if value.flags.c_contiguous or checks_results() or _is_small_part(value):
        return Array(owned(value, opcode, operands), weak, device)
    return Array(Strided(value), weak, device, Shape(value.dtype, value.shape))


def eager_device(arrays, what: str):
    """The device of an eager result: that of the enclosing `hl.device` scope, that of the operands, or None if none
    was chosen. Raises DeviceError for operands on two devices."""
    return for_eager_operation(scoped_device(), what) if device_scopes.device else common_device(arrays, what)


def eager_devices(computation: Computation, arrays, beside) -> dict[Instruction, Any]:
    """The device of each instruction of a computation that runs eagerly: that of `hl.device` scopes in the function,
    else that of its operands. Raises DeviceError if the function has no scopes and its arguments have two devices.
    """
    if not chosen_devices(computation):
        device = eager_device([*arrays, *beside], f"'{computation.name}'")
        return dict.fromkeys(computation.instructions, device)
    devices = dict(zip(computation.parameters, (array._device for array in arrays), strict=True))
    for instruction in computation.instructions:
        if instruction not in devices:
            named = [instruction.device] if instruction.device else chosen_devices_of(instruction)
            given = (devices[o] for o in instruction.operands if devices[o] is not None)
            chosen = find_device(named[0]) if named else None
            devices[instruction] = for_eager_operation(chosen, instruction.opcode) or next(given, None)
    return devices


_logged = False  # whether `hl.config.log_device_placement` is set


def _choose_log(_=None) -> None:
    global _logged
    _logged = config.log_device_placement


config.on_change("log_device_placement", _choose_log)
_choose_log()


def log_placement(opcode: str, device) -> None:
    """Prints the device of an eager operation where `hl.config.log_device_placement` is set. device: None for the
    default one."""
    if _logged:
        source = current_source()
        log_operation(source.variable if source is not None else "", opcode, _devices(device), source)


def log_placements(device_of: Mapping[Instruction, Any]) -> None:
    """The same of the instructions of a computation that runs eagerly."""
    if _logged:
        for instruction, device in device_of.items():
            if instruction.opcode not in WITHOUT_DEVICE:
                log_operation(instruction.hint, instruction.opcode, _devices(device), instruction.source)


def _devices(device) -> Sequence[Device]:
    """Of a device, a sharding, or None for the default device."""
    return getattr(device, "devices", None) or [device or default_device()]


def _is_small_part(view: np.ndarray) -> bool:
    base = view.base
    return isinstance(base, np.ndarray) and 4 * view.nbytes < base.nbytes


def _contiguous(value, opcode: str = "", operands=()) -> np.ndarray:
    """The value of an eager operation as an array that owns its memory."""
    value = np.asarray(value)
    return value if value.flags.c_contiguous else np.ascontiguousarray(value).reshape(value.shape)


def _checked(value, opcode: str = "", operands=()) -> np.ndarray:
    """The same with `hl.config.debug_nans` or `debug_infs`."""
    value = _contiguous(value)
    check_result(value, opcode, operands)
    return value


_owned = _contiguous


def _choose_checks(_=None) -> None:
    global _owned
    _owned = _checked if config.debug_nans or config.debug_infs else _contiguous


for _name in ("debug_nans", "debug_infs"):
    config.on_change(_name, _choose_checks)
_choose_checks()


def checks_results() -> bool:
    """Whether `hl.config.debug_nans` or `debug_infs` is set."""
    return _owned is _checked


def owned(value, opcode: str = "", operands=()) -> np.ndarray:
    """The value of an eager operation as an array that owns its memory, checked."""
    return _owned(value, opcode, operands)


__all__ = [
    "checks_results", "eager_device", "eager_devices", "eager_result", "log_placement", "log_placements", "owned",
]  # fmt: skip
