"""Exchange of values: a sender leaves a value for a receiver, who takes it, now or later."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from hloom.errors import DistributedError
from hloom.ir.records import field, record

AHEAD = 2  # values of a channel that wait for their receiver before the sender waits
_ENDED = 4096  # runs that are remembered after their end


@record(frozen=True)
class Channel:
    """A value on its way: run, its index in the partition, its receiver, and the step in a loop."""

    run: str
    number: int
    receiver: str
    step: int = 0


@record(eq=False)
class _Run:
    values: dict[Channel, np.ndarray] = field(default_factory=dict)
    taken: dict[tuple[int, str], int] = field(default_factory=dict)
    failure: str = ""
    finished: bool = False
    touched: float = 0.0


class Rendezvous:
    """The values of all runs of one process. Each wait ends: with the value, an error of the run, or after a time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._runs: dict[str, _Run] = {}
        self._ended: OrderedDict[str, str] = OrderedDict()  # runs, and why they ended
        self._waits: dict[int, tuple[str, float]] = {}

    def _run(self, name: str) -> _Run:
        found = self._runs.setdefault(name, _Run())
        found.touched = time.monotonic()
        return found

    def put(self, channel: Channel, value: np.ndarray, timeout: float) -> None:
        """Deposits a value. Waits while the receiver is more than AHEAD values behind. Raises DistributedError."""
        with self._changed:
            if channel.run in self._ended:
                return  # the receiver has failed or was told to stop
            run, line = self._run(channel.run), (channel.number, channel.receiver)
            self._wait(
                lambda: channel.step - run.taken.get(line, 0) < AHEAD,
                run, timeout, f"room for a value of channel {channel.number}", channel.receiver or "the client",
            )  # fmt: skip
            run.values[channel] = value
            self._changed.notify_all()

    def take(self, channel: Channel, sender: str, timeout: float) -> np.ndarray:
        """A value, as soon as it is available. Raises DistributedError that names the sender."""
        what = f"a value of channel {channel.number}"
        with self._changed:
            if channel.run in self._ended:  # before this receiver's request
                raise _failed(what, sender, self._ended[channel.run])
            run = self._run(channel.run)
            self._wait(lambda: channel in run.values, run, timeout, what, sender)
            value = run.values.pop(channel)
            run.taken[channel.number, channel.receiver] = channel.step + 1
            self._drop_finished(channel.run, run)
            self._changed.notify_all()
            return value

    def finish(self, name: str) -> None:
        """Records that this process's part has run: the rest of the run's state is freed when its values are taken."""
        with self._changed:
            if (run := self._runs.get(name)) is not None:
                run.finished = True
                self._drop_finished(name, run)

    def _drop_finished(self, name: str, run: _Run) -> None:
        if run.finished and not run.values:
            self._runs.pop(name, None)

    def _wait(self, ready: Callable[[], bool], run: _Run, timeout: float, what: str, whom: str) -> None:
        started, me = time.monotonic(), threading.get_ident()
        self._waits[me] = whom, started
        try:
            while not ready():
                if run.failure:
                    raise _failed(what, whom, run.failure)
                left = started + timeout - time.monotonic()
                if left <= 0:
                    raise DistributedError(
                        f"{what} from {whom}",
                        f"nothing came for {timeout:g} s",
                        "look at the log of that task, or set hl.config.distributed_timeout",
                    )
                self._changed.wait(left)
        finally:
            del self._waits[me]

    def end(self, name: str, failure: str = "") -> None:
        """Ends a run: its values are dropped, and its waiting receivers fail."""
        with self._changed:
            run = self._runs.pop(name, None)
            failure = failure or "the run has ended"
            if run is not None:
                run.failure = failure
            self._ended[name] = failure
            while len(self._ended) > _ENDED:
                self._ended.popitem(last=False)
            self._changed.notify_all()

    def forget(self, before: float) -> None:
        """Drops runs in which nothing happened since a time (time.monotonic()): their programs never started here."""
        with self._changed:
            waiting = bool(self._waits)
            for name in [n for n, run in self._runs.items() if run.touched < before and not waiting]:
                self._runs.pop(name)

    def waits(self) -> list[dict]:
        """The pending waits, and their durations: [{"for": "/job:ps/task:0", "seconds": 2.5}]."""
        now = time.monotonic()
        with self._changed:
            return [{"for": whom, "seconds": round(now - started, 3)} for whom, started in self._waits.values()]


def _failed(what: str, whom: str, failure: str) -> DistributedError:
    return DistributedError(f"{what} from {whom}", failure, "repair what failed first")


__all__ = ["Channel", "Rendezvous"]
