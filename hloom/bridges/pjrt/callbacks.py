"""Python functions in jax's programs (pure_callback, io_callback, debug.print): custom calls that name the function.

A name leads to its function as long as jax or an executable holds it. The calls of a program happen in its order, so
tokens, by which jax orders them, are passed on as they are.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import weakref
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jax._src import callback, config, dtypes, mesh
from jax._src.interpreters import mlir
from jax.interpreters import mlir as public_mlir

from hloom.errors import UnsupportedError
from hloom.ir.ops.programs.structure import CUSTOM_CALLS, register_custom_call

__all__ = ["held", "install"]

_TARGET = re.compile(r"jax\.callback\.(\d{1,18})\b")
_numbers = itertools.count(1)
_functions: weakref.WeakValueDictionary[int, _Callback] = weakref.WeakValueDictionary()


class _Callback:
    """A function of flat arrays that returns a sequence of arrays of the avals."""

    def __init__(self, function: Callable[..., Sequence], avals: Sequence):
        self._function, self._avals = function, avals
        self.number = next(_numbers)
        self.target = f"jax.callback.{self.number}"
        _functions[self.number] = self
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


@contextlib.contextmanager
def _own_context() -> Iterator[None]:
    """Without the mesh of the thread that called the program: what a callback computes is a program of its own."""
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
        assert function is not None  # whoever calls it holds it
        found = function(*arrays)
        return found[0] if single else found

    call.takes_whole_arrays = True  # type: ignore[attr-defined]  # as jax says of callbacks: no warning
    return call


def held(text: str) -> list[_Callback]:
    """The functions that a program calls, so that who holds the list keeps them. Raises UnsupportedError where one is
    not of this process."""
    found = [_functions.get(number) for number in map(int, _TARGET.findall(text))]
    kept = [callback for callback in found if callback is not None]
    if len(kept) < len(found):
        raise UnsupportedError(
            "a program that calls Python", "a function that is not in this process any more",
            "trace it again: programs with callbacks cannot be stored", "",
        )  # fmt: skip
    return kept


def install() -> None:
    """Makes jax's rules for callbacks write such custom calls for platform hloom."""
    original = callback.emit_python_callback

    def emit_python_callback(ctx, function, token, operands, operand_avals, result_avals, **options):
        if tuple(ctx.module_context.platforms) != ("hloom",):
            return original(ctx, function, token, operands, operand_avals, result_avals, **options)
        made = _Callback(function, result_avals)
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
        if options.get("sharding") is not None:
            mlir.set_sharding(ctx.module_context, call, options["sharding"])
        return list(call.results), token, made

    callback.emit_python_callback = emit_python_callback  # type: ignore[assignment]  # its options by name
    public_mlir.emit_python_callback = emit_python_callback  # type: ignore[assignment]  # for jax.experimental
