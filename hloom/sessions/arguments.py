"""The arguments of `placeholder` and `constant`, in TensorFlow's order or with the name first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import hloom.numpy as hnp
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.sizes.expressions import SizeExpression
from hloom.ir.types import DTYPES, HLO_NAME, INTEGERS, as_dtype
from hloom.tracing.trace import Tracer, as_array

TEXT_DTYPES = ("string", str, bytes, np.str_, np.bytes_)
# Strings that are taken as dtypes where a name is also allowed. NumPy's codes ("i", "b") and HLO's name of bool are
# common names of tensors, and HLO's other names ("s2", "u8") may be: after such a name, the third argument decides.
_FULL_NAMES = {*(dtype.name for dtype in DTYPES.values()), "string"}
_DTYPE_NAMES = {*_FULL_NAMES, *DTYPES} - {"pred"}


def _is_dtype(given: Any, names: set[str] = _DTYPE_NAMES) -> bool:
    return given in names if isinstance(given, str) else given is not None


def _is_known(dtype: str) -> bool:
    """Whether NumPy or hloom know a dtype of this name, a code such as "i4" too."""
    try:
        as_dtype(dtype)
    except DTypeError:
        return False
    return True


def placeholder_arguments(given: tuple, dtype: Any, shape: Any, name: str | None) -> tuple[str, Sequence, Any]:
    """The name, or an empty one, the shape and the dtype: of `placeholder(dtype, shape, name)` or (name, shape, dtype).

    given: the arguments without keywords. Raises ArgumentError.
    """
    asked = "placeholder(dtype, shape, name)"
    found: dict[str, Any] = {"dtype": dtype, "shape": shape, "name": name}
    if len(given) > 3:
        raise ArgumentError(asked, f"{len(given)} arguments", "pass a dtype, a shape and a name")
    first, last = [*given[:1], None][0], given[2] if len(given) == 3 else None
    if _is_dtype(first, _FULL_NAMES) and isinstance(first, str) and _is_dtype(last):
        raise ArgumentError(
            asked, f"{first!r} and {last!r}, which are both dtypes",
            f"write which is the name: placeholder(dtype={last!r}, shape=..., name={first!r})",
        )  # fmt: skip
    known = _DTYPE_NAMES if last is not None and not _is_dtype(last) else _FULL_NAMES
    order = ("dtype", "shape", "name") if _is_dtype(first, known) else ("name", "shape", "dtype")
    for key, value in zip(order, given, strict=False):
        if found[key] is not None:
            raise ArgumentError(asked, f"{key}= twice: {value!r:.40} and {found[key]!r:.40}", f"pass one {key}")
        found[key] = value
    if isinstance(last, str) and order[0] == "name" and not _is_dtype(last) and not _is_known(last):
        raise DTypeError(asked, f"neither {first!r} nor {last!r} is a dtype", "pass one, such as 'float32'")
    sizes = () if found["shape"] is None else found["shape"]
    if isinstance(sizes, str) or not hasattr(sizes, "__iter__"):
        raise ArgumentError("the shape of a placeholder", f"{sizes!r:.60}", "pass a list: [None, 784]; [] for a number")
    return found["name"] or "", tuple(sizes), "float32" if found["dtype"] is None else found["dtype"]


def constant_arguments(dtype: Any, name: str | None) -> tuple[Any, str]:
    """The dtype and name of `constant(value, dtype, shape, name)` and of `constant(value, name)`.

    Raises ArgumentError.
    """
    if isinstance(dtype, str) and not _is_dtype(dtype):
        if name is not None:
            raise ArgumentError(
                "the dtype of a constant", f"{dtype!r}, and the name {name!r}", "pass a dtype, such as 'float32'"
            )
        dtype, name = None, dtype
    return dtype, name or "constant"


def is_text(value: Any) -> bool:
    """Whether a value is of text or bytes, or an array or list of them."""
    if isinstance(value, (str, bytes, np.str_, np.bytes_, list, tuple)):
        return np.asarray(value).dtype.kind in "SUO"
    return isinstance(value, np.ndarray) and value.dtype.kind in "SUO"


def constant_value(value: Any, dtype: Any, shape: Any) -> Any:
    """The array of `constant(value, dtype, shape)`: in the dtype, and of the shape. A single value fills the shape; if
    there are fewer values than elements, the last one is repeated. Raises ArgumentError, DTypeError, ShapeError."""
    if dtype is None and shape is None:
        return value
    if isinstance(value, Tracer):
        made: Any = value if dtype is None else hnp.astype(value, dtype)
        if shape is None:
            return made
        return made.reshape(shape) if made.ndim else hnp.broadcast_to(made, shape)
    array = as_array(value, "the value of a constant")
    wanted = array.dtype if dtype is None else as_dtype(dtype)
    made = _converted(value, np.asarray(array), wanted)
    if shape is None:
        return made
    return hnp.full(shape, made.reshape(())[()], wanted) if made.size == 1 else _padded(made, shape)


def text_value(value: Any, dtype: Any, shape: Any) -> Any:
    """The texts of a constant. Raises DTypeError, ShapeError."""
    if dtype is not None and not any(dtype is known or dtype == known for known in TEXT_DTYPES):
        raise DTypeError(
            f"a constant of {dtype!r}", f"the value is text: {value!r:.60}", "pass numbers, or dtype='string'"
        )
    return value if shape is None else _padded(np.asarray(value), shape)


def _converted(value: Any, array: np.ndarray, wanted: np.dtype) -> np.ndarray:
    """The values in a dtype that can hold them: only floats may lose digits."""
    given = np.asarray(value) if isinstance(value, (int, float, complex, list, tuple)) else array
    whole = wanted in INTEGERS
    kinds = (given.dtype in INTEGERS and whole) or np.can_cast(given.dtype, wanted, "same_kind")
    with np.errstate(over="ignore"):
        made = given.astype(wanted) if kinds else array
    lost = whole and not np.array_equal(made.astype(object), given.astype(object))
    if not kinds or lost or (not whole and bool((~np.isfinite(made) & np.isfinite(given)).any())):
        raise DTypeError(
            f"a constant of {HLO_NAME[wanted]}",
            f"the value is {value!r:.60}",
            "pass values that the dtype can hold, or another dtype",
        )
    return made


def _padded(array: np.ndarray, shape: Any) -> np.ndarray:
    dims = (shape,) if hasattr(shape, "__index__") else tuple(shape)
    if any(isinstance(n, SizeExpression) for n in dims):
        raise ShapeError(
            f"a constant of {array.size} values", f"the shape has an unknown size: {dims}", "fill it with one value"
        )
    count = int(np.prod(dims, dtype=np.int64))
    if array.size > count or (not array.size and count):
        raise ShapeError(
            f"a constant of shape {dims}", f"{array.size} values for {count} elements",
            "pass one value, or at most as many as the shape has elements",
        )  # fmt: skip
    flat = array.reshape(-1)
    return np.concatenate([flat, np.repeat(flat[-1:], count - flat.size)]).reshape(dims)


__all__ = ["constant_arguments", "constant_value", "is_text", "placeholder_arguments", "text_value"]
