"""A partitioned program that several CPU devices run together: its executable, and what runs its plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hloom.backends.compile import Planned
from hloom.backends.cpu.driver import team_drivers, team_entries
from hloom.backends.cpu.memory_limit import check_memory
from hloom.backends.cpu.program import Layout, program_of
from hloom.backends.donation import copy_shared
from hloom.backends.processes import Placement, failed_message
from hloom.compiler.communication import CollectiveUse, bytes_sent, collective_uses
from hloom.compiler.passes.spmd.custom import apply_partition_rules
from hloom.compiler.passes.spmd.meshes import annotated, programs
from hloom.compiler.passes.spmd.partition import partition
from hloom.compiler.passes.spmd.propagate import propagate
from hloom.compiler.pipeline import BEFORE_PARTITION, run_passes
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.schedule.steps import AwaitStep, HostStep
from hloom.errors import ParticipantsError
from hloom.ir.module import Module
from hloom.ir.records import field, record, replace
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.platforms.backend import Executable
from hloom.runtime.distributed.messages import Others
from hloom.runtime.spmd import SpmdProgram

__all__ = ["SpmdExecutable", "mesh_of", "partitioned", "runner_of", "shardings_of"]


@record
class SpmdExecutable(Planned, Executable):
    """A module compiled for several CPU devices, which run it together.

    Called with the shards of the arguments: for each parameter the arrays of the devices by number, a replica's
    partitions beside each other. Returns the same of the results. Of devices in several processes, these are this
    process's; each process calls it. devices: their names, by number. mesh: that the program was laid out over, if it
    was. input_shardings, output_shardings: how the global arrays are split; None where nobody said so.
    """

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
        """The collectives of the program: what is exchanged along which axes, how often, for which line, and why."""
        return collective_uses(self.module, self.mesh)

    def cost_analysis(self) -> Mapping[str, object]:
        """As of a program of one device, and the 'bytes sent' by each."""
        return dict(super().cost_analysis()) | {"bytes sent": bytes_sent(self.collectives())}

    def memory_analysis(self) -> dict[str, int]:
        """Bytes by kind of one device; 'shared bytes' are of all together."""
        return super().memory_analysis() | {"shared bytes": self.plan.shared_bytes}


def partitioned(module: Module, mesh: DeviceMesh | None, devices: tuple[str, ...]) -> Module:
    """What each device runs of a module that is laid out over a mesh; itself where there is none."""
    if mesh is None:
        return module
    module = apply_partition_rules(module, lambda s: _by_axes(s, mesh), devices)
    return partition(propagate(run_passes(module, BEFORE_PARTITION)))


def shardings_of(module: Module, mesh: DeviceMesh | None) -> list[list]:
    """The shardings of the parameters and of the results over a mesh; None where nobody said so."""
    entry = module.entry
    root = entry.root
    if root.opcode == "tuple":
        outer = root.sharding if isinstance(root.sharding, tuple) else [None] * len(root.operands)
        outputs = [o.sharding if s is None else s for s, o in zip(outer, root.operands, strict=True)]
    else:
        outputs = list(root.sharding) if isinstance(root.sharding, tuple) else [root.sharding]
    found = [p.sharding for p in entry.parameters], outputs
    return [[_by_axes(s, mesh) for s in one] for one in found]


def mesh_of(module: Module) -> DeviceMesh | None:
    """The mesh that gives the axes of a module their names (`CommonMesh`); None where nothing is laid out."""
    if module.partitions == 1:
        return None
    found = [i for computation in programs(module) for i in computation.instructions]
    manual = [i for i in found if i.opcode == "manual-computation"]
    meshes = (sharding.mesh for _, sharding in (*annotated(manual), *annotated(found)))
    return next((mesh for mesh in meshes if mesh.names and mesh.size == module.partitions), None)


def _by_axes(sharding, mesh: DeviceMesh | None):
    """A sharding over the atoms of a mesh as one over its axes, where they are whole."""
    if mesh is None or not isinstance(sharding, Sharding) or sharding.mesh == mesh or sharding.mesh != mesh.atomic():
        return sharding

    def joined(atoms: tuple[str, ...]) -> tuple[str, ...] | None:
        found: list[str] = []
        while atoms:
            name = next((n for n in mesh.names if mesh.atoms(n) == atoms[: len(mesh.atoms(n))]), None)
            if name is None:
                return None
            found.append(name)
            atoms = atoms[len(mesh.atoms(name)) :]
        return tuple(found)

    dims = [joined(axes) for axes in sharding.dims]
    others = [joined(axes) for axes in (sharding.unreduced, sharding.replicated_axes)]
    if None in dims or None in others:
        return sharding
    return replace(sharding, mesh=mesh, dims=tuple(dims), unreduced=others[0], replicated_axes=others[1])


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
    """The error where devices wait for each other in vain. at: the devices and the numbers of their steps."""
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
