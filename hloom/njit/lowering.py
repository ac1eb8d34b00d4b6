"""Loops of NumPy programs as kernels: the language of users' kernels, with NumPy's own dtypes and indices."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from hloom.compiler.kernel_ir.nodes import Assign, Binary, Const, If, Logic, Store, Var
from hloom.errors import HloomError, ShapeError
from hloom.ir.records import record
from hloom.ir.types import DTYPES, HLO_NAME, PRED
from hloom.kernels.derivatives.activity import statements_of
from hloom.kernels.derivatives.disjoint import is_disjoint
from hloom.kernels.frontend import ranges
from hloom.kernels.frontend.arrays import SCRATCH, Array
from hloom.kernels.frontend.functions import is_prange
from hloom.kernels.frontend.lowering import Lowered, Lowering
from hloom.kernels.frontend.memory import WritesArgument, spelled
from hloom.kernels.frontend.names import Again, Widen
from hloom.kernels.frontend.syntax import assigned_names
from hloom.kernels.frontend.values import S64, UNKNOWN, Lazy, Number, Static, Value, View, integer
from hloom.kernels.programs import Draft
from hloom.njit.generators import draws
from hloom.njit.generators.methods import Draw, Generator, drawn
from hloom.njit.inlining import one_return
from hloom.njit.liveness import own_jumps
from hloom.njit.outside import noting

__all__ = ["NumpyLowering", "StateName", "promotion", "relative"]

_ARITHMETIC = frozenset(("+", "-", "*", "/", "//", "%", "**", "<<", ">>"))
_PYTHON = {"b": True, "i": 1, "u": 1, "f": 1.0, "c": 1j}
_OWN = {"i": "s64", "u": "s64", "f": "f64", "c": "c128", "b": "pred"}


def promotion(*operands: tuple[np.dtype, bool]) -> tuple[np.dtype, bool]:
    """NumPy's common dtype of (dtype, weak) pairs, and whether it is of numbers of Python alone (NEP 50)."""
    strong = [dtype for dtype, weak in operands if not weak]
    python = [_PYTHON[dtype.kind] for dtype, weak in operands if weak]
    if not strong:
        return DTYPES[_OWN[np.result_type(*python).kind]], True
    return np.dtype(np.result_type(*strong, *python)), False


@record(frozen=True)
class StateName:
    """A generator outside of a loop. name: of the kernel's argument that is its state."""

    name: str


def relative(offset: Any, low: int, high: int, what: str) -> Any:
    """An index of a stencil from its element on. Kernels check low <= offset <= high. what: its name in errors."""
    return offset


def _either(start: tuple, stop: tuple) -> tuple:
    """The span of what a range goes over, upwards or downwards."""
    low = None if None in (start[0], stop[0]) else min(start[0], stop[0] + 1)
    high = None if None in (start[1], stop[1]) else max(start[1], stop[1] - 1)
    return low, high


