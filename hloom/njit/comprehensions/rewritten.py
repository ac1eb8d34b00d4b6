"""Comprehensions of a NumPy program as loops: `np.array([f(x) for x in xs])` fills an array, `sum(f(x) for ...)` adds.

A statement with such a call becomes the loop and the statement with a name in the place of the call's argument, for
iterables that are long; the comprehension as it was written, for others. Which one is known while the program is traced
(`hloom.njit.control`): Python would run each element of a long one by itself.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from itertools import count
from typing import Any

from hloom.njit.liveness import assigned, read

__all__ = ["summed", "without_comprehensions"]

RUNTIME = "_njit_"
_FOLDS = ("sum", "any", "all", "max", "min")
_ITERATORS = ("range", "len", "enumerate", "zip", "reversed")
# Calls that change no array.
_HARMLESS = frozenset(
    (*_ITERATORS, *_FOLDS, "abs", "float", "int", "mean", "std", "var", "prod", "copy", "astype", "dot", "reshape",
     "sqrt", "exp", "log", "array", "asarray", "zeros", "ones", "full", "arange")
)  # fmt: skip
_OWN_SCOPE = (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp, ast.NamedExpr)
_count = count()


def without_comprehensions(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a function, with loops before those that have such a call."""
    made: list[ast.stmt] = []
    for node in body:
        for field in ("body", "orelse"):
            inner = getattr(node, field, None)
            if isinstance(inner, list) and not isinstance(node, ast.FunctionDef):
                setattr(node, field, without_comprehensions(inner))
        made += _hoisted(node)
    return made


def summed(test: ast.expr) -> str:
    """The function of a comprehension that may have no elements, of which a test says whether it is a loop; or ''."""
    match test:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="_njit_"), attr="is_long"), args=[ast.Name(id=name), *_]):
            return name if name in ("sum", "any", "all") else ""
    return ""


def _hoisted(node: ast.stmt) -> list[ast.stmt]:
    if not isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr, ast.If, ast.For)):
        return [node]
    field = {ast.If: "test", ast.For: "iter"}.get(type(node), "value")
    made: list[ast.stmt] = []
    while (call := _first_call(getattr(node, field))) is not None:
        before, name = _Nest(call).statements()
        made += [ast.copy_location(s, call) for s in before]
        setattr(node, field, _Replaced(call, _load(name)).visit(getattr(node, field)))
    return [ast.fix_missing_locations(s) for s in (*made, node)]


