"""Sizes that are unknown while a program is built: the None in `placeholder("x", [None, 32])`.

A program is traced once, with a number of its own for each unknown size: a large prime, the size's *probe*. Whatever is
computed from the size is then recognized in the graph: 2n + 1 is the number 2 p + 1, the divisor of a mean is the
constant p. `specialized` puts the sizes of a call in their place and infers every shape again, so that a mistake is an
error and not a wrong shape.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

import hloom.numpy as hnp
from hloom.arrays.dimensions import PROBES, READERS, SMALLEST, SizeNumber
from hloom.errors import HloomError, ShapeError, UnsupportedError
from hloom.ir.module import Computation, Instruction
from hloom.ir.op_table import OPS
from hloom.ir.types import HLO_NAME, Shape, TupleShape
from hloom.sessions.graph import sizes_of
from hloom.tracing.active import TRACES
from hloom.tracing.trace import bind

_REST = 4096  # what may be added to a multiple of a probe: padding, slices
_FACTOR = 1 << 20
_TERMS = 64  # the largest factors in a sum of two sizes
_NEAR = 16  # what may be added in a constant
_LEAST, _MOST = 0.02, 50.0  # floating-point constants between these have nothing to do with an unknown size
# What computes on arrays what an operator does on numbers.
_FUNCTIONS: dict[Any, str] = {
    operator.add: "add", operator.sub: "subtract", operator.mul: "multiply", operator.truediv: "true_divide",
    operator.floordiv: "floor_divide", operator.mod: "remainder", operator.pow: "power", operator.neg: "negative",
    operator.pos: "positive", operator.abs: "abs",
}  # fmt: skip
_OFFSETS = (0, -1, 1, -2, 2)
# Sizes at which a number that the user's code computes is compared with what would be put in its place: odd, even, and
# with several remainders. The first sizes are 1.
_SAMPLES = ((1, 0), (6, 5), (35, 11), (97, 6), (1000, 17))


class Sizes:
    """The unknown sizes of a program by name. `probes`: the number that stands for each."""

    def __init__(self, probes: Mapping[str, int] | None = None, trace: Any = None):
        self.probes: dict[str, int] = dict(probes or {})
        self.trace = trace  # of the program; constants of its sizes are nodes of it
        self._substitutions: list[Substitution] = []
        if self.probes:
            READERS.find = sizes_of  # not before, as it costs time wherever a shape is read
        self._parts: set[int] = set()  # sizes in shapes that are a rounded part of a size

    def probe(self, name: str) -> int:
        """The number that stands for a size; the size is added where it is new. Raises UnsupportedError."""
        if name not in self.probes:
            unused = [p for p in PROBES if p not in self.probes.values()]
            if not unused:
                raise UnsupportedError(
                    f"an unknown size {name!r}",
                    f"the program has {len(PROBES)} already",
                    "make some of the sizes known",
                )
            self.probes[name] = unused[0]
            READERS.find = sizes_of
        return self.probes[name]

    def name_of(self, size: int) -> str | None:
        """The name of the unknown size that a number stands for, or None."""
        return next((name for name, probe in self.probes.items() if probe == size), None)

    def shown(self, dims: Iterable[int]) -> tuple:
        """Dimensions with names (None for those that the user did not name) in place of probes."""
        named = [(n, self.name_of(n)) for n in dims]
        return tuple(n if name is None else (None if name.startswith("?") else name) for n, name in named)

    def called(self) -> str:
        """The sizes for messages."""
        return ", ".join(f"the None on axis {n[1:]}" if n.startswith("?") else repr(n) for n in self.probes)

    def samples(self) -> list[Substitution]:
        """The substitutions of sample sizes."""
        if not self._substitutions or len(self._substitutions[0].given) != len(self.probes):
            self._substitutions = [
                Substitution(self, {name: first + step * k for k, name in enumerate(self.probes)})
                for first, step in _SAMPLES
            ]
        return self._substitutions

    def number(self, n: int) -> Any:
        """A number of a shape for the user's code: a SizeNumber where it depends on these sizes."""
        to = self.samples()
        known = [one.recognized(n) for one in to]
        if None not in known:
            return SizeNumber(n, tuple(known), self)
        if not to[0].is_part(n):
            return n
        self._parts.add(n)
        return SizeNumber(n, (math.nan,) * len(to), self)

    def check_integer(self, number: SizeNumber) -> None:
        """Raises ShapeError, at the user's line, where an integer would not be found again."""
        value = int(number.value)
        if value in self._parts:
            return
        for one, wanted in list(zip(self.samples(), number.samples, strict=True))[1:]:
            if one.integer(value) != wanted:
                raise self._unknown_form("an integer")

    def _unknown_form(self, what: str) -> ShapeError:
        return ShapeError(
            f"{what} that depends on {self.called()}",
            "an unknown size, in a form that is not found again when the size is known",
            "use operators and functions of numpy (not math) for numbers, sums and products of sizes for shapes and "
            "indexes; or feed a fixed size: placeholder('x', [100, 32])",
        )

    def narrow(self, value: float, dtype: np.dtype) -> Any:
        """The node of a number in a dtype of 16 bits or less; None where it is not made of these sizes."""
        made = np.asarray(value, np.float32)
        if not any(one.scalar(made) != made for one in self.samples()):
            return None
        return bind("convert", self.trace.number(made, None), shape=Shape(dtype, ()))

    def check_narrow(self, array: Any) -> None:
        """Raises ShapeError for a scalar of 16 bits or less that may be made of a size: it is not exact."""
        if (
            array.dtype.itemsize >= 4
            or array.dtype.kind in "biu"
            or any(isinstance(t, type(self.trace)) for t in TRACES.active)
        ):
            return
        value = abs(float(array._value()))
        if (value == math.inf and float(array._value()) > 0) or SMALLEST <= value < math.inf or 0 < value < 1 / 50_000:
            raise ShapeError(
                f"a constant of {HLO_NAME[array.dtype]} outside of `with program:`",
                f"{float(array._value())}, which may depend on {self.called()}",
                "compute it inside of `with program:`, or with astype('float32')",
            )

    def array(self, number: SizeNumber) -> Any:
        """The node of a number that the user's code made of sizes: a constant that is found again when they are known,
        or else what computes it. Raises ShapeError, at the user's line, where nothing does."""
        to, value, wide = self.samples(), number.value, None
        if isinstance(value, (bool, np.bool_)):
            raise number._error("a truth value of", "compare arrays")
        if isinstance(value, (int, np.integer)):
            made = np.asarray(value, np.int32 if -(2**31) <= value < 2**31 else np.int64)
        else:
            with np.errstate(over="ignore"):
                made, wide = np.asarray(value, np.float32), np.asarray(value, np.float64)
        for constant in (made, made if wide is None else wide):
            for one, wanted in list(zip(to, number.samples, strict=True))[1:]:
                tolerance = (
                    0 if constant.dtype.kind == "i" else 4 * 2.0 ** (-52 if constant.dtype.itemsize == 8 else -23)
                )
                found = one.scalar(constant)
                if not np.isclose(found, wanted, rtol=tolerance, atol=0):
                    return self._computed(number, made.dtype)
        if wide is not None:
            whole = float(wide) if abs(wide) > 1 else 1 / float(wide)
            if whole == round(whole) and to[0].recognized(round(whole)) is None and to[0].is_part(round(whole)):
                # 2 / (n + 1) is 1 / (the size of x[::2]) for odd sizes only
                return self._computed(number, made.dtype)
        return self.trace.number(made, wide)

    def _computed(self, number: SizeNumber, dtype: np.dtype) -> Any:
        """The node that computes a number in double precision, or as int64. Raises ShapeError."""
        found = self._exact(number)
        if found is None:
            raise self._unknown_form("a constant")
        own = number.value.dtype if isinstance(number.value, np.generic) else dtype
        made = bind("convert", found, shape=Shape(own, ()))
        made.weak = not isinstance(number.value, np.generic)  # as Python's numbers are
        return made

    def _exact(self, number: Any) -> Any:
        """A node of int64 or f64; None where the function that made the number is not one of arrays."""
        if not isinstance(number, SizeNumber):
            whole = isinstance(number, (int, np.integer)) and -(2**63) <= number < 2**63
            return self.trace.exactly(np.asarray(number, np.int64 if whole else np.float64))
        if isinstance(number.value, (int, np.integer)) and -(2**63) <= number.value < 2**63:
            exact = np.asarray(number.value, np.int64)
            if all(one.scalar(exact) == n for one, n in zip(self.samples()[1:], number.samples[1:], strict=True)):
                return self.trace.exactly(exact)
        if number.made is None:
            return None
        function, given = number.made
        name = _FUNCTIONS.get(function) or (function.__name__ if isinstance(function, np.ufunc) else "")
        compute, operands = getattr(hnp, name, None), [self._exact(operand) for operand in given]
        if compute is None or any(operand is None for operand in operands):
            return None
        if not isinstance(number.value, (int, np.integer)):
            operands = [bind("convert", operand, shape=Shape(np.dtype(np.float64), ())) for operand in operands]
        return compute(*operands)

    def monomials(self, of: Collection[str]) -> list[tuple[int, tuple[str, ...]]]:
        """(value, names) of the products of up to three of these sizes, single sizes first."""
        chosen = [name for name in self.probes if name in of]
        found = []
        for degree in (1, 2, 3):
            for names in itertools.combinations_with_replacement(chosen, degree):
                found.append((math.prod(self.probes[n] for n in names), names))
        return found


