"""What a person who trains does wrong: each mistake is named at the user's line, with a repair."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import nn, optim
from hloom.errors import IndexOutOfBoundsError, PrecisionWarning

KEY = hl.random.key(0)
cross_entropy = optim.softmax_cross_entropy_with_integer_labels


@pytest.mark.parametrize("label", [12, -1])
def test_a_label_out_of_range_has_no_plausible_loss(label):
    logits, labels = hnp.zeros((3, 10)), np.array([1, label, 9])
    with pytest.raises(IndexOutOfBoundsError, match=rf"labels from 0 to 9\n  found:  {label} among s64\[3\]"):
        cross_entropy(logits, labels)
    with pytest.raises(IndexOutOfBoundsError):  # grad carries values
        hl.grad(lambda x: cross_entropy(x, labels).sum())(logits)
    losses = np.asarray(hl.jit(cross_entropy)(logits, labels))
    np.testing.assert_array_equal(np.isnan(losses), [False, True, False])
    np.testing.assert_allclose(losses[[0, 2]], np.log(10), rtol=1e-6)
    with hl.config(debug_checks=True), pytest.raises(IndexOutOfBoundsError, match="test_training_mistakes"):
        hl.jit(lambda x, y: cross_entropy(x, y))(logits, labels)


def test_an_id_beyond_the_table_has_no_vector():
    table = nn.Embedding(5, 3, key=KEY)
    with pytest.raises(IndexOutOfBoundsError, match="Embedding of 5 vectors takes ids from 0 to 4"):
        table(hnp.asarray([1, 5]))
    rows = np.asarray(hl.jit(lambda t, i: t(i))(table, hnp.asarray([[1, 5], [-1, 4]])))
    np.testing.assert_array_equal(np.isnan(rows).all(-1), [[False, True], [True, False]])
    np.testing.assert_array_equal(rows[[0, 1], [0, 1]], np.asarray(table.table)[[1, 4]])
    with hl.config(debug_checks=True):
        jitted = hl.jit(lambda t, i: t(i))
        assert jitted(table, hnp.asarray([4])).shape == (1, 3)
        with pytest.raises(IndexOutOfBoundsError, match="found:  7 among"):
            jitted(table, hnp.asarray([7]))
        with pytest.raises(IndexOutOfBoundsError, match="found:  9"):
            hl.jit(hl.vmap(table))(hnp.asarray([1, 9]))
    assert np.isnan(np.asarray(hl.jit(lambda t, i: t(i))(table, hnp.asarray([7])))).all()


def test_the_gradient_of_a_table_is_a_scatter_of_rows():
    table, ids = nn.Embedding(5, 3, key=KEY), hnp.asarray([0, 4, 4])
    found = hl.jit(hl.grad(lambda t, i: (t(i) * 2).sum()))(table, ids)
    np.testing.assert_array_equal(found.table[:, 0], [2, 0, 0, 0, 4])


@pytest.mark.parametrize("jit", [True, False])
def test_float64_inputs_of_a_float32_network_are_named_once(jit):
    model = nn.Sequential(nn.Linear(3, 4, key=KEY), nn.relu, nn.Linear(4, 2, key=KEY))
    call = hl.jit(lambda m, x: m(x)) if jit else (lambda m, x: m(x))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        call(model, np.ones((5, 3)))
    (only,) = found
    assert only.filename == __file__ and only.category is PrecisionWarning
    assert "Linear with parameters of float32 was given a float64 input" in str(only.message)
    assert "x.astype('float32')" in str(only.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(model, np.ones((5, 3), "float32"))
        nn.Linear(3, 4, key=KEY, dtype="f64")(np.ones((5, 3)))
    with pytest.raises(hl.errors.AttributeValueError, match="convert one of them"):
        nn.Conv(1, 2, 3, key=KEY)(np.ones((1, 5, 1)))


@pytest.mark.parametrize(
    "shape, repair",
    [
        ((8, 8, 3), r"x\[None\]"),
        ((1, 3, 8, 8), r"moveaxis\(x, 1, -1\)"),
        ((1, 8, 8, 4), r"Conv\(4, \.\.\.\)"),
        ((7,), "reshape the input to 4 dimensions"),
    ],
)
def test_channels_of_a_convolution(shape, repair):
    with pytest.raises(hl.errors.ShapeError, match=repair):
        nn.Conv(3, 8, (3, 3), key=KEY)(hnp.ones(shape))
