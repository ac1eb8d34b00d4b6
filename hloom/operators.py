"""What arrays and tracers have in common: operators, indexing and methods, all by way of `hloom.numpy`."""

from __future__ import annotations

from functools import lru_cache

from hloom.errors import ImmutableArrayError
from hloom.ir.types import Shape


@lru_cache(maxsize=1)
def _numpy():
    import hloom.numpy as hnp  # imported late: hloom.numpy is built on this module

    return hnp


class ArrayMethods:
    """Operators and methods of `Array` and `Tracer`. Subclasses have `_shape: Shape` and `weak: bool`."""

    __slots__ = ()
    __array_priority__ = 100
    _shape: Shape

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
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

    @property
    def T(self):
        return _numpy().transpose(self)

    @property
    def mT(self):
        return _numpy().matrix_transpose(self)

    @property
    def real(self):
        return _numpy().real(self)

    @property
    def imag(self):
        return _numpy().imag(self)

    def __len__(self) -> int:
        if not self._shape.dims:
            raise TypeError("len() of a zero-dimensional array")
        return self._shape.dims[0]

    def __iter__(self):
        if not self._shape.dims:
            raise TypeError("iteration over a zero-dimensional array")
        return (self[k] for k in range(self._shape.dims[0]))

    def __getitem__(self, index):
        from hloom.indexing import index_array

        return index_array(self, index)

    def __setitem__(self, index, value):
        raise ImmutableArrayError(
            "an element was to be assigned",
            f"an immutable array {self._shape!r}",
            "build a new array, for example with hnp.where(mask, new, old) or lax.dynamic_update_slice",
        )

    def conj(self):
        return _numpy().conj(self)

    conjugate = conj

    def flatten(self):
        return _numpy().ravel(self)

    def item(self, *index):
        return self.__array__().item(*index)

    def tolist(self):
        return self.__array__().tolist()


def _binary(name: str, reflected: bool = False):
    def operator(self, other):
        function = getattr(_numpy(), name)
        if not _is_operand(other):
            return NotImplemented
        return function(other, self) if reflected else function(self, other)

    return operator


def _is_operand(value) -> bool:
    import numpy as np

    return isinstance(value, (ArrayMethods, int, float, complex, bool, np.ndarray, np.generic))


def _unary(name: str):
    return lambda self: getattr(_numpy(), name)(self)


def _method(name: str):
    return lambda self, *args, **kwargs: getattr(_numpy(), name)(self, *args, **kwargs)


_BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "divmod": "divmod",
    "pow": "power",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
_COMPARE = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
_UNARY = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}
_METHODS = (
    "all any argmax argmin astype clip copy cumsum cumprod diagonal dot max mean min prod ptp ravel repeat reshape "
    "round sort squeeze std sum swapaxes take transpose trace var"
).split()

for _name, _function in _BINARY.items():
    setattr(ArrayMethods, f"__{_name}__", _binary(_function))
    setattr(ArrayMethods, f"__r{_name}__", _binary(_function, reflected=True))
for _name, _function in _COMPARE.items():
    setattr(ArrayMethods, f"__{_name}__", _binary(_function))
for _name, _function in _UNARY.items():
    setattr(ArrayMethods, f"__{_name}__", _unary(_function))
for _name in _METHODS:
    setattr(ArrayMethods, _name, _method(_name))
ArrayMethods.__hash__ = None
