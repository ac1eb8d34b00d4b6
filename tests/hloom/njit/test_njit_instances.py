"""Dataclass instances, named tuples and dicts of arrays as arguments and results of `hl.njit`."""

from __future__ import annotations

import copy
import dataclasses
from typing import NamedTuple

import numpy as np
import pytest

import hloom as hl
from hloom.errors import HloomError, IndexOutOfBoundsError, UnsupportedError


@dataclasses.dataclass
class Box:
    low: float
    size: np.ndarray


@dataclasses.dataclass
class Particles:
    x: np.ndarray
    v: np.ndarray
    mass: float
    box: Box
    steps: int = 3
    name: str = "gas"

    def energy(self):
        return 0.5 * self.mass * np.sum(self.v**2)

    @property
    def speed(self):
        return np.sqrt(self.v**2)


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    x: np.ndarray
    k: float


class Pair(NamedTuple):
    x: np.ndarray
    y: np.ndarray


def particles():
    x = np.linspace(0, 1, 6)
    return Particles(x, np.cos(x), 2.0, Box(0.25, np.ones(3)))


def moves(p):
    for _ in range(p.steps):
        for i in range(len(p.x)):
            p.x[i] += 0.1 * p.v[i] + p.box.low
            p.box.size[i // 2] += p.mass
    p.v[1:] *= 0.5
    return p.energy() + p.speed.sum()


def moves_by_solving(p):
    for _ in range(20):
        p.x[:3] = np.linalg.solve(np.eye(3) * p.mass, p.box.size)
        p.v[0] += p.x[1]
    return p.x.sum()


def moved(p):
    return dataclasses.replace(p, x=p.x + p.v * p.mass)


def makes(x, k):
    return [Fixed(x * k, k + 1.0), Box(x[0], x)]


def reads_fixed(p):
    total = 0.0
    for value in p.x:
        total += value * p.k
    return total


def of_dict(d, n):
    for i in range(n):
        d["x"][i] = d["y"][i] * 2
    for i in range(n):
        d["p"].x[i] += d["x"][i]
    return {"sum": d["x"].sum(), "p": d["p"]}


def of_pair(p):
    for i in range(1, len(p.x)):
        p.x[i] = p.x[i - 1] + p.y[i]
    return Pair(p.y, p.x + 1)


def aliases(p, x):
    for i in range(len(x)):
        p.x[i] += x[i]
    return x


def chooses(p, k):
    q = Fixed(p.x + 1, k)
    if p.x[1] > 0.5:
        q = Fixed(p.x * k, q.k + 1)
    return q


def returns_one_of(p, k):
    if p.x[1] * k > 0.5:
        return Pair(p.x * k, p.x)
    return Pair(p.x + 1, p.x - 1)


def cases():
    x = np.arange(6.0)
    p = particles()
    d = {"x": x.copy(), "y": x + 1, "p": Fixed(x * 3, 1.0)}
    return [
        (moves, p), (moves_by_solving, p), (moved, p), (makes, x, 2.0), (reads_fixed, Fixed(x, 0.5)), (of_dict, d, 6),
        (of_pair, Pair(x, x * 2)), (aliases, p, p.x), (chooses, p, 2.0), (chooses, p, -1.0),
        (returns_one_of, p, 9.0), (returns_one_of, p, -1.0),
    ]  # fmt: skip


def leaves(value):
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *[leaves(v) for v in value]]
    if isinstance(value, dict):
        return {k: leaves(v) for k, v in value.items()}
    if dataclasses.is_dataclass(value):
        return {f.name: leaves(getattr(value, f.name)) for f in dataclasses.fields(value)} | {"of": type(value)}
    return value


@pytest.mark.parametrize("number", range(len(cases())))
def test_agrees_with_numpy(number):
    function, *ours = cases()[number]
    theirs, compiled = copy.deepcopy(ours), hl.njit(function)
    for _ in range(2):
        found, wanted = leaves(compiled(*ours)), leaves(function(*theirs))
        _compare(found, wanted)
        _compare(leaves(ours), leaves(theirs))


def _compare(found, wanted):
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key in wanted:
            _compare(found[key], wanted[key])
    elif isinstance(wanted, list):
        for one, other in zip(found, wanted, strict=True):
            _compare(one, other)
    elif isinstance(wanted, (str, type)):
        assert found == wanted
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-13)


def test_loops_over_attributes_are_kernels():
    p = particles()
    assert hl.njit(moves).lower(p).as_text().count("while") == 0


def test_other_numbers_and_types():
    compiled = hl.njit(reads_fixed)
    assert compiled(Fixed(np.ones(3), 2.0)) == 6.0
    assert compiled(Fixed(np.ones(3), 3.0)) == 9.0
    assert compiled(Fixed(np.ones(3, np.int64), 3)) == 9
    p = particles()
    p.steps = 1
    q = copy.deepcopy(p)
    assert hl.njit(moves)(p) == pytest.approx(moves(q))


def test_derivatives():
    compiled = hl.njit(reads_fixed)
    with hl.enable_x64():
        slope = hl.grad(lambda x: compiled.pure(Fixed(x, 0.5))[0])(np.arange(3.0))
    np.testing.assert_allclose(slope, 0.5)


def sets(p):
    p.x = p.x + 1


def sets_by_name(p):
    setattr(p, "mass", 3.0)  # noqa: B010


def appends(values):
    values.append(values[0])


def sets_an_entry(d):
    d["x"] = d["x"] + 1


@pytest.mark.parametrize(
    ("function", "argument", "text"),
    [
        (sets, particles(), r"a change of an attribute[\s\S]*p.x = p.x \+ 1[\s\S]*p.x\[:\] = y"),
        (sets_by_name, particles(), "a change of an argument of 'sets_by_name'"),
        (appends, [np.ones(2)], "a change of an argument of 'appends'"),
        (sets_an_entry, {"x": np.ones(2)}, "a change of an argument of 'sets_an_entry'"),
    ],
)
def test_changes_of_containers_are_refused(function, argument, text):
    with pytest.raises(UnsupportedError, match=text):
        hl.njit(function)(argument)
    with pytest.warns(hl.errors.FallbackWarning):
        hl.njit(function, fallback=True)(argument)


def test_classes_are_not_registered():
    hl.njit(reads_fixed)(Fixed(np.ones(3), 2.0))
    with pytest.raises((HloomError, TypeError)):
        hl.jit(lambda p: p.x)(Fixed(np.ones(3), 2.0))


def beyond(p, p_x):
    for i in range(9):
        p.x[i] += p_x


def test_an_index_out_of_range_names_the_attribute():
    p = Pair(np.ones(3), np.ones(3))
    with pytest.raises(IndexOutOfBoundsError, match=r"'p_x_' is 3[\s\S]*p\.x\[i\] \+= p_x"):
        hl.njit(beyond)(p, 1.0)


def other_classes(p):
    if p.x[0] > 0:
        return Pair(p.x, p.x)
    return Box(p.x + 1, p.x)


def test_a_branch_decides_between_classes():
    with pytest.raises(UnsupportedError, match=r"an instance of Pair and an instance of Box[\s\S]*if p.x\[0\] > 0"):
        hl.njit(other_classes)(Pair(np.ones(2), np.ones(2)))
