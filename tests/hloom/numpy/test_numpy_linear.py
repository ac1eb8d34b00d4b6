"""Products of hloom.numpy against NumPy: matmul's ranks and broadcasting, einsum at random."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from frontend import both, close, one, sample
from hypothesis import given, settings
from hypothesis import strategies as st

import hloom.numpy as hnp
from hloom.errors import ArgumentError, ShapeError

PAIRS = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((1, 2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (6, 3, 4)),
    ((5, 6, 2, 3), (1, 6, 3, 4)),
    ((1, 6, 2, 3), (5, 1, 3, 4)),
    ((1, 1, 2, 3), (1, 3, 4)),
    ((0, 3), (3, 4)),
    ((2, 0), (0, 4)),
    ((0, 2, 3), (1, 3, 4)),
]


@pytest.mark.parametrize("left,right", PAIRS)
def test_matmul(left, right):
    a, b = sample(left, "float64", 1), sample(right, "float64", 2)
    close(one(hnp.matmul, a, b), a @ b, None, 10.0)
    close(one(lambda a, b: a @ b, a, b), a @ b, None, 10.0)
    if len(right) <= 2:
        close(one(hnp.dot, a, b), np.dot(a, b), None, 10.0)


def test_matmul_of_dtypes():
    a, b = sample((3, 4), "int8", 1, -9, 9), sample((4, 2), "int8", 2, -9, 9)
    assert one(hnp.matmul, a, b).dtype == np.int8
    wide = one(lambda a, b: hnp.matmul(a, b, preferred_element_type="int32"), a, b)
    np.testing.assert_array_equal(wide, a.astype(np.int32) @ b.astype(np.int32))
    mask = sample((3, 3), "bool")
    np.testing.assert_array_equal(one(hnp.matmul, mask, mask), mask @ mask)
    c = sample((3, 3), "complex64")
    close(one(hnp.matmul, c, c), c @ c, None, 10.0)
    assert one(hnp.matmul, sample((2, 2), "float16"), sample((2, 2), "float32")).dtype == np.float32


@pytest.mark.parametrize(
    "case",
    """
