"""StableHLO portable artifacts (VHLO bytecode): programs for other compilers, in a form that keeps its meaning over
versions.

Source: openxla.org/stablehlo/compatibility.
"""

from __future__ import annotations

import importlib
from typing import Any

from hloom.dispatch.from_text import Program, from_stablehlo
from hloom.dispatch.jit import jit
from hloom.errors import ExportError, ParseError

__all__ = ["artifact_of_text", "from_artifact", "stablehlo_artifact", "text_of_artifact"]

MAGIC = b"ML\xefR"  # of MLIR's bytecode


def _jaxlib(name: str) -> Any:
    """A module of jaxlib, which is optional and takes 50 ms to import."""
    try:
        return importlib.import_module(f"jaxlib.{name}")
    except ImportError:
        raise ExportError(
            "a StableHLO portable artifact",
            "jaxlib, which writes and reads them, is not installed",
            "pip install 'hloom[jax]', or use text: hl.jit(f).lower(x).as_text('stablehlo')",
        ) from None


def stablehlo_artifact(function: Any, *args: Any, version: str | None = None, **kwargs: Any) -> bytes:
    """The function for arguments like these, as a portable artifact.

    version: of StableHLO, such as "1.0.0"; None: the oldest that readers have to support. Raises ExportError without
    jaxlib and for a version that it cannot write.
    """
    lowered = (function if hasattr(function, "lower") else jit(function)).lower(*args, **kwargs)
    return artifact_of_text(lowered.as_text("stablehlo"), version)


def artifact_of_text(text: str, version: str | None = None) -> bytes:
    """StableHLO text as a portable artifact. Raises as `stablehlo_artifact`."""
    stablehlo = _jaxlib("mlir.dialects.stablehlo")
    try:
        return bytes(stablehlo.serialize_portable_artifact_str(text, version or stablehlo.get_minimum_version()))
    except Exception as error:  # of MLIR, which has no class of its own here
        raise ExportError(
            "a StableHLO portable artifact", str(error).strip()[:600], "use version=None, or the program's text"
        ) from None


def text_of_artifact(data: bytes) -> str:
    """The StableHLO text in a portable artifact. Raises ParseError for bytes that are none."""
    stablehlo = _jaxlib("mlir.dialects.stablehlo")
    if not data.startswith(MAGIC):
        raise ParseError("a StableHLO portable artifact", f"it begins with {data[:8]!r}", "pass the artifact's bytes")
    ir, chlo = _jaxlib("mlir.ir"), _jaxlib("mlir.dialects.chlo")
    registry = ir.DialectRegistry()
    _jaxlib("mlir._mlir_libs._jax_mlir_ext").register_dialects(registry)
    with ir.Context() as context:
        context.append_dialect_registry(registry)
        context.load_all_available_dialects()
        stablehlo.register_dialect(context)
        chlo.register_dialect(context)
        try:
            return str(ir.Module.parse(stablehlo.deserialize_portable_artifact_str(data)))
        except Exception as error:  # of MLIR, which has no class of its own here
            raise ParseError(
                "a StableHLO portable artifact", str(error).strip()[:600], "the file is damaged or of a newer version"
            ) from None


def from_artifact(data: bytes) -> Program:
    """The function in a portable artifact, as `hl.from_stablehlo`. Raises ParseError, ExportError."""
    return from_stablehlo(text_of_artifact(bytes(data)))
