"""StableHLO text (MLIR): parsed into a syntax tree, printed from it, converted to and from hloom's IR.

`parse_program(text, file)` and `print_program(tree)` are about the text alone. `to_module(tree, ...)` makes a module of
the IR, `stablehlo_text(module)` writes one. The converters and emitters of ops register themselves in tables, so that a
new op is one function in each.
"""

from hloom.ir.stablehlo import (  # noqa: F401 (each registers its converters or emitters)
    collectives,
    convert_chlo,
    convert_ops,
    convert_quantized,
    convert_regions,
    convert_structure,
    dynamic_calls,
    emit_ops,
    sharding,
)
from hloom.ir.stablehlo.convert import convert_program, to_module
from hloom.ir.stablehlo.emit import to_program
from hloom.ir.stablehlo.parser import parse_program
from hloom.ir.stablehlo.printer import print_program


def stablehlo_text(module) -> str:
    """A module of the IR as StableHLO text, pretty, with CHLO for what StableHLO has not.

    Raises UnsupportedError for an op that neither has.
    """
    return print_program(to_program(module))


__all__ = ["convert_program", "parse_program", "print_program", "stablehlo_text", "to_module", "to_program"]
