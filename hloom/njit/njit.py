"""`hl.njit`: a function of NumPy arrays, compiled as it is written."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from hloom import numpy as hnp
from hloom.arrays.array import Array as HloomArray
from hloom.contexts import enable_x64
from hloom.dispatch.jit import jit
from hloom.dispatch.signature import distinct
from hloom.errors import ArgumentError, ConcretizationTypeError, DTypeError, HloomError, UnsupportedError
from hloom.ir.process import forking
from hloom.ir.records import record
from hloom.ir.source import Source
from hloom.kernels.faults import watch
from hloom.kernels.frontend.functions import of_numba
from hloom.njit.arguments.fallback import Fallback
from hloom.njit.arguments.instances import Argument, Constant, flatten, packed_result, unflatten, unpacked
from hloom.njit.arguments.signatures import Signature, chosen, split
from hloom.njit.calls import MISS, Entry, is_quick, same_arrays, settings
from hloom.njit.control import Runtime, Trace, in_order
from hloom.njit.drawing import OUTER, Generator, around, captured, running
from hloom.njit.elements import true_elements
from hloom.njit.guards import watching
from hloom.njit.outside import names_of, noting
from hloom.njit.rewriting import Program, program_of
from hloom.njit.values import PYTHON, Array, Number, Unbound, Undecided, Value, as_value
from hloom.numpy.indexing.nonzero import kernel_for_masks
from hloom.tracing.trace import Tracer, current_trace
from hloom.tree import pytrees as tree

__all__ = ["NumpyFunction", "njit"]


def njit(
    function: Any = None,
    *,
    parallel: bool = False,
    cache: bool = False,
    nogil: bool = False,
    nopython: bool = True,
    boundscheck: bool | None = None,
    fastmath: bool = False,
    error_model: str = "numpy",
    fallback: bool = False,
):
    """Compiles a function of NumPy arrays as it is written: `@hl.njit`.

    >>> @hl.njit
    ... def smooth(x, steps):
    ...     for t in range(steps):
    ...         for i in range(1, len(x) - 1):
    ...             x[i] = (x[i - 1] + x[i] + x[i + 1]) / 3
    >>> x = np.array([0.0, 3.0, 0.0, 3.0])
    >>> smooth(x, 1)
    >>> x
    array([0.        , 1.        , 1.33333333, 3.        ])

    Arrays are NumPy's, with its dtypes, views and rules; what the function changes in place is changed for the caller.
    Loops and branches are compiled from the source. Results are arrays and numbers of NumPy.

    The options are Numba's. Independent loops are divided among the cores, compiled code is kept on disk, and indices
    are checked in any case (parallel, cache, boundscheck); so is Python's lock released (nogil). fastmath is accepted,
    and results keep NumPy's rounding. error_model: "numpy", a division by zero is inf or NaN.

    fallback: what cannot be compiled runs in Python, as it is written, with one FallbackWarning per function that names
    the line and the reason. Calls within `hl.jit`, `hl.grad` and other transformations stay errors.

    In place of the function there may be signatures, as text or Numba's types: `@hl.njit("float64(float64[:])")`, or a
    list of such. A call takes the one that needs the fewest conversions: numbers are converted, arrays have to have the
    declared dtype and dimensions. A function of floats alone is compiled at once; others at their first calls, where
    shapes and sizes are known.

    Raises, at the line of the function: UnsupportedError for what cannot be compiled, ShapeError for an index out of
    range, and DTypeError for arguments that no signature takes.
    """
    function, signatures = split(function)
    if not nopython or error_model != "numpy":
        asked = "nopython=False" if not nopython else f"error_model={error_model!r}"
        raise ArgumentError(f"hl.njit with {asked}", "it is not supported", 'use nopython=True and error_model="numpy"')

    def decorated(given: Callable) -> NumpyFunction:
        if not callable(given):
            raise ArgumentError("hl.njit takes a function", type(given).__name__, "decorate a function")
        return NumpyFunction(of_numba(given)[0], signatures, fallback)

    return decorated if function is None else decorated(function)


@record(frozen=True)
class Spec:
    """The key of a call's program.

    tree, names: of the arguments. known: Python values, by the index of their leaf. python: indices of leaves that are
    Python numbers. same: leaves that are one array; None: some share a part of their memory, and none may be changed.
    strided: arrays whose elements are not in C order. single: arrays without dimensions.
    """

    tree: Any
    names: tuple[str, ...]
    known: tuple[tuple[int, Any, Any], ...]
    python: tuple[tuple[int, type], ...]
    same: tuple[tuple[int, int], ...] | None
    strided: tuple[int, ...]
    single: tuple[int, ...]

    def given(self, count: int) -> list[int]:
        """Of `count` leaves, those that are arguments of the program, in order."""
        known = {number for number, *_ in self.known}
        return [k for k in range(count) if k not in known]


class Variant:
    """A function for arguments of a spec: `jitted` takes the arrays among them. trace: its last trace."""

    def __init__(self, function: NumpyFunction, spec: Spec):
        self.function, self.spec, self.trace = function, spec, Trace()

        def run(*arrays):
            with enable_x64():
                return self._traced(arrays)

        run.__name__ = run.__qualname__ = function.name
        self.jitted = jit(run)

    def _traced(self, arrays: Sequence[Any]) -> dict[str, Any]:
        spec, signature = self.spec, self.function.signature
        values = self._values(arrays)
        same = dict(spec.same or ())
        before = {k: v.ref.read() for k, v in enumerate(values) if isinstance(v, Array) and k not in same}
        arguments = dict(zip(spec.names, unflatten(spec.tree, values), strict=True))
        self.trace = Trace(current_trace())
        outer = around(self.function.written, self.function.names)
        own = {name: value for name, value in arguments.items() if name != OUTER}
        known = captured.set({id(g): state for g, state in zip(outer, arguments.get(OUTER, ()), strict=False)})
        watched, noted = watching.set(self.trace.watch), noting.set(self.trace.outside.add)
        masks = kernel_for_masks.set(true_elements)
        try:
            function = Runtime(self.function.program, self.trace).function()
            kinds = [p.kind for p in signature.parameters.values()]
            if any(kind in (kind.POSITIONAL_ONLY, kind.VAR_POSITIONAL, kind.VAR_KEYWORD) for kind in kinds):
                bound = inspect.BoundArguments(signature, own)
                result = function(*bound.args, **bound.kwargs)
            else:
                result = function(**own)
            written = {str(k): values[k].ref.read() for k, v in before.items() if values[k].ref.read() is not v}
            if written and spec.same is None:
                raise ArgumentError(
                    "arguments of a compiled NumPy program that changes one in place",
                    "two of them share memory, and are not the same array", "pass the whole array, and index it inside",
                )  # fmt: skip
            self._require_kept(values, list(arguments.values()))
            result = packed_result(result)
            _require_no_generator(result, self.function.name)
            result = self._with_arguments(result, values, written)
            leaves = tree.flatten(result)[0]
            self.trace.single = [k for k, v in enumerate(leaves) if isinstance(v, (Array, np.ndarray)) and not v.ndim]
            return {"result": self._results(result), "written": written, "faults": self.trace.faults()}
        finally:
            kernel_for_masks.reset(masks)
            watching.reset(watched)
            noting.reset(noted)
            captured.reset(known)

    @staticmethod
    def _with_arguments(result: Any, values: list[Any], written: dict[str, Any]) -> Any:
        """The result, with the arguments that are changed and returned as such: they are not computed twice."""
        numbers = {id(values[int(k)].ref): int(k) for k in written}

        def named(value: Any) -> Any:
            if isinstance(value, Array) and not value.steps and id(value.ref) in numbers:
                return Constant(Argument(numbers[id(value.ref)]))
            return value

        return tree.map(named, result)

    def _results(self, result: Any) -> Any:
        try:
            return tree.map(_result, result)
        except HloomError as error:  # no line of the function reads its result
            error.source = self._definition
            raise

    @property
    def _definition(self) -> Source:
        code = self.function.program.function.__code__
        return Source(code.co_filename, code.co_firstlineno, self.function.name)

    def _require_kept(self, values: list[Any], arguments: list[Any]) -> None:
        """Refuses changes of lists, dicts and instances that are arguments: those of the caller would not change."""
        leaves, structure = flatten(arguments)
        if structure != self.spec.tree or any(a is not b for a, b in zip(leaves, values, strict=True)):
            names = self.spec.names
            changed = [n for n, v in zip(names, arguments, strict=True) if not isinstance(v, (Value, np.ndarray))]
            raise UnsupportedError(
                f"a change of an argument of '{self.function.name}', which is a list, a dict or an instance",
                f"one of {', '.join(changed)} has other elements",
                "write into its arrays, x[:] = y, or return the new value", self._definition,
            )  # fmt: skip

    def _values(self, arrays: Sequence[Any]) -> list[Any]:
        """The values of the arguments' leaves."""
        spec = self.spec
        fixed = {k: _thawed(value) for k, value, _ in spec.known}
        python, same = dict(spec.python), dict(spec.same or ())
        rest = iter(arrays)
        values: list[Any] = []
        for k in range(len(fixed) + len(arrays)):
            if k in fixed:
                values.append(fixed[k])
                continue
            array = next(rest)
            if k in same:
                values.append(values[same[k]])
            elif k in python:
                values.append(Number(array, python[k]))
            else:
                values.append(Array.of(array) if array.shape or k in spec.single else Number(array))
                if k in spec.strided:
                    values[-1].strided = True
        return values


