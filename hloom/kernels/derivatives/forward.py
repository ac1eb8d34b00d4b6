"""Forward mode: each statement that makes a float is preceded by one that makes its tangent."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.compiler.kernel_ir.builder import number
from hloom.compiler.kernel_ir.nodes import (
    Assign,
    For,
    If,
    Scratch,
    Stmt,
    Store,
    Var,
    While,
)  # fmt: skip
from hloom.ir.records import replace
from hloom.kernels.derivatives.activity import FLOATS, active
from hloom.kernels.derivatives.tangents import Tangents
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
        self.tangents = Tangents(body.name, self.active, self.shadow)

    def made(self) -> Body:
        drafts = [self._draft(draft) for draft in self.body.drafts]
        arrays: dict[Var, Array] = {}
        count = sum(array.role == "in" for array in self.body.arrays.values())
        results = [p for p, a in self.body.arrays.items() if a.role == "out" and p is not self.fault and _is_float(a)]
        results.sort(key=lambda p: self.body.arrays[p].number)
        for pointer, array in self.body.arrays.items():
            kept = array if array.role in ("in", "table") else replace(array, role="temporary", number=0)
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
                dot = self.tangents.of(value)
                return [Assign(self.shadow(var), number(0.0, var.type) if dot is None else dot), s]
            case Store(pointer=Var() as pointer, index=index, value=value) if pointer in self.active:
                dot = self.tangents.of(value)
                dot = number(0.0, value.type) if dot is None else dot
                return [Store(self.shadow(pointer), index, dot, s.stored), s]
            case For():
                return [replace(s, body=self._block(s.body))]
            case While():
                return [replace(s, body=self._block(s.body))]
            case If():
                return [replace(s, then=self._block(s.then), other=self._block(s.other))]
        return [s]


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"
