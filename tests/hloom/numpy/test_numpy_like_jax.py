"""Shapes, dtypes and weakness of what hloom.numpy's functions return are those of jax.numpy.

JAX is asked by `jax.eval_shape`, which computes nothing; `x` is (3, 4), `v` its first row, both of each dtype, `s` one
element. What is refused by one of both is left out: tests of errors pin that. The values are compared with NumPy's and
JAX's in the tests beside this one.
"""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp

jax = pytest.importorskip("jax", reason="jax is not installed")
import jax.numpy as jnp  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # JAX announces changes

DTYPES = ["bool", "int8", "uint8", "int32", "float16", "bfloat16", "float32", "complex64"]

UNARY = """
abs acos acosh angle arcsin arctan around asinh atanh bitwise_count bitwise_invert cbrt ceil conj cos cosh deg2rad exp
exp2 expm1 fabs floor frexp i0 imag invert iscomplex isfinite isinf isnan isneginf isposinf isreal log log10 log1p
log2 logical_not modf nan_to_num negative positive rad2deg real reciprocal rint sign signbit sin sinc sinh spacing
sqrt square tan tanh trunc copy ravel atleast_1d atleast_3d transpose flip zeros_like ones_like empty_like sort
argsort rot90 tril triu diff ediff1d gradient cumsum cumprod nancumsum cumulative_sum all any max min sum prod mean
std var median ptp count_nonzero argmax argmin nanargmax nanmax nanmean nanmedian nanprod nanstd nansum nanvar average
trace cov corrcoef trapezoid diag diagflat diagonal matrix_transpose squeeze swapaxes unstack linalg.norm
linalg.vector_norm linalg.svdvals linalg.pinv linalg.matrix_rank fft.fft fft.ifft fft.rfft fft.irfft fft.fft2
fft.fftshift packbits array asarray
""".split()
BINARY = """
add arctan2 bitwise_and bitwise_or bitwise_xor copysign divide divmod equal float_power floor_divide fmax fmin fmod
gcd greater heaviside hypot lcm ldexp left_shift less logaddexp logaddexp2 logical_and logical_xor maximum minimum mod
multiply nextafter not_equal power remainder right_shift subtract true_divide isclose allclose array_equal dot inner
outer kron tensordot vdot convolve correlate append isin searchsorted polyadd polymul polyval cross vecdot matmul
""".split()
CALLS = """
m.roll(x, 1, 0)
m.clip(x, 0, 3)
m.clip(x, None, 2.5)
m.repeat(x, 2, axis=1)
m.take(x, m.array([0, 2]), axis=1)
m.take(x, m.array([5, -9]), axis=0, mode="clip")
m.concatenate([x, x], axis=None)
m.stack([x, x], axis=1)
m.vstack([x, v])
m.block([[x, x], [x, x]])
m.delete(x, 1, axis=0)
m.insert(x, 1, 1, axis=0)
m.unique(x, size=4, return_counts=True)
m.quantile(x, 0.3)
m.percentile(x, m.array([20.0, 70.0]), axis=0, keepdims=True)
m.nanquantile(x, m.array([0.2]), axis=1, method="lower")
m.std(x, axis=0, ddof=1, keepdims=True)
m.var(x, dtype="float32")
m.sum(x, axis=(0, 1), keepdims=True)
m.sum(x, dtype="float16")
m.sum(x, promote_integers=False)
m.max(x, initial=2, axis=0)
m.average(x, axis=0, weights=m.ones(3))
m.cumsum(x, axis=0, dtype="float32")
m.linalg.norm(x, ord=1, axis=0)
m.linalg.matrix_power(x[:3, :3], 3)
m.linalg.det(x[:3, :3].astype("float32"))
m.split(x, 2, axis=1)
m.array_split(x, 3, axis=1)
m.pad(x, 1)
m.pad(x, 1, mode="edge")
m.pad(x, ((1, 0), (2, 1)), mode="reflect")
m.select([x == x, x != x], [x, x + x], 0)
m.choose(m.array([0, 1, 0, 1]), [v, v])
m.where(x == x, x, 1)
m.where(x == x, x, 1.5)
m.where(x == x, 1, 2.0)
m.piecewise(v, [v == v], [lambda y: y, 0])
m.nonzero(v, size=3)
m.argwhere(x, size=3)
m.extract(x == x, x, size=3)
m.compress(np.array([True, False, True]), x, axis=0)
m.einsum("ij,kj->ik", x, x)
m.einsum("ij->j", x)
m.matmul(x, x.T, preferred_element_type="float32")
m.interp(v, m.arange(3.0), m.arange(3.0))
m.digitize(v, m.array([0.0, 1.0]))
m.bincount(v, length=4)
m.histogram(v, bins=3)
m.put_along_axis(x, m.array([[1], [0], [2]]), 1, axis=1, inplace=False)
m.take_along_axis(x, m.array([[1], [0], [2]]), axis=1)
m.fill_diagonal(x, 1, inplace=False)
m.resize(x, (2, 7))
m.tile(x, (2, 1, 2))
m.moveaxis(x, 0, -1)
m.reshape(x, (2, -1), order="F")
m.broadcast_to(v, (3, 4))
m.meshgrid(v, v, indexing="ij", sparse=True)
m.trapezoid(x, x=m.arange(4.0))
m.gradient(v, 2.0)
m.polyint(v, 2)
m.polyder(v)
m.vander(v, 3)
m.round(x, 1)
m.full((2, 4), v)
m.full_like(x, 1.5)
m.full_like(x, 1, shape=(2,))
m.zeros_like(x, dtype="float16")
m.astype(x, "int8")
m.fft.fftn(x, s=(2, 5), norm="forward")
m.fft.irfft(x, n=5)
m.unravel_index(v, (3, 4))
m.apply_along_axis(m.sum, 0, x)
m.searchsorted(m.sort(v), v, side="right")
m.nan_to_num(x, nan=1.0)
m.linspace(s, 3, 4)
m.geomspace(1, s, 3)
x + 1
x * 1.5
1.5 - x
x / 2
2 ** x
x ** 2
x ** 0.5
x // 2
7 % (x + 1)
x << 1
x & 1
x == 1
-x
~x
x @ x.T
x + np.float32(1)
x + m.ones(4, "float16")
x.at[0].set(1.5)
x.at[0].add(v)
x.at[m.array([0, 0])].multiply(2)
x.at[0].apply(m.abs)
x[..., None, ::-2]
x[m.array([0, -1]), 1:3]
x.mean(0)
x.astype("float32").sum()
x.view("uint8")
""".strip().splitlines()
NUMBERS = """
m.add(1, 2.5)
m.exp(1)
m.sum(3)
m.where(True, 1, 2.0)
m.full(2, 3)
m.stack([1, 2])
m.concatenate([m.atleast_1d(1), m.atleast_1d(2.0)])
m.asarray(1) + m.arange(3, dtype="int8")
m.array(1) + m.arange(3, dtype="int8")
m.linspace(0, 1, 3) + m.ones(3, "float16")
m.dot(2, m.ones(3, "float16"))
m.mean(3)
m.divmod(7, 2)
m.zeros_like(1)
m.broadcast_to(1, (2,))
m.real(1j)
m.arange(3) * 1.5
m.arange(0, 1, 0.3)
m.round(2.567, 1)
m.eye(3, 4, 1, dtype="int8")
m.indices((2, 3), sparse=True)
m.tril_indices(3, 1, 4)
m.hanning(5)
m.logspace(0, 2, 3)
m.array([1, 2.5])
m.array([m.int8(1), 2])
m.fft.fftfreq(7, d=0.2)
""".strip().splitlines()

