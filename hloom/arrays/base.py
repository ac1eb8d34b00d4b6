"""The common base of arrays and tracers: shape, dtype, and the errors for unsupported operations.

`hloom.numpy.methods` adds the operators, indexing and methods, all of them functions of `hloom.numpy`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.errors import ImmutableArrayError
from hloom.ir.types import Shape
from hloom.typing import Array


class IndexedUpdate(Protocol):
    """`x.at[index]`."""

    def set(self, values) -> Any: ...


class IndexedUpdates(Protocol):
    """`x.at`."""

    def __getitem__(self, index) -> IndexedUpdate: ...


class ArrayMethods:
    """Operators and methods of `Array` and `Tracer`. Subclasses have `_shape: Shape` and `weak: bool`."""

    __slots__ = ()
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]  # equality is elementwise, as in NumPy
    is_sharded = False  # whether several devices hold it, each its part
    _shape: Shape
    weak: bool
    __array__: Callable[..., np.ndarray]
    # The methods added by `hloom.numpy.methods` that lower layers call.
    at: IndexedUpdates
    astype: Callable[..., Any]
    ravel: Callable[..., Any]
    round: Callable[..., Any]

    if TYPE_CHECKING:

        def __getitem__(self, index) -> Any: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return self._shape.dims

    @property
    def dtype(self):
        """The element type, a NumPy dtype."""
        return self._shape.dtype

    @property
    def ndim(self) -> int:
        return len(self._shape.dims)

    @property
    def size(self) -> int:
        return self._shape.size

    @property
    def itemsize(self) -> int:
        return self._shape.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self._shape.bytes

    def __len__(self) -> int:
        if not self._shape.dims:
            raise TypeError("len() of a zero-dimensional array")
        return self._shape.dims[0]  # of an unknown size: an error of `__index__`

    def __iter__(self):
        if not self._shape.dims:
            raise TypeError("iteration over a zero-dimensional array")
        return self._rows()

    def _rows(self):
        for k in range(self._shape.dims[0]):  # of an unknown size: an error when the first element is requested
            yield self[k]

    def __setitem__(self, index, value):
        raise ImmutableArrayError(
            "assignment to an element",
            f"{self._shape!r}, and arrays are immutable",
            "create a new array: x.at[index].set(value), or hnp.where(mask, new, old)",
        )

    @property
    def weak_type(self) -> bool:
        """Whether it adopts the dtype of another operand: the result of Python numbers only."""
        return self.weak

    @property
    def aval(self):
        """The shape and dtype without the data, a ShapeDtypeStruct."""
        return ShapeDtypeStruct(self.shape, self.dtype, weak_type=self.weak)

    def item(self, *index):
        """One element as a Python number."""
        return self.__array__().item(*index)

    def tolist(self):
        """The elements as nested lists of Python numbers."""
        return self.__array__().tolist()


Array.register(ArrayMethods)
