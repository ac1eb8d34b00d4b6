"""The text of the programs passed by jax."""

from __future__ import annotations

import re
from typing import Any

from jax._src.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

__all__ = ["decoded", "module_of", "text_of"]


def decoded(code: bytes) -> str:
    """StableHLO text of a portable artifact or of MLIR, with jax's source locations."""
    with jax_mlir.make_ir_context() as context:
        return text_of(module_of(code, context))


def module_of(code: bytes, context: Any) -> Any:
    """The module, in the order of its operations: none of them overlaps with others."""
    module = stablehlo.deserialize_portable_artifact(context, code) if _ARTIFACT.match(code) else code
    module = ir.Module.parse(module) if isinstance(module, bytes | str) else module
    _make_synchronous(module)
    return module


def _make_synchronous(module: Any) -> None:
    """Replaces the start of an asynchronous operation with the operation, and drops control dependencies: a program
    runs in order anyway."""
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        name = operation.name
        called = name == "stablehlo.custom_call" and operation.attributes["call_target_name"].value
        if name in ("stablehlo.async_start", "stablehlo.async_done") or called == "control_dep":
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    for operation in found:
        if operation.name == "stablehlo.async_start":
            (block,) = operation.regions[0].blocks
            for argument, operand in zip(block.arguments, operation.operands, strict=True):
                argument.replace_all_uses_with(operand)
            *body, end = block.operations
            for inner in body:
                inner.operation.move_before(operation)
            _replace(operation, end.operands)
        elif operation.name == "stablehlo.async_done":
            _replace(operation, operation.operands)
    for operation in reversed(found):
        operation.erase()


def _replace(operation: Any, values: Any) -> None:
    for result, value in zip(operation.results, values, strict=True):
        result.replace_all_uses_with(value)


_ARTIFACT = re.compile(rb"ML\xefR.StableHLO_v", re.DOTALL)  # bytecode, its version, and its producer


def text_of(module: Any) -> str:
    return _without_tokens(str(module.operation.get_asm(enable_debug_info=True, large_elements_limit=None)))


def _without_tokens(text: str) -> str:
    """The text with arrays of no elements in place of tokens: effects happen in the order of the program anyway."""
    if "!stablehlo.token" not in text:
        return text
    text = _TOKEN_OP.sub("stablehlo.constant dense<> : tensor<0xi1>", text)
    return text.replace("!stablehlo.token", "tensor<0xi1>")


_TOKEN_OP = re.compile(r"stablehlo\.(?:create_token|after_all\b[^:\n]*) : !stablehlo\.token")
