"""Devices `cpu:0` ... and others of registered kinds, and scopes that choose them for parts of programs.

All CPU devices of a process share its memory; each has its own share of the threads. In a program that runs in several
processes, `/job:worker/task:1/cpu:0` is a device of process 1.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence
from contextlib import ContextDecorator
from functools import lru_cache
from typing import Any, NoReturn

from hloom.config import config
from hloom.errors import DeviceError, PlacementWarning
from hloom.ir.records import record
from hloom.ir.source import Source, device_scope, device_scopes, placement_line, warn_user
from hloom.platforms.kinds import DeviceKind, device_kind, device_kinds
from hloom.platforms.names import DeviceName, parse_device_name
from hloom.platforms.processes import LOCAL_JOB, Tasks, own_task_name, processes, tasks


@record(frozen=True)
class Device:
    """A device. kind: 'cpu' or another registered kind; index: its number among its process's devices of the kind;
    process_index: the process that has it. job: of the cluster's task `process_index` that has it (`hloom.cluster`);
    '' for a device of this program's own processes."""

    kind: str
    index: int
    process_index: int = 0
    job: str = ""

    def __str__(self) -> str:
        here = f"{self.kind}:{self.index}"
        if self.job:
            return f"/job:{self.job}/task:{self.process_index}/{here}"
        return here if self.process_index == processes().index else self.global_name

    def __repr__(self) -> str:
        return f"Device({self})"

    @property
    def global_name(self) -> str:
        """The same in all processes: /job:worker/task:1/cpu:0. Of a program in one process: cpu:0."""
        found, here = processes(), f"{self.kind}:{self.index}"
        if self.job:
            return str(self)
        return f"{found.name(self.process_index)}/{here}" if found.devices else here

    @property
    def is_away(self) -> bool:
        """Whether it belongs to another process of the program. The devices of a cluster's tasks are reached in another
        way."""
        return not self.job and self.process_index != processes().index

    @property
    def platform(self) -> str:
        return self.kind

    @property
    def id(self) -> int:
        """The number among the devices of the kind in all processes; of a cluster's task, among that task's."""
        return self.index + (0 if self.job else processes().first(self.kind, self.process_index))

    @property
    def local_hardware_id(self) -> int:
        return self.index

    @property
    def device_kind(self) -> str:
        return self.kind

    @property
    def kind_object(self) -> DeviceKind:
        if self.job and (found := tasks()) is not None:
            return found.kind(DeviceName(self.kind, self.index, self.job, self.process_index))
        kind = device_kind(self.kind)
        assert kind is not None  # `find_device` has looked it up
        return kind

    @property
    def description(self) -> str:
        """The hardware, for people: its model, and a GPU's address on the bus. '' for devices of other processes; as a
        cluster's task reports it."""
        here = self.job or self.process_index == processes().index
        return self.kind_object.description(self.index) if here else ""

    def memory_stats(self) -> dict[str, int] | None:
        """Bytes and counts of the device's own memory by name; None for devices in the host's memory, which is not
        counted by device. Raises CudaError."""
        return self.kind_object.memory_stats(self.index)


@lru_cache(maxsize=4096)
def _made(kind: str, index: int, process: int) -> Device:
    return Device(kind, index, process)


def devices_were_named() -> bool:
    """Whether this process has made a Device, whose number is that of one process."""
    return _made.cache_info().currsize > 0


def _device(kind: str, index: int) -> Device:
    return _made(kind, index, processes().index)


def devices(kind: str | None = None) -> list[Device]:
    """All devices (of one kind: 'cpu', 'cuda', ...): those of the program's processes, process by process, and then
    those of the tasks of the cluster that this process is connected to (`hl.cluster.connect`). Tasks that are not there
    yet are waited for. kind: `/job:worker/task:1/cpu` for those of one task.

    Raises DeviceError where there are none, DistributedError for a task that does not come.

    >>> hl.devices("cpu")[0]
    Device(cpu:0)
    """
    cluster = tasks()
    if cluster is None and kind is None:
        return program_devices()
    asked = None if kind is None else parse_device_name(kind)
    found = [*_of_program(), *_of_cluster(cluster)]
    chosen = found if asked is None else [device for device in found if _is_asked(device, asked)]
    if not chosen and asked is not None and processes().process_of(asked.job, asked.task) is None:
        there, repair = _of_another_task(asked)
        raise DeviceError(f"devices {kind!r}", there, repair)
    if not chosen:
        _refuse_kind(kind, found)
    return chosen


def _of_cluster(cluster: Tasks | None) -> list[Device]:
    named = () if cluster is None else cluster.devices()
    return [Device(name.kind, name.index, name.task or 0, name.job or "") for name in named]


def _is_asked(device: Device, name: DeviceName) -> bool:
    """Whether a device is of the kind, and of the task, of a name."""
    if device.kind != name.kind:
        return False
    if name.job is None and name.task is None:
        return True
    if device.job:
        return (device.job, device.process_index) == (name.job, name.task or 0)
    return device.process_index == processes().process_of(name.job, name.task)


