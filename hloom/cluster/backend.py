"""Programs over the tasks of a cluster: divided between the tasks, each part sent once and then run by its handle."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

import numpy as np

from hloom.backends.text import program_text
from hloom.cluster.client import Connection, RemoteData, connection
from hloom.cluster.peers import Peer
from hloom.cluster.programs import Part, part_handle
from hloom.cluster.spec import parse_task
from hloom.compiler.placement.cost_model import Costs, DeviceModel, Link
from hloom.compiler.placement.partition import partition
from hloom.compiler.placement.placer import describe, placed, prepared
from hloom.config import config
from hloom.errors import HloomError
from hloom.ir.module import Module
from hloom.ir.source import current_source
from hloom.ir.text import print_module
from hloom.ir.types import Shape
from hloom.platforms.backend import Backend, CompileOptions, Executable
from hloom.platforms.device import default_device, find_device, logged_name, note_devices
from hloom.platforms.names import parse_device_name

CLIENT = "client"  # the process that calls the program: devices without a task are its own
_NETWORK = Link(seconds=2e-4, bytes=1e9)
_runs = itertools.count()


def task_of(device: str) -> str:
    """`/job:worker/task:1` of a device's name, or CLIENT."""
    name = parse_device_name(device)
    return CLIENT if name.job is None else str(parse_task(device))


def _link(a: str, b: str) -> Link:
    return Link() if task_of(a) == task_of(b) else _NETWORK


class ClusterBackend(Backend):
    """Compiles programs whose operations or arguments are on tasks of the cluster that this process is connected to."""

    def compile(self, module: Module, options: CompileOptions) -> ClusterExecutable:
        """Raises DistributedError if a task does not answer, and the errors of its compiler."""
        started = time.perf_counter()
        whole = prepared(module)
        device_of = placed(whole, options.argument_devices, options.device, Costs(lambda device: DeviceModel(), _link))
        placements = list(describe(whole, device_of))
        if config.log_device_placement:
            note_devices(dict.fromkeys(device_of.values()))
            names = {name: logged_name(find_device(name)) for name in set(device_of.values())}
            for line in describe(whole, {i: names[name] for i, name in device_of.items()}):
                print(f"hloom: {line}", file=sys.stderr)
        tasks = {instruction: task_of(device) for instruction, device in device_of.items()}
        tasks |= {p: CLIENT for p in whole.entry.parameters if p["index"] not in options.argument_devices}
        # The client's arrays are sent to each task that reads them, with the run request.
        parts = partition(whole, tasks, task_of(options.device), lambda a, b: a in (b, CLIENT))
        channels = {
            str(c.number): {"from": _wire(c.sender), "to": [_wire(task) for task in c.receivers]}
            for c in parts.channels
        }
        homes = {p["index"]: tasks.get(p, task_of(options.device)) for p in whole.entry.parameters}
        made = ClusterExecutable(module, parts, channels, homes, options, placements)
        made.timings = {"partition": time.perf_counter() - started}
        made.prepare(connection())
        return made


def _wire(task: str) -> str:
    return "" if task == CLIENT else task


class _RemotePart:
    """The part of one task: its text, and to which servers it was sent."""

    def __init__(self, task: str, module: Module, channels: dict):
        self.task, self.module = task, module
        used = {str(i["channel_id"]) for i in module.instructions() if i.opcode in ("send", "recv")}
        self.channels = {number: ends for number, ends in channels.items() if number in used}
        self.text = print_module(module)
        self.handle = part_handle(self.text.encode(), self.channels)
        self.results = [o.shape for o in module.entry.outputs()]
        read = {o for i in module.entry.instructions for o in i.operands} | {module.entry.root}
        self.read = [p in read for p in module.entry.parameters]
        self.sent_to: set[str] = set()

    def send(self, peer: Peer) -> None:
        """Sends the text to a server that has not got it."""
        if peer.incarnation in self.sent_to:
            return
        text = np.frombuffer(self.text.encode(), np.uint8)
        peer.request({"op": "program", "handle": self.handle, "channels": self.channels}, [text])
        self.sent_to.add(peer.incarnation)


