"""One checkpoint, written by all processes of a program: each writes its parts of the arrays into one folder.

All processes call `save` with trees of the same names. They tell each other which parts they hold; the first that holds
a part writes it, into its own file. Process 0 first creates the folder; it writes the manifest and renames the folder
after all others have reported that their files are on disk. The folder has to be on a file system shared by all of
them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hloom import distributed
from hloom.errors import CheckpointError
from hloom.platforms.processes import processes


def index() -> int:
    """The number of this process; 0 where there is one."""
    return processes().index


class Meeting:
    """The processes that write a checkpoint, or this one alone. path: of the checkpoint, the same everywhere."""

    def __init__(self, path: Path):
        self.path, self.alone = path, processes().count == 1

    def all(self, message: Any) -> list[Any]:
        """The messages of all processes at the same point, by rank. Raises DistributedError."""
        if self.alone:
            return [message]
        doing = f"save a checkpoint as {self.path}"
        # A separate channel: a thread writes while the program continues.
        found = distributed.group().exchange(json.dumps(message).encode(), doing, channel=doing)
        return [json.loads(text) for text in found]

    def agree(self, error: BaseException | None) -> None:
        """Raises where a process could not do its part: there the error, elsewhere a CheckpointError that reports
        it."""
        if self.alone and error is not None:
            raise error
        found = getattr(error, "found", None) or str(error)
        errors = self.all(None if error is None else f"{type(error).__name__}: {found}")
        if error is not None:
            raise error
        failed = next((k for k, text in enumerate(errors) if text is not None), None)
        if failed is not None:
            raise CheckpointError(
                f"save a checkpoint as {self.path} in {len(errors)} processes",
                f"process {failed} could not do its part: {errors[failed]}",
                "look at that process's error",
            )


def assigned(offers: Sequence[Mapping[str, Any]]) -> list[dict[str, list[int]]]:
    """For each process the parts that it writes, by array: their indices among those that it holds.

    offers: of each process, by array [dtype, shape, [[start, shape] of each part]]. Raises CheckpointError if the
    processes save different trees, or if no process has a part of an array.
    """
    writes: list[dict[str, list[int]]] = [{} for _ in offers]
    for k, offer in enumerate(offers):
        different = next((n for n in [*offers[0], *offer] if offers[0].get(n, [])[:2] != offer.get(n, [])[:2]), None)
        if different is not None:
            theirs, ours = (o[different][:2] if different in o else "nothing of that name" for o in (offer, offers[0]))
            raise CheckpointError(
                "one tree in all processes that save a checkpoint",
                f"{different}: {ours} in process 0, {theirs} in process {k}",
                "save the same tree everywhere",
            )
    for name in offers[0]:
        taken: set = set()
        for k, offer in enumerate(offers):
            for number, part in enumerate(offer[name][2]):
                if (region := json.dumps(part)) not in taken:
                    taken.add(region)
                    writes[k].setdefault(name, []).append(number)
    return writes


__all__ = ["Meeting", "assigned", "index"]
