"""Python functions among the steps of a program.

Each is a kernel to the driver: its address is that of a callback, which takes the GIL. What it raises is kept; a byte
that the next step tests then ends the program, and the caller gets the exception.
"""

from __future__ import annotations

import ctypes

import numpy as np

from hloom.ir.types import Shape
from hloom.runtime.buffer import address
from hloom.runtime.steps import Host, Program

__all__ = ["callbacks_of", "take_error"]

_errors: dict[int, BaseException] = {}  # by the address of a frame's state: what its Python step raised
_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def _callback(host: Host):
    """The C function of a Python step. Its arguments are the addresses of the frame's state, of the frame's `done`, of
    the inputs and of the outputs."""
    count, given = 2 + len(host.inputs) + len(host.outputs), len(host.inputs)
    shapes = [shape for _, shape in (*host.inputs, *host.outputs)]

    def call(arguments: int, lo: int, hi: int) -> None:
        words = (ctypes.c_int64 * count).from_address(arguments)
        try:
            views = [_view(words[k + 2], shape) for k, shape in enumerate(shapes)]
            host.function([view.copy() if host.keeps else view for view in views[:given]], views[given:])
        except BaseException as error:
            _errors.setdefault(words[0], error)
            ctypes.c_uint8.from_address(words[0]).value = 0
        ctypes.c_uint8.from_address(words[1]).value = 1

    return _SIGNATURE(call)


def callbacks_of(program: Program) -> tuple[list, dict[int, int]]:
    """The C functions of a program's Python steps, to be kept, and their addresses by the number of the step."""
    made = {k: _callback(s) for k, s in enumerate(program.steps) if isinstance(s, Host)}
    return list(made.values()), {k: ctypes.cast(c, ctypes.c_void_p).value or 0 for k, c in made.items()}


def take_error(state: np.ndarray) -> BaseException | None:
    """What a Python step raised in a call with this state, which is well again; None where none raised."""
    if state[0]:
        return None
    state[0] = 1
    return _errors.pop(address(state), None)


def _view(where: int, shape: Shape) -> np.ndarray:
    if not shape.bytes:
        return np.zeros(shape.dims, shape.dtype)
    memory = memoryview((ctypes.c_uint8 * shape.bytes).from_address(where))
    return np.frombuffer(memory, np.uint8).view(shape.dtype).reshape(shape.dims)
