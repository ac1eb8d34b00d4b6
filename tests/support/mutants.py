"""Mutants of Python sources: small changes of one place, and a fixed sample of them.

    sample(root, ("ir", "compiler"), count) -> list[Mutant]
    mutant.applied(text) -> the text of the file with the change

A mutant is known by its file, function, line of text and change, not by its line number. Which ones the sample has is
decided by hashes of that, so a change of the code replaces the mutants of the lines that it touches and no others: a
line is drawn with the same probability whatever it holds, and one mutant of it is.

Not changed: docstrings and other text, annotations, arguments of errors and warnings, `__all__`, `__repr__` and
`__str__`, blocks for type checkers, patterns of `match`, the `strict` of zip.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Mutant", "mutants", "sample"]

SEED = "37"
COMPARISONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
NOT_COMPILED = ("__repr__", "__str__")
# Decorators of functions that are compiled from their sources: Python never runs their lines.
COMPILED = frozenset({"function", "kernel_function", "intrinsic"})


@dataclass(frozen=True)
class Mutant:
    """path: from the root. function: the qualified name that the change is in, "" at module level. first, last: lines
    of the statement (of an `if` its condition), from 1. kind: the sort of change. begin, end: offsets in the file's
    bytes. old, new: the text there and its replacement. compiled: in a function that Python does not run.
    """

    path: str
    function: str
    first: int
    last: int
    line: int
    kind: str
    begin: int
    end: int
    old: str
    new: str
    compiled: bool
    id: str = ""

    @property
    def top_level(self) -> bool:
        return not self.function

    def applied(self, text: str) -> str:
        """The file's text with the change; as many lines as before."""
        data = text.encode()
        assert data[self.begin : self.end] == self.old.encode(), "the file is not the one of the mutant"
        return (data[: self.begin] + self.new.encode() + data[self.end :]).decode()

    def __str__(self) -> str:
        old, new = " ".join(self.old.split()), " ".join(self.new.split())
        return f"{self.id} {self.path}:{self.line} {self.function or 'module'}: {old} -> {new}"


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join((SEED, *parts)).encode()).hexdigest()


class _Finder:
    """Finds the mutants of one file."""

    def __init__(self, path: str, text: str):
        self.path, self.data = path, text.encode()
        self.starts = [0]
        for line in self.data.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.lines = text.split("\n")
        self.names: list[str] = []
        self.functions = 0
        self.compiled = 0
        self.found: list[Mutant] = []
        self.span = (0, 0)
        self._body(ast.parse(text).body)

    def _add(self, node: ast.expr | ast.stmt, kind: str, new: ast.expr | str) -> None:
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin = self.starts[node.lineno - 1] + node.col_offset
        end = self.starts[node.end_lineno - 1] + node.end_col_offset
        breaks = "\n" * (node.end_lineno - node.lineno)
        text = new if isinstance(new, str) else f"({ast.unparse(new)}{breaks})"
        if isinstance(new, str):
            text += f" #{breaks}" if breaks else ""
        old = self.data[begin:end].decode()
        name = ".".join(self.names) if self.functions else ""
        self.found.append(
            Mutant(self.path, name, *self.span, node.lineno, kind, begin, end, old, text, self.compiled > 0)
        )

    # --- statements -----------------------------------------------------------------------------------------------

    def _body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        assert node.end_lineno is not None
        self.span = (node.lineno, node.end_lineno)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._function(node)
        elif isinstance(node, ast.ClassDef):
            self.names.append(node.name)
            self._body(node.body)
            self.names.pop()
        elif isinstance(node, (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Pass)):
            pass
        elif isinstance(node, ast.Raise):
            self._drop(node)
        elif isinstance(node, (ast.If, ast.While)):
            self._branch(node)
        elif isinstance(node, (ast.For, ast.With, ast.Try, ast.Match)):
            self._block(node)
        else:
            self._simple(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in NOT_COMPILED:
            return
        for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
            self.span = (default.lineno, default.end_lineno or default.lineno)
            self._expression(default)
        compiled = any(_decorator(d) in COMPILED for d in node.decorator_list)
        self.names.append(node.name)
        self.functions += 1
        self.compiled += compiled
        self._body(node.body)
        self.compiled -= compiled
        self.functions -= 1
        self.names.pop()

    def _branch(self, node: ast.If | ast.While) -> None:
        test = node.test
        if "TYPE_CHECKING" in ast.unparse(test):
            return
        self.span = (node.lineno, test.end_lineno or test.lineno)
        if isinstance(node, ast.If):
            if not isinstance(test, (ast.Compare, ast.UnaryOp)):  # whose negation is another change already
                self._add(test, "branch", ast.UnaryOp(ast.Not(), test))
            if not node.orelse and isinstance(node.body[-1], LEAVES):
                self._add(test, "guard", ast.Constant(False))
        self._expression(test)
        self._body(node.body)
        self._body(node.orelse)

    def _block(self, node: ast.For | ast.With | ast.Try | ast.Match) -> None:
        if isinstance(node, ast.For):
            self.span = (node.lineno, node.iter.end_lineno or node.lineno)
            self._expression(node.iter)
            self._body(node.body)
            self._body(node.orelse)
        elif isinstance(node, ast.With):
            self.span = (node.lineno, node.items[-1].context_expr.end_lineno or node.lineno)
            for item in node.items:
                self._expression(item.context_expr)
            self._body(node.body)
        elif isinstance(node, ast.Try):
            self._body(node.body)
            for handler in node.handlers:
                self._body(handler.body)
            self._body(node.orelse)
            self._body(node.finalbody)
        else:
            self.span = (node.lineno, node.subject.end_lineno or node.lineno)
            self._expression(node.subject)
            for case in node.cases:
                if case.guard is not None:
                    self.span = (case.guard.lineno, case.guard.end_lineno or case.guard.lineno)
                    self._expression(case.guard)
                self._body(case.body)

    def _simple(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Constant) or _tells(node.value):  # a docstring, a warning
                return
            if not isinstance(node.value, (ast.Yield, ast.YieldFrom)):
                self._drop(node)
            self._expression(node.value)
        elif isinstance(node, ast.AugAssign):
            self._drop(node)
            if type(node.op) in OPERATORS:
                changed = copy.copy(node)
                changed.op = OPERATORS[type(node.op)]()
                if node.lineno == node.end_lineno:
                    self._add(node, "operator", ast.unparse(changed))
            self._expression(node.value)
        elif isinstance(node, ast.Assign):
            if any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
                return
            if all(isinstance(t, (ast.Attribute, ast.Subscript)) for t in node.targets):
                self._drop(node)
            self._expression(node.value)
        elif isinstance(node, (ast.Continue, ast.Break)):
            self._drop(node)
        elif isinstance(node, ast.Assert):
            self._expression(node.test)
        elif isinstance(node, (ast.AnnAssign, ast.Return)):
            if node.value is not None:
                self._expression(node.value)

    def _drop(self, node: ast.stmt) -> None:
        self._add(node, "dropped", "pass")

    # --- expressions ----------------------------------------------------------------------------------------------

    def _expression(self, node: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr) or _tells(node):
            return
        if isinstance(node, ast.Compare):
            self._comparison(node)
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not _text(node) and not _type(node):
            self._add(node, "operator", ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right))
        elif isinstance(node, ast.BoolOp):
            other = ast.And if isinstance(node.op, ast.Or) else ast.Or
            self._add(node, "and-or", ast.BoolOp(other(), node.values))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            self._add(node, "unary", node.operand)
        elif isinstance(node, ast.IfExp):
            self._add(node, "branch", ast.IfExp(node.test, node.orelse, node.body))
        elif isinstance(node, ast.Constant):
            self._constant(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            new = ast.Call(ast.Name(CALLS[node.func.id], ast.Load()), node.args, node.keywords)
            self._add(node, "call", new)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.keyword) and child.arg == "strict":  # of zip: a check of what always holds
                continue
            if isinstance(child, (ast.expr, ast.keyword, ast.comprehension)):
                self._expression(child)

    def _comparison(self, node: ast.Compare) -> None:
        for index, operator in enumerate(node.ops):
            for new in COMPARISONS[type(operator)]:
                operators = [*node.ops]
                operators[index] = new()
                self._add(node, "comparison", ast.Compare(node.left, operators, node.comparators))

    def _constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, "constant", ast.Constant(not node.value))
        elif isinstance(node.value, (int, float)):
            for change in (1, -1):
                new = node.value + change
                if new != node.value:  # a large float
                    self._add(node, "constant", ast.parse(repr(new), mode="eval").body)


