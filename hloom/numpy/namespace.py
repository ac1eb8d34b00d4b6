"""The Array API standard's inspection of a namespace: capabilities, devices, dtypes."""

from __future__ import annotations

from hloom.arrays.promotion import default_float, default_int
from hloom.errors import ArgumentError
from hloom.ir.types import as_dtype, default_dtype
from hloom.platforms.device import Device, default_device, program_devices
from hloom.sharding.shardings import device_of

_KINDS = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
_KINDS["integral"] = _KINDS["signed integer"] + _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"] + _KINDS["complex floating"]


class NamespaceInfo:
    """`hnp.__array_namespace_info__()`, as the Array API standard 2024.12 describes it."""

    def capabilities(self) -> dict:
        """Optional capabilities of the standard.

        Outside of jit, boolean indexing and data-dependent shapes are supported; arrays have up to 64 axes.
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The default device of arrays."""
        return default_device()

    def devices(self) -> list[Device]:
        """The devices of this process."""
        return program_devices()

    def default_dtypes(self, *, device=None) -> dict:
        """The default dtypes: 32 bits wide, 64 with `hl.config.enable_x64`. Raises DeviceError."""
        device_of(device)
        return {
            "real floating": default_float(),
            "complex floating": default_dtype(complex),
            "integral": default_int(),
            "indexing": default_int(),
        }

    def dtypes(self, *, device=None, kind=None) -> dict:
        """The standard's dtypes by name, of one kind or of a tuple of kinds. Raises ArgumentError, DeviceError."""
        device_of(device)
        kinds = kind if isinstance(kind, tuple) else (("bool", "numeric") if kind is None else (kind,))
        found = {}
        for each in kinds:
            if each not in _KINDS:
                raise ArgumentError("dtypes takes a kind of dtypes", f"{each!r}", f"one of {', '.join(_KINDS)}")
            found.update({name: as_dtype(name) for name in _KINDS[each]})
        return found


def __array_namespace_info__() -> NamespaceInfo:
    """The capabilities of this namespace: see `NamespaceInfo`."""
    return NamespaceInfo()
