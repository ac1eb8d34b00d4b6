"""A partitioned program that several CPU devices run together: its executable, and the runner of its plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hloom.backends.compile import Observer, Planned
from hloom.backends.cpu.driver import team_drivers, team_entries
from hloom.backends.cpu.memory_limit import check_memory
from hloom.backends.cpu.program import Layout, program_of
from hloom.backends.donation import copy_shared
from hloom.backends.processes import Placement, failed_message
from hloom.compiler.communication import CollectiveUse, bytes_sent, collective_uses
from hloom.compiler.passes.registry import Team
from hloom.compiler.passes.spmd.meshes import over_axes
from hloom.compiler.pipeline import SPMD_BY_HAND, SPMD_PIPELINE, run_passes
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.schedule.steps import AwaitStep, HostStep
from hloom.config import config
from hloom.errors import ParticipantsError
from hloom.ir.module import Module
from hloom.ir.records import field, record
from hloom.ir.spmd.sharding import DeviceMesh
from hloom.platforms.backend import Executable
from hloom.runtime.distributed.messages import Others
from hloom.runtime.spmd import SpmdProgram

__all__ = ["SpmdExecutable", "program_of_each", "runner_of", "shardings_of"]


@record
class SpmdExecutable(Planned, Executable):
    """A module compiled for several CPU devices, which run it together.

    Called with the shards of the arguments: for each parameter the arrays of the devices by number, a replica's
    partitions adjacent to each other. Returns the same of the results. Of devices in several processes, these are this
    process's; each process calls it. devices: their names, by number. mesh: that the program was laid out over, if it
    was. input_shardings, output_shardings: how the global arrays are split; None if unspecified."""

    module: Module
    plan: Plan
    runner: SpmdProgram
    devices: tuple[str, ...]
    mesh: DeviceMesh | None
    input_shardings: list
    output_shardings: list
    timings: dict[str, float] = field(default_factory=dict)
    kernels_compiled: int = 0

    def __post_init__(self) -> None:
        self.donated, self.output_shapes = self.plan.donated, self.plan.output_shapes

    def __call__(self, shards: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
        return self.runner(shards)

    def call_donating(self, arrays: list, release: Callable[[], None]) -> list:
        """arrays: a list of lists, as of a call."""
        release()
        for k in self.donated.values():
            copy_shared(arrays[k], range(len(arrays[k])))
        return self.runner(arrays)

    def collectives(self) -> list[CollectiveUse]:
        """The collectives of the program: the exchanged values, along which axes, how often, for which line, and
        why."""
        return collective_uses(self.module, self.mesh)

    def cost_analysis(self) -> Mapping[str, object]:
        """As of a program of one device, and the 'bytes sent' by each."""
        return dict(super().cost_analysis()) | {"bytes sent": bytes_sent(self.collectives())}

    def memory_analysis(self) -> dict[str, int]:
        """Bytes by kind of one device; 'shared bytes' are of all together."""
        return super().memory_analysis() | {"shared bytes": self.plan.shared_bytes}


def program_of_each(module: Module, team: Team, *, by_hand: bool = False, observer: Observer | None = None) -> Module:
    """The program of each device of a team, partitioned over its mesh; a module without a mesh is itself the program of
    each device, as it may be with a mesh too (by_hand)."""
    names = SPMD_BY_HAND if team.mesh is None or by_hand else SPMD_PIPELINE
    on_pass = observer.on_pass if observer is not None else None
    return run_passes(module, names, team=team, verify=config.verify, on_pass=on_pass)


def shardings_of(module: Module, mesh: DeviceMesh | None) -> list[list]:
    """The shardings of the parameters and of the results over a mesh; None if unspecified."""
    entry = module.entry
    root = entry.root
    if root.opcode == "tuple":
        outer = root.sharding if isinstance(root.sharding, tuple) else [None] * len(root.operands)
        outputs = [o.sharding if s is None else s for s, o in zip(outer, root.operands, strict=True)]
    else:
        outputs = list(root.sharding) if isinstance(root.sharding, tuple) else [root.sharding]
    found = [p.sharding for p in entry.parameters], outputs
    return [[over_axes(s, mesh) for s in one] for one in found]


def runner_of(plan: Plan, partitions: int, where: Placement, others: Others | None = None) -> SpmdProgram:
    """The program of a plan, to be called. Raises MemoryLimitError."""
    check_memory(plan, f"cpu:{where.indices[0] if where.indices else 0}")
    program = program_of(plan, Layout())
    waits = any(isinstance(s, HostStep) and s.instruction.opcode == "custom-call" for s in plan.steps)
    # Functions of the user's may wait for each other, so each device has a thread.
    team, drivers = team_drivers(where.indices, len(where.indices) if waits else None)
    return SpmdProgram(
        program, partitions, drivers, team, team_entries(), lambda at: _stuck(plan, at), where.own, others,
        lambda *failure: failed_message(plan, *failure),
    )  # fmt: skip


def _stuck(plan: Plan, at: list[tuple[int, int]]) -> ParticipantsError:
    """The error for a deadlock between devices. at: the devices and the numbers of their steps."""
    found = []
    source = None
    for device, number in at:
        item = plan.steps[number]
        assert isinstance(item, AwaitStep)  # nothing else waits
        group = next(g for g in item.groups if device in g)
        found.append(f"device {device} at {item.instruction.opcode} of the devices {list(group)}")
        source = source or item.instruction.source
    return ParticipantsError(
        "collectives complete when all devices of their group have come to them",
        f"{'; '.join(found[:8])}{'; ...' if len(found) > 8 else ''}; all others have finished",
        "let all devices of a group run the same collectives in one order, with arrays of one shape",
        source or "",
    )
