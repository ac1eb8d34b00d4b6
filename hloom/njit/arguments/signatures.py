"""Numba's signatures, `float64(float64[:], int64)`: what is declared, and the conversion of what is passed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from hloom.errors import ArgumentError, DTypeError
from hloom.ir.records import record

__all__ = ["Signature", "Type", "chosen", "loop_for", "signatures_of", "split"]

_NAMES = {
    "boolean": "?", "bool_": "?", "b1": "?", "bool": "?", "byte": "u1", "char": "i1", "uchar": "u1", "short": "i2",
    "ushort": "u2", "intc": "i4", "uintc": "u4", "int_": "i8", "intp": "i8", "uint": "u8", "uintp": "u8", "long_": "i8",
    "ulong": "u8", "longlong": "i8", "ulonglong": "u8", "float_": "f4", "single": "f4", "double": "f8",
    **{f"{name}{8 * size}": f"{kind}{size}" for name, kind in (("int", "i"), ("uint", "u")) for size in (1, 2, 4, 8)},
    "float32": "f4", "float64": "f8", "complex64": "c8", "complex128": "c16",
    **{name: name for name in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16")},
}  # fmt: skip
_PYTHON = {"i": int, "b": bool}
_REPAIR = 'write "float64(float64[:], int64)", or leave the signature out'


@record(frozen=True)
class Type:
    """A declared number or, with dimensions, array. layout: "C", "F", or "A" for any."""

    dtype: np.dtype
    ndim: int = 0
    layout: str = "A"

    def __str__(self) -> str:
        if not self.ndim:
            return _name(self.dtype)
        entries = [":"] * self.ndim
        if self.layout in ("C", "F"):
            entries[-1 if self.layout == "C" else 0] = "::1"
        return f"{_name(self.dtype)}[{', '.join(entries)}]"


@record(frozen=True)
class Signature:
    """args: of the arguments. result: None, where the function returns nothing, or nothing is declared about it."""

    args: tuple[Type, ...]
    result: Type | None = None
    is_void: bool = False

    def __str__(self) -> str:
        result = "void" if self.is_void else "" if self.result is None else str(self.result)
        return f"{result}({', '.join(map(str, self.args))})"

    def converted(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as numbers of the declared dtypes."""
        return {name: _as_declared(v, t) for (name, v), t in zip(values.items(), self.args, strict=True)}

    def returned(self, value: Any, name: str) -> Any:
        """The result as declared. Raises DTypeError for arrays of other dtypes or dimensions."""
        wanted = self.result
        if wanted is None:
            if self.is_void and value is not None:
                self._wrong(name, "nothing", _written(value))
            return value
        ndim = getattr(value, "ndim", 0)
        if wanted.ndim or ndim or value is None or isinstance(value, (tuple, list, dict)):
            if not hasattr(value, "dtype") or value.dtype != wanted.dtype or ndim != wanted.ndim:
                self._wrong(name, str(wanted), _written(value))
            return value
        given = np.dtype(getattr(value, "dtype", type(value)))
        if given == wanted.dtype:
            return value
        if given.kind == "c" and wanted.dtype.kind != "c":
            self._wrong(name, str(wanted), _written(value))
        return wanted.dtype.type(value) if isinstance(value, np.generic) else value.astype(wanted.dtype)

    def _wrong(self, name: str, declared: str, found: str) -> NoReturn:
        raise DTypeError(f"the result of '{name}', declared as {declared}", found, "declare what the function returns")


def _name(dtype: np.dtype) -> str:
    return "boolean" if dtype.kind == "b" else dtype.name


def split(given: Any) -> tuple[Callable | None, tuple[Signature, ...]]:
    """(the function, the signatures) of a decorator's first argument."""
    is_function = callable(given) and not isinstance(given, type) and not hasattr(given, "return_type")
    if given is None or (is_function and not type(given).__module__.startswith("numba.core.types")):
        return given, ()
    return None, signatures_of(given)


def signatures_of(given: Any) -> tuple[Signature, ...]:
    """Those of a decorator's argument: text, types of Numba, a tuple of types, or a list of such."""
    return tuple([_signature(one) for one in (given if isinstance(given, list) else [given])])


def _signature(given: Any) -> Signature:
    if isinstance(given, str):
        try:
            node = ast.parse(given.strip(), mode="eval").body
        except SyntaxError:
            _refuse(given)
        if isinstance(node, ast.Call):
            return _made([_type_of(a, given) for a in node.args], _type_of(node.func, given))
        parts = node.elts if isinstance(node, ast.Tuple) else [node]
        return Signature(_arguments([_type_of(part, given) for part in parts]))
    if isinstance(given, tuple):
        return Signature(_arguments([_numba_type(part) for part in given]))
    if hasattr(given, "args") and hasattr(given, "return_type"):  # numba.core.typing.Signature
        result = given.return_type
        args = [_numba_type(a) for a in given.args]
        return Signature(_arguments(args)) if result is None else _made(args, _numba_type(result))
    return Signature(_arguments([_numba_type(given)]))


def _made(args: Sequence[Type | None], result: Type | None) -> Signature:
    return Signature(_arguments(args), result, result is None)


def _arguments(types: Sequence[Type | None]) -> tuple[Type, ...]:
    found = [t for t in types if t is not None]
    if len(found) != len(types):
        _refuse("an argument of no type")
    return tuple(found)


