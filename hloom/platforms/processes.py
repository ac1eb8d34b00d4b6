"""The processes of a program that runs in several: this one's number, how many there are, and what devices each has.

One process is what there is until `hl.distributed.initialize` has met the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hloom.ir.records import field, record

LOCAL_JOB = "localhost"


@record(frozen=True)
class Processes:
    """index: the number of this process. devices: for each process how many devices it has of each kind. job: the name
    of the job in device names (`/job:worker/task:1/cpu:0`)."""

    index: int = 0
    devices: Sequence[Mapping[str, int]] = field(default_factory=list)
    job: str = LOCAL_JOB

    @property
    def count(self) -> int:
        return max(len(self.devices), 1)

    def first(self, kind: str, process: int) -> int:
        """The number among all devices of a kind of the first one that a process has."""
        return sum(found.get(kind, 0) for found in self.devices[:process])


_known = Processes()


def processes() -> Processes:
    return _known


def set_processes(found: Processes) -> None:
    global _known
    _known = found