m.dot(x, y)
m.dot(x, 2.0)
m.vdot(x, x)
m.vdot(c, c)
m.inner(x, x[:2])
m.inner(v, v)
m.outer(v, x)
m.tensordot(x, y, 1)
m.tensordot(x, x, 2)
m.tensordot(x, x, 0)
m.tensordot(x, x, ((0, 1), (0, 1)))
m.tensordot(x, y, (1, 0))
m.kron(x, y)
m.kron(v, x)
m.cross(x, x[::-1])
m.cross(x[:, :2], x)
m.cross(x[:, :2], x[::-1, :2])
m.cross(x.T, x.T[:, ::-1], axis=0)
m.vecdot(x, x)
m.vecdot(c, c)
m.vecdot(x, v, axis=-1)
m.matvec(x, v)
m.vecmat(v, y)
m.linalg.multi_dot([v, y, x])
m.linalg.multi_dot([x, y, x, y])
""".strip().splitlines(),
)
def test_products(case):
    x, y, v, c = (
        sample((4, 3), "float64"),
        sample((3, 4), "float64"),
        sample((3,), "float64"),
        sample((3,), "complex128"),
    )

    def run(m):
        expression = case if m is np else case.replace("linalg.", "")
        return lambda x, y, v, c: eval(expression, {"m": m, "x": x, "y": y, "v": v, "c": c})

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy's own, for cross products of pairs
        expected = run(np)(x, y, v, c)
    close(one(run(hnp), x, y, v, c), expected, None, 20.0)


@pytest.mark.parametrize(
    "subscripts",
    """ij,jk->ik ij,jk ij,kj->ki ij->ji ij-> ij->j ii ii->i iij->j ij,ij->ij ij,ij-> i,j->ij ij,j->i bij,bjk->bik
    bij,bjk->ik ...ij,...jk->...ik ...i->... i...->...i ij,jk,kl->il ij,jk,ki-> ij,i->j ij,kl->ijkl ijj->ij
    a,a,a-> ij,ij,ij->i i,->i ...,...->... bhqd,bhkd->bhqk""".split(),
)
def test_einsum(subscripts):
    inputs = subscripts.partition("->")[0].split(",")
    extent = {"i": 3, "j": 4, "k": 2, "l": 5, "b": 2, "a": 3, "h": 2, "q": 3, "d": 4}
    if "ii" in subscripts or "jj" in subscripts or subscripts == "ij,jk,ki->":
        extent = dict.fromkeys(extent, 3)
    shapes = []
    for word in inputs:
        head, dots, tail = word.partition("...")
        shapes.append([extent[c] for c in head] + [2, 6] * bool(dots) + [extent[c] for c in tail])
    arrays = [sample(tuple(s), "float64", k) for k, s in enumerate(shapes)]
    expected = np.einsum(subscripts, *arrays)
    close(one(lambda *xs: hnp.einsum(subscripts, *xs), *arrays), expected, None, 20.0)
    close(one(lambda *xs: hnp.einsum(subscripts, *xs, optimize=False), *arrays), expected, None, 20.0)


def test_einsum_of_label_lists_and_stretched_axes():
    a, b = sample((2, 3), "float64"), sample((3, 4), "float64")
    close(one(lambda a, b: hnp.einsum(a, [0, 1], b, [1, 2], [0, 2]), a, b), a @ b, None, 5.0)
    close(one(lambda a, b: hnp.einsum(a, [0, 1], b, [1, 2]), a, b), a @ b, None, 5.0)
    stretched = sample((1, 3), "float64")
    close(one(lambda a, s: hnp.einsum("...j,...j->...j", a, s), a, stretched), a * stretched)
    mask = sample((3, 3), "bool")
    np.testing.assert_array_equal(one(lambda m: hnp.einsum("ij->i", m), mask), mask.any(1))


@settings(max_examples=120)
@given(st.data())
def test_einsum_at_random(data):
    extents = {label: data.draw(st.integers(0, 3)) for label in "abcde"}
    words = data.draw(st.lists(st.text("abcde", max_size=4), min_size=1, max_size=3))
    labels = sorted({c for w in words for c in w})
    out = data.draw(st.permutations(labels))[: data.draw(st.integers(0, len(labels)))]
    subscripts = ",".join(words) + "->" + "".join(out)
    arrays = [sample(tuple(extents[c] for c in w), "float64", k) for k, w in enumerate(words)]
    result = hnp.einsum(subscripts, *arrays)
    close(result, np.einsum(subscripts, *arrays), None, 100.0)


def test_gradients_need_only_dots_and_sums():
    a, b = sample((2, 3), "float32"), sample((3, 4), "float32")
    assert [r.shape for r in both(lambda a, b: (hnp.dot(a, b), hnp.matmul(b.T, a.T)), a, b)] == [(2, 4), (4, 2)]


def test_errors_of_products():
    with pytest.raises(ShapeError, match="3 and 4"):
        hnp.ones((2, 3)) @ hnp.ones((4, 2))
    with pytest.raises(ShapeError, match="use \\* to multiply"):
        hnp.matmul(hnp.ones(3), 2.0)
    with pytest.raises(ShapeError, match="label 'j' has sizes 3 and 4"):
        hnp.einsum("ij,jk", hnp.ones((2, 3)), hnp.ones((4, 2)))
    with pytest.raises(ArgumentError, match="takes 2 operands"):
        hnp.einsum("ij,jk", hnp.ones((2, 3)))
    with pytest.raises(ShapeError, match="rank 2 for 'ij'"):
        hnp.einsum("ij", hnp.ones(3))
    with pytest.raises(ArgumentError, match="'k'"):
        hnp.einsum("ij->k", hnp.ones((2, 3)))