# What differs, and why: (part of the name, what is not compared).
DIFFERENT = {
    "angle": "narrow floats stay narrow",
    "polyval bool": "booleans are added as numbers",
    "polyval True": "booleans are added as numbers",
    "m.unravel_index(v, (3, 4))": "positions in narrow integers would overflow",
}
# JAX's weakness follows from how it computes these; hloom's from what they are made of.
WEAKNESS_DIFFERS = """
dot gcd greater heaviside hypot inner kron lcm ldexp less logaddexp2 outer power reciprocal m.gradient 2**
""".split()


def described(result) -> list:
    """(shape, dtype, weak) of each array of a result."""
    leaves = jax.tree.leaves(result) if not isinstance(result, hl.Array) else [result]
    return [(tuple(a.shape), str(a.dtype), bool(getattr(a, "weak_type", False))) for a in leaves if hasattr(a, "dtype")]


def arguments(dtype):
    x = (np.arange(12).reshape(3, 4) % 5).astype(jnp.dtype(dtype))
    return x, x[0].copy(), np.asarray(x[0, 1])


def compared(function, *arrays):
    """(what JAX gives, what hloom gives), or None where one of them refuses."""
    try:
        theirs = described(jax.eval_shape(lambda *a: function(jnp, *a), *arrays))
        ours = described(function(hnp, *map(hnp.asarray, arrays)))
    except Exception:
        return None
    return theirs, ours