class NumpyLowering(Lowering):
    """Statements as NumPy has them.

    serial: loops, by line and column, whose iterations depend on each other. Others are divided among the cores. sizes:
    integers that are known, by name; the kernel's code serves others as well.
    """

    promote = staticmethod(promotion)

    def counter(self, index: Number) -> Number:
        """An integer of Python, which takes the dtype of others."""
        return Number(index.expr, index.dtype, True, index.span, index.known)

    def __init__(self, *given: Any, serial: set[tuple[int, int]], sizes: Mapping[str, int]):
        super().__init__(*given)
        self.names |= {name: self._size(value, "size") for name, value in sizes.items()}
        self.serial_loops = serial
        self.divided: list[tuple[tuple[int, int], Draft]] = []  # loops, and their phases

    # --- generators of random numbers

    drawing = False  # within a function of hloom's own: errors name the line of the user's that draws
    draws = 0  # the calls that draw, so far

    @contextmanager
    def at(self, node: ast.stmt | ast.expr) -> Iterator[None]:
        if self.drawing:
            yield
            return
        with super().at(node):
            yield

    def _from_outside(self, name: str, value: Any) -> Value:
        if isinstance(value, StateName):
            return Static(Generator(self.names[value.name]))
        return super()._from_outside(name, value)

    def called(self, function: Any, given: list[Value], named: dict[str, Value], node: ast.Call) -> Value:
        if isinstance(function, Draw):
            return self.draw(function, given, named, ast.unparse(node))
        if function is draws.required:
            self._require(*given)
            return Static(None)
        if function is relative:
            return self._relative(given[0], *[self.static(value) for value in given[1:]])
        return super().called(function, given, named, node)

    def _require(self, holds: Value, what: Value, value: Value) -> None:
        test = self.truth(self.as_operand_number(holds, "a test"))
        if test.known is not True:
            number = self.as_operand_number(value, "a number")
            self.fail_if(self.inverted(test).expr, f"{self.static(what)}", None, number.expr)

    def draw(self, method: Draw, given: list[Value], named: dict[str, Value], text: str) -> Value:
        """A draw of a generator, whose state changes: a number, or an array that the kernel makes."""
        state = method.generator.state
        if not isinstance(state, View):
            self.unsupported(f"a generator in a tuple or another object: {text:.60}", "give it a name of its own")
        if method.name == "shuffle" and not named and len(given) == 1 and self._is_vector(given[0]):
            self.draws += 1
            outer, self.drawing = self.drawing, True
            self.inlined(draws.shuffled, [state, given[0]], {}, text)
            self.drawing = outer
            return Static(None)
        if method.name in ("shuffle", "permutation"):
            self.unsupported(f"{text:.60}", "shuffle a vector in a loop, or outside of it")
        found = drawn(method.name, given, named, self.static)
        if any(isinstance(self.as_value(p), (View, Lazy)) for p in (found.a, found.b)):
            self.unsupported(f"arrays as parameters: {text:.60}", "draw in a loop over their elements")
        if found.shape is not None and len(found.shape) != 1:
            self.unsupported(f"a shape of several sizes: {text:.60}", "draw a vector, in a loop")
        parameters = [self.as_value(p) for p in (state, found.draw, found.a, found.b, found.dtype)]
        self.draws += 1
        writes, outer, self.drawing = self.writes, self.drawing, True
        if found.shape is None:
            made: Any = self.inlined(draws.single, parameters, {}, text)
            if found.python is not None:
                made = self.cast(made, DTYPES[_OWN[np.dtype(found.python).kind]], True)
        else:
            made = self.inlined(draws.filled, [*parameters, self.as_value(found.shape[0])], {}, text)
        # Nobody reads the state but draws, whose results are variables: other values may be computed before or after.
        self.writes, self.drawing = writes, outer
        return made

    @staticmethod
    def _is_vector(value: Value) -> bool:
        return isinstance(value, View) and len(value.dims) == 1

    def of_compare(self, node: ast.Compare) -> Value:
        return self._drawing_once(node, super().of_compare, node.comparators[1:])

    def of_ifexp(self, node: ast.IfExp) -> Value:
        return self._drawing_once(node, super().of_ifexp, [node.test] if getattr(node, "repeated", False) else [])

    def _drawing_once(self, node: Any, method: Callable[[Any], Value], parts: Sequence[ast.expr]) -> Value:
        """An expression of which Python evaluates parts not always, or once, and a kernel otherwise."""
        before, writes = self.draws, self.writes
        made = method(node)
        if parts and (self.draws > before or self.writes > writes):
            self.unsupported(
                f"a draw, or a call that changes an array, in {ast.unparse(node):.60}",
                "assign the value to a name before",
            )
        return made

    def definition(self, function) -> tuple[ast.FunctionDef, str, int]:
        noting.get()(function)
        return one_return(function)

    def _relative(self, value: Any, low: int, high: int, what: str) -> Number:
        number = self.as_number(value)
        if not isinstance(number, Number):
            self.unsupported(what, "index with an integer")
        offset = self.whole(number)
        span = ranges.meet(offset.span, (low, high))
        if span == offset.span:
            return offset
        if span[0] is not None and span[1] is not None and span[0] > span[1]:
            self.refuse(ShapeError, what, f"it is {spelled(offset.span)}", "declare a larger neighborhood")
        held = offset.expr if isinstance(offset.expr, Var) else self.named(offset.expr, "offset")
        below, above = [Binary("pred", op, held, Const("s64", k)) for op, k in (("<", low), (">", high))]
        self.fail_if(Logic("or", (below, above)), what, None, held)
        self.spans[held] = ranges.meet(self.spans.get(held, UNKNOWN), span)
        return Number(held, S64, offset.weak, span)

    def do_for(self, node: ast.For) -> None:
        """A loop outside of others is divided among the cores where its iterations are independent, as far as can be
        proved: they assign only names of their own, and access elements of their own of each array that they change."""
        key = (node.lineno, node.col_offset)
        bounds = None if key in self.serial_loops else self._independent(node)
        if bounds is None:
            super().do_for(node)
            return
        try:
            with self._phase(bounds[1]) as item:
                index = self.named(self.binary("+", bounds[0], item).expr, "index")
                self.spans[index] = ranges.of_operation("+", bounds[0].span, item.span)
                self.loops.definitions[index] = self.binary("+", bounds[0], item).expr
                self._assign_to(node.target, Number(index, S64, True, self.spans[index]), "")
                self.block_of(node.body)
        except (WritesArgument, Widen):
            raise
        except HloomError:
            self._is_serial(key)
        self.divided.append((key, self.drafts[-1]))

    def _is_serial(self, key: tuple[int, int]) -> NoReturn:
        self.serial_loops.add(key)
        raise Again

    def do_raise(self, node: ast.Raise) -> None:
        self.fail(self._error(node.exc, node))

    def do_assert(self, node: ast.Assert) -> None:
        test = self.truth(self.scalar(node.test, "a condition"))
        message = [] if node.msg is None else [node.msg]
        error = self._error(ast.Call(ast.Name("AssertionError", ast.Load()), message, []), node)
        outer, self.block = self.block, []
        self.fail(error)
        stop, self.block = self.block, outer
        self.block.append(If(self.inverted(test).expr, stop))

    def _error(self, made: ast.expr | None, node: ast.Raise | ast.Assert) -> Exception:
        """The error of a `raise`, made of what is known."""
        names = {name: value.value for name, value in self.names.items() if isinstance(value, Static)}
        missing = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} & (self.names.keys() - names.keys())
        if made is None or missing or (isinstance(node, ast.Raise) and node.cause is not None):
            self.unsupported("an error with computed numbers", "raise it with a constant text")
        code = compile(ast.fix_missing_locations(ast.Expression(ast.copy_location(made, node))), "<raise>", "eval")
        error = eval(code, {"__builtins__": builtins, **self.outside}, names)
        return error() if isinstance(error, type) else error

    def _independent(self, node: ast.For) -> tuple[Number, Number] | None:
        """(the first value, the number of iterations) of a loop that may be divided."""
        call = node.iter
        if self.within or self.depth or node.orelse or not isinstance(call, ast.Call) or call.keywords:
            return None
        function = self.static(self.value(call.func))
        if not (function is range or is_prange(function)) or not 1 <= len(call.args) <= 2:
            return None
        if any(isinstance(n, (ast.Break, ast.Continue)) for s in node.body for n in own_jumps(s)):
            return None
        if not assigned_names([node.target, *node.body]).isdisjoint(self.names):
            return None
        outer, self.block = self.block, []
        found = [self.whole(self.scalar(a, "a bound of a range")) for a in call.args]
        start, stop = (integer(0), found[0]) if len(found) == 1 else found
        count = self.binary("-", stop, start)
        needs_statements, self.block = bool(self.block), outer  # whoever takes the loop in order makes these again
        if needs_statements or start.known is None or count.known is None or count.known < 2:
            return None
        return start, count

    def _finish(self, result: Any, changed: Mapping[str, int]) -> Lowered:
        made = super()._finish(result, changed)
        for key, draft in self.divided:
            stores = [s for one in statements_of(draft) for s in one.walk() if isinstance(s, Store)]
            stored = {s.pointer for s in stores if isinstance(s.pointer, Var)}
            own = {self.fault, *[s.var for s in draft.scratches]}
            if not all(is_disjoint(draft, pointer, made.body) for pointer in stored - own):
                self._is_serial(key)
        return made

    def binary(self, op: str, left: Number, right: Number) -> Number:
        """Truth values of Python are integers in its arithmetic."""
        if op in _ARITHMETIC and left.weak and right.weak and left.dtype == right.dtype == PRED:
            left, right = self.cast(left, S64, True), self.cast(right, S64, True)
        return super().binary(op, left, right)

    def compare(self, op: str, left: Number, right: Number) -> Number:
        found = super().compare(op, left, right)
        return Number(found.expr, found.dtype, left.weak and right.weak, found.span, found.known)

    def of_unaryop(self, node: ast.UnaryOp) -> Any:
        found = super().of_unaryop(node)
        if isinstance(node.op, ast.Not) and isinstance(found, Number):
            return Number(found.expr, found.dtype, True, found.span, found.known)
        return found

    def check(self, index: Number, size: Number, view: View, dimension: int) -> Number:
        """An index may count from the end."""
        index = self.cast(index, S64, index.weak)
        low = index.span[0]
        high = size.span[1]
        if index.known is None and (low is None or low < 0) and (low is None or high is None or low < high):
            held = Number(self._held(index.expr), S64, index.weak, index.span)
            moved = self.choice(self.compare("<", held, integer(0)).expr, self.binary("+", held, size), held)
            index = Number(self.named(moved.expr, "index"), S64, index.weak)
        return super().check(index, size, view, dimension)

    def _range(self, node: ast.For, bounds: list[Number]) -> None:
        """A step that is not known may be negative."""
        if len(bounds) < 3 or bounds[2].known is not None:
            super()._range(node, bounds)
            return
        start, stop, step = [Number(self._held(b.expr), S64, b.weak, b.span, b.known) for b in bounds]
        whole = Number(self._held(self.binary("-", stop, start).expr), S64, True)
        if step.span[0] is not None and step.span[0] >= 1:
            sign, span = integer(1), (start.span[0], None if stop.span[1] is None else stop.span[1] - 1)
        else:
            self.fail_if(self.compare("==", step, integer(0)).expr, "the step of a range, not 0", None, step.expr)
            below = self.compare("<", step, integer(0)).expr
            sign, span = self.choice(below, integer(-1), integer(1)), _either(start.span, stop.span)
        last = self.binary("-", self.binary("+", whole, step), sign)
        count = self.binary("max", Number(Binary("s64", "//", last.expr, step.expr), S64), integer(0))
        count = Number(self._held(count.expr), S64, True, (0, None))

        def made(k: Number) -> Number:
            value = self.binary("+", start, self.binary("*", k, step))
            var = self.named(value.expr, "index")
            self.spans[var] = span
            return Number(var, S64, True, span)

        self._counted(node, integer(0), count, 1, made)

    def scratch(self, dims: Sequence[Number], dtype: np.dtype, hint: str) -> View:
        """An array that is too large for the stack is memory of the whole kernel, where one thread runs."""
        most = [size.span[1] for size in dims]
        if self.within or None in most or math.prod(m for m in most if m is not None) * dtype.itemsize <= SCRATCH // 8:
            return super().scratch(dims, dtype, hint)
        pointer = Var(f"*{HLO_NAME[dtype]}", self.fresh(hint))
        whole = [integer(max(1, m)) for m in most if m is not None]
        self.made[pointer] = View(pointer, dtype, tuple(whole), self.strides(whole), integer(0), hint, True)
        return View(pointer, dtype, tuple(dims), self.strides(dims), integer(0), hint, True, True)

    def _gathered(self, view: View, entries: list, text: str) -> Array:
        first = entries[0]
        if len(entries) == 1 and isinstance(first, (View, Lazy)) and first.dtype == PRED:
            return self._selected(view, first, text)
        return super()._gathered(view, entries, text)

    def _selected(self, view: View, mask: Array, text: str) -> Array:
        """`x[mask]`: the elements in order, and how many there are."""
        if len(mask.dims) != len(view.dims):
            self.unsupported(f"the index {text:.60}", "give the mask the shape of the array")
        for size, other in zip(view.dims, mask.dims, strict=True):
            self._require_equal(size, other)
        whole = self.product(view.dims)
        made = self.scratch((whole,), view.dtype, "selected")
        count = Var("s64", self.fresh("count"), True)
        self.block.append(Assign(count, Const("s64", 0)))
        test = self.lazy(mask)
        held = Number(count, S64, span=(0, None if whole.span[1] is None else whole.span[1] - 1))

        def step(at: Sequence[Number]) -> None:
            outer, self.block = self.block, []
            self.store(made, [held], self.load(view, at))
            after = self.binary("+", Number(count, S64), integer(1))
            self.block.append(Assign(count, after.expr))
            inner, self.block = self.block, outer
            self.block.append(If(test.element(at).expr, inner))

        self.over(view.dims, step)
        held_count = self.named(count, "count")
        fixed = Number(held_count, S64, span=(0, whole.span[1]))
        self.spans[held_count] = fixed.span
        return View(made.pointer, view.dtype, (fixed,), (integer(1),), integer(0), "selected", True, True)

    def _store(self, array: View, target: Any, value: Any, index: Value | None = None) -> None:
        index = self.value(target.slice) if index is None else index
        if isinstance(index, (View, Lazy)) and index.dtype == PRED:
            self._store_where(array, index, value)
            return
        super()._store(array, target, value, index)

    def _store_where(self, array: View, mask: Array, value: Any) -> None:
        """`x[mask] = y`."""
        self.require_writable(array)
        if len(mask.dims) != len(array.dims) or not isinstance(value, Number):
            self.unsupported("an assignment where a mask is true", "assign a number, or use np.where")
        test = self.kept(mask, "mask") if isinstance(mask, Lazy) else mask
        held = Number(self._held(value.expr), value.dtype, value.weak, value.span, value.known)

        def step(at: Sequence[Number]) -> None:
            outer, self.block = self.block, []
            self.store(array, at, held)
            inner, self.block = self.block, outer
            self.block.append(If(self.load(test, at).expr, inner))

        self.over(array.dims, step)
