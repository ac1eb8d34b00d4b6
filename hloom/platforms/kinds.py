"""Kinds of devices and their registry.

Other packages add a kind by an entry point of the group `hloom.devices`, which names a DeviceKind or a function that
returns one:

    [project.entry-points."hloom.devices"]
    counting = "my_package:CountingKind"

`hloom.backends.interpreted.InterpretedKind` is a base for kinds that compute op by op.
"""

from __future__ import annotations

import functools
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable

from hloom.compiler.placement.cost_model import DeviceModel, Link
from hloom.errors import DeviceError
from hloom.ir.module import Instruction
from hloom.platforms.backend import Backend, DeviceBackend, DeviceExecutor, ExecutorRequest

GROUP = "hloom.devices"
MULTI_DEVICE = "hloom.backends.multi_device:MultiDeviceBackend"
CLUSTER = "hloom.cluster.backend:ClusterBackend"  # of programs on tasks of a cluster


class DeviceKind(ABC):
    """A kind of device.

    name: the first part of its devices' names. to_host, between: the links to the host's memory, and between two
    devices of the kind (None: through the host). backend_name: 'module:class' of the backend for programs on
    one device of the kind; by default that of programs on several devices, which calls `executor`.
    """

    name = ""
    model = DeviceModel()
    to_host = Link()
    between: Link | None = None
    host_memory = False  # whether its programs read and write the host's memory
    keeps_arrays = False  # whether arrays stay in its own memory between programs (`put`)
    dlpack_types: frozenset[int] = frozenset()  # DLPack's device types of its memory (`borrow`)
    backend_name = MULTI_DEVICE

    @property
    def backend(self) -> Backend:
        """Imported by its first use."""
        return load_backend(self.backend_name)

    @abstractmethod
    def count(self) -> int:
        """The number of devices of this kind in this process. `reason` explains 0."""

    def reason(self) -> str:
        return "there is none"

    def has_kernel(self, instruction: Instruction) -> bool:
        """Whether it can compute an instruction."""
        return True

    def executor(self, request: ExecutorRequest) -> DeviceExecutor:
        """The executor of a part of a program (such as `hloom.backends.cpu.executor.CpuExecutor`): the backend's."""
        if not isinstance(self.backend, DeviceBackend):
            raise TypeError(f"devices of kind {self.name!r} have neither an executor nor a backend of their own")
        return self.backend.executor(request)

    def memory_stats(self, index: int) -> dict[str, int] | None:
        """Bytes and counts of a device's memory by name; None where memory is not counted by device."""
        return None

    def description(self, index: int) -> str:
        """The hardware of a device, for people: its model and where it is. '' where nothing is known."""
        return ""

    def put(self, data, index: int, label: str):
        """The data of an array, from any device, in the memory of a device that keeps arrays. label: the user's name of
        the array."""
        raise TypeError(f"devices of kind {self.name!r} keep no arrays")

    def borrow(self, other, index: int):
        """(the data of another library's array over the same memory, the number of our device).

        other: has `__dlpack__`, and is on DLPack's device `index` of one of `dlpack_types`."""
        raise TypeError(f"devices of kind {self.name!r} share no arrays")


# hloom's own kinds, named as entry points name those of other packages: a kind is imported by its first use.
_OWN = {"cpu": "hloom.backends.cpu.kind:CpuKind", "cuda": "hloom.backends.cuda.kind:CudaKind"}
_kinds: dict[str, DeviceKind] = {}


def _load(name: str):
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


@functools.cache
def load_backend(name: str) -> Backend:
    """The backend that 'module:class' names."""
    return _load(name)()


def _own_kind(name: str) -> DeviceKind:
    if name not in _kinds:
        _kinds[name] = _load(_OWN[name])()
    return _kinds[name]


def register_device_kind(kind: DeviceKind) -> None:
    """Adds a kind of device to this process. Raises DeviceError where the name is taken by another kind."""
    there = _own_kind(kind.name) if kind.name in _OWN else _kinds.get(kind.name)
    if there is not None and type(there) is not type(kind):
        raise DeviceError(
            f"a kind of device {kind.name!r}",
            f"that name is registered for {type(there).__module__}.{type(there).__qualname__}",
            "give the new kind another name",
        )
    _kinds[kind.name] = kind


@functools.cache
def _load_entry_points() -> None:
    from importlib.metadata import entry_points  # 10 ms, which few programs need

    for point in entry_points(group=GROUP):
        try:
            made: DeviceKind | Callable[[], DeviceKind] = point.load()
            register_device_kind(made if isinstance(made, DeviceKind) else made())
        except DeviceError:
            raise
        except Exception as error:
            raise DeviceError(
                f"the kind of device {point.name!r} of package {point.dist.name if point.dist else '?'} was loaded",
                f"{type(error).__name__}: {error}",
                "repair or uninstall that package",
            ) from error


def device_kinds() -> dict[str, DeviceKind]:
    """The kinds by name, including those of other packages."""
    for name in _OWN:
        _own_kind(name)
    _load_entry_points()
    return _kinds


def kind_of_dlpack(device_type: int) -> DeviceKind | None:
    """The kind whose memory DLPack knows by this device type; None where no kind shares such memory."""
    return next((kind for kind in device_kinds().values() if device_type in kind.dlpack_types), None)


def device_kind(name: str) -> DeviceKind | None:
    """The kind of this name; None where there is none."""
    if name in _kinds:
        return _kinds[name]
    return _own_kind(name) if name in _OWN else device_kinds().get(name)
