"""`hl.jit(f, dims=...)`: one program for arguments of all sizes."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, ShapeError


def drawn(*dims, dtype="float32"):
    return np.random.default_rng(sum(dims)).standard_normal(dims).astype(dtype)


def test_one_trace_for_all_sizes():
    traces = []

    def layer(x, w, *, scale):
        traces.append(x.shape)
        return hnp.tanh(x @ w) * scale

    compiled = hl.jit(layer, dims={"x": ("rows", 24)})
    w = drawn(24, 8)
    for rows in (5, 64, 1, 200, 37, 5):
        x = drawn(rows, 24)
        np.testing.assert_allclose(compiled(x, w, scale=np.float32(2)), np.tanh(x @ w) * 2, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(compiled(x=hnp.asarray(x), w=w, scale=2.0), np.tanh(x @ w) * 2, rtol=1e-4, atol=1e-5)
    assert len(traces) == 2, "one for each type of `scale`"
    assert str(traces[0]) == "(rows, 24)"


def test_trees_facts_and_sizes_of_calls():
    n = hl.Dim("n", 2, 64, multiple_of=2)

    @hl.jit(dims={"pair": (n,), "rest": (None, n // 2)})
    def f(pair, rest):
        return pair["a"] + pair["b"].sum(), rest.sum(0)

    for size, rows in ((4, 3), (6, 3), (64, 1), (6, 2)):
        a, b, rest = drawn(size), drawn(size, dtype="float64"), drawn(rows, size // 2)
        first, second = f({"a": a, "b": b}, rest)
        np.testing.assert_allclose(first, a + b.sum(), rtol=1e-5)
        np.testing.assert_allclose(second, rest.sum(0), rtol=1e-5)
    for size, half in ((5, 2), (66, 33), (8, 3)):
        with pytest.raises(ShapeError, match=r"(?s)n.*test_jit_dims.py"):
            f({"a": drawn(size), "b": drawn(size, dtype="float64")}, drawn(3, half))


def test_inside_of_transforms_it_is_the_function():
    f = hl.jit(lambda x: (x * x).sum(), dims={"x": ("n",)})
    for size in (3, 4):
        np.testing.assert_allclose(hl.grad(f)(drawn(size)), 2 * drawn(size), rtol=1e-6)
        np.testing.assert_allclose(f(drawn(size)), (drawn(size) ** 2).sum(), rtol=1e-6)


def test_programs_run_where_their_arguments_are():
    with hl.config(num_cpu_devices=2):
        second = hl.devices()[1]
        f = hl.jit(lambda x: x * 2, dims={"x": ("n", 3)})
        g = hl.jit(lambda x: x * 2, abstracted_axes=({0: "n"},))
        for size in (3, 4):
            placed = hl.device_put(drawn(size, 3), second)
            assert f(placed).device == g(placed).device == second
            assert f(drawn(size, 3)).device == g(drawn(size, 3)).device == hl.devices()[0]


def test_static_arguments_beside_open_ones():
    f = hl.jit(lambda x, power: x**power, static_argnames="power", dims={"x": ("n",)})
    for size in (3, 8):
        for power in (2, 3):
            np.testing.assert_allclose(f(drawn(size), power=power), drawn(size) ** power, rtol=1e-5)


def test_bad_dims():
    def f(x):
        return x

    with pytest.raises(ArgumentError, match=r"(?s)argument 'y'.*takes \(x\)"):
        hl.jit(f, dims={"y": ("n",)})
    with pytest.raises(ArgumentError, match="not a dimension"):
        hl.jit(f, dims={"x": (1.5,)})
    with pytest.raises(ArgumentError, match="two dimensions 'n'"):
        hl.jit(f, dims={"x": ("n", hl.Dim("n", 2))})
    with pytest.raises(ArgumentError, match="dims of 'f'"):
        hl.jit(f, dims=[("n",)])
    with pytest.raises(ShapeError, match=r"(?s)argument 'x'.*declared as \(n, 3\).*test_jit_dims.py"):
        hl.jit(f, dims={"x": ("n", 3)})(drawn(2, 4))


def test_a_size_that_a_dim_does_not_take_names_the_argument_and_the_axis():
    f = hl.jit(lambda x, y: x.sum() + y.sum(), dims={"x": (None, hl.Dim("n", min=8, multiple_of=8)), "y": ("m",)})
    f(np.ones((2, 16)), np.ones(3))
    with pytest.raises(ShapeError) as error:
        f(np.ones((2, 7)), np.ones(3))
    text = str(error.value)
    assert "called with n = 7, the size of axis 1 of 'x'" in text and "Dim('n', min=8, multiple_of=8)" in text
    assert "test_jit_dims.py" in text


def test_a_number_without_room_is_an_error_of_its_call_alone():
    f = hl.jit(lambda x: hnp.zeros((x.shape[0] ** 8,)).sum() + x.sum(), dims={"x": ("n",)})
    with pytest.raises(ShapeError, match=r"(?s)called with n = 4096\n.*no room in 64 bits.*test_jit_dims.py"):
        f(np.ones(4096, np.float32))
    assert float(f(np.ones(3, np.float32))) == 3
