"""SIGTERM and Ctrl-C: a loop finishes its step, saves and leaves."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType


class Signals:
    """While a `with` block runs, SIGTERM and SIGINT are noted in `received` instead of ending the program; a second
    Ctrl-C interrupts immediately. Has no effect outside the main thread."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                handler = signal.getsignal(number)
                # Leave ignored signals, and handlers not installed by Python, unchanged.
                if handler not in (signal.SIG_IGN, None):
                    self._before[number] = handler
                    signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number
        if number == signal.SIGINT and sys.stderr.isatty():
            print("\nleaving after this step; press Ctrl-C again to leave immediately", file=sys.stderr, flush=True)

    def __exit__(self, *exception) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # the result of getsignal
        self._before = {}

    def exception(self) -> BaseException:
        """The exception that ends the program after the signal: KeyboardInterrupt, or SystemExit with the shell's code,
        143."""
        if self.received == signal.SIGINT:
            return KeyboardInterrupt()
        return SystemExit(128 + (self.received or 0))


__all__ = ["Signals"]
