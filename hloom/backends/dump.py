"""The folder that modules and kernels are dumped into: it looks on while programs are compiled."""

from __future__ import annotations

import itertools
from pathlib import Path

from hloom.backends.listing import kernel_listing
from hloom.compiler.pipeline import PassRecord
from hloom.compiler.schedule.scheduler import Plan
from hloom.config import config
from hloom.errors import SettingError
from hloom.ir.module import Module
from hloom.ir.text import print_module

_counter = itertools.count()


def _file_part(name: str) -> str:
    """A name as a part of the name of a file."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)[:80]


class Dump:
    """Writes modules and kernels into `hl.config.dump_to`, numbered in the order of compilation (`Observer`)."""

    def __init__(self, module: Module):
        self.folder = Path(config.dump_to)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(error) from None
        self.prefix = f"module_{next(_counter):04d}_{_file_part(module.name)}"
        self.number = 0
        self._module("traced", module)

    def on_pass(self, record: PassRecord) -> None:
        self._module(record.name, record.after)

    def on_plan(self, plan: Plan) -> None:
        self._write(f"{self.prefix}.kernels.py", kernel_listing(plan))

    def _module(self, name: str, module: Module) -> None:
        self._write(f"{self.prefix}.{self.number:02d}_{name}.hlo", print_module(module, metadata=True))
        self.number += 1

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
