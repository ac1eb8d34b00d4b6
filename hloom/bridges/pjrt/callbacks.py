"""Python functions in jax's programs (pure_callback, io_callback, debug.print): custom calls that name the function.

A name leads to its function as long as jax or an executable holds it. The calls of a program happen in its order, so
tokens, by which jax orders them, are passed through unchanged.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jax._src import buffer_callback, callback, config, dtypes, mesh, sharding_impls, tree_util
from jax._src.interpreters import mlir
from jax.errors import JaxRuntimeError
from jax.interpreters import mlir as public_mlir

from hloom.bridges.pjrt.names import Named
from hloom.errors import UnsupportedError
from hloom.ir.ops.programs.structure import CUSTOM_CALLS, register_custom_call

__all__ = ["calls_python", "held", "install", "takes_parts"]


class _Callback:
    """A function of flat arrays that returns a sequence of arrays of the avals. takes_parts: whether each device calls
    it with its parts of the arrays."""

    def __init__(self, function: Callable[..., Sequence], avals: Sequence, takes_parts: bool):
        self._function, self._avals, self.takes_parts = function, avals, takes_parts
        self.target = _functions.add(self)
        register_custom_call(self.target, _caller(weakref.ref(self), len(avals) == 1))
        weakref.finalize(self, CUSTOM_CALLS.pop, self.target, None)

    def __call__(self, *arrays):
        with _own_context():
            found = [np.asarray(value) for value in self._function(*arrays)]
        if len(found) != len(self._avals):
            raise RuntimeError(
                f"Mismatched number of outputs from callback. Expected: {len(self._avals)}, Actual: {len(found)}"
            )
        for k, (value, aval) in enumerate(zip(found, self._avals, strict=True)):
            if value.shape != aval.shape:
                raise RuntimeError(
                    f"Incorrect output shape for return value #{k}: Expected: {aval.shape}, Actual: {value.shape}"
                )
            if value.dtype != aval.dtype:
                value = found[k] = np.asarray(dtypes.canonicalize_value(value))
            if value.dtype != aval.dtype:
                raise RuntimeError(
                    f"Incorrect output dtype for return value #{k}: Expected: {aval.dtype}, Actual: {value.dtype}"
                )
        return tuple(found)


_functions: Named[_Callback] = Named("jax.callback")


@contextlib.contextmanager
def _own_context() -> Iterator[None]:
    """Without the mesh of the thread that called the program: a callback's computations are separate programs."""
    states = (config.mesh_context_manager, config.abstract_mesh_context_manager, config.device_context)
    values = ((), mesh.empty_abstract_mesh, mesh.empty_concrete_mesh)
    before = [state.swap_local(value) for state, value in zip(states, values, strict=True)]
    try:
        yield
    finally:
        for state, value in zip(states, before, strict=True):
            state.set_local(value)


def _caller(reference: weakref.ref[_Callback], single: bool) -> Callable:
    def call(*arrays):
        function = reference()
        assert function is not None  # held by the caller
        found = function(*arrays)
        return found[0] if single else found

    call.takes_whole_arrays = True  # type: ignore[attr-defined]  # as jax does for callbacks: no warning
    return call


def held(text: str) -> list[_Callback]:
    """The functions that a program calls; holding the list keeps them alive. Raises UnsupportedError if one is
    not of this process."""
    found = _functions.named_in(text)
    kept = [callback for callback in found if callback is not None]
    if len(kept) < len(found):
        raise UnsupportedError(
            "a program that calls Python", "a function that is not in this process any more",
            "trace it again: programs with callbacks cannot be stored", "",
        )  # fmt: skip
    return kept


def calls_python(text: str) -> bool:
    """Whether a program calls a Python function."""
    return bool(_functions.named_in(text))


def takes_parts(target: str) -> bool:
    """Whether a custom call of this target is one of a function that each device calls with its parts of the arrays."""
    function = _functions.get(target)
    return function is not None and function.takes_parts


# --- jax.experimental.buffer_callback: functions that write into the memory of their results -------------------------
# jax runs them through a handler of XLA's CPU client, with objects that only that client makes. Here they are callbacks
# of arrays, and their objects have the same attributes.


class _Buffer:
    """Memory of an argument, or of a result, which may be written: the interface of jaxlib's `Buffer` on CPUs."""

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
    """The interface of jaxlib's `ExecutionContext` on CPUs."""

    stage = buffer_callback.ExecutionStage.EXECUTE
    device_ordinal = 0

    @property
    def stream(self):
        raise JaxRuntimeError("UNIMPLEMENTED: XLA FFI GPU context is not available")


def _buffer_callback(ctx, *operands, in_tree, out_tree, has_side_effect: bool, input_output_aliases, **others):
    avals = ctx.avals_out

    def function(*arrays):
        arguments = [np.asarray(array) for array in arrays]
        results = [np.zeros(aval.shape, aval.dtype) for aval in avals]
        for position, result in input_output_aliases:  # both are the memory of the result
            results[result][...] = arguments[position]
            arguments[position] = results[result]
        given, named = tree_util.tree_unflatten(in_tree, [_Buffer(a, False) for a in arguments])
        written = tree_util.tree_unflatten(out_tree, [_Buffer(r, True) for r in results])
        if others["callback"](_Context(), written, *given, **named) is not None:
            raise ValueError("buffer_callback callback must not return any values.")  # as jax says it
        return results

    made = callback.emit_python_callback(
        ctx, function, None, list(operands), ctx.avals_in, avals, has_side_effect=has_side_effect
    )
    return made[0]


def install() -> None:
    """Makes jax's rules for callbacks write such custom calls for platform hloom."""
    original = callback.emit_python_callback

    def emit_python_callback(ctx, function, token, operands, operand_avals, result_avals, **options):
        if tuple(ctx.module_context.platforms) != ("hloom",):
            return original(ctx, function, token, operands, operand_avals, result_avals, **options)
        # In a shard_map the program is a device's own already.
        is_manual = isinstance(ctx.module_context.axis_context, sharding_impls.SPMDAxisContext)
        by_parts = options.get("partitioned", False) and not is_manual
        if by_parts and result_avals:
            raise ValueError("Partitioned callback not supported with return values.")  # as jax says it
        made = _Callback(function, result_avals, by_parts)
        ctx.module_context.add_keepalive(made)
        ctx.module_context.add_host_callback(made)
        call = mlir.custom_call(
            made.target,
            result_types=[mlir.aval_to_ir_type(ctx.module_context, aval) for aval in result_avals],
            operands=operands,
            has_side_effect=options["has_side_effect"],
            api_version=1,
            backend_config="",
        )
        if options.get("sharding") is not None and not by_parts:
            mlir.set_sharding(ctx.module_context, call, options["sharding"])
        return list(call.results), token, made

    callback.emit_python_callback = emit_python_callback  # type: ignore[assignment]  # its options by name
    public_mlir.emit_python_callback = emit_python_callback  # type: ignore[assignment]  # for jax.experimental
    mlir.register_lowering(buffer_callback.buffer_callback_p, _buffer_callback, platform="hloom")
