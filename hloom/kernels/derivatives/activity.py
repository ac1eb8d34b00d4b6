"""Which variables and arrays of a kernel depend on the operands that a derivative is taken by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hloom.compiler.kernel_ir.nodes import Assign, Expr, Load, Stmt, Store, Var
from hloom.errors import DifferentiationError
from hloom.kernels.programs import Body, Draft

__all__ = ["FLOATS", "active", "floats", "statements_of", "unsupported"]

FLOATS = ("f32", "f64")
_MEMORY = (*FLOATS, "f16", "bf16")


def floats(var: Var) -> bool:
    """Whether a variable holds floats, or points to some."""
    return var.type in FLOATS or var.type[1:] in _MEMORY


_REPAIR = "give it a derivative with hl.custom_vjp or hl.custom_jvp"


def unsupported(name: str, found: str, repair: str = _REPAIR) -> DifferentiationError:
    return DifferentiationError(f"the derivative of the kernel '{name}'", found, repair)


def statements_of(draft: Draft) -> list[Stmt]:
    return [*draft.prologue, *draft.body]


def _depends(expression: Expr, found: set[Var]) -> bool:
    """Whether a float depends on active ones."""
    match expression:
        case Var():
            return expression in found
        case Load(pointer=Var() as pointer):
            return pointer in found
    if expression.type not in FLOATS and expression.type not in ("c64", "c128"):
        return False
    return any(_depends(part, found) for part in expression.children())


def active(body: Body, operands: Iterable[int]) -> set[Var]:
    """The variables and pointers that depend on these operands. Raises DifferentiationError for complex ones."""
    wanted = set(operands)
    found = {p for p, array in body.arrays.items() if array.role == "in" and array.number in wanted and floats(p)}
    drafts: Sequence[list[Stmt]] = [statements_of(draft) for draft in body.drafts]
    while True:
        before = len(found)
        for statements in drafts:
            for statement in statements:
                for one in statement.walk():
                    match one:
                        case Assign(var=var, value=value) if _depends(value, found):
                            found.add(var)
                        case Store(pointer=Var() as var, value=value) if _depends(value, found) and floats(var):
                            found.add(var)
        if len(found) == before:
            break
    for var in found:
        if not floats(var):
            raise unsupported(body.name, f"'{var.name}' holds complex numbers")
    return found
