"""Runs of a server's session whose variables are on several tasks: stage by stage (`hloom.cluster.graphs.stages`)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from hloom.arrays.array import Array
from hloom.cluster.graphs.stages import Stage, cut
from hloom.cluster.peers import Peers
from hloom.cluster.programs import NoTransfers, Part, read_part
from hloom.cluster.spec import Task, parse_task
from hloom.compiler.placement.user_devices import chosen_devices
from hloom.config import config
from hloom.dispatch.backend import log_placement
from hloom.dispatch.jit import jit
from hloom.errors import UninitializedError
from hloom.ir.module import Computation, Instruction, Module, below
from hloom.ir.ops.specialize import Specialization
from hloom.ir.source import on_device
from hloom.ir.text import print_module
from hloom.ir.types import Shape
from hloom.platforms.device import find_device
from hloom.platforms.names import DeviceName, parse_device_name
from hloom.sessions.executor import LocalExecutor, Step
from hloom.sessions.lowering import Plan, make_plan
from hloom.sessions.program import Program, outside_of_programs
from hloom.tracing.trace import apply_computation


class Link(Protocol):
    """The connection of a server to the other tasks, as a client of theirs (`hloom.cluster.client`)."""

    peers: Peers

    def variable(self, task: Task, name: str, shape: Shape) -> Any:
        """The data of a variable that the server of a task has."""

    def entries(self, task: Task, values: Sequence) -> tuple[list[dict | None], list[np.ndarray]]:
        """How a request to a task names these arguments, and the arrays that travel with it."""


class Variables:
    """The variables of one task, which programs of all sessions of the cluster read and update by name."""

    def __init__(self, executor: LocalExecutor, task: str):
        self.executor, self._task = executor, task
        self._parts: dict[str, Part] = {}

    def value(self, name: str) -> np.ndarray:
        """A value that does not change. Raises UninitializedError."""
        found = self.executor.snapshot(name)
        if found is None:
            raise UninitializedError(
                f"the variable {name!r} was read",
                f"{self._task} has no value of it",
                "run the initializer first: session.run(program.initializer()), or restore a checkpoint",
            )
        return found

    def add(self, text: bytes) -> str:
        """The handle of an update that `update` runs from now on. Raises ParseError, VerifyError, DeviceError."""
        handle = hashlib.sha256(text).hexdigest()
        if handle not in self._parts:
            self._parts[handle] = Part(read_part(text.decode("utf-8")))
        return handle

    def knows(self, handle: str) -> bool:
        return handle in self._parts

    def update(
        self, handle: str, given: Sequence[np.ndarray | None], reads: dict[int, str], stores: Sequence[tuple[str, int]]
    ) -> list[np.ndarray]:
        """Runs an update atomically. given: its arguments except variables, whose names `reads` holds by index. stores:
        variables and the indices of the results assigned to them. Raises UninitializedError."""
        part = self._parts[handle]
        with self.executor.lock:
            arguments = [self.value(reads[k]) if k in reads else value for k, value in enumerate(given)]
            found = part.run(arguments, NoTransfers())
            for name, number in stores:
                self.executor.values[name] = Array(_unshared(found[number], arguments))
        return found


def _unshared(value: np.ndarray, arguments: Sequence) -> np.ndarray:
    """A new value of a variable, which shares no memory with another one."""
    shared = value.base is not None or any(np.may_share_memory(value, a) for a in arguments)
    return value.copy() if shared else value


def load(
    executor: LocalExecutor, variables: Variables, program: Program, fetches, feeds, own: Task, link: Callable[[], Link]
) -> Step:
    """A run at the server of a task. own: that task. link: returns the connection to the others."""
    targets = [program.find(fetch) for fetch in fetches]
    nodes: list[Any] = [program.find(feed, "feed") for feed in feeds]
    plan = make_plan(program, targets, nodes)
    _athome(plan, own)
    homes = {home_task(device, own) for device in plan.devices.values()}
    away = any(parse_device_name(i.device).job for i in below(plan.computation.instructions) if i.device)
    if homes <= {own} and not away:
        return Step(executor, program, plan)
    return DistributedStep(executor, program, plan, variables, own, link)


def home_task(device: str, own: Task) -> Task:
    """The task whose server has a variable."""
    return parse_task(device) if device and parse_device_name(device).job else own


def _athome(plan: Plan, own: Task) -> None:
    """Calls the devices of this task by their names here: their work needs no messages."""
    for instruction in below(plan.computation.instructions):
        if instruction.device:
            name = parse_device_name(instruction.device)
            if name.job == own.job and (name.task or 0) == own.index:
                instruction.source = on_device(instruction.source, str(DeviceName(name.kind, name.index)))


class DistributedStep(Step):
    """A loaded run over several tasks. Variables stay in place: nothing is donated, or locked in between."""

    def __init__(self, executor: LocalExecutor, program: Program, plan: Plan, variables: Variables, own: Task, link):
        super().__init__(executor, program, plan)
        self._stateless = True  # the lock is held while variables of this task are updated, and not in between
        self._variables, self._own, self._link = variables, own, link
        self.homes = {name: home_task(device, own) for name, device in plan.devices.items()}
        named = [i.device for i in below(plan.computation.instructions) if i.device]
        away = {home_task(device, own) for device in [*named, *plan.devices.values()]} - {own}
        self._others = sorted(away, key=str)
        self._stages = cut(plan, lambda device: home_task(device, own))
        self._names = dict(zip(plan.computation.parameters, plan.variables, strict=False))
        self._logged = False
        self._replaced = [self._read_later(number, stage) for number, stage in enumerate(self._stages)]

    def _log(self) -> None:
        """Prints everything outside the main stages: where updates run, and text constants."""
        for stage in self._stages:
            if stage.home is not None:
                device = "cpu:0" if stage.home == self._own else f"{stage.home}/cpu:0"
                log_placement(Module(self.program_name, stage.computation), device)
        self._log_texts()

    def _read_later(self, number: int, stage: Stage) -> list[Instruction]:
        """The variables that a stage replaces and that the run reads once more, as they were when it began."""
        stored = {name for name, _ in stage.stores}
        later = [i for s in self._stages[number + 1 :] if s.home is None for i in s.inputs]
        later += self.plan.computation.root.operands[: self.plan.count]
        return [i for i in dict.fromkeys(later) if self._names.get(i) in stored]

    def _for_sizes(self, sizes: dict[str, int]) -> Any:
        to = Specialization(self.sizes.given(sizes)) if sizes else None
        return [self._compiled_stage(s, s.computation if to is None else to.computation(s.computation))
                for s in self._stages]  # fmt: skip

    def _compiled_stage(self, stage: Stage, computation: Computation) -> Callable[[_Run], None]:
        return (_Main if stage.home is None else _Updates)(self, stage, computation)

    def _run(self, sized: Any, values: Sequence[Any]) -> list:
        parameters = self.plan.computation.parameters
        link = self._link()
        link.peers.all_attached(self._others)
        if config.log_device_placement and not self._logged:
            self._logged = True
            self._log()
        run = _Run(self, link, dict(zip(parameters[len(self.plan.variables) :], values, strict=True)))
        if sized.call is None:
            sized.call = self._for_sizes(sized.sizes)
        for stage, replaced in zip(sized.call, self._replaced, strict=True):
            for instruction in replaced:
                run.fix(instruction)
            stage(run)
        return [run.value(o) for o in self.plan.computation.root.operands[: self.plan.count]]


class _Run:
    """One run: the values that are known so far."""

    def __init__(self, step: DistributedStep, link: Link, values: dict[Instruction, Any]):
        self.step, self.link, self.values = step, link, values

    def value(self, instruction: Instruction) -> Any:
        """Of a feed, a result of an earlier stage, a constant, or a variable as it is found first."""
        if instruction not in self.values:
            name = self.step._names.get(instruction)
            self.values[instruction] = instruction["value"] if name is None else self._variable(name, instruction)
        return self.values[instruction]

    def fix(self, instruction: Instruction) -> None:
        """Reads a variable now, as it is about to change."""
        self.values[instruction] = Array(np.asarray(self.value(instruction)))

    def _variable(self, name: str, instruction: Instruction) -> Array:
        home = self.step.homes[name]
        if home == self.step._own:
            return Array(self.step._variables.value(name))
        return Array(self.link.variable(home, name, instruction.shape), False, find_device(f"{home}/cpu:0"))


class _Main:
    """A main stage, compiled as any function is: over tasks where its operations are placed so."""

    def __init__(self, step: DistributedStep, stage: Stage, computation: Computation):
        def run(*operands):
            return tuple(apply_computation(computation, list(operands)))

        run.__name__ = run.__qualname__ = step.program_name
        # If no device was chosen, the session's server computes, regardless of the variables' tasks.
        default = None if chosen_devices(computation) else "cpu:0"
        self._stage, self._function = stage, jit(run, device=step.executor.device or default)

    def __call__(self, run: _Run) -> None:
        with outside_of_programs():
            found = self._function(*[run.value(i) for i in self._stage.inputs])
        run.values.update(zip(self._stage.outputs, found, strict=True))


class _Updates:
    """The updates of one task's variables, as a text that its server gets once."""

    def __init__(self, step: DistributedStep, stage: Stage, computation: Computation):
        self._step, self._stage = step, stage
        text = print_module(Module(step.program_name, computation)).encode()
        self._text, self._handle = np.frombuffer(text, np.uint8), hashlib.sha256(text).hexdigest()
        names = step._names
        # The variables of its own task are read there; those of others are arguments, like everything else.
        self._reads = {
            k: names[i] for k, i in enumerate(stage.inputs) if i in names and step.homes[names[i]] == stage.home
        }
        self._wanted = len(stage.outputs)

    def __call__(self, run: _Run) -> None:
        given = [None if k in self._reads else run.value(i) for k, i in enumerate(self._stage.inputs)]
        if self._stage.home == self._step._own:
            variables = self._step._variables
            variables.add(self._text.tobytes())
            arrays = [None if v is None else np.asarray(v) for v in given]
            found = variables.update(self._handle, arrays, self._reads, self._stage.stores)[: self._wanted]
        else:
            found = self._elsewhere(run, given)
        run.values.update(zip(self._stage.outputs, map(Array, found), strict=True))

    def _elsewhere(self, run: _Run, given: Sequence[Any]) -> list[np.ndarray]:
        assert self._stage.home is not None
        entries, sent = run.link.entries(self._stage.home, given)
        header = {
            "op": "variables.run", "handle": self._handle, "given": entries, "wanted": self._wanted,
            "reads": {str(k): name for k, name in self._reads.items()}, "stores": self._stage.stores,
        }  # fmt: skip
        peer = run.link.peers.attached(self._stage.home)
        answer, found = peer.request(header, sent)
        if "unknown" in answer:
            peer.request({"op": "variables.add"}, [self._text])
            answer, found = peer.request(header, sent)
        return found


__all__ = ["DistributedStep", "Variables", "home_task", "load"]
