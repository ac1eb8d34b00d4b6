"""Loops of a NumPy program as kernels: `hloom.kernels` compiles the statement as it is written."""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hloom.errors import UnsupportedError
from hloom.ir.records import replace
from hloom.ir.types import Shape
from hloom.kernels.frontend.lowering import Part, lowered
from hloom.kernels.frontend.syntax import outside_names
from hloom.kernels.instances import instance
from hloom.njit.arguments.instances import data_of
from hloom.njit.comprehensions.rewritten import summed
from hloom.njit.drawing import generator_of
from hloom.njit.items import Counted, Items, Range, has_count
from hloom.njit.liveness import assigned, read, rebound, surely_assigned
from hloom.njit.lowering import NumpyLowering, StateName
from hloom.njit.rewriting import Loop
from hloom.njit.values import KINDS, Array, Memory, Number, Unbound, Value, as_value
from hloom.tracing.trace import bind

__all__ = ["kernel_of"]


class _Arguments:
    """The values that a loop reads from the program: arguments of its kernel, parts of them, and Python values.

    node: the loop, over what its iterable is now. shapes, given: of the arguments, by name, and their values. weak:
    names of Python numbers. parts: names that are views. arrays: by name. firsts: for numbers that the loop assigns,
    the names of their initial values. sizes: integers that are known.
    """

    def __init__(self, loop: Loop, items: Any, bound: Mapping[str, Any], outside: Mapping[str, Any]):
        self.loop, self.node = loop, copy.deepcopy(loop.node)
        self.sizes: dict[str, int] = {}
        bound = dict(bound)
        if items is not None:
            assert isinstance(self.node, ast.For)
            self.node.iter = ast.copy_location(self._named(items, bound), self.node.iter)
            ast.fix_missing_locations(self.node)
        attributes = _Attributes(bound, loop.assigned, outside)
        self.node = ast.fix_missing_locations(attributes.visit(self.node))
        bound |= attributes.found
        self.shapes: dict[str, Any] = {}
        self.given: list[Any] = []
        self.weak: set[str] = set()
        self.parts: dict[str, Part] = {}
        self.arrays: dict[str, Array] = {}
        self.firsts: dict[str, str] = {}
        self.outside = dict(outside)
        self.moved: set[str] = set()  # arguments that are views whose index is computed
        self.constants: set[int] = set()  # Refs of arrays from outside of the program
        for name in sorted(read([self.node]) | (loop.assigned & loop.live)):
            if name in bound:
                self._take(name, bound[name])
            elif isinstance(outside.get(name), np.ndarray) or generator_of(outside.get(name)) is not None:
                self._take(name, outside[name])
        self.wholes: dict[int, str] = {}  # arguments by the Ref that they are the value of
        for name, value in self.arrays.items():
            self._take_array(name, value)

    def _named(self, items: Any, bound: dict[str, Any]) -> ast.expr:
        """What a loop goes over, by names that hold it: the program has computed it, and it is not computed again."""
        if isinstance(items, (range, Range)):
            function, args = "range", [items.start, items.stop]
            if isinstance(items.step, Number) or items.step != 1:
                args.append(items.step)
        elif isinstance(items, Counted):
            array, count = self._named(items.array, bound), self._named(items.count, bound)
            return ast.Subscript(array, ast.Slice(None, count), ast.Load())
        elif isinstance(items, Items):
            function, args = items.function.__name__, [*items.args]
        else:
            name = f"_njit_over{len(bound)}"
            if isinstance(items, int) and items >= 0:
                self.sizes[name] = items
            bound[name] = items
            return ast.Name(name, ast.Load())
        return ast.Call(ast.Name(function, ast.Load()), [self._named(a, bound) for a in args], [])

    def _take(self, name: str, value: Any) -> None:
        if name in self.sizes:
            return
        if isinstance(value, np.ndarray):
            value = as_value(value)
            self.constants.add(id(value.ref))
        if (generator := generator_of(value)) is not None and name not in self.loop.assigned:
            state = f"_njit_state_{name}"
            self.arrays[state] = generator.state
            self.outside[name] = StateName(state)
            return
        carried = name in self.loop.assigned
        own = f"{name}_first" if carried else name
        if isinstance(value, Array):
            self.arrays[name] = value
        elif isinstance(value, Number):
            self.firsts |= {name: own} if carried else {}
            self.shapes[own] = value.traced._shape
            self.given.append(value.traced)
            if value.python is not None:
                self.weak.add(own)
        elif carried and isinstance(value, (bool, int, float, complex, np.generic)):
            self.outside[own] = value
            self.firsts[name] = own
        else:
            self.outside[name] = value

    def _take_array(self, name: str, value: Array) -> None:
        value.require_current()
        whole = self.wholes.get(id(value.ref))
        if whole is not None and (value.moved or whole in self.moved):
            error = UnsupportedError(f"'{name}' in a loop", "it shares memory with a view whose index is computed",
                                     "index the whole array in the loop")  # fmt: skip
            error.source = self.loop.source
            raise error
        if whole is None:
            self.wholes[id(value.ref)] = whole = f"{name}_whole" if value.steps and not value.moved else name
            if value.moved:
                self.moved.add(whole)
            traced = value.traced if value.moved else value.ref.read()
            self.shapes[whole] = Shape(traced.dtype, traced.shape)
            self.given.append(traced)
        if whole != name:
            self.parts[name] = _part(value, whole)

    def require_writable(self, whole: str) -> None:
        """Refuses to change an argument that is memory from outside, or that only stands for other memory."""
        if id(self.ref_of(whole)) in self.constants:
            error = UnsupportedError("a change of an array that is not an argument",
                                     "a loop changes an array from outside", "pass it as an argument")  # fmt: skip
            error.source = self.loop.source
            raise error
        for value in self.arrays.values():
            if self.wholes[id(value.ref)] == whole and value.fixed:
                error = UnsupportedError("a change in place of an array", value.fixed, "change a copy: x = x.copy()")
                error.source = self.loop.source
                raise error

    def ref_of(self, whole: str) -> Memory | Array:
        """What an argument is the value of: a Ref, or a view whose place in it is computed."""
        return next(a if a.moved else a.ref for a in self.arrays.values() if self.wholes[id(a.ref)] == whole)


