"""HLO text: XLA's own syntax, printed and parsed.

`print_module(module, metadata=False)`, `print_computation(computation, metadata=False)` and
`print_instruction(instruction)` write it; `parse_module(text, file)` reads it. Print, parse, print yields the same
bytes. The syntax of attributes is declared by the op table (`Op.attributes`), with kinds from `attributes.KINDS`, so a
new op needs no change here.
"""

from typing import TYPE_CHECKING

from hloom.ir.process.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from hloom.ir.text.parser import parse_module
    from hloom.ir.text.printer import print_computation, print_instruction, print_module

# The verifier, which is part of every first call, needs the printer alone.
__getattr__ = _lazy_names(
    globals(),
    {
        "hloom.ir.text.parser": "parse_module",
        "hloom.ir.text.printer": "print_computation print_instruction print_module",
    },
)
__all__ = ["parse_module", "print_computation", "print_instruction", "print_module"]
