"""Functions of `hloom.lax` for programs: named parts, liveness, and random numbers without a key."""

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
    """Calls decomposition as a named and versioned part of the program, for compilers that recognize the name.

    hloom compiles the decomposition; array arguments are passed by position, attributes by name. Raises
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
    """Keeps the computation of val (an array or a tree of them) in the program although it is unused."""
    debug_callback(_nothing, val)


def _nothing(value) -> None:
    """The consumer of a kept value."""


def rng_uniform(a, b, shape):
    """Uniform random numbers in [a, b) from the system's entropy: different each time, without a key. Raises
    DTypeError.

    a, b: float scalars. `hloom.random` has reproducible numbers.
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
    """Marks x (an array or a tree of them) as equal or as varying over the devices of named axes.

    to: 'varying' or 'reduced' or 'unreduced' or 'invariant'. hloom needs no such mark: returns x itself. Raises
    ArgumentError.
    """
    if to not in ("varying", "reduced", "unreduced", "invariant"):
        raise ArgumentError("pcast to a kind of value", f"to={to!r}", "pass 'varying'")
    return tree.map(lambda leaf: as_operand(leaf, "pcast"), x)
