"""Kernels, and parts of kernels, that are written as kernel functions (`kernel_ir.generic`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hloom.compiler.kernel_ir.generic.language import KernelFunction
from hloom.compiler.kernel_ir.nodes import Expr, Kernel, Stmt, Var
from hloom.compiler.kernels.codegen.source import KernelSource

if TYPE_CHECKING:
    from hloom.compiler.kernel_ir.generic.specialize import Known

    Given = Mapping[str, Expr | Known]


def source_of(
    function: KernelFunction, name: str, params: Sequence[Var], given: Given, types: Mapping[str, str]
) -> KernelSource:
    """The kernel of a kernel function. params: of the kernel. given: what parameters of the function are, by name, and
    more. types: dtypes by the names 'T', 'R', 'Int'."""
    return KernelSource.of(_specialize().specialized(function, name, params, _taken(function, given), types))


def statements_of(
    function: KernelFunction, given: Given, types: Mapping[str, str] | None = None, into: Sequence[Var] = ()
) -> list[Stmt]:
    """The statements of a kernel function in a kernel that has others too, which `source_of_parts` makes. into: the
    variables that become what it returns."""
    made: list[Stmt] = _specialize().statements_of(function, _taken(function, given), types or {}, into)
    return made


def source_of_parts(kernel: Kernel, parts: tuple[tuple[str, KernelSource], ...] = ()) -> KernelSource:
    """The kernel of statements of kernel functions."""
    return KernelSource.of(_specialize().completed(kernel), parts)


def _specialize() -> Any:
    from hloom.compiler.kernel_ir.generic import specialize  # most programs have no kernel functions

    return specialize


def _taken(function: KernelFunction, given: Given) -> dict[str, Expr | Known]:
    code = function.__code__
    return {name: given[name] for name in code.co_varnames[: code.co_argcount]}
