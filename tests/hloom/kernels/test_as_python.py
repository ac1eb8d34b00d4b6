"""What a kernel computes is what its function computes in Python: names, views, order, integers, NaN."""

# ruff: noqa: B007, SIM113  the kernels are about such loops

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pytest

import hloom as hl


def doubled(v):
    t = 0.0
    for _q in range(2):
        t = t + v
    return t


def added(out, i, v):
    hl.atomic_add(out, i, v)


def bumped(o):
    o[0] = o[0] + 1
    return o[0]


def first_of_three(x):
    e = x[:3] * 3
    return e[0]


def swapped(a, b):
    a, b = b, a
    return a, b


def number_that_a_name_holds(x):
    out = np.zeros(len(x), x.dtype)
    for _i in hl.parallel(1):
        cur = 0.0
        for j in range(len(x)):
            prev = cur
            cur = cur + x[j]
            out[j] = prev
    return out


def slice_that_a_name_holds(x):
    out = np.zeros(4, x.dtype)
    for _i in hl.parallel(1):
        p = 0
        for j in range(3):
            v = x[p:]
            p += 1
            out[j] = v[0]
    return out


def row_that_a_name_holds(m):
    out = np.zeros(4, m.dtype)
    for _i in hl.parallel(1):
        p = 0
        for j in range(3):
            v = m[p]
            p += 1
            out[j] = v[1]
    return out


def loop_variable_after_its_loop(x):
    out = np.zeros(2, np.int32)
    for _i in hl.parallel(1):
        k = 5
        for k in range(3):
            out[1] += 1
        out[0] = k
    return out


def loops_with_one_variable(x):
    out = np.zeros(3, np.int32)
    for _i in hl.parallel(1):
        for k in range(3):
            for k in range(4):
                out[0] += 1
            out[1] += k
    return out


def two_calls_of_one_function(x):
    out = np.zeros(len(x), x.dtype)
    for i in hl.parallel(len(x)):
        out[i] = doubled(x[i]) + (doubled(x[0]) if x[i] > 0 else 0.0)
    return out


def element_of_the_array_that_is_written(x):
    out = x.copy()
    for _i in hl.parallel(1):
        row = out[:4]
        row[:] = row / row[0]
    return out


def several_targets(x):
    out = x.copy()
    y = np.zeros(1, x.dtype)
    for _i in hl.parallel(1):
        out[0] = y[0] = out[0] + 1
    return out, y


def guarded_element(x):
    out = np.zeros(len(x), x.dtype)
    for i in hl.parallel(len(x)):
        out[i] = x[i - 1] if i > 0 else 7.0
    return out


def stop_that_becomes_negative(x):
    out = np.zeros(len(x), x.dtype)
    for i in hl.parallel(len(x)):
        out[i] = x[: i - 1].sum()
    return out


def number_between_loops_under_a_condition(x):
    t = 1.0
    for i in range(len(x)):
        t += x[i]
    out = np.zeros(len(x), x.dtype)
    for i in hl.parallel(len(x)):
        out[i] = t
    if x[0] > 100:
        t = 5.0
    o2 = np.zeros(len(x), x.dtype)
    for i in hl.parallel(len(x)):
        o2[i] = t
    return out, o2


def negative_size_of_a_loop(x):
    out = np.zeros(len(x), x.dtype)
    for i in hl.parallel(len(x) - 8):
        out[i] = x[i + 2]
    return out


def empty_ranges(x):
    out = np.zeros(len(x), x.dtype)
    for _i in hl.parallel(1):
        for j in range(5, 3):
            out[j + 2] = 1
        for j in range(len(x), 2):
            out[j + 3] = 1
    return out


def shapes_that_are_compared(x, m):
    out = np.zeros(2, np.int32)
    for _i in hl.parallel(1):
        if x.shape == (6,):
            out[0] = 1
        if m.shape == m.T.shape:
            out[1] = 1
    return out


def array_before_the_loops(x):
    a = x * 2
    out = np.zeros(len(x), x.dtype)
    for i in hl.parallel(len(x)):
        out[i] = a[i]
    return out


def atomic_update_in_a_function(x):
    out = np.zeros(2, np.int32)
    for i in hl.parallel(100000):
        added(out, i % 2, 1)
    return out


def one_name_in_two_loops(x):
    out = np.zeros(len(x), x.dtype)
    o2 = np.zeros(len(x), x.dtype)
    for i in hl.parallel(len(x)):
        total = 0.0
        for j in range(3):
            total += x[j]
        out[i] = total
    for i in hl.parallel(len(x)):
        total = 0.0
        for j in range(2):
            total += x[j]
        o2[i] = total
    return out, o2


def narrow_integers_and_python_integers(b):
    out = np.zeros(len(b), np.int32)
    for i in hl.parallel(len(b)):
        if b[i] > -1:
            out[i] += 1
        if b[i] < 300:
            out[i] += 2
        for j in range(250, 350):
            if b[i] < j:
                out[i] += 4
    return out


