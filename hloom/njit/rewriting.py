"""From the source of a NumPy program to the function that traces it.

Calls, indices, loops, branches and truth values go through the run-time functions of `hloom.njit.control`, under the
name `_njit_`; all else is Python's. Lines keep their numbers, so that errors and instructions name the user's.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any, NoReturn

import numpy as np

from hloom.errors import UnsupportedError
from hloom.ir.records import record
from hloom.ir.source import Source
from hloom.njit.comprehensions.rewritten import without_comprehensions
from hloom.njit.jumps import has_jumps, without_else, without_jumps
from hloom.njit.liveness import assigned, live_after, read

__all__ = ["Loop", "Program", "has_return", "program_of", "without_returns_inside"]

RUNTIME = "_njit_"


def _load(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _store(name: str) -> ast.expr:
    return ast.Name(name, ast.Store())


def _of(owner: str, name: str) -> ast.expr:
    return ast.Attribute(_load(owner), name, ast.Load())


def _locals() -> ast.expr:
    return ast.Call(_load("locals"), [], [])


def _texts(names: list[str]) -> ast.expr:
    return ast.Tuple([ast.Constant(name) for name in names], ast.Load())


_REFUSED = {
    ast.Yield: ("a generator", "return arrays"), ast.YieldFrom: ("a generator", "return arrays"),
    ast.Await: ("await", "write a plain function"), ast.AsyncFor: ("async for", "write a plain loop"),
    ast.Try: ("try", "test the condition with if"), ast.ClassDef: ("a class", "define it outside of the function"),
    ast.Global: ("global", "pass the value as an argument, and return it"),
    ast.Nonlocal: ("nonlocal", "return the value"), ast.With: ("with", "call the function inside of it"),
    ast.Import: ("import", "import at the beginning of the function, or of the file"),
    ast.ImportFrom: ("import", "import at the beginning of the function, or of the file"),
    ast.Delete: ("del", "leave it out"),
}  # fmt: skip


@record(frozen=True, eq=False)
class Loop:
    """A loop or a branch of a program: the statement as written, and the names read after it."""

    node: ast.For | ast.While | ast.If | ast.Assert
    file: str
    function: str
    live: frozenset[str]
    assigned: frozenset[str]

    @property
    def source(self) -> Source:
        return Source(self.file, self.node.lineno, self.function)


@record(frozen=True, eq=False)
class Program:
    """make(runtime): the function that traces. loops: its loops and branches, by number."""

    make: Callable[[Any], Callable]
    loops: tuple[Loop, ...]
    function: Callable


def program_of(function: Callable) -> Program:
    """Reads a function. Raises UnsupportedError at the user's line."""
    name = getattr(function, "__name__", repr(function))
    try:
        lines, first = inspect.getsourcelines(function)
        (tree,) = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        tree = None
    if tree is not None and name == "<lambda>":
        tree = _of_lambda(tree, function, first - 1)
    if not isinstance(tree, ast.FunctionDef) or tree.name not in (name, "lambda_"):
        raise UnsupportedError(
            f"the function '{name}'", "it has no source that can be read", "define it with def in a file or notebook"
        )
    file = inspect.getsourcefile(function) or ""
    ast.increment_lineno(tree, first - 1)
    tree.decorator_list = []
    tree = _Quiet(function.__globals__).visit(tree)
    _refuse(tree, file, name)
    # Defaults and annotations were evaluated where the function was defined.
    tree.args.defaults, tree.args.kw_defaults = [], [None] * len(tree.args.kwonlyargs)
    for argument in ast.walk(tree.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    tree.returns = None
    tree.body = without_else(without_returns_inside(without_comprehensions(tree.body), file, name))
    rewriter = _Rewriter(file, name)
    live = live_after(tree.body)
    tree.body = rewriter.block(tree.body, live)
    return Program(_factory(tree, function, file), tuple(rewriter.loops), function)


def _of_lambda(tree: ast.stmt, function: Callable, before: int) -> ast.stmt | None:
    """The only lambda of a statement that is on the function's line and has its parameters, as a function with a name.
    before: lines of the file before the statement."""
    own = function.__code__
    names = [*own.co_varnames[: own.co_argcount]]
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda)
        and [a.arg for a in node.args.args] == names
        and node.lineno + before == own.co_firstlineno
    ]
    if len(found) != 1:
        return None
    named = ast.FunctionDef("lambda_", found[0].args, [ast.Return(found[0].body)], [], None, None)
    return ast.fix_missing_locations(ast.copy_location(named, found[0]))


