"""Numba's tests on `hl.njit`: what stands in for `numba.njit` and `numba.jit` while Numba's test modules are imported.

A test that asks for what is no NumPy and no control flow is excluded where it asks: `unittest.SkipTest` with a reason
of EXCLUDED. Results are compared as the tests compare them, but for their strides, and whether they are read-only:
results of hloom are in C order, and no views.
"""

from __future__ import annotations

import contextlib
import inspect
import linecache
import os
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.core.errors import NumbaError, NumbaWarning
from numba.tests import support

import hloom as hl
from hloom.errors import HloomError, UnsupportedError

__all__ = ["EXCLUDED", "computed", "install", "prepare"]

# Reasons to leave a test out, by their name.
EXCLUDED = {
    "objects": "object mode, strings, sets, dicts, typed lists, classes, functions as values",
    "dtypes": "records, dates, strings and objects as elements",
    "internals": "Numba's compiler: its types, intermediate representation, caches, overloads, debug information",
    "errors": "only what Numba refuses, the text of an error, or nothing, as they pass over the type in their name",
    "source": "functions made by `exec`, which have no source",
    "numba's own": "Numba's decorators and functions that are neither NumPy's nor Python's",
    "division": '`error_model="python"`: a division by zero raises',
    "promotion": "fewer than 64 bits, and integers with and without sign together, in dtypes that are not NumPy's",
    "frozen": "values from outside that stay as they were when the function was compiled",
    "memory": "which object, or whose memory, a result is; strides and flags",
    "undefined": "results that NumPy leaves open: searches in arrays that are not sorted",
    "random": "random numbers",
    "recursion": "recursion and generators",
}
_INTERNAL = frozenset(("pipeline_class", "locals", "debug", "looplift", "_dbg_extend_lifetime", "_dbg_optnone"))
_DROPPED = frozenset(("inline", "no_cpython_wrapper", "no_cfunc_wrapper", "forceinline", "no_rewrites", "_nrt"))
# Arguments and results that are no numbers, arrays of numbers, or tuples and lists of them.
_OBJECTS = (set, frozenset, dict, str, bytes, bytearray, memoryview, numba.typed.List, numba.typed.Dict)
# The class of what `hl.njit` makes.
NumpyFunction: Any = type(hl.njit(lambda x: x))
computed = [0]  # calls that returned, or raised what was asked for


def _excluded(reason: str, what: object = "") -> unittest.SkipTest:
    assert reason in EXCLUDED
    return unittest.SkipTest(f"{reason}: {what}")


class Border(NumpyFunction):
    """A function compiled by `hl.njit`, with Numba's arguments and results. types: of a signature, or None."""

    def __init__(self, function: Callable, asked: tuple | None):
        super().__init__(function)
        self.py_func, self.asked = function, asked

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.asked is not None:
            args = tuple([_cast(t, a) for t, a in zip(self.asked, args, strict=False)]) + args[len(self.asked) :]
        try:
            found = super().__call__(*args, **kwargs)
        except Exception:
            self._exclude([*args, *kwargs.values()])
            raise
        computed[0] += 1
        return _as_numba(found)

    def _exclude(self, args: list[Any]) -> None:
        """Excludes the test, if a call failed that is not for numbers and arrays."""
        for a in args:
            for part in _parts(a):
                if isinstance(part, np.ndarray) and part.dtype.kind not in "biufc":
                    raise _excluded("dtypes", part.dtype)
                if isinstance(part, (np.datetime64, np.timedelta64, np.void)):
                    raise _excluded("dtypes", type(part).__name__)
                if isinstance(part, (*_OBJECTS, type(None))) or inspect.isclass(part) or inspect.isfunction(part):
                    raise _excluded("objects", type(part).__name__)
                if isinstance(part, types.Type):
                    raise _excluded("internals", part)
        try:
            inspect.getsource(self.py_func)
        except (OSError, TypeError):
            raise _excluded("source", self.name) from None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _excluded("internals", f".{name} of a dispatcher")


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for v in value:
            yield from _parts(v)
    else:
        yield value