def _first_call(value: ast.expr | None) -> ast.Call | None:
    """The first call of a comprehension that an expression always makes, with nothing before it that may change
    arrays."""
    for node in _evaluated(value) if value is not None else ():
        if isinstance(node, ast.Call):
            if _is_taken(node):
                return node
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name not in _HARMLESS:
                return None
    return None


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of an expression that are always evaluated, in this order. A taken call comes before its arguments."""
    if isinstance(node, ast.Call) and _is_taken(node):
        yield node
        return
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.BoolOp):
        children = children[1:2]  # after the operator
    elif isinstance(node, ast.IfExp):
        children = [node.test]
    elif isinstance(node, ast.Compare):
        children = [node.left, node.comparators[0]]
    elif isinstance(node, _OWN_SCOPE):
        children = []
    for child in children:
        yield from _evaluated(child)
    yield node


def _is_taken(call: ast.Call) -> bool:
    """Whether a call has one comprehension as its first argument, which a loop can take the place of."""
    if not call.args or not isinstance(call.args[0], (ast.ListComp, ast.GeneratorExp)):
        return False
    nest = _Nest(call)
    of_numpy = isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
    fold = isinstance(call.func, ast.Name) and call.func.id in _FOLDS and len(call.args) == 1 and not call.keywords
    if any(isinstance(one, _OWN_SCOPE) for part in nest.parts for one in ast.walk(part)):
        return False
    if not (of_numpy and isinstance(call.args[0], ast.ListComp)):
        return fold and not nest.is_of_rows and (call.func.id in ("sum", "any", "all") or not nest.tests)  # type: ignore[attr-defined]
    return not nest.tests and not nest.is_ragged


class _Nest:
    """The loops of a comprehension: those of its generators, and of comprehensions that are its elements.

    generators: outermost first. element: what is computed in the innermost one. tests: the conditions of all. rows: of
    the generators, those that begin a dimension of the result: others go on in the same one.
    """

    def __init__(self, call: ast.Call):
        self.call = call
        found = call.args[0]
        assert isinstance(found, (ast.ListComp, ast.GeneratorExp))
        self.generators: list[ast.comprehension] = []
        self.rows: list[bool] = []
        while True:
            self.generators += found.generators
            self.rows += [True] + [False] * (len(found.generators) - 1)
            if not isinstance(found.elt, ast.ListComp):
                break
            found = found.elt
        self.element = found.elt
        self.number = next(_count)

    @property
    def tests(self) -> list[ast.expr]:
        return [test for generator in self.generators for test in generator.ifs]

    @property
    def parts(self) -> list[ast.expr]:
        return [self.element, *self.tests, *[g.iter for g in self.generators]]

    @property
    def is_of_rows(self) -> bool:
        return sum(self.rows) > 1

    @property
    def is_ragged(self) -> bool:
        """Whether what an inner loop goes over may depend on the outer one, or be another one each time."""
        targets: set[str] = set()
        for generator in self.generators:
            if (targets and not _is_pure(generator.iter)) or read([generator.iter]) & targets:
                return True
            targets |= assigned([generator.target])
        return False

    def _name(self, word: str, k: int | str = "") -> str:
        return f"_njit_{word}{self.number}{f'_{k}' if k != '' else ''}"

    def _renamed(self, node: ast.expr) -> Any:
        """An expression whose names of the comprehension are not those of the function."""
        targets = {name for generator in self.generators for name in assigned([generator.target])}
        node = copy.deepcopy(node)
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and one.id in targets:
                one.id = f"{one.id}{self._name('of')}"
        return node

    def statements(self) -> tuple[list[ast.stmt], str]:
        """The loop and the comprehension, of which the program takes one, and the name of the call's value."""
        before: list[ast.stmt] = []
        iters: list[ast.expr] = []
        written = copy.deepcopy(self.call)
        for k, generator in enumerate(self.generators):
            iters.append(self._renamed(generator.iter))
            if k == 0 and not _is_pure(generator.iter):
                before.append(_assign(self._name("over"), iters[0]))
                iters[0] = _load(self._name("over"))
                written.args[0].generators[0].iter = iters[0]  # type: ignore[attr-defined]
        result = self._name("made")
        otherwise: list[ast.stmt] = [_assign(result, written)]
        if isinstance(self.call.func, ast.Name):
            first = ast.Constant(None) if self.tests else self._first(iters)
            test = _runtime("is_long", self.call.func, iters[0], first)
            return [*before, ast.If(test, self._fold(self.call.func.id, iters), otherwise)], result
        room = self._name("room")
        rows = ast.Tuple([ast.Tuple(row, ast.Load()) for row in self._by_row(iters)], ast.Load())
        before.append(_assign(room, _runtime("room", self.call.func, rows, self._first(iters))))
        test = ast.Compare(_load(room), [ast.IsNot()], [ast.Constant(None)])
        return [*before, ast.If(test, self._filled(iters, room), otherwise)], result

    def _first(self, iters: list[ast.expr]) -> ast.expr:
        """The first element, as a function without arguments."""
        made = self._renamed(self.element)
        for generator, items in reversed(list(zip(self.generators, iters, strict=True))):
            taken = ast.comprehension(self._renamed(generator.target), _runtime("first", items), [], 0)
            made = ast.Subscript(ast.ListComp(made, [taken]), ast.Constant(0), ast.Load())
        return ast.Lambda(ast.arguments([], [], None, [], [], None, []), made)

    def _loops(self, iters: list[ast.expr], body: list[ast.stmt], counted: bool) -> list[ast.stmt]:
        for k, generator in reversed(list(enumerate(self.generators))):
            for test in reversed(generator.ifs):
                body = [ast.If(self._renamed(test), body, [])]
            target, items = self._renamed(generator.target), iters[k]
            if counted:
                target = ast.Tuple([_store(self._name("index", k)), target], ast.Store())
                items = ast.Call(_load("enumerate"), [items], [])
            body = [ast.For(target, items, body, [])]
        return body

    def _filled(self, iters: list[ast.expr], room: str) -> list[ast.stmt]:
        """Loops that fill an array, and the call with it."""
        index: list[ast.expr] = []
        for k, begins in enumerate(self.rows):
            own: ast.expr = _load(self._name("index", k))
            if begins:
                index.append(own)
            else:
                size = ast.Call(_load("len"), [iters[k]], [])
                index[-1] = ast.BinOp(ast.BinOp(index[-1], ast.Mult(), size), ast.Add(), own)
        value = self._renamed(self.element)
        several = isinstance(value, (ast.Tuple, ast.List))
        body: list[ast.stmt] = []
        for k, part in enumerate(value.elts if several else [value]):
            entries = copy.deepcopy(index) + ([ast.Constant(k)] if several else [])
            key = entries[0] if len(entries) == 1 else ast.Tuple(entries, ast.Load())
            body.append(ast.Assign([ast.Subscript(_load(room), key, ast.Store())], part))
        call = copy.deepcopy(self.call)
        call.args[0] = _load(room)
        return [*self._loops(iters, body, counted=True), _assign(self._name("made"), call)]

    def _by_row(self, iters: list[ast.expr]) -> list[list[ast.expr]]:
        rows: list[list[ast.expr]] = []
        for one, begins in zip(iters, self.rows, strict=True):
            if begins:
                rows.append([])
            rows[-1].append(copy.deepcopy(one))
        return rows

    def _fold(self, kind: str, iters: list[ast.expr]) -> list[ast.stmt]:
        """Loops that add to a number, or compare with it."""
        result = self._name("made")
        element = self._renamed(self.element)
        if kind == "sum":
            added = ast.BinOp(_load(result), ast.Add(), element)
            return [_assign(result, ast.Constant(0)), *self._loops(iters, [_assign(result, added)], counted=False)]
        if kind in ("any", "all"):
            test = element if kind == "any" else ast.UnaryOp(ast.Not(), element)
            out: list[ast.stmt] = [ast.If(test, [_assign(result, ast.Constant(kind == "any"))], [])]
            return [_assign(result, ast.Constant(kind != "any")), *self._loops(iters, out, counted=False)]
        fresh, value = self._name("fresh"), self._name("value")
        better = ast.Compare(_load(value), [ast.Gt() if kind == "max" else ast.Lt()], [_load(result)])
        body: list[ast.stmt] = [
            _assign(value, element),
            ast.If(ast.BoolOp(ast.Or(), [_load(fresh), better]), [_assign(result, _load(value))], []),
            _assign(fresh, ast.Constant(False)),
        ]
        # A truth value takes the dtype of whatever number is assigned.
        begin = [_assign(result, ast.Constant(False)), _assign(fresh, ast.Constant(True))]
        return [*begin, *self._loops(iters, body, counted=False)]


def _is_pure(items: ast.expr) -> bool:
    """Whether what a loop goes over can be written twice: names, numbers, ranges of them."""
    calls = [one.func for one in ast.walk(items) if isinstance(one, ast.Call)]
    return all(isinstance(f, ast.Name) and f.id in _ITERATORS for f in calls)


def _runtime(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(_load(RUNTIME), name, ast.Load()), [copy.deepcopy(a) for a in arguments], [])


class _Replaced(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.expr):
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return ast.copy_location(self.new, node) if node is self.old else super().visit(node)


def _load(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _store(name: str) -> ast.expr:
    return ast.Name(name, ast.Store())


def _assign(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([_store(name)], value)
