"""`jax.experimental.buffer_callback`: Python functions that write into the memory of their results.

jax runs them through a handler of XLA's CPU client, with objects that only that client makes. Here they are callbacks
of arrays; the objects that they get have the same attributes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax._src import buffer_callback, tree_util
from jax._src import callback as python_callback
from jax._src.interpreters import mlir
from jax.errors import JaxRuntimeError

__all__ = ["install"]


class _Buffer:
    """Memory of an argument, or of a result, which may be written: what jaxlib's `Buffer` offers on CPUs."""

    def __init__(self, memory: np.ndarray, writeable: bool):
        self._memory = memory.view()
        self._memory.flags.writeable = writeable

    @property
    def shape(self) -> tuple[int, ...]:
        return self._memory.shape

    @property
    def dtype(self) -> np.dtype:
        return self._memory.dtype

    @property
    def ndim(self) -> int:
        return self._memory.ndim

    @property
    def writeable(self) -> bool:
        return self._memory.flags.writeable

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.array(self._memory, dtype, copy=copy)

    def __dlpack__(self, **options) -> Any:
        return self._memory.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._memory.__dlpack_device__()


class _Context:
    """What jaxlib's `ExecutionContext` offers on CPUs."""

    stage = buffer_callback.ExecutionStage.EXECUTE
    device_ordinal = 0

    @property
    def stream(self):
        raise JaxRuntimeError("UNIMPLEMENTED: XLA FFI GPU context is not available")


def _lowering(ctx, *operands, callback: Any, in_tree, out_tree, has_side_effect: bool, input_output_aliases, **_):
    avals = ctx.avals_out

    def function(*arrays):
        arguments = [np.asarray(array) for array in arrays]
        results = [np.zeros(aval.shape, aval.dtype) for aval in avals]
        for position, result in input_output_aliases:  # both are the memory of the result
            results[result][...] = arguments[position]
            arguments[position] = results[result]
        given, named = tree_util.tree_unflatten(in_tree, [_Buffer(a, False) for a in arguments])
        written = tree_util.tree_unflatten(out_tree, [_Buffer(r, True) for r in results])
        if callback(_Context(), written, *given, **named) is not None:
            raise ValueError("buffer_callback callback must not return any values.")  # as jax says it
        return results

    made = python_callback.emit_python_callback(
        ctx, function, None, list(operands), ctx.avals_in, avals, has_side_effect=has_side_effect
    )
    return made[0]


def install() -> None:
    """Enters the rule of platform hloom."""
    mlir.register_lowering(buffer_callback.buffer_callback_p, _lowering, platform="hloom")
