"""Running passes on HLO text or StableHLO: the core of `python -m hloom opt FILE --passes a,b --print-after-all`.

load_passes("my_pass.py")       runs a file that registers passes with `module_pass`; returns their names
"""

from __future__ import annotations

import argparse
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from hloom.compiler.passes import all_passes
from hloom.compiler.pipeline import PIPELINE, PassRecord, pass_names, run_passes
from hloom.ir.errors import AttributeValueError
from hloom.ir.stablehlo.reading import read_module
from hloom.ir.text import print_module


def optimize_text(
    text: str,
    passes: Sequence[str] = PIPELINE,
    *,
    file: str = "<text>",
    verify: bool = True,
    print_after_all: bool = False,
    time_passes: bool = False,
) -> str:
    """The HLO text of the module after the passes. `text` is HLO text, or StableHLO (decided by `file` and the text).

    print_after_all: first prints the module after each pass that changed it, each under a comment with the pass's name.
    time_passes: appends a table of the passes' times, in milliseconds, as comments. Raises ParseError, VerifyError, or
    AttributeValueError for an unknown pass.
    """
    parts: list[str] = []
    records: list[PassRecord] = []

    def on_pass(record: PassRecord) -> None:
        records.append(record)
        if print_after_all:
            state = f"after {record.name}" if record.changed else f"unchanged by {record.name}"
            parts.append(f"// {len(records)}: {state}\n" + (print_module(record.after) if record.changed else ""))

    module = run_passes(read_module(text, file), passes, verify=verify, on_pass=on_pass)
    if not print_after_all:
        parts.append(print_module(module))
    if time_passes:
        parts.append(time_table(records))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def time_table(records: Sequence[PassRecord]) -> str:
    """One line per pass: milliseconds, instructions of the entry before and after, name. As comments of HLO text."""
    lines = ["//       ms  before   after  pass"]
    for record in records:
        before, after = (len(m.entry.instructions) for m in (record.before, record.after))
        lines.append(f"// {record.seconds * 1e3:8.3f}{before:8}{after:8}  {record.name}")
    total = sum(record.seconds for record in records)
    lines.append(f"// {total * 1e3:8.3f}                  all")
    return "\n".join(lines)


def load_passes(file: str) -> tuple[str, ...]:
    """Runs a Python file that registers passes (`compiler.passes.module_pass`); returns their names.

    Raises AttributeValueError for a file that does not exist, does not run, or registers no pass.
    """
    before = set(all_passes())
    try:
        runpy.run_path(file, run_name=Path(file).stem)
    except Exception as error:
        lines = traceback.extract_tb(error.__traceback__)
        line = next((f", line {frame.lineno}" for frame in reversed(lines) if frame.filename == file), "")
        raise AttributeValueError(
            f"the passes of {file!r}",
            f"{type(error).__name__}{line}: {error}",
            "name a Python file that runs on its own",
        ) from error
    names = tuple(name for name in all_passes() if name not in before)
    if not names:
        raise AttributeValueError(
            f"the passes of {file!r}",
            "the file registers none",
            'decorate a function Module -> Module with @module_pass("name") of hloom.compiler.passes',
        )
    return names


def pass_list() -> str:
    """The passes with their summaries, one per line."""
    passes = all_passes()
    width = max(map(len, passes))
    return "passes:\n" + "\n".join(f"  {name:{width}}  {passes[name].summary}" for name in sorted(passes))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="a file of HLO or StableHLO (.mlir) text; - reads standard input")
    parser.add_argument("--passes", metavar="NAME,...", help="comma-separated passes (default: the whole pipeline)")
    parser.add_argument(
        "--load",
        action="append",
        default=[],
        metavar="FILE",
        help="a Python file that registers passes with @module_pass; without --passes they run after the pipeline",
    )
    parser.add_argument("--print-after-all", action="store_true", help="print the module after each pass")
    parser.add_argument("--time-passes", action="store_true", help="print the time of each pass")
    parser.add_argument(
        "--verify",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="verify the module before the first pass and after every pass that changes it (default: yes)",
    )
    parser.epilog = pass_list()


def run(options: argparse.Namespace) -> int:
    """Runs the command with its arguments. Raises HloomError, OSError."""
    loaded = [name for file in options.load for name in load_passes(file)]
    names = (*PIPELINE, *loaded) if options.passes is None else pass_names(options.passes)
    if options.file == "-":
        text = sys.stdin.read()
    else:
        with open(options.file, encoding="utf-8") as stream:
            text = stream.read()
    result = optimize_text(
        text,
        names,
        file=options.file,
        verify=options.verify,
        print_after_all=options.print_after_all,
        time_passes=options.time_passes,
    )
    print(result, end="")
    return 0
