"""What the tests of the array functions share: inputs, and running a function at once and traced."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import hloom.numpy as hnp
from hloom import tree
from hloom.ir.interpret import evaluate
from hloom.tracing.trace import trace_function

SHAPES = [(), (0,), (1,), (5,), (2, 3), (1, 4), (3, 0, 2), (2, 1, 3)]
# With f64 results NumPy and hloom agree to a few units in the last place.
TOLERANCE = {
    "float16": 2e-3,
    "bfloat16": 2e-2,
    "float32": 3e-6,
    "float64": 1e-13,
    "complex64": 5e-6,
    "complex128": 1e-13,
}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-3, 3.75, np.inf, -np.inf, np.nan]


def staged(function, *arrays):
    """`function` as inside jit: traced on arguments without values, then interpreted."""
    leaves, structure = tree.flatten((arrays, {}))
    leaves = [hnp.asarray(leaf) for leaf in leaves]
    traced = trace_function(function, leaves, structure, "staged")
    result = evaluate(traced.computation, [leaf._value() for leaf in leaves])
    return tree.unflatten(traced.out_tree, result if isinstance(result, tuple) else [result])


def both(function, *arrays):
    """The results (NumPy arrays, a list) of a function at once; asserts that those of the traced one are the same."""
    arrays = [hnp.asarray(a) for a in arrays]
    eager = tree.leaves(function(*arrays))
    traced = tree.leaves(staged(function, *arrays))
    assert len(eager) == len(traced)
    for a, b in zip(eager, traced, strict=True):
        a = np.asarray(a)
        assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
        np.testing.assert_array_equal(a, b)
    return [np.asarray(e) for e in eager]


def one(function, *arrays):
    (result,) = both(function, *arrays)
    return result


def close(actual, expected, dtype=None, scale: float = 1.0):
    """Equal extents, and elements as near as the dtype of the result allows."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    if actual.dtype.kind in "biu":
        np.testing.assert_array_equal(actual, expected.astype(actual.dtype))
        return
    tolerance = scale * TOLERANCE[str(dtype or actual.dtype)]
    wide = np.complex128 if actual.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(actual.astype(wide), expected.astype(wide), rtol=tolerance, atol=tolerance)


def sample(shape, dtype, seed: int = 0, low: float = -3.0, high: float = 3.0) -> np.ndarray:
    """Numbers between low and high, of any dtype."""
    rng = np.random.default_rng([seed, len(shape), *shape])
    dtype = np.dtype(dtype)
    values = rng.uniform(low, high, shape)
    if dtype.kind == "b":
        return np.asarray(values > (low + high) / 2)
    if dtype.kind == "u":
        return np.asarray(np.abs(values)).astype(dtype)
    if dtype.kind == "c":
        return np.asarray(values + 1j * rng.uniform(low, high, shape)).astype(dtype)
    return np.asarray(values).astype(dtype)


bfloat16 = np.dtype(ml_dtypes.bfloat16)
