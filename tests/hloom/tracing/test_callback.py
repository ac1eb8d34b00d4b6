"""Python functions in programs: results, effects and their order, in loops, branches, transforms; errors."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import ArgumentError, BatchingError, DifferentiationError, ShapeError, UnsupportedError
from hloom.ir.text import parse_module

X = np.array([0.5, 1.0, 2.0], np.float32)


def sine(x, **named):
    return hl.pure_callback(np.sin, hl.ShapeDtypeStruct(np.shape(x), np.float32), x, **named)


@pytest.mark.parametrize("wrap", [lambda f: f, hl.jit], ids=["eager", "jit"])
def test_pure_callback(wrap):
    np.testing.assert_allclose(wrap(lambda x: sine(x * 2) + 1)(X), np.sin(X * 2) + 1, rtol=1e-6)


def test_trees_and_names():
    def host(a, *, b):
        assert isinstance(a, np.ndarray)
        return {"sum": a.sum(), "both": (a, b)}

    struct = hl.ShapeDtypeStruct
    promised = {"sum": struct((), np.float32), "both": (struct((3,), np.float32), struct((), np.int32))}
    found = hl.jit(lambda x: hl.pure_callback(host, promised, x, b=3))(X)
    assert float(found["sum"]) == 3.5 and int(found["both"][1]) == 3
    np.testing.assert_array_equal(found["both"][0], X)


def test_in_loops_and_branches():
    def step(c, x):
        y = lax.cond(x > 0.7, sine, lambda v: v * 0, x)
        return c + y, y

    total, ys = hl.jit(lambda x: lax.scan(step, 0.0, x))(X)
    want = np.where(X > 0.7, np.sin(X), 0)
    np.testing.assert_allclose(ys, want, rtol=1e-6)
    np.testing.assert_allclose(total, want.sum(), rtol=1e-6)


def test_effects_happen_in_order_and_each_time():
    seen = []

    @hl.jit
    def f(x):
        hl.io_callback(lambda v: seen.append(("first", float(v))), None, x)
        y = lax.fori_loop(0, 3, lambda i, v: _noted(seen, i, v), x)
        hl.debug.callback(lambda v: seen.append(("last", float(v))), y)
        return x  # y is not needed, what was noted on the way is

    want = [("first", 1.0), (0, 1.0), (1, 2.0), (2, 4.0), ("last", 8.0)]
    f(1.0)
    assert seen == want
    f(1.0)
    assert seen == want * 2


def _noted(seen, i, v):
    hl.debug.callback(lambda k, x: seen.append((int(k), float(x))), i, v)
    return v * 2


def test_print(capfd):
    @hl.jit
    def f(x):
        hl.debug.print("x = {} and {y} {{}}", x, y=x * 2)
        return x

    f(hnp.asarray(1.5))
    hl.debug.print("eager {:.2f}", 2.0)
    assert capfd.readouterr().out == "x = 1.5 and 3.0 {}\neager 2.00\n"


def test_print_once_in_a_gradient(capfd):
    def f(x):
        hl.debug.print("here {}", x)
        return x * x

    assert float(hl.grad(f)(3.0)) == 6
    assert float(hl.jit(hl.grad(f))(3.0)) == 6
    assert capfd.readouterr().out == "here 3.0\nhere 3.0\n"


def test_print_for_each_problem(capfd):
    hl.vmap(lambda x: (hl.debug.print("{}", x), x)[1])(hnp.asarray(X))
    assert capfd.readouterr().out.split() == ["0.5", "1.0", "2.0"]


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all", "legacy_vectorized"])
def test_vmap(method):
    shapes = []

    def host(a, b):
        shapes.append((a.shape, b.shape))
        return a * np.sum(b, axis=-1) if b.ndim > 1 or method != "legacy_vectorized" else a * b.sum()

    def f(a, b):
        return hl.pure_callback(host, hl.ShapeDtypeStruct((), np.float32), a, b, vmap_method=method)

    found = hl.jit(hl.vmap(f, in_axes=(0, None)))(X, X[:2])
    np.testing.assert_allclose(found, X * 1.5)
    expected = {
        "sequential": [((), (2,))] * 3,
        "expand_dims": [((3,), (1, 2))],
        "broadcast_all": [((3,), (3, 2))],
        "legacy_vectorized": [((3,), (2,))],
    }
    assert shapes == expected[method]


def test_a_derivative_by_custom_jvp():
    @hl.custom_jvp
    def f(x):
        return sine(x)

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * hnp.cos(primals[0])))
    np.testing.assert_allclose(hl.grad(lambda x: f(x).sum())(X), np.cos(X), rtol=1e-6)


def test_equal_eager_loops_are_compiled_once():
    from hloom.tracing.regions import _programs

    def run():
        return lax.fori_loop(0, 3, lambda i, v: v + sine(v), hnp.asarray(X))

    run()
    before = len(_programs)
    run()
    assert len(_programs) == before


def test_from_several_threads():
    f = hl.jit(lambda x: lax.fori_loop(0, 20, lambda i, v: sine(v) + x, x))
    want = np.asarray(f(X))
    found = []
    threads = [threading.Thread(target=lambda: found.append(np.asarray(f(X)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(np.array_equal(a, want) for a in found)


# --- errors -------------------------------------------------------------------------------------------------------


def test_what_a_callback_raises_comes_to_the_caller():
    count = []

    def host(x):
        count.append(1)
        if len(count) == 3:
            raise OSError("the disk is gone")
        return x

    f = hl.jit(
        lambda x: lax.fori_loop(
            0, 5, lambda i, v: hl.pure_callback(host, hl.ShapeDtypeStruct((3,), np.float32), v) + 1, x
        )
    )
    with pytest.raises(OSError, match="the disk is gone") as caught:
        f(X)
    assert len(count) == 3  # the loop was left
    assert any("test_callback.py" in note for note in caught.value.__notes__)
    np.testing.assert_array_equal(f(X), X + 5)


def test_other_results_than_promised():
    f = hl.jit(lambda x: hl.pure_callback(lambda v: v[:2], hl.ShapeDtypeStruct((3,), np.float32), x))
    with pytest.raises(ShapeError, match="promised") as caught:
        f(X)
    assert "test_callback.py" in str(caught.value)


def test_no_derivative_and_no_way_to_vmap():
    with pytest.raises(DifferentiationError, match="custom_jvp"):
        hl.grad(lambda x: sine(x).sum())(X)
    with pytest.raises(BatchingError, match="vmap_method"):
        hl.vmap(lambda x: sine(x))(hnp.ones((2, 3)))


def test_formats_without_values():
    with pytest.raises(ArgumentError, match="debug.print of"):
        hl.debug.print("{} {}", 1.0)


def test_what_there_is_not():
    with pytest.raises(UnsupportedError, match="infeed"):
        lax.infeed(None)
    text = "HloModule m\nENTRY e {\n  x = f32[] parameter(0)\n  ROOT i = f32[] outfeed(x)\n}\n"
    with pytest.raises(UnsupportedError, match="outfeed") as caught:
        parse_module(text)
    assert "line 4" in str(caught.value)
