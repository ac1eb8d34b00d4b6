"""What kernel functions are written with: real Python functions that a kernel is made from (`specialize`).

    @kernel_function
    def scaled(x: Pointer[T], y: Pointer[T], factor: R, n: s64, lo: s64, hi: s64) -> None:
        for item in range(lo, hi):
            for i in range(n):
                y[item * n + i] = x[item * n + i] * factor

`T` stands for the type of the elements, `R` for that of their real part, `Int` for a type of integers: each is given
when the function is specialized. Python never runs such a function; docs/reference/kernels.md says how it is read. To a
type checker the names here are what they are in a kernel; to the program they are marks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hloom.ir.records import record

__all__ = [
    "Block", "Formula", "Function", "Int", "KernelFunction", "Pointer", "R", "T", "Type", "abs_squared", "address",
    "cabs1", "conj", "f64", "fma", "inf", "is_finite", "kernel_function", "maximum", "nan", "pair", "prefetch",
    "quotient", "s32", "s64", "scratch", "sqrt", "summed",
]  # fmt: skip

_Made = TypeVar("_Made", bound=Callable[..., Any])


@record(frozen=True)
class Type:
    """A dtype, or the name of one that is given. name: HLO's, or 'T', 'R', 'Int'."""

    name: str


@record(frozen=True)
class Function:
    """A function. generic: kernel text has one for each type of the arguments, `sqrt_f32`. result: the type of such a
    one: '' for that of the arguments, 'part' for that of their real part, 'whole' for the complex numbers of them."""

    name: str
    result: str = ""
    generic: bool = True


KernelFunction = Callable[..., Any]
Block = Callable[..., None]  # a parameter that is a function without a result, whose name is given
Formula = Callable[..., Any]  # a parameter that makes an expression of expressions: what it computes is given too
KERNEL_FUNCTIONS: set[KernelFunction] = set()


def kernel_function(function: _Made) -> _Made:
    """Marks what kernels are made from. Returns it unchanged."""
    KERNEL_FUNCTIONS.add(function)
    return function


if TYPE_CHECKING:
    s64 = int
    f64 = float
    inf: f64
    nan: f64

    class _Number:
        """What all numbers of one precision can do."""

        def __init__(self, value: float | T | R | Int, /) -> None: ...
        def __float__(self) -> float: ...
        def __eq__(self, other: object) -> bool: ...
        def __ne__(self, other: object) -> bool: ...

    class R(_Number):
        """The type of the real part of an element."""

        def __neg__(self) -> R: ...
        def __abs__(self) -> R: ...
        def __add__(self, other: R, /) -> R: ...
        def __sub__(self, other: R, /) -> R: ...
        def __mul__(self, other: R, /) -> R: ...
        def __truediv__(self, other: R, /) -> R: ...
        def __lt__(self, other: R, /) -> bool: ...
        def __le__(self, other: R, /) -> bool: ...
        def __gt__(self, other: R, /) -> bool: ...
        def __ge__(self, other: R, /) -> bool: ...

    class T(_Number):
        """The type of the elements, real or complex."""

        @property
        def real(self) -> R: ...
        @property
        def imag(self) -> R: ...
        def __neg__(self) -> T: ...
        def __add__(self, other: T | R, /) -> T: ...
        def __sub__(self, other: T | R, /) -> T: ...
        def __mul__(self, other: T | R, /) -> T: ...
        def __truediv__(self, other: T | R, /) -> T: ...
        def __radd__(self, other: R, /) -> T: ...
        def __rsub__(self, other: R, /) -> T: ...
        def __rmul__(self, other: R, /) -> T: ...
        def __rtruediv__(self, other: R, /) -> T: ...

    class Int:
        """A type of integers."""

        def __init__(self, value: int | Int, /) -> None: ...
        def __index__(self) -> int: ...
        def __int__(self) -> int: ...

    class s32(Int):
        """An integer of 32 bits in memory."""

    _Element = TypeVar("_Element")
    _Real = TypeVar("_Real", R, f64)
    _Any = TypeVar("_Any", T, R, f64)

    class Pointer(Generic[_Element]):
        """Memory of elements of a type."""

        def __getitem__(self, index: int, /) -> _Element: ...
        def __setitem__(self, index: int, value: _Element, /) -> None: ...

    def scratch(kind: type[_Element], count: int) -> Pointer[_Element]:
        """Memory of so many elements that a call of the kernel has for itself."""

    def sqrt(x: _Real) -> _Real: ...
    def fma(x: _Real, y: _Real, z: _Real) -> _Real: ...
    def maximum(x: _Real, y: _Real) -> _Real:
        """The larger one; NaN where one of them is."""

    def summed(total: _Any, x: _Any) -> _Any:
        """`total + x` of a sum whose order is free."""

    def quotient(x: s64, y: s64) -> s64:
        """Of integers that are not negative."""

    def address(p: Pointer[Any]) -> s64:
        """In bytes."""

    def prefetch(at: s64) -> None:
        """Asks for the cache line at an address."""

    def conj(x: T) -> T: ...
    def pair(real: R, imag: R) -> T:
        """A complex number of its parts."""

    def cabs1(x: T) -> R:
        """The sum of the absolute values of the parts: LAPACK's measure of pivots."""

    def abs_squared(x: T) -> R: ...
    def is_finite(x: T | R | f64) -> bool: ...

else:
    T, R, Int = Type("T"), Type("R"), Type("Int")
    s32, s64, f64 = Type("s32"), Type("s64"), Type("f64")
    inf, nan = float("inf"), float("nan")
    Pointer = Generic[_Made]
    scratch = Function("scratch")
    sqrt, fma, maximum, summed = Function("sqrt"), Function("fma"), Function("max"), Function("sum")
    conj, cabs1, abs_squared = Function("conj"), Function("cabs1", "part"), Function("abs_squared", "part")
    quotient, address = Function("quotient", generic=False), Function("address", generic=False)
    prefetch = Function("prefetch", generic=False)
    is_finite, pair = Function("is_finite", "pred"), Function("complex", "whole")