def _short(factor: float) -> float:
    """The decimal of two digits, the integer up to 256, or the power of two near a number; 0 where there is none."""
    candidates = [float(f"{factor:.2g}"), float(round(factor)) if abs(factor) <= 256 else 0.0]
    candidates.append(math.copysign(2.0 ** round(math.log2(abs(factor))), factor))
    return min(candidates, key=lambda c: abs(factor - c)) if factor else 0.0


def _same(a: float, b: float, dtype: Any) -> bool:
    """Whether two numbers are equal; in double precision, where both are rounded several times, but for that."""
    return math.isclose(a, b, rel_tol=4 * 2.0**-52) if dtype.itemsize > 4 else bool(dtype.type(a) == dtype.type(b))


class Substitution:
    """Numbers of a program for given sizes."""

    def __init__(self, sizes: Sizes, given: Mapping[str, int]):
        self._parts: dict[int, int] = {}  # sizes of shapes that are a part of an unknown one, rounded
        self.given = dict(given)
        self._monomials = [(v, math.prod(given[n] for n in names)) for v, names in sizes.monomials(given)]
        self._known: dict[int, int | None] = {}
        self.computations: dict[int, tuple[Computation, Computation]] = {}

    def learn(self, old: Shape, new: Shape) -> None:
        """Notes the sizes of an inferred shape: such as those of every second row, (n + 1) // 2."""
        for a, b in zip(old.dims, new.dims, strict=True):
            if a >= SMALLEST and self._known.get(a) is None:
                self._known[a] = b
                if self.recognized(a) is None and self.is_part(a):
                    self._parts[a] = b

    def integer(self, value: int) -> int:
        """The number for the given sizes; itself where it has nothing to do with an unknown one."""
        if -SMALLEST < value < SMALLEST:
            return value
        if value not in self._known:
            self._known[value] = self.recognized(value)
        found = self._known[value]
        return value if found is None else found

    def recognized(self, value: int) -> int | None:
        """As `integer`; None where it has nothing to do with an unknown size, or is a part of one."""
        for probe, size in self._monomials:
            factor = round(value / probe)
            rest = value - factor * probe
            if factor and abs(rest) <= _REST and abs(factor) <= _FACTOR and not self.is_part(abs(factor)):
                return factor * size + rest
        for (first, one), (second, two) in itertools.permutations(self._monomials, 2):
            for factor in range(1, min(_TERMS, value // first + 1) + 1):
                rest = value - factor * first
                other = round(rest / second)
                if other and abs(rest - other * second) <= _REST and abs(other) <= _TERMS:
                    return factor * one + other * two + rest - other * second
        return None

    def is_part(self, factor: int) -> bool:
        """Whether a factor is itself a part of an unknown size, as in n (n + 1) / 2: it is inferred then."""
        return factor >= SMALLEST // 2 and any(
            abs(factor * part - round(factor * part / probe) * probe) <= 2 * part
            for probe, _ in self._monomials
            for part in range(1, 17)
            if round(factor * part / probe)
        )

    def scalar(self, value: np.ndarray) -> np.ndarray:
        """A small constant for the given sizes: n + b, its multiples and parts, c / (n + b), and c times n ** 0.5 or
        n ** -0.5."""
        if value.dtype.kind in "iu":
            found = [self._near(int(v)) for v in value.ravel()]
            flat: list[Any] = [int(v) if new is None else new for v, new in zip(value.ravel(), found, strict=True)]
        elif value.dtype.kind == "f" and value.dtype.itemsize >= 4:
            with np.errstate(over="ignore"):  # of candidates
                flat = [self._real(float(v), value.dtype) for v in value.ravel()]
        else:
            return value
        return np.array(flat, value.dtype).reshape(value.shape)

    def _near(self, value: int) -> int | None:
        """As `recognized`, but only small multiples of n and of its products, as other integers may be seeds."""
        if abs(value) < SMALLEST:
            return None
        for probe, size in self._monomials:
            factor = round(value / probe)
            if factor and abs(factor) <= 4096 and abs(value - factor * probe) <= _NEAR:
                return factor * size + value - factor * probe
        return None

    def _real(self, value: float, dtype: Any) -> float:
        if not math.isfinite(value) or value == 0 or _LEAST < abs(value) < _MOST:
            return value
        for rounded, actual in self._parts.items():
            if dtype.type(rounded) == dtype.type(value):
                return float(actual)
            if dtype.type(1 / rounded) == dtype.type(value):
                return 1.0 / actual if actual else math.inf
        for part in range(1, 17):  # (n - 1) / 4, exactly
            whole = value * part
            if whole == int(whole) and abs(whole) < 2.0 ** (np.finfo(dtype).nmant + 1):
                found = self._near(int(whole))
                if found is not None:
                    return found / part
        for probe, size in self._monomials:
            for power in (1, -1, 0.5, -0.5):
                if (power > 0) != (abs(value) > 1):
                    continue
                for offset in _OFFSETS if power in (1, -1) else (0,):
                    factor = _short(value / (probe + offset) ** power)
                    if factor and _same(factor * (probe + offset) ** power, value, dtype):
                        base = float(size + offset)
                        return factor * base**power if base > 0 else math.inf * factor if power < 0 else 0.0
        return value

    def any(self, value: Any) -> Any:
        """An attribute for the given sizes."""
        if type(value) is int:
            return self.integer(value)
        if isinstance(value, tuple):
            new = [self.any(v) for v in value]
            if all(a is b for a, b in zip(new, value, strict=True)):
                return value
            return type(value)(*new) if hasattr(value, "_fields") else tuple(new)
        if isinstance(value, list):
            return [self.any(v) for v in value]
        if isinstance(value, Computation):
            return specialized(value, self)
        if hasattr(type(value), "__record_fields__"):
            fields = {name: getattr(value, name) for name in type(value).__record_fields__}
            new_fields = {name: self.any(v) for name, v in fields.items()}
            if any(new_fields[name] is not fields[name] for name in fields):
                return type(value)(**new_fields)
        return value

    def shape(self, shape: Any) -> Any:
        """A shape for the given sizes."""
        if isinstance(shape, TupleShape):
            return TupleShape([self.shape(s) for s in shape.elements])
        return Shape(shape.dtype, tuple([self.integer(n) for n in shape.dims]))


def specialized(computation: Computation, to: Substitution) -> Computation:
    """The computation for given sizes.

    Raises ShapeError, at the user's line, where an operation cannot have these sizes.
    """
    known = to.computations.get(id(computation))
    if known is not None:
        return known[1]
    mapped: dict[Instruction, Instruction] = {}
    for instruction in computation.instructions:
        mapped[instruction] = _specialized(instruction, mapped, to)
    result = Computation(
        computation.name,
        [mapped[p] for p in computation.parameters],
        [mapped[i] for i in computation.instructions],
        mapped[computation.root],
    )
    if all(new is old for old, new in mapped.items()):
        result = computation
    to.computations[id(computation)] = computation, result
    return result


def _specialized(instruction: Instruction, mapped: dict[Instruction, Instruction], to: Substitution) -> Instruction:
    operands = tuple([mapped[o] for o in instruction.operands])
    if instruction.opcode == "constant":
        value = instruction["value"]
        attributes = {"value": _constant(instruction, value, to)} if value.size <= 64 else instruction.attributes
        if value.size > 64:
            _constant(instruction, value, to)
        if value.size > 64 or np.array_equal(attributes["value"], value, equal_nan=value.dtype.kind in "fc"):
            return instruction
    else:
        attributes = {name: to.any(value) for name, value in instruction.attributes.items()}
    shape = to.shape(instruction.shape)
    same = all(attributes[name] is value for name, value in instruction.attributes.items())
    if same and shape is instruction.shape and operands == instruction.operands:
        return instruction
    if instruction.opcode not in ("parameter", "constant"):
        try:
            shape = OPS[instruction.opcode].infer([o.shape for o in operands], attributes, shape)
        except (HloomError, AttributeError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            _refuse(instruction, to, error)
    if isinstance(shape, Shape):
        to.learn(instruction.shape, shape)
    made = Instruction(
        instruction.opcode, operands, shape, attributes, instruction.hint, instruction.source, instruction.made_by
    )
    made.sharding = instruction.sharding
    return made


def _constant(instruction: Instruction, value: np.ndarray, to: Substitution) -> np.ndarray:
    if any(to.integer(n) != n for n in value.shape):
        raise ShapeError(
            "a constant of an unknown size",
            f"{instruction.shape!r}, whose first call has {_given(to)}",
            "make it from the placeholder: hnp.zeros_like(x), hnp.arange(x.shape[0])",
            instruction.source,
        )
    return to.scalar(value) if value.size <= 64 else value


def _refuse(instruction: Instruction, to: Substitution, error: Exception) -> None:
    found = f"{error.asked}; {error.found}" if isinstance(error, HloomError) else str(error)
    raise ShapeError(
        f"{instruction.opcode} for {_given(to)}",
        found,
        "feed arrays of other sizes; sizes that differ need names of their own: placeholder('x', ['rows', 32])",
        instruction.source,
    ) from error


def _given(to: Substitution) -> str:
    names = {name: f"None on axis {name[1:]}" if name.startswith("?") else name for name in to.given}
    return ", ".join(f"{names[name]} = {size}" for name, size in to.given.items())


__all__ = ["PROBES", "Sizes", "Substitution", "specialized"]
