"""Prints the syntax tree as MLIR text, in pretty syntax if available, like MLIR's printer."""

from __future__ import annotations

from hloom.ir.stablehlo.assembly import product_forms, region_forms, special_forms  # noqa: F401 (each registers forms)
from hloom.ir.stablehlo.assembly.attributes import attribute_text, dictionary_text, symbol_text
from hloom.ir.stablehlo.assembly.forms import FORMS, NotPretty
from hloom.ir.stablehlo.syntax import Operation, Program, Region
from hloom.ir.stablehlo.types import Function

INDENT = "  "


def print_program(program: Program, generic: bool = False) -> str:
    """The text of a module. generic: every op in generic syntax."""
    return _Printer(generic).program(program)


class _Printer:
    def __init__(self, generic: bool):
        self.generic_only = generic
        self.depth = 1
        self.within = ""  # the op whose region is being printed: in functions 'func.' may be omitted

    def program(self, program: Program) -> str:
        head = "module"
        if program.name:
            head += f" {symbol_text(program.name)}"
        if program.attributes:
            head += f" attributes {dictionary_text(program.attributes)}"
        lines = [head + " {"]
        lines += [INDENT + self.operation(o) for o in program.operations]
        lines.append("}")
        text = "\n".join(lines) + "\n"
        if program.resources:
            blobs = ",\n".join(f'      {name}: "{value}"' for name, value in program.resources.items())
            text += f"\n{{-#\n  dialect_resources: {{\n    builtin: {{\n{blobs}\n    }}\n  }}\n#-}}\n"
        return text

    def operation(self, op: Operation) -> str:
        names = ", ".join(f"{name}:{count}" if count > 1 else name for name, count in op.results)
        lead = f"{names} = " if names else ""
        form = FORMS.get(op.name)
        if form is not None and (not self.generic_only or op.name == "func.func"):
            try:
                name = _SHORT.get(op.name, op.name) if self.within == "func.func" else op.name
                return lead + name + self._written(form, op)
            except NotPretty:
                pass
            except (TypeError, ValueError, KeyError, IndexError, AttributeError):
                # Attributes of kinds not covered by the pretty syntax, which generic text may have.
                if op.name == "func.func":
                    raise
        return lead + self._generic(op)

    def _written(self, form, op: Operation) -> str:
        outside, self.within = self.within, op.name
        try:
            return form.write(op, self)
        finally:
            self.within = outside

    def _generic(self, op: Operation) -> str:
        text = f'"{op.name}"({", ".join(op.operands)})'
        if op.successors:
            text += f"[{', '.join(label for label, _ in op.successors)}]"
        own = {k: v for k, v in sorted(op.attributes.items()) if "." not in k}
        others = {k: v for k, v in op.attributes.items() if "." in k}
        if own:
            text += f" <{dictionary_text(own)}>"
        if op.regions:
            outside, self.within = self.within, op.name
            text += f" ({', '.join(self.region(r) for r in op.regions)})"
            self.within = outside
        if others:
            text += f" {dictionary_text(others)}"
        return f"{text} : {Function(op.operand_types, op.result_types)}"

    def region(self, region: Region, labelled: bool = True) -> str:
        """`{ operations }`; labelled: whether the first block's arguments are in its label."""
        self.depth += 1
        lines = ["{"]
        for k, block in enumerate(region.blocks):
            if k or (labelled and block.arguments):
                arguments = ", ".join(f"{name}: {type_}" for name, type_ in block.arguments)
                label = block.label or f"^bb{k}"
                lines.append(f"{INDENT * (self.depth - 1)}{label}{f'({arguments})' if arguments else ''}:")
            lines += [INDENT * self.depth + self.operation(o) for o in block.operations]
        self.depth -= 1
        lines.append(INDENT * self.depth + "}")
        return "\n".join(lines)


_SHORT = {"func.call": "call", "func.return": "return"}
__all__ = ["attribute_text", "print_program"]
