"""Expressions of a user's kernel: Python's syntax tree to numbers and arrays."""

from __future__ import annotations

import ast
import builtins
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NoReturn

import numpy as np

from hloom.compiler.kernel_ir.nodes import Assign, Binary, Const, If, Load, Logic, Var
from hloom.errors import ArgumentError, DTypeError, HloomError, UnsupportedError
from hloom.ir.types import DTYPES, HLO_NAME, PRED, as_dtype, default_dtype
from hloom.kernels import language
from hloom.kernels.frontend import functions
from hloom.kernels.frontend.arithmetic import register
from hloom.kernels.frontend.arrays import Array
from hloom.kernels.frontend.lists import Lists, axis_of_list
from hloom.kernels.frontend.values import Lazy, Listed, Number, Static, Value, View, integer

__all__ = ["BINARY", "Expressions"]

BINARY: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_COMPARED: dict[type[ast.AST], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_F64 = DTYPES["f64"]


class Expressions(Lists):
    """names: the values of the function's names. outside: the names around the function."""

    rules: ClassVar[Mapping[str, Callable]]  # functions of NumPy that are more than one op
    implied: dict[Var, Logic]  # truth values of tests that took several statements
    names: dict[str, Value]
    outside: Mapping[str, Any]
    function: str

    # --- in general

    def value(self, node: ast.expr) -> Value:
        """What an expression is. Raises UnsupportedError for syntax that kernels do not have."""
        method = getattr(self, f"of_{type(node).__name__.lower()}", None)
        if method is None:
            self.unsupported(f"an expression {type(node).__name__}")
        made: Value = method(node)
        return made

    def unsupported(
        self, found: str, repair: str = "write it with numbers, slices, loops and functions of NumPy"
    ) -> NoReturn:
        self.refuse(UnsupportedError, f"the kernel '{self.function}'", found, repair)

    def scalar(self, node: ast.expr, what: str = "a number") -> Number:
        value = self.as_number(self.value(node))
        if not isinstance(value, Number):
            self.unsupported(f"{what} is an array or another object: {ast.unparse(node):.60}", "take an element of it")
        return value

    def as_number(self, value: Value) -> Value:
        """Python numbers as numbers, arrays of no dimension as their element."""
        if isinstance(value, Static) and isinstance(value.value, (bool, int, float, np.generic)):
            return self.number(value.value)
        if isinstance(value, (View, Lazy)) and not value.dims:
            return self.number_at(value, ())
        return value

    def operand(self, node: ast.expr) -> Array | Number:
        return self.as_operand(self.value(node), ast.unparse(node))

    def as_operand(self, value: Value, text: str) -> Array | Number:
        made = self.as_number(value)
        if isinstance(made, Static):
            self.unsupported(f"{text:.60} is no number and no array, but {type(made.value).__name__}")
        return made

    def static(self, value: Value) -> Any:
        """The Python value of a compile-time constant; numbers of sizes stay numbers."""
        if isinstance(value, Static):
            return value.value
        if isinstance(value, Number) and value.known is not None:
            return value.known
        return value

    def dtype(self, value: Value, text: str) -> np.dtype:
        """The dtype that a value names."""
        given = value.value if isinstance(value, Static) else None
        found = functions.dtype_of(given) if given is not None else None
        for kind in (int, float):
            found = default_dtype(kind) if given is kind else found
        found = as_dtype(bool) if given is bool else found
        if found is None or found not in HLO_NAME:
            self.refuse(DTypeError, f"{text:.60}", "what should be a dtype is none", "pass one, such as np.float32")
        return found

    # --- names and constants

    def of_constant(self, node: ast.Constant) -> Value:
        if isinstance(node.value, (bool, int, float, complex)):
            return self.number(node.value)
        if node.value is None or isinstance(node.value, str):
            return Static(node.value)
        self.unsupported(f"the constant {node.value!r}")

    def of_name(self, node: ast.Name) -> Value:
        found = self.names.get(node.id)
        if found is not None:
            return found
        if node.id in self.unset:
            self.refuse(
                ArgumentError, f"the kernel '{self.function}' reads '{node.id}'",
                "it is assigned in a branch or a loop that may not run", f"assign '{node.id}' before",
            )  # fmt: skip
        if node.id in self.own:
            self.refuse(
                ArgumentError, f"the kernel '{self.function}' reads '{node.id}'", "it is assigned only later",
                f"assign '{node.id}' before",
            )  # fmt: skip
        if node.id in self.outside:
            return self._from_outside(node.id, self.outside[node.id])
        if hasattr(builtins, node.id):
            return Static(getattr(builtins, node.id))
        self.refuse(
            ArgumentError, f"the kernel '{self.function}' reads '{node.id}'", "nothing of this name is known",
            "assign it, or import it",
        )  # fmt: skip

    unset: set[str]
    own: set[str]  # names that the function assigns
    writes: int = 0  # statements of the user's functions that write into arrays, so far

    def in_order(self, *parts: Callable[[], Value]) -> list[Value]:
        """Values, each of memory as it is before the next one is computed, which may call functions that write."""
        made: list[tuple[int, Value]] = []
        for part in parts:
            writes = self.writes
            value = part()
            if self.writes > writes:
                made = [(mark, self._before(mark, earlier)) for mark, earlier in reversed(made)][::-1]
            made.append((len(self.block), value))
        return [value for _, value in made]

    def _before(self, mark: int, value: Value) -> Value:
        """A value as it was before statements of the block."""
        if isinstance(value, Number) and any(isinstance(e, Load) for e in value.expr.walk()):
            var = Var(value.expr.type, self.fresh("before"))
            self.block.insert(mark, Assign(var, value.expr))
            return Number(var, value.dtype, value.weak, value.span, value.known)
        if isinstance(value, Lazy) and value.reads:
            self.unsupported("an array is combined with what a function returns that writes arrays",
                             "assign what the function returns to a name before")  # fmt: skip
        return value

    def values(self, nodes: Sequence[ast.expr]) -> list[Value]:
        return self.in_order(*[lambda node=node: self.value(node) for node in nodes])

    def _from_outside(self, name: str, value: Any) -> Value:
        if isinstance(value, (bool, int, float, complex, np.generic)):
            return self.number(value)
        if isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "dtype"):
            self.refuse(
                UnsupportedError, f"the kernel '{self.function}' reads the array '{name}'",
                "it comes from outside of the function", "pass it as an argument",
            )  # fmt: skip
        return Static(value)

    def of_tuple(self, node: ast.Tuple | ast.List) -> Value:
        return Static((Listed if isinstance(node, ast.List) else tuple)(self.values(node.elts)))

    of_list = of_tuple

    def of_attribute(self, node: ast.Attribute) -> Value:
        value = self.value(node.value)
        if isinstance(value, Static):
            if isinstance(value.value, slice) and node.attr in ("start", "stop"):
                return getattr(value.value, node.attr)
            try:
                return self._from_outside(node.attr, getattr(value.value, node.attr))
            except AttributeError:
                self.unsupported(f"{ast.unparse(node):.60}: there is no '{node.attr}'", "check the name")
        dims = () if isinstance(value, Number) else value.dims
        match node.attr:
            case "shape":
                return Static(tuple(dims))
            case "ndim":
                return integer(len(dims))
            case "size":
                return self.product(dims)
            case "dtype":
                return Static(value.dtype)
            case "T" if isinstance(value, View):
                return View(value.pointer, value.dtype, value.dims[::-1], value.strides[::-1], value.start, value.name,
                            value.writable, value.local)  # fmt: skip
            case "real" | "imag" if not isinstance(value, Number) or value.dtype.kind == "c":
                return self.elementwise(lambda x: self.real_or_imaginary(x, node.attr), value)
        self.unsupported(f"'.{node.attr}' of an array or a number", "use shape, size, ndim, dtype or T")

    def real_or_imaginary(self, value: Number, which: str) -> Number:
        made = self._of_op(which, [value], np.dtype(f"f{value.dtype.itemsize // 2}"))
        return Number(made.expr, made.dtype)

    # --- arithmetic

    def combined(self, op: str, left: Value, right: Value, text: str) -> Value:
        """`left op right`; of tuples + and *."""
        if isinstance(left, Static) and isinstance(left.value, tuple):
            if op == "+" and isinstance(right, Static) and isinstance(right.value, tuple):
                return Static(left.value + right.value)
            if op == "*" and isinstance(self.static(right), int):
                return Static(left.value * self.static(right))
        first, second = self.as_operand(left, text), self.as_operand(right, text)
        return self.elementwise(lambda a, b: self.binary(op, a, b), first, second)

    def of_binop(self, node: ast.BinOp) -> Value:
        left, right = self.values([node.left, node.right])
        if isinstance(node.op, ast.MatMult):
            return self.dot(self._array(left, node.left), self._array(right, node.right))
        return self.combined(BINARY[type(node.op)], left, right, ast.unparse(node))

    def _array(self, value: Value, node: ast.expr) -> Array:
        if not isinstance(value, (View, Lazy)):
            self.unsupported(f"{ast.unparse(node):.60} is no array", "pass a slice of an array")
        return value

    def of_unaryop(self, node: ast.UnaryOp) -> Value:
        value = self.operand(node.operand)
        match node.op:
            case ast.USub():
                return self.elementwise(self.negative, value)
            case ast.Invert():
                return self.elementwise(self.inverted, value)
            case ast.Not():
                if not isinstance(value, Number):
                    self.unsupported("the truth of an array", "use .any() or .all()")
                return self.inverted(self.truth(value))
        return value

    def of_compare(self, node: ast.Compare) -> Value:
        (left, *others), parts = self.values([node.left, *node.comparators]), []
        for op, right in zip(node.ops, others, strict=True):
            parts.append(self._compared(op, left, right, ast.unparse(node)))
            left = right
        if len(parts) == 1:
            return parts[0]
        numbers = [self.as_operand(part, ast.unparse(node)) for part in parts]
        return self.elementwise(lambda *tests: self._all(tests), *numbers)

    def _all(self, tests: Sequence[Number]) -> Number:
        unknown = [t for t in tests if t.known is None]
        if any(t.known is False for t in tests) or not unknown:
            return self.number(all(t.known for t in tests))
        return unknown[0] if len(unknown) == 1 else Number(Logic("and", tuple([t.expr for t in unknown])), PRED)

    def _compared(self, op: ast.cmpop, left: Value, right: Value, text: str) -> Value:
        if isinstance(left, Static) or isinstance(right, Static):
            a, b = self._plain(left, text), self._plain(right, text)
            match op:
                case ast.Is() | ast.Eq():
                    return self.number(a is b or (isinstance(op, ast.Eq) and a == b))
                case ast.IsNot() | ast.NotEq():
                    return self.number(not (a is b or (isinstance(op, ast.NotEq) and a == b)))
        if type(op) not in _COMPARED:
            self.unsupported(f"the comparison {text:.60}", "use <, <=, >, >=, ==, !=")
        return self.combined(_COMPARED[type(op)], left, right, text)

    def _plain(self, value: Value, text: str) -> Any:
        """The Python value of a compile-time constant, for a comparison; other objects as they are."""
        found = self.static(value)
        if not isinstance(found, tuple):
            return found
        parts = [self._plain(part, text) if isinstance(part, Value) else part for part in found]
        if any(isinstance(part, (Number, View, Lazy)) for part in parts):
            self.unsupported(f"the comparison {text:.60}", "compare numbers, one by one")
        return tuple(parts)

    # --- expressions evaluated only when needed

    def aside(self, node: ast.expr) -> tuple[Number, list]:
        """(the truth of an expression, the statements that compute it)."""
        outer, self.block = self.block, []
        self.conditions += 1
        made = self._guarded(self.truth(self.scalar(node, "a condition")))
        self.conditions -= 1
        block, self.block = self.block, outer
        return made, block

    def of_boolop(self, node: ast.BoolOp) -> Value:
        wanted = isinstance(node.op, ast.And)
        first = self.truth(self.scalar(node.values[0], "a condition"))
        for other in node.values[1:]:
            if first.known is not None:
                if first.known is not wanted:
                    return first
                first = self.truth(self.scalar(other, "a condition"))
                continue
            with self.refined(first if wanted else None):
                second, block = self.aside(other)
            if second.known is not None and not block:
                if second.known is wanted:
                    continue
                return second
            if not block:
                parts = (*_operands(first, wanted), second.expr)
                first = Number(Logic("and" if wanted else "or", parts), PRED)
                continue
            var = Var("pred", self.fresh("test"), True)
            self.block.append(Assign(var, first.expr))
            test = Number(var, PRED) if wanted else self.inverted(Number(var, PRED))
            self.block.append(If(test.expr, [*block, Assign(var, second.expr)]))
            self.implied[var] = Logic("and" if wanted else "or", (first.expr, second.expr))
            first = Number(var, PRED)
        return first

    def _guarded(self, value: Number) -> Number:
        """A value that is computed only under the condition around it: a quotient, whose divisor may be zero else."""
        divides = any(isinstance(e, Binary) and e.op in ("//", "%") and not isinstance(e.right, Const)
                      for e in value.expr.walk())  # fmt: skip
        if not divides:
            return value
        return Number(self.named(value.expr, "quotient"), value.dtype, value.weak, value.span, value.known)

    @abstractmethod
    def refined(self, test: Number | None) -> AbstractContextManager[None]:
        """Within it, a test is true."""

    def of_ifexp(self, node: ast.IfExp) -> Value:
        test = self.truth(self.scalar(node.test, "a condition"))
        if test.known is not None:
            return self.value(node.body if test.known else node.orelse)
        parts = []
        for branch, condition in ((node.body, test), (node.orelse, None)):
            outer, self.block = self.block, []
            self.conditions += 1
            with self.refined(condition):
                value = self._guarded(self.scalar(branch, "a branch of a conditional expression"))
            self.conditions -= 1
            parts.append((value, self.block))
            self.block = outer
        (yes, first), (no, second) = parts
        if not first and not second:
            return self.choice(test.expr, yes, no)
        (yes_cast, no_cast), dtype, weak = self.promoted(yes, no)
        var = Var(register(dtype), self.fresh("chosen"), True)
        self.block.append(If(test.expr, [*first, Assign(var, yes_cast.expr)], [*second, Assign(var, no_cast.expr)]))
        return Number(var, dtype, weak)

    # --- elements and slices

    def of_subscript(self, node: ast.Subscript) -> Value:
        value = self.value(node.value)
        if isinstance(value, Static):
            return self._of_tuple(value, node)
        if isinstance(value, Number):
            self.unsupported(f"an index of a number: {ast.unparse(node):.60}", "index arrays")
        picked = self.place(value, node)
        if isinstance(picked, Lazy) or picked.dims:
            return picked
        return self.load(picked, ())

    def _of_tuple(self, value: Static, node: ast.Subscript) -> Value:
        index = self.static(self.value(node.slice))
        if not isinstance(value.value, tuple) or not isinstance(index, (int, slice)):
            self.unsupported(f"an index of {type(value.value).__name__}: {ast.unparse(node):.60}", "index arrays")
        if isinstance(index, slice):
            bounds = [None if part is None else self.static(part) for part in (index.start, index.stop, index.step)]
            return Static(value.value[slice(*bounds)])
        if not -len(value.value) <= index < len(value.value):
            self.refuse(
                ArgumentError, f"element {index} of {ast.unparse(node.value):.60}", f"it has {len(value.value)}",
                "check the number of dimensions",
            )  # fmt: skip
        found = value.value[index]
        return found if isinstance(found, (Static, Number, View, Lazy)) else self._from_outside("", found)

    def of_slice(self, node: ast.Slice) -> Value:
        parts = [None if part is None else self.value(part) for part in (node.lower, node.upper, node.step)]
        parts = [None if isinstance(p, Static) and p.value is None else p for p in parts]
        step = None if parts[2] is None else self.static(parts[2])
        return Static(slice(parts[0], parts[1], step))

    def place(self, array: Array, node: ast.Subscript, index: Value | None = None) -> Array:
        """The elements that an index or a slice of an array takes. index: its value, where it is evaluated already."""
        given = self.value(node.slice) if index is None else index
        entries = list(given.value) if isinstance(given, Static) and type(given.value) is tuple else [given]
        if isinstance(array, Lazy):
            array = self.kept(array, "part")
        return self.taken_from(array, entries, ast.unparse(node))

    def taken_from(self, view: View, entries: list, text: str) -> Array:
        """A part of a view, as NumPy's indices take it."""
        if any(isinstance(e, Static) and e.value is Ellipsis for e in entries):
            at = next(k for k, e in enumerate(entries) if isinstance(e, Static) and e.value is Ellipsis)
            news = sum(isinstance(e, Static) and e.value is None for e in entries)
            missing = len(view.dims) - (len(entries) - 1 - news)
            entries[at : at + 1] = [Static(slice(None))] * missing
        if (listed := axis_of_list(entries)) is not None:
            return self.taken_by_list(view, entries, listed, text)
        start, dims, strides, k = view.start, list[Number](), list[Number](), 0
        for entry in entries:
            if isinstance(entry, Static) and entry.value is None:
                dims, strides = [*dims, integer(1)], [*strides, integer(0)]
                continue
            if k == len(view.dims):
                self.refuse(
                    ArgumentError, f"{text:.60}", f"'{view.name}' has {len(view.dims)} dimensions", "give fewer indices"
                )
            if isinstance(entry, Static) and isinstance(entry.value, slice):
                first, size, step = self.sliced(view, k, entry.value)
                start = self.binary("+", start, self.binary("*", first, view.strides[k]))
                dims.append(size)
                by = step if isinstance(step, Number) else integer(step)
                strides.append(self.binary("*", view.strides[k], by))
            else:
                if isinstance(entry, (View, Lazy)) and entry.dims:
                    return self._gathered(view, entries, text)
                index = self.whole(self.as_operand_number(entry, text))
                if index.known is not None and index.known < 0:
                    index = self.binary("+", view.dims[k], index)
                index = self.check(index, view.dims[k], view, k)
                start = self.binary("+", start, self.binary("*", index, view.strides[k]))
            k += 1
        dims, strides = [*dims, *view.dims[k:]], [*strides, *view.strides[k:]]
        return View(view.pointer, view.dtype, tuple(dims), tuple(strides), start, view.name, view.writable, view.local)

    def as_operand_number(self, value: Value, text: str) -> Number:
        made = self.as_operand(value, text)
        if not isinstance(made, Number):
            self.unsupported(f"an index of {text:.60}", "use integers, slices, or one vector of integers")
        return made

    def _gathered(self, view: View, entries: list, text: str) -> Array:
        """`x[indices]`: an array of integers in the place of the only index, or of the first one."""
        (indices, *rest) = entries
        if rest or not isinstance(indices, (View, Lazy)) or indices.dtype.kind not in "iu":
            self.unsupported(f"the index {text:.60}", "use one array of integers, or a loop over its elements")
        array = self.lazy(indices)
        rank = len(array.dims)

        def element(at: Sequence[Number]) -> Number:
            return self.load(view, [self.whole(array.element(at[:rank])), *at[rank:]])

        return Lazy((*array.dims, *view.dims[1:]), view.dtype, False, element, (view, *array.reads))

    # --- calls

    def of_call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute):
            owner = self.value(node.func.value)
            if not isinstance(owner, Static):
                return self._method(owner, node.func.attr, node)
        function = self.static(self.value(node.func))
        given, named = self.arguments_of(node)
        return self.called(function, given, named, node)

    def arguments_of(self, node: ast.Call) -> tuple[list[Value], dict[str, Value]]:
        """The positional and the named arguments of a call; those of a tuple behind a star one by one."""
        stars = [isinstance(argument, ast.Starred) for argument in node.args]
        nodes = [argument.value if isinstance(argument, ast.Starred) else argument for argument in node.args]
        several = self.values([*nodes, *[k.value for k in node.keywords]])
        named = {k.arg: v for k, v in zip(node.keywords, several[len(nodes) :], strict=True) if k.arg is not None}
        given: list[Value] = []
        for star, value in zip(stars, several[: len(nodes)], strict=True):
            parts = self.static(value) if star else (value,)
            if not isinstance(parts, tuple) or len(named) != len(node.keywords):
                self.unsupported(f"* in the call {ast.unparse(node):.60}", "write the arguments one by one")
            given += [self.as_value(part) for part in parts]
        return given, named

    def as_value(self, value: Any) -> Value:
        return value if isinstance(value, (Static, Number, View, Lazy)) else self._from_outside("", value)

    def called(self, function: Any, given: list[Value], named: dict[str, Value], node: ast.Call) -> Value:
        text = ast.unparse(node)
        if function in (language.parallel, language.tile, range):
            self.unsupported(f"{text:.60}, not as what a loop goes over", "write for i in ...")
        if (dtype := functions.dtype_of(function)) is not None:
            return self.elementwise(lambda x: self.cast(x, dtype), self.as_operand(given[0], text))
        decorated, (function, of_elements) = function, functions.of_numba(function)
        if functions.inlined(function):
            if not of_elements:
                return self.inlined(function, given, named, text)
            operands = [self.as_operand(value, text) for value in given]
            return self.elementwise(lambda *values: self.of_elements(decorated, values, named, text), *operands)
        owner = getattr(function, "__self__", None)
        if isinstance(owner, np.ufunc):
            return self._of_ufunc(owner, function.__name__, given, named, text)
        name = functions.known_name(function)
        if name is not None and "out" in named:
            target, made = named.pop("out"), self.called(function, given, named, node)
            if not isinstance(target, View):
                self.unsupported(f"out= in {text:.60}", "pass an array")
            self.writes += 1
            self.assign(target, self.as_operand(made, text))
            return target
        if name is not None:
            try:
                return self._known(name, given, named, text)
            except (IndexError, KeyError, TypeError, ValueError) as error:
                if isinstance(error, HloomError):
                    raise
                self.refuse(ArgumentError, f"{text:.60}", f"arguments that '{name}' does not take here: {error}",
                            f"call it as NumPy's {name}")  # fmt: skip
        self.unsupported(
            f"a call of {getattr(function, '__name__', type(function).__name__)}: {text:.60}",
            "call functions of NumPy or hloom.numpy, or your own Python functions",
        )

    def _of_ufunc(self, ufunc: np.ufunc, method: str, given: list[Value], named: dict[str, Value], text: str) -> Value:
        """`np.add.outer`, `np.add.reduce` and their like."""
        operands = [self.as_operand(value, text) for value in given]
        op = functions.OPERATORS.get(ufunc.__name__)
        if method == "outer" and op is not None and len(operands) == 2 and not named:
            return self.outer_product(op, *operands)
        kind = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}.get(ufunc.__name__)
        if method == "reduce" and kind is not None:
            axis = {"axis": integer(0), **named} if len(given) < 2 else named
            return self._reduction(kind, operands, dict(axis), given, text)
        self.unsupported(f"{text:.60}", "write it as a loop")

    @abstractmethod
    def inlined(self, function: Any, given: list[Value], named: dict[str, Value], text: str) -> Value:
        """A call of the user's function."""

    @abstractmethod
    def of_elements(self, function: Any, values: Sequence[Number], named: dict[str, Value], text: str) -> Number:
        """A call of the user's function of elements."""

    def _method(self, owner: Array | Number, name: str, node: ast.Call) -> Value:
        text = ast.unparse(node)
        if name not in functions.METHODS:
            self.unsupported(f"the method '.{name}': {text:.60}", f"methods are {', '.join(sorted(functions.METHODS))}")
        given = [owner, *[self.value(argument) for argument in node.args]]
        return self._known(name, given, {k.arg or "": self.value(k.value) for k in node.keywords}, text)

    def _known(self, name: str, given: list[Value], named: dict[str, Value], text: str) -> Value:
        """A call of a function of NumPy, of a method, or of Python's own."""
        if (special := self.rules.get(name)) is not None:
            return special(self, given, named, text)
        operands = [self.as_operand(value, text) for value in given]
        if name in ("max", "min") and len(operands) > 1 and not named:  # Python's
            return self._fold(name, operands)
        if name in functions.REDUCTIONS:
            return self._reduction(functions.REDUCTIONS[name], operands, named, given, text)
        if named:
            self.unsupported(f"{next(iter(named))}= in {text:.60}", "leave it out, or call it outside of the kernel")
        if name in functions.OPERATORS and len(operands) == 2:
            return self.elementwise(lambda a, b: self.binary(functions.OPERATORS[name], a, b), *operands)
        if name in functions.LOGICAL:
            operands = [self.elementwise(self.truth, operand) for operand in operands]
        if name in functions.DIRECT:
            return self.elementwise(lambda *values: self.direct(name, values), *operands)
        if (opcode := functions.OPERATIONS.get(name)) is not None:
            if name in ("negative", "bitwise_not", "invert", "bitwise_invert"):
                made = self.negative if name == "negative" else self.inverted
                return self.elementwise(made, *operands)
            return self.elementwise(lambda *values: self.call(opcode, *values), *operands)
        self.unsupported(f"the function '{name}': {text:.60}", "write it as a loop, or call it outside of the kernel")

    def _fold(self, name: str, operands: Sequence[Array | Number]) -> Array | Number:
        first, *rest = operands
        for other in rest:
            first = self.elementwise(lambda a, b: self.as_python(name, a, b), first, other)
        return first

    def _reduction(self, kind: str, operands: list, named: dict[str, Value], given: list[Value], text: str) -> Value:
        array = operands[0]
        axis = named.pop("axis", given[1] if len(given) > 1 else Static(None))
        keep = self.static(named.pop("keepdims", Static(False)))
        if named:
            self.unsupported(f"the argument '{next(iter(named))}' of {text:.60}", "use axis and keepdims")
        if isinstance(array, Number):
            return array
        rank = len(array.dims)
        wanted = self.static(axis)
        wanted = (
            range(rank)
            if wanted is None
            else [self.static(a) for a in wanted]
            if isinstance(wanted, tuple)
            else [wanted]
        )
        axes = [a + rank if isinstance(a, int) and a < 0 else a for a in wanted]
        if any(not isinstance(a, int) or not 0 <= a < rank for a in axes):
            self.unsupported(
                f"axis {list(wanted)} of an array of {rank} dimensions: {text:.60}", "give axes that it has"
            )
        return self.reduced(kind, array, tuple(sorted(axes)), bool(keep))


def _operands(test: Number, wanted: bool) -> tuple:
    match test.expr:
        case Logic(op=op, operands=operands) if op == ("and" if wanted else "or"):
            return operands
    return (test.expr,)