def program_devices(kind: str | None = None) -> list[Device]:
    """The devices of all processes of the program (of one kind: 'cpu', 'cuda', ...), process by process: those that a
    mesh can have. Raises DeviceError where there are none."""
    asked = None if kind is None else parse_device_name(kind).kind
    found = [device for device in _of_program() if asked in (None, device.kind)]
    return found or local_devices(backend=kind)


def _of_program() -> list[Device]:
    table = processes()
    if not table.devices:
        return local_devices()
    return [
        _made(name, n, process)
        for process, counts in enumerate(table.devices)
        for name, count in counts.items()
        for n in range(count)
    ]


def local_devices(process_index=None, backend: str | None = None, host_id=None) -> list[Device]:
    """The devices of this process, or of that of another number. Raises DeviceError where there are none."""
    kind = backend
    if process_index not in (None, processes().index):
        return [device for device in program_devices(kind) if device.process_index == process_index]
    if kind is None:
        return [_device(k.name, n) for k in device_kinds().values() for n in range(k.count())]
    found = device_kind(parse_device_name(kind).kind)
    if found is None or not found.count():
        _refuse_kind(kind, _of_program())
    return [_device(found.name, n) for n in range(found.count())]


def _refuse_kind(kind: Any, there: Sequence[Device]) -> NoReturn:
    own = device_kind(parse_device_name(str(kind)).kind)
    why = f"; {own.reason()}" if own is not None and not own.count() else ""
    raise DeviceError(
        f"devices of kind {kind!r}", f"there are {', '.join(map(str, there))}{why}", "name the kind of one of these"
    )


_chosen: Device | None = None  # by `hl.default_device`


def default_device() -> Device:
    return _chosen or _device("cpu", 0)


def choose_default_device(device: Device | None) -> Device | None:
    """Sets the device of arrays for which none is chosen (None: the first). Returns the device that was set before."""
    global _chosen
    before, _chosen = _chosen, device
    return before


def find_device(name) -> Device:
    """The device of a name ('cpu:0', 'cpu', '/device:CPU:0') or a Device; None means the default device.

    Raises DeviceError for a missing device; with `hl.config.soft_placement` it is replaced by cpu:0.
    """
    if name is None:
        return default_device()
    if isinstance(name, Device) and name.job:
        return name
    parsed = DeviceName(name.kind, name.index) if isinstance(name, Device) else parse_device_name(str(name))
    if (of_cluster := _find_in_cluster(parsed, name)) is not None:
        return of_cluster
    kind = device_kind(parsed.kind)
    table = processes()
    process = name.process_index if isinstance(name, Device) else table.process_of(parsed.job, parsed.task)
    here = process == table.index
    if here and kind is not None and parsed.index < kind.count():
        return _device(kind.name, parsed.index)
    if process is not None and process < len(table.devices) and kind is not None:
        if parsed.index < table.devices[process].get(kind.name, 0):
            return _made(kind.name, parsed.index, process)
    if config.soft_placement:
        if not here:
            warn_user(
                f"{name} is a device of another process, which this one ({_here()}) does not know: the work of that "
                "task is done on cpu:0, as hl.config.soft_placement asks",
                PlacementWarning,
            )
        if config.log_device_placement:
            print(f"hloom: {name} does not exist here; cpu:0 is used", file=sys.stderr)
        return _device("cpu", 0)
    if not here:
        found, repair = _of_another_task(parsed)
    else:
        found = f"this process has {_list()}"
        if kind is not None and not kind.count():
            found += f"; {kind.reason()}"
        more = "set HLOOM_NUM_CPU_DEVICES for more" if parsed.kind == "cpu" else "set hl.config.soft_placement"
        repair = f"name one of these, or {more}"
    raise DeviceError(f"device {name!s}", found, repair)


def _find_in_cluster(parsed: DeviceName, name) -> Device | None:
    """The device of a task of the cluster that this process is connected to; None for the name of another device."""
    cluster = tasks()
    if cluster is None or parsed.job is None:
        return None
    numbers, task = cluster.numbers(parsed.job), parsed.task or 0
    if numbers is not None and task in numbers:
        return Device(parsed.kind, parsed.index, task, parsed.job)
    if parsed.job in (LOCAL_JOB, processes().job) or config.soft_placement:
        return None
    nearest = difflib.get_close_matches(f"/job:{parsed.job}/task:{task}", cluster.names(), 1, 0.0)
    raise DeviceError(
        f"device {name!s}",
        f"the cluster has the tasks {', '.join(cluster.names())}",
        f"did you mean {nearest[0]}/{parsed.kind}:{parsed.index}?",
    )


def _of_another_task(name: DeviceName) -> tuple[str, str]:
    """The error for the device of a task that this process does not know, with its repair."""
    found, cluster = f"this process is {_here()}; there are {_list()}", tasks()
    if processes().devices:
        return found, "name one of these devices, or start more processes: hloom launch -n 4 program.py"
    if cluster is not None:
        found = f"the cluster has the tasks {', '.join(cluster.names())}"
        return found, f"name the job as well, as in {cluster.names()[0]}/{name.kind}:{name.index}"
    found = f"this process is {_here()}, with {_list()}, and knows no other tasks yet"
    # By their names: these packages are above this one.
    if importlib.import_module("hloom.distributed.environment").started_processes() > 1:
        return found, "call hl.distributed.initialize() first, which meets the other processes"
    if config.cluster_task:
        return found, "make the server of this task first: server = hl.cluster.Server()"
    job = name.job or "worker"
    made = f"hl.cluster.Server(cluster, {job!r}, 0) in a task, or hl.cluster.connect(cluster) in a client"
    return found, f"say first which tasks there are: {made}"


