"""Checks of values inside of compiled programs whose errors are values too (`jax.experimental.checkify`).

`checkify(f)` returns (error, result) instead of the result; `error.throw()` raises the first failed `check`. The error
of a check at the level of f itself is computed like any other value, so vmap returns one per batch element; checks in
loops, branches and compiled functions inside f report to the host, where the end of f collects the first failure.
"""

from __future__ import annotations

import functools
import itertools
import threading

import numpy as np

from hloom import lax
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.compiler.transforms.inline import inline_calls
from hloom.errors import ArgumentError, HloomError
from hloom.ir.build import Builder
from hloom.ir.types import FLOATS, INEXACT
from hloom.jax.tree_util import register_pytree_node_class
from hloom.tracing.callback import io_callback, pure_callback
from hloom.tracing.signatures import argument_hints, function_name, wraps
from hloom.tracing.trace import apply_computation, as_array, current_trace, trace_function
from hloom.tree import pytrees as tree

ErrorCategory = str
user_checks = frozenset({"user"})
nan_checks = frozenset({"nan"})
div_checks = frozenset({"div"})
index_checks = frozenset({"index"})
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks

_CODE = ShapeDtypeStruct((), np.int32)
KEPT_MESSAGES = 4096


class JaxRuntimeError(HloomError, ValueError):
    """A check failed. The message is the check's own."""

    def __str__(self) -> str:
        return self.asked


class _Messages:
    """Texts of errors by their codes (1, 2, ...), and the code of the first check that failed below the top level."""

    def __init__(self):
        self.texts: dict[int, str] = {}
        self.numbers = itertools.count(1)
        self.lock = threading.Lock()
        self.first = 0

    def add(self, text: str) -> int:
        with self.lock:
            code = next(self.numbers)
            self.texts[code] = text
            self.texts.pop(code - KEPT_MESSAGES, None)
        return code

    def report(self, text: str) -> None:
        self.first = self.first or self.add(text)

    def take(self) -> int:
        code, self.first = self.first, 0
        return code


_messages = _Messages()


class _Contexts(threading.local):
    def __init__(self):
        self.active: list[_Context] = []


class _Context:
    """One run of a checkified function: where it runs, and the codes of its checks, the first first."""

    def __init__(self, errors):
        self.trace, self.errors, self.codes, self.reports = current_trace(), errors, [], False


_contexts = _Contexts()


@register_pytree_node_class
class Error:
    """The outcome of the checks of a call: an array of codes, 0 where nothing failed."""

    def __init__(self, code):
        self.code = code

    def tree_flatten(self):
        return (self.code,), None

    @classmethod
    def tree_unflatten(cls, metadata, children):
        return cls(*children)

    def get(self) -> str | None:
        """The message of the first failed check; None where none failed. For a batch, one line per failed element."""
        codes = np.asarray(self.code)
        if not codes.any():
            return None
        if codes.ndim == 0:
            return _messages.texts.get(int(codes), "a check failed")
        failed = [k for k in np.ndindex(codes.shape) if codes[k]]
        return "\n".join(
            f"at mapped index {', '.join(map(str, k))}: {_messages.texts.get(int(codes[k]), 'a check failed')}"
            for k in failed
        )

    def throw(self) -> None:
        """Raises JaxRuntimeError where a check failed."""
        message = self.get()
        if message is not None:
            raise JaxRuntimeError(message)

    def __repr__(self) -> str:
        return f"Error({self.get() if not current_trace() else self.code!r})"


def check(pred, msg: str, *fmt_args, debug: bool = False, **fmt_kwargs) -> None:
    """Checks that pred, a bool scalar, is true; msg, formatted with the other arguments, is the error otherwise.

    Inside of a function under `checkify` the failure becomes its error. Elsewhere it is raised immediately
    (JaxRuntimeError), and in a program that is compiled without `checkify` ArgumentError is raised; with debug=True
    the check is left out in both cases.
    """
    pred = as_array(pred, "the predicate of checkify.check")
    if pred.dtype != np.bool_ or pred.shape:
        raise ArgumentError("checkify.check takes a bool scalar", f"{pred._shape!r}", "reduce with hnp.all")
    context = _contexts.active[-1] if _contexts.active else None
    if context is None:
        if debug:
            return
        if current_trace() is None:
            if not bool(pred):
                raise JaxRuntimeError(_text(msg, fmt_args, fmt_kwargs))
        else:
            raise ArgumentError(
                "checkify.check in a compiled program",
                "it is not inside checkify",
                "call hl.jit(checkify.checkify(f)), which returns the error too",
            )
        return
    if "user" not in context.errors:
        return
    if current_trace() is context.trace:
        context.codes.append(_code(pred, functools.partial(_text, msg), fmt_args, fmt_kwargs))
        return

    def report(ok, args, kwargs):
        if not ok:
            _messages.report(_text(msg, args, kwargs))
        return np.int32(0)

    context.reports = True
    io_callback(report, _CODE, pred, fmt_args, fmt_kwargs)


def debug_check(pred, msg: str, *fmt_args, **fmt_kwargs) -> None:
    """A `check` that does nothing without `checkify` around it, eagerly too."""
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def check_error(error: Error) -> None:
    """Raises an error immediately or, inside another `checkify`, adds it to that one's."""
    code = as_array(error.code)
    if current_trace() is None and not _contexts.active:
        error.throw()
    elif _contexts.active and current_trace() is _contexts.active[-1].trace:
        _contexts.active[-1].codes.append(code)
    else:
        check(code == 0, "a check failed")


def _text(msg: str, args, kwargs) -> str:
    return msg.format(*args, **kwargs) + " (`check` failed)"


