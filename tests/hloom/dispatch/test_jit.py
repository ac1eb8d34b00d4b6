"""`hl.jit`: forms, trees, static arguments, donation, nesting, looking in, and what tracing leaves behind."""

from __future__ import annotations

import functools
import inspect
import warnings

import numpy as np
import pytest
from silence import no_warnings

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import (
    ArgumentError,
    DeviceError,
    DonatedArrayError,
    DonationWarning,
    LeakedTracerError,
    TracerBoolError,
    TracerConversionError,
)
from hloom.runtime.buffer import statistics
from hloom.tracing.trace import current_trace

pytestmark = pytest.mark.quick

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def here() -> int:
    """The line of the caller."""
    return inspect.currentframe().f_back.f_lineno


# --- forms --------------------------------------------------------------------------------------------------------


def test_decorator_forms():
    @hl.jit
    def plain(x):
        """Doubles."""
        return x * 2

    @hl.jit(static_argnums=1)
    def with_options(x, n):
        return x * n

    called = hl.jit(lambda x: x * 2)
    partial = hl.jit(functools.partial(lambda n, x: x * n, 2))
    for result in (plain(X), with_options(X, 2), called(X), partial(X)):
        assert isinstance(result, hl.Array)
        np.testing.assert_array_equal(result, X * 2)
    assert plain.__name__ == "plain" and plain.__doc__ == "Doubles."


def test_what_is_no_function_is_refused():
    with pytest.raises(ArgumentError, match="jit takes a function"):
        hl.jit(3)


def test_methods():
    class Layer:
        def __init__(self, factor):
            self.factor = factor

        @hl.jit
        def by_static(self, x):
            return x * self.factor

        @functools.partial(hl.jit, static_argnums=0)
        def by_number(self, x):
            return x + self.factor

    with pytest.raises(ArgumentError):  # self is no tree of arrays
        Layer(2).by_static(X)
    np.testing.assert_array_equal(Layer(2).by_number(X), X + 2)
    np.testing.assert_array_equal(Layer(3).by_number(X), X + 3)


def test_keyword_arguments_and_defaults():
    @hl.jit
    def f(x, *, scale=2.0, shift=None):
        return x * scale if shift is None else x * scale + shift

    np.testing.assert_array_equal(f(X), X * 2)
    np.testing.assert_array_equal(f(X, scale=3.0), X * 3)
    np.testing.assert_array_equal(f(X, shift=X, scale=3.0), X * 4)
    np.testing.assert_array_equal(f(X, scale=3.0, shift=X), X * 4)
    assert f(x=X).shape == (2, 3)


def test_trees_in_and_out():
    @hl.jit
    def f(tree, rest):
        a, (b, none) = tree["pair"]
        return {"sum": a + b, "none": none, "list": [a, rest], "scalar": 3, "empty": ()}

    result = f({"pair": (X, (X, None))}, 2.0)
    assert set(result) == {"sum", "none", "list", "scalar", "empty"} and result["none"] is None
    np.testing.assert_array_equal(result["sum"], X * 2)
    assert isinstance(result["list"], list) and float(result["list"][1]) == 2.0
    assert int(result["scalar"]) == 3 and result["empty"] == ()


def test_a_function_of_nothing_and_one_that_returns_nothing():
    assert hl.jit(lambda: None)() is None
    assert float(hl.jit(lambda: hnp.ones(()) + 1)()) == 2.0


def test_scalars_are_weak_and_64_bits_stay():
    f = hl.jit(lambda x, s: x * s)
    assert f(np.ones(3, np.float16), 2.0).dtype == np.float16
    assert f(np.ones(3, np.float32), 2).dtype == np.float32
    assert f(np.ones(3, np.float64), 2.0).dtype == np.float64
    assert f(np.arange(3, dtype=np.int64), 2).dtype == np.int64
    assert hl.jit(lambda s: s + 1)(2).weak
    assert f(np.ones(3, np.float32), np.float64(2)).dtype == np.float64


# --- static arguments ---------------------------------------------------------------------------------------------


