"""Python functions among the steps of a program.

Each is a kernel to the driver: its address is that of a callback, which takes the GIL. An exception is stored; a byte
tested by the next step then ends the program, and the caller gets the exception.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from hloom.ir.types import Shape
from hloom.runtime.buffer import address
from hloom.runtime.steps import Host, Program

__all__ = ["RECORD", "callbacks_of", "explained_by", "new_state", "take_error"]

# A state: a byte, 1 until an error, and from RECORD on four int64 words that describe an access outside its array, in
# kernels that are compiled with checks: its number, index and size, and the number of the launch.
RECORD, _STATE_BYTES = 8, 64
_explain: Callable[[int, int, int, int], BaseException] | None = None

_errors: dict[int, BaseException] = {}  # by the address of a frame's state: the exception of its Python step
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


def new_state() -> np.ndarray:
    """The state of a frame, or of frames that run together."""
    made = np.zeros(_STATE_BYTES // 8, np.int64).view(np.uint8)
    made[0] = 1
    return made


def explained_by(explain: Callable[[int, int, int, int], BaseException]) -> None:
    """Makes `explain` the function that turns the words of an access into an error."""
    global _explain
    _explain = explain


def take_error(state: np.ndarray) -> BaseException | None:
    """The exception of a Python step in a call with this state, or the error for an access outside its array; None if
    there is neither. Resets the state."""
    if state[0]:
        return None
    state[0] = 1
    raised = _errors.pop(address(state), None)
    words = state[RECORD : RECORD + 32].view(np.int64)
    if not words[0]:
        return raised
    access, index, size, launch = words.tolist()
    words[:] = 0
    assert _explain is not None
    return _explain(access, index, size, launch)


def _view(where: int, shape: Shape) -> np.ndarray:
    if not shape.bytes:
        return np.zeros(shape.dims, shape.dtype)
    memory = memoryview((ctypes.c_uint8 * shape.bytes).from_address(where))
    return np.frombuffer(memory, np.uint8).view(shape.dtype).reshape(shape.dims)
