"""hloom.lax: against jax.lax where it is installed, and the rules that are hloom's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from frontend import both, close, one, sample, staged

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import AttributeValueError, DTypeError, ShapeError, TracerConversionError

X, Y = sample((2, 3), "float32"), sample((2, 3), "float32", 1)
N, K = sample((2, 3), "int32", 2, -50, 50), sample((2, 3), "int32", 3, 1, 9)

CASES = """
L.add(x, y)
L.sub(x, y)
L.mul(x, y)
L.div(x, y)
L.div(n, k)
L.rem(n, k)
L.rem(x, y)
L.pow(L.abs(x), y)
L.integer_pow(x, 3)
L.integer_pow(x, -2)
L.integer_pow(x, 0)
L.max(x, y)
L.min(n, k)
L.neg(x)
L.abs(n)
L.sign(x)
L.exp(x)
L.exp2(x)
L.expm1(x)
L.log(L.abs(x))
L.log1p(L.abs(x))
L.tanh(x)
L.logistic(x)
L.sin(x)
L.cos(x)
L.tan(x)
L.asin(x / 4)
L.acos(x / 4)
L.atan(x)
L.atan2(x, y)
L.sinh(x)
L.cosh(x)
L.asinh(x)
L.acosh(L.abs(x) + 1)
L.atanh(x / 4)
L.erf(x)
L.erfc(x)
L.rsqrt(L.abs(x))
L.sqrt(L.abs(x))
L.cbrt(x)
L.floor(x)
L.ceil(x)
L.round(x)
L.round(x, L.RoundingMethod.TO_NEAREST_EVEN)
L.is_finite(x / 0.0)
L.bitwise_and(n, k)
L.bitwise_or(n, k)
L.bitwise_xor(n, k)
L.bitwise_not(n)
L.shift_left(n, k)
L.shift_right_logical(n, k)
L.shift_right_arithmetic(n, k)
L.population_count(n)
L.clz(n)
L.complex(x, y)
L.real(L.complex(x, y))
L.imag(L.complex(x, y))
L.conj(L.complex(x, y))
L.square(x)
L.reciprocal(x)
L.eq(x, x)
L.ne(n, k)
L.lt(x, y)
L.le(x, y)
L.gt(n, k)
L.ge(n, k)
L.select(x > y, x, y)
L.clamp(-1.0, x, 1.0)
L.convert_element_type(x, "int32")
L.bitcast_convert_type(x, "int32")
L.bitcast_convert_type(x, "int16")
L.reduce_precision(x, 5, 3)
L.iota("int32", 5)
L.broadcasted_iota("float32", (2, 3), 1)
L.full((2, 3), 4.0)
L.full_like(x, 2)
L.broadcast(x, (4, 5))
L.broadcast_in_dim(x, (2, 5, 3), (0, 2))
L.broadcast_in_dim(x[:1], (7, 3), (0, 1))
L.reshape(x, (3, 2))
L.reshape(x, (6,), (1, 0))
L.transpose(x, (1, 0))
L.rev(x, (1,))
L.slice(x, (0, 1), (2, 3))
L.slice(x, (0, 0), (2, 3), (1, 2))
L.slice_in_dim(x, 1, None, axis=1)
L.slice_in_dim(x, -2, -1, axis=1)
L.index_in_dim(x, -1, 1)
L.index_in_dim(x, 1, 0, keepdims=False)
L.dynamic_slice(x, (0, 1), (2, 2))
L.dynamic_slice(x, (k[0, 0], -2), (1, 2))
L.dynamic_slice_in_dim(x, k[0, 0], 2, 1)
L.dynamic_index_in_dim(x, 1, 0, keepdims=False)
L.dynamic_update_slice(x, y[:1, :2], (1, 1))
L.dynamic_update_slice_in_dim(x, y[:, :1], -1, 1)
L.dynamic_update_index_in_dim(x, y[0], 1, 0)
L.pad(x, 0.5, ((1, 2, 0), (-1, 1, 2)))
L.concatenate([x, y], 1)
L.squeeze(x[:1], (0,))
L.expand_dims(x, (0, 3))
L.reduce_max(x, (0,))
L.reduce_min(x, (0, 1))
L.reduce_sum(x, (1,))
L.reduce_prod(x, (1,))
L.reduce_and(x > y, (0,))
L.reduce_or(x > y, (0,))
L.reduce_xor(n, (0,))
L.argmax(x, 1, "int32")
L.argmin(x, 0, "int32")
L.dot(x, y.T)
L.dot(x[0], y[0])
L.dot_general(x, y, (((1,), (1,)), ((0,), (0,))))
L.dot_general(n, k, (((1,), (1,)), ((), ())), preferred_element_type="float32")
L.batch_matmul(x[None], y.T[None])
L.reduce(x, -9.0, L.max, (1,))
L.reduce((x, y), (0.0, 1.0), lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,))
L.stop_gradient(x)
L.cumsum(x, 1)
L.cumsum(n, 0, reverse=True)
L.cumprod(x, 1, reverse=True)
L.cummax(x, 1)
L.cummin(n, 1)
L.cumlogsumexp(x, 1)
L.select_n(x > y, x, y)
L.split(x, (1, 2), axis=1)
L.collapse(x[None], 0, 2)
L.optimization_barrier((x, n))
""".strip().splitlines()


@pytest.mark.parametrize("case", CASES)
def test_the_same_expression_in_jax(case):
    jax = pytest.importorskip("jax")

    def run(module):
        return lambda x, y, n, k: eval(case, {"L": module, "x": x, "y": y, "n": n, "k": k})

    expected = jax.tree.leaves(run(jax.lax)(*map(jax.numpy.asarray, (X, Y, N, K))))
    results = both(run(lax), X, Y, N, K)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == wanted.dtype
        close(result, wanted, None, 5.0)


def test_erfc_is_exact_where_one_minus_erf_cancels():
    x = np.array([0.0, 0.5, 1.0, 2.5, 5.0, 9.0, 26.0, 40.0, -0.5, -3.0, -40.0, np.inf, -np.inf, np.nan])
    expected = np.array([math.erfc(v) for v in x])
    np.testing.assert_allclose(one(lax.erfc, x), expected, rtol=3e-14)
    np.testing.assert_allclose(one(lax.erfc, x.astype(np.float32))[:6], expected[:6].astype(np.float32), rtol=1e-5)
    slope = np.asarray(hl.grad(lambda x: hnp.sum(lax.erfc(x)))(hnp.asarray(x[:11])))
    np.testing.assert_allclose(slope, -2 / math.sqrt(math.pi) * np.exp(-(x[:11] ** 2)), rtol=1e-10, atol=1e-300)


def test_python_numbers_take_dtype_and_shape():
    x = hnp.ones((2, 3), "float16")
    assert lax.add(x, 1).dtype == np.float16 and lax.mul(2.0, x).shape == (2, 3)
    assert lax.add(1, 2).weak and float(lax.sub(1, 2.5)) == -1.5
    with pytest.raises(DTypeError, match="s32\\[2\\] and the Python number 1.5"):
        lax.add(hnp.ones(2, "int32"), 1.5)


def test_nothing_is_promoted_and_ranks_are_kept():
    with pytest.raises(DTypeError, match="one dtype"):
        lax.add(hnp.ones(2), hnp.ones(2, "int32"))
    with pytest.raises(ShapeError, match="one rank"):
        lax.add(hnp.ones(2), hnp.ones((1, 2)))


def test_dynamic_windows_stay_inside():
    x = np.arange(5, dtype=np.float32)
    for start, expected in [(3, [2, 3, 4]), (-2, [2, 3, 4]), (-9, [0, 1, 2]), (0, [0, 1, 2])]:
        result = one(lambda x, s: lax.dynamic_slice(x, (s,), (3,)), x, np.int32(start))
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(np.asarray(lax.dynamic_slice(x, (start,), (3,))), expected)
    assert one(lambda x, s: lax.dynamic_slice(x, s, (1,)), x, np.int32([2])) == 2


def test_reductions_with_a_function_of_the_users():
    def larger_by_size(a, b):
        return hnp.where(abs(a) >= abs(b), a, b)

    x = np.array([[1.0, -5.0, 2.0], [0.5, 0.25, -0.5]], np.float32)
    np.testing.assert_array_equal(one(lambda x: lax.reduce(x, 0.0, larger_by_size, (1,)), x), [-5.0, 0.5])
    with pytest.raises(TracerConversionError, match="traced value from outside"):
        staged(lambda x, y: lax.reduce(x, 0.0, lambda a, b: a + b * y, (1,)), hnp.asarray(x), hnp.asarray(2.0))
    with pytest.raises(ShapeError, match="an initial value for each operand"):
        lax.reduce((x, x), (0.0,), lax.add, (0,))


def test_stop_gradient_stops_it():
    assert float(hl.grad(lambda x: x * lax.stop_gradient(x))(3.0)) == 3.0
    tree = lax.stop_gradient({"a": hnp.ones(2), "n": 1})
    assert tree["n"].dtype == np.int32 and tree["a"].shape == (2,)


def test_custom_calls_run_what_is_registered():
    hl.register_custom_call("test_lax_double", lambda x: x * 2)
    x = sample((3,), "float32")
    np.testing.assert_array_equal(one(lambda x: lax.custom_call("test_lax_double", x, shape=("f32", (3,))), x), x * 2)
    with pytest.raises(AttributeValueError, match="the shape of its result"):
        lax.custom_call("test_lax_double", x, shape=3)


def test_constants_are_shared_within_a_trace():
    from hloom import tree
    from hloom.tracing.trace import trace_function

    x = hnp.ones(3)
    _, structure = tree.flatten(((x,), {}))
    traced = trace_function(lambda x: (x * 2.0 + 2.0) * -0.0 + 0.0, [x._shape], structure, "f")
    constants = [i["value"].item() for i in traced.computation.instructions if i.opcode == "constant"]
    assert sorted(map(str, constants)) == ["-0.0", "0.0", "2.0"]


def test_errors_of_movement():
    x = hnp.ones((2, 3))
    with pytest.raises(ShapeError, match="keeps the number of elements"):
        lax.reshape(x, (4,))
    with pytest.raises(ShapeError, match="stretches dimensions of size 1"):
        lax.broadcast_in_dim(x, (2, 4), (0, 1))
    with pytest.raises(ShapeError, match="each axis once"):
        lax.transpose(x, (0, 0))
    with pytest.raises(AttributeValueError, match="0 <= start <= limit"):
        lax.slice(x, (0, 2), (2, 4))
    with pytest.raises(ShapeError, match="removes axes of size 1"):
        lax.squeeze(x, (0,))
    with pytest.raises(ShapeError, match="a start index for each dimension"):
        lax.dynamic_slice(x, (0,), (1, 1))


def test_a_bitcast_that_changes_the_extents_compiles_behind_other_work():
    x = np.arange(12, dtype=np.float64).reshape(3, 4)
    expected = (x * 2).view(np.int32).reshape(3, 4, 2) + 1
    narrow = hl.jit(lambda v: lax.bitcast_convert_type(v * 2, "int32") + np.int32(1))
    np.testing.assert_array_equal(np.asarray(narrow(x)), expected)
    np.testing.assert_array_equal(
        np.asarray(hl.jit(lambda v: lax.bitcast_convert_type(v - np.int32(1), "float64") / 2)(expected)), x
    )


def test_a_barrier_of_several_arrays_is_text_that_xla_reads():
    from hloom.ir.text import parse_module, print_module

    hlo = pytest.importorskip("jaxlib._hlo")

    def f(x, y):
        a, b = lax.optimization_barrier((x + 1, y * 2))
        return a + b

    jitted, ones = hl.jit(f), np.ones(3, np.float32)
    for text in (jitted.lower(ones, ones).as_text(), jitted.lower(ones, ones).compile().as_text()):
        assert "opt-barrier" in text
        hlo.hlo_module_from_text(text)
        assert print_module(parse_module(text)) == text
    assert np.asarray(jitted(ones, ones)).tolist() == [4, 4, 4]


def test_a_program_of_a_custom_call_alone():
    hl.register_custom_call("test_lax_twice", lambda a: a * 2)
    alone = hl.jit(lambda x: lax.custom_call("test_lax_twice", x, shape=("f32", (3,))))
    for _ in range(2):
        assert np.asarray(alone(np.ones(3, np.float32))).tolist() == [2, 2, 2]
    wrong = hl.jit(lambda x: lax.custom_call("test_lax_twice", x, shape=("f32", (4,))))
    with pytest.raises(ShapeError, match="promised"):
        wrong(np.ones(3, np.float32))


def test_dynamic_windows_with_negative_starts():
    x = hnp.arange(10)
    np.testing.assert_array_equal(lax.dynamic_slice(x, (-3,), (2,)), [7, 8])
    np.testing.assert_array_equal(lax.dynamic_slice(x, (-3,), (2,), allow_negative_indices=False), [0, 1])
    np.testing.assert_array_equal(lax.dynamic_slice_in_dim(x, hnp.asarray(-3), 2, allow_negative_indices=False), [0, 1])
    np.testing.assert_array_equal(
        lax.dynamic_update_slice(x, hnp.asarray([70]), (hnp.asarray(-3),), allow_negative_indices=[False])[:2], [70, 1]
    )
    assert lax.dynamic_index_in_dim(x, -3, keepdims=False) == 7
