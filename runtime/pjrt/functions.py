"""How native functions are written: the body of a function of the C interface, or a helper that others call."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

from hloom.ir.records import replace
from hloom.runtime.driver_source import NativeFunction
from hloom.runtime.pjrt.blocks import CONSTANTS
from hloom.runtime.pjrt.interface import CODES, FIELDS, FUNCTIONS, HEADER_WORDS

__all__ = ["argument_words", "c_function", "error_helper", "getter", "helper", "linked", "symbol", "unimplemented"]

_Signature = tuple[tuple[str, ...], str]


def _signature(count: int, result: str = "s64") -> _Signature:
    return ("s64",) * count, result


_LIBRARY: dict[str, _Signature] = {
    "malloc": _signature(1),
    "calloc": _signature(2),
    "free": _signature(1, "void"),
    "aligned_alloc": _signature(2),
    "madvise": _signature(3, "s32"),
    "pthread_mutex_lock": _signature(1, "s32"),
    "pthread_mutex_unlock": _signature(1, "s32"),
    "pthread_cond_wait": _signature(2, "s32"),
    "pthread_cond_broadcast": _signature(1, "s32"),
    "sched_yield": _signature(0, "s32"),
    "clock_gettime": _signature(2, "s32"),
}
_NAMES = re.compile(r"\b[A-Za-z_][A-Za-z0-9_]*\b")


def symbol(name: str) -> str:
    """The symbol of a function of the C interface."""
    return f"pjrt_{name}"


def argument_words(name: str) -> dict[str, int]:
    """The offsets of the arguments of a C interface function in its struct: {A_NAME: word}."""
    return {f"A_{field.upper()}": HEADER_WORDS + word for word, field in enumerate(FIELDS[name]) if "+" not in field}


def _native(name: str, parameters: str, body: str, constants: Mapping[str, int], exported: bool) -> NativeFunction:
    text = f"def {name}({parameters}):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
    used = set(_NAMES.findall(text))
    known = {key: constants[key] for key in sorted(used & constants.keys())}
    return NativeFunction(name, text, ("s64",) * len(parameters.split(",")), "s64", {}, exported, known)


def linked(functions: Sequence[NativeFunction], others: Sequence[NativeFunction]) -> list[NativeFunction]:
    """The functions, with the signatures of their callees: each other, `others`, the C library."""
    known = _LIBRARY | {function.name: (function.params, function.result) for function in (*functions, *others)}
    found = []
    for function in functions:
        used = set(_NAMES.findall(function.text)) - {function.name}
        found.append(replace(function, calls={name: known[name] for name in sorted(used & known.keys())}))
    return found


def helper(name: str, parameters: str, body: str, *, exported: bool = False) -> NativeFunction:
    """A function `int64 name(int64, ...)` that others may call."""
    return _native(name, parameters, body, CONSTANTS, exported)


def c_function(name: str, body: str) -> NativeFunction:
    """A function of the C interface: `a` is the address of its arguments, A_FIELD their words; 0 or an error is
    returned."""
    if name not in FUNCTIONS:
        raise ValueError(f"PJRT has no function {name}")
    return _native(symbol(name), "a", body, CONSTANTS | argument_words(name), True)


def getter(name: str, /, **results: str) -> NativeFunction:
    """A function that answers with words of the block that is its first argument. results: the expression for each
    argument, in which `b` is the block."""
    lines = [f"b = load(a, {HEADER_WORDS})"]
    lines += [f"store(a, A_{field.upper()}, {expression})" for field, expression in results.items()]
    return c_function(name, "\n".join([*lines, "return 0"]))


def error_helper(name: str, code: str, text: str) -> NativeFunction:
    """A helper `name(unused)` that returns a new error."""
    return helper(name, "unused", _error_body(code, text))


def _error_body(code: str, text: str) -> str:
    data = text.encode()
    padded = data.ljust(-(-len(data) // 8) * 8, b"\0")
    lines = [f"e = malloc(8 * ERROR_TEXT + {len(padded)})"]
    lines += [f"store(e, ERROR_CODE, {CODES[code]})", f"store(e, ERROR_SIZE, {len(data)})"]
    for k in range(0, len(padded), 8):
        word = int.from_bytes(padded[k : k + 8], "little", signed=True)
        lines.append(f"store(e, ERROR_TEXT + {k // 8}, {word})")
    return "\n".join([*lines, "return e"])


def unimplemented(name: str) -> NativeFunction:
    """The function of the C interface that answers that hloom has it not."""
    text = f"hloom: PJRT's function PJRT_{name} is not available on devices of hloom"
    return _native(symbol(name), "a", _error_body("unimplemented", text), CONSTANTS, True)
