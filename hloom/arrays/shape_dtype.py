"""ShapeDtypeStruct: the shape and dtype of an array that need not exist."""

from __future__ import annotations

from typing import Any, ClassVar

from hloom.errors import ArgumentError
from hloom.ir.sizes.expressions import SizeExpression
from hloom.ir.types import Shape, as_dtype
from hloom.sharding.shardings import over_several


class ShapeDtypeStruct:
    """The shape and dtype of an array that need not exist.

    shape: a tuple of sizes, `hl.Dim`s and sizes made of these among them. dtype: anything that names an element type.
    Raises DTypeError, ArgumentError.

    >>> hl.jit(hnp.sin).lower(hl.ShapeDtypeStruct((3,), hnp.float32)).out_info
    ShapeDtypeStruct(shape=(3,), dtype=float32)
    """

    __slots__ = ("_shape", "sharding", "weak")
    _extended: ClassVar[dict] = {}  # type of a non-numeric dtype -> (shape, dtype) -> its structure

    def __new__(cls, shape=None, dtype=None, *args, **options):
        made = cls._extended.get(type(dtype))
        return object.__new__(cls) if made is None else made(shape, dtype)

    def __init__(self, shape, dtype, weak: bool = False, *, weak_type: bool = False, sharding=None):
        weak = weak or weak_type
        try:
            dims: Any = tuple([size if isinstance(size, SizeExpression) else int(size) for size in shape])
        except (TypeError, ValueError):
            dims = None
        if dims is None or any(size < 0 for size in dims if not isinstance(size, SizeExpression)):
            raise ArgumentError(
                "ShapeDtypeStruct requires sizes", f"{shape!r}", "pass a tuple of non-negative integers"
            )
        self._shape = Shape(as_dtype(dtype), dims)
        self.weak, self.sharding = weak, sharding

    @property
    def _device(self):
        """The sharding, if it is over several devices."""
        return self.sharding if over_several(self.sharding) else None

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape.dims

    @property
    def dtype(self):
        return self._shape.dtype

    @property
    def ndim(self) -> int:
        return self._shape.rank

    @property
    def size(self) -> int:
        return self._shape.size

    @property
    def _key(self):
        """The key under which compiled functions are cached, as that of an Array."""
        place = self._device
        return (self._shape, self.weak, place) if self.weak or place is not None else self._shape

    def _value(self):
        """None: tracing finds no value."""
        return

    _held = _value

    def __eq__(self, other):
        if not isinstance(other, ShapeDtypeStruct):
            return NotImplemented
        return (self._shape, self.weak, self.sharding) == (other._shape, other.weak, other.sharding)

    def __hash__(self):
        return hash((self._shape, self.weak, self.sharding))

    def __repr__(self) -> str:
        more = ", weak_type=True" * self.weak + (f", sharding={self.sharding!r}" if self.sharding is not None else "")
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{more})"

    @property
    def weak_type(self) -> bool:
        return self.weak

    def at_least_vspace(self) -> ShapeDtypeStruct:
        """The shape and dtype of tangents: its own."""
        return self

    def strip_weak_type(self) -> ShapeDtypeStruct:
        """The same shape and dtype, not weakly typed."""
        return ShapeDtypeStruct(self.shape, self.dtype)

    to_tangent_aval = strip_weak_type

    @classmethod
    def like(cls, array) -> ShapeDtypeStruct:
        """The shape, dtype and weak type of an array."""
        return cls(array.shape, array.dtype, weak_type=getattr(array, "weak", False))

    def __len__(self) -> int:
        return self.shape[0]

    def update(self, **changes):
        """The same with another shape, dtype or weak_type."""
        own = {"shape": self.shape, "dtype": self.dtype, "weak_type": self.weak, "sharding": self.sharding}
        return ShapeDtypeStruct(**{**own, **changes})

    def str_short(self, short_dtypes: bool = False) -> str:
        """Dtype and shape in short: float32[3,4]."""
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


def is_open(leaf: object) -> bool:
    """Whether an argument is a structure some of whose sizes depend on dimensions (`hl.Dim`)."""
    return isinstance(leaf, ShapeDtypeStruct) and leaf._shape.is_open
