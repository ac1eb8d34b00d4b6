"""The functions called by the rewritten source of a NumPy program during tracing."""

from __future__ import annotations

import builtins
import dataclasses
import functools
import operator
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, ClassVar

import numpy as np

from hloom import lax
from hloom import numpy as hnp
from hloom.errors import ArgumentError, DTypeError, HloomError, TreeError, UnsupportedError
from hloom.ir.source import Source
from hloom.kernels.frontend.functions import is_prange, of_numba
from hloom.kernels.frontend.memory import FAULT_BITS, Check
from hloom.njit import functions
from hloom.njit.arguments.instances import data_of
from hloom.njit.branches import Join, Leaves, common_dtypes, other_kinds
from hloom.njit.comprehensions import listed
from hloom.njit.drawing import method_of
from hloom.njit.elements import OfElements, each_element
from hloom.njit.generators.methods import Draw
from hloom.njit.items import Counted, Items, Range, counted, has_count, range_of
from hloom.njit.library.selected import contains
from hloom.njit.loops import kernel_of
from hloom.njit.operators import elementwise, python_of
from hloom.njit.outside import Outside
from hloom.njit.rewriting import RUNTIME, Loop, Program, program_of
from hloom.njit.staged import Containers, for_each, while_true
from hloom.njit.values import (
    PYTHON,
    Array,
    Number,
    Unbound,
    Undecided,
    Value,
    as_value,
    changes,
    dtype_of,
)  # fmt: skip
from hloom.tracing.refs import OuterRef, Ref
from hloom.tracing.trace import RefArgument, current_trace

__all__ = ["InProgram", "Runtime", "Trace", "in_order"]

LISTED = 4096  # iterations of a loop over a list, or another iterable of Python
UNROLLED = 64  # iterations of a loop that are traced one after the other
_PASSED_ON = (OuterRef, RefArgument)  # how the program around hands on what is changed in place
COPIES = 256  # of the statements of a loop within others
FEW = 8  # iterations that are always unrolled, unless the loop is a kernel


class Trace:
    """One trace of a program.

    refused: why loops did not become kernels. faults: of kernels that run outside of loops and branches of the program,
    by number, and the first of those within; they are results of the program. outside: what its functions read.
    checked: (name, kernel, checks) of all of them, by number.
    """

    checked: ClassVar[list[tuple[str, str, tuple]]] = []

    def __init__(self, root: Any = None) -> None:
        self.root = root
        self.refused: list[HloomError] = []
        self._faults: dict[str, Any] = {}
        self._within: list[tuple[str, str, tuple]] = []  # kernels that run in loops and branches
        self._first = None if root is None else Ref(hnp.zeros(1, np.int64))  # the first fault among those
        self.outside = Outside()
        self.copies = 1
        self.guards: tuple[Any, ...] = ()  # tests without which the current expression is not evaluated
        self.single: list[int] = []  # of the leaves of the result, the arrays without dimensions

    def watch(self, name: str, kernel: str, checks: tuple, fault: Any, ends: bool = False) -> None:
        """Sees to it that an index out of range of a kernel becomes an error. ends: loops that follow do not go on."""
        for guard in self.guards:
            fault = hnp.where(guard, fault, np.int64(0))
        if (current_trace() is self.root and not ends) or self._first is None:
            self._faults[str(len(Trace.checked))] = fault
            Trace.checked.append((name, kernel, checks))
            return
        before = self._first.read()
        offset = np.int64(sum(len(found) for _, _, found in self._within) << FAULT_BITS)
        self._within.append((name, kernel, checks))
        self._first.write(hnp.where((before == 0) & (fault != 0), fault + offset, before))

    def has_faults(self) -> Any:
        """Whether one was found in a loop or a branch: what comes after it has no meaning. None: no check is there."""
        return self._first.read()[0] != 0 if self._within and self._first is not None else None

    def fail(self, name: str, test: Any, error: Exception, source: Source) -> None:
        """Sees to it that an error of the user's is raised where a test is true."""
        fault = hnp.where(test, np.int64(1 << FAULT_BITS), np.int64(0)).reshape(1)
        checks = (Check("", None, source, error=error),)
        self.watch(name, f"raised.{source}.{len(Trace.checked)}.{len(self._within)}", checks, fault, ends=True)

    def faults(self) -> dict[str, Any]:
        if self._within and self._first is not None:
            checks = tuple(check for _, _, found in self._within for check in found)
            self._faults[str(len(Trace.checked))] = self._first.read()
            Trace.checked.append((*self._within[0][:2], checks))
        return dict(self._faults)