class _Quiet(ast.NodeTransformer):
    """`with np.errstate(...)` as its statements: a compiled program gives no warnings about elements."""

    def __init__(self, scope: Mapping[str, Any]):
        self.scope = scope

    def visit_With(self, node: ast.With) -> Any:
        self.generic_visit(node)
        for item in node.items:
            match item.context_expr:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="errstate"), args=[], keywords=modes):
                    quiet = all(
                        isinstance(m.value, ast.Constant) and m.value.value in ("ignore", "warn") for m in modes
                    )
                    if self.scope.get(name) is np and quiet and item.optional_vars is None:
                        continue
            return node
        return node.body


def _imports(tree: ast.FunctionDef) -> int:
    """How many statements at the beginning import modules, after a docstring: they are Python's."""
    others = (ast.Import, ast.ImportFrom)
    first = [
        isinstance(n, others) or (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)) for n in tree.body
    ]
    return first.index(False) if False in first else len(first)


def _refuse(tree: ast.FunctionDef, file: str, name: str) -> None:
    for node in ast.walk(tree):
        found = _REFUSED.get(type(node))
        if found is not None and node not in tree.body[: _imports(tree)]:
            _unsupported(Source(file, getattr(node, "lineno", 0), name), *found)
        if isinstance(node, ast.AsyncFunctionDef):
            _unsupported(Source(file, node.lineno, name), "an async function", "write a plain function")


def _unsupported(source: Source, what: str, repair: str) -> NoReturn:
    error = UnsupportedError(f"{what} in a compiled NumPy program", f"the line {source.code():.80}", repair)
    error.source = source
    raise error


def _factory(tree: ast.FunctionDef, function: Callable, file: str) -> Callable[[Any], Callable]:
    """Makes the function with the names that the user's one closes over."""
    free = inspect.getclosurevars(function).nonlocals
    arguments = [ast.arg(name) for name in (RUNTIME, *free)]
    outer = ast.FunctionDef(
        "_njit_factory_",
        ast.arguments([], arguments, None, [], [], None, []),
        [tree, ast.Return(_load("_njit_function_"))],
        [],
        None,
        None,
    )
    # Within it, the function's own name is the user's function.
    name, tree.name = tree.name, "_njit_function_"
    module = ast.fix_missing_locations(ast.Module([ast.copy_location(outer, tree)], []))
    code = _named(compile(module, file, "exec"), name)

    def make(runtime: Any) -> Callable:
        scope = dict(function.__globals__)
        exec(code, scope)
        made = scope["_njit_factory_"](runtime, **inspect.getclosurevars(function).nonlocals)
        made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        return made

    return make


def _named(code: CodeType, name: str) -> CodeType:
    """Code whose functions, those made of loops and branches too, have the name of the user's, which errors show."""
    own = name if code.co_name.startswith(("_njit_", "<")) else code.co_name
    inner = tuple([_named(c, own) if isinstance(c, CodeType) else c for c in code.co_consts])
    if code.co_name.startswith("_njit_") and code.co_name != "_njit_factory_":
        return code.replace(co_consts=inner, co_name=name, co_qualname=name)
    return code.replace(co_consts=inner)


# --- returns


def has_return(nodes: list[ast.stmt]) -> bool:
    return any(isinstance(one, ast.Return) for node in nodes for one in _within(node))


