"""Programs of a model of which each serves many sizes of its inputs.

Input sizes that the model leaves open are dimensions (`hl.Dim`): the same one for all sizes of one name, and one for
each size without a name. The nodes are traced once with them. Decisions that depend on a size during tracing (whether
axes broadcast, whether -1 in a target is that size) are made with the sizes of the call, and recorded: a program serves
the sizes for which these decisions are the same (`SampledScope`), others get another program. Sizes of 0 and 1 are
fixed, as axes of 1 broadcast. A node that needs the value of a size fixes that dimension; if no dimension is left, or a
node needs values that are known only at run time, each set of shapes is compiled separately.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hloom.arrays.array import Array
from hloom.dispatch.backend import takes_open_sizes
from hloom.errors import DeviceError, HloomError, OutOfMemoryError
from hloom.ir.process import forking
from hloom.ir.records import record
from hloom.ir.sizes.expressions import LARGEST, Dim, Size, dims_of
from hloom.ir.sizes.guards import SampledScope
from hloom.ir.sizes.policy import MOST_PROGRAMS, SMALLEST
from hloom.onnx.graph import Graph
from hloom.onnx.plans import Plan, Trace
from hloom.onnx.sizes import Sizes
from hloom.onnx.table import NeedsValue
from hloom.tracing.signatures import identifiers

__all__ = ["OpenPrograms", "Stale", "Watch"]


class Stale(Exception):
    """A program with dimensions is to be traced for other settings than those under which its decisions were made."""


class _Pinned(Exception):
    """The trace needed the values of dimensions, which have to be fixed from its start on."""


class Watch(Trace):
    """Follows the trace of nodes with dimensions. dims: of each argument with open sizes, by its name."""

    def __init__(self, dims: Mapping[str, tuple[Size, ...]], scope: SampledScope):
        super().__init__()
        self.dims, self.scope = dims, scope
        self.reasons: dict[str, str] = {}  # dimension that is a number -> the node that needs it
        self.is_traced = False

    def starts(self, values: Sequence) -> None:
        """Raises Stale for a second trace, whose decisions would not be checked against the sizes of calls."""
        super().starts(values)
        if self.is_traced and any(map(_dims_in, values)):
            raise Stale

    def left(self) -> None:
        for name in self.scope.pinned - self.reasons.keys():
            self.reasons[name] = f"{self.title} needs the number of '{name}'"

    def ends(self) -> None:
        super().ends()
        if self.scope.pinned:
            raise _Pinned
        self.is_traced = True

    @property
    def title(self) -> str:
        return "the model" if self.node is None else self.node.title

    @property
    def names(self) -> set[str]:
        """The dimensions of the node's inputs."""
        return set() if self.node is None else set().union(*[_dims_in(self.env.get(name)) for name in self.node.uses])


def _dims_in(value: Any) -> set[str]:
    """The names of the dimensions in the shape of a value, and in its elements."""
    if isinstance(value, list):
        return set().union(*map(_dims_in, value))
    sizes = [*(getattr(value, "shape", None) or ())]
    if isinstance(value, Sizes):
        sizes += value.elements.reshape(-1).tolist()
    return {name for size in sizes for name in dims_of(size)}


