"""Where programs run: an executor holds the values of variables and runs plans.

`Session` works with any object that has the methods of `Executor`; `LocalExecutor` runs in this process. One of another
process is registered for the scheme of its targets: `register("hloom", connect)` serves `Session(target="hloom://...")`.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from hloom.arrays.array import Array
from hloom.config import config
from hloom.dispatch.jit import JitFunction, jit
from hloom.errors import (
    ArgumentError,
    DonationWarning,
    FeedError,
    HloomError,
    SessionError,
    UninitializedError,
    UnsupportedError,
)
from hloom.ir.module import Computation, below
from hloom.ir.op_table import OPS
from hloom.ir.ops.specialize import Specialization
from hloom.ir.process import forking
from hloom.ir.rewrite import has_effects
from hloom.ir.sizes.expressions import SizeExpression
from hloom.ir.sizes.policy import ALONE
from hloom.ir.source import on_device
from hloom.ir.types import HLO_NAME, Shape
from hloom.platforms.device import find_device, log_operation
from hloom.sessions.graph import Node, Text
from hloom.sessions.lowering import Plan, make_plan
from hloom.sessions.program import Program, outside_of_programs
from hloom.sessions.sizes.open_runs import OpenRun
from hloom.tracing.active import TRACES
from hloom.tracing.trace import Tracer, apply_computation, as_array

KEPT = 1024  # sizes of feeds for which the executable has been chosen


class Executor(Protocol):
    """What a session requires of the target that runs it."""

    def load(self, program: Program, fetches: Sequence[Any], feeds: Sequence[Any]) -> Any:
        """A handle for runs of these fetches and feeds, which are handles of the program or names. Another process is
        sent `program.prune(fetches, feeds).to_text()` here, once, and their names."""

    def run(self, handle: Any, values: Sequence[Any]) -> list:
        """Runs with the values of the feeds. Returns the fetched values: arrays, None for operations, texts."""

    def variables(self, devices: Mapping[str, str]) -> dict[str, Any]:
        """The values of those variables that have one. devices: names, and the device chosen for each; '' for none."""

    def assign(self, values: Mapping[str, Any], devices: Mapping[str, str]) -> None:
        """Sets variables. devices: the one chosen for each, by name."""

    def close(self) -> None:
        """Ends the executor: its variables are lost."""


class LocalExecutor:
    """Runs programs in this process. Variables are shared by all programs that run here, by name."""

    def __init__(self, device: str = "") -> None:
        """device: where operations run for which none was chosen; a task of a cluster, too."""
        self.device = device
        self.values: dict[str, Array] = {}
        self.donated: set[str] = set()  # variables that steps overwrite in place
        self.lock = forking.rlock()
        self.closed = False

    def load(self, program: Program, fetches: Sequence[Any], feeds: Sequence[Any]) -> Step:
        """Fetches and feeds are names or handles of the program. Raises FetchError, FeedError."""
        targets = [program.find(fetch) for fetch in fetches]
        nodes = [node for feed in feeds if isinstance(node := program.find(feed, "feed"), Node)]
        return Step(self, program, make_plan(program, targets, nodes))

    def run(self, handle: Step, values: Sequence[Any]) -> list:
        """Runs a step with these values. Raises SessionError after the end."""
        if self.closed:
            raise SessionError("a run", "the server has stopped", "start a server and open a new session")
        return handle(values)

    def variables(self, devices: Mapping[str, str]) -> dict[str, Any]:
        """The values of those of the variables that have one."""
        with self.lock:
            return {name: self.values[name] for name in devices if name in self.values}

    def assign(self, values: Mapping[str, Any], devices: Mapping[str, str]) -> None:
        """Sets variables. Values are copied where the program could change them."""
        with self.lock:
            self.values.update({name: _owned(value) for name, value in values.items()})

    def snapshot(self, name: str) -> np.ndarray | None:
        """The value of a variable, which no later step overwrites; None if it is uninitialized."""
        with self.lock:
            found = self.values.get(name)
            value = None if found is None else np.asarray(found)
            return value.copy() if value is not None and name in self.donated else value

    def close(self) -> None:
        """Ends the executor and frees the variables."""
        self.closed = True
        self.values.clear()


def _owned(value) -> Array:
    """An array that nothing else refers to, so that a step may overwrite it."""
    array = as_array(value, "the value of a variable")
    return Array(np.array(array), False, array._device) if isinstance(array, Array) else array


class _Sized:
    """A run for some sizes of the feeds. call: the function that runs for them; None until it is compiled."""

    __slots__ = ("call", "sizes")

    def __init__(self, sizes: dict[str, int]):
        self.sizes = sizes
        self.call: Any = None


class Step:
    """A loaded run: compiled for each of the two sizes that are fed first, and once for all others."""

    def __init__(self, executor: LocalExecutor, program: Program, plan: Plan):
        self.executor, self.plan = executor, plan
        self.program_name, self.sizes = program.name, program.sizes
        self._found: dict[tuple, _Sized] = {}  # by dtypes and shapes of the feeds
        self._sized: dict[tuple, _Sized] = {}  # by sizes
        self._open: OpenRun | None = None
        self._lock = forking.rlock()
        _find_devices(plan.computation)
        parameters = plan.computation.parameters
        first = len(plan.variables)
        self._shapes = [p.shape for p in parameters[first:]]
        self._sources = [p.source for p in parameters[first:]]
        self._states = [p.shape for p in parameters[:first]]
        self._stateless = not plan.variables
        executor.donated.update(plan.updated)

    def __call__(self, feeds: Sequence[Any]) -> list:
        plan = self.plan
        values = [*feeds, *self._host_values()] if plan.host_values else feeds
        found = None
        with contextlib.suppress(AttributeError, TypeError):  # numbers and lists have no dtype
            found = self._found.get(tuple([(v.dtype, v.shape) for v in values]))
        if found is None:
            values, found = self._prepared(values)
        with contextlib.nullcontext() if self._stateless else self.executor.lock:
            outputs = self._run(found, values)
        count = plan.count
        for k in plan.shared:
            outputs[k] = _owned(outputs[k])
        for operation, numbers in plan.hosts:
            operation.host(*[n.value if hasattr(n, "value") else None if n is None else outputs[n] for n in numbers])
        if len(plan.fetches) == count == len(outputs):
            return outputs
        return [outputs[f] if type(f) is int else getattr(f, "value", None) for f in plan.fetches]

    def _run(self, sized: _Sized, values) -> list:
        plan, store = self.plan, self.executor.values
        state = [store.get(name) for name in plan.variables]
        if None in state:
            self._uninitialized()
        if TRACES.active or sized.call is None:
            with outside_of_programs(), warnings.catch_warnings():
                # The session donates, not the user: a variable whose buffer fits no result is not a mistake.
                warnings.simplefilter("ignore", DonationWarning)
                outputs = self._first(sized, [*state, *values])
            self._log_texts()
        else:
            try:
                outputs = sized.call(*state, *values)
            except UnsupportedError:  # where an array is on a device now that has no programs of open sizes
                if not self._is_open(sized):
                    raise
                sized.call = None
                return self._run(sized, values)
        for name, value in zip(plan.updated, outputs[plan.count :], strict=True):
            store[name] = value
        return list(outputs[: plan.count])

    def _first(self, sized: _Sized, operands: list) -> Any:
        """The first run for some sizes."""
        if sized.call is not None:
            return sized.call(*operands)
        refusal = self._refusal(sized, operands)
        function = self._open.function if self._open is not None and refusal == "" else self._for_sizes(sized.sizes)
        sized.call = function
        outputs = function(*operands)
        if self._open is not None and refusal:
            self._open.close(refusal)  # those reasons do not apply to the program for these sizes alone
        return outputs

    def _refusal(self, sized: _Sized, operands: list) -> str | None:
        """Why the program of open sizes does not serve these sizes; "" if it does, None if it was not tried.

        The first sizes get dedicated programs, which compile faster: most runs are fed no other sizes.
        """
        if not sized.sizes or len(self._sized) <= ALONE:
            return None
        with self._lock:
            if self._open is None:
                self._open = OpenRun(self.plan.computation, self.program_name, self._jitted)
            return None if self._open.closed else self._open.refusal(operands)

    def _is_open(self, sized: _Sized) -> bool:
        """Whether the program of open sizes runs for these."""
        return self._open is not None and sized.call is self._open.function

    def _log_texts(self) -> None:
        """Prints where constants of text are, which no compiled program has."""
        if config.log_device_placement:
            for text in dict.fromkeys(f for f in self.plan.fetches if isinstance(f, Text)):
                name = text.source.device if text.source is not None else ""
                with outside_of_programs():
                    device = find_device(name or self.executor.device or None)
                log_operation(text.name, "constant", [device], text.source)

    def _host_values(self) -> list:
        """One value of each source for each node that comes from it."""
        taken: dict[int, Any] = {}
        found = []
        for value in self.plan.host_values:
            if id(value.source) not in taken:
                taken[id(value.source)] = value.source()
            found.append(taken[id(value.source)][value.index])
        return found

    def _uninitialized(self) -> None:
        missing = [name for name in self.plan.variables if name not in self.executor.values]
        names = ", ".join(map(repr, missing[:5])) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise UninitializedError(
            f"a run that reads variables of '{self.program_name}'",
            f"without a value: {names}",
            "run the initializer first: session.run(program.initializer()), or restore a checkpoint",
        )

    # --- the first run with some shapes ---

    def _prepared(self, values: Sequence[Any]) -> tuple[list, _Sized]:
        """The values as arrays of the placeholders' dtypes, and the run for them. Raises FeedError."""
        names = [*self.plan.feeds, *(v.name for v in self.plan.host_values)]
        arrays = [self._fed(k, name, value) for k, (name, value) in enumerate(zip(names, values, strict=True))]
        given: dict[str, tuple[int, str]] = {}
        for name, array, shape, source in zip(names, arrays, self._shapes, self._sources, strict=True):
            self._match(name, array, shape, source, given)
        sizes = {size: n for size, (n, _) in given.items()}
        if self._has_expressions():
            sizes = self._solved(names, arrays)
        key = tuple(sorted(sizes.items()))
        found = self._sized.get(key)
        if found is None:
            if len(self._sized) >= KEPT:  # all but those that have a dedicated program
                self._sized = {key: sized for key, sized in self._sized.items() if not self._is_open(sized)}
                self._found.clear()
            found = self._sized[key] = _Sized(sizes)
        if all(a is v for a, v in zip(arrays, values, strict=True)):
            self._found[tuple([(a.dtype, a.shape) for a in arrays])] = found
        return arrays, found

    def _for_sizes(self, sizes: dict[str, int]) -> Any:
        """The computation for exactly these values of the unknown sizes."""
        computation = self.plan.computation
        if sizes:
            computation = Specialization(self.sizes.given(sizes)).computation(computation)
        return self._jitted(lambda *operands: tuple(apply_computation(computation, list(operands))))

    def _fed(self, k: int, name: str, value: Any) -> Any:
        """A fed value in the placeholder's dtype."""
        wanted = self._shapes[k].dtype
        if isinstance(value, Tracer):
            raise FeedError(f"feed {name!r}", f"a traced value, {value!r}", "feed arrays; fetch it first")
        if not isinstance(value, (Array, np.ndarray)):
            try:
                value = np.asarray(value)
                value = value if value.dtype.kind in "OSU" else value.astype(wanted, casting="same_kind")
            except (TypeError, ValueError) as error:
                self._refuse(k, name, f"{value!r:.60}: {error}", "feed an array")
        if value.dtype == wanted:
            return value
        if value.dtype.kind not in "OSUVM" and np.can_cast(value.dtype, wanted, "same_kind"):
            converted = np.asarray(value).astype(wanted)
            if wanted.kind not in "iu" or np.array_equal(converted, value):
                return converted
            self._refuse(k, name, f"values that {HLO_NAME[wanted]} cannot hold", "feed smaller numbers")
        self._refuse(k, name, f"an array of {value.dtype}", f"convert it: array.astype({wanted.name!r})")

    def _match(self, name: str, array: Any, shape: Shape, source: Any, given: dict) -> None:
        """Records the unknown sizes of an array. Raises FeedError if its shape does not fit."""
        k = [*self.plan.feeds, *(v.name for v in self.plan.host_values)].index(name)
        if array.ndim != shape.rank:
            repair = "feed an array of this rank"
            if not shape.rank:
                repair = f"feed a number, or give it a shape: placeholder({name!r}, {[None] * array.ndim})"
            self._refuse(k, name, f"an array of shape {array.shape}", repair)
        for axis, (n, wanted) in enumerate(zip(array.shape, shape.dims, strict=True)):
            size = self.sizes.name_of(wanted)
            if size is None:
                if not isinstance(wanted, SizeExpression) and n != wanted:
                    self._refuse(k, name, f"an array of shape {array.shape}", "feed an array of this shape")
                continue
            dim = self.sizes.dims[size]
            if not dim.takes(n):
                repair = f"feed an array within the bounds of {dim.declaration()}"
                if size.startswith("?"):
                    repair = "feed an array that is not empty, or declare the size: hl.Dim('rows', min=0)"
                self._refuse(k, name, f"an array of shape {array.shape}", repair)
            if given.setdefault(size, (n, name))[0] != n:
                other, first = given[size]
                called = f"its None on axis {axis}" if size.startswith("?") else size
                self._refuse(
                    k, name, f"{called} is {n} here and {other} in {first!r}",
                    "feed arrays of one size, or name sizes that differ: placeholder('x', ['rows', 32])",
                )  # fmt: skip

    def _solved(self, names: list[str], arrays: list) -> dict[str, int]:
        """The sizes, solved from the shapes of feeds that are expressions of them. Raises FeedError."""
        found = self.sizes.solved([(s.dims, a.shape) for s, a in zip(self._shapes, arrays, strict=True)])
        if found is not None:
            return found
        k = next(k for k, shape in enumerate(self._shapes) if shape.is_open)
        shown = ", ".join(f"{name!r} of {list(array.shape)}" for name, array in zip(names, arrays, strict=True))
        self._refuse(k, names[k], f"sizes that do not go together, or are not told: {shown}", "feed other sizes")

    def _has_expressions(self) -> bool:
        dims = [size for shape in self._shapes for size in shape.dims if isinstance(size, SizeExpression)]
        return any(self.sizes.name_of(size) is None for size in dims)

    def _refuse(self, k: int, name: str, found: str, repair: str) -> NoReturn:
        shape = self._shapes[k]
        dims = ",".join("?" if n is None else str(n) for n in self.sizes.shown(shape.dims))
        asked = f"feed {name!r}, which is {HLO_NAME[shape.dtype]}[{dims}]"
        if k >= len(self.plan.feeds):  # of a queue or a dataset, which no line of this run feeds
            raise FeedError(asked, found, repair, self._sources[k])
        made = f"; it was made at {self._sources[k]}" if self._sources[k] else ""
        raise FeedError(asked, f"{found}{made}", repair)

    def _jitted(self, run: Callable, dims: Mapping[str, tuple] | None = None) -> JitFunction:
        """The function of operands, compiled. dims: as of `hl.jit`."""
        run.__name__ = run.__qualname__ = self.program_name
        # A callback of the user may fail half way: then the variables keep their values.
        changed = set() if _calls_python(self.plan.computation) else set(self.plan.updated)
        donated = [k for k, n in enumerate(self.plan.variables) if n in changed]
        return jit(run, donate_argnums=donated, device=self.executor.device or None, dims=dims)


