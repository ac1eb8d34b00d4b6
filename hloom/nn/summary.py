"""Summaries of modules: the tree that `print(model)` shows, and the table of `model.summary(x)`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

from hloom.ir.records import record
from hloom.nn.mistakes import check_callable
from hloom.tracing.eval_shape import eval_shape
from hloom.tracing.signatures import with_positions
from hloom.tracing.trace import current_trace
from hloom.tree import pytrees as tree


class _Calls(threading.local):
    finished: Any = None  # called with (module, result, FLOPs) after each call of a module while a summary is made


_CALLS = _Calls()


def recorded(call):
    """Wraps a module's __call__ to report to a summary."""

    @functools.wraps(call)
    def wrapped(self, *args, **kwargs):
        finished, trace = _CALLS.finished, current_trace()
        if finished is None or trace is None:
            return call(self, *args, **kwargs)
        # Saves start-up time: needed by summaries only.
        from hloom.compiler.analysis import instruction_flops

        before = len(trace.builder.instructions)
        result = call(self, *args, **kwargs)
        finished(self, result, sum(map(instruction_flops, trace.builder.instructions[before:])))
        return result

    return wrapped


class Described:
    """The base of modules: their repr and summary."""

    _leaves: ClassVar[tuple[str, ...]] = ()
    _static: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        parts = [f"{name}={_shown(getattr(self, name, None))}" for name in (*self._static, *self._leaves)]
        return f"{type(self).__name__}({', '.join(parts)})"

    def __str__(self) -> str:
        return "\n".join(_lines("", self, "", ""))

    def summary(self, *args, **kwargs) -> Summary:
        """A table of the layers that `self(*args, **kwargs)` calls: path, class, output shapes, parameters and FLOPs.

        Arguments may be arrays or ShapeDtypeStructs; nothing is computed. `print(model.summary(x))` shows it.
        """
        check_callable(self, "summary")
        rows: list[Row] = []
        given, structure = tree.flatten((args, kwargs))
        traced = [k for k, leaf in enumerate(given) if hasattr(leaf, "shape")]  # the others are options

        def run(module, arrays):
            args, kwargs = tree.unflatten(structure, with_positions(given, traced, arrays))
            paths = {id(found): path for path, found in submodules(module)}

            def finished(called, result, flops: float) -> None:
                shapes = ", ".join(repr(getattr(r, "_shape", r)) for r in tree.leaves(result))
                path = paths.get(id(called), "")
                rows.append(Row(path, type(called).__name__, shapes, _count(called), flops))

            before, _CALLS.finished = _CALLS.finished, finished
            try:
                return tree.leaves(module(*args, **kwargs))
            finally:
                _CALLS.finished = before

        eval_shape(run, self, [given[k] for k in traced])
        return Summary(type(self).__name__, rows, _count(self), _bytes(self))


@record(frozen=True)
class Row:
    """A call of a layer: its path, class, output shapes, number of parameters and floating point operations."""

    path: str
    layer: str
    output: str
    parameters: int
    flops: float


@record(frozen=True)
class Summary:
    """The result of `Module.summary`: rows in order of completion, the module itself last."""

    name: str
    rows: list[Row]
    parameters: int
    bytes: int

    @property
    def flops(self) -> float:
        """For the whole call."""
        return self.rows[-1].flops if self.rows else 0.0

    def __rich__(self):
        # Saves start-up time: rich is needed only to display a summary.
        from rich.table import Table

        table = Table(title=self.name)
        for title, side in zip(("layer", "class", "output", "parameters", "FLOPs"), "lllrr", strict=True):
            table.add_column(title, justify="left" if side == "l" else "right", overflow="fold")
        for row in self.rows:
            cells = (row.path or "(whole)", row.layer, row.output.replace("[", r"\["))
            table.add_row(cells[0].replace("[", r"\["), *cells[1:], f"{row.parameters:,}", f"{row.flops:,.0f}")
        table.caption = f"{self.parameters:,} parameters, {self.bytes:,} bytes, {self.flops:,.0f} FLOPs"
        return table

    def __str__(self) -> str:
        from rich.console import Console  # saves start-up time: rich is needed only to print a summary

        console = Console(width=120, color_system=None)
        with console.capture() as text:
            console.print(self)
        return text.get()

    __repr__ = __str__


def submodules(module, path: str = "") -> Iterator[tuple[str, Described]]:
    """(path, module) of a module ('' for itself) and its submodules: 'layers[0]', 'block.attention'."""
    yield path, module
    for name, value in _parts(module, path):
        if isinstance(value, Described):
            yield from submodules(value, name)


def _parts(module: Described, path: str) -> Iterator[tuple[str, Any]]:
    """(path, value) of the modules and arrays directly in a module, through lists and dictionaries."""
    for name in module._leaves:
        value = getattr(module, name, None)
        found = tree.leaves_with_path(value, is_leaf=lambda x: isinstance(x, Described))
        for keys, part in found:
            yield f"{path}.{name}{tree.keystr(keys)}".lstrip("."), part


def _lines(name: str, value, first: str, others: str) -> Iterator[str]:
    label = f"{name}: " if name else ""
    if not isinstance(value, Described):
        yield f"{first}{label}{_shown(value)}"
        return
    options = ", ".join(f"{n}={_shown(getattr(value, n, None))}" for n in value._static)
    count = _count(value)
    yield f"{first}{label}{type(value).__name__}({options})" + (f"  {count:,} parameters" if count else "")
    parts = list(_parts(value, ""))
    for k, (part, found) in enumerate(parts):
        last = k == len(parts) - 1
        yield from _lines(part, found, others + ("└─ " if last else "├─ "), others + ("   " if last else "│  "))


def _shown(value) -> str:
    shape = getattr(value, "_shape", None)
    return repr(shape) if shape is not None else getattr(value, "__name__", None) or repr(value)


def _count(module) -> int:
    return sum(getattr(leaf, "size", 1) for leaf in tree.leaves(module))


def _bytes(module) -> int:
    return sum(getattr(leaf, "nbytes", 4) for leaf in tree.leaves(module))


__all__ = ["Described", "Row", "Summary", "recorded", "submodules"]