def in_order(faults: dict[str, Any]) -> list[tuple[str, Any]]:
    """Faults by number, those that may be errors of the user's first."""
    own = {k: any(check.error is not None for check in Trace.checked[int(k)][2]) for k in faults}
    return sorted(faults.items(), key=lambda item: (not own[item[0]], int(item[0])))


class InProgram:
    """A decorated function that says itself what its call in a program is."""

    @abstractmethod
    def in_program(self, runtime: Runtime, *args: Any, **kwargs: Any) -> Any:
        """Its results for traced values."""


class Runtime:
    """The run-time functions of one traced program. stack: the user's functions that are traced, outermost first."""

    program: Program

    def __init__(self, program: Program, trace: Trace, stack: tuple[Callable, ...] = ()):
        self.program, self.trace, self.stack = program, trace, (*stack, program.function)
        trace.outside.add(program.function)

    def function(self) -> Callable:
        return self.program.make(self)

    # --- calls, attributes, indices

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        if function is dataclasses.replace or isinstance(function, Draw):
            return function(*args, **kwargs)
        if isinstance(function, InProgram):
            return function.in_program(self, *args, **kwargs)
        if isinstance(function, np.vectorize) and not (function.excluded or function.signature or function.otypes):
            return each_element(OfElements(function.pyfunc), args, self.trace.watch)
        function, of_elements = of_numba(getattr(function, "written", function))
        found = _over(function, args, kwargs)
        if found is not NotImplemented:
            return found
        if isinstance(function, FunctionType) and not functions.is_of_numpy(function) and not _is_of_hloom(function):
            if of_elements:
                return each_element(OfElements(function), args, self.trace.watch)
            return self._inlined(function, args, kwargs)
        if isinstance(function, MethodType) and isinstance(function.__func__, FunctionType):
            if not _is_of_hloom(function.__func__):
                return self._inlined(function.__func__, (function.__self__, *args), kwargs)
        if isinstance(function, (type, BuiltinFunctionType)) and getattr(builtins, function.__name__, None) is function:
            found = functions.builtin_call(function, args, kwargs)
            if found is not NotImplemented:
                return found
            return function(*args, **kwargs)  # type: ignore[misc]
        if functions.is_of_numpy(function):
            return functions.numpy_call(function, args, kwargs)
        if not callable(function):
            raise TypeError(f"'{type(function).__name__}' object is not callable")
        return function(*args, **kwargs)

    def _inlined(self, function: FunctionType, args: tuple, kwargs: dict) -> Any:
        if RUNTIME in function.__code__.co_freevars:  # it was made within a function that is traced
            return function(*args, **kwargs)
        if function in self.stack:
            raise UnsupportedError(
                f"the function '{function.__name__}' in a compiled NumPy program", "it calls itself", "write a loop"
            )
        return Runtime(program_of(function), self.trace, self.stack).function()(*args, **kwargs)

    def attribute(self, owner: Any, name: str) -> Any:
        if isinstance(owner, np.ndarray) and name not in ("shape", "ndim", "size", "dtype", "itemsize", "nbytes"):
            owner = as_value(owner)
        if isinstance(owner, np.random.Generator):
            owner = method_of(owner)
        if not isinstance(owner, Value):
            computed = getattr(type(owner), name, None) if name not in data_of(owner) else None
            if isinstance(computed, property) and dataclasses.is_dataclass(owner) and computed.fget is not None:
                return self.call(computed.fget, owner)
            return getattr(owner, name)
        if name in functions.ATTRIBUTES:
            return functions.method(owner, name)
        try:
            return getattr(owner, name)
        except AttributeError:
            raise UnsupportedError(
                f".{name} of {owner!r} in a compiled NumPy program", "it is not supported", "use a function of NumPy"
            ) from None

    def item(self, owner: Any, index: Any) -> Any:
        if isinstance(owner, np.ndarray):
            owner = as_value(owner)
        if isinstance(owner, (Array, Number)):
            return owner[index]
        if owner is np.r_ or owner is np.c_:
            return functions.joined(owner, index)
        if isinstance(index, Number) and isinstance(owner, (tuple, list)):
            found = Array.of(as_value(owner).traced)[index]
            if isinstance(found, Array):
                found.fixed = "it is an element of a list at an index that is computed"
            return found
        return owner[index]

    def target(self, owner: Any, whole: bool = False) -> Any:
        """What is changed in place: an element or, if whole, the value of a name."""
        if isinstance(owner, np.ndarray):
            raise UnsupportedError(
                "a change of an array that is not an argument", f"an array of {list(owner.shape)} from outside",
                "pass it as an argument",
            )  # fmt: skip
        if isinstance(owner, Number) and not whole:
            raise TypeError(f"'{owner.dtype}' object does not support item assignment")
        return owner

    def matmul(self, left: Any, right: Any) -> Any:
        if isinstance(left, Value) or isinstance(right, Value):
            return functions.numpy_call(np.matmul, (left, right), {})
        return left @ right

    is_long = staticmethod(listed.is_long)
    room = staticmethod(listed.room)
    first = staticmethod(listed.first)

    # --- truth values

    def all_of(self, *parts: Callable[[], Any]) -> Any:
        return self._together(parts, np.logical_and, stops=False)

    def any_of(self, *parts: Callable[[], Any]) -> Any:
        return self._together(parts, np.logical_or, stops=True)

    def _always(self, part: Callable[[], Any], source: Source | None = None, guard: Any = None) -> Any:
        """The value of an expression that Python evaluates only sometimes, or of which it evaluates a part once; or
        of the test of a loop, which cannot change anything. guard: the test without which it is not evaluated: indices
        may then be out of range."""
        outer = self.trace.guards
        self.trace.guards = outer if guard is None else (*outer, guard)
        try:
            with changes() as found:
                return found.none_in(part, source)
        finally:
            self.trace.guards = outer

    def _together(self, parts: Sequence[Callable[[], Any]], ufunc: np.ufunc, stops: bool) -> Any:
        """`and`, `or`: of Python's values as Python has them; of traced ones, all are computed."""
        found: Any = None
        for part in parts:
            value = self._sometimes(part, found, not stops) if isinstance(found, Value) else part()
            if found is None:
                if not isinstance(value, Value) and bool(value) is stops:
                    return value
                found = value
            elif not isinstance(found, Value):
                found = value
            elif dtype_of(as_value(found)) == dtype_of(as_value(value)) == np.dtype(bool):
                python = {python_of(found), python_of(value)}
                joined = elementwise(ufunc, (_truth(found), _truth(value)))
                found = Number(joined.traced, bool) if python == {bool} else joined
            else:
                test, last = _truth(found), value
                found = functions.chosen(test, *((found, last) if stops else (last, found)))
        return found

    @staticmethod
    def same(one: Any, other: Any) -> Any:
        """`is`: of traced truth values of Python, whether they are equal."""
        if isinstance(one, Array) and isinstance(other, Array):
            return one.is_same(other)
        if isinstance(one, Value) or isinstance(other, Value):
            if python_of(one) is python_of(other) is bool:
                return one == other
            if isinstance(one, Number) and isinstance(other, (Number, *PYTHON)) and one is not other:
                if python_of(one) is python_of(other):
                    raise UnsupportedError("`is` of numbers in a compiled NumPy program", f"{one!r}", "use ==")
        return one is other

    @staticmethod
    def contains(value: Any, items: Any) -> Any:
        """`value in items`. Sets and dicts look by the hash, which a traced number does not have."""
        if isinstance(items, (set, frozenset, dict)) and any(isinstance(v, Value) for v in (value, *items)):
            raise Undecided(f"an element of a {type(items).__name__}")
        if isinstance(items, Array) or (isinstance(items, np.ndarray) and isinstance(value, Value)):
            return contains(value, items)
        return value in items

    def negated(self, value: Any) -> Any:
        if not isinstance(value, Value):
            return not value
        return Number(elementwise(np.logical_not, (_truth(value),)).traced, bool)

    def choice(self, test: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
        if not isinstance(test, Value):
            return yes() if test else no()
        first, second = self._sometimes(yes, test, True), self._sometimes(no, test, False)
        return functions.chosen(_truth(test), first, second)

    def _sometimes(self, part: Callable[[], Any], test: Any, wanted: bool) -> Any:
        """The value of an expression that Python evaluates where a test is true, or else where it is false."""
        guard = _truth(test).traced
        return self._always(part, guard=guard if wanted else hnp.logical_not(guard))

    def asserted(self, number: int, test: Any, message: Callable[[], tuple]) -> None:
        """`assert`. message: what the error has."""
        if not isinstance(test, Value):
            if not test:
                raise AssertionError(*message())
            return
        error = AssertionError(*message())
        wrong = self.negated(test)
        self.trace.fail(self.program.function.__name__, wrong.traced, error, self.program.loops[number].source)

    def raises(self) -> None:
        """Before a `raise`: whether it is reached has to be known."""
        if current_trace() is not self.trace.root and not self.raising:
            raise Undecided("the condition of a raise")

    def refusal(
        self, number: int, test: Any, then: Callable, other: Callable, names: dict[str, Any], first: bool
    ) -> Any:
        """A branch of which one side raises an error, the first one or the other. first: which."""
        loop = self.program.loops[number]
        given = [names.get(name, Unbound(name)) for name in sorted(loop.assigned)]
        if not isinstance(test, Value):
            return (then if test else other)(*given)
        raising, goes_on = (then, other) if first else (other, then)
        wrong = _truth(test) if first else self.negated(test)
        self.trace.fail(self.program.function.__name__, wrong.traced, self._error_of(raising, given), loop.source)
        return goes_on(*given)

    def _error_of(self, raising: Callable, given: list) -> Exception:
        """What a function raises, which is not known to run."""
        self.raising += 1
        try:
            with changes() as found:
                raising(*given)
        except (Undecided, HloomError, *_PASSED_ON):
            raise
        except Exception as error:
            found.take_back()
            return error
        finally:
            self.raising -= 1
        raise AssertionError("a branch that ends by raise")

    raising = 0  # how many functions are run for their errors

    def bound(self, names: dict[str, Any], wanted: tuple[str, ...]) -> dict[str, Any]:
        return {name: names.get(name, Unbound(name)) for name in wanted}

    # --- branches

    def branch(
        self, number: int, test: Any, then: Callable, other: Callable, names: dict[str, Any], returns: bool
    ) -> Any:
        """A branch: what its functions return, the names that it assigns or the function's result."""
        loop = self.program.loops[number]
        wanted = sorted(loop.assigned)
        if not isinstance(test, Value):
            return (then if test else other)(*[names.get(name, Unbound(name)) for name in wanted])
        return self._branch(loop, wanted, _truth(test), then, other, names, returns)

    def _branch(
        self, loop: Loop, wanted: Sequence[str], test: Value, then: Callable, other: Callable, names: dict[str, Any],
        returns: bool = False,
    ) -> Any:  # fmt: skip
        """A branch on a traced truth value: both sides are traced. wanted: the names that it assigns."""
        given = [names.get(name, Unbound(name)) for name in wanted]
        kept = Containers(names.values())
        sides: dict[Callable, Leaves] = {}
        common: list[np.dtype] | None = None
        unbound: set[str] = set()

        def traced(function: Callable) -> Callable:
            def run():
                with kept:
                    found = function(*given)
                    if not returns:
                        unbound.update(name for name in wanted if isinstance(found[name], Unbound))
                        found = tuple([Unbound(name) if name in unbound else found[name] for name in wanted])
                    found = (found, kept.contents())
                sides[function] = leaves = Leaves.of(found)
                return leaves.traced(common)

            return run

        missing = 0, 0
        while True:
            try:
                results = lax.cond(test.traced, traced(then), traced(other))
                if len(kept.changed) == missing[1]:
                    break
            except _PASSED_ON:
                raise
            except HloomError as error:
                again = common_dtypes(sides.get(then), sides.get(other))
                if (len(unbound), len(kept.changed)) == missing and (again is None or again == common):
                    refused = other_kinds(loop, wanted, sides.values()) if isinstance(error, TreeError) else error
                    self.trace.refused.append(refused)  # it may be one on an integer that can be known
                    raise refused from None
                common = again
            missing = len(unbound), len(kept.changed)
        shared = {id(value.ref): value.ref for value in names.values() if isinstance(value, Array)}
        try:
            joined, contents = Join(sides[then], sides[other], list(results), loop, shared).found
        except UnsupportedError as error:
            self.trace.refused.append(error)
            raise
        kept.update(contents)
        return joined if returns else dict(zip(wanted, joined, strict=True))

    # --- loops

    def for_loop(
        self, number: int, items: Any, names: dict[str, Any], body: Callable | None = None, broken: str = ""
    ) -> dict[str, Any]:
        """A loop over a range, an array, or several of them: one kernel; else, where there is a body, a loop of the
        program, or its iterations one after the other. broken: the name of the truth value that says whether `break`
        left it, or ''."""
        loop, items = self.program.loops[number], counted(items)
        if body is not None and not isinstance(items, (range, Range, Array, np.ndarray, Items, Counted)):
            return self._unrolled(loop, _not_too_many(loop, items), names, body, broken)
        taken = self._kernel(loop, names, items)
        if taken is not None:
            return taken
        if body is None:
            raise self.trace.refused[-1]
        length = None if isinstance(items, (Range, Counted)) or has_count(items) else len(items)
        if length is not None and length <= FEW:
            return self._several(loop, items, names, body, broken)
        try:
            return for_each(loop, items, names, body, broken)
        except _PASSED_ON:
            raise
        except (Undecided, HloomError):
            if length is None or length > UNROLLED:
                raise
        return self._several(loop, items, names, body, broken)

    def _several(self, loop: Loop, items: Any, names: dict[str, Any], body: Callable, broken: str) -> dict[str, Any]:
        """The iterations of a loop, traced one after the other. Those of loops within each other multiply."""
        before = self.trace.copies
        self.trace.copies *= max(1, len(items))
        try:
            if self.trace.copies > COPIES:
                raise self.trace.refused[-1]
            return self._unrolled(loop, items, names, body, broken)
        finally:
            self.trace.copies = before

    def _unrolled(self, loop: Loop, items: Any, names: dict[str, Any], body: Callable, broken: str) -> dict[str, Any]:
        values = {name: names.get(name, Unbound(name)) for name in sorted(loop.assigned)}
        left: Any = False
        for item in items:
            if not isinstance(left, Value):
                if left:
                    break
                made = body(item, *values.values())
            else:
                made = self._rest(loop, left, names | values, functools.partial(body, item), broken)
            left = made.pop(broken, False)
            values = made
        return values

    def _rest(self, loop: Loop, left: Value, names: dict[str, Any], body: Callable, broken: str) -> dict[str, Any]:
        """An iteration of a loop that may have been left."""
        wanted = [*sorted(loop.assigned), broken]

        def unchanged(*given: Any) -> dict[str, Any]:
            return dict(zip(wanted, given, strict=True))

        def goes_on(*given: Any) -> dict[str, Any]:
            return body(*given[:-1])

        return self._branch(loop, wanted, left, unchanged, goes_on, names | {broken: left})

    def while_loop(
        self, number: int, names: dict[str, Any], body: Callable, broken: str, test: Callable
    ) -> dict[str, Any]:  # fmt: skip
        loop = self.program.loops[number]
        taken = self._kernel(loop, names)
        if taken is not None:
            return taken
        values = {name: names.get(name, Unbound(name)) for name in sorted(loop.assigned)}
        try:
            tested = lambda *given: _truth(self._always(lambda: test(*given), loop.source))  # noqa: E731
            return while_true(loop, names, tested, body, broken, self.trace.has_faults)
        except _PASSED_ON:
            raise
        except (Undecided, HloomError) as error:
            if isinstance(test(*values.values()), Value):
                raise
            return self._while_known(loop, names, body, broken, test, error)

    def _while_known(
        self, loop: Loop, names: dict[str, Any], body: Callable, broken: str, test: Callable, error: Exception
    ) -> dict[str, Any]:
        """A loop whose conditions are known, iteration by iteration."""
        before = self.trace.copies

        def several() -> Iterator[Any]:
            for _ in range(UNROLLED):
                found = test(*current.values())
                if isinstance(found, Value):
                    raise error
                if not found:
                    return
                self.trace.copies += before
                if self.trace.copies > COPIES:
                    raise error
                yield
            raise error

        current = {name: names.get(name, Unbound(name)) for name in sorted(loop.assigned)}

        def step(_: Any, *given: Any) -> dict[str, Any]:
            found = body(*given)
            current.update({name: found[name] for name in current})
            return found

        try:
            return self._unrolled(loop, several(), names, step, broken)
        finally:
            self.trace.copies = before

    def _kernel(self, loop: Loop, names: dict[str, Any], items: Any = None) -> dict[str, Any] | None:
        try:
            stop = self.trace.has_faults()
            return kernel_of(loop, items, names, self.program.function, self.trace.watch, stop)
        except HloomError as error:
            if isinstance(error, _PASSED_ON) or not isinstance(error, (UnsupportedError, ArgumentError, DTypeError)):
                raise
            self.trace.refused.append(error)
            return None


def _not_too_many(loop: Loop, items: Iterable) -> Iterator[Any]:
    """What a loop of Python goes over, whose iterations are traced one after the other."""
    for k, item in enumerate(items):
        if k == LISTED:
            asked = f"a loop over more than {LISTED:,} elements of a {type(items).__name__}"
            found = "each of its iterations is compiled by itself"
            error = UnsupportedError(asked, found, "loop over a range or an array")
            error.source = loop.source
            raise error
        yield item


def _over(function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A call of a function of Python about what loops go over; NotImplemented for others."""
    if function is range or is_prange(function):
        return range(*args) if all(map(_is_integer, args)) else range_of(args)
    if function is len and args and isinstance(args[0], (Array, np.ndarray)):
        return len(args[0])
    if function in (np.ndenumerate, np.ndindex):
        return _over_positions(function, args)
    if function is reversed and len(args) == 1 and isinstance(args[0], range):
        return args[0][::-1]
    if function in (enumerate, zip, reversed) and any(isinstance(a, (Array, Items, np.ndarray, range)) for a in args):
        values = tuple([as_value(a) if isinstance(a, np.ndarray) else counted(a) for a in args])
        if all(hasattr(a, "__len__") or isinstance(a, (int, Number, Counted)) for a in values):
            return Items(function, values, kwargs)
    return NotImplemented


def _over_positions(function: Any, args: tuple) -> Any:
    if function is np.ndenumerate:
        return Items(function, (as_value(args[0]),), {})
    dims = tuple(args[0]) if len(args) == 1 and isinstance(args[0], tuple) else args
    return Items(function, tuple([operator.index(n) for n in dims]), {})


def _is_of_hloom(function: Any) -> bool:
    module = (getattr(function, "__module__", None) or "").split(".")
    return module[0] == "hloom" and module[:2] != ["hloom", "benchmarks"]  # these are programs of users


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer))


def _truth(value: Any) -> Any:
    if not isinstance(value, Value):
        return bool(value)
    if value.ndim and value.size != 1:
        raise ArgumentError("the truth value of an array", f"it has {value.size} elements", "use x.any() or x.all()")
    if isinstance(value, Array):
        value = Number(value.traced.reshape(()))
    if value.dtype == np.dtype(bool):
        return value
    return elementwise(np.not_equal, (value, 0))