class NumpyFunction:
    """A function compiled by `hl.njit`."""

    def __init__(self, function: Callable, signatures: Sequence[Signature] = (), fallback: bool = False):
        functools.update_wrapper(self, function)
        self.written, self.declared = function, tuple(signatures)
        self.name: str = getattr(function, "__name__", "function")
        self.signature = inspect.signature(function)
        self._known: tuple[type, ...] = ()  # the types of numbers that are constants of a program, as shapes need them
        self._lock = forking.rlock()  # one thread compiles
        self._variants: dict[Spec, Variant] = {}
        self._entries: dict[Any, Entry] = {}
        self._last: Entry | None = None  # the program of the last call
        self._fallback = Fallback(function) if fallback else None
        for one in self.declared:
            self._declare(one)

    def _declare(self, declared: Signature) -> None:
        """Reads the function of a signature, and compiles it if it takes numbers alone: arrays have no shape yet."""
        if len(declared.args) != len(self.signature.parameters):
            raise ArgumentError(f"a signature of {self.name}{self.signature}", str(declared), "declare each argument")
        if self._fallback is not None:
            return  # calls find out
        assert self.program  # mistakes of syntax are errors here
        if not any(t.ndim or t.dtype.kind in "iub" for t in declared.args):  # integers may decide shapes
            numbers = [t.dtype.type(1) for t in declared.args]
            self._entry(self._bound(numbers, {}), tree.structure(numbers), numbers, plain=True)

    @functools.cached_property
    def program(self) -> Program:
        return program_of(self.written)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The names that it may read of its module."""
        return tuple(names_of(self.written.__code__))

    def _running(self, bound: dict[str, Any], changes: bool = True) -> Any:
        return running(bound, around(self.written, self.names), changes)

    def __get__(self, owner, kind=None):
        return self if owner is None else functools.partial(self, owner)

    def __call__(self, *args, **kwargs):
        last = self._last
        if last is not None and not kwargs and (found := last.quick(args)) is not MISS:
            return found
        if self.declared:
            given = tuple(self._bound(args, kwargs).values())
            return chosen(self.declared, given, self.name).returned(self._call(given, {}), self.name)
        return self._call(args, kwargs)

    def _call(self, args, kwargs):
        if not kwargs:
            entry = self._entries.get(self._key(args))
            if entry is not None and entry.fits(args):
                self._last = None if self.declared else entry
                return entry(args)
        return self._longer_call(args, kwargs)

    def _key(self, leaves: Sequence[Any]) -> tuple:
        """What a compiled program depends on, of arguments without structure."""
        return (
            settings(),
            *[(leaf.dtype, leaf.shape) if type(leaf) is np.ndarray else self._key_of(leaf) for leaf in leaves],
        )

    def _key_of(self, leaf: Any) -> Any:
        kind = type(leaf)
        if (kind in PYTHON or isinstance(leaf, np.generic)) and not isinstance(leaf, self._known):
            return kind
        try:
            hash(_frozen(leaf))
        except TypeError:
            return (kind, id(leaf))  # a tree, or an array of hloom: such calls take the longer way
        return distinct(_frozen(leaf))

    def _longer_call(self, args, kwargs):
        """A call that compiles, or whose arguments are trees, generators, hloom's arrays or traced values."""
        given = self._bound(args, kwargs)
        with self._running(given) as bound:
            return self._ran(bound, given, args, kwargs)

    def _ran(self, bound: dict[str, Any], given: dict[str, Any], args, kwargs):
        """given: the arguments; bound: those with the states of generators."""
        leaves, structure = flatten(list(bound.values()))
        is_plain = current_trace() is None and not any(isinstance(leaf, Tracer) for leaf in leaves)
        if is_plain and self._fallback is not None:
            return self._compiled_or_not(self._fallback, bound, given)
        if is_plain and is_quick():
            own = _own(leaves)
            plain = not kwargs and len(args) == len(leaves) and all(a is b for a, b in zip(args, leaves, strict=True))
            with self._lock:
                entry = self._entry(bound, structure, own, plain)
            _require_numpy(leaves, entry.writes, self.name)
            return entry(own)
        return self._written_back(bound, leaves)

    def _compiled_or_not(self, fallback: Fallback, bound: dict[str, Any], given: dict[str, Any]) -> Any:
        """A call with `fallback=True`. Only errors before the program runs are reasons to run it in Python."""
        leaves, structure = flatten(list(bound.values()))
        own = _own(leaves)
        reason = entry = None
        if not fallback.takes(structure, own):
            known = self._known
            try:
                with self._lock:
                    if is_quick():
                        entry = self._entry(bound, structure, own, False)
                    else:
                        self._until_decided(bound, _lowered)
            except Exception as error:
                reason, self._known = error, known
                fallback.always = "program" not in vars(self)
                fallback.add(structure, own)
            else:
                if entry is None:
                    return self._written_back(bound, leaves)
                _require_numpy(leaves, entry.writes, self.name)
                return entry(own)
        if any(isinstance(leaf, HloomArray) for leaf in leaves):
            leaves, structure = flatten(list(given.values()))
            own = _own(leaves)
            given = dict(zip(given, unflatten(structure, own), strict=True))
        written = inspect.BoundArguments(self.signature, given)
        return fallback.run(reason, written.args, written.kwargs)

    def _written_back(self, bound: dict[str, Any], leaves: list) -> Any:
        """A call by `jit`, with what it changes in place in the caller's arrays."""
        made = self._in_program(bound)
        _require_numpy(leaves, [int(k) for k in made["written"]], self.name)
        for k, value in made["written"].items():
            np.copyto(leaves[int(k)], np.asarray(value))
        return unpacked(made["result"], leaves)

    def _entry(self, bound: dict[str, Any], structure: Any, own: list, plain: bool) -> Entry:
        """The compiled program for arguments, with arrays of NumPy as leaves. plain: whether the leaves are the
        arguments."""
        key = (structure, self._key(own))
        entry = self._entries.get(key)
        if entry is None or not entry.fits(own):
            variant, compiled = self._until_decided(bound, _compiled)
            entry = Entry(compiled, variant.spec, self.name, len(own), variant.trace)
            self._entries[structure, self._key(own)] = entry  # integers may be known now
            if plain:
                self._entries[self._key(own)] = entry
                entry.expect(own, self._known)
        return entry

    def pure(self, *args, **kwargs):
        """(the result, the last values of the arguments that it changes, by number of their leaf). Changes nothing."""
        with self._running(self._bound(args, kwargs), changes=False) as bound:
            made = self._in_program(bound)
        return unpacked(made["result"], {int(k): value for k, value in made["written"].items()}), made["written"]

    def lower(self, *args, **kwargs):
        """As `hl.jit(f).lower(...)`."""
        with self._running(self._bound(args, kwargs), changes=False) as bound, self._lock:
            return self._until_decided(bound, _lowered)[1]

    def _in_program(self, bound: dict[str, Any]) -> dict[str, Any]:
        """A call by `jit`, whose results are hloom's."""
        # Derivatives need to know how often loops run.
        with self._lock:
            known = self._known or INTEGERS
            while True:
                spec, arrays = self._arguments(bound, known)
                variant = self._variant(spec)
                try:
                    made = self._decided(variant, functools.partial(variant.jitted, *arrays))
                    break
                except ConcretizationTypeError:
                    if known is NUMBERS or not any(kind is float for _, kind in spec.python):
                        raise
                    known = NUMBERS
        for number, word in in_order(made["faults"]):
            watch(*Trace.checked[int(number)], word)
        return made

    def _until_decided(self, bound: dict[str, Any], run: Callable) -> tuple[Variant, Any]:
        """(the variant for arguments, what it ran to); integers become known where the program asks for one, and where
        these are not enough, all numbers."""
        while self._known is not NUMBERS:
            spec, arrays = self._arguments(bound, self._known)
            variant = self._variant(spec)
            try:
                return variant, run(variant, arrays)
            except (Undecided, HloomError) as error:
                wanted = isinstance(error, (Undecided, ConcretizationTypeError))
                # What is refused for an unknown integer, as a size or a branch on it, may be taken for a known one;
                # functions of hloom have sizes, axes and orders that are known.
                more = (INTEGERS, NUMBERS) if wanted else (INTEGERS,)
                leaves = [v for v in flatten(list(bound.values()))[0] if not isinstance(v, self._known)]
                known = next((types for types in more if any(isinstance(v, types) for v in leaves)), None)
                if known is None:
                    return variant, self._decided(variant, functools.partial(_raise, error))
            self._known = known
            self._entries.clear()
            self._last = None
        spec, arrays = self._arguments(bound, self._known)
        variant = self._variant(spec)
        return variant, self._decided(variant, lambda: run(variant, arrays))

    def _decided(self, variant: Variant, run: Callable[[], Any]) -> Any:
        """Runs with all integers of Python known; what is still undecided is an error."""
        try:
            return run()
        except Undecided as error:
            if variant.trace.refused and not error.always:  # no kernel would take what is not known
                raise variant.trace.refused[0] from None
            raise ArgumentError(
                f"{error.what} that is known while '{self.name}' is compiled",
                "it is computed from the arrays' elements", "compute it from shapes and integers", error.source,
            ) from None  # fmt: skip

    def _bound(self, args, kwargs) -> dict[str, Any]:
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"a call of {self.name}", str(error), f"call {self.name}{self.signature}") from None
        bound.apply_defaults()
        found = dict(bound.arguments)
        return chosen(self.declared, list(found.values()), self.name).converted(found) if self.declared else found

    def _arguments(self, bound: dict[str, Any], constant: tuple[type, ...]) -> tuple[Spec, list]:
        """constant: the types of numbers that are constants of the program."""
        leaves, structure = flatten(list(bound.values()))
        known, python, arrays = [], [], []
        for k, leaf in enumerate(leaves):
            kind = type(leaf)
            if isinstance(leaf, constant):
                known.append((k, leaf, distinct(leaf)))
            elif kind in PYTHON:
                python.append((k, kind))
                arrays.append(PYTHON[kind].type(leaf))
            elif isinstance(leaf, (np.ndarray, np.generic)) or hasattr(leaf, "_shape"):
                if isinstance(leaf, np.ndarray) and leaf.dtype.kind not in "biufc":
                    raise DTypeError(f"an argument of {self.name}", f"an array of {leaf.dtype}", "pass numbers")
                arrays.append(leaf)
            else:
                known.append((k, value := self._constant(leaf), distinct(value)))
        strided = tuple([k for k, v in enumerate(leaves) if isinstance(v, np.ndarray) and not v.flags.c_contiguous])
        single = tuple([k for k, v in enumerate(leaves) if isinstance(v, np.ndarray) and not v.ndim])
        named = tuple(bound)
        return Spec(structure, named, tuple(known), tuple(python), same_arrays(leaves), strided, single), arrays

    def _constant(self, leaf: Any) -> Any:
        """An argument that a program is compiled for: it is looked up by its hash."""
        value = frozenset(leaf) if isinstance(leaf, set) else _frozen(leaf)
        try:
            hash(value)
        except TypeError:
            found = f"a {type(leaf).__name__}, which has no hash"
            repair = "pass arrays, numbers, or tuples, lists, dicts and dataclasses of them"
            raise ArgumentError(f"an argument of {self.name}", found, repair) from None
        return value

    def _variant(self, spec: Spec) -> Variant:
        found = self._variants.get(spec)
        if found is None or found.trace.outside.changed():
            found = self._variants[spec] = Variant(self, spec)
        return found


