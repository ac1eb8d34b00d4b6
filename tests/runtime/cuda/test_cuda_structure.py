"""Loops and branches are found again in lists with jumps, however they are nested."""

from __future__ import annotations

import random

import pytest

from hloom.runtime.cuda.programs.program import Conditional, Fill, Ref, While
from hloom.runtime.cuda.programs.structure import Jumps, structured
from hloom.runtime.steps import Branch, Jump, Switch

pytestmark = pytest.mark.quick

PRED = Ref("arena", 0)
JUMPS = Jumps(
    lambda s: s.target if isinstance(s, Jump) else None,
    lambda s: (s.pred, s.target) if isinstance(s, Branch) else None,
    lambda s: (s.index, s.targets) if isinstance(s, Switch) else None,
)


def read(steps):
    return structured(steps, JUMPS, lambda step: [step])


def flat(steps, at: int = 0) -> list:
    """Jumps as the planner makes them, for steps that begin at the number `at`."""
    result: list = []
    for step in steps:
        here = at + len(result)
        if isinstance(step, While):
            condition = flat(step.condition, here)
            body = flat(step.body, here + len(condition) + 1)
            out = here + len(condition) + 1 + len(body) + 1
            result += [*condition, Branch(step.pred, out), *body, Jump(here)]
        elif isinstance(step, Conditional):
            parts, starts, place = [], [], here + 1
            for k, branch in enumerate(step.branches):
                part = flat(branch, place)
                starts.append(place)
                parts.append(part)
                place += len(part) + (k < len(step.branches) - 1)
            result.append(Switch(step.selector, tuple(starts)) if step.by_index else Branch(step.selector, starts[1]))
            for part in parts[:-1]:
                result += [*part, Jump(place)]
            result += parts[-1]
        else:
            result.append(step)
    return result


def some(maker: random.Random, depth: int):
    count = maker.randrange(4)
    result = []
    for _ in range(count):
        kind = maker.randrange(4) if depth else 3
        if kind == 0:
            result.append(While(some(maker, depth - 1), PRED, some(maker, depth - 1)))
        elif kind == 1:
            result.append(Conditional(PRED, (some(maker, depth - 1), some(maker, depth - 1))))
        elif kind == 2:
            branches = tuple(some(maker, depth - 1) for _ in range(maker.randrange(2, 5)))
            result.append(Conditional(PRED, branches, True))
        else:
            result.append(Fill(Ref("arena", maker.randrange(99)), maker.randrange(256), 1))
    return tuple(result)


@pytest.mark.parametrize("seed", range(300))
def test_what_was_made_flat_is_found_again(seed):
    steps = some(random.Random(seed), 3)
    assert read(flat(steps)) == steps


def test_a_loop_in_the_condition_of_a_loop():
    inner = While((), PRED, (Fill(PRED, 0, 1),))
    steps = (While((inner,), PRED, (inner,)), inner)
    assert read(flat(steps)) == steps


def test_one_branch_is_what_follows():
    assert read([Switch(PRED, (1,)), Fill(PRED, 1, 1)]) == (Fill(PRED, 1, 1),)


@pytest.mark.parametrize(
    "steps",
    [
        [Jump(1), Fill(PRED, 0, 1)],
        [Fill(PRED, 0, 1), Jump(0)],
        [Branch(PRED, 2), Fill(PRED, 0, 1), Fill(PRED, 1, 1)],
        [Switch(PRED, (1, 3, 5)), Fill(PRED, 0, 1), Jump(6), Fill(PRED, 0, 1), Jump(5), Fill(PRED, 0, 1)],
    ],
)
def test_other_jumps_are_refused(steps):
    with pytest.raises(ValueError):
        read(steps)
