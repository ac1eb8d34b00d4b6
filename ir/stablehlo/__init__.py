"""StableHLO text (MLIR): parsed into a syntax tree, printed from it, converted to and from hloom's IR.

`parse_program(text, file)` and `print_program(tree)` are about the text alone. `to_module(tree, ...)` makes a module of
the IR, `stablehlo_text(module)` writes one. The converters and emitters of ops register themselves in tables, so that a
new op is one function in each.
"""

from hloom.ir.stablehlo import collectives, sharding
from hloom.ir.stablehlo.assembly.parser import parse_program
from hloom.ir.stablehlo.assembly.printer import print_program
from hloom.ir.stablehlo.reader import chlo, dynamic_calls, quantized, regions, structure
from hloom.ir.stablehlo.reader.module import convert_program, to_module
from hloom.ir.stablehlo.writer import ops
from hloom.ir.stablehlo.writer.module import to_program


def stablehlo_text(module) -> str:
    """A module of the IR as StableHLO text, pretty, with CHLO for what StableHLO has not.

    Raises UnsupportedError for an op that neither has.
    """
    return print_program(to_program(module))


__all__ = ["convert_program", "parse_program", "print_program", "stablehlo_text", "to_module", "to_program"]
