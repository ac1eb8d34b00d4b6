"""Loads and stores of a kernel's arrays: indices that are proved in range or checked, and parallel loops without races.

An index that the ranges of its parts do not prove is checked when the kernel runs: the first that is out of range ends
the work of its thread, and its number goes into the kernel's last result, `fault`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.compiler.kernel_ir.nodes import Binary, Const, Expr, If, Jump, Load, Logic, Stmt, Store, Var
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.records import record
from hloom.ir.source import Source
from hloom.ir.types import COMPLEX, HLO_NAME
from hloom.kernels.frontend import ranges
from hloom.kernels.frontend.arithmetic import Arithmetic, register
from hloom.kernels.frontend.races import Access, Loops, race
from hloom.kernels.frontend.values import S64, UNKNOWN, Number, View

__all__ = ["FAULT_BITS", "Check", "Memory", "WritesArgument", "spelled"]

FAULT_BITS = 40  # of a fault, for the index; the bits above are the number of the check, from 1


class WritesArgument(ArgumentError):
    """An array that is an argument is written."""

    pointer: Var


@record(frozen=True)
class Check:
    """An index checked at run time. what: the user's array and dimension. size: None: not known. asked, repair: of
    another condition, for which `what` says what was found. error: what the user's program raises."""

    what: str
    size: int | None
    source: Source
    asked: str = ""
    repair: str = ""
    error: Exception | None = None


class Memory(Arithmetic):
    """Arithmetic, and accesses of memory."""

    def __init__(self, source: Source, taken: frozenset[str] = frozenset(), unchecked: bool = False):
        super().__init__(source, taken)
        self.unchecked = unchecked
        self.checks: list[Check] = []
        self.fault = Var("*s64", "fault")
        self.accesses: list[Access] = []
        self.loops = Loops()
        self.conditions = 0  # branches and loops of unknown length around the current statement
        self.proved = 0
        self.limits: dict[Var, Expr] = {}  # exclusive upper bounds of loop variables
        self.trips: dict[Var, int] = {}  # of loops: the greatest number of their iterations, by variable
        self.loop_spans: dict[Var, ranges.Range] = {}

    def element(self, view: View, indices: Sequence[Number]) -> Expr:
        """The offset of an element. Raises ShapeError for one that is out of range for certain."""
        offset = view.start
        for k, (index, size, stride) in enumerate(zip(indices, view.dims, view.strides, strict=True)):
            index = self.check(self.whole(index), size, view, k)
            offset = self.binary("+", offset, self.binary("*", index, stride))
        return offset.expr

    def whole(self, index: Number) -> Number:
        """An index as a number of s64."""
        if not index.is_integer:
            self.refuse(
                ArgumentError, "an index is an integer", f"a number of {HLO_NAME[index.dtype]}", "convert it with int()"
            )
        return self.cast(index, S64)

    def check(self, index: Number, size: Number, view: View, dimension: int) -> Number:
        """Sees to it that 0 <= index < size. Returns the index as it is then known."""
        valid = ranges.within(index.span, size.span)
        if valid is None and index.span[0] is not None and index.span[0] >= 0 and isinstance(index.expr, Var):
            valid = self.limits.get(index.expr) == size.expr or None
        if valid is False:
            self.refuse(
                ShapeError,
                f"'{view.name}' is read or written at an index of dimension {dimension}",
                f"the index is {spelled(index.span)}, the size {spelled(size.span)}",
                "indices go from 0 to the size less one; in a loop, end its range earlier",
            )
        if valid:
            self.proved += 1
        elif not self.unchecked:
            value = index.expr if isinstance(index.expr, Var) else self.named(index.expr, "index")
            low = Binary("pred", "<", value, Const("s64", 0))
            high = Binary("pred", ">=", value, size.expr)
            sized = size.known if isinstance(size.known, int) else None
            self.fail_if(Logic("or", (low, high)), f"index of dimension {dimension} of '{view.name}'", sized, value)
            most = None if size.span[1] is None else size.span[1] - 1
            span = ranges.meet(index.span, (0, most))
            self.spans[value] = ranges.meet(self.spans.get(value, UNKNOWN), span)
            return Number(value, index.dtype, index.weak, span, index.known)
        return index

    def fail_if(self, test: Expr, what: str, size: int | None, value: Expr) -> None:
        """Ends the kernel where a test is true."""
        mask = Const("s64", (1 << FAULT_BITS) - 1)
        self.block.append(If(test, self._stop(Check(what, size, self.source), Binary("s64", "&", value, mask))))

    def _stop(self, check: Check, low: Expr) -> list[Stmt]:
        """Statements that end the kernel. low: the lower bits of its fault."""
        self.checks.append(check)
        word = Binary("s64", "|", Const("s64", len(self.checks) << FAULT_BITS), low)
        return [Store(self.fault, Const("s64", 0), word, "s64"), Jump("return")]

    def fail(self, error: Exception) -> None:
        """Ends the kernel with an error of the user's."""
        self.block += self._stop(Check("", None, self.source, error=error), Const("s64", 0))

    def load(self, view: View, indices: Sequence[Number]) -> Number:
        """An element."""
        at = self.element(view, indices)
        self._note(view, at, False)
        made = Number(Load(register(view.dtype), view.pointer, at), view.dtype)
        return made if view.dtype.kind not in "iu" or view.dtype == S64 else self._narrow(made)

    @staticmethod
    def _narrow(value: Number) -> Number:
        """With the range of its dtype."""
        bits = 8 * value.dtype.itemsize
        unsigned = value.dtype.kind == "u"
        if bits == 64:
            return value
        span = (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        return Number(value.expr, value.dtype, span=span)

    def store(self, view: View, indices: Sequence[Number], value: Number) -> None:
        """Writes an element."""
        self.require_writable(view)
        if value.dtype in COMPLEX and view.dtype not in COMPLEX:
            self.refuse(
                DTypeError, f"a number is written into '{view.name}'",
                f"{HLO_NAME[value.dtype]} into {HLO_NAME[view.dtype]}, which has no imaginary part",
                "write its real part, or make the array with a complex dtype",
            )  # fmt: skip
        self.require_fit(value, view.dtype)
        converted = self.cast(value, view.dtype)
        at = self.element(view, indices)
        self._note(view, at, True)
        kind = HLO_NAME[view.dtype]
        self.block.append(Store(view.pointer, at, converted.expr, kind))

    def require_writable(self, view: View) -> None:
        if not view.writable:
            error = WritesArgument(
                f"'{view.name}' is written",
                "it is an argument, and a kernel writes arrays that it makes",
                f"write into a copy, out = {view.name}.copy(), and return that",
                self.source,
            )
            error.pointer = view.pointer
            raise error

    def _note(self, view: View, at: Expr, written: bool) -> None:
        if not view.writable or view.local:
            return
        access = Access(view.pointer, at, written, self.conditions, self.source, view.name)
        for other in self.accesses:
            if (found := race(access, other, self.loops)) is not None:
                self.refuse(*found)
        if (found := race(access, access, self.loops)) is not None:
            self.refuse(*found)
        self.accesses.append(access)


def spelled(span: ranges.Range) -> str:
    """A range, in errors."""
    low, high = span
    if low == high and low is not None:
        return str(low)
    return f"{'unknown' if low is None else low} to {'unknown' if high is None else high}"