class _Attributes(ast.NodeTransformer):
    """`p.x` of instances and `d["x"]` of dicts as names of their own. found: their values."""

    def __init__(self, bound: Mapping[str, Any], assigned: frozenset[str], outside: Mapping[str, Any]):
        self.bound, self.assigned = bound, assigned
        self.taken = {*bound, *outside}
        self.found: dict[str, Any] = {}

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self._named(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return self._named(node)

    def _named(self, node: ast.Attribute | ast.Subscript) -> ast.expr:
        value = self._value(node)
        if not isinstance(value, (Value, np.ndarray)):
            self.generic_visit(node)
            return node
        name = re.sub(r"\W+", "_", ast.unparse(node)).strip("_")
        while self.found.get(name, value) is not value or name in self.taken:
            name += "_"
        self.found[name] = value
        return ast.copy_location(ast.Name(name, ast.Load()), node)

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Name(id=name) if name not in self.assigned:
                return self.bound.get(name)
            case ast.Attribute(value=owner, attr=name, ctx=ast.Load()):
                found = self._value(owner)
                return None if isinstance(found, dict) else data_of(found).get(name)
            case ast.Subscript(value=owner, slice=ast.Constant(value=str(key)), ctx=ast.Load()):
                found = self._value(owner)
                return found.get(key) if isinstance(found, dict) else None
        return None


def kernel_of(
    loop: Loop, items: Any, names: Mapping[str, Any], function: Callable, watch: Callable, stop: Any = None
) -> dict[str, Any]:  # fmt: skip
    """Runs a loop as one kernel. Returns the final values of the names that it assigns.

    items: what a `for` goes over. names: the values of the user's names. watch: called with the name, the kernel, its
    checks and its fault. stop: whether loops of unknown length end at once, or None: what comes after a fault has no
    meaning, and they may not end. Raises the kernel's errors, at the user's line, where kernels do not support
    something.
    """
    bound = {name: value for name, value in names.items() if not isinstance(value, Unbound)}
    if stop is not None and any(isinstance(one, ast.While) for one in ast.walk(loop.node)):
        bound[_STOP] = Number(stop)
        loop = replace(loop, node=_Stopped().visit(copy.deepcopy(loop.node)))
    arguments = _Arguments(loop, items, bound, outside_names(function))
    # A name that is changed in place holds the same array afterwards. One that is bound anew holds another array, and
    # the kernel does not say which.
    anew = rebound([loop.node])
    kept = {name: bound[name] for name in loop.assigned - anew if name in arguments.arrays}
    for name in sorted(anew & loop.live & arguments.arrays.keys()):
        error = UnsupportedError(f"'{name}' after a loop", "the loop binds it to another array", "use another name")
        error.source = loop.source
        raise error
    results = sorted(name for name in (loop.assigned & loop.live) - arguments.arrays.keys() if name in bound)
    # Names that the first iteration assigns have whatever dtype is assigned: that of a truth value widens to it.
    fresh = sorted(_first_assigned(loop, items) & loop.live - bound.keys() - arguments.arrays.keys())
    results += fresh
    definition = _definition(arguments, results, fresh)
    made = lowered(
        definition, loop.file, 0, arguments.outside, arguments.shapes, loop.function, frozenset(arguments.weak),
        prange=False, parts=arguments.parts, written=set(),
        lowering=functools.partial(NumpyLowering, serial=set(), sizes=arguments.sizes),
    )  # fmt: skip
    for whole in made.changed:
        arguments.require_writable(whole)
    kernel = instance(made.body, made.fault)
    found = bind("kernel", *arguments.given, kernel=kernel)
    if made.checks:
        watch(loop.function, kernel, made.checks, found[-1])
    for whole, number in made.changed.items():
        arguments.ref_of(whole).write(found[number])
    after: dict[str, Any] = {name: Unbound(name) for name in loop.assigned} | kept
    for name, number in zip(results, made.result, strict=True):
        after[name] = _result(found[number], number in made.weak)
    return after


_STOP = "_njit_stop"


class _Stopped(ast.NodeTransformer):
    """`while` loops that a fault before them ends."""

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        goes_on = ast.UnaryOp(ast.Not(), ast.Name(_STOP, ast.Load()))
        node.test = ast.BoolOp(ast.And(), [goes_on, node.test])
        return ast.fix_missing_locations(node)


def _result(value: Any, weak: bool) -> Value:
    """The number that a name holds after a loop. weak: whether it is one of Python."""
    return Number(value, KINDS[value.dtype.kind] if weak else None)


def _part(value: Array, whole: str) -> Part:
    assert value.layout is not None
    base: Any = value.layout if value.layout.base is None else value.layout.base
    offset = value.layout.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    size = value.dtype.itemsize
    return Part(whole, value.shape, tuple([s // size for s in value.layout.strides]), offset // size)


def _first_assigned(loop: Loop, items: Any) -> set[str]:
    """Names that a loop assigns for certain: it has an iteration, which does."""
    node = loop.node
    if isinstance(node, ast.While):
        return surely_assigned(node.body) if isinstance(node.test, ast.Constant) and node.test.value else set()
    if not isinstance(node, ast.For) or isinstance(items, Range) or has_count(items) or not len(items):
        return set()
    return assigned([node.target]) | surely_assigned(node.body)


def _definition(arguments: _Arguments, results: list[str], fresh: list[str]) -> ast.FunctionDef:
    """A function of the loop alone, which returns the names that are read after it. fresh: those among them that it
    assigns first."""
    loop, node = arguments.loop, _Plain(arguments.outside).visit(arguments.node)
    values: list[ast.expr] = [ast.Name(name, ast.Load()) for name in results]
    end = ast.Return(ast.Tuple(values, ast.Load()))
    parameters = ast.arguments([], [ast.arg(name) for name in arguments.shapes], None, [], [], None, [])
    begin = [
        ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], ast.Name(first, ast.Load())), loop.node)
        for name, first in arguments.firsts.items()
    ]
    begin += [
        ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], ast.Constant(False)), loop.node) for name in fresh
    ]
    body = [*begin, *(node if isinstance(node, list) else [node]), ast.copy_location(end, loop.node)]
    made = ast.FunctionDef(loop.function, parameters, body, [], None, None)
    return ast.fix_missing_locations(ast.copy_location(made, loop.node))