def _within(node: ast.AST):
    """The nodes of a statement, without those of functions inside."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.Lambda)):
            yield from _within(child)


def without_returns_inside(body: list[ast.stmt], file: str, name: str) -> list[ast.stmt]:
    """Statements whose only returns are at the end of the function, or of a branch that is at the end.

    `if c: return a` moves what follows into the other branch; a return in a loop leaves it with a flag and the returned
    value.
    """
    made: list[ast.stmt] = []
    for k, node in enumerate(body):
        rest = body[k + 1 :]
        if isinstance(node, ast.Return):
            made.append(node)
            return made
        if isinstance(node, ast.If) and has_return([node]):
            then, other = [*node.body], [*node.orelse]
            if not _ends(then):
                then += copy.deepcopy(rest)
            if not _ends(other):
                other += rest
            end: list[ast.stmt] = [ast.copy_location(ast.Return(ast.Constant(None)), node)]
            new = ast.If(
                node.test,
                without_returns_inside(then if _ends(then) else then + end, file, name),
                without_returns_inside(other if _ends(other) else other + end, file, name),
            )
            made.append(ast.copy_location(new, node))
            return [ast.fix_missing_locations(m) for m in made]
        if isinstance(node, (ast.For, ast.While)) and has_return([node]):
            before, loop, after = _left_by_flag(node, file, name)
            made += [*before, loop]
            return [ast.fix_missing_locations(m) for m in [*made, *without_returns_inside([*after, *rest], file, name)]]
        made.append(node)
    return made


def _ends(body: list[ast.stmt]) -> bool:
    last = body[-1] if body else None
    if isinstance(last, (ast.Return, ast.Raise)):
        return True
    return isinstance(last, ast.If) and bool(last.orelse) and _ends(last.body) and _ends(last.orelse)


_count = iter(range(1 << 60))


def _left_by_flag(loop: ast.For | ast.While, file: str, name: str):
    """(statements before, the loop without returns, statements after it)."""
    number = next(_count)
    flag = f"_njit_done{number}"
    returns = [one for one in _within(loop) if isinstance(one, ast.Return)]
    values = [r.value for r in returns]
    width = {len(v.elts) if isinstance(v, ast.Tuple) else -1 for v in values if v is not None}
    if len(width) > 1 or (width and None in values):
        _unsupported(Source(file, loop.lineno, name), "returns of different kinds in a loop", "return the same kind")
    count = width.pop() if width else 0
    names = [f"_njit_value{number}_{k}" for k in range(abs(count))]

    class Leave(ast.NodeTransformer):
        depth = 0

        def visit_Return(self, node):
            parts = list(node.value.elts) if count > 0 else [] if node.value is None else [node.value]
            found: list[ast.stmt] = [ast.Assign([_store(n)], p) for n, p in zip(names, parts, strict=True)]
            found += [ast.Assign([_store(flag)], ast.Constant(True)), ast.Break()]
            return [ast.copy_location(f, node) for f in found]

        def _loop(self, node):
            inner = has_return([node])
            self.generic_visit(node)
            if inner and node is not loop:  # the loop around is left as well
                out = ast.If(_load(flag), [ast.Break()], [])
                return [node, ast.copy_location(out, node)]
            return node

        visit_For = visit_While = _loop  # noqa: N815

        def visit_FunctionDef(self, node):
            return node

    changed = Leave().visit(loop)
    before: list[ast.stmt] = [ast.Assign([_store(flag)], ast.Constant(False))]
    # A truth value takes the dtype of whatever number is returned.
    before += [ast.Assign([_store(n)], ast.Constant(False)) for n in names]
    result: ast.expr | None = ast.Tuple([_load(n) for n in names], ast.Load()) if count > 0 else None
    result = _load(names[0]) if count == -1 else result
    after: list[ast.stmt] = [ast.If(_load(flag), [ast.Return(result)], [])]
    fixed = [ast.fix_missing_locations(ast.copy_location(s, loop)) for s in [*before, *after]]
    return fixed[: len(before)], ast.fix_missing_locations(changed), fixed[len(before) :]


# --- the rest


class _Rewriter(ast.NodeTransformer):
    def __init__(self, file: str, name: str):
        self.file, self.name = file, name
        self.loops: list[Loop] = []
        self.live: dict[ast.stmt, set[str]] = {}

    def block(self, body: list[ast.stmt], live: dict[ast.stmt, set[str]]) -> list[ast.stmt]:
        self.live |= live
        made: list[ast.stmt] = []
        for node in body:
            found = self.visit(node)
            made += found if isinstance(found, list) else [found]
        return made

    def runtime(self, name: str, *arguments: ast.expr, at: ast.AST) -> ast.expr:
        call = ast.Call(ast.Attribute(_load(RUNTIME), name, ast.Load()), list(arguments), [])
        return ast.fix_missing_locations(ast.copy_location(call, at))

    @staticmethod
    def later(value: ast.expr, names: list[str] | None = None) -> ast.expr:
        none = ast.arguments([], [ast.arg(n) for n in names or ()], None, [], [], None, [])
        return ast.Lambda(none, value)

    # --- expressions

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("locals", "globals", "super", "eval", "exec"):
            _unsupported(Source(self.file, node.lineno, self.name), f"{node.func.id}()", "use names")
        call = ast.Call(_of(RUNTIME, "call"), [node.func, *node.args], node.keywords)
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            return self.runtime("attribute", node.value, ast.Constant(node.attr), at=node)
        if node.attr in ("real", "imag") and isinstance(node.ctx, ast.Store):  # x.real = y is x.real[...] = y
            part = self.runtime("attribute", node.value, ast.Constant(node.attr), at=node)
            target = self.runtime("target", part, at=node)
            return ast.copy_location(ast.Subscript(target, ast.Constant(...), node.ctx), node)
        _unsupported(Source(self.file, node.lineno, self.name), "a change of an attribute",
                     "write into its array, p.x[:] = y, or return the new value")  # fmt: skip

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            return self.runtime("item", node.value, _index(node.slice), at=node)
        return ast.copy_location(ast.Subscript(self.runtime("target", node.value, at=node), node.slice, node.ctx), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.MatMult):
            return self.runtime("matmul", node.left, node.right, at=node)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        name = "all_of" if isinstance(node.op, ast.And) else "any_of"
        return self.runtime(name, *map(self.later, node.values), at=node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return self.runtime("negated", node.operand, at=node) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) == 1:
            if isinstance(node.ops[0], (ast.Is, ast.IsNot)):
                same = self.runtime("same", node.left, node.comparators[0], at=node)
                return same if isinstance(node.ops[0], ast.Is) else self.runtime("negated", same, at=node)
            if isinstance(node.ops[0], (ast.In, ast.NotIn)):
                found = self.runtime("contains", node.left, node.comparators[0], at=node)
                return found if isinstance(node.ops[0], ast.In) else self.runtime("negated", found, at=node)
            return node
        operands = [node.left, *node.comparators]
        pairs = [ast.Compare(a, [op], [b]) for a, op, b in zip(operands, node.ops, operands[1:], strict=False)]
        return self.runtime("all_of", *map(self.later, pairs), at=node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return self.runtime("choice", node.test, self.later(node.body), self.later(node.orelse), at=node)

    def visit_Raise(self, node: ast.Raise):
        self.generic_visit(node)
        checked = ast.Expr(self.runtime("raises", at=node))
        return [ast.fix_missing_locations(ast.copy_location(checked, node)), node]

    def visit_Assert(self, node: ast.Assert):
        number = self._loop_of(node, copy.deepcopy(node))
        self.generic_visit(node)
        message = self.later(ast.Tuple([node.msg] if node.msg is not None else [], ast.Load()))
        checked = ast.Expr(self.runtime("asserted", ast.Constant(number), node.test, message, at=node))
        return ast.fix_missing_locations(ast.copy_location(checked, node))

    # --- statements

    def visit_AugAssign(self, node: ast.AugAssign):
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        checked = ast.Expr(self.runtime("target", _load(node.target.id), ast.Constant(True), at=node))
        return [ast.fix_missing_locations(ast.copy_location(checked, node)), node]

    def _loop_of(self, node: ast.For | ast.While | ast.If | ast.Assert, original: Any) -> int:
        live, names = self.live.get(node, set()), assigned([original])
        found = Loop(original, self.file, self.name, frozenset(live), frozenset(names))
        self.loops.append(found)
        return len(self.loops) - 1

    def visit_For(self, node: ast.For):
        return self._staged(node)

    def visit_While(self, node: ast.While):
        return self._staged(node)

    def _staged(self, node: Any) -> list[ast.stmt]:
        """A loop: a run-time function takes it, with its body as a function from the names that it assigns to these
        names."""
        original = copy.deepcopy(node)
        names = sorted(assigned([node]))
        number = self._loop_of(node, original)
        jumped, broken = f"_njit_jumped{number}", f"_njit_broken{number}"
        jumps, breaks = has_jumps(node.body), has_jumps(node.body, (ast.Break,))
        if jumps:
            node.body = without_jumps(node.body, jumped, broken)
        flags = ast.Constant(broken if breaks else "")
        is_for = isinstance(node, ast.For)
        head = [self.visit(node.iter)] if is_for else []
        inside: list[ast.stmt] = [ast.Assign([node.target], _load("_njit_item"))] if is_for else []
        if jumps:
            inside += [ast.Assign([_store(flag)], ast.Constant(False)) for flag in (jumped, broken)]
        inside += self.block(node.body, self.live)
        inside.append(self._bound([*names, broken] if breaks else names, node))
        parameters = [ast.arg(n) for n in (["_njit_item"] if is_for else [])] + [ast.arg(n) for n in names]
        made: list[ast.stmt] = [_function(f"_njit_body{number}", parameters, inside)]
        arguments = [ast.Constant(number), *head, _locals(), _load(f"_njit_body{number}"), flags]
        if not is_for:
            tested: list[ast.stmt] = [ast.Return(self.visit(node.test))]
            made.append(_function(f"_njit_while{number}", [ast.arg(n) for n in names], tested))
            arguments.append(_load(f"_njit_while{number}"))
        call = self.runtime("for_loop" if is_for else "while_loop", *arguments, at=node)
        made += self._taken(number, names, call)
        return [ast.fix_missing_locations(ast.copy_location(s, node)) for s in made]

    def _bound(self, names: list[str], at: ast.AST) -> ast.stmt:
        """The end of a function that is a part of a statement: the values of names."""
        return ast.Return(self.runtime("bound", _locals(), _texts(names), at=at))

    @staticmethod
    def _taken(number: int, names: list[str], call: ast.expr) -> list[ast.stmt]:
        """Assigns the values of names that a call returns."""
        after = f"_njit_after{number}"
        made: list[ast.stmt] = [ast.Assign([_store(after)], call)]
        made += [ast.Assign([_store(n)], ast.Subscript(_load(after), ast.Constant(n), ast.Load())) for n in names]
        return made

    def visit_If(self, node: ast.If):
        original = copy.deepcopy(node)
        returns = has_return([node])
        raising = [bool(block) and isinstance(block[-1], ast.Raise) for block in (node.body, node.orelse)]
        names = sorted(assigned([node]))
        number = self._loop_of(node, original)
        test = self.visit(node.test)
        made: list[ast.stmt] = []
        functions = []
        for kind, block in (("then", node.body), ("else", node.orelse)):
            inside = self.block(block, self.live) or [ast.Pass()]
            if not returns:
                inside.append(self._bound(names, node))
            made.append(_function(f"_njit_{kind}{number}", [ast.arg(n) for n in names], inside))
            functions.append(_load(f"_njit_{kind}{number}"))
        known = [ast.Constant(number), test, *functions, _locals()]
        if raising[0] is not raising[1]:
            call = self.runtime("refusal", *known, ast.Constant(raising[0]), at=node)
        else:
            call = self.runtime("branch", *known, ast.Constant(returns), at=node)
        made += [ast.Return(call)] if returns else self._taken(number, names, call)
        return [ast.fix_missing_locations(ast.copy_location(s, node)) for s in made]

    def visit_FunctionDef(self, node: ast.FunctionDef):
        node.decorator_list = []
        body = without_comprehensions(node.body)
        node.body = without_else(without_returns_inside(body, self.file, node.name))
        node.body = self.block(node.body, live_after(node.body, read(node.body)))
        return node


def _function(name: str, parameters: list[ast.arg], body: list[ast.stmt]) -> ast.FunctionDef:
    return ast.FunctionDef(name, ast.arguments([], parameters, None, [], [], None, []), body, [], None, None)


def _index(node: ast.expr) -> ast.expr:
    """An index as an expression: slices are calls of `slice`."""
    if isinstance(node, ast.Slice):
        parts = [part or ast.Constant(None) for part in (node.lower, node.upper, node.step)]
        return ast.Call(_load("slice"), parts, [])
    if isinstance(node, ast.Tuple):
        return ast.Tuple([_index(e) for e in node.elts], ast.Load())
    return node