# Types of the numbers that become constants of a program where it needs them.
INTEGERS = (int, np.integer, np.bool_)  # truth values of Python too
NUMBERS = (*INTEGERS, float, np.floating)


def _own(leaves: Sequence[Any]) -> list[Any]:
    """Leaves with NumPy's arrays in the place of hloom's."""
    return [np.asarray(leaf)[()] if isinstance(leaf, HloomArray) else leaf for leaf in leaves]


def _raise(error: Exception) -> NoReturn:
    raise error


def _frozen(leaf: Any) -> Any:
    """An argument that can be a key: slices have no hash."""
    return _Slice(leaf.start, leaf.stop, leaf.step) if isinstance(leaf, slice) else leaf


def _thawed(value: Any) -> Any:
    return slice(*value) if isinstance(value, _Slice) else value


class _Slice(NamedTuple):
    start: Any
    stop: Any
    step: Any


def _require_no_generator(result: Any, name: str) -> None:
    if any(isinstance(v, Generator) for v in tree.leaves(result, lambda v: isinstance(v, Generator))):
        raise UnsupportedError(f"the result of '{name}'", "a generator of random numbers",
                               "pass a generator as an argument, whose state changes")  # fmt: skip


def _lowered(variant: Variant, arrays: list) -> Any:
    return variant.jitted.lower(*arrays)