def _here() -> str:
    return processes().name(processes().index)


def _list() -> str:
    return ", ".join(map(str, program_devices()))


@record(frozen=True)
class Operation:
    """The argument of a placement rule. type: the opcode ('dot'), 'variable' or 'placeholder' in programs of
    `hl.sessions`. name: the user's name of the result, or ''."""

    type: str
    name: str


class device(ContextDecorator):
    """`with hl.device("cpu:1"):` operations inside run on that device, also in jitted functions, and so do the
    derivatives of these operations. Inner scopes win; None cancels the choice.

    A function is a placement rule: `rule(operation)` returns the device of each operation that is traced inside, or
    None for the one around it. In a program of `hl.sessions` names of devices are looked up when it runs.

    Raises DeviceError for a missing device, unless `hl.config.soft_placement` is set.

    >>> with hl.device("cpu:0"):
    ...     x = hnp.ones(3)
    >>> x.devices()
    {Device(cpu:0)}
    """

    def __init__(self, name):
        self.rule = name if callable(name) else None
        self.name = "" if name is None or self.rule is not None else _scope_name(name)
        self._scopes: list = []

    def __enter__(self) -> Device | None:
        if self.rule is not None:
            scope = device_scope(device_scopes.device, self._chosen)
        else:
            scope = device_scope(self.name)
        self._scopes.append(scope)
        scope.__enter__()
        return find_device(self.name) if self.name and not device_scopes.anywhere else None

    def _chosen(self, opcode: str, variable: str) -> str:
        assert self.rule is not None  # otherwise never queried
        found = self.rule(Operation(opcode, variable))
        return _scope_name(found) if found else ""

    def __exit__(self, *exception) -> None:
        self._scopes.pop().__exit__(*exception)


def _scope_name(name) -> str:
    if device_scopes.anywhere and not isinstance(name, Device):
        return str(parse_device_name(str(name)))
    return str(find_device(name))


def logged_name(device: Device) -> str:
    """As `hl.config.log_device_placement` prints it: with the task, where this process is one of several."""
    name = str(device)
    return name if name.startswith("/job:") or not (task := own_task_name()) else f"{task}/{name}"


def note_devices(names) -> None:
    """Logs the hardware of the devices of a program (`hl.config.log_device_placement`)."""
    for name in names:
        found = find_device(name)
        if found.description:
            print(f"hloom: device {logged_name(found)}: {found.description}", file=sys.stderr)


_noted: set[str] = set()  # devices whose hardware was logged
config.on_change("log_device_placement", lambda on: _noted.clear())


def log_operation(name: str, opcode: str, devices: Sequence[Device], source: Source | None) -> None:
    """Logs what no program computes: an eager operation, a constant of text."""
    for device in devices:
        if str(device) not in _noted:
            _noted.add(str(device))
            note_devices([device])
    where = ", ".join(map(logged_name, devices))
    print(f"hloom: {placement_line(name or opcode, opcode, where, source)}", file=sys.stderr)


def scoped_device() -> Device | None:
    """The device of the surrounding `hl.device` scope, if any."""
    name = device_scopes.device
    return find_device(name) if name and not device_scopes.anywhere else None


def for_eager_operation(device: Device | None, what: str) -> Device | None:
    """A device, on which an eager operation can run. Raises DeviceError for one of another process."""
    if device is not None and device.is_away:
        raise DeviceError(
            f"an eager operation ({what}) on {device}",
            f"this is process {process_index()}, and that a device of process {device.process_index}",
            "put it into a compiled function (hl.jit), which all processes call",
        )
    return device


def device_count(backend: str | None = None) -> int:
    """How many devices there are (`devices`).

    >>> hl.device_count("cpu") >= 1
    True
    """
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """How many devices this process has."""
    return len(local_devices(backend=backend))


def default_backend() -> str:
    """The kind of the device on which computations run.

    >>> hl.default_backend()
    'cpu'
    """
    return default_device().kind


def process_index(backend: str | None = None) -> int:
    """The number of this process; 0 where there is one.

    >>> hl.process_index(), hl.process_count()
    (0, 1)
    """
    return processes().index


def process_count(backend: str | None = None) -> int:
    """The number of processes that `hl.distributed.initialize` has met; 1 without it."""
    return processes().count


__all__ = [
    "Device",
    "choose_default_device",
    "default_backend",
    "default_device",
    "device",
    "device_count",
    "devices",
    "devices_were_named",
    "find_device",
    "for_eager_operation",
    "local_device_count",
    "local_devices",
    "log_operation",
    "process_count",
    "process_index",
    "program_devices",
    "scoped_device",
]
