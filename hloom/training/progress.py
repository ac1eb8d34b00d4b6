"""The progress display of a run: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import os
import resource
import sys
import time
from typing import Any

from hloom.ir.process.lazy import LazyModule
from hloom.training.running import Loop

_console = LazyModule("rich.console")  # 60 ms to import
_progress = LazyModule("rich.progress")
_PAGE = os.sysconf("SC_PAGE_SIZE")
BAR_SECONDS, LINE_SECONDS = 0.2, 10.0  # between two updates


def memory_bytes() -> int:
    """The resident memory of this process."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Progress:
    """Shows steps, examples per second, the time of a step, the share of time that waits for input, metrics and memory.

    Rates are those since the last update. On a terminal a bar is updated five times per second, elsewhere a line is
    written every ten seconds and at the end.
    """

    def __init__(self, total: int | None):
        self._total = total
        self._console = _console.Console(file=sys.stderr)
        self._bar: Any = None
        self._terminal = self._console.is_terminal
        self._next = 0.0
        self._last: tuple[float, int, int, float] = (0.0, 0, 0, 0.0)

    def start(self, loop: Loop) -> None:
        now = time.perf_counter()
        self._last = (now, loop.step, loop.examples, loop.waited)
        self._next = now + (BAR_SECONDS if self._terminal else LINE_SECONDS)
        if self._terminal:
            p = _progress
            self._bar = p.Progress(
                p.TextColumn("step {task.completed}" + ("/{task.total}" if self._total else "")),
                p.BarColumn(bar_width=24),
                p.TextColumn("{task.fields[text]}"),
                p.TimeRemainingColumn() if self._total else p.TimeElapsedColumn(),
                console=self._console,
                auto_refresh=False,  # no separate thread
                transient=False,
            )
            self._task = self._bar.add_task("", total=self._total, completed=loop.step, text="")
            self._bar.start()

    def on_step(self, loop: Loop, now: float) -> None:
        if now >= self._next:
            self._show(loop, now)

    def _show(self, loop: Loop, now: float) -> None:
        text = self._text(loop, now)
        if self._bar is not None:
            self._bar.update(self._task, completed=loop.step, text=text)
            self._bar.refresh()
            self._next = now + BAR_SECONDS
        else:
            of = f"/{self._total}" if self._total else ""
            print(f"step {loop.step}{of}  {text}", file=sys.stderr, flush=True)
            self._next = now + LINE_SECONDS

    def _text(self, loop: Loop, now: float) -> str:
        before, step, examples, waited = self._last
        seconds, steps = now - before, loop.step - step
        parts = []
        if steps > 0 and seconds > 0:
            parts.append(f"{(loop.examples - examples) / seconds:,.0f} examples/s")
            parts.append(f"{1e3 * seconds / steps:.3g} ms/step")
            parts.append(f"input {(loop.waited - waited) / seconds:.0%}")
            self._last = (now, loop.step, loop.examples, loop.waited)
        parts += [f"{name} {value:.4g}" for name, value in loop.metrics.items() if name != "grad_norm"][:6]
        parts.append(f"{memory_bytes() / 1e6:,.0f} MB")
        return "  ".join(parts)

    def message(self, text: str) -> None:
        """A permanent line."""
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def close(self, loop: Loop) -> None:
        """Shows the final values."""
        now = time.perf_counter()
        if loop.step != self._last[1]:
            self._show(loop, now)
        if self._bar is not None:
            self._bar.stop()


__all__ = ["Progress", "memory_bytes"]
