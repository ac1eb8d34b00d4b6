"""The second call of a jitted function, for every kind of argument: what it looks at, and what it refuses."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, LeakedTracerError

WRAPPED = pytest.mark.parametrize(
    "wrapped", [lambda v: v, lambda v: [v], lambda v: {"a": v}], ids=["plain", "list", "dict"]
)


def _first(tree):
    return hl.tree.leaves(tree)[0]


@WRAPPED
def test_values_of_each_call_count(wrapped):
    double = hl.jit(lambda t: _first(t) * 2)
    array = np.arange(4, dtype=np.float32)
    for k in range(4):
        array[0] = k
        np.testing.assert_array_equal(double(wrapped(array)), array * 2)
        np.testing.assert_array_equal(double(wrapped(hnp.asarray(array))), array * 2)
        np.testing.assert_array_equal(double(wrapped(array[::-1])), array[::-1] * 2)  # not contiguous
        np.testing.assert_array_equal(double(wrapped(array.astype(">f4"))), array * 2)
        assert float(double(wrapped(float(k)))) == 2 * k
        assert int(double(wrapped(k))) == 2 * k
        assert int(double(wrapped(2**40 + k))) == 2 * (2**40 + k)  # s64 from here on
        assert complex(double(wrapped(1j * k))) == 2j * k
        assert double(wrapped(bool(k % 2))).dtype == np.int32
    assert double._fast


@WRAPPED
def test_dtypes_of_numbers_beside_arrays_do_not_depend_on_the_call(wrapped):
    scale = hl.jit(lambda t, x: _first(t) * x)
    for _ in range(3):
        assert scale(wrapped(1.5), np.ones(2, np.float32)).dtype == np.float32
        wide = scale(wrapped(1e300), np.ones(2))
        assert wide.dtype == np.float64 and float(wide[0]) == 1e300
        assert scale(wrapped(np.float64(0.1)), np.ones(2, np.float32)).dtype == np.float64
        assert scale(wrapped(np.ones((), np.float64)), np.ones(2, np.float32)).dtype == np.float64


@WRAPPED
def test_settings_count_from_the_next_call_on(wrapped):
    root = hl.jit(lambda t: hnp.sqrt(_first(t)))
    negative = np.full(2, -1.0, np.float32)
    for _ in range(3):
        root(wrapped(negative))
        root(wrapped(-1.0))
    with hl.config(debug_nans=True):
        for value in (negative, -1.0):
            with pytest.raises(FloatingPointError):
                root(wrapped(value))
    with hl.config(disable_jit=True):
        assert root(wrapped(negative)).shape == (2,)
    with hl.config(enable_x64=True):
        assert root(wrapped(4.0)).dtype == np.float64
    assert root(wrapped(4.0)).dtype == np.float32


class _Subclass(np.ndarray):
    pass


@WRAPPED
def test_subclasses_of_ndarray(wrapped, tmp_path):
    double = hl.jit(lambda t: _first(t) * 2)
    mapped = np.memmap(tmp_path / "numbers", np.float32, "w+", shape=(4,))
    for k in range(3):
        mapped[:] = k
        np.testing.assert_array_equal(double(wrapped(mapped)), np.full(4, 2.0 * k))
        np.testing.assert_array_equal(double(wrapped(np.ones(4, np.float32).view(_Subclass))), np.full(4, 2.0))


@WRAPPED
@pytest.mark.parametrize("results", [lambda x: x * 2, lambda x: [x * 2, x]], ids=["one", "two"])
def test_what_is_no_array_is_refused_after_an_array_of_its_shape(wrapped, results):
    function = hl.jit(lambda t: results(_first(t)))
    leaked = []
    hl.jit(lambda x: (leaked.append(x), x)[1])(np.float32(1.0))
    for _ in range(3):
        function(wrapped(hnp.float32(3.0)))
        with pytest.raises(LeakedTracerError):
            function(wrapped(leaked[0]))
        with pytest.raises(ArgumentError, match="ShapeDtypeStruct"):
            function(wrapped(hl.ShapeDtypeStruct((), "float32")))


@WRAPPED
def test_arguments_of_numpy_are_not_donated(wrapped):
    add = hl.jit(lambda t, x: _first(t) + x, donate_argnums=0)
    array = np.zeros(4, np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(add(wrapped(array), np.float32(1.0)), np.ones(4))
        assert not array.any()


def test_static_and_named_arguments():
    power = hl.jit(lambda x, n, *, offset=0.0: x**n + offset, static_argnames="n")
    for _ in range(3):
        assert float(power(3.0, 2)) == 9.0
        assert float(power(3.0, 3)) == 27.0
        assert float(power(3.0, n=2, offset=1.0)) == 10.0
    named = hl.jit(lambda a, b: a - b)
    for _ in range(3):
        assert float(named(a=3.0, b=1.0)) == 2.0
        assert float(named(b=3.0, a=1.0)) == -2.0
        assert float(named(3.0, b=1.0)) == 2.0
        assert float(named(3.0, 1.0)) == 2.0


def test_threads_call_with_numpy_arguments():
    double = hl.jit(lambda x, s: x * s)
    wrong = []

    def work(k):
        array = np.full(8, k, np.float32)
        for step in range(300):
            if not (np.asarray(double(array, float(step))) == k * step).all():
                wrong.append((k, step))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
