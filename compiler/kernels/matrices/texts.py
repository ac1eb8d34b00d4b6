"""The texts of kernels for matrices, for an element type: real as they are, complex with operations on pairs.

A text is written once, with T for the type of the elements and R for that of their parts, and with these names for what
real numbers need no operation for: `conj_T`, `real_T`, `imag_T`, `square_T` (of the absolute value), `size_T` (the sum
of the absolute values of the parts, LAPACK's measure of pivots).
"""

from __future__ import annotations

import ast
from collections.abc import Collection

PARTS = {"c64": "f32", "c128": "f64"}
_OF_ELEMENTS = {"conj_T", "T", "sum_T"}


def text_for(text: str, name: str, arrays: Collection[str]) -> str:
    """The text for elements of a type. name: HLO's. arrays: of this type, the others are of R or of integers."""
    tree = ast.parse(text)
    made = _Complex(name, tree, arrays) if name in PARTS else _Real(name)
    return ast.unparse(ast.fix_missing_locations(made.visit(tree)))


def _call(function: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(function, ast.Load()), list(arguments), [])


class _Real(ast.NodeTransformer):
    def __init__(self, name: str):
        self.name = name

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.name, node.ctx) if node.id in ("T", "R") else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Name) or node.func.id[-2:] not in ("_T", "_R"):
            return node
        stem = node.func.id[:-2]
        if stem in ("conj", "real"):
            return node.args[0]
        if stem == "imag":
            return _call(self.name, ast.Constant(0.0))
        if stem == "square":
            return ast.BinOp(node.args[0], ast.Mult(), node.args[0])
        return _call(f"{'abs' if stem == 'size' else stem}_{self.name}", *node.args)


class _Complex(ast.NodeTransformer):
    def __init__(self, name: str, tree: ast.AST, arrays: Collection[str]):
        self.name, self.part = name, PARTS[name]
        self.arrays, self.variables = set(arrays), set[str]()
        before = -1
        while before != len(self.variables) + len(self.arrays):  # a variable may get its type from a later one
            before = len(self.variables) + len(self.arrays)
            for node in ast.walk(tree):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    target = node.targets[0].id
                    if isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "scratch_T":
                        self.arrays.add(target)
                    elif self.is_complex(node.value):
                        self.variables.add(target)

    def is_complex(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self.variables
        if isinstance(node, ast.Subscript):
            return isinstance(node.value, ast.Name) and node.value.id in self.arrays
        if isinstance(node, ast.Call):
            return isinstance(node.func, ast.Name) and node.func.id in _OF_ELEMENTS
        if isinstance(node, ast.BinOp):
            return self.is_complex(node.left) or self.is_complex(node.right)
        if isinstance(node, ast.UnaryOp):
            return self.is_complex(node.operand)
        return isinstance(node, ast.IfExp) and (self.is_complex(node.body) or self.is_complex(node.orelse))

    def pair(self, real: ast.expr, imaginary: ast.expr) -> ast.Call:
        return _call(f"complex_{self.part}", real, imaginary)

    def widened(self, node: ast.expr) -> ast.Call:
        return self.pair(node, _call(self.part, ast.Constant(0.0)))

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.part, node.ctx) if node.id == "R" else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if not isinstance(node.func, ast.Name):
            return self.generic_visit(node)  # type: ignore[return-value]
        function, stem = node.func.id, node.func.id[:-2]
        kinds = [self.is_complex(one) for one in node.args]
        arguments = [self.visit(one) for one in node.args]
        if function == "T":
            number = _call(self.part, *arguments)
            nan = isinstance(arguments[0], ast.Name) and arguments[0].id == "nan"
            return arguments[0] if kinds[0] else self.pair(number, number) if nan else self.widened(number)
        if function[-2:] not in ("_T", "_R"):
            return _call(self.part if function == "R" else function, *arguments)
        if stem == "sum" and any(kinds):
            return ast.BinOp(arguments[0], ast.Add(), arguments[1])
        if stem == "scratch":
            return _call(f"scratch_{self.name}", *arguments)
        if not any(kinds):
            return arguments[0] if stem in ("conj", "real") else _call(f"{stem}_{self.part}", *arguments)
        x = arguments[0]
        real, imaginary = (ast.Attribute(x, part, ast.Load()) for part in ("real", "imag"))
        if stem in ("real", "imag"):
            return real if stem == "real" else imaginary
        if stem == "conj":
            return self.pair(real, ast.UnaryOp(ast.USub(), imaginary))
        if stem == "square":
            squares = [ast.BinOp(one, ast.Mult(), one) for one in (real, imaginary)]
            return ast.BinOp(squares[0], ast.Add(), squares[1])
        if stem == "size":
            sizes = [_call(f"abs_{self.part}", one) for one in (real, imaginary)]
            return ast.BinOp(sizes[0], ast.Add(), sizes[1])
        if stem == "is_finite":
            return ast.BoolOp(ast.And(), [_call(f"is_finite_{self.part}", one) for one in (real, imaginary)])
        return _call(f"{stem}_{self.name}", *arguments)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        kinds = self.is_complex(node.left), self.is_complex(node.right)
        left, right = self.visit(node.left), self.visit(node.right)
        if not any(kinds):
            return ast.BinOp(left, node.op, right)
        if all(kinds):
            name = {ast.Mult: "mul", ast.Div: "div"}.get(type(node.op))
            return _call(f"{name}_{self.name}", left, right) if name else ast.BinOp(left, node.op, right)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            pair = [one if kind else self.widened(one) for one, kind in zip((left, right), kinds, strict=True)]
            return ast.BinOp(pair[0], node.op, pair[1])
        if isinstance(node.op, ast.Mult) and kinds[1]:
            left, right = right, left
        elif kinds[1]:
            return _call(f"div_{self.name}", self.widened(left), right)
        parts = [ast.BinOp(ast.Attribute(left, p, ast.Load()), node.op, right) for p in ("real", "imag")]
        return self.pair(parts[0], parts[1])
