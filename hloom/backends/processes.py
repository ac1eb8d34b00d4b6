"""The devices of a program that runs in several processes: which are here, and what leads to the others."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from hloom import distributed
from hloom.backends.cpu.driver import load_functions
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.schedule.steps import MessagesStep
from hloom.errors import DistributedError
from hloom.ir.module import Module
from hloom.ir.records import record
from hloom.ir.text import print_module
from hloom.platforms.device import find_device
from hloom.platforms.names import parse_device_name
from hloom.platforms.processes import processes
from hloom.runtime.distributed.messages import FUNCTIONS, Message, Others


@record(frozen=True)
class Placement:
    """Where the devices of a program are. processes: of each device its process. own: the numbers of those of this
    process; indices: of each of these its number among the process's devices."""

    processes: tuple[int, ...]
    own: tuple[int, ...]
    indices: tuple[int, ...]

    @property
    def is_spread(self) -> bool:
        """Whether there are devices of several processes."""
        return len(self.own) < len(self.processes)


def placement_of(devices: Sequence[str]) -> Placement:
    """Of the names of devices."""
    here = processes().index
    names = [parse_device_name(device) for device in devices]
    found = tuple(find_device(device).process_index for device in devices)
    own = tuple(k for k, process in enumerate(found) if process == here)
    return Placement(found, own, tuple(names[k].index for k in own))


@functools.cache
def _entries() -> dict[str, int]:
    return load_functions(FUNCTIONS)


def others_of(placement: Placement, module: Module) -> Others | None:
    """What leads to the devices of other processes; None where there are none. Every process calls this.

    Raises DistributedError where processes are about to run different programs, or one does not come.
    """
    if not placement.is_spread:
        return None
    distributed.same_program(module.name, print_module(module))
    return Others(distributed.group().transport(_entries()), placement.processes)


def failed_message(plan: Plan, device: int, step: int, failure: Message | int) -> DistributedError:
    """The error for a message of a step that did not come, or that MPI refused."""
    item = plan.steps[step]
    assert isinstance(item, MessagesStep)
    asked = f"{item.instruction.opcode} of device {device} with devices of other processes"
    if isinstance(failure, int):
        return DistributedError(
            asked,
            f"MPI's error {failure}: {distributed.group().error_text(failure)}",
            "run the same program, with arguments of the same shapes, in all processes",
            item.instruction.source,
        )
    verb = "nothing came from" if failure.receives else "nothing was received by"
    return DistributedError(
        asked,
        f"{verb} process {failure.peer} within the time that hl.config.distributed_timeout allows",
        "look at what that process does (py-spy dump --pid), and whether it runs the same program",
        item.instruction.source,
    )


__all__ = ["Placement", "failed_message", "others_of", "placement_of"]