def quotients_of_negative_numbers(x):
    out = np.zeros((12, 2), np.int32)
    for i in hl.parallel(12):
        out[i, 0] = (i - 5) % 3
        out[i, 1] = (i - 5) // 3
    return out


def maximum_of_nan(x):
    out = np.zeros(3, x.dtype)
    for _i in hl.parallel(1):
        m = -1.0
        for j in range(len(x)):
            m = max(m, x[j] if j != 2 else np.nan)
        out[0] = m
    return out


def sum_of_narrow_integers(b):
    out = np.zeros(2, np.int64)
    for _i in hl.parallel(1):
        out[0] = b.sum()
    return out


def function_that_writes_in_an_expression(x):
    out = x.copy()
    for _i in hl.parallel(1):
        out[1] = out[0] + bumped(out)
    return out


def array_in_a_tuple(x):
    out = x.copy()
    for _i in hl.parallel(1):
        p = 1.0
        for _j in range(2):
            p, out[:] = 2.0, out * p
    return out


def guarded_conditions(x):
    out = np.zeros(6, x.dtype)
    for i in hl.parallel(6):
        if (i > 0 and x[i - 1] > 0) or i == 0:
            out[i] = 1
    return out


def tuple_that_a_name_holds(x):
    out = np.zeros(1, np.float32)
    for _i in hl.parallel(1):
        p = 0
        for _j in range(3):
            t = (p, p + 1)
            p += 1
            out[0] += t[0]
    return out


def name_of_a_function_and_of_its_caller(x):
    out = np.zeros(3, x.dtype)
    for _i in hl.parallel(1):
        e = x[:3] * 2
        for _j in range(2):
            first_of_three(x)
            e = e + 1
        out[:] = e
    return out


def python_integer_beyond_the_other_dtype(b):
    out = np.zeros(4, np.int32)
    for i in hl.parallel(4):
        k = 1000
        if i > 1:
            k = np.int8(5)
        out[i] = k
    return out


def python_integer_of_a_loop(b):
    out = np.zeros(4, np.int32)
    for i in hl.parallel(4):
        k = 0
        for j in range(300):
            k = j
        if i > 2:
            k = b[0]
        out[i] = k
    return out