def test_static_by_number_by_name_and_negative():
    def power(x, n, kind="plain"):
        for _ in range(n - 1):
            x = x * x if kind == "square" else x * 1.0 * X
        return x

    by_number = hl.jit(power, static_argnums=(1, 2))
    by_name = hl.jit(power, static_argnames=("n", "kind"))
    negative = hl.jit(power, static_argnums=(-2, -1))
    for f in (by_number, by_name, negative):
        np.testing.assert_array_equal(f(X, 3, "plain"), X**3)
        np.testing.assert_array_equal(f(X, 2, "square"), X**2)
    np.testing.assert_array_equal(by_name(X, n=3, kind="plain"), X**3)
    np.testing.assert_array_equal(by_number(X, n=2, kind="square"), X**2)


def test_equal_static_values_of_different_types_are_different():
    f = hl.jit(lambda x, n: x * 0 + (10 if n is True else 20 if isinstance(n, int) else 30), static_argnums=1)
    assert [float(f(np.float32(0), n)) for n in (True, 1, 1.0, True)] == [10, 20, 30, 10]


@pytest.mark.parametrize(
    "values",
    [((1, 2), (1.0, 2), (True, 2), (1, 2.0)), (((0.0,),), ((-0.0,),), ((0,),)), (frozenset({1}), frozenset({1.0}))],
    ids=["tuple", "nested", "frozenset"],
)
def test_equal_static_tuples_of_different_types_are_different(values):
    seen = []
    f = hl.jit(lambda x, static: seen.append(static) or x, static_argnums=1)
    for value in [*values, *values]:
        f(1.0, value)
    assert list(map(repr, seen)) == list(map(repr, values))


def test_an_unhashable_static_argument_is_named():
    f = hl.jit(lambda x, table: x, static_argnames="table")
    with pytest.raises(ArgumentError, match="static argument 'table' of '.*' must be hashable") as caught:
        f(X, table=[1, 2])
    assert "list [1, 2]" in str(caught.value) and "pass a tuple" in str(caught.value)


def test_an_argument_that_is_no_array_is_named():
    @hl.jit
    def f(x, mode):
        return x

    with pytest.raises(ArgumentError, match="str: 'fast'") as caught:
        f(X, "fast")
    line = here() - 1
    assert f"{__file__}:{line}" in str(caught.value)


# --- donation -----------------------------------------------------------------------------------------------------


def test_a_donated_buffer_is_reused():
    f = hl.jit(lambda x, y: x + y, donate_argnums=0)
    x, y = hl.jit(lambda x: x * 1)(X), hnp.asarray(X)
    address = x._data.__array_interface__["data"][0]
    result = f(x, y)
    assert result._data.__array_interface__["data"][0] == address
    assert x.is_deleted() and not y.is_deleted()
    for use in (lambda: x + 1, lambda: np.asarray(x), lambda: f(x, y), lambda: float(x[0, 0])):
        with pytest.raises(DonatedArrayError, match="use of a donated array"):
            use()
    assert "donated f32[2,3]" in repr(x)


def test_one_array_given_twice_cannot_be_donated():
    f = hl.jit(lambda x, y: x + y, donate_argnums=0)
    x = hnp.asarray(X) * 1
    with pytest.raises(DonatedArrayError, match="one array twice"):
        f(x, x)


def test_a_donation_that_no_result_can_use_warns():
    f = hl.jit(lambda x, y: hnp.sum(x) + y, donate_argnums=0)
    with pytest.warns(DonationWarning, match=r"Some donated buffers were not usable: .*x f32\[2,3\]") as caught:
        f(hnp.asarray(X) * 1, 1.0)
    assert caught[0].filename == __file__


def test_donated_trees_by_name():
    f = hl.jit(lambda params, step: [p - step for p in params], donate_argnames="params")
    params = [hnp.asarray(X) * 1, hnp.asarray(X) + 1]
    with no_warnings():
        new = f(params=params, step=1.0)
    assert all(p.is_deleted() for p in params)
    np.testing.assert_array_equal(new[1], X)


def test_a_donated_argument_that_is_read_after_the_result_is_made():
    @functools.partial(hl.jit, donate_argnums=0)
    def f(x, y):
        first = hnp.sin(y)
        return first, x[::-1] * hnp.sum(first)

    for fusion in (True, False):
        with hl.config(fusion=fusion), warnings.catch_warnings():
            warnings.simplefilter("ignore", DonationWarning)
            f.clear_cache()
            one, two = f(hnp.asarray(X) * 1, X)
            np.testing.assert_allclose(two, X[::-1] * np.sin(X).sum(), rtol=1e-5)
            np.testing.assert_allclose(one, np.sin(X), rtol=1e-5)


