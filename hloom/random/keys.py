"""Keys: the state of random numbers as a value, made by a seed, split, and never changed.

A key of this module is a `KeyArray`, a tree node around its uint32 data, so that it goes through jit, vmap and scan as
the data does. Functions take raw keys too: uint32 arrays whose last dimension is 2 (`PRNGKey`).
"""

from __future__ import annotations

import os
import sys

import numpy as np

from hloom.arrays.base import ArrayMethods
from hloom.arrays.keys import IMPLEMENTATIONS, KeyArray, KeyType
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.config import config
from hloom.dispatch import sharded
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.types import DTYPES
from hloom.lax.operands import as_operand
from hloom.tracing.key_reuse import use_key
from hloom.tracing.trace import bind

U32 = DTYPES["u32"]


def implementation_name(impl) -> str:
    if impl is None:
        return "threefry2x32"
    name = impl.implementation if isinstance(impl, KeyType) else str(impl)
    short = {tag: full for full, (_, tag) in IMPLEMENTATIONS.items()}
    name = short.get(name, name)
    if name not in IMPLEMENTATIONS:
        raise ArgumentError("an implementation of random keys", repr(impl), f"take one of {', '.join(IMPLEMENTATIONS)}")
    return name


def key_dtype(impl_spec=None) -> KeyType:
    """The dtype of keys of an implementation.

    >>> hl.random.key_dtype() == hl.random.key(0).dtype
    True
    """
    return KeyType(implementation_name(impl_spec))


def key_impl(keys) -> str:
    """The name of the implementation of keys.

    >>> hl.random.key_impl(hl.random.key(0))
    'threefry2x32'
    """
    return take_key(keys, "key_impl", single=False)[1]


def key_data(keys):
    """The uint32 words of keys, in a last dimension.

    >>> hl.random.key_data(hl.random.key(7))
    Array([0, 7], dtype=uint32)
    """
    return take_key(keys, "key_data", single=False)[0]


def wrap_key_data(key_bits_array, *, impl=None, dtype=None) -> KeyArray:
    """Keys from their uint32 words, u32[..., 2] for threefry2x32, u32[..., 4] for rbg. Raises ArgumentError.

    >>> keys = hl.random.wrap_key_data(hnp.zeros((3, 2), dtype=hnp.uint32))
    >>> keys.shape
    (3,)
    """
    if isinstance(key_bits_array, KeyArray):
        raise ArgumentError("wrap_key_data takes raw words", repr(key_bits_array.dtype), "it is a key already")
    implementation = implementation_name(dtype if impl is None else impl)
    data = as_operand(key_bits_array, "wrap_key_data")
    _check_words(data, implementation, "wrap_key_data")
    return KeyArray(data, implementation)


def clone(key):
    """The key, to use it again where the same numbers are wanted (also under `hl.config.debug_key_reuse`).

    >>> key = hl.random.key(0)
    >>> same = hl.random.normal(key) == hl.random.normal(hl.random.clone(key))
    >>> bool(same)
    True
    """
    if not config.debug_key_reuse:
        return key
    data, implementation = take_key(key, "key_data", single=False)
    copy = bind("or", data, data)
    return KeyArray(copy, implementation) if isinstance(key, KeyArray) else copy


def _check_words(data, implementation: str, name: str) -> None:
    words = IMPLEMENTATIONS[implementation][0]
    dims = tuple(data.shape)
    if data.dtype != U32 or not dims or dims[-1] != words:
        raise ArgumentError(
            f"random.{name} takes a key: hl.random.key(seed), or raw u32[{words}] for {implementation}",
            f"{getattr(data, '_shape', dims)!r}",
            "make one with hl.random.key(0)",
        )


_NOT_USED_BY = ("fold_in", "key_data", "key_impl")
_PACKAGE = os.path.dirname(__file__) + os.sep


def _called_by_this_package() -> bool:
    """Whether the function that takes a key was called by another one of this package, which took the key itself."""
    frame = sys._getframe(2).f_back  # who called the function
    if frame is not None and frame.f_code.co_filename == sharded.__file__:  # through its `out_sharding`
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_PACKAGE)


def take_key(key, name: str, single: bool = True):
    """(data, implementation) of a key or raw key. single: it has to be one key, not an array of them.

    Raises ArgumentError, ShapeError.
    """
    if isinstance(key, KeyArray):
        data, implementation = key._data, key._implementation
        if not isinstance(data, (ArrayMethods, ShapeDtypeStruct)):
            data = as_operand(data, name)
    else:
        if not isinstance(key, (ArrayMethods, np.ndarray)):
            raise ArgumentError(
                f"random.{name} takes a key first", f"{type(key).__name__}: {key!r:.60}", "make one: hl.random.key(0)"
            )
        data, implementation = as_operand(key, name), "threefry2x32"
        if data.dtype == U32 and data.shape and data.shape[-1] == 4:
            implementation = "rbg"
        _check_words(data, implementation, name)
    if single and len(data.shape) != 1:
        raise ShapeError(
            f"random.{name} takes a single key",
            f"an array of keys of shape {tuple(data.shape[:-1])}",
            "take one of them, or map over them with hl.vmap",
        )
    if config.debug_key_reuse and name not in _NOT_USED_BY and not _called_by_this_package():
        use_key(data, name)
    return data, implementation