_ITERATORS = ("enumerate", "zip", "reversed", "ndindex", "ndenumerate")


class _Plain(ast.NodeTransformer):
    """Loops over `enumerate`, `zip` and `reversed` as loops over `range`. What they go over is computed before."""

    def __init__(self, outside: Mapping[str, Any]):
        self.outside, self.count = outside, 0

    # `a and b` is a truth value for the kernel. Where it is no condition, it is one of the two.

    def _condition(self, test: ast.expr) -> ast.expr:
        if isinstance(test, ast.BoolOp):
            test.values = [self._condition(v) for v in test.values]
            return test
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test.operand = self._condition(test.operand)
            return test
        return self.visit(test)

    def _tested(self, node: Any) -> Any:
        test, node.test = self._condition(node.test), ast.Constant(True)
        node = self.generic_visit(node)
        node.test = test
        return node

    visit_While = visit_IfExp = visit_Assert = _tested  # noqa: N815

    def visit_If(self, node: ast.If) -> Any:
        if (name := summed(node.test)) and self.outside.get(name) in (None, getattr(builtins, name)):
            # A comprehension is a loop in a kernel, however long.
            return self.generic_visit(ast.Module(node.body, [])).body  # type: ignore[attr-defined]
        return self._tested(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        return self._condition(node) if isinstance(node.op, ast.Not) else self.generic_visit(node)  # type: ignore[return-value]

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        if all(map(_is_truth, node.values)):
            return self._condition(node)
        *before, found = [self.visit(v) for v in node.values]
        for value in reversed(before):
            test = copy.deepcopy(value)
            yes, no = (found, value) if isinstance(node.op, ast.And) else (value, found)
            found = ast.copy_location(ast.IfExp(test, yes, no), node)
            found.repeated = True  # type: ignore[attr-defined]
        return found

    def _once(self, items: ast.expr, before: list[ast.stmt]) -> ast.expr:
        """An iterable whose parts are names and constants. before: the statements that compute these."""
        if isinstance(items, (ast.Name, ast.Constant)):
            return items
        match items:
            case ast.Call(func=ast.Name(id=name) as function, args=args) if name in (*_ITERATORS, "range"):
                return ast.Call(function, [self._once(a, before) for a in args], items.keywords)
        name = f"_njit_once{self.count}"
        self.count += 1
        before.append(ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], items), items))
        return ast.Name(name, ast.Load())

    def visit_For(self, node: ast.For) -> ast.For | list[ast.stmt]:
        self.generic_visit(node)
        name = node.iter.func.id if isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name) else ""
        if name not in _ITERATORS:
            return node
        index = f"_njit_index{self.count}"
        self.count += 1
        before: list[ast.stmt] = []
        length, element = _elements(self._once(node.iter, before), ast.Name(index, ast.Load()))
        first = ast.Assign([node.target], element)
        made = ast.For(
            ast.Name(index, ast.Store()), ast.Call(ast.Name("range", ast.Load()), [length], []),
            [*_assignments(node.target, element, first), *node.body], node.orelse,
        )  # fmt: skip
        return [ast.fix_missing_locations(s) for s in (*before, ast.copy_location(made, node))]