def guarded_quotient(b):
    out = np.zeros(4, np.int64)
    for i in hl.parallel(4):
        n = i - 1
        out[i] = (10 // n if n > 0 else 7) + (3 if n > 0 and 10 // n > 3 else 0)
    return out


def place_of_nan(x):
    out = np.zeros(4, np.int32)
    for _i in hl.parallel(1):
        v = np.where(x > 2, np.nan, x)
        out[0] = v.argmax()
        out[1] = v.argmin()
        out[2] = np.max(v) > 0
        out[3] = np.isnan(np.min(v))
    return out


def empty_slices(x):
    out = np.zeros(4, np.float32)
    for i in hl.parallel(4):
        e = x[3:3]
        out[i] = e.sum() + np.prod(e) + x[5 - i : 5].sum() + len(x[i:2])
    return out


def sizes_of_one(x):
    out = np.zeros((3, 4), np.float32)
    for _i in hl.parallel(1):
        col = x[:3]
        t = np.zeros((3, 1), np.float32)
        t[:, 0] = col
        out[:] = t
        out += x[:1]
        out[:] = out * t + x[:4]
    return out


def integer_overflow(b):
    out = np.zeros(4, np.int32)
    for i in hl.parallel(4):
        v = np.int32(2147483647) + b[i] * 0
        out[i] = v + np.int32(1)
    return out


def moving_windows(x):
    out = np.zeros(6, np.float32)
    for _i in hl.parallel(1):
        lo = 1
        for j in range(2):
            s = x[lo : lo + 2]
            lo += 2
            out[j] = s.sum()
    return out


def operators_of_booleans(b):
    out = np.zeros(4, np.bool_)
    for i in hl.parallel(4):
        p = b[i] > 50
        q = b[i] > 100
        out[i] = (p ^ q) | (p & ~q)
    return out


def loop_over_tuples(x):
    out = np.zeros(6, np.float32)
    for i in hl.parallel(2):
        for k, w in ((0, 1.5), (1, 2.5)):
            out[i * 2 + k] = x[i] * w
    return out


def function_of_several_results(x):
    out = np.zeros(2, np.float32)
    for _i in hl.parallel(1):
        p, q = x[0], x[1]
        p, q = swapped(p, q)
        out[0] = p
        out[1] = q
    return out


def iteration_that_ends_early(x):
    out = np.zeros(6, np.float32)
    for i in hl.parallel(6):
        if x[i] < 2:
            continue
        v = 0.0
        while True:
            v += 1.0
            if v > x[i]:
                break
        out[i] = v
    return out


def statements_outside_of_loops(x):
    out = x.copy()
    out[:] = out / out[0]
    out[1:] = out[:-1]
    a = (x * 2)[1:3]
    b = x[::-1].copy()
    s = (x * x)[2:].sum()
    if x[0] > 0:
        b[0] = s
    else:
        b[1] = s
    for i in range(3):
        b[i] += a[i % 2]
    y = np.zeros(len(x), x.dtype)
    for i in hl.parallel(len(x)):
        y[i] = out[i] + b[i] + a[0]
    c = y
    c += 1
    return y, out, b


def arrays_outside_of_loops(x):
    m = np.zeros((3, 6), x.dtype)
    for i in hl.parallel(3):
        m[i] = x * i
    n = m.sum(axis=0, keepdims=True) + m
    t = m.T
    u = np.where(n > 2, n, -n)
    o = np.empty_like(u)
    for i in hl.parallel(3):
        o[i] = u[i] + t[:, i]
    return o, n.max(axis=1)


def numbers_outside_of_loops(x):
    best = -1.0
    at = 0
    for i in range(len(x)):
        if x[i] > best and i != 5:
            best = x[i]
            at = i
    r = np.zeros(3, x.dtype)
    for t in hl.tile(3):
        r[t] = best
    n = 0
    while n < 4 and x[n] < 2:
        n += 1
    r[0] = n
    r[1] = at
    return r, best


def array_that_two_names_held(x):
    e = x * 2
    f = e
    e = e + 1
    o = np.zeros(6, np.float32)
    for i in hl.parallel(6):
        o[i] = f[i] * 10 + e[i]
    return o


def steps_in_order(x):
    cur = x.copy()
    nxt = np.zeros(6, np.float32)
    for s in range(3):
        for i in range(1, 5):
            nxt[i] = cur[i - 1] + cur[i + 1]
        cur[:] = nxt
    return cur


def iterations_of_while(x):
    out = np.zeros(6, np.float32)
    for i in hl.parallel(6):
        v = x[i]
        while v > 1:
            v = v / 2
            if v < 1.3:
                out[i] += 1
                continue
            out[i] += v
        out[i] = out[i] + v
    return out


X = np.array([0.5, 1, 2, 3, 4, 5], np.float32)
ARGUMENTS = {"x": X, "m": np.arange(20, dtype=np.float32).reshape(4, 5), "b": np.array([1, 44, 200, 255], np.uint8)}
PROGRAMS = [
    number_that_a_name_holds,
    slice_that_a_name_holds,
    row_that_a_name_holds,
    loop_variable_after_its_loop,
    loops_with_one_variable,
    two_calls_of_one_function,
    element_of_the_array_that_is_written,
    several_targets,
    guarded_element,
    stop_that_becomes_negative,
    number_between_loops_under_a_condition,
    negative_size_of_a_loop,
    empty_ranges,
    shapes_that_are_compared,
    array_before_the_loops,
    atomic_update_in_a_function,
    one_name_in_two_loops,
    narrow_integers_and_python_integers,
    quotients_of_negative_numbers,
    maximum_of_nan,
    sum_of_narrow_integers,
    function_that_writes_in_an_expression,
    array_in_a_tuple,
    guarded_conditions,
    tuple_that_a_name_holds,
    name_of_a_function_and_of_its_caller,
    python_integer_beyond_the_other_dtype,
    python_integer_of_a_loop,
    guarded_quotient,
    place_of_nan,
    empty_slices,
    sizes_of_one,
    integer_overflow,
    moving_windows,
    operators_of_booleans,
    loop_over_tuples,
    function_of_several_results,
    iteration_that_ends_early,
    statements_outside_of_loops,
    arrays_outside_of_loops,
    numbers_outside_of_loops,
    array_that_two_names_held,
    steps_in_order,
    iterations_of_while,
]


@pytest.mark.parametrize("function", PROGRAMS, ids=[f.__name__ for f in PROGRAMS])
def test_a_kernel_is_what_python_computes(function):
    given = [ARGUMENTS[name] for name in inspect.signature(function).parameters]
    kernel = hl.kernel(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of integers that wrap around
        wanted = kernel.python(*given)
    found = kernel(*given)
    if not isinstance(wanted, tuple):
        found, wanted = (found,), (wanted,)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)


@pytest.mark.parametrize("function", PROGRAMS[-6:], ids=[f.__name__ for f in PROGRAMS[-6:]])
def test_many_calls_at_once(function):
    many = np.random.default_rng(0).random((3, 6)).astype(np.float32) * 4
    kernel = hl.kernel(function)
    found, wanted = hl.vmap(kernel)(many), [kernel.python(row) for row in many]
    if not isinstance(wanted[0], tuple):
        found, wanted = (found,), [(one,) for one in wanted]
    for k, one in enumerate(found):
        np.testing.assert_allclose(np.asarray(one), np.stack([np.asarray(row[k]) for row in wanted]), rtol=1e-5)