def _type_of(node: ast.expr, text: str) -> Type | None:
    """The type that a part of a signature names; None: void."""
    if isinstance(node, ast.Attribute):  # types.float64
        node = ast.Name(node.attr)
    if isinstance(node, ast.Name):
        if node.id in ("void", "none"):
            return None
        if node.id in _NAMES:
            return Type(np.dtype(_NAMES[node.id]))
    if isinstance(node, ast.Subscript):
        element = _type_of(node.value, text)
        entries = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if element is not None and not element.ndim and all(_is_axis(e) for e in entries):
            dense = [k for k, e in enumerate(entries) if isinstance(e, ast.Slice) and e.step is not None]
            layout = "A" if not dense else "C" if dense == [len(entries) - 1] else "F" if dense == [0] else ""
            if layout:
                return Type(element.dtype, len(entries), layout)
    _refuse(text)


def _is_axis(entry: ast.expr) -> bool:
    if not isinstance(entry, ast.Slice) or entry.lower is not None or entry.upper is not None:
        return False
    return entry.step is None or (isinstance(entry.step, ast.Constant) and entry.step.value == 1)


def _numba_type(given: Any) -> Type | None:
    if isinstance(given, str):
        return _type_of(ast.parse(given, mode="eval").body, given)
    numba: Any = sys.modules.get("numba")
    types = getattr(numba, "types", None)
    if types is not None and isinstance(given, types.Type):
        if given is types.void:
            return None
        ndim, layout = (given.ndim, given.layout) if isinstance(given, types.Array) else (0, "A")
        try:
            return Type(np.dtype(numba.np.numpy_support.as_dtype(given.dtype if ndim else given)), ndim, layout)
        except NotImplementedError:
            _refuse(str(given))
    if isinstance(given, (np.dtype, type)):
        try:
            found = np.dtype(given)
        except TypeError:
            found = np.dtype(object)
        if found.kind in "biufc":
            return Type(found)
    _refuse(repr(given))


def _refuse(found: str) -> NoReturn:
    raise ArgumentError("a signature of arrays and numbers", found, _REPAIR)


# --- conversion


def chosen(signatures: Sequence[Signature], values: Sequence[Any], name: str) -> Signature:
    """The signature whose types need the fewest conversions. Raises DTypeError."""
    best: tuple[tuple[int, int, int], Signature] | None = None
    for one in signatures:
        if len(one.args) != len(values):
            continue
        ranks = [_rank(value, wanted) for value, wanted in zip(values, one.args, strict=True)]
        if None in ranks:
            continue
        count = (ranks.count(3), ranks.count(2), ranks.count(1))
        if best is None or count < best[0]:
            best = (count, one)
    if best is None:
        raise DTypeError(
            f"a call of {name}({', '.join(map(_written, values))})",
            f"it is declared as {', '.join(map(str, signatures))}", "convert the arguments, or declare their types",
        )  # fmt: skip
    return best[1]


def _rank(value: Any, wanted: Type) -> int | None:
    """How a value becomes one of a type: 0 as it is, 1 by promotion, 2 safely, 3 with loss; None: it cannot."""
    ndim = len(getattr(value, "shape", ()))
    given = getattr(value, "dtype", None)
    if wanted.ndim or ndim:
        fits = ndim == wanted.ndim and given == wanted.dtype
        if fits and isinstance(value, np.ndarray) and wanted.layout != "A":
            fits = value.flags.c_contiguous if wanted.layout == "C" else value.flags.f_contiguous
        return 0 if fits else None
    if given is None:
        if type(value) not in (bool, int, float, complex):
            return None
        given = np.dtype(type(value))
    if given == wanted.dtype:
        return 0
    if given.kind == "c" and wanted.dtype.kind != "c":
        return None
    if given.kind == wanted.dtype.kind and given.itemsize < wanted.dtype.itemsize:
        return 1
    return 2 if np.can_cast(given, wanted.dtype) else 3


def _as_declared(value: Any, wanted: Type) -> Any:
    if wanted.ndim or getattr(value, "dtype", None) == wanted.dtype:
        return value
    if hasattr(value, "shape") and not isinstance(value, (np.generic, np.ndarray)):
        return value.astype(wanted.dtype)  # an array of hloom, or a traced one
    if wanted.dtype in (np.int64, np.bool_):  # those of Python may be sizes
        return _PYTHON[wanted.dtype.kind](value)
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(wanted.dtype)[()]


def _written(value: Any) -> str:
    dtype, ndim = getattr(value, "dtype", None), len(getattr(value, "shape", ()))
    if dtype is None:
        return "nothing" if value is None else type(value).__name__
    return str(Type(np.dtype(dtype), ndim))


def loop_for(signatures: Sequence[Signature], dtypes: Sequence[np.dtype], name: str) -> Signature:
    """The first signature to whose types these convert without loss, as NumPy chooses a ufunc's loop."""
    for one in signatures:
        if all(np.can_cast(given, wanted.dtype) for given, wanted in zip(dtypes, one.args, strict=False)):
            return one
    raise DTypeError(
        f"a call of {name}({', '.join(map(_name, dtypes))})", f"it is declared as {', '.join(map(str, signatures))}",
        "convert the arguments without loss, or declare their types",
    )  # fmt: skip