def _code(pred, text, *values):
    """The code (an s32 scalar) of the message text(*values) where pred is false; 0 where it is true."""

    def number(ok, *values):
        return np.int32(0 if ok else _messages.add(text(*values)))

    return pure_callback(number, _CODE, pred, *values, vmap_method="sequential")


def checkify(f, errors=user_checks):
    """The function that returns (Error, f(...)).

    errors: which checks count: user_checks (`check`), nan_checks (NaN out of an operation), div_checks (a divisor that
    is zero), float_checks (both), index_checks (indexes that are clamped or dropped), all_checks. Of operations inside
    loops and branches only the results are checked.
    """
    errors = frozenset(errors)
    if errors - all_checks:
        raise ArgumentError("checkify of unknown errors", f"{sorted(errors - all_checks)}", f"{sorted(all_checks)}")

    @wraps(f)
    def checked(*args, **kwargs):
        context = _Context(errors)
        _contexts.active.append(context)
        try:
            result = _watched(f, args, kwargs, context) if errors & automatic_checks else f(*args, **kwargs)
        finally:
            _contexts.active.pop()
        if context.reports:
            context.codes.append(io_callback(lambda: np.int32(_messages.take()), _CODE))
        code = as_array(np.int32(0))
        for other in reversed(context.codes):
            code = lax.select(other != 0, other, code)
        return Error(code), result

    return checked


def _watched(f, args, kwargs, context: _Context):
    """f(*args, **kwargs), with checks of the results of its operations."""
    leaves, structure = tree.flatten((args, kwargs))
    leaves = [as_array(leaf, "an argument of a checkified function") for leaf in leaves]
    name = function_name(f)

    def run(*given, **named):
        inner = _Context(context.errors)
        _contexts.active.append(inner)
        try:
            result = f(*given, **named)
        finally:
            _contexts.active.pop()
        context.reports |= inner.reports
        return result, inner.codes

    traced = trace_function(run, leaves, structure, name, hints=argument_hints(f, args, kwargs))
    computation = inline_calls(traced.computation)
    builder, mapped, watched = Builder(name), {}, []
    for instruction in computation.instructions:
        if instruction is computation.root and instruction.opcode == "tuple":
            continue
        if instruction.opcode == "parameter":
            mapped[instruction] = builder.parameter(instruction.shape, instruction.hint)
            continue
        made = builder.add(instruction.with_operands(tuple(mapped[o] for o in instruction.operands)))
        mapped[instruction] = made
        if "index" in context.errors and made.opcode in _INDEXED:
            watched += [(*pair, instruction.source) for pair in _start_checks(builder, made)]
        if "div" in context.errors and made.opcode == "divide" and made.shape.dtype in INEXACT:
            zero = builder.emit("compare", made.operands[1], _zeros(builder, made.operands[1]), direction="EQ")
            watched.append((zero, "division by zero", instruction.source))
        if "nan" in context.errors and getattr(made.shape, "dtype", None) in FLOATS and made.opcode != "constant":
            nan = builder.emit("compare", made, made, direction="NE")
            watched.append((nan, f"nan generated by primitive: {made.opcode}.", instruction.source))
    outputs = [mapped[o] for o in computation.outputs()]
    program = builder.finish(builder.tuple([*outputs, *(value for value, _, _ in watched)]))
    results = apply_computation(program, [*leaves, *traced.captures])
    for (_, message, source), bad in zip(watched, results[len(outputs) :], strict=True):
        context.codes.append(_code(~bad.any(), functools.partial(str, f"{message} at {source}")))
    result, codes = tree.unflatten(traced.out_tree, results[: len(outputs)])
    context.codes += codes
    return result


_INDEXED = ("gather", "scatter", "dynamic-slice", "dynamic-update-slice")


def _zeros(builder: Builder, like, number: int = 0):
    constant = builder.constant(np.asarray(number, like.shape.dtype))
    return builder.emit("broadcast", constant, shape=like.shape, dimensions=()) if like.dims else constant


def _start_checks(builder: Builder, made) -> list:
    """(whether a start lies outside, message) for each of an indexing operation's axes."""
    dims = made.operands[0].dims
    if made.opcode in ("dynamic-slice", "dynamic-update-slice"):
        sizes = made["dynamic_slice_sizes"] if made.opcode == "dynamic-slice" else made.operands[1].dims
        starts = made.operands[1 if made.opcode == "dynamic-slice" else 2 :]
        axes = list(zip(range(len(dims)), starts, sizes, strict=True))
    else:
        gather = made.opcode == "gather"
        indices = made.operands[1] if gather else made.operands[len(made.operands) // 2]
        along = made["index_vector_dim"]
        named = made["start_index_map" if gather else "scatter_dims_to_operand_dims"]
        axes = []
        for k, axis in enumerate(named):
            start = indices
            if along < len(indices.dims):
                window = [(0, d, 1) for d in indices.dims]
                window[along] = (k, k + 1, 1)
                start = builder.emit("slice", indices, slice=tuple(window))
            axes.append((axis, start, made["slice_sizes"][axis] if gather else 1))
    found = []
    for axis, start, size in axes:
        low = builder.emit("compare", start, _zeros(builder, start), direction="LT")
        high = builder.emit("compare", start, _zeros(builder, start, dims[axis] - size), direction="GT")
        message = f"out-of-bounds indexing for array of shape {tuple(dims)}: axis {axis}"
        found.append((builder.emit("or", low, high), message))
    return found


__all__ = [
    "Error", "ErrorCategory", "JaxRuntimeError", "all_checks", "automatic_checks", "check", "check_error", "checkify",
    "debug_check", "div_checks", "float_checks", "index_checks", "nan_checks", "user_checks",
]  # fmt: skip
__dir__ = __all__.copy