def _cast(kind: Any, value: Any) -> Any:
    """An argument in the type of a signature. Numba computes integers in 64 bits, and with floats
    of 32 bits and constants in 64: they are Python's here."""
    if isinstance(kind, types.Boolean):
        return bool(value)
    if isinstance(kind, types.Integer):
        is_wide = not kind.signed and kind.bitwidth == 64
        return np.uint64(int(value) & ((1 << 64) - 1)) if is_wide else int(value)
    if isinstance(kind, types.Float):
        return float(value)
    if isinstance(kind, types.Complex):
        return complex(value)
    return value


def _as_numba(found: Any) -> Any:
    """A result as Numba returns it: numbers are Python's."""
    if isinstance(found, np.generic):
        return found.item()
    if isinstance(found, tuple):
        parts = [_as_numba(f) for f in found]
        return type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)
    return [_as_numba(f) for f in found] if isinstance(found, list) else found


def _njit(function: Any = None, /, *more: Any, **options: Any) -> Any:
    options.pop("signature_or_function", None)
    if options.pop("forceobj", False) or options.pop("nopython", True) is False:
        return _later(function, "objects", "object mode")
    internal = [o for o in _INTERNAL & options.keys() if options[o] not in (None, False)]
    if internal or more:
        return _later(function, "internals", f"njit({', '.join(internal)}=)" if internal else "several types")
    options = {k: v for k, v in options.items() if k not in _DROPPED | _INTERNAL}
    if "inline" in options:
        options.pop("inline")
    if isinstance(function, Border):
        return function
    asked = None
    if function is not None and not inspect.isfunction(function):
        if isinstance(function, list):
            function = function[0] if len(function) == 1 else None
            if function is None:
                return _later(None, "internals", "several signatures")
        asked = _types_of(function)
        if asked is None:
            return _compiled(function, None, options)
        function = None

    def decorate(f: Callable) -> Any:
        return _compiled(f, asked, options)

    return decorate if function is None else _compiled(function, asked, options)


def _compiled(function: Any, asked: tuple | None, options: dict[str, Any]) -> Any:
    hl.njit(**options)  # which options it takes
    return function if isinstance(function, Border) else Border(getattr(function, "py_func", function), asked)


def _types_of(signature: Any) -> tuple | None:
    """The types of arguments in a signature; None for what is none."""
    if isinstance(signature, str):
        signature = numba.core.sigutils.normalize_signature(signature)[0]
    if isinstance(signature, tuple):
        return signature if all(isinstance(t, types.Type) for t in signature) else None
    return getattr(signature, "args", None)


class _Later:
    """A decorator, or a function, whose call excludes the test: some are made when a module is imported."""

    def __init__(self, function: Any, reason: str, what: str):
        self.py_func, self.reason, self.what = function, reason, what

    def __call__(self, *args: Any, **_: Any) -> Any:
        if self.py_func is None and len(args) == 1 and inspect.isfunction(args[0]):
            return _Later(args[0], self.reason, self.what)
        raise _excluded(self.reason, self.what)


def _later(function: Any, reason: str, what: str) -> Any:
    return _Later(function if inspect.isfunction(function) else None, reason, what)


def _not_here(name: str) -> Callable:
    def decorator(function: Any = None, *_: Any, **__: Any) -> Any:
        return _later(function, "numba's own", name)

    return decorator


# --- errors


class _Raises:
    """`assertRaises`: the class counts, not the text; an error of hloom's about its arguments is one of NumPy's."""

    def __init__(self, test: unittest.TestCase, classes: tuple[type, ...]):
        self.test, self.classes = test, classes
        self.of_numba = any(issubclass(c, NumbaError) for c in classes)

    def __enter__(self) -> _Raises:
        self.before = computed[0]
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if self.of_numba:  # what Numba refuses may work here
            computed[0] = self.before
            return error is None or (isinstance(error, Exception) and not isinstance(error, unittest.SkipTest))
        if error is None:
            self.test.fail(f"{self.classes[0].__name__} not raised")
        taken = isinstance(error, HloomError) and not isinstance(error, UnsupportedError)
        if taken or isinstance(error, self.classes):
            computed[0] += 1
            return True
        return False

    @property
    def exception(self) -> Any:
        raise _excluded("errors", "the text of an error")


