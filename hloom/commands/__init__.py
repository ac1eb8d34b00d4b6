"""The command line: `hloom run | opt | export | launch | cluster | serve | bench | roofline | info`.

Each module in this package is one command: `add_arguments(parser)` declares its options, `run(options) -> int` executes
it, and its docstring is the help text, with examples. A user error (HloomError, a missing file) prints one message on
standard error and exits with status 2.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

import hloom
from hloom.errors import HloomError, ParseError, VerifyError, file_error

# name: (module, summary). A command is imported when it is chosen, so that `info` does not wait for a plot library.
COMMANDS = {
    "run": (
        "hloom.commands.run",
        "compile a program in HLO or StableHLO text or an ONNX model and run it on .npy files",
    ),
    "opt": ("hloom.commands.opt", "run passes on a module in HLO or StableHLO text and print the result"),
    "bench": ("hloom.commands.bench", "time workloads against jax, torch, NumPy and the limits of the machine"),
    "export": ("hloom.commands.export", "write a library with a C header that computes a program without Python"),
    "launch": ("hloom.commands.launch", "run a Python program in several processes of this machine"),
    "cluster": ("hloom.commands.cluster", "run a program on many processes or hosts, restart what fails, show status"),
    "serve": ("hloom.commands.serve", "serve exported libraries with the Open Inference Protocol"),
    "roofline": (
        "hloom.commands.roofline",
        "measure bandwidth and FMA peak, and place workloads on that roofline",
    ),
    "info": ("hloom.commands.info", "print versions, the machine, devices, the cache folder and all settings"),
}


class CommandError(HloomError):
    """The command line requests something that cannot be done."""


_UsageError = argparse.ArgumentError  # of another library: none of hloom's


class Parser(argparse.ArgumentParser):
    """A parser that names the nearest command, choice or option for one that it does not know."""

    def _check_value(self, action, value):
        known = [str(choice) for choice in action.choices or ()]
        if known and value not in action.choices:
            raise _UsageError(action, f"{value!r}, and there are {', '.join(known)}{_nearest(value, known)}")

    def parse_args(self, args=None, namespace=None):
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            first = next((text for text in unknown if text.startswith("-")), unknown[0])
            option = first.partition("=")[0]
            near = _nearest(option, self.all_options()) if option.startswith("-") else ""
            self.error(f"unknown argument {first!r}{near}")
        return found

    def all_options(self) -> list[str]:
        """The options of this parser and of the actions that it has."""
        found = [*self._option_string_actions]
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                found += [option for own in action.choices.values() for option in own.all_options()]
        return found


def _nearest(name, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(name), known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="hloom",
        description="A tensor compiler: HLO graphs, fused into Numba kernels.",
        epilog="`hloom COMMAND --help` describes a command and its options.",
    )

    top.add_argument("--version", action="version", version=f"hloom {hloom.__version__}")
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (_, summary) in COMMANDS.items():
        subparsers.add_parser(name, help=summary, add_help=False)
    return top


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of descriptions, and states defaults that are values."""

    def _get_help_string(self, action):
        text = action.help or ""
        if "default" in text or action.default in (None, False, True, "", [], argparse.SUPPRESS):
            return text
        return f"{text} (default: %(default)s)"


def _module(name: str) -> ModuleType:
    """The module of a command. Raises CommandError for one that measures where the benchmarks are not installed."""
    try:
        return importlib.import_module(COMMANDS[name][0])
    except ModuleNotFoundError as missing:
        if missing.name != "hloom.benchmarks":
            raise
        raise CommandError(
            f"hloom {name}",
            f"the benchmarks are not in this installation of hloom {hloom.__version__}: wheels are without them",
            "run it from a checkout: clone hloom's repository, and pip install -e '.[bench]' in it",
        ) from None


def command_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one command's options. Its help text is the docstring of the command's module."""
    command = _module(name)
    own = Parser(prog=f"hloom {name}", description=command.__doc__, formatter_class=_HelpFormatter)
    command.add_arguments(own)
    return own


def examples(name: str) -> list[str]:
    """The command lines in the help text of a command."""
    lines = (_module(name).__doc__ or "").splitlines()
    return [line.strip() for line in lines if line.strip().startswith(f"hloom {name} ")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit status: 0, 2 after a user error, 130 when interrupted."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    chosen = parser().parse_known_args(arguments)[0].command
    try:
        options = command_parser(chosen).parse_args(arguments[arguments.index(chosen) + 1 :])
        return _module(chosen).run(options)
    except BrokenPipeError:  # the reader of the output closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (HloomError, OSError, UnicodeDecodeError) as found:
        error = found if isinstance(found, HloomError) else file_error(" ".join(arguments), found)
        if isinstance(error, HloomError) and not isinstance(error, (ParseError, VerifyError)):
            error.source = None  # no user code is on the call stack
        notes = "\n".join(getattr(error, "__notes__", ()))
        print(f"hloom {chosen}: {error}\n{notes}".rstrip(), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"hloom {chosen}: interrupted", file=sys.stderr)
        return 130