class ClusterExecutable(Executable):
    """A program divided between tasks. placements: a line for each operation with its device."""

    accepts_device_data = True

    def __init__(self, module: Module, parts, channels: dict, homes: Mapping[int, str], options, placements):
        self.module, self.placements, self._homes, self._channels = module, placements, homes, channels
        self.argument_devices, self.device = options.argument_devices, options.device
        self.parts = [_RemotePart(t, m, channels) for t, m in parts.modules.items() if t != CLIENT]
        self._own_module = parts.modules.get(CLIENT)
        self._own = Part(self._own_module) if self._own_module is not None else None
        self._outputs: list[tuple[str, int]] = parts.outputs
        self.output_shapes: list[Shape] = [
            parts.modules[task].entry.outputs()[number].shape for task, number in parts.outputs
        ]
        self.output_devices = [
            str(default_device()) if task == CLIENT else f"{task}/cpu:0" for task, _ in parts.outputs
        ]
        self.donated = dict(enumerate(sorted(options.donated)))  # their memory is freed as soon as a call begins
        self.runner = self._call
        self.timings: dict[str, float] = {}

    def prepare(self, link: Connection) -> None:
        """Sends the parts to the tasks, all at the same time."""
        work = [link.submit(self._prepare_one, link, part) for part in self.parts]
        for one in work:
            try:
                one.result()
            except HloomError as error:
                error.source = current_source()  # the caller's line, not the thread's
                raise

    @staticmethod
    def _prepare_one(link: Connection, part: _RemotePart) -> None:
        part.send(link.peers.attached(parse_task(part.task)))

    def call_donating(self, arrays: list, release: Callable[[], None]) -> list:
        release()
        return self._call(arrays)

    def _call(self, arrays: Sequence) -> list:
        link = connection()
        run = f"{link.peers.client}:{next(_runs)}"
        values = {CLIENT: [self._at(CLIENT, k, data) for k, data in enumerate(arrays)]}
        work: list[Future] = []
        for part in self.parts:
            feeds = [self._at(part.task, k, data) if part.read[k] else None for k, data in enumerate(arrays)]
            keep = [link.new_id() for _ in part.results]
            work.append(link.submit(self._run_part, link, part, run, feeds, keep))
        if self._own is not None:
            transport = _ClientTransport(link, run, self._channels, config.distributed_timeout)
            work.append(link.submit(self._own.run, values[CLIENT], transport))
        results = dict(
            zip([*(part.task for part in self.parts), CLIENT], self._finished(link, run, work), strict=False)
        )
        return [results[task][number] for task, number in self._outputs]

    def _at(self, task: str, number: int, data) -> Any:
        """An argument for the part of a task: a handle to data already there, or its elements; None if only other tasks
        read it."""
        if self._homes.get(number, CLIENT) not in (task, CLIENT):
            return None
        if isinstance(data, RemoteData) and str(data.task) == task and data.is_there():
            return data
        return data if isinstance(data, np.ndarray) else data.numpy()

    def _run_part(self, link: Connection, part: _RemotePart, run: str, feeds: list, keep: list[int]) -> list:
        peer = link.peers.attached(parse_task(part.task))
        entries, sent = link.entries(peer.task, feeds)
        header = {"op": "run", "handle": part.handle, "run": run, "feeds": entries, "keep": keep}
        for _ in range(2):
            part.send(peer)
            answer, found = peer.request(header | {"drop": link.dropped(peer.task)}, sent)
            if "unknown" not in answer:
                break
            part.sent_to.discard(peer.incarnation)
        made = []
        for shape, held, entry in zip(part.results, keep, answer["results"], strict=True):
            value = found[entry["value"]] if "value" in entry else None
            made.append(RemoteData(link, peer.task, peer.incarnation, held, shape, value))
        return made

    def _finished(self, link: Connection, run: str, work: list[Future]) -> list:
        """The results of all parts. The first failure ends the others, and is raised."""
        waiting, failure = set(work), None
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            errors = [error for one in done if (error := one.exception()) is not None]
            if errors and failure is None:
                failure = errors[0]
                link.end_run(run, [part.task for part in self.parts], str(getattr(failure, "found", failure)))
        if failure is not None:
            if isinstance(failure, HloomError):
                link.check()
                failure.source = current_source()  # the caller's line, not the thread's
            raise failure
        return [one.result() for one in work]

    # --- looking in ---

    def _modules(self) -> dict[str, Module]:
        own = {} if self._own_module is None else {CLIENT: self._own_module}
        return {part.task: part.module for part in self.parts} | own

    def as_text(self, dialect: str = "hlo", *, export: bool = False) -> str:
        """The part of each task as text, one after the other."""
        texts = {task: program_text(module, dialect, export=export) for task, module in self._modules().items()}
        return "\n".join(f"// {task}\n{text}" for task, text in texts.items())

    def source(self) -> str:
        return "# compiled by the servers of the tasks\n"

    def cost_analysis(self) -> dict[str, float]:
        """'bytes sent' between the tasks."""
        sends = [i for m in self._modules().values() for i in m.entry.instructions if i.opcode == "send"]
        receivers = {int(number): len(ends["to"]) for number, ends in self._channels.items()}
        return {"bytes sent": float(sum(i.operands[0].shape.bytes * receivers[i["channel_id"]] for i in sends))}

    def memory_analysis(self) -> dict[str, int]:
        return {"output bytes": sum(shape.bytes for shape in self.output_shapes)}


class _ClientTransport:
    """How the client's own part sends and receives: it listens at no port, so it asks the senders."""

    def __init__(self, link: Connection, run: str, channels: dict, timeout: float):
        self._link, self._run, self._channels, self._timeout = link, run, channels, timeout

    def send(self, channel: int, step: int, value: np.ndarray) -> None:
        for receiver in self._channels[str(channel)]["to"]:
            peer = self._link.peers.attached(parse_task(receiver))
            peer.request({"op": "send", "run": self._run, "channel": channel, "step": step}, [value], self._timeout)

    def receive(self, channel: int, step: int) -> np.ndarray:
        peer = self._link.peers.attached(parse_task(self._channels[str(channel)]["from"]))
        header = {"op": "receive", "run": self._run, "channel": channel, "step": step}
        return peer.request(header, (), self._timeout)[1][0]


__all__ = ["ClusterBackend", "ClusterExecutable"]
