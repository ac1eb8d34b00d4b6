"""StableHLO text (MLIR): parsed into a syntax tree, printed from it, converted to and from hloom's IR."""

from hloom.ir.stablehlo.parser import parse_program
from hloom.ir.stablehlo.printer import print_program

__all__ = ["parse_program", "print_program"]
