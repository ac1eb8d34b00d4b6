"""StableHLO text (MLIR): parsed into a syntax tree, printed from it, converted to and from hloom's IR."""

from hloom.ir.stablehlo import (  # noqa: F401 (each registers its converters)
    convert_chlo,
    convert_ops,
    convert_quantized,
    convert_regions,
)
from hloom.ir.stablehlo.convert import convert_program, to_module
from hloom.ir.stablehlo.parser import parse_program
from hloom.ir.stablehlo.printer import print_program

__all__ = ["convert_program", "parse_program", "print_program", "to_module"]
