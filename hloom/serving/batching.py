"""Adaptive batching: requests that come close together are computed by one call.

Each request is checked before it joins a batch, so that a bad one never fails the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import numpy as np

Arrays = list[np.ndarray]


class Batcher:
    """Joins the arrays of requests along their first dimension.

    compute(arrays): the results, with as many rows as the arrays. most: rows of a batch. wait: seconds that a request
    waits for others; none while it could have begun alone.
    """

    def __init__(self, compute: Callable[[Arrays], Awaitable[Arrays]], most: int, wait: float):
        self._compute, self._most, self._wait = compute, most, wait
        self._pending: list[tuple[Arrays, asyncio.Future]] = []
        self._rows = 0
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task] = set()

    async def __call__(self, arrays: Arrays) -> Arrays:
        """The rows of the results that belong to these arrays."""
        loop, rows = asyncio.get_running_loop(), len(arrays[0])
        if self._rows + rows > self._most:
            self._start()
        result: asyncio.Future = loop.create_future()
        self._pending.append((arrays, result))
        self._rows += rows
        if self._rows >= self._most:
            self._start()
        elif self._timer is None:
            self._timer = loop.call_later(self._wait, self._start)
        return await result

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._pending, self._rows = self._pending, [], 0
        if batch:
            task = asyncio.get_running_loop().create_task(self._run(batch))
            self._running.add(task)  # the loop itself holds tasks weakly
            task.add_done_callback(self._running.discard)

    async def _run(self, batch: Sequence[tuple[Arrays, asyncio.Future]]) -> None:
        try:
            if len(batch) == 1:
                results = await self._compute(batch[0][0])
            else:
                results = await self._compute(
                    [np.concatenate(parts) for parts in zip(*[a for a, _ in batch], strict=True)]
                )
        except Exception as error:
            for _, waiting in batch:
                if not waiting.done():
                    waiting.set_exception(error)
            return
        row = 0
        for arrays, waiting in batch:
            count = len(arrays[0])
            if not waiting.done():  # a client may have gone
                waiting.set_result([result[row : row + count] for result in results])
            row += count
