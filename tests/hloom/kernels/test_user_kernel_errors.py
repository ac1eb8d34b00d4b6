"""Mistakes in kernels that users write: the error's class, what it says, and the line of the kernel."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import hloom as hl
from hloom.errors import ArgumentError, DTypeError, HloomError, ShapeError, UndecidedSizeError, UnsupportedError

X = np.ones((6, 8), np.float32)
INDICES = np.array([1, 9, 2], np.int32)


def one_element(x):
    out = np.zeros(3, np.float32)
    for i in hl.parallel(len(x)):
        out[0] += x[i, 0]  # here
    return out


def one_column(x):
    out = np.zeros(6, np.float32)
    for i, j in hl.parallel(6, 8):
        out[i] += x[i, j]  # here
    return out


def neighbour(x):
    out = x.copy()
    for i in hl.parallel(len(x) - 1):
        out[i + 1, 0] = out[i, 0] + 1  # here
    return out


def one_number(x):
    total = 0.0
    for i in hl.parallel(len(x)):
        total += x[i, 0]  # here
    return total


def beyond(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        out[i, 8] = 1  # here
    return out


def always_beyond(x):
    out = np.empty_like(x)
    for i in range(6, 9):
        out[i, 0] = 1  # here
    return out


def argument_written(x):
    for i in hl.parallel(len(x)):
        x[i, 0] = 1  # here
    return x


def unknown_function(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        out[i] = np.linalg.det(x[i])  # here
    return out


def unknown_method(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        out[i] = x[i].cumsum()  # here
    return out


def unknown_statement(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        with open("x"):  # here
            out[i] = 1
    return out


def unknown_expression(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        out[i] = [v + 1 for v in x[i]]  # here
    return out


def other_sizes(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        out[i] = x[i, :3]  # here
    return out


def unassigned(x):
    out = np.empty(len(x), np.float32)
    for i in hl.parallel(len(x)):
        if x[i, 0] > 0:
            y = 1.0
        out[i] = y  # here
    return out


def after_a_loop(x):
    out = np.empty(len(x), np.float32)
    for i in hl.parallel(len(x)):
        out[i] = 1
    last = i  # here
    return out, last


def undefined(x):
    out = np.empty(len(x), np.float32)
    for i in hl.parallel(len(x)):
        out[i] = nothing_of_this_name  # noqa: F821  # here
    return out


def left_in_parallel(x):
    out = np.empty(len(x), np.float32)
    for i in hl.parallel(len(x)):
        if i > 3:
            break  # here
    return out


def nested_parallel(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        for j in hl.parallel(8):  # here
            out[i, j] = 1
    return out


def inner_result(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        if x[i, 0] > 0:
            return out  # here
    return out


def two_kinds(x):
    out = np.empty(len(x), np.float32)
    for i in hl.parallel(len(x)):
        v = x[i]
        if v[0] > 0:
            v = 1.0  # here
        out[i] = 2
    return out


def size_of_a_value(x):
    n = int(x[0, 0])
    out = np.empty(n, np.float32)  # here
    return out


def negative_size(x):
    out = np.empty(len(x) - 7, np.float32)  # here
    return out


def large_memory(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        rows = np.zeros((1000, 1000), x.dtype)  # here
        out[i] = rows[0, 0]
    return out


def complex_into_real(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        out[i, 0] = z_of(x[i, 0])
    return out


def z_of(v):
    return np.complex64(v)


def index_of_float(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        out[i, 0] = x[i, x[i, 0]]  # here
    return out


def too_many_indices(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        out[i, 0] = x[i, 0, 0]  # here
    return out


def unpacking(x):
    n, m, k = x.shape  # here
    return np.empty((n, m, k), np.float32)


def tiles_of_another_shape(x):
    out = np.empty(4, np.float32)
    for t in hl.tile(len(x)):
        out[t] = 1.0  # here
    return out


def swapped_arrays(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        a, b = x[i] * 2, x[i] * 3
        for _ in range(3):
            a, b = b, a  # here
        out[i] = a
    return out


def another_view(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        memory = x[:2] * 1
        row = memory[0]
        for _ in range(2):
            row = row + 1  # here
        out[i] = row
    return out


def other_shape(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        row = x[i] * 2
        for _ in range(2):
            row = x[i, :1] + 1  # here
        out[i] = row
    return out


def assigned_later(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        for j in range(3):
            if j > 0:
                out[i] = X  # noqa: F823  # here
            X = x[j]  # noqa: F841
    return out


def beyond_the_dtype(x):
    out = np.empty(3, np.uint8)
    for i in hl.parallel(3):
        out[i] = 300  # here
    return out


def bits_of_floats(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        out[i, 0] = x[i, 0] & 3  # here
    return out


CASES = [
    (one_element, ArgumentError, "every iteration of a parallel loop writes the same element of 'out'"),
    (one_column, ArgumentError, "every iteration of a parallel loop writes the same element of 'out'"),
    (neighbour, ArgumentError, "reads an element of 'out' that another one writes"),
    (one_number, ArgumentError, "the iterations of a parallel loop assign 'total'"),
    (beyond, ShapeError, "the index is 8, the size 8"),
    (always_beyond, ShapeError, "the index is 6 to 8, the size 6"),
    (argument_written, ArgumentError, "kernels? writes arrays that it makes"),
    (unknown_function, UnsupportedError, "the function 'det'"),
    (unknown_method, UnsupportedError, "the method '.cumsum'"),
    (unknown_statement, UnsupportedError, "a statement With"),
    (unknown_expression, UnsupportedError, "an expression ListComp"),
    (other_sizes, ShapeError, "sizes 8 and 3"),
    (unassigned, ArgumentError, "reads 'y'"),
    (after_a_loop, ArgumentError, "reads 'i'"),
    (undefined, ArgumentError, "nothing of this name is known"),
    (left_in_parallel, UnsupportedError, "break in a parallel loop"),
    (nested_parallel, UnsupportedError, "a parallel loop inside of another loop"),
    (inner_result, UnsupportedError, "return in a loop or a branch"),
    (two_kinds, DTypeError, "'v' is an array, then a number"),
    (size_of_a_value, ArgumentError, "its size is the value of an argument"),
    (negative_size, ShapeError, "a size of -1"),
    (large_memory, UnsupportedError, "it takes 4,000,000 bytes"),
    (index_of_float, ArgumentError, "an index is an integer"),
    (too_many_indices, ArgumentError, "'x' has 2 dimensions"),
    (unpacking, ArgumentError, "3 names are assigned x.shape"),
    (tiles_of_another_shape, ShapeError, "tiles go up to 6, dimension 0 has 4"),
    (swapped_arrays, UnsupportedError, "'a' becomes another object"),
    (another_view, UnsupportedError, "'row' becomes another object"),
    (other_shape, UnsupportedError, "'row' becomes another object"),
    (assigned_later, ArgumentError, "it is assigned only later"),
    (beyond_the_dtype, DTypeError, "the Python integer 300 with the dtype u8"),
    (bits_of_floats, DTypeError, "and in a kernel"),
]


@pytest.mark.parametrize(("function", "error", "says"), CASES, ids=[f.__name__ for f, _, _ in CASES])
def test_a_mistake_is_an_error_at_its_line(function, error, says):
    lines, first = inspect.getsourcelines(function)
    (at,) = [first + k for k, line in enumerate(lines) if "# here" in line]
    kernel = hl.kernel(function)
    with pytest.raises(error, match=says) as caught:
        kernel(X)
    assert caught.value.source.line == at and caught.value.source.file == __file__
    assert caught.value.repair


def test_a_complex_number_is_not_cut_to_its_real_part():
    with pytest.raises(DTypeError, match="no imaginary part"):
        hl.kernel(complex_into_real)(X)


@hl.kernel
def counted(indices):
    out = np.zeros(8, np.float32)
    for i in range(len(indices)):
        out[indices[i]] += 1
    return out


@pytest.mark.parametrize("call", [counted, hl.jit(lambda i: counted(i) * 2)], ids=["alone", "jit"])
@pytest.mark.parametrize("bad", [9, 8, -1, -(2**31)])
def test_an_index_out_of_range_is_an_error_when_the_kernel_runs(call, bad):
    with pytest.raises(ShapeError, match=f"index of dimension 0 of 'out' is {bad}, the size 8") as caught:
        hl.block_until_ready(call(np.array([1, bad, 2], np.int32)))
    assert "out[indices[i]] += 1" in str(caught.value)
    np.testing.assert_array_equal(counted(np.array([1, 7], np.int32)), [0, 1, 0, 0, 0, 0, 0, 1])


def test_an_index_out_of_range_under_vmap():
    with pytest.raises(ShapeError, match="is 9, the size 8"):
        hl.block_until_ready(hl.vmap(counted)(np.array([[1, 2], [3, 9]], np.int32)))


def test_what_is_no_kernel():
    with pytest.raises(UnsupportedError, match="there is no source of a function"):
        hl.kernel(lambda x: x)
    with pytest.raises(ArgumentError, match="takes a function"):
        hl.kernel(3)  # type: ignore[call-overload]
    with pytest.raises(ArgumentError, match="'k', which is no parameter"):
        hl.kernel(static_argnames="k")(one_element)
    with pytest.raises(ArgumentError, match="call one_element"):
        hl.kernel(one_element)(X, X)
    with pytest.raises(HloomError, match="returns nothing"):
        hl.kernel(no_result)(X)


def no_result(x):
    for i in hl.parallel(len(x)):
        y = x[i]  # noqa: F841


def test_sizes_of_parallel_and_tile_in_python():
    assert list(hl.parallel(3)) == [0, 1, 2]
    assert list(hl.parallel(2, 2)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert sum(t.stop - t.start for t in hl.tile(1000)) == 1000
    assert next(iter(hl.tile((4, 5), tile=(2, 3)))) == (slice(0, 2), slice(0, 3))
    with pytest.raises(ArgumentError, match="integer sizes"):
        hl.parallel(2.5)
    with pytest.raises(ArgumentError, match="hl.tile of 2 sizes"):
        hl.tile((4, 5), tile=(2,))


def squares(x):
    out = np.empty_like(x)
    for i in hl.parallel(len(x)):
        out[i] = x[i] * x[i]
    return out


def test_sizes_that_calls_decide_are_refused_or_compiled_one_by_one():
    kernel = hl.kernel(squares)
    with pytest.raises(UndecidedSizeError, match="the kernel 'squares' is compiled for a size that calls decide"):
        hl.jit(lambda x: kernel(x), dims={"x": ("n",)})(X[0])
    called = hl.jit(lambda x: kernel(x) + 1)
    for n in (3, 5, 7, 2, 8):
        np.testing.assert_array_equal(called(X[0, :n]), X[0, :n] ** 2 + 1)


def test_a_kernel_in_a_program_that_was_read_from_text():
    text = hl.jit(hl.kernel(squares)).lower(X[0]).as_text()
    with pytest.raises(HloomError, match="has a kernel's name, and not its code"):
        hl.from_hlo(text)
