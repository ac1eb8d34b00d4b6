"""Functions of `hloom.lax` about programs: named parts, values kept alive, and random numbers without a key."""

from __future__ import annotations

import functools

import numpy as np

from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.errors import ArgumentError, DTypeError
from hloom.ir.types import FLOATS
from hloom.lax.operands import as_operand, canonical_shape, convert, promote_operands
from hloom.lax.table import add, mul, sub
from hloom.tracing.callback import debug_callback, io_callback
from hloom.tree import pytrees as tree


def composite(decomposition, name: str, version: int = 0):
    """decomposition as a part of the program with a name and a version, for compilers that know it by them.

    hloom compiles what decomposition does; its array arguments go by position, attributes by name. Raises
    ArgumentError.

    >>> square = hl.lax.composite(lambda x: x * x, "mine.square")
    >>> square(hnp.array([1.0, 3.0]))
    Array([1., 9.], dtype=float32)
    """
    if not callable(decomposition) or not isinstance(name, str):
        raise ArgumentError(
            "composite takes a function and a name", f"{decomposition!r:.40}, {name!r:.40}", "pass both"
        )

    @functools.wraps(decomposition)
    def call(*args, **attributes):
        return decomposition(*args, **attributes)

    return call


def dce_sink(val, *, prevent_mlir_dce: bool = False) -> None:
    """Keeps what computes val (an array or a tree of them) in the program, though nothing uses it."""
    debug_callback(_nothing, val)


def _nothing(value) -> None:
    """What a kept value is given to."""


def rng_uniform(a, b, shape):
    """Uniform random numbers in [a, b) from the system's entropy: others each time, and no key. Raises DTypeError.

    a, b: float scalars. `hloom.random` makes numbers that can be made again.
    """
    (low, high), _ = promote_operands("rng_uniform", (a, b))
    if low.dtype not in FLOATS or low.ndim:
        raise DTypeError("rng_uniform takes float scalars", f"{low._shape!r}", "use hloom.random.randint for integers")

    dims = canonical_shape(shape, "rng_uniform")
    share = convert(io_callback(_uniform(dims), ShapeDtypeStruct(dims, np.float32)), low.dtype)
    return add(mul(share, sub(high, low)), low)


def _uniform(dims):
    return lambda: np.random.default_rng().random(dims, np.float32)


def pcast(x, axis_name, *, to: str):
    """x (an array or a tree of them), seen as the same or as different on the devices of named axes.

    to: 'varying' or 'reduced' or 'unreduced' or 'invariant'. Values need no such mark here: x itself. Raises
    ArgumentError.
    """
    if to not in ("varying", "reduced", "unreduced", "invariant"):
        raise ArgumentError("pcast to a kind of value", f"to={to!r}", "pass 'varying'")
    return tree.map(lambda leaf: as_operand(leaf, "pcast"), x)
