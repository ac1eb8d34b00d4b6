"""A program on a device, ready to be called.

Steps that a graph can hold are captured as one, for one set of addresses, and replayed; the rest (Python functions, and
loops and branches around them or on a driver without such nodes) the host runs between the stretches. A call returns
when everything is enqueued, unless there are Python functions in it or the host decides a loop or a branch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from hloom.ir.records import field, record
from hloom.runtime.cuda.device import Device, Running
from hloom.runtime.cuda.errors import CudaDeviceLostError, CudaOutOfMemoryError
from hloom.runtime.cuda.memory import Buffer, Pool
from hloom.runtime.cuda.programs.choice import Choose, decided, own_kernels
from hloom.runtime.cuda.programs.detach import detached
from hloom.runtime.cuda.programs.graph import Builder, Captured, Direct, follows_call
from hloom.runtime.cuda.programs.program import (
    Conditional,
    CudaProgram,
    Enqueue,
    Host,
    Ref,
    Step,
    While,
    all_steps,
    on_device,
    places,
)
from hloom.runtime.cuda.staging import read, write

CAPTURES = 4  # graphs of one stretch for different addresses; beyond, the one used longest ago is changed
REBUILDS = 4  # graphs built because a body's addresses changed, before the bodies get memory of their own
_ALIGNMENT = 256


@record(eq=False)
class Stretch:
    """Steps that are one graph, and its captures by the addresses of the inputs and outputs that it uses.

    rebuilt: how often a capture could not be given other addresses. private: memory of its bodies (`detach`).
    """

    steps: tuple[Step, ...]
    captures: OrderedDict[tuple[int, ...], Captured] = field(default_factory=OrderedDict)
    rebuilt: int = 0
    private: Buffer | None = None
    private_bytes: int = 0

    def __post_init__(self):
        self.set_steps(self.steps)

    def set_steps(self, steps: tuple[Step, ...]) -> None:
        self.steps = steps
        self.follows = tuple(dict.fromkeys(ref for s in all_steps(steps) for ref in places(s) if follows_call(ref)))
        self.numbers = [(ref.kind == "input", ref.number) for ref in self.follows]

    def key(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> tuple[int, ...]:
        return tuple([(inputs if given else outputs)[number].address for given, number in self.numbers])


@record(eq=False)
class Loop:
    """A While that the host runs."""

    step: While
    condition: list
    body: list


@record(eq=False)
class Choice:
    """A Conditional that the host decides."""

    step: Conditional
    branches: list[list]


def units(steps: Sequence[Step], loops: bool, choices: bool, graphs: bool = True) -> list:
    """The steps in stretches and the host's work between them. loops, choices: whether graphs support such nodes.

    graphs=False: every step alone.
    """
    result: list = []
    run: list[Step] = []

    def end_run():
        if run:
            result.append(Stretch(tuple(run)))
            run.clear()

    for step in steps:
        if graphs and on_device((step,), loops, choices):
            run.append(step)
            continue
        end_run()
        if isinstance(step, While):
            condition, body = (units(part, loops, choices, graphs) for part in (step.condition, step.body))
            result.append(Loop(step, condition, body))
        elif isinstance(step, Conditional):
            result.append(Choice(step, [units(branch, loops, choices, graphs) for branch in step.branches]))
        else:
            result.append(step)
    end_run()
    return result


def _nothing() -> None:
    pass


class Executable:
    """A program on a device. Calls from several threads run one after the other.

    choose: resolves its `Alternatives` steps for this device. name: the program's. lines: the user's lines that its
    steps come from.
    """

    def __init__(self, program: CudaProgram, device: Device, choose: Choose = own_kernels):
        program = decided(program, choose)
        self.program, self.device, self.name = program, device, program.name
        self.lines = tuple(dict.fromkeys(step.where for step in all_steps(program.steps) if step.where))
        self._running_as = Running(self.name, self.lines)
        prepares = (step.prepare for step in all_steps(program.steps) if isinstance(step, Enqueue) and step.prepare)
        self._prepares = list(dict.fromkeys(prepares))
        facts = device.facts
        self.units = units(program.steps, facts.while_nodes, facts.switch_nodes, graphs=not device.stepwise)
        self._only = self.units[0] if len(self.units) == 1 and isinstance(self.units[0], Stretch) else None
        self._outputs = [
            (shape.bytes, program.label(k), program.donated.get(k)) for k, shape in enumerate(program.outputs)
        ]
        self._arena: Buffer | None = None
        self._constants: Buffer | None = None
        self._places: list[int] = []  # of the constants, from the start of their buffer
        self._pool: Pool | None = None
        self._running = False
        self._inner: Executable | None = None

    # --- calling ---

    def __call__(self, inputs: Sequence[Buffer], begun: Callable[[], None] = _nothing) -> list[Buffer]:
        """Runs the program on buffers of this device. Returns its outputs, in new buffers or donated ones; their
        `ready` is when they are computed. Later failures on the device are raised where they are waited for.

        begun: called when the first work has been enqueued, after which donated inputs may have been written: once or
        more, or never in a call that raises earlier. Raises CudaError, and any exception of the program's Python
        functions.
        """
        device = self.device
        with device.guard() as api:
            if self._running:  # called recursively by one of its own Python functions: it needs other temporaries
                self._inner = self._inner or Executable(self.program, device)
                return self._inner(inputs, begun)
            self._running = True  # so that memory that runs out takes nothing away from this program
            try:
                for buffer in inputs:
                    if buffer.pending is not None:
                        device.use(buffer)
                for number in self.program.donated.values():
                    device.overwrite(inputs[number])
                take = device.pool.take
                outputs = [
                    take(nbytes, label) if donated is None else inputs[donated]
                    for nbytes, label, donated in self._outputs
                ]
                if self._arena is None or self._pool is not device.pool:
                    self._prepare()
                if self._only is not None:
                    self._launch(api, self._only, inputs, outputs)
                    begun()
                else:
                    self._run(self.units, inputs, outputs, begun)
            finally:
                self._running = False
            device.launched(self._running_as)
            event = device.record(device.main)
            for buffer in outputs:
                buffer.ready = event
        return outputs

    def _launch(self, api, stretch: Stretch, inputs, outputs) -> None:
        key = stretch.key(inputs, outputs)
        captured = stretch.captures.get(key)
        if captured is None:
            captured = self._with_memory(lambda: self._captured(stretch, inputs, outputs))
        elif len(stretch.captures) > 1:
            stretch.captures.move_to_end(key)
        try:
            api.launch_graph(captured.executable, self.device.main, self.name)
        except CudaDeviceLostError:
            self.device.launched(self._running_as)
            raise
        except CudaOutOfMemoryError:  # graphs are put on the device by their first launch
            self.device.pool.release_unused()
            api.launch_graph(captured.executable, self.device.main, self.name)

    def _with_memory(self, function: Callable[[], Captured]) -> Captured:
        """Calls a function; if memory runs out, releases the caches and calls it once more."""
        try:
            return function()
        except CudaOutOfMemoryError:
            self.device.pool.release_unused()
            return function()

    def _captured(self, stretch: Stretch, inputs, outputs) -> Captured:
        """A capture for these addresses: a new one, or another's with its addresses changed."""
        key = stretch.key(inputs, outputs)
        if stretch.private_bytes and stretch.private is None:
            stretch.private = self._private(stretch.private_bytes)
        resolve = self._resolver(inputs, outputs, stretch.private)
        builder = Builder(self.device, self.name, resolve, stretch.follows, key)
        if len(stretch.captures) < CAPTURES:
            captured = builder.capture(stretch.steps)
        else:
            _, captured = stretch.captures.popitem(last=False)
            try:
                changed = builder.update(captured, stretch.steps)
            except BaseException:
                _destroy(self.device, captured)
                raise
            if not changed:
                _destroy(self.device, captured)
                stretch.rebuilt += 1
                if stretch.rebuilt == REBUILDS and self._detach(stretch):
                    return self._captured(stretch, inputs, outputs)
                captured = builder.capture(stretch.steps)
        stretch.captures[key] = captured
        return captured

    def _detach(self, stretch: Stretch) -> bool:
        """Makes the bodies of a stretch use private memory, if there is enough."""
        steps, nbytes = detached(stretch.steps, self.program, alone=self._only is not None)
        try:
            stretch.private = self._private(nbytes)
        except CudaOutOfMemoryError:
            return False
        stretch.private_bytes = nbytes
        stretch.set_steps(steps)
        while stretch.captures:
            _destroy(self.device, stretch.captures.popitem()[1])
        return True

    def _private(self, nbytes: int) -> Buffer:
        return self.device.pool.take(nbytes, f"copies for the loops of {self.name}")

    def _run(self, list_of_units: list, inputs, outputs, begun: Callable[[], None]) -> None:
        for unit in list_of_units:
            if isinstance(unit, Stretch):
                self._launch(self.device.api, unit, inputs, outputs)
                begun()
            elif isinstance(unit, Loop):
                self._run(unit.condition, inputs, outputs, begun)
                while self._read(unit.step.pred, 1, unit.step.where, inputs, outputs)[0]:
                    self._run(unit.body, inputs, outputs, begun)
                    self._run(unit.condition, inputs, outputs, begun)
            elif isinstance(unit, Choice):
                self._run(unit.branches[self._choice(unit.step, inputs, outputs)], inputs, outputs, begun)
            elif isinstance(unit, Host):
                self._call_host(unit, inputs, outputs, begun)
            else:
                Direct(self.device, self.name, self._resolver(inputs, outputs)).run(unit)
                begun()

    def _choice(self, step: Conditional, inputs, outputs) -> int:
        value = self._read(step.selector, 4 if step.by_index else 1, step.where, inputs, outputs)
        if not step.by_index:
            return 0 if value[0] else 1
        index, last = int.from_bytes(value, "little", signed=True), len(step.branches) - 1
        return index if 0 <= index <= last else last

    def _read(self, ref: Ref, nbytes: int, where: str, inputs, outputs) -> bytearray:
        asked = f"what decides a loop or a branch of {self.name} was read"
        return read(self.device, self._resolver(inputs, outputs)(ref), nbytes, asked, where)

    def _call_host(self, step: Host, inputs, outputs, begun: Callable[[], None]) -> None:
        resolve, device = self._resolver(inputs, outputs), self.device
        asked = f"the arrays of {step.name}, a Python function in {self.name}, were copied"
        arrays = [
            np.ndarray(shape.dims, shape.dtype, read(device, resolve(ref), shape.bytes, asked, step.where))
            for ref, shape in step.inputs
        ]
        results = [np.empty(shape.dims, shape.dtype) for _, shape in step.outputs]
        # Others may use the device meanwhile, so that the function may wait for a thread that does.
        held = device.lock._release_save()
        try:
            step.function(arrays, results)
        finally:
            device.lock._acquire_restore(held)
        device.open()  # the function may have used another GPU
        begun()
        for (ref, _), array in zip(step.outputs, results, strict=True):
            write(device, resolve(ref), array, asked, step.where)

    def _resolver(self, inputs, outputs, private: Buffer | None = None):
        assert self._arena is not None and self._constants is not None  # `_prepare` has run
        arena, constants, offsets = self._arena.address, self._constants.address, self._places

        def resolve(ref: Ref) -> int:
            if ref.kind == "input":
                return inputs[ref.number].address
            if ref.kind == "output":
                return outputs[ref.number].address
            if ref.kind == "constant":
                return constants + offsets[ref.number]
            if ref.kind == "private":
                assert private is not None
                return private.address + ref.number
            return arena + ref.number

        return resolve

    # --- memory ---

    def _prepare(self) -> None:
        """Memory for temporaries, and the constants on the device."""
        device, program = self.device, self.program
        if self._pool is not device.pool:  # the first call, or the first one since the device was closed
            self._constants = self._arena = None
            for prepare in self._prepares:
                prepare()
            device.pool.on_pressure(self.release)
            self._pool = device.pool
        if self._constants is None:
            self._places, end = [], 0
            for constant in program.constants:
                self._places.append(end)
                end += -(-constant.nbytes // _ALIGNMENT) * _ALIGNMENT
            packed = np.zeros(end, np.uint8)
            for place, constant in zip(self._places, program.constants, strict=True):
                packed[place : place + constant.nbytes] = np.ascontiguousarray(constant).reshape(-1).view(np.uint8)
            constants = device.put(packed, f"constants of {self.name}")
            device.use(constants)
            self._constants = constants
        if self._arena is None:
            self._arena = device.pool.take(program.arena_bytes, f"temporaries of {self.name}")

    def release(self) -> None:
        """Gives back graphs and the memory for temporaries, unless it is running; the next call makes them again."""
        with self.device.lock:
            if self._running:
                return
            for stretch in _stretches(self.units):
                while stretch.captures:
                    _destroy(self.device, stretch.captures.popitem()[1])
                stretch.private = None
            self._arena = None

    def __del__(self):
        device = getattr(self, "device", None)
        if device is not None and device.context is not None:
            for stretch in _stretches(self.units):
                for captured in stretch.captures.values():
                    device.defer(partial(_destroy, device, captured))


def _destroy(device: Device, captured: Captured) -> None:
    device.discard(device.api.destroy_executable, captured.executable)
    device.discard(device.api.destroy_graph, captured.graph)


def _stretches(list_of_units: list):
    for unit in list_of_units:
        if isinstance(unit, Stretch):
            yield unit
        elif isinstance(unit, Loop):
            yield from _stretches(unit.condition)
            yield from _stretches(unit.body)
        elif isinstance(unit, Choice):
            for branch in unit.branches:
                yield from _stretches(branch)