def test_a_training_step_allocates_nothing_after_the_first():
    @functools.partial(hl.jit, donate_argnums=0)
    def step(params, x, y):
        def loss(params):
            w, b = params
            return hnp.mean((hnp.tanh(x @ w + b) - y) ** 2)

        value, gradients = hl.value_and_grad(loss)(params)
        return value, [p - 0.1 * g for p, g in zip(params, gradients, strict=True)]

    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((32, n)).astype(np.float32) for n in (20, 10))
    params = [hnp.asarray(rng.standard_normal(s).astype(np.float32)) * 1 for s in ((20, 10), (10,))]
    losses = []
    for k in range(30):
        value, params = step(params, x, y)
        losses.append(float(value))
        if k == 2:
            before = statistics().bytes_allocated
    assert statistics().bytes_allocated == before
    assert losses[-1] < losses[0]


# --- nesting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inline", [False, True])
def test_jit_within_jit(inline):
    calls = []

    @functools.partial(hl.jit, inline=inline)
    def inner(x):
        calls.append(1)
        return x * 2, x + 1

    @hl.jit
    def outer(x):
        a, b = inner(x)
        c, d = inner(b)
        return a + c, d

    a, d = outer(X)
    np.testing.assert_array_equal(a, 2 * X + 2 * (X + 1))
    np.testing.assert_array_equal(d, X + 2)
    assert len(calls) == 1  # traced once for one shape
    assert (" call(" in outer.lower(X).as_text()) is not inline


def test_jit_of_grad_and_grad_of_jit():
    def f(x):
        return hnp.sum(hnp.tanh(x) * x)

    expected = np.tanh(X) + X * (1 - np.tanh(X) ** 2)
    for g in (hl.jit(hl.grad(f)), hl.grad(hl.jit(f)), hl.jit(hl.grad(hl.jit(f)))):
        np.testing.assert_allclose(g(X), expected, rtol=1e-5, atol=1e-6)
    second = hl.jit(hl.grad(lambda x: hnp.sum(hl.grad(hl.jit(f))(x))))(X)
    assert second.shape == X.shape


def test_a_nested_function_closes_over_a_traced_value():
    @hl.jit
    def outer(x, y):
        inner = hl.jit(lambda z: z + x)
        return inner(y) * inner(y * 2)

    np.testing.assert_array_equal(outer(X, X), 2 * X * 3 * X)
    np.testing.assert_array_equal(outer(X, X + 1), (2 * X + 1) * (3 * X + 2))


def test_closures_over_arrays_are_constants():
    table = hnp.asarray(X)
    mutable = X.copy()
    f = hl.jit(lambda x: x + table + mutable)
    np.testing.assert_array_equal(f(X), 3 * X)
    mutable[:] = 100
    np.testing.assert_array_equal(f(X), 3 * X)


# --- tracing ------------------------------------------------------------------------------------------------------


