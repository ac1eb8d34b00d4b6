"""The op table's expressions for one element, as nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from hloom.compiler.kernel_ir.functions import Signature
from hloom.compiler.kernel_ir.nodes import Assign, Const, Expr, Kernel, Var
from hloom.compiler.kernel_ir.reader import read
from hloom.compiler.kernel_ir.rewrite import substituted
from hloom.ir.op_table import OPS
from hloom.ir.types import HLO_NAME, Shape, compute_dtype

__all__ = ["expression"]


def expression(
    opcode: str, operands: Sequence[tuple[object, Expr]], dtype, signature: Signature,
    named: Callable[[Expr], Expr], **attributes,
) -> Expr:  # fmt: skip
    """An op of one element. operands: (dtype, value) of each. dtype: of the result.

    named: of a value that is used several times: a variable that holds it.
    """
    dtypes = tuple([kind for kind, _ in operands])
    params, made = _template(opcode, dtypes, dtype, tuple(sorted(attributes.items())), signature)
    uses = [sum(one is param for one in made.walk()) for param in params]
    given = [
        v if count < 2 or isinstance(v, (Var, Const)) else named(v)
        for (_, v), count in zip(operands, uses, strict=True)
    ]
    return substituted(made, dict(zip(params, given, strict=True)))


@lru_cache(1024)
def _template(opcode: str, dtypes: tuple, dtype, attributes: tuple, signature: Signature) -> tuple[list[Var], Expr]:
    """(variables, an expression of them) of an op."""
    names = [f"a{k}" for k in range(len(dtypes))]
    shapes = [Shape(kind, ()) for kind in dtypes]
    text = OPS[opcode].expression(shapes, Shape(dtype, ()), dict(attributes), names)
    params = [HLO_NAME[compute_dtype(kind)] for kind in dtypes]
    kernel: Kernel = read(f"def op({', '.join(names)}):\n    r = {text}\n", params, signature)
    (only,) = kernel.body
    assert isinstance(only, Assign)
    return list(kernel.params), only.value
