"""Arrays of random keys, and their element types.

A KeyArray is a tree node around its uint32 data, so that it goes through jit, vmap and scan as the data does.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.records import record
from hloom.tree import count_as_leaf, register
from hloom.typing import Array as AnyArray


class extended(np.generic):
    """The category of non-numeric dtypes, such as those of keys."""


Category = type[extended]


class prng_key(extended):
    """The category of the dtypes of keys of `hloom.random`."""


class ExtendedDType:
    """Base of non-numeric element types: `type` is their category, a subclass of `extended`."""

    __slots__ = ()
    type: ClassVar[Category]


# Implementation: words of its key, and the name in `key<...>`.
IMPLEMENTATIONS = {"threefry2x32": (2, "fry"), "rbg": (4, "rbg"), "unsafe_rbg": (4, "urbg")}


class KeyType(ExtendedDType):
    """The element type of a KeyArray: `key<fry>`. Equal for keys of one implementation."""

    __slots__ = ("implementation",)
    type = prng_key

    def __init__(self, implementation: str):
        self.implementation = implementation

    @property
    def name(self) -> str:
        return f"key<{IMPLEMENTATIONS[self.implementation][1]}>"

    @property
    def itemsize(self) -> int:
        return 4 * IMPLEMENTATIONS[self.implementation][0]

    def __eq__(self, other) -> bool:
        return isinstance(other, KeyType) and other.implementation == self.implementation

    def __hash__(self) -> int:
        return hash(("KeyType", self.implementation))

    def __repr__(self) -> str:
        return self.name


@record(frozen=True)
class KeysType:
    """The shape and dtype of an array of random keys."""

    shape: tuple[int, ...]
    dtype: KeyType

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


class KeyArray:
    """Random keys in an array: data u32[*shape, words]. Made by `key`, `split` and `wrap_key_data`."""

    __slots__ = ("_data", "_implementation")

    def __init__(self, data, implementation: str):
        self._data = data
        self._implementation = implementation

    @property
    def dtype(self) -> KeyType:
        return KeyType(self._implementation)

    @property
    def key_type(self) -> KeysType:
        """The shape and dtype."""
        return KeysType(self.shape, self.dtype)

    @property
    def sharding(self):
        """The sharding of the keys, which is that of their words."""
        return self._data.sharding

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._data.shape[:-1])

    @property
    def ndim(self) -> int:
        return len(self._data.shape) - 1

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=int))

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    def __eq__(self, other):
        """Which keys are equal, element by element; key arrays broadcast. Raises ArgumentError for numbers and keys of
        another implementation."""
        if not isinstance(other, KeyArray):
            if isinstance(other, (AnyArray, np.ndarray, np.generic, int, float, complex)):
                raise ArgumentError(
                    f"a comparison of {self.dtype.name}{list(self.shape)} with numbers", f"{other!r:.80}",
                    "compare keys with keys, or hl.random.key_data(key) with numbers",
                )  # fmt: skip
            return NotImplemented
        if other._implementation != self._implementation:
            raise ArgumentError(
                "a comparison of keys of one implementation", f"{self.dtype.name} and {other.dtype.name}",
                "compare their hl.random.key_data",
            )  # fmt: skip
        return (self._data == other._data).all(-1)

    def __ne__(self, other):
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else ~equal

    def __hash__(self):
        raise ArgumentError(
            "a hash of a random key", f"{self.dtype.name}{list(self.shape)}", "hash its data: hl.random.key_data(key)"
        )

    def __getitem__(self, index) -> KeyArray:
        return KeyArray(self._data[self._data_index(index)], self._implementation)

    def _data_index(self, index) -> tuple:
        """The index of the data, for an index of the keys. Raises ShapeError."""
        index = index if isinstance(index, tuple) else (index,)
        used = sum(1 for i in index if i is not None and i is not Ellipsis)
        if not any(i is Ellipsis for i in index):
            if used > self.ndim:
                raise ShapeError(
                    "an index of a key array", f"{used} indices for {self.ndim} dimensions", "index its shape only"
                )
            index = (*index, Ellipsis)
        return (*index, slice(None))

    def __len__(self) -> int:
        if not self.ndim:
            raise ArgumentError("len() of a key array", "a single key, which has no dimensions", "split it first")
        return self.shape[0]

    def __iter__(self):
        return (self[k] for k in range(len(self)))

    def _with(self, data) -> KeyArray:
        return KeyArray(data, self._implementation)

    def reshape(self, *shape, order="C") -> KeyArray:
        """The keys with another shape. Raises ShapeError."""
        dims = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        words = self._data.shape[-1]
        return self._with(self._data.reshape((*dims, words)))

    def flatten(self) -> KeyArray:
        """The keys in a vector."""
        return self.reshape(-1)

    ravel = flatten

    def squeeze(self, axis=None) -> KeyArray:
        """The keys without axes of size 1: these, or all."""
        axes = [k for k, d in enumerate(self.shape) if d == 1] if axis is None else axis
        axes = (axes,) if isinstance(axes, int) else axes
        dropped = {a % self.ndim for a in axes}
        return self.reshape(tuple(d for k, d in enumerate(self.shape) if k not in dropped))

    def astype(self, dtype, copy: bool | None = None, device=None) -> KeyArray:
        """The keys themselves: their own dtype is the only one that they convert to. Raises DTypeError."""
        if dtype != self.dtype:
            raise DTypeError(
                f"a conversion of random keys of {self.dtype.name}", f"to {dtype!r}", "take hl.random.key_data(key)"
            )
        return self

    @property
    def at(self) -> _KeysAt:
        """`keys.at[index].set(others)`: keys with others in these positions; `.get()` those there."""
        return _KeysAt(self)

    def __array__(self, dtype=None, copy=None):
        raise ArgumentError(
            "a NumPy array of random keys", f"{self.dtype.name} of shape {self.shape}", "take hl.random.key_data(key)"
        )

    def block_until_ready(self) -> KeyArray:
        """The keys themselves, which are computed when they are returned."""
        return self

    def __repr__(self) -> str:
        data = self._data
        body = f" overlaying:\n{np.asarray(data)}" if isinstance(data, (Array, np.ndarray)) else f" of {data!r}"
        return f"Array({self.shape}, dtype={self.dtype.name}){body}"

    def __reduce__(self):
        return KeyArray, (self._data, self._implementation)


class _KeysAt:
    """`keys.at`, and with an index `keys.at[index]`."""

    __slots__ = ("_keys", "_index")

    def __init__(self, keys: KeyArray, index=()):
        self._keys, self._index = keys, index

    def __getitem__(self, index) -> _KeysAt:
        return _KeysAt(self._keys, index)

    def get(self, **options) -> KeyArray:
        keys = self._keys
        return keys._with(keys._data.at[keys._data_index(self._index)].get(**options))

    def set(self, values, **options) -> KeyArray:
        """Raises ArgumentError for anything but keys of the same implementation."""
        keys = self._keys
        if not isinstance(values, KeyArray) or values.dtype != keys.dtype:
            raise ArgumentError(
                f"an update of {keys.dtype.name} with keys of that dtype", f"{values!r:.80}", "pass keys: hl.random.key"
            )
        return keys._with(keys._data.at[keys._data_index(self._index)].set(values._data, **options))


register(
    KeyArray,
    lambda keys: ((keys._data,), keys._implementation),
    lambda implementation, children: KeyArray(children[0], implementation),
)
count_as_leaf(KeyArray)


def _structure(shape, dtype: KeyType) -> KeyArray:
    """Keys whose data has a shape and a dtype only."""
    words = IMPLEMENTATIONS[dtype.implementation][0]
    return KeyArray(ShapeDtypeStruct((*shape, words), np.uint32), dtype.implementation)


ShapeDtypeStruct._extended[KeyType] = _structure
AnyArray.register(KeyArray)
