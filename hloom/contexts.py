"""Settings for a while: context managers under JAX's names."""

from __future__ import annotations

import contextlib

from hloom.config import config
from hloom.errors import ArgumentError


def _setting(name: str, text: str):
    @contextlib.contextmanager
    def context(new_val: bool = True):
        with config(**{name: new_val}):
            yield

    context.__name__ = context.__qualname__ = name
    context.__doc__ = f"`with {name}():` {text}; {name}(False) turns it off."
    return context


enable_x64 = _setting("enable_x64", "Python numbers alone have 64 bits")
check_tracer_leaks = checking_leaks = _setting(
    "check_tracer_leaks", "a traced value that outlives its trace raises LeakedTracerError when the trace ends"
)
debug_nans = _setting("debug_nans", "a NaN in a result raises NonFiniteError")
debug_key_reuse = _setting("debug_key_reuse", "a random key that is used twice raises KeyReuseError")
debug_infs = _setting("debug_infs", "an infinity in a result raises NonFiniteError")


def disable_jit(disable: bool = True):
    """`with disable_jit():` functions under `hl.jit` run step by step on values, so that they can be debugged.

    >>> @hl.jit
    ... def f(x):
    ...     print(x)
    ...     return x + 1
    >>> with hl.disable_jit():
    ...     f(hnp.array([1, 2]))
    [1 2]
    Array([2, 3], dtype=int32)
    """
    return config(disable_jit=disable)


def numpy_dtype_promotion(new_val: str):
    """`with numpy_dtype_promotion("strict"):` arrays of different dtypes raise DTypeError; "standard" promotes them.

    Python numbers take the array's dtype in both. Raises SettingError.

    >>> with hl.numpy_dtype_promotion("strict"):
    ...     hnp.array([1.5]) * 2
    Array([3.], dtype=float32)
    """
    return config(numpy_dtype_promotion=new_val)


def numpy_rank_promotion(new_val: str):
    """`with numpy_rank_promotion("raise"):` arrays of different ranks raise ShapeError; "warn" warns and broadcasts,
    "allow" broadcasts.

    Scalars broadcast in all three. Raises SettingError.

    >>> with hl.numpy_rank_promotion("allow"):
    ...     hnp.array([[1, 2], [3, 4]]) + hnp.array([10, 20])
    Array([[11, 22],
           [13, 24]], dtype=int32)
    """
    return config(numpy_rank_promotion=new_val)


@contextlib.contextmanager
def log_compiles(new_val: bool = True):
    """`with log_compiles():` each compilation and its reason are logged to standard error (HLOOM_DEBUG=1)."""
    with config(debug=max(1, config.debug) if new_val else 0):
        yield


explain_cache_misses = log_compiles


# --- settings of JAX that change nothing here -------------------------------------------------------------------------


def _accepting(name: str, values: tuple, doc: str, repair: str | None = None):
    """A context that accepts these values and changes nothing. Raises ArgumentError for others."""

    @contextlib.contextmanager
    def context(new_val):
        if new_val not in values and not hasattr(new_val, "name"):
            raise ArgumentError(name, f"{new_val!r:.40}", repair or f"one of {', '.join(map(str, values))}")
        yield

    context.__name__ = context.__qualname__ = name
    context.__doc__ = doc
    return context


default_matmul_precision = _accepting(
    "default_matmul_precision",
    ("default", "high", "highest", "bfloat16", "bfloat16_3x", "tensorfloat32", "float32", None),
    "Accepts the names of JAX's precisions. Products have the full precision of their dtype, except those of float32 "
    "on GPUs with `hl.config.cuda_tf32`.",
)


def _guard(name: str):
    levels = ("allow", "log", "disallow", "log_explicit", "disallow_explicit")
    return _accepting(
        name, levels, "Accepts JAX's levels. The CPU's arrays are in the host's memory: nothing is transferred."
    )


transfer_guard = _guard("transfer_guard")
transfer_guard_device_to_device = _guard("transfer_guard_device_to_device")
transfer_guard_device_to_host = _guard("transfer_guard_device_to_host")
transfer_guard_host_to_device = _guard("transfer_guard_host_to_device")
