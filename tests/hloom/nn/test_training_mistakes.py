"""What a person who trains does wrong: each mistake is named at the user's line, with a repair."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import nn, optim
from hloom.errors import ArgumentError, IndexOutOfBoundsError, PrecisionWarning

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


def test_a_label_of_ctc_out_of_range():
    logits, paddings = hnp.zeros((2, 4, 3)), hnp.zeros((2, 4))
    labels, label_paddings = hnp.asarray([[1, 7], [2, -1]]), hnp.asarray([[0.0, 0.0], [0.0, 1.0]])
    with pytest.raises(IndexOutOfBoundsError, match="found:  7"):
        optim.ctc_loss(logits, paddings, labels, label_paddings)
    found = np.asarray(hl.jit(optim.ctc_loss)(logits, paddings, labels, label_paddings))
    np.testing.assert_array_equal(np.isnan(found), [True, False])


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


@pytest.mark.parametrize(
    "function, repair",
    [
        (lambda n: [k + 1 for k in range(n)], "lax.fori_loop.*static_argnums"),
        (lambda n: hnp.zeros((n, 3)), "mark the number as static"),
        (lambda n: hnp.arange(n), "mark the number as static"),
        (lambda n: hnp.ones(6).reshape(n, 2), "mark the number as static"),
        (lambda n: n > 0 and n < 7, "write a & b instead of `and`"),
        (lambda n: not n, "write ~a instead of `not`"),
        (lambda n: 1 if n > 0 else 2, "hnp.where"),
    ],
)
def test_traced_numbers_where_python_needs_one(function, repair):
    with pytest.raises(hl.errors.TracerError, match=f"repair: .*{repair}"):
        hl.jit(function)(3)


def test_and_of_arrays():
    x = hnp.ones(3)
    with pytest.raises(hl.errors.ArgumentError, match="write a & b instead of `and`"):
        assert x > 0 and x < 1
    with pytest.raises(hl.errors.ArgumentError, match=r"use hnp.any\(x\)"):
        bool(x > 0)


def test_where_shows_the_line():
    with pytest.raises(hl.errors.ShapeError, match=r"where:  .*\n +hnp.ones\(3\) \+ hnp.ones\(4\)  # here\n  repair"):
        hnp.ones(3) + hnp.ones(4)  # here


@pytest.mark.parametrize("name, near", [("flaot32", "float32"), ("bfloat61", "bfloat16"), ("unit8", "uint8")])
def test_a_misspelt_dtype(name, near):
    with pytest.raises(hl.errors.DTypeError, match=f"repair: did you mean '{near}'"):
        hnp.zeros(3, name)


def test_update_with_state_and_gradients_swapped():
    optimizer, parameters = optim.adam(1e-3), {"w": hnp.ones(3)}
    state = optimizer.init(parameters)
    with pytest.raises(hl.errors.ArgumentError, match=r"update\(gradients, state, parameters\)"):
        optimizer.update(state, parameters)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: nn.Linear(3, 4, key=KEY, bias=False), "unexpected keyword argument 'bias'(.|\n)*mean use_bias"),
        (lambda: nn.Linear(3, 4), "missing a required.*'key'(.|\n)*pass key=hl.random.key"),
        (lambda: nn.Conv(3, 4, key=KEY), r"Conv takes \(inputs, outputs, window,(.|\n)*'window'"),
        (lambda: nn.LayerNorm(3, eps=1e-5), "did you mean epsilon"),
    ],
)
def test_arguments_of_layers(make, message):
    with pytest.raises(hl.errors.ArgumentError, match=message):
        make()


def test_an_attribute_that_is_no_field_is_refused():
    """Compiled functions, gradients and checkpoints would lose it."""

    class Base(nn.Module):
        w: object

        def __init__(self):
            self.w = hnp.ones(2)

    class Derived(Base):
        size: int = nn.static()

        def __init__(self, size, more=False):
            super().__init__()
            self.size = size
            if more:
                self.b = hnp.ones(size)

    assert Derived(3).size == 3
    with pytest.raises(ArgumentError, match=r"(?s)Derived\.b was assigned.*not a field.*`b: hl.Array`"):
        Derived(3, more=True)
