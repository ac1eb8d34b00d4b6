"""`hl.debug`: print, callback and breakpoint, which see values inside of compiled programs (`jax.debug`)."""

from __future__ import annotations

import builtins
import cmd
import linecache
import sys
from types import FrameType

from hloom.arrays.base import ArrayMethods
from hloom.ir.source import is_internal
from hloom.platforms.device import default_device
from hloom.sharding.shardings import SingleDeviceSharding
from hloom.sharding.visualize import visualize_array_sharding, visualize_sharding
from hloom.tracing.callback import debug_callback as callback
from hloom.tracing.callback import debug_print as print  # noqa: A004  (JAX's name)

LINES_AROUND = 5


def breakpoint(*, ordered: bool = False, num_frames: int | None = None, filter_frames: bool = True, **options) -> None:  # noqa: A001
    """Stops when the program gets here, with a prompt: `p EXPRESSION` prints, `l` lists the code, `u` and `d` change
    the frame, `c` (or the end of the input) goes on, `q` stops the program.

    The names are those of the functions that stood around this call while it was traced, with the values that their
    arrays have now. num_frames: how many of them at most. filter_frames: leaves out hloom's own. ordered, and other
    options of JAX's debuggers, are accepted.
    """
    frame: FrameType | None = sys._getframe(1)
    found: list[_Frame] = []
    while frame is not None and (num_frames is None or len(found) < num_frames):
        if not (filter_frames and is_internal(frame.f_code.co_filename)):
            found.append(_Frame(frame))
        frame = frame.f_back
    callback(lambda *values: _Prompt(found, values, options).cmdloop(), *[f.arrays for f in found])


class _Frame:
    """What a frame of the traced program is to a prompt: the line, the names, and which of them are arrays."""

    def __init__(self, frame: FrameType):
        self.file, self.line, self.name = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        module_level = frame.f_locals is frame.f_globals
        self.names = {} if module_level else dict(frame.f_locals)
        self.globals = frame.f_globals
        self.arrays = {n: v for n, v in self.names.items() if isinstance(v, ArrayMethods)}

    def text(self) -> str:
        first = max(1, self.line - LINES_AROUND)
        rows = []
        for number in range(first, self.line + LINES_AROUND + 1):
            line = linecache.getline(self.file, number, self.globals)
            if line:
                rows.append(f"{'->' if number == self.line else '  '} {line.rstrip()}")
        return "\n".join([f"> {self.file}({self.line}) in {self.name}", *rows])


class _Prompt(cmd.Cmd):
    """Commands at a breakpoint."""

    prompt = "(jdb) "

    def __init__(self, frames, values, options):
        super().__init__(stdin=options.get("stdin"), stdout=options.get("stdout"))
        self.use_rawinput = options.get("stdin") is None
        self.frames, self.values, self.place = frames, values, 0
        self.intro = "Entering jdb:"

    def do_p(self, argument: str) -> None:
        """p EXPRESSION: its value."""
        frame = self.frames[self.place]
        try:
            value = eval(argument, frame.globals, {**frame.names, **self.values[self.place]})
        except Exception as error:
            self._say(f"*** {type(error).__name__}: {error}")
        else:
            self._say(repr(value))

    do_pp = do_p

    def do_l(self, argument: str) -> None:
        """l: the code around the line."""
        self._say(self.frames[self.place].text())

    do_list = do_l

    def do_bt(self, argument: str) -> None:
        """bt: the frames, the innermost last."""
        for frame in reversed(self.frames):
            self._say(f"  {frame.file}({frame.line}) in {frame.name}")

    do_w = do_where = do_bt

    def do_u(self, argument: str) -> None:
        """u: to the frame that called this one."""
        self.place = min(self.place + 1, len(self.frames) - 1)
        self.do_l("")

    do_up = do_u

    def do_d(self, argument: str) -> None:
        """d: to the frame that this one called."""
        self.place = max(self.place - 1, 0)
        self.do_l("")

    do_down = do_d

    def do_c(self, argument: str) -> bool:
        """c: go on."""
        return True

    do_cont = do_continue = do_EOF = do_c

    def do_q(self, argument: str) -> None:
        """q: stop the program."""
        raise SystemExit("stopped at a breakpoint")

    do_quit = do_exit = do_q

    def emptyline(self) -> bool:
        """Nothing."""
        return False

    def default(self, line: str) -> None:
        """What is no command is an expression."""
        self.do_p(line)

    def _say(self, text: str) -> None:
        builtins.print(text, file=self.stdout)


def inspect_array_sharding(value, *, callback) -> None:
    """Calls callback with the sharding of an array; of a traced one, whose layout the compiler has yet to choose, with
    that of the default device."""
    callback(getattr(value, "sharding", None) or SingleDeviceSharding(default_device()))


__all__ = [
    "breakpoint",
    "callback",
    "inspect_array_sharding",
    "print",
    "visualize_array_sharding",
    "visualize_sharding",
]
__dir__ = __all__.copy
