"""StableHLO text (MLIR): parsed into a syntax tree, printed from it, converted to and from hloom's IR.

`parse_program(text, file)` and `print_program(tree)` handle the text alone. `to_module(tree, ...)` converts to a module
of the IR, `stablehlo_text(module)` prints one. The converters and emitters of ops are registered in tables, so a new op
is one function in each.
"""

from hloom.ir.stablehlo import collectives, sharding
from hloom.ir.stablehlo.assembly.parser import parse_program
from hloom.ir.stablehlo.assembly.printer import print_program
from hloom.ir.stablehlo.reader import chlo, dynamic_calls, quantized, regions, structure
from hloom.ir.stablehlo.reader.module import convert_program, to_module
from hloom.ir.stablehlo.writer import ops
from hloom.ir.stablehlo.writer.module import to_program


def stablehlo_text(module) -> str:
    """A module of the IR as pretty StableHLO text, with CHLO for ops that StableHLO lacks.

    Raises UnsupportedError for an op that both lack.
    """
    return print_program(to_program(module))


__all__ = ["convert_program", "parse_program", "print_program", "stablehlo_text", "to_module", "to_program"]
