"""Errors of the array functions: class, the four parts of the message, and the user's own line."""

from __future__ import annotations

import bisect
import heapq
import inspect
import random
import statistics

import numpy as np
import pytest
import scipy.linalg
import scipy.special

import hloom as hl
import hloom.numpy as hnp
from hloom import lax, nn
from hloom.errors import (
    ArgumentError,
    DTypeError,
    HloomError,
    ImmutableArrayError,
    IndexOutOfBoundsError,
    ShapeError,
    TracerConversionError,
    UnsupportedIndexError,
)

A, B = hnp.ones((2, 3)), hnp.ones((4,))
# (call, class, what its message says). Each call stands on one line, which the error has to name.
CASES = [
    (lambda: A + B, ShapeError, "add broadcasts its operands to one shape.*(2, 3) and (4,).*differ in axis -1"),
    (lambda: hnp.where(A > 0, A, B), ShapeError, "where broadcasts"),
    (lambda: A @ B, ShapeError, "f32[2,3] @ f32[4]: 3 and 4"),
    (lambda: hnp.sum(A, axis=2), ShapeError, "sum along axis 2.*rank 2, which has axes -2 to 1"),
    (lambda: hnp.sum(A, axis=(0, -2)), ShapeError, "sum takes each axis once"),
    (lambda: hnp.sum(A, axis=1.5), ArgumentError, "static integer as its axis"),
    (lambda: hnp.mean(hnp.asarray(1.0), axis=0), ShapeError, "which has no axes"),
    (lambda: A.reshape(4), ShapeError, "reshape to (4,), 4 elements.*f32[2,3] (6 elements)"),
    (lambda: A.reshape(-1, 4), ShapeError, "reshape to (-1, 4)"),
    (lambda: A.reshape(-1, -1), ShapeError, "at most one may be -1"),
    (lambda: hnp.concatenate([A, B]), ShapeError, "agree in all other axes"),
    (lambda: hnp.concatenate([]), ArgumentError, "at least one array"),
    (lambda: hnp.concatenate(A[0, 0]), TypeError, "zero-dimensional"),
    (lambda: hnp.stack([A, B]), ShapeError, "arrays of one shape"),
    (lambda: hnp.split(A, 2, axis=1), ShapeError, "2 equal sections.*size 3"),
    (lambda: hnp.squeeze(A, 0), ShapeError, "axes of size 1"),
    (lambda: hnp.broadcast_to(A, (3,)), ShapeError, "would shrink"),
    (lambda: hnp.transpose(A, (0,)), ShapeError, "permutation of the 2 axes"),
    (lambda: hnp.add(A, "x"), ArgumentError, "an operand of add must be an array.*str"),
    (lambda: hnp.add(A, None), ArgumentError, "NoneType"),
    (lambda: hnp.asarray([[1, 2], [3]]), ArgumentError, "an array was expected"),
    (lambda: hnp.array([A, B]), ShapeError, "give all elements one shape"),
    (lambda: hnp.zeros(3, dtype="string"), DTypeError, "not an element type"),
    (lambda: hnp.zeros((2, -1)), ShapeError, "not negative"),
    (lambda: hnp.zeros(2.5), ArgumentError, "static integer as its size"),
    (lambda: hnp.ones(3, bool) - True, DTypeError, "subtract is not defined for pred"),
    (lambda: hnp.ones(3, "int8") + 1000, DTypeError, "s8 holds -128 to 127"),
    (lambda: hnp.arange(3, 4, 0), ArgumentError, "a step other than 0"),
    (lambda: hnp.pad(A, 1, mode="nearest"), ArgumentError, "mode 'nearest'"),
    (lambda: hnp.pad(A, -1), ShapeError, "not negative"),
    (lambda: hnp.max(hnp.zeros((0,))), ShapeError, "nothing there"),
    (lambda: hnp.where(A > 0, A), ArgumentError, "both x and y"),
    (lambda: A[5], IndexOutOfBoundsError, "element 5 of axis 0.*size 2"),
    (lambda: A[0, 0, 0], IndexOutOfBoundsError, "an index of 3 axes"),
    (lambda: A[[0.5, 1]], UnsupportedIndexError, "an array of float64"),
    (lambda: A.__setitem__(0, 1.0), ImmutableArrayError, "f32[2,3].*immutable"),
    (lambda: lax.add(A, hnp.ones((2, 3), "int32")), DTypeError, "operands of one dtype"),
    (lambda: lax.exp(hnp.ones(2, "int32")), DTypeError, "float or complex elements"),
    (lambda: nn.glu(A), ShapeError, "size 3"),
    (lambda: hnp.einsum("ij,jk->ik", A, hnp.ones((2, 2))), ShapeError, "label 'j'"),
    (lambda: hnp.diag(hnp.ones((1, 1, 1))), ShapeError, "a vector or a matrix"),
    (lambda: hnp.tril(B), ShapeError, "takes matrices"),
    (lambda: hnp.roll(A, (1, 2, 3), (0, 1)), ShapeError, "pairs shifts with axes"),
    (lambda: hnp.moveaxis(A, (0, 1), 0), ShapeError, "moveaxis pairs axes"),
    (lambda: hnp.cross(B, B), ShapeError, "size 2 or 3"),
    (lambda: hnp.isdtype("float32", "whole"), ArgumentError, "isdtype takes a dtype or a kind"),
    (lambda: bool(A), ArgumentError, "truth value"),
    # What users of other libraries write.
    (lambda: hnp.concatenate(A, A), ArgumentError, "concatenate takes the arrays as one sequence"),
    (lambda: hnp.concatenate(A, A, 1), ArgumentError, "f32[2,3], f32[2,3]"),
    (lambda: hnp.stack(A, A), ArgumentError, "stack takes the arrays as one sequence"),
    (lambda: hnp.vstack(A, A), ArgumentError, "write vstack([a, b])"),
    (lambda: hnp.hstack(A, A, A), ArgumentError, "one sequence: hstack([a, b])"),
    (lambda: hnp.dstack(A, np.ones((2, 3))), ArgumentError, "write dstack([a, b])"),
    (lambda: hnp.column_stack(B, B), ArgumentError, "one sequence: column_stack([a, b])"),
    (lambda: hnp.block(A, A), ArgumentError, "one sequence: block([a, b])"),
    (lambda: hnp.linalg.multi_dot(A, A.T), ArgumentError, "one sequence: multi_dot([a, b])"),
    (lambda: lax.concatenate(A, A), ArgumentError, "write concatenate([a, b])"),
    (lambda: lax.concatenate(A, A, 0), ArgumentError, "one sequence: concatenate([a, b])"),
    (lambda: hnp.max(A, A), ArgumentError, "max takes an axis as its second.*maximum(a, b) takes two arrays"),
    (lambda: hnp.mean(A, A), ArgumentError, "mean takes an axis.*pass an integer, or a tuple"),
    (lambda: hnp.sum(A, dim=1), ArgumentError, "sum takes (a, axis.*dim=1.*did you mean axis?"),
    (lambda: A.mean(0, keepdim=True), ArgumentError, "did you mean keepdims?"),
    (lambda: hnp.linspace(0, 1, steps=3), ArgumentError, "did you mean num?"),
    (lambda: hnp.ones(2, 3, 4), ArgumentError, "shape as one tuple: shape=(2, 3, 4)"),
    (lambda: hnp.zeros(2, 3), DTypeError, "pass a shape as one tuple, such as zeros((2, 3))"),
    (lambda: hnp.broadcast_to(B, 2, 4), ArgumentError, "shape=(2, 4)"),
    (lambda: hnp.tile(A, 2, 3), ArgumentError, "reps=(2, 3)"),
    (lambda: hnp.ones(3, "float8"), DTypeError, "name one of float8_e3m4, float8_e4m3, float8_e4m3fn"),
]


