"""Forward mode: each statement that makes a float is preceded by one that makes its tangent."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Call,
    Cast,
    Choice,
    Expr,
    For,
    If,
    Load,
    Scratch,
    Stmt,
    Store,
    Unary,
    Var,
    While,
)  # fmt: skip
from hloom.ir.records import replace
from hloom.kernels.derivatives.activity import FLOATS, active, unsupported
from hloom.kernels.derivatives.partials import FLAT, has_partials, number, partial
from hloom.kernels.programs import Array, Body, Draft, fault_array

__all__ = ["tangents_of"]


def tangents_of(body: Body, operands: Sequence[int], fault: Var) -> Body:
    """The loops that compute the tangents of the results.

    operands: those that have tangents, which follow the operands. The results are the tangents of the float results.
    """
    return _Forward(body, operands, fault).made()


class _Forward:
    def __init__(self, body: Body, operands: Sequence[int], fault: Var):
        self.body, self.operands, self.fault = body, list(operands), fault
        self.active = active(body, operands)
        self.shadows: dict[Var, Var] = {}

    def made(self) -> Body:
        drafts = [self._draft(draft) for draft in self.body.drafts]
        arrays: dict[Var, Array] = {}
        count = sum(array.role == "in" for array in self.body.arrays.values())
        results = [p for p, a in self.body.arrays.items() if a.role == "out" and p is not self.fault and _is_float(a)]
        results.sort(key=lambda p: self.body.arrays[p].number)
        for pointer, array in self.body.arrays.items():
            kept = array if array.role == "in" else replace(array, role="temporary", number=0)
            arrays[pointer] = fault_array("temporary") if pointer is self.fault else kept
            if array.role == "in" and array.number in self.operands and pointer in self.active:
                number_ = count + self.operands.index(array.number)
                arrays[self.shadow(pointer)] = replace(array, number=number_)
            elif pointer in results:
                arrays[self.shadow(pointer)] = replace(array, number=results.index(pointer))
            elif pointer in self.active:
                arrays[self.shadow(pointer)] = replace(array, role="temporary", number=0)
        for pointer in results:
            if pointer not in self.active:  # its tangent is zero
                drafts.append(self._zeros(self.shadow(pointer), self.body.arrays[pointer].count))
        return replace(self.body, name=f"{self.body.name}_jvp", drafts=drafts, arrays=arrays)

    def _zeros(self, pointer: Var, count: int) -> Draft:
        item = Var("s64", self.body.names.fresh("i"))
        kind = pointer.type[1:]
        zero = number(0.0, kind if kind in FLOATS else "f32")
        return Draft([Store(pointer, item, zero, kind)], item, count)

    def shadow(self, var: Var) -> Var:
        """The variable, or the pointer, of tangents."""
        found = self.shadows.get(var)
        if found is None:
            name = self.body.names.fresh(f"{var.name}_dot")
            found = self.shadows[var] = Var(var.type, name, var.varies)
        return found

    def _draft(self, draft: Draft) -> Draft:
        scratches = [*draft.scratches]
        for scratch in draft.scratches:
            if scratch.var in self.active:
                scratches.append(Scratch(self.shadow(scratch.var), scratch.size))
        return replace(
            draft, body=self._block(draft.body), prologue=self._block(draft.prologue), scratches=scratches
        )  # fmt: skip

    def _block(self, statements: Sequence[Stmt]) -> list[Stmt]:
        return [made for statement in statements for made in self._statement(statement)]

    def _statement(self, s: Stmt) -> list[Stmt]:
        match s:
            case Assign(var=var, value=value) if var in self.active:
                dot = self.tangent(value)
                return [Assign(self.shadow(var), number(0.0, var.type) if dot is None else dot), s]
            case Store(pointer=Var() as pointer, index=index, value=value) if pointer in self.active:
                dot = self.tangent(value)
                dot = number(0.0, value.type) if dot is None else dot
                return [Store(self.shadow(pointer), index, dot, s.stored), s]
            case For():
                return [replace(s, body=self._block(s.body))]
            case While():
                return [replace(s, body=self._block(s.body))]
            case If():
                return [replace(s, then=self._block(s.then), other=self._block(s.other))]
        return [s]

    def tangent(self, e: Expr) -> Expr | None:
        """The tangent of a float; None where it is zero."""
        match e:
            case Var():
                return self.shadow(e) if e in self.active else None
            case Load(type=kind, pointer=Var() as pointer, index=index):
                return Load(kind, self.shadow(pointer), index) if pointer in self.active else None
            case Unary(type=kind, op="-", operand=operand):
                dot = self.tangent(operand)
                return None if dot is None else Unary(kind, "-", dot)
            case Cast(type=kind, operand=operand) if kind in FLOATS and operand.type in FLOATS:
                dot = self.tangent(operand)
                return None if dot is None else Cast(kind, dot)
            case Binary() if e.type in FLOATS:
                return self._binary(e)
            case Choice(type=kind, test=test, yes=yes, no=no) if kind in FLOATS:
                first, second = self.tangent(yes), self.tangent(no)
                if first is None and second is None:
                    return None
                zero = number(0.0, kind)
                return Choice(kind, test, first or zero, second or zero)
            case Call() if e.type in FLOATS:
                return self._call(e)
        return None

    def _binary(self, e: Binary) -> Expr | None:
        kind, left, right = e.type, self.tangent(e.left), self.tangent(e.right)
        if e.op in ("+", "-"):
            return _sum(kind, left, right, e.op)
        if e.op == "*":
            first = None if left is None else Binary(kind, "*", left, e.right)
            second = None if right is None else Binary(kind, "*", e.left, right)
            return _sum(kind, first, second)
        assert e.op == "/"
        top = _sum(kind, left, None if right is None else Binary(kind, "*", e, right), "-")
        return None if top is None else Binary(kind, "/", top, e.right)

    def _call(self, e: Call) -> Expr | None:
        dots = [self.tangent(argument) for argument in e.arguments]
        base = e.function.rpartition("_")[0]
        if all(dot is None for dot in dots) or base in FLAT:
            return None
        kind = e.type
        if base in ("sum", "accmax", "accmin", "prod"):
            return self._accumulated(base, e, dots)
        if e.function.startswith(("convert_", "round_")) and len(dots) == 1 and dots[0] is not None:
            return dots[0] if dots[0].type == kind else Cast(kind, dots[0])
        if not has_partials(e.function):
            raise unsupported(self.body.name, f"the function '{e.function}' has none")
        total: Expr | None = None
        for k, dot in enumerate(dots):
            if dot is not None:
                total = _sum(kind, total, Binary(kind, "*", partial(e.function, e.arguments, k), dot))
        return total

    def _accumulated(self, base: str, e: Call, dots: Sequence[Expr | None]) -> Expr | None:
        kind, (old, value) = e.type, e.arguments
        if base == "sum":
            return _sum(kind, dots[0], dots[1])
        if base == "prod":
            return self._binary(Binary(kind, "*", old, value))
        zero = number(0.0, kind)
        test = Binary("pred", ">=" if base == "accmax" else "<=", old, value)
        return Choice(kind, test, dots[0] or zero, dots[1] or zero)


def _sum(kind: str, left: Expr | None, right: Expr | None, op: str = "+") -> Expr | None:
    if right is None:
        return left
    if left is None:
        return right if op == "+" else Unary(kind, "-", right)
    return Binary(kind, op, left, right)


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"
