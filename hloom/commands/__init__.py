"""The command line: `hloom run | opt | bench | roofline | info`.

Each module here is one command: `add_arguments(parser)` declares what it takes, `run(options) -> int` does it. A
mistake of the user's (HloomError, a missing file) is one message on standard error and exit status 2.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from hloom.ir.errors import HloomError, ParseError, VerifyError

# name: (module, summary). Imported when chosen, so that `info` does not wait for a plot library.
COMMANDS = {
    "run": ("hloom.commands.run", "compile a module of HLO text, run it on .npy files, print or save the results"),
    "opt": ("hloom.commands.opt", "run passes on a module of HLO text and print the result"),
    "bench": ("hloom.commands.bench", "time the workloads against jax, torch, NumPy and the limits of the machine"),
    "roofline": ("hloom.commands.roofline", "measure bandwidth and FMA peak, and put the workloads under that roof"),
    "info": ("hloom.commands.info", "versions, the machine, devices, the cache folder and all settings"),
}


class CommandError(HloomError):
    """The command line asks for something that cannot be done."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="hloom",
        description="A tensor compiler: HLO graphs, fused into Numba kernels.",
        epilog="`hloom COMMAND --help` says what a command takes.",
    )
    import hloom

    top.add_argument("--version", action="version", version=f"hloom {hloom.__version__}")
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (_, summary) in COMMANDS.items():
        subparsers.add_parser(name, help=summary, add_help=False)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. The exit status: 0; 2 for a mistake in what was asked; 130 when interrupted."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    top = parser()
    chosen = top.parse_known_args(arguments)[0].command
    module, summary = COMMANDS[chosen]
    command = importlib.import_module(module)
    own = argparse.ArgumentParser(prog=f"hloom {chosen}", description=command.__doc__ or summary,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    command.add_arguments(own)
    options = own.parse_args(arguments[arguments.index(chosen) + 1 :])
    try:
        return command.run(options)
    except BrokenPipeError:  # the reader of our output is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (HloomError, OSError, UnicodeDecodeError) as error:
        if isinstance(error, HloomError) and not isinstance(error, (ParseError, VerifyError)):
            error.source = None  # the call stack holds only the command line, no line of the user's
        notes = "\n".join(getattr(error, "__notes__", ()))
        print(f"hloom {chosen}: {error}\n{notes}".rstrip(), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"hloom {chosen}: interrupted", file=sys.stderr)
        return 130