def _is_truth(node: ast.expr) -> bool:
    """Whether an expression is a truth value, whatever its names are."""
    if isinstance(node, ast.BoolOp):
        return all(map(_is_truth, node.values))
    return isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))


def _assignments(target: ast.expr, value: ast.expr, whole: ast.Assign) -> list[ast.stmt]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return [s for t, v in zip(target.elts, value.elts, strict=True) for s in _assignments(t, v, ast.Assign([t], v))]
    return [whole]


def _positions(name: str, args: list[ast.expr], index: ast.expr) -> tuple[ast.expr, ast.expr]:
    """(the number of elements, the indices at a position in C order), and the element for `np.ndenumerate`."""
    dims = args if name == "ndindex" else args[1:]
    length: ast.expr = ast.Constant(1)
    parts: list[ast.expr] = []
    for size in reversed(dims):
        parts.insert(0, ast.BinOp(ast.BinOp(index, ast.FloorDiv(), length), ast.Mod(), size))
        length = ast.BinOp(length, ast.Mult(), size)
    place = ast.Tuple(parts, ast.Load())
    if name == "ndindex":
        return length, place
    return length, ast.Tuple([place, ast.Subscript(args[0], place, ast.Load())], ast.Load())


def _elements(items: ast.expr, index: ast.expr) -> tuple[ast.expr, ast.expr]:
    """(the number of elements, the element at an index) of a loop's iterable."""
    name = items.func.id if isinstance(items, ast.Call) and isinstance(items.func, ast.Name) else ""
    args = items.args if isinstance(items, ast.Call) else []
    if name == "enumerate" and args:
        length, element = _elements(args[0], index)
        count = index if len(args) == 1 else ast.BinOp(index, ast.Add(), args[1])
        return length, ast.Tuple([count, element], ast.Load())
    if name == "zip" and args:
        found = [_elements(a, index) for a in args]
        lengths = [n for n, _ in found]
        shortest = lengths[0] if len(lengths) == 1 else ast.Call(ast.Name("min", ast.Load()), lengths, [])
        return shortest, ast.Tuple([e for _, e in found], ast.Load())
    if name == "reversed" and args:
        length, _ = _elements(args[0], index)
        last = ast.BinOp(ast.BinOp(length, ast.Sub(), ast.Constant(1)), ast.Sub(), index)
        return length, _elements(args[0], last)[1]
    if name in ("ndindex", "ndenumerate"):
        return _positions(name, args, index)
    if name == "range" and len(args) < 3:
        length, start = args[-1], args[0]
        if len(args) == 1:
            return length, index
        return ast.BinOp(length, ast.Sub(), start), ast.BinOp(start, ast.Add(), index)
    return ast.Call(ast.Name("len", ast.Load()), [items], []), ast.Subscript(items, index, ast.Load())
