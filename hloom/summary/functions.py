"""Summaries to the current writer, from the loop and from inside of compiled programs.

Inside of a program a summary is a callback: it runs when the program gets there, in program order, once for each step
of a loop and for each batch element of a `vmap`. Derivatives ignore it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from hloom import tree
from hloom.summary import writer
from hloom.summary.writer import SummaryWarning, Writer
from hloom.tracing.callback import debug_callback
from hloom.tracing.trace import Tracer

_warned = False


def current_writer() -> Writer | None:
    """The writer of the innermost `with writer.as_default():`, or None.

    >>> hl.summary.current_writer() is None
    True
    """
    return writer.current()


def scalar(name: str, value: Any, step: Any) -> None:
    """A number, f32[] or the like.

    >>> @hl.jit
    ... def step(x, k):
    ...     hl.summary.scalar("norm", hnp.sum(x**2), k)
    ...     return x / 2
    >>> with hl.summary.Writer("run", events=False, lines="csv") as writer, writer.as_default():
    ...     x = step(hnp.array([3.0, 4.0]), 1)
    >>> "25.0" in open("run/metrics.csv").read()
    True
    """
    _write(lambda to, v, s: to.scalar(name, v, s), value, step)


def scalars(values: Mapping[str, Any], step: Any, prefix: str = "") -> None:
    """Several scalars: a dict, or a tree whose paths are the names."""
    _write(lambda to, v, s: to.scalars(v, s, prefix), values, step)


def histogram(name: str, values: Any, step: Any) -> None:
    """How the values of an array are distributed."""
    _write(lambda to, v, s: to.histogram(name, v, s), values, step)


def histograms(name: str, values: Any, step: Any) -> None:
    """A histogram of each array of a tree."""
    _write(lambda to, v, s: to.histograms(name, v, s), values, step)


def image(name: str, pictures: Any, step: Any, most: int = 16) -> None:
    """Pictures, [n, height, width, channels]; the first `most` of them are written."""
    _write(lambda to, v, s: to.image(name, v, s, most), pictures, step)


def audio(name: str, samples: Any, rate: int, step: Any) -> None:
    """Sounds, f32[n, samples, channels] from -1 to 1. rate: samples a second."""
    _write(lambda to, v, s: to.audio(name, v, rate, s), samples, step)


def figure(name: str, figure: Any, step: Any) -> None:
    """A figure of matplotlib; outside of compiled programs."""
    _write(lambda to, v, s: to.figure(name, figure, s), None, step)


def text(name: str, content: Any, step: Any) -> None:
    """A text in Markdown. The text is fixed when a program is traced; the step need not be."""
    _write(lambda to, v, s: to.text(name, content, s), None, step)


def _write(write: Callable[[Writer, Any, Any], None], value: Any, step: Any) -> None:
    def to_current(given, number) -> None:
        found = writer.current()
        if found is None:
            _warn()
        else:
            write(found, given, number)

    if any(isinstance(leaf, Tracer) for leaf in tree.leaves((value, step))):
        debug_callback(to_current, value, step)
    else:
        to_current(value, step)


def _warn() -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "a summary that no writer is there for is dropped (this warning comes once): "
            "run the program within `with hl.summary.Writer(folder).as_default():`",
            SummaryWarning,
            stacklevel=2,
        )
