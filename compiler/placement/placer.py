"""Placement: assigns a device to every instruction of a program, given the user's choices.

A chosen device (`Source.device`) is kept; derivatives carry it, because they carry the source. The others are placed
sequentially as in the TensorFlow 1.0 white paper (section 3.2.1): each where it would finish first, by estimates of
compute times and of the links between devices, in a simulated run of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hloom.compiler.analysis import instruction_flops
from hloom.compiler.pipeline import run_passes
from hloom.compiler.placement.cost_model import Costs, DeviceModel
from hloom.compiler.placement.partition import leaf_keys
from hloom.compiler.placement.user_devices import chosen_devices, chosen_devices_of
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops import OPS
from hloom.ir.ops.programs.transfer import WITHOUT_DEVICE
from hloom.ir.records import field, record
from hloom.ir.source import placement_line

ANYWHERE = ("constant", "iota")


def prepared(module: Module) -> Module:
    """The module in the form for placement and partitioning: without calls and scans, with flat loops and unique
    callees."""
    return run_passes(module, ("inline-calls", "lower-scans", "simplify-loops", "dce", "flatten-call-graph"))


def placed(
    module: Module,
    arguments: Mapping[int, str],
    default: str,
    costs: Costs | None = None,
    settle: Callable[[Instruction, str], str] = lambda instruction, device: device,
) -> dict[Instruction, str]:
    """The device of each instruction of a module returned by `prepared`, also in called computations.

    arguments: the devices of those arguments that have one, by index. default: the device of unconstrained
    instructions. Devices that neither arguments nor the user named are not used. settle(instruction, device): the
    replacement of a device that cannot compute it; may raise.
    """
    entry = module.entry
    devices = list(dict.fromkeys([default, *arguments.values(), *chosen_devices(entry)]))
    run = _Run(costs or Costs(), devices, settle)
    for parameter in entry.parameters:
        run.device_of[parameter] = arguments.get(parameter["index"], default)
        run.made[parameter] = (run.device_of[parameter], 0.0)
    run.computation(entry, devices)
    return run.device_of


@record
class _Run:
    """The simulated run. made: the device and time at which a value is first available. clock: when a device is
    free."""

    costs: Costs
    devices: list[str]
    settle: Callable[[Instruction, str], str]
    device_of: dict[Instruction, str] = field(default_factory=dict)
    made: dict = field(default_factory=dict)
    clock: dict[str, float] = field(default_factory=dict)

    def computation(self, computation: Computation, candidates: list[str]) -> None:
        for instruction in computation.instructions:
            if instruction.opcode in WITHOUT_DEVICE:
                continue
            if instruction.opcode in ANYWHERE:
                self.device_of[instruction] = candidates[0]
                continue
            inner = chosen_devices_of(instruction)
            own = instruction.device
            if len(inner) > 1:
                for callee, argument in _callees(instruction):
                    for key, (given, _) in _elements(callee, argument):
                        if given in self.made:
                            self.made[key] = self.made[given]
                    self.computation(callee, inner)
                # The device of its condition, if there is one.
                self._put(instruction, own if own in inner else inner[0])
                continue
            fixed = inner[0] if inner else own
            device = self.settle(instruction, fixed or self._best(instruction, candidates))
            self._put(instruction, device)
            for callee in instruction.called():
                self._all_on(callee, device)

    def _all_on(self, computation: Computation, device: str) -> None:
        for instruction in computation.instructions:
            if instruction.opcode not in WITHOUT_DEVICE:
                self.device_of[instruction] = self.settle(instruction, device)
            for callee in instruction.called():
                self._all_on(callee, device)

    def _finish(self, instruction: Instruction, device: str) -> float:
        ready = self.clock.get(device, 0.0)
        for key, shape in leaf_keys(instruction.operands):
            where, when = self.made.get(key, (device, 0.0))
            if where != device:
                link = self.costs.link(where, device)
                when += link.seconds + shape.bytes / link.bytes
            ready = max(ready, when)
        return ready + seconds_of(instruction, self.costs.device(device))

    def _best(self, instruction: Instruction, candidates: list[str]) -> str:
        """The device on which an instruction finishes first; at ties the one with the most operand bytes.

        Only devices with operands are considered if the work is cheaper than a transfer, and for instructions that fuse
        into the kernels of their operands: element-wise work and data movement.
        """
        if len(candidates) == 1:
            return candidates[0]
        near = dict.fromkeys(candidates, 0)
        for key, shape in leaf_keys(instruction.operands):
            where = self.made.get(key, ("", 0.0))[0]
            if where in near:
                near[where] += shape.bytes
        most = max(near.values())
        nearest = [d for d in candidates if near[d] == most]
        if most and len(nearest) < len(candidates):
            first = nearest[0]
            way = min(self.costs.link(first, d).seconds for d in candidates if d not in nearest)
            joined = OPS[instruction.opcode].family in ("elementwise", "index")
            if joined or seconds_of(instruction, self.costs.device(first)) < way:
                candidates = nearest
        return min(candidates, key=lambda d: (self._finish(instruction, d), -near[d]))

    def _put(self, instruction: Instruction, device: str) -> None:
        finished = self._finish(instruction, device)
        self.device_of[instruction] = device
        self.clock[device] = finished
        for key, _ in leaf_keys([instruction]):
            self.made[key] = (device, finished)


def _callees(instruction: Instruction) -> list[tuple[Computation, Instruction]]:
    """The computations of a loop or conditional, each with its argument."""
    if instruction.opcode == "while":
        return [(instruction[name], instruction.operands[0]) for name in ("condition", "body")]
    return list(zip(instruction["branch_computations"], instruction.operands[1:], strict=True))


def _elements(callee: Computation, argument: Instruction):
    """Pairs of an element of a callee's parameter and its argument, as (key, (key, shape))."""
    (parameter,) = callee.parameters
    return zip([(parameter, k) for k in range(len(parameter.shape.elements))], leaf_keys([argument]), strict=True)


def seconds_of(instruction: Instruction, device: DeviceModel) -> float:
    """The estimated time of an instruction on a device."""
    moved = sum(shape.bytes for _, shape in leaf_keys([*instruction.operands, instruction]))
    return device.start + max(instruction_flops(instruction) / device.flops, moved / device.bytes)


def describe(module: Module, device_of: dict[Instruction, str]) -> Iterable[str]:
    """A line for each instruction with its device, as `hl.config.log_device_placement` prints them."""
    for computation in module.computations():
        for instruction in computation.instructions:
            if instruction in device_of:
                name = instruction.hint or instruction.opcode
                yield placement_line(name, instruction.opcode, device_of[instruction], instruction.source)