def _decorator(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _tells(node: ast.AST) -> bool:
    """Whether a call makes an error or a warning, whose arguments are text for people."""
    if not isinstance(node, ast.Call):
        return False
    name = _decorator(node.func)
    return name.endswith(("Error", "Warning", "warn")) or name.startswith("warn")


def _text(node: ast.AST) -> bool:
    """Whether an operand of an addition is text, so that another operator only raises."""
    return isinstance(node, ast.BinOp) and any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        or _text(side)
        for side in (node.left, node.right)
    )


def _type(node: ast.AST) -> bool:
    """Whether an expression is a union of types, as in `Index = int | Expr`."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitOr) and (_type(node.left) or _type(node.right))
    return isinstance(node, ast.Name) and node.id in ("bool", "int", "float", "complex", "str", "bytes", "tuple")


def mutants(path: str, text: str) -> list[Mutant]:
    """All mutants of a file. Two of the same text, function and change are told apart by their order."""
    found, seen = [], dict[tuple, int]()
    lines = text.split("\n")
    for mutant in _Finder(path, text).found:
        key = (mutant.function, lines[mutant.line - 1].strip(), mutant.kind, mutant.old, mutant.new)
        number = seen[key] = seen.get(key, -1) + 1
        identity = _hash(path, *key, str(number))[:10]
        found.append(Mutant(**{**vars(mutant), "id": identity}))
    return found


def _drawn(path: str, text: str) -> Iterator[tuple[str, Mutant]]:
    """For each line that has mutants, its hash and the one mutant that is drawn of it."""
    lines = text.split("\n")
    by_line: dict[int, Mutant] = {}
    for mutant in mutants(path, text):
        other = by_line.get(mutant.line)
        if other is None or mutant.id < other.id:
            by_line[mutant.line] = mutant
    seen = dict[tuple[str, str], int]()
    for number, mutant in sorted(by_line.items()):
        key = (mutant.function, lines[number - 1].strip())
        seen[key] = seen.get(key, -1) + 1
        yield _hash("line", path, *key, str(seen[key])), mutant


def sample(root: Path, folders: tuple[str, ...], count: int) -> list[Mutant]:
    """`count` mutants of the files under folders, in the order of their hashes."""
    drawn: list[tuple[str, Mutant]] = []
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            drawn += _drawn(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
    return [mutant for _, mutant in sorted(drawn, key=lambda pair: pair[0])[:count]]
