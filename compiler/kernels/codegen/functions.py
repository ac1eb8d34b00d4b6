"""Kernels, and parts of kernels, that are written as kernel functions (`kernel_ir.generic`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hloom.compiler.kernel_ir.generic.language import KernelFunction
from hloom.compiler.kernel_ir.nodes import Expr, Kernel, Stmt, Var
from hloom.compiler.kernels.codegen.source import KernelSource, LaterSource

if TYPE_CHECKING:
    from hloom.compiler.kernel_ir.generic.specialize import Known

    Given = Mapping[str, Expr | Known]


def source_of(
    function: KernelFunction, name: str, params: Sequence[Var], given: Given, types: Mapping[str, str]
) -> KernelSource:
    """The kernel of a kernel function. params: of the kernel. given: what parameters of the function are, by name, and
    more. types: dtypes by the names 'T', 'R', 'Int'."""
    return KernelSource.of(_specialize().specialized(function, name, params, _taken(function, given), types))


def later_source_of(
    function: KernelFunction, name: str, params: Mapping[str, str], known: Mapping[str, Known], types: Mapping[str, str]
) -> KernelSource:
    """`source_of`, made when it is compiled or shown, for kernels that are mostly found compiled.

    params: types of the parameters that both have, as in `KernelSource.params`. known: the function's other ones,
    numbers and names. What it is made from is the kernel's identity, so the function is in a file of
    `interface.CODE_SOURCES`.
    """
    code = function.__code__
    taken = {name: known[name] for name in code.co_varnames[: code.co_argcount] if name not in params}
    identity = f"{function.__module__}.{function.__qualname__} {dict(types)} {taken}"

    def make() -> Kernel:
        own = {key: Var(f"*{kind[:-1]}" if kind[-1] == "*" else kind, key) for key, kind in params.items()}
        made: Kernel = _specialize().specialized(function, name, [*own.values()], own | taken, types)
        return made

    return LaterSource(name, tuple(params.values()), identity, make)


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