def _compiled(variant: Variant, arrays: list) -> Any:
    """The program, which computes the arguments that it changes in their memory where it can."""
    lowered = _lowered(variant, arrays)
    results = lowered.out_tree
    written = tree.unflatten(results, list(range(results.num_leaves)))["written"]
    given = variant.spec.given(len(arrays) + len(variant.spec.known))
    return lowered.compile_in_place({number: given.index(int(k)) for k, number in written.items()})


def _result(value: Any) -> Any:
    if isinstance(value, Unbound):
        value._fail()
    if type(value) in PYTHON:
        return hnp.asarray(np.asarray(value, PYTHON[type(value)]))
    if not isinstance(value, (Value, np.ndarray, np.generic)):
        return value
    found = as_value(value).traced
    return found.astype(found.dtype) if found.weak else found


def _require_numpy(leaves: list, written: Sequence[int], name: str) -> None:
    for k in written:
        if not isinstance(leaves[k], np.ndarray):
            raise ArgumentError(
                f"'{name}' changes an argument in place", f"it is {type(leaves[k]).__name__}, which cannot be changed",
                f"pass an array of NumPy, or call {name}.pure(...), which returns the new values",
            )  # fmt: skip


setattr(sys.modules["hloom"], "njit", njit)  # noqa: B010  (the import of the package has bound the name to the package)
