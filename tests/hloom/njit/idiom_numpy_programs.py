"""Idioms of NumPy programs, one mechanism of `hl.njit` each, with arguments."""

from __future__ import annotations

import numpy as np
from numpy_programs import R, prog


@prog(lambda: (R(0).random((6, 6)),))
def rows_exchanged_by_lists(m):
    for i in range(m.shape[0] - 1):
        pivot = np.argmax(np.abs(m[i:, i])) + i
        if pivot != i:
            m[[i, pivot]] = m[[pivot, i]]
        for j in range(i + 1, m.shape[0]):
            m[j, i:] -= m[j, i] / m[i, i] * m[i, i:]


@prog(lambda: (4, R(0).random(9)))
def lists_of_a_length(n, x):
    marks = np.array([True] * n + [False] * (len(x) - n))
    squares = [k * k for k in range(n)]
    return x[marks].sum(), np.array(squares), [0.0] * n


@prog(lambda: (R(0).random(6) + 1j * R(1).random(6), 0.25))
def parts_of_complex_numbers(z, s):
    z.imag += s
    z.real = z.imag * 2
    z[1:4].real[:2] = 1
    return z[2].real - z[3].imag, (z[0] * z[1]).conjugate().imag, s.real, s.imag


@prog(lambda: (R(0).random((4, 5)), 3))
def arguments_that_are_checked(x, n):
    if n > x.shape[0]:
        raise ValueError("too many")
    if x.ndim != 2:
        raise ValueError("no matrix")
    assert n > 0, "none"
    return x[:n].sum(axis=0)


@prog(lambda: (R(0).random(7), 40.0))
def sorting_until_a_limit(x, limit):
    total = 0.0
    for i in range(20):
        y = np.sort(x)[::-1] * i
        total += np.linalg.norm(y)
        if total > limit:
            break
        total += 1
    else:
        total = -total
    return total, i, y


@prog(lambda: (R(0).random(7),))
def sorting_to_the_end(x):
    total = 0.0
    for i in range(20):
        if i % 3 == 0:
            continue
        total += np.sort(np.roll(x, i))[i % 5]
        if total > 1e9:
            break
    else:
        total = -total
    return total


@prog(lambda: (R(0).random(12),))
def jumps_of_nested_loops(x):
    count = 0
    for i in range(len(x)):
        for j in range(len(x)):
            if x[i] < x[j]:
                continue
            if np.sort(x)[j] > 0.8:
                break
            count += 1
        if count > 30:
            break
    return count, i


@prog(lambda: (np.arange(11.0),))
def turning_until_found(x):
    k = 0
    while True:
        x = np.roll(x, 1)
        k += 1
        if x[0] == 3:
            break
    return k, x


@prog(lambda: (R(0).random(32),))
def halving_by_slices(x):
    n = len(x)
    while n > 1:
        n //= 2
        x = x[:n] + x[n : 2 * n]
    return x[0]


@prog(lambda: (R(0).random(9),))
def lists_that_branches_change(x):
    counts, largest = [0, 0, 0], {"value": x[0]}
    for k in range(len(x)):
        if x[k] > 0.4:
            counts[k % 3] += 1
        if x[k] > largest["value"]:
            largest["value"] = x[k]
    return counts, largest["value"]


@prog(lambda: (R(0).random(9),))
def names_that_a_loop_assigns_first(x):
    for i in range(len(x)):
        last = x[i] * 2
    for _ in range(9):
        ordered = np.sort(x) * last
    return last, i, ordered


@prog(lambda: (R(0).random(15), R(1).random(15)))
def pairs_of_sorted_arrays(x, y):
    best = 0.0
    for k, (a, b) in enumerate(zip(x, y[::-1])):
        if a > 0.95:
            break
        x[k] = np.sort(x)[0] + a * b
        best = max(best, np.median(y[:5]) * b)
    return best, k


@prog(lambda: (R(0).random((4, 5)),))
def rows_bound_by_an_inner_loop(m):
    row = m[1]
    count = 0
    for k in range(12):
        row[1] = 0.5 * k
        for row in m[k % 2 :]:
            count += 1
    return count


def first_above(x, limit):
    for i, e in enumerate(x):
        if e > limit:
            return i
    return -1


@prog(lambda: (R(0).random(12), R(1).random(3).astype(np.float32)))
def integers_that_helpers_return(x, g):
    for k in range(12):
        g[k % 3] += first_above(x, k / 12)
    return g[0] + first_above(x, 0.5)
