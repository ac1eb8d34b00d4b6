"""expand-for-hlo, expand-for-stablehlo: a module for other compilers."""

from __future__ import annotations

from hloom.compiler.passes.registry import module_pass
from hloom.ir.module import Module
from hloom.ir.portable import portable


@module_pass("expand-for-hlo")
def expand_for_hlo(module: Module) -> Module:
    """Replaces ops that HLO lacks by calls of computations of its ops."""
    return portable(module)


@module_pass("expand-for-stablehlo")
def expand_for_stablehlo(module: Module) -> Module:
    """Replaces ops that StableHLO and CHLO lack by calls of computations of their ops."""
    return portable(module, "stablehlo")