def call(expression: str):
    return eval(f"lambda m, x, v, s: {expression}", {"np": np})


def attribute(module, name: str):
    for part in name.split("."):
        module = getattr(module, part)
    return module


def differences(cases) -> tuple[dict, int]:
    """The cases that differ unexpectedly, and how many were compared."""
    wrong, count = {}, 0
    for name, function, arrays in cases:
        found = compared(function, *arrays)
        count += found is not None
        if found is None or found[0] == found[1] or name.startswith(tuple(DIFFERENT)):
            continue
        if any(word in name.replace(" ", "") for word in WEAKNESS_DIFFERS):
            if [f[:2] for f in found[0]] == [f[:2] for f in found[1]]:
                continue
        wrong[name] = f"JAX {found[0]}, hloom {found[1]}"
    return wrong, count


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_one_array(dtype):
    x, v, _ = arguments(dtype)
    cases = []
    for name in UNARY:
        rest = (1, 0) if name == "swapaxes" else ()
        for array in (x, v):
            cases.append((f"{name} {array.shape}", lambda m, a, n=name, r=rest: attribute(m, n)(a, *r), (array,)))
    wrong, count = differences(cases)
    assert not wrong and count > 150


@pytest.mark.parametrize("dtype", DTYPES)
def test_calls(dtype):
    wrong, count = differences([(text, call(text), arguments(dtype)) for text in CALLS])
    assert not wrong and count > 80


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_two(dtype):
    v, cases = arguments(dtype)[1], []
    for name in BINARY:
        for other in ("bool", "uint8", "bfloat16", "complex64"):
            pair = (v, arguments(other)[1])
            cases.append((f"{name} {other}", lambda m, a, b, n=name: attribute(m, n)(a, b), pair))
        for number in (2, 1.5):
            cases.append((f"{name} {number}", lambda m, a, n=name, k=number: attribute(m, n)(a, k), (v,)))
            cases.append((f"{number} {name}", lambda m, a, n=name, k=number: attribute(m, n)(k, a), (v,)))
    wrong, count = differences(cases)
    assert not wrong and count > 200


def test_functions_of_numbers():
    cases = [(text, lambda m, t=text: call(t)(m, None, None, None), ()) for text in NUMBERS]
    wrong, count = differences(cases)
    assert not wrong and count == len(NUMBERS)


def test_a_difference_is_seen():
    x = np.ones(3, np.float32)
    assert compared(lambda m, a: a.astype("int8") if m is jnp else a, x) == (
        [((3,), "int8", False)],
        [((3,), "float32", False)],
    )
    assert differences([("x", lambda m, a: a[: 2 + (m is jnp)], (x,))])[0]
    assert compared(lambda m, a: m.nonsense(a), x) is None