@pytest.mark.parametrize("call,kind,says", CASES, ids=[str(inspect.getsourcelines(c[0])[1]) for c in CASES])
def test_message_and_line(call, kind, says):
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    text = " ".join(str(error).split())
    position = 0
    for part in says.split(".*"):
        position = text.find(part, position)
        assert position >= 0, f"{part!r} is not in: {text}"
    if isinstance(error, HloomError):
        assert error.asked and error.repair
        assert error.source.file == __file__
        assert error.source.line == call.__code__.co_firstlineno
        assert f"{__file__}:{error.source.line}" in str(error)


def test_shape_errors_are_value_errors_and_dtype_errors_type_errors():
    with pytest.raises(ValueError):
        A + B
    with pytest.raises(TypeError):
        hnp.ones(2, bool) - True


# Functions of NumPy, SciPy and Python, whose own code calls methods and protocols of arrays that refuse.
OTHERS = [
    lambda x: np.sum(x, axis=7),
    lambda x: np.squeeze(x, axis=0),
    lambda x: np.reshape(x, (5,)),
    lambda x: np.concatenate([x, x]),
    lambda x: np.stack([x, x]),
    lambda x: np.full((2,), x[0, 0]),
    lambda x: np.linalg.norm(x),
    lambda x: np.allclose(x, x),
    lambda x: np.vectorize(lambda y: y + 1)(x),
    lambda x: np.testing.assert_allclose(x, x),
    lambda x: scipy.special.erf(x),
    lambda x: scipy.linalg.det(x),
    lambda x: statistics.median([x[0, 0], x[0, 1]]),
    lambda x: bisect.bisect([x[0, 0], x[0, 1]], x[1, 1]),
    lambda x: heapq.heapify([x[0, 0], x[0, 1]]),
    lambda x: random.choice(range(x[0, 0].astype(int))),
]


@pytest.mark.parametrize("function", OTHERS, ids=[str(f.__code__.co_firstlineno) for f in OTHERS])
def test_the_line_is_the_users_where_a_library_calls_an_array(function):
    with pytest.raises(HloomError) as caught:
        hl.jit(function)(A)
    assert str(caught.value.source).startswith(f"{__file__}:{function.__code__.co_firstlineno} in ")


def test_the_line_is_the_users_where_numpy_calls_an_array_eagerly():
    for call in (lambda: np.sum(A, axis=7), lambda: np.squeeze(A, axis=0), lambda: np.mean(A, axis=3)):
        with pytest.raises(ShapeError) as caught:
            call()
        assert str(caught.value.source).startswith(f"{__file__}:{call.__code__.co_firstlineno} in ")


def test_traced_values_where_numbers_are_needed():
    from frontend import staged

    for function in (
        lambda n: hnp.zeros(n),
        lambda n: hnp.sum(A, axis=n),
        lambda n: hnp.reshape(A, (n, 3)),
        lambda n: hnp.arange(n),
        lambda n: np.asarray(n),
    ):
        with pytest.raises(TracerConversionError) as caught:
            staged(function, hnp.asarray(2))
        assert caught.value.source.line == function.__code__.co_firstlineno
