"""Runs a kernel's nodes on NumPy arrays, one element after the other: a second opinion of what compiled code does.

Arithmetic has the types of the language (`types`), every access is checked against its array, and a variable that is
read before it has a value is an error. The math functions are those that the caller brings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Call,
    Cast,
    Choice,
    Const,
    Do,
    Expr,
    For,
    If,
    Jump,
    Kernel,
    Load,
    Logic,
    Scratch,
    Stmt,
    Store,
    Together,
    Unary,
    Var,
    While,
)
from hloom.compiler.kernel_ir.types import FLOATS, PART, STORED, is_integer, is_pointer, joined
from hloom.ir.types import DTYPES, compute_dtype

__all__ = ["Address", "Memory", "OutOfBounds", "run"]

Functions = Callable[[str], Callable[..., Any]]
_Values = dict[Var, Any]


class OutOfBounds(Exception):
    """An access outside of an array."""


class Memory:
    """A pointer: the elements of an array, as they are stored."""

    def __init__(self, array: np.ndarray, dtype: str, name: str):
        kind = DTYPES[STORED.get(dtype, dtype)]
        self.elements = array.reshape(-1).view(kind) if array.dtype != kind else array.reshape(-1)
        self.name = name

    def place(self, index: Any) -> int:
        number = int(index)
        if not 0 <= number < len(self.elements):
            raise OutOfBounds(f"{self.name}[{number}] of {len(self.elements)} elements")
        return number

    def __getitem__(self, index: Any) -> Any:
        return self.elements[self.place(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.elements[self.place(index)] = value


class Address:
    """The address of a byte of an array."""

    def __init__(self, memory: Memory, offset: int = 0):
        self.memory, self.offset = memory, offset

    def __add__(self, distance: Any) -> Address:
        return Address(self.memory, self.offset + int(distance))

    def __sub__(self, distance: Any) -> Address:
        return self + -int(distance)

    __radd__ = __add__

    def element(self, index: int) -> int:
        """The index of an element from here on. Raises OutOfBounds."""
        size = self.memory.elements.itemsize
        if self.offset % size:
            raise OutOfBounds(f"{self.memory.name} + {self.offset} bytes is not the address of an element")
        return self.memory.place(self.offset // size + index)


class _Left(Exception):
    """A jump out of the statements around."""

    def __init__(self, how: str):
        self.how = how


def run(
    kernel: Kernel, arguments: Sequence[Any], functions: Functions, parts: Mapping[str, Kernel] | None = None
) -> None:
    """Runs a kernel, which changes the arrays among its arguments.

    arguments: for each parameter a contiguous array, a `Memory`, or a number. functions: the meaning of a name of the
    math library, of NumPy scalars; of other functions of the language as far as `_own` has none. parts: kernels that
    it calls by name. Raises OutOfBounds, KeyError for a variable without a value.
    """
    values: _Values = {}
    for var, given in zip(kernel.params, arguments, strict=True):
        if is_pointer(var.type):
            values[var] = given if isinstance(given, Memory) else Memory(given, var.type[1:], var.name)
        else:
            values[var] = _converted(given, var.type)
    with np.errstate(all="ignore"), contextlib.suppress(_Left):
        _Interpreter(values, functions, parts or {}).block(kernel.body)


class _Interpreter:
    def __init__(self, values: _Values, functions: Functions, parts: Mapping[str, Kernel]):
        self.values, self.functions, self.parts = values, functions, parts
        self.scratch: dict[int, Memory] = {}

    # --- statements

    def block(self, statements: list[Stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, s: Stmt) -> None:
        match s:
            case Assign():
                self.values[s.var] = self.taken(s.var, self.value(s.value))
            case Store():
                self.store(s, self.value(s.value))
            case Together():
                for part, value in zip(s.parts, [self.value(part.value) for part in s.parts], strict=True):
                    if isinstance(part, Assign):
                        self.values[part.var] = self.taken(part.var, value)
                    else:
                        self.store(part, value)
            case Scratch():
                self.values[s.var] = self.memory_of(s)
            case For():
                bounds = [int(self.value(bound)) for bound in (s.start, s.stop, s.step)]
                for number in range(*bounds):
                    self.values[s.var] = np.int64(number)
                    if self.leaves(s.body):
                        break
            case While():
                while bool(self.value(s.test)):
                    if self.leaves(s.body):
                        break
            case If():
                self.block(s.then if bool(self.value(s.test)) else s.other)
            case Jump():
                raise _Left(s.how)
            case Do():
                self.do(s.function, [self.value(argument) for argument in s.arguments])

    def leaves(self, body: list[Stmt]) -> bool:
        """Whether an iteration of a loop ends the loop."""
        try:
            self.block(body)
        except _Left as left:
            if left.how == "return":
                raise
            return left.how == "break"
        return False

    def taken(self, var: Var, value: Any) -> Any:
        return value if is_pointer(var.type) else _converted(value, var.type)

    def memory_of(self, s: Scratch) -> Memory:
        """Scratch memory, the same in each iteration of a loop; what it holds first is nothing that a test expects."""
        found = self.scratch.get(id(s))
        if found is None:
            dtype = s.var.type[1:]
            array = np.full(s.size * DTYPES[STORED.get(dtype, dtype)].itemsize, 0xA5, np.uint8)
            found = self.scratch[id(s)] = Memory(array, dtype, s.var.name)
        return found

    def store(self, s: Store, value: Any) -> None:
        memory, index = self.value(s.pointer), self.value(s.index)
        if s.augmented:  # the index may change with the value's functions, but none has effects
            value = self.value(s.value)
        memory[index] = _stored(value, s.stored)

    def do(self, name: str, arguments: list[Any]) -> None:
        part = self.parts.get(name)
        if part is not None:
            run(part, arguments, self.functions, self.parts)
        elif name != "prefetch":
            self.functions(name)(*arguments)

    # --- expressions

    def value(self, e: Expr) -> Any:
        match e:
            case Var():
                return self.values[e]
            case Const():
                return _converted(e.value, e.type)
            case Load():
                return _loaded(self.value(e.pointer), self.value(e.index), e)
            case Binary():
                return _operation(e, self.value(e.left), self.value(e.right))
            case Unary():
                return _unary(e, self.value(e.operand))
            case Logic():
                for operand in e.operands:
                    if bool(self.value(operand)) == (e.op == "or"):
                        return np.bool_(e.op == "or")
                return np.bool_(e.op == "and")
            case Cast():
                return _converted(self.value(e.operand), e.type)
            case Choice():
                return self.of_type(self.value(e.yes if bool(self.value(e.test)) else e.no), e.type)
            case Call():
                return self.call(e)
        raise TypeError(f"{type(e).__name__} is no expression of the kernel language")

    def of_type(self, value: Any, kind: str) -> Any:
        return value if is_pointer(kind) else _converted(value, kind)

    def call(self, e: Call) -> Any:
        arguments = [self.value(argument) for argument in e.arguments]
        own = _own(e.function)
        made = own(*arguments) if own is not None else self.functions(e.function)(*arguments)
        return self.of_type(made, e.type)


def _own(name: str) -> Callable[..., Any] | None:
    """The functions of the language that every kernel has; None for others."""
    kind, _, dtypes = name.partition("_")
    if kind == "bitcast" and all(dtype in (*FLOATS, "s32", "u32", "s64", "u64") for dtype in dtypes.split("_")):
        return lambda value: np.asarray(value).view(DTYPES[dtypes.split("_")[1]])[()]
    return _OWN.get(name)


def _extremum(smaller: bool) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        best = values[0]
        for value in values[1:]:
            best = value if (value < best if smaller else value > best) else best
        return best

    return call


_OWN: dict[str, Callable[..., Any]] = {
    "min": _extremum(True),
    "max": _extremum(False),
    "select": lambda test, yes, no: yes if bool(test) else no,
    "address": Address,
    "quotient": lambda left, right: np.int64(np.uint64(left) // np.uint64(right)),
    "complex_f32": lambda real, imaginary: np.complex64(complex(real, imaginary)),
    "complex_f64": lambda real, imaginary: np.complex128(complex(real, imaginary)),
}


def _register(kind: str) -> Any:
    """The NumPy type of a register."""
    return compute_dtype(DTYPES[kind]).type


def _converted(value: Any, kind: str) -> Any:
    """A number as another type, as C converts; an address stays one."""
    wanted = _register(kind)
    if type(value) is wanted or isinstance(value, Address):
        return value
    if is_integer(kind) and not isinstance(value, (float, np.floating)):
        info = np.iinfo(wanted)
        return wanted((int(value) - info.min) % (1 << info.bits) + info.min)
    return np.asarray(value).astype(wanted)[()]


def _operation(e: Binary, left: Any, right: Any) -> Any:
    if isinstance(left, Address) or isinstance(right, Address):
        return left + right if e.op == "+" else left - right
    kind = joined(e.left.type, e.right.type) if e.left.type != e.right.type or e.type != "pred" else e.left.type
    if e.op == "/" and is_integer(kind):
        kind = "f64"
    a, b = _converted(left, kind), _converted(right, kind)
    match e.op:
        case "//" | "%" if b == 0:
            return _register(kind)(0)
        case ">>" | "<<" if not 0 <= int(b) < 64:
            raise OutOfBounds(f"a shift by {int(b)}")
    made = _ARITHMETIC[e.op](a, b)
    return np.bool_(made) if e.type == "pred" else _converted(made, e.type)


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide, "//": np.floor_divide, "%": np.remainder,
    "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor, "<<": np.left_shift, ">>": np.right_shift,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip


def _unary(e: Unary, value: Any) -> Any:
    match e.op:
        case "not":
            return np.bool_(not value)
        case "-":
            return _converted(np.negative(value), e.type)
        case "~":
            return np.logical_not(value) if e.type == "pred" else np.invert(value)
    assert e.operand.type in PART
    return value.real if e.op == ".real" else value.imag


def _loaded(memory: Memory, index: Any, e: Load) -> Any:
    stored, bits = e.pointer.type[1:], memory[index]
    if stored not in STORED or e.type == STORED[stored]:
        return bits
    if stored == "pred":
        return np.bool_(bits != 0)
    return np.float32(np.asarray(bits).view(DTYPES[stored])[()])


def _stored(value: Any, stored: str) -> Any:
    if stored == "pred":
        return np.uint8(bool(value))
    if stored in STORED:
        return np.asarray(np.float32(value)).astype(DTYPES[stored]).view(np.uint16)[()]
    return _converted(value, stored)
