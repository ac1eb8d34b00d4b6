"""Which names of a kernel's text are one value each on the way from their assignment to their uses."""

from __future__ import annotations

import ast

__all__ = ["varying"]


def varying(definition: ast.FunctionDef) -> frozenset[str]:
    """The names that are assigned again, or read outside of the block that assigns them."""
    return frozenset(_Walk(definition).found)


class _Walk:
    def __init__(self, definition: ast.FunctionDef):
        self.found: set[str] = set()
        self.scopes: list[set[str]] = [{argument.arg for argument in definition.args.args}]
        names = (child for child in ast.walk(definition) if isinstance(child, ast.Name))
        self.assigned = {name.id for name in names if isinstance(name.ctx, ast.Store)}
        self.visit(definition.body)

    def reads(self, node: ast.AST) -> None:
        for child in ast.walk(node):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
                if child.id in self.assigned and not any(child.id in scope for scope in self.scopes):
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
        for node in statements:
            match node:
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
        self.scopes.pop()