def test_an_exception_in_the_function_leaves_no_trace_behind():
    @hl.jit
    def broken(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        broken(X)
    assert current_trace() is None
    np.testing.assert_array_equal(hnp.asarray(X) + 1, X + 1)
    with pytest.raises(KeyError):
        hl.jit(lambda x: hl.jit(broken)(x))(X)
    assert current_trace() is None


def test_control_flow_on_a_traced_value():
    @hl.jit
    def f(x):
        return x if x > 0 else -x

    line = here() - 2
    with pytest.raises(TracerBoolError, match="control flow") as caught:
        f(1.0)
    assert f"{__file__}:{line}" in str(caught.value) and "hnp.where" in str(caught.value)
    for use in (float, int, complex, np.asarray, lambda x: [1, 2][x], lambda x: np.sin(x)):
        with pytest.raises(TracerConversionError):
            hl.jit(lambda x, use=use: use(x))(1)


def test_leaked_values_are_found():
    kept = []
    hl.jit(lambda x: kept.append(x * 2) or x)(X)
    (leaked,) = kept
    again = hl.jit(lambda y: y + leaked)
    for use in (lambda: leaked + 1, lambda: hnp.sin(leaked), lambda: float(leaked), lambda: again(X)):
        with pytest.raises(LeakedTracerError, match="after its trace ended"):
            use()


def test_results_that_are_arguments_or_each_other():
    x = hnp.asarray(X)
    a, b, c, d = hl.jit(lambda x, y: (x, x, y + 1, x.reshape(3, 2)))(x, 1.0)
    for result in (a, b):
        np.testing.assert_array_equal(result, X)
    assert not np.shares_memory(np.asarray(a), np.asarray(x)) and not np.shares_memory(np.asarray(a), np.asarray(b))
    assert d.shape == (3, 2) and float(c) == 2.0


def test_a_result_keeps_its_numbers_when_the_function_is_called_again():
    f = hl.jit(lambda x: x + 1)
    results = [f(X * k) for k in range(20)]
    views = [np.asarray(r) for r in results]
    del results
    for k, view in enumerate(views):
        np.testing.assert_array_equal(view, X * k + 1)


# --- looking in ---------------------------------------------------------------------------------------------------


def test_lower_and_compile():
    @hl.jit
    def layer(x, w):
        return hnp.tanh(x @ w)

    w = np.ones((3, 4), np.float32)
    lowered = layer.lower(hl.ShapeDtypeStruct((2, 3), "f32"), w)
    assert "tanh" in lowered.as_text() and "f32[2,3]" in lowered.as_text()
    assert f"{__file__}" in lowered.as_text(metadata=True)
    compiled = lowered.compile()
    np.testing.assert_allclose(compiled(X, w), np.tanh(X @ w), rtol=1e-5)
    assert "fusion" in compiled.as_text() and "def product" in compiled.source()
    costs, memory = compiled.cost_analysis(), compiled.memory_analysis()
    assert costs["kernels"] >= 1 and costs["flops"] >= 2 * 2 * 3 * 4 and costs["transcendentals"] == 2 * 4
    assert costs["bytes accessed"] == 4 * (6 + 12 + 8)
    assert memory["argument bytes"] == 4 * (6 + 12) and memory["output bytes"] == 32
    times = compiled.timings()
    assert list(times) == ["trace", "passes", "plan", "source", "kernels", "front end", "llvm", "load"]
    assert times["trace"] > 0 and times["passes"] > 0 and times["kernels"] >= times["load"] >= 0
    with pytest.raises(ArgumentError, match="takes the arguments it was lowered for"):
        compiled(X.astype(np.float64), w)


def test_fusion_off_is_one_kernel_an_operation():
    f = lambda x: hnp.sin(x) * 2 + 1  # noqa: E731
    fused, unfused = (hl.jit(f, fusion=on).lower(X).compile() for on in (True, False))
    assert fused.cost_analysis()["kernels"] == 1 and unfused.cost_analysis()["kernels"] >= 3
    np.testing.assert_allclose(fused(X), unfused(X), rtol=1e-6)


def test_make_module_and_eval_shape():
    module = hl.make_module(lambda x: x + 1)(hl.ShapeDtypeStruct((4,), "bf16"))
    assert module.entry.root.dims == (4,)
    struct = hl.eval_shape(hl.jit(lambda x: {"y": x @ x.T}), hl.ShapeDtypeStruct((2, 3), "f64"))["y"]
    assert struct == hl.ShapeDtypeStruct((2, 2), "f64")


def test_calling_with_shapes_is_an_error():
    with pytest.raises(ArgumentError, match="ShapeDtypeStruct"):
        hl.jit(lambda x: x + 1)(hl.ShapeDtypeStruct((2,), "f32"))


def test_functions_are_compiled_once_for_each_signature():
    traces = []
    f = hl.jit(lambda x: traces.append(1) or x + 1)
    for x in (X, X, hnp.asarray(X), X.T, np.asfortranarray(X), X.astype(np.float64), hnp.asarray(X)):
        f(x)
    assert len(traces) == 3  # f32[2,3], f32[3,2], f64[2,3]
    f.clear_cache()
    f(X)
    assert len(traces) == 4


def test_devices():
    f = hl.jit(lambda x: x + 1, device="cpu:0")
    assert str(f(X).device) == "cpu:0"
    with pytest.raises(DeviceError, match="cpu:7"):
        hl.jit(lambda x: x, device="cpu:7")


def test_attributes_of_a_callable_object_do_not_hide_methods():
    class Scaled:
        def __init__(self):
            self.lower = self._program = self.function = self.factor = 3

        def __call__(self, x):
            return x * self.factor

    jitted = hl.jit(Scaled())
    np.testing.assert_array_equal(jitted(np.ones(2, np.float32)), [3, 3])
    assert jitted.factor == 3 and "multiply" in jitted.lower(np.ones(2, np.float32)).as_text()
