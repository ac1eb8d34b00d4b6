"""`hl.jit(f, abstracted_axes=...)`: JAX's way to name dimensions of positional arguments."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, ShapeError


def drawn(*dims):
    return np.random.default_rng(sum(dims)).standard_normal(dims).astype("float32")


def counting(f):
    """The function, and the shapes of the first argument that it is traced with."""
    shapes = []

    def traced(x, *rest):
        shapes.append(str(tuple(hl.tree.leaves(x)[0].shape)))
        return f(x, *rest)

    return traced, shapes


def test_a_prefix_of_the_arguments():
    f, shapes = counting(lambda tree, w: (tree["a"] @ w + tree["b"].sum(), w))
    compiled = hl.jit(f, abstracted_axes=({"a": {0: "n"}, "b": ("n",)}, None))
    w = drawn(3, 2)
    for n in (4, 1, 50, 7):
        a, b = drawn(n, 3), drawn(n)
        first, second = compiled({"a": a, "b": b}, w)
        np.testing.assert_allclose(first, a @ w + b.sum(), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(second, w)
    assert shapes == ["(n, 3)"]
    with pytest.raises(ShapeError, match=r"(?s)arrays of the sizes.*test_abstracted_axes.py"):
        compiled({"a": drawn(4, 3), "b": drawn(5)}, w)


@pytest.mark.parametrize("axes", [("n", None), {0: "n"}, ({0: "n"}, {0: "n"}), [("n", None), {0: hl.Dim("n")}]])
def test_one_for_all_arguments_and_one_for_each(axes):
    axes = tuple(axes) if isinstance(axes, list) else axes
    f, shapes = counting(lambda x, y: x * y + x.shape[0])
    compiled = hl.jit(f, abstracted_axes=axes)
    for n in (2, 9, 1):
        np.testing.assert_allclose(compiled(drawn(n, 4), drawn(n, 4)), drawn(n, 4) ** 2 + n, rtol=1e-6)
    assert shapes == ["(n, 4)"]
    compiled(drawn(2, 5), drawn(2, 5))
    assert shapes == ["(n, 4)", "(n, 5)"], "the other size is that of a call"


def test_bounds_static_and_named_arguments():
    n = hl.Dim("n", 0, 64)
    f, shapes = counting(lambda x, power, y: (x**power).sum() + y)
    compiled = hl.jit(f, static_argnums=1, abstracted_axes=({0: n}, None, {}))
    for size in (0, 1, 5, 64):
        np.testing.assert_allclose(compiled(drawn(size), 2, drawn(3)), (drawn(size) ** 2).sum() + drawn(3), rtol=1e-5)
    assert shapes == ["(n,)"]
    with pytest.raises(ShapeError, match=r"(?s)n = 65, the size of axis 0 of .*max=64.*test_abstracted_axes.py"):
        compiled(drawn(65), 2, drawn(3))
    by_name = hl.jit(lambda x, *, y: x.sum() + y, abstracted_axes=({0: "n"},))
    assert float(by_name(np.ones(3, np.float32), y=np.float32(2))) == 5


def test_bad_axes():
    def f(x, y):
        return x, y

    with pytest.raises(ArgumentError, match="abstracted_axes of 'f'"):
        hl.jit(f, abstracted_axes=({0: 3}, None))
    with pytest.raises(ArgumentError, match="abstracted_axes of 'f'"):
        hl.jit(f, abstracted_axes=({-1: "n"}, None))
    with pytest.raises(ArgumentError, match="two dimensions 'n'"):
        hl.jit(f, abstracted_axes=({0: "n"}, {0: hl.Dim("n", 2)}))
    with pytest.raises(ArgumentError, match="leave out one"):
        hl.jit(f, dims={"x": ("n",)}, abstracted_axes=({0: "n"}, None))
    with pytest.raises(ArgumentError, match=r"(?s)abstracted_axes of 'f'.*test_abstracted_axes.py"):
        hl.jit(f, abstracted_axes=({0: "n"},))(drawn(2), drawn(2))
    with pytest.raises(ShapeError, match=r"(?s)an argument of 'f'.*test_abstracted_axes.py"):
        hl.jit(f, abstracted_axes=("n",))(drawn(2), drawn(2, 2))


def test_make_jaxpr_shows_the_names():
    shown = str(hl.make_jaxpr(lambda x, k: x * k, static_argnums=1, abstracted_axes=({0: "n"}, None))(drawn(3, 2), 2))
    assert "f32[n,2]" in shown


def test_weak_types_stay_weak():
    weak = hl.jit(lambda s: hnp.broadcast_to(s, (4,)))(2.0)

    def f(x):
        return x * hnp.ones((), "bfloat16")

    for options in ({"abstracted_axes": ({0: "n"},)}, {"dims": {"x": ("n",)}}):
        assert hl.jit(f, **options)(weak).dtype == f(weak).dtype == "bfloat16"
        assert hl.jit(lambda x: x + 1, **options)(weak).weak_type
