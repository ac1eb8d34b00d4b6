"""NCCL's communicators of this process's GPUs: made once for each group of GPUs, given back when a GPU is closed.

A group is made by all processes that have GPUs in it, at the same point of the same program (`group_members` is called
for all groups of a program when that is loaded). The whole of a program's GPUs meets by an id that goes over the
control plane (`hl.distributed`); the groups along axes of a mesh are split from it.
"""

from __future__ import annotations

import atexit
import functools
from collections.abc import Callable, Sequence

from hloom import distributed
from hloom.backends.cuda.devices import cuda_device
from hloom.backends.processes import Placement
from hloom.config import config
from hloom.errors import DistributedError
from hloom.ir.records import record
from hloom.platforms.processes import processes
from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.libraries.nccl import Communicator, Nccl, load_nccl

Groups = tuple[tuple[int, ...], ...]


@functools.cache
def nccl() -> Nccl:
    """Raises CudaLibraryError where it is missing."""
    return Nccl(load_nccl())


@record(frozen=True)
class World:
    """The GPUs of a program by number: for each its process and its number there. turn: tells groups of the same GPUs
    from each other."""

    gpus: tuple[tuple[int, int], ...]
    turn: int = 0

    @classmethod
    def of(cls, placement: Placement, indices: Sequence[int]) -> World:
        """indices: of each GPU its number in its process."""
        return cls(tuple(zip(placement.processes, indices, strict=True)))

    @property
    def own(self) -> dict[int, Device]:
        """Those of this process by number."""
        here = processes().index
        return {k: cuda_device(index) for k, (process, index) in enumerate(self.gpus) if process == here}

    @property
    def members(self) -> list[int]:
        """The processes."""
        return sorted({process for process, _ in self.gpus})

    @property
    def others(self) -> list[int]:
        return [k for k in self.members if k != processes().index]


_made: dict[tuple[World, Groups], dict[int, Communicator]] = {}
_closing: set[int] = set()  # ids of the devices that call `_forget` when they are closed


def group_members(world: World, groups: Groups) -> dict[int, Communicator]:
    """The communicators of this process's GPUs, by their numbers, in groups of them.

    Every process of the world calls this for the same groups in one order. Raises CudaLibraryError, and
    DistributedError where another process does not come within `hl.config.distributed_timeout`.
    """
    found = _made.get((world, groups))
    if found is None:
        whole = (tuple(range(len(world.gpus))),)
        found = _connected(world) if groups == whole else _split(world, groups, group_members(world, whole))
        _made[world, groups] = found
        for device in world.own.values():
            if id(device) not in _closing:
                _closing.add(id(device))
                device.on_close(functools.partial(_forget, device))
    return found


def _late(world: World, what: str) -> DistributedError:
    names = ", ".join(map(str, world.others))
    return DistributedError(
        what,
        f"nothing came from process {names} for {config.distributed_timeout:g} s",
        "look at what that process does (py-spy dump --pid), or set hl.config.distributed_timeout",
    )


def until_ready(world: World, made: Sequence[Communicator], what: str) -> None:
    """Waits for calls that do not block. Raises CudaLibraryError, DistributedError."""
    nccl().until_ready(made, config.distributed_timeout, lambda: _late(world, what))


def _wait(world: World, what: str) -> Callable[[list], None] | None:
    """The waiter for non-blocking communicators; None in a program of one process, whose calls block."""
    return (lambda made: until_ready(world, made, what)) if world.others else None


def _connected(world: World) -> dict[int, Communicator]:
    what = f"a group of {len(world.gpus)} GPUs of {len(world.members)} processes"
    first = world.members[0]
    identifier = nccl().new_id() if processes().index == first else b""
    if world.others:
        found = distributed.group().exchange(identifier, what, members=world.members)
        identifier = found[world.members.index(first)]
    own = world.own
    return dict(zip(own, nccl().connect(len(world.gpus), identifier, own, _wait(world, what)), strict=True))


def _split(world: World, groups: Groups, whole: dict[int, Communicator]) -> dict[int, Communicator]:
    places = {
        device: (color, rank, len(group)) for color, group in enumerate(groups) for rank, device in enumerate(group)
    }
    what = f"{len(groups)} groups of {len(world.gpus)} GPUs"
    made = nccl().split(list(whole.values()), [places.get(k) for k in whole], _wait(world, what))
    return {k: c for k, c in zip(whole, made, strict=True) if c is not None}


def _forget(device: Device) -> None:
    """Gives back all groups that have a GPU, in all of their members here."""
    for key in [k for k, found in _made.items() if any(c.device is device for c in found.values())]:
        nccl().destroy(list(_made.pop(key).values()))


def made_members(world: World) -> list[Communicator]:
    """The communicators of a world that there are."""
    return [c for (known, _), found in list(_made.items()) if known == world for c in found.values()]


def abandon(world: World) -> None:
    """Ends what is under way in all groups of a world, which are not used again."""
    for key in [k for k in _made if k[0] == world]:
        nccl().abort(list(_made.pop(key).values()))


@atexit.register
def close_all() -> None:
    """Gives all groups back."""
    while _made:
        nccl().destroy(list(_made.popitem()[1].values()))


__all__ = ["World", "abandon", "close_all", "group_members", "made_members", "nccl", "until_ready"]
