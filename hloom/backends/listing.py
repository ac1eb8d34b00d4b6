"""Kernels with their launches as text."""

from __future__ import annotations

from hloom.compiler.kernels.codegen.constants import shown_arguments
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.schedule.steps import KernelStep


def kernel_listing(plan: Plan) -> str:
    """Every distinct kernel once, with a comment for each launch."""
    launches: dict[KernelSource, list[KernelStep]] = {}
    for item in plan.kernels():
        launches.setdefault(item.launch.source, []).append(item)
        for argument in item.launch.arguments:
            if isinstance(argument, KernelSource):
                launches.setdefault(argument, [])
    parts = []
    for source, items in launches.items():
        lines = []
        for item in items:
            instruction = item.instruction
            name = instruction.hint or instruction.opcode
            operands = ", ".join(f"{o.hint or o.opcode} {o.shape!r}" for o in dict.fromkeys(instruction.operands))
            lines.append(_comment(f"{name} {instruction.shape!r} from {operands or 'nothing'}"))
            lines.append(_comment(f"  {item.launch.grid()}"))
            if shown := shown_arguments(source.names, item.launch.arguments):
                lines.append(_comment(f"  {shown}"))
            if instruction.source:
                lines.append(_comment(f"  {instruction.source}"))
        if not items:
            lines.append("# called by other kernels")
        for name, part in source.parts:
            parts.append(f"# {name}\n" + part.text)
        parts.append("\n".join(lines) + "\n" + source.text)
    return "\n\n".join(parts)


def _comment(text: str) -> str:
    """A comment of one line, whatever names the text has."""
    return "# " + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
