"""`hl.debug`: print, callback and breakpoint, which see values inside of compiled programs (`jax.debug`)."""

from __future__ import annotations

import builtins
import cmd
import linecache
import sys
from types import FrameType

import numpy as np

from hloom.arrays.base import ArrayMethods
from hloom.ir.build import Builder
from hloom.ir.source import is_internal
from hloom.ir.spmd.sharding import Sharding as Layout
from hloom.platforms.device import Device, default_device, find_device
from hloom.sharding.meshes import Mesh
from hloom.sharding.shardings import NamedSharding, PartitionSpec, SingleDeviceSharding
from hloom.sharding.visualize import visualize_sharding
from hloom.tracing.callback import debug_callback as callback
from hloom.tracing.callback import debug_print as print  # noqa: A004  (JAX's name)
from hloom.tracing.trace import Tracer, current_trace, resumed

LINES_AROUND = 5


def breakpoint(*, ordered: bool = False, num_frames: int | None = None, filter_frames: bool = True, **options) -> None:  # noqa: A001
    """Stops when the program gets here, with a prompt: `p EXPRESSION` prints, `l` lists the code, `u` and `d` change
    the frame, `c` (or the end of the input) continues, `q` quits the program.

    The names are those of the functions on the call stack when this call was traced, with the current values of their
    arrays. num_frames: the maximal number of frames. filter_frames: leaves out hloom's own. ordered, and other options
    of JAX's debuggers, are accepted.
    """
    frame: FrameType | None = sys._getframe(1)
    found: list[_Frame] = []
    while frame is not None and (num_frames is None or len(found) < num_frames):
        if not (filter_frames and is_internal(frame.f_code.co_filename)):
            found.append(_Frame(frame))
        frame = frame.f_back
    callback(lambda *values: _Prompt(found, values, options).cmdloop(), *[f.arrays for f in found])


class _Frame:
    """A frame of the traced program as the prompt shows it: the line, the names, and which of them are arrays."""

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
        """c: continue."""
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
        """Evaluates anything that is not a command as an expression."""
        self.do_p(line)

    def _say(self, text: str) -> None:
        builtins.print(text, file=self.stdout)


def inspect_array_sharding(value, *, callback) -> None:
    """Calls callback with the sharding of an array; of a traced one when its program is compiled and laid out."""
    trace = current_trace()
    if not isinstance(value, Tracer) or trace is None:
        callback(getattr(value, "sharding", None) or SingleDeviceSharding(default_device()))
        return
    builder = Builder("inspect_array_sharding")
    same = builder.finish(builder.parameter(value._shape, "x"))
    trace.emit("call", [value], None, {"to_apply": same, "observer": _Inspection(callback)})


class _Inspection:
    """The observer of a call that returns its operand (`hloom.compiler.passes.spmd.custom.LayoutObserver`)."""

    def __init__(self, callback):
        self.callback = callback

    def laid_out(self, layout: Layout, devices: tuple[str, ...], is_manual: bool) -> None:
        grid = np.empty(len(devices), object)
        grid[:] = [find_device(d) for d in devices]
        mesh = Mesh(grid.reshape(layout.mesh.sizes), layout.mesh.names)
        spec = PartitionSpec(*(axes or None for axes in layout.dims)).without_end()
        with resumed(None):
            self.callback(NamedSharding(mesh, spec))

    def on_one_device(self, device: Device) -> None:
        with resumed(None):
            self.callback(SingleDeviceSharding(device))


def visualize_array_sharding(arr, **options) -> None:
    """Prints which devices hold which part of an array, in colours: see `visualize_sharding` for the options. In a
    jitted function, when it is compiled."""
    inspect_array_sharding(arr, callback=lambda sharding: visualize_sharding(arr.shape, sharding, **options))


__all__ = [
    "breakpoint",
    "callback",
    "inspect_array_sharding",
    "print",
    "visualize_array_sharding",
    "visualize_sharding",
]
__dir__ = __all__.copy
