"""Kernels with their launches as text, and the folder that modules and kernels are dumped into."""

from __future__ import annotations

import itertools
from pathlib import Path

from hloom.backends.text import program_text
from hloom.compiler.kernels.codegen.constants import shown_arguments
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.pipeline import PassRecord
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.schedule.steps import KernelStep
from hloom.config import config
from hloom.errors import SettingError
from hloom.ir.module import Module

_counter = itertools.count()


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
            if shown := shown_arguments(source.text, item.launch.arguments):
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


def _file_part(name: str) -> str:
    """A name as a part of the name of a file."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)[:80]


class Dump:
    """Writes modules and kernels into `hl.config.dump_to`, numbered in the order of compilation."""

    def __init__(self, module: Module):
        self.folder = Path(config.dump_to)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(error) from None
        self.prefix = f"module_{next(_counter):04d}_{_file_part(module.name)}"
        self.number = 0

    @staticmethod
    def of(module: Module) -> Dump | None:
        """Of a module that is about to be compiled, with its text; None where nothing is dumped."""
        if not config.dump_to:
            return None
        dump = Dump(module)
        dump.module("traced", module)
        return dump

    def on_pass(self, record: PassRecord) -> None:
        """For `run_passes`."""
        self.module(record.name, record.after)

    def module(self, name: str, module: Module) -> None:
        self._write(f"{self.prefix}.{self.number:02d}_{name}.hlo", program_text(module, metadata=True, export=False))
        self.number += 1

    def kernels(self, plan: Plan) -> None:
        self._write(f"{self.prefix}.kernels.py", kernel_listing(plan))

    def _write(self, name: str, text: str) -> None:
        # A half-written dump would be read as a wrong one.
        target = self.folder / name
        partial = target.with_name(target.name + ".partial")
        try:
            partial.write_text(text)
            partial.replace(target)
        except OSError as error:
            raise _unwritable(error) from None


def _unwritable(error: OSError) -> SettingError:
    return SettingError(
        f"modules and kernels dumped to {config.dump_to!r} (HLOOM_DUMP_TO)",
        str(error),
        "name a folder that can be created and written to",
    )
