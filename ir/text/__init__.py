"""HLO text: XLA's own syntax, printed and parsed.

`print_module(module, metadata=False)`, `print_computation(computation, metadata=False)` and
`print_instruction(instruction)` write it; `parse_module(text, file)` reads it. Printing what was parsed from a print
gives the same bytes. What an attribute looks like is declared by the op table (`Op.attributes`), one kind for each in
`attributes.KINDS`, so a new op needs no change here.
"""

from hloom.ir.text.parser import parse_module
from hloom.ir.text.printer import print_computation, print_instruction, print_module

__all__ = ["parse_module", "print_computation", "print_instruction", "print_module"]