@record
class _Program:
    """A plan with dimensions. fixed: sizes that are constants in it, by name."""

    plan: Plan
    dims: Mapping[str, Dim]
    fixed: Mapping[str, int]
    scope: SampledScope

    def serves(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is right for sizes, by name."""
        return (
            all([sizes[name] == size for name, size in self.fixed.items()])
            and all([dim.takes(sizes[name]) for name, dim in self.dims.items()])
            and all([guard.holds(sizes) for guard in self.scope.guards])
        )


class OpenPrograms:
    """The programs with dimensions of a graph.

    reason: why each set of shapes is compiled separately; None if they are not.
    """

    def __init__(self, graph: Graph):
        self._graph = graph
        self._ports = {port.name: port.shape for port in graph.inputs}
        self._programs: dict[tuple, list[_Program]] = {}
        self._names: dict[tuple, dict[str, tuple[str | int, ...]]] = {}
        self._needed: dict[str, str] = {}  # dimension that was a number in a program -> why
        self._pending: str | None = None
        self._lock = forking.rlock()
        self.reason: str | None = None

    @property
    def count(self) -> int:
        return sum(map(len, self._programs.values()))

    @property
    def why(self) -> str | None:
        """Why programs are compiled for sizes, if it is known."""
        return self.reason or next(iter(self._needed.values()), None)

    def clear(self) -> None:
        """Forgets the programs, and why there are none."""
        with self._lock:
            self._programs.clear()
            self._needed.clear()
            self.reason = self._pending = None

    def settle(self) -> None:
        """From here on each set of shapes is compiled separately, as the sizes of a call that could not be open are
        valid."""
        if self._pending is not None:
            self.reason, self._pending = self._pending, None

    def run(
        self, params: Mapping[str, Any], live: dict[str, Any], traced: Callable[[Watch], tuple[Plan, dict]]
    ) -> tuple[Plan, dict] | None:
        """(the plan for the sizes of these inputs, its results); None if they have to be compiled by themselves.

        traced: makes a plan under dimensions and runs it.
        """
        self._pending = None  # that of a call whose sizes were wrong
        if self.reason is not None or not _are_plain([*params.values(), *live.values()]):
            return None
        ranks = tuple([(name, v is not None and (v.ndim, v.dtype)) for name, v in live.items()])
        names = self._names.get(ranks) or self._names.setdefault(ranks, self._named(live))
        sizes = _sizes_of(names, live)
        if not sizes:
            return None
        with self._lock:
            programs = self._programs.setdefault(ranks, [])
            found = next((p for p in programs if p.serves(sizes)), None)
            if found is None:
                if self.count >= MOST_PROGRAMS:
                    last = programs[-1].scope.guards if programs else ()
                    self.reason = self.why or f"{MOST_PROGRAMS} programs differ by {', '.join(map(repr, last[:4]))}"
                    return None
                made = self._made(names, sizes, traced)
                if made is None:
                    return None
                programs.append(made[0])
                return made[0].plan, made[1]
        try:
            return found.plan, found.plan.run(params, live)
        except (DeviceError, OutOfMemoryError, Stale):
            raise
        except HloomError as error:  # of the compiler, for sizes that no variant serves
            self._pending = _line(error)
            return None

    def _named(self, live: Mapping[str, Any]) -> dict[str, tuple[str | int, ...]]:
        """Input -> its sizes, integers and names of dimensions: for the inputs that the model leaves open."""
        raw: dict[str, tuple] = {}
        for name, value in live.items():
            if value is None or name not in self._ports:
                continue
            declared = self._ports[name]
            raw[name] = tuple([
                size if isinstance(size, int) else (size, None) if size is not None else (f"{name}_{axis}", axis)
                for axis, size in enumerate(declared if declared is not None else [None] * value.ndim)
            ])  # fmt: skip
        keys = [*dict.fromkeys([key for sizes in raw.values() for key in sizes if not isinstance(key, int)])]
        texts = dict(zip(keys, identifiers([text for text, _ in keys]), strict=True))
        return {name: tuple([texts.get(key, key) for key in sizes]) for name, sizes in raw.items()}

    def _made(self, names: Mapping[str, tuple], sizes: Mapping[str, int], traced) -> tuple[_Program, dict] | None:
        """A program for these sizes and its results; None if no size of it can be open."""
        needed: dict[str, str] = {}
        while True:
            scope = SampledScope(sizes)
            known: dict[str, Size] = {
                name: size if name in needed or not SMALLEST <= size <= LARGEST else Dim(name, SMALLEST, scope=scope)
                for name, size in sizes.items()
            }
            dims = {name: size for name, size in known.items() if isinstance(size, Dim)}
            if not dims:
                if sizes.keys() <= needed.keys():
                    self._pending = next(iter(needed.values()))
                return None
            watch = Watch(
                {name: tuple([known.get(size, size) for size in shape]) for name, shape in names.items()}, scope
            )
            try:
                plan, results = traced(watch)
            except _Pinned:
                needed |= watch.reasons
                continue
            except NeedsValue as found:
                self._pending = f"{watch.title}: {found.what}"
                return None
            except (DeviceError, OutOfMemoryError, Stale):
                raise
            except (HloomError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                reason = f"{watch.title}: {_line(error)}"
                new = watch.names & dims.keys()
                if watch.is_traced or not new:
                    self._pending = reason
                    return None
                needed |= dict.fromkeys(new, reason)
                continue
            self._needed |= needed
            fixed = {name: size for name, size in sizes.items() if name not in dims}
            return _Program(plan, dims, fixed, scope), results


def _are_plain(values: Sequence) -> bool:
    """Whether values are arrays without an explicit device, for which there are programs of open sizes, or None."""
    arrays = [v for v in values if v is not None]
    return all([type(v) is Array and v._key is v._shape for v in arrays]) and takes_open_sizes(arrays)


def _sizes_of(names: Mapping[str, tuple], live: Mapping[str, Any]) -> dict[str, int]:
    """The size of each dimension; none where two of one name differ."""
    found: dict[str, int] = {}
    for name, shape in names.items():
        for dim, size in zip(shape, live[name].shape, strict=True):
            if isinstance(dim, str) and found.setdefault(dim, size) != size:
                return {}
    return found


def _line(error: Exception) -> str:
    return (
        f"{error.asked}, where {error.found}" if isinstance(error, HloomError) else f"{type(error).__name__}: {error}"
    )
