"""The text of the programs that jax hands over."""

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
    if not _ARTIFACT.match(code):
        return ir.Module.parse(code)
    module = stablehlo.deserialize_portable_artifact(context, code)
    return ir.Module.parse(module) if isinstance(module, bytes | str) else module


_ARTIFACT = re.compile(rb"ML\xefR.StableHLO_v", re.DOTALL)  # bytecode, its version, and who wrote it


def text_of(module: Any) -> str:
    return _without_tokens(str(module.operation.get_asm(enable_debug_info=True, large_elements_limit=None)))


def _without_tokens(text: str) -> str:
    """The text with arrays of no elements in place of tokens: effects happen in the order of the program anyway."""
    if "!stablehlo.token" not in text:
        return text
    text = _TOKEN_OP.sub("stablehlo.constant dense<> : tensor<0xi1>", text)
    return text.replace("!stablehlo.token", "tensor<0xi1>")


_TOKEN_OP = re.compile(r"stablehlo\.(?:create_token|after_all\b[^:\n]*) : !stablehlo\.token")
