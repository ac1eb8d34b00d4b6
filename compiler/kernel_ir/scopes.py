"""Which variables are one value each on the way from their assignment to their uses: of a text by name, or of nodes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from hloom.compiler.kernel_ir.nodes import Assign, Expr, For, Kernel, Scratch, Stmt, Store, Together, Var

__all__ = ["names_in", "settle", "varying", "varying_variables"]


def varying(
    definition: ast.FunctionDef, decided: Callable[[ast.expr], bool | None] = lambda test: None
) -> frozenset[str]:
    """The names that are assigned again, or read outside of the block that assigns them.

    decided: the value of a test that is known, whose branch is part of the block around it; None of others."""
    return frozenset(_Walk(definition, decided).found)


def names_in(node: ast.AST) -> list[ast.Name]:
    """The names in a tree: those of `ast.walk`, in less time."""
    found: list[ast.Name] = []
    nodes = [node]
    for one in nodes:
        for field in one._fields:
            part = getattr(one, field)
            if isinstance(part, ast.Name):
                found.append(part)
            elif isinstance(part, list):
                for inner in part:
                    if isinstance(inner, ast.Name):
                        found.append(inner)
                    elif isinstance(inner, ast.AST) and inner._fields:
                        nodes.append(inner)
            elif isinstance(part, ast.AST) and part._fields:  # operators have none
                nodes.append(part)
    return [node, *found] if isinstance(node, ast.Name) else found


class _Walk:
    def __init__(self, definition: ast.FunctionDef, decided: Callable[[ast.expr], bool | None]):
        self.found: set[str] = set()
        self.decided = decided
        self.scopes: list[set[str]] = [{argument.arg for argument in definition.args.args}]
        self.assigned = {name.id for name in names_in(definition) if isinstance(name.ctx, ast.Store)}
        self.visit(definition.body)

    def reads(self, node: ast.AST) -> None:
        for child in names_in(node):
            if child.id in self.assigned and isinstance(child.ctx, ast.Load):
                if not any(child.id in scope for scope in self.scopes):
                    self.found.add(child.id)

    def writes(self, target: ast.expr) -> None:
        if isinstance(target, ast.Name):
            if any(target.id in scope for scope in self.scopes):
                self.found.add(target.id)
            self.scopes[-1].add(target.id)
        elif isinstance(target, ast.Tuple):
            for part in target.elts:
                self.writes(part)
        else:
            self.reads(target)

    def visit(self, statements: list[ast.stmt], bound: ast.expr | None = None) -> None:
        self.scopes.append(set())
        if bound is not None:
            self.writes(bound)
        self.walk(statements)
        self.scopes.pop()

    def walk(self, statements: list[ast.stmt]) -> None:
        for node in statements:
            match node:
                case ast.If() if (known := self.decided(node.test)) is not None:
                    self.walk(node.body if known else node.orelse)
                case ast.Assign(targets=targets, value=value):
                    self.reads(value)
                    for target in targets:
                        self.writes(target)
                case ast.AugAssign(target=target, value=value):
                    self.reads(value)
                    if isinstance(target, ast.Name):
                        self.found.add(target.id)
                    self.writes(target)
                case ast.For(target=target, iter=iterator, body=body):
                    self.reads(iterator)
                    self.visit(body, target)
                case ast.While(test=test, body=body, orelse=orelse) | ast.If(test=test, body=body, orelse=orelse):
                    self.reads(test)
                    self.visit(body)
                    self.visit(orelse)
                case _:
                    self.reads(node)


def settle(kernel: Kernel) -> None:
    """Says of each variable whether it varies, where statements were made without a look at the others."""
    for var in varying_variables(kernel.body, kernel.params):
        var.varies = True


def varying_variables(statements: Iterable[Stmt], visible: Iterable[Var]) -> set[Var]:
    """The variables that are more than one value each on the way from an assignment to their uses. visible: those that
    have a value before. Of others that are only read, it says that they vary."""
    return _Settle(statements, visible).found


class _Settle:
    """As `_Walk`, of nodes: a variable that is assigned while it has a value, or read outside of the block that assigns
    it, varies."""

    def __init__(self, statements: Iterable[Stmt], visible: Iterable[Var]):
        self.found: set[Var] = set()
        self.visible: set[Var] = set(visible)
        self.block(statements, ())

    def block(self, statements: Iterable[Stmt], bound: tuple[Var, ...]) -> None:
        before, self.visible = self.visible, set(self.visible)
        for var in bound:
            self.writes(var)
        for statement in statements:
            for expression in statement.expressions():
                self.reads(expression)
            if isinstance(statement, Together):
                for part in statement.parts:
                    if isinstance(part, Store):
                        self.reads(part.pointer)
                        self.reads(part.index)
                for part in statement.parts:
                    if isinstance(part, Assign):
                        self.writes(part.var)
            elif isinstance(statement, (Assign, Scratch)):
                self.writes(statement.var)
            own = (statement.var,) if isinstance(statement, For) else ()
            for inner in statement.blocks():
                self.block(inner, own)
        self.visible = before

    def writes(self, var: Var) -> None:
        if var in self.visible:
            self.found.add(var)
        self.visible.add(var)

    def reads(self, expression: Expr) -> None:
        if isinstance(expression, Var):
            if expression not in self.visible:
                self.found.add(expression)
        else:
            for name in expression.PARTS:
                part = getattr(expression, name)
                for one in part if isinstance(part, tuple) else (part,):
                    self.reads(one)