def _assert_raises(test: unittest.TestCase, expected: Any, *args: Any, **kwargs: Any) -> Any:
    block = _Raises(test, expected if isinstance(expected, tuple) else (expected,))
    if not args or args[0] is None:
        return block
    with block:
        args[0](*args[1:], **kwargs)
    return None


def _assert_raises_regex(test: unittest.TestCase, expected: Any, regex: Any, *args: Any, **kwargs: Any) -> Any:
    return _assert_raises(test, expected, *args, **kwargs)


@contextlib.contextmanager
def _assert_typing_error(test: unittest.TestCase) -> Iterator[Any]:
    with _Raises(test, (NumbaError,)) as block:
        yield block


_assert_warns = unittest.TestCase.assertWarns


def _warns(test: unittest.TestCase, expected: Any, *args: Any, **kwargs: Any) -> Any:
    if any(issubclass(c, NumbaWarning) for c in (expected if isinstance(expected, tuple) else (expected,))):
        raise _excluded("errors", "a warning of Numba's")
    return _assert_warns(test, expected, *args, **kwargs)


def _writable(compare: Callable) -> Callable:
    """A comparison that does not look whether arrays are read-only: results of hloom are no views."""

    def compared(test: Any, first: Any, second: Any, *args: Any, **kwargs: Any) -> None:
        pair = [x.copy() if isinstance(x, np.ndarray) and not x.flags.writeable else x for x in (first, second)]
        compare(test, *pair, *args, **kwargs)

    return compared


def install() -> None:
    """Puts `hl.njit` in the place of Numba's: for test modules that are imported afterwards."""
    numba.njit = numba.jit = _njit
    for name in ("vectorize", "guvectorize", "stencil", "cfunc", "jit_module", "literal_unroll", "literally"):
        setattr(numba, name, _not_here(name))
    case: Any = unittest.TestCase
    case.assertRaises, case.assertRaisesRegex, case.assertWarns = _assert_raises, _assert_raises_regex, _warns
    ours: Any = support.TestCase
    ours.assertTypingError = _assert_typing_error
    ours.assertRefCount = lambda self, *objects: contextlib.nullcontext()
    ours.assertNoNRTLeak = lambda self: contextlib.nullcontext()
    ours._fix_strides = lambda self, array: []
    ours._assertPreciseEqual = _writable(ours._assertPreciseEqual)


def _of_text(function: Callable) -> Callable:
    """A maker of functions by `exec`, which then have a source."""

    def made(*args: Any) -> Any:
        texts: list[str] = []

        def run(text: Any, *scopes: Any) -> None:
            name = f"<{function.__name__} {args}>"
            texts.append(text)
            linecache.cache[name] = (len(text), None, text.splitlines(True), name)
            exec(compile(text, name, "exec"), *scopes)

        scope = {**function.__globals__, "exec": run}  # type: ignore[attr-defined]
        found = type(function)(function.__code__, scope)(*args)  # type: ignore[attr-defined, call-arg]
        if texts:
            found.__name__ = "fn"  # as in its source
        return found

    return made


def loaded(module: Any) -> None:
    """Leaves out what a test module checks of Numba's memory and of the order of elements in results."""
    for name, one in list(vars(module).items()):
        if isinstance(one, type):
            for check in ("assert_array_nrt_refct", "assert_contig_sanity"):
                if check in vars(one):
                    setattr(one, check, lambda self, *_: None)
        if name.startswith("_make_") and name.endswith("_usecase") and inspect.isfunction(one):
            setattr(module, name, _of_text(one))


def prepare(test: str) -> None:
    """Tests that Numba runs in a process of their own run here."""
    os.environ["SUBPROC_TEST"] = test.rpartition(".")[2]
    computed[0] = 0
