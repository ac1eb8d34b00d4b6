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

    def to_device(self, device, stream=None):
        """The array on a device: `hl.device_put`."""
        from hloom.lax.transfer import device_put

        return device_put(self, device)

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
        from hloom.numpy.indexing.subscripts import index_array

        return index_array(self, index)

    @property
    def at(self):
        """x.at[index].set(values), .add, .multiply, .min, .max, .apply, .get (`hloom.numpy.indexing.updates`)."""
        from hloom.numpy.indexing.updates import IndexUpdates

        return IndexUpdates(self)

    def __setitem__(self, index, value):
        raise ImmutableArrayError(
            "an element was to be assigned",
            f"an immutable array {self._shape!r}",
            "make a new array: x.at[index].set(value), or hnp.where(mask, new, old)",
        )

    @property
    def weak_type(self) -> bool:
        """Whether it takes the dtype of the array beside it: the result of Python numbers only."""
        return self.weak

    @property
    def aval(self):
        """The shape and dtype without the data, a ShapeDtypeStruct."""
        from hloom.tracing.eval_shape import ShapeDtypeStruct

        return ShapeDtypeStruct(self.shape, self.dtype, weak_type=self.weak)

    def conj(self):
        return _numpy().conj(self)

    conjugate = conj

    def flatten(self, order: str = "C"):
        """The elements as a vector."""
        return _numpy().ravel(self, order)

    def reshape(self, *shape, order: str = "C", copy=None):
        """The same elements with other extents, given one by one or as a tuple; one of them may be -1."""
        return _numpy().reshape(self, shape[0] if len(shape) == 1 else shape, order=order)

    def transpose(self, *axes):
        """The axes in another order, given one by one or as a tuple; reversed by default."""
        if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
            return _numpy().transpose(self, axes[0])
        return _numpy().transpose(self, axes or None)

    def view(self, dtype=None, type=None):  # noqa: A002  (NumPy's name)
        """The same bits as another dtype; the last extent follows from the sizes of the elements."""
        return _numpy().view(self, self.dtype if dtype is None else dtype)

    def byteswap(self, inplace: bool = False):
        """The bytes of each element in reverse order."""
        return _numpy().byteswap(self, inplace)

    def item(self, *index):
        """One element as a Python number."""
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
    "all any argmax argmin argpartition argsort astype choose clip copy cumsum cumprod diagonal dot max mean min "
    "nonzero partition prod ptp ravel repeat round searchsorted sort squeeze std sum swapaxes take trace var"
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


def _compress(self, condition, axis=None, **options):
    """The slices along an axis where the condition is true: `hnp.compress(condition, x, axis)`."""
    return _numpy().compress(condition, self, axis, **options)


ArrayMethods.compress = _compress
ArrayMethods.__hash__ = None
