"""The values of expressions, of what is known of the variables."""

from __future__ import annotations

from hloom.compiler.kernel_ir.affine.arithmetic import Arithmetic, Truth, Value
from hloom.compiler.kernel_ir.affine.sums import Affine
from hloom.compiler.kernel_ir.nodes import (
    Binary,
    Call,
    Cast,
    Choice,
    Const,
    Expr,
    Load,
    Logic,
    Store,
    Unary,
    Var,
)
from hloom.compiler.kernel_ir.types import is_integer

__all__ = ["Evaluation"]

_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


class Evaluation(Arithmetic):
    """Arithmetic on nodes: an `Affine` for an integer or an address, a `Truth` for a pred, None for a float.

    certain: whether what is evaluated is certainly computed.
    """

    certain = True

    def accessed(self, node: Load | Store, pointer: Value, index: Value) -> None:
        """An element of memory is read or written."""

    def value(self, node: Expr) -> Value:
        match node:
            case Var():
                if node in self.environment:
                    return self.environment[node]
                return self.unknown(node.name, node.type)
            case Const(type="pred"):
                return Truth((), (), bool(node.value))
            case Const():
                return Affine(int(node.value)) if is_integer(node.type) else None
            case Binary():
                return self._binary(node)
            case Load():
                pointer, index = self.value(node.pointer), self.value(node.index)
                self.accessed(node, pointer, index)
                return self.unknown("element", node.type)
            case Cast():
                return self.cast(node.type, self.value(node.operand))
            case Choice():
                return self._choice(node)
            case Logic():
                return self._logic(node)
            case Unary():
                return self.unary(node.type, node.op, self.value(node.operand))
            case Call():
                return self.call(node.type, node.function, [self.value(argument) for argument in node.arguments])
        return None

    def _binary(self, node: Binary) -> Value:
        if (found := self._in_range(node)) is not None:
            return found
        left, right = self.value(node.left), self.value(node.right)
        if node.op in _COMPARISONS:
            return self.compared(node.op, left, right, {node.left.type, node.right.type})
        if node.type == "pred":
            return self.combined(node.op, [self.truth(left), self.truth(right)])
        if is_integer(node.type):
            return self.binary(node.type, node.op, self.number(left), self.number(right))
        return None

    def _in_range(self, node: Binary) -> Truth | None:
        """`u64(i) < u64(n)` and its opposite, of s64 and n >= 0: whether 0 <= i < n. None for other operations."""
        match node:
            case Binary(
                op="<" | ">=" as op,
                left=Cast(type="u64", operand=Expr(type="s64") as index),
                right=Cast(type="u64", operand=Expr(type="s64") as size),
            ):
                value, limit = self.number(self.value(index)), self.number(self.value(size))
                if not self.facts.is_at_least(limit):
                    return None
                inside = self.combined("&", [self.compared(">=", value, Affine(0), {"s64"}),
                                             self.compared("<", value, limit, {"s64"})])  # fmt: skip
                opposite = Truth(inside.no, inside.yes, None if inside.known is None else not inside.known)
                return inside if op == "<" else opposite
        return None

    def _logic(self, node: Logic) -> Value:
        """Later operands are evaluated where the earlier ones do not decide."""
        mark, made, certain = self.facts.mark(), list[Truth](), self.certain
        for operand in node.operands:
            made.append(self.truth(self.value(operand)))
            self.certain = False
            if not self.assume(made[-1].yes if node.op == "and" else made[-1].no):
                break
        self.facts.undo(mark)
        self.certain = certain
        return self.combined("&" if node.op == "and" else "|", made)

    def _choice(self, node: Choice) -> Value:
        test = self.truth(self.value(node.test))
        known = self.decided(test)
        if known is not None:
            return self.value(node.yes if known else node.no)
        made, certain = list[Value](), self.certain
        bounds: list[tuple[int, int]] = []
        for given, part in ((test.yes, node.yes), (test.no, node.no)):
            mark, self.certain = self.facts.mark(), False
            if self.assume(given):
                made.append(self.value(part))
                if isinstance(made[-1], Truth) and is_integer(node.type):
                    made[-1] = self.number(made[-1])
                if isinstance(made[-1], Affine):
                    bounds.append(self.facts.interval(made[-1]))
            self.facts.undo(mark)
        self.certain = certain
        if not made or not all([isinstance(value, Affine) for value in made]):
            return self.unknown("choice", node.type)
        values = [value for value in made if isinstance(value, Affine)]
        return self.facts.one_of("choice", values, min([b[0] for b in bounds]), max([b[1] for b in bounds]))
