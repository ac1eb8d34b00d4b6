"""Modules as text of a dialect."""

from __future__ import annotations

from hloom.errors import AttributeValueError
from hloom.ir.module import Module


def program_text(module: Module, dialect: str = "hlo", *, metadata: bool = False, export: bool = True) -> str:
    """A module as text of a dialect, "hlo" or "stablehlo".

    metadata: HLO with the user's lines. export: in the ops that other compilers have where these can say what it
    computes, and with calls in place of fusions, which XLA's backend for CPUs compiles; StableHLO always is.
    Raises AttributeValueError, UnsupportedError.
    """
    # Imported here, as no first call needs texts.
    from hloom.compiler.pipeline import EXPORT, run_passes

    if dialect not in EXPORT:
        raise AttributeValueError(
            f"the text of a program in the dialect {dialect!r}",
            "hloom writes 'hlo' and 'stablehlo'",
            "pass one of them",
        )
    if dialect == "stablehlo":
        from hloom.ir.stablehlo import stablehlo_text  # saves start-up time: no first call needs texts

        return stablehlo_text(run_passes(module, EXPORT[dialect]))
    from hloom.ir.text import print_module  # saves start-up time: no first call needs texts

    return print_module(run_passes(module, EXPORT[dialect]) if export else module, metadata=metadata)
