"""The op table's expressions for one element, as nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from hloom.compiler.kernel_ir import reader
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import Const, Expr, Var
from hloom.compiler.kernel_ir.rewrite import substituted
from hloom.ir.module import Instruction
from hloom.ir.op_table import OPS
from hloom.ir.types import HLO_NAME, Shape, compute_dtype

__all__ = ["applied", "expression"]


def expression(
    opcode: str, operands: Sequence[tuple[object, Expr]], dtype, named: Callable[[Expr], Expr], **attributes,
) -> Expr:  # fmt: skip
    """An op of one element. operands: (dtype, value) of each. dtype: of the result.

    named: of a value that is used several times: a variable that holds it.
    """
    dtypes = tuple([kind for kind, _ in operands])
    params, made = _template(opcode, dtypes, dtype, tuple(sorted(attributes.items())))
    uses = [sum(one is param for one in made.walk()) for param in params]
    given = [
        v if count < 2 or isinstance(v, (Var, Const)) else named(v)
        for (_, v), count in zip(operands, uses, strict=True)
    ]
    return substituted(made, dict(zip(params, given, strict=True)))


def applied(instruction: Instruction, arguments: Sequence[Expr]) -> Expr:
    """The value of an element-wise instruction of elements."""
    shapes = [operand.shape for operand in instruction.operands]
    names = [f"x{k}" for k in range(len(arguments))]
    text = OPS[instruction.opcode].expression(shapes, instruction.shape, instruction.attributes, names)
    params, made = _read(text, tuple([argument.type for argument in arguments]))
    return substituted(made, dict(zip(params, arguments, strict=True)))


@lru_cache(4096)
def _read(text: str, kinds: tuple[str, ...]) -> tuple[list[Var], Expr]:
    """(variables of these types, the expression that an op writes of x0, x1, ...)."""
    names = Names(by_name)
    params = [names.declare(f"x{k}", kind) for k, kind in enumerate(kinds)]
    return params, reader.expression(text, names)


@lru_cache(1024)
def _template(opcode: str, dtypes: tuple, dtype, attributes: tuple) -> tuple[list[Var], Expr]:
    """(variables, an expression of them) of an op."""
    shapes = [Shape(kind, ()) for kind in dtypes]
    names = [f"x{k}" for k in range(len(dtypes))]
    text = OPS[opcode].expression(shapes, Shape(dtype, ()), dict(attributes), names)
    return _read(text, tuple([HLO_NAME[compute_dtype(kind)] for kind in dtypes]))