def _calls_python(computation: Computation) -> bool:
    return any(has_effects(i) or OPS[i.opcode].family == "library" for i in below(computation.instructions))


def _find_devices(computation: Computation) -> None:
    """Replaces the names of devices by those of this process. Raises DeviceError for one that does not exist here."""
    for instruction in below(computation.instructions):
        if instruction.device:
            found = str(find_device(instruction.device))
            if found != instruction.device:
                instruction.source = on_device(instruction.source, found)


# --- targets -------------------------------------------------------------------------------------------------------


_schemes: dict[str, Callable[..., Executor]] = {}


def register(scheme: str, connect: Callable[..., Executor]) -> None:
    """From now on `connect(target)` makes the executor of sessions whose target begins with `scheme://`."""
    _schemes[scheme] = connect


def executor_of(target: Any, **options: Any) -> Executor:
    """The executor of a target: None for a new one in this process, a string "scheme://...", or an executor.

    Raises SessionError for an unregistered scheme, ArgumentError for options that the target does not have.
    """
    if target is None or target == "":
        _no_options("in this process", options)
        return LocalExecutor()
    if not isinstance(target, str):
        if isinstance(getattr(target, "target", None), str):  # a server
            return executor_of(target.target, **options)
        if hasattr(target, "load") and hasattr(target, "run"):
            _no_options("with an executor", options)
            return target
        raise ArgumentError("the target of a session", f"{type(target).__name__}", "pass server.target, or nothing")
    scheme = target.partition("://")[0]
    if scheme == "hloom" and scheme not in _schemes:
        importlib.import_module("hloom.cluster.graphs.executors")  # by its name: the cluster layer is above sessions
    if scheme not in _schemes:
        raise SessionError(
            f"a session at {target!r}", f"targets begin with {', '.join(f'{s}://' for s in _schemes)}",
            "pass server.target, or nothing for a session in this process",
        )  # fmt: skip
    connect = _schemes[scheme]
    known = inspect.signature(connect).parameters
    if not any(p.kind == p.VAR_KEYWORD for p in known.values()):
        _no_options(f"at {target!r}", {name: value for name, value in options.items() if name not in known})
    return connect(target, **options)


def _no_options(where: str, options: Mapping[str, Any]) -> None:
    if options:
        found = f"the option {next(iter(options))!r}"
        raise ArgumentError(f"a session {where}", found, "leave it out, or pass config=SessionConfig(...)")


__all__ = ["Executor", "HloomError", "LocalExecutor", "Step", "executor_of", "register"]
