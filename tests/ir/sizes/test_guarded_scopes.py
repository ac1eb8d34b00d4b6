"""Decisions by sample sizes, which are guards of what is compiled."""

from __future__ import annotations

import pytest

from hloom.errors import UndecidedSizeError
from hloom.ir.sizes.expressions import Comparison, Dim
from hloom.ir.sizes.guards import GuardedScope, inner, typical

N = Dim("n")


def test_a_decision_is_noted_once_and_known_from_there_on():
    scope = GuardedScope({"n": 37})
    n = scope.dim(N, 2)
    assert n >= 8 and not n > 64 and n + 1 >= 9 and n != 100 and n >= 2
    assert [repr(guard) for guard in scope.guards] == ["size__n >= 8", "size__n <= 64"]
    outer = [guard.over({inner("n"): N}) for guard in scope.guards]
    assert [guard.holds({"n": 8}) for guard in outer if isinstance(guard, Comparison)] == [True, True]
    assert not all(guard.holds({"n": 65}) for guard in outer if isinstance(guard, Comparison))


@pytest.mark.parametrize("taken", [int, lambda n: range(n).stop, lambda n: int(f"{n}"), lambda n: int(float(n))])
def test_a_number_that_is_taken_of_a_size_is_a_guard(taken):
    scope = GuardedScope({"n": 37})
    n = scope.dim(N, 2)
    assert taken(2 * n) == 74
    assert not all(guard.holds({inner("n"): 38}) for guard in scope.guards)
    assert n == 37 and len(scope.guards) == 1


def test_a_typical_number_is_no_guard():
    scope = GuardedScope({"n": 37, "m": 5})
    n, m = scope.dim(N, 2), scope.dim(Dim("m"), 2)
    assert typical(n * m) == 185 and typical(12) == 12 and not scope.guards
    with pytest.raises(UndecidedSizeError):
        typical(N)


def test_scopes_do_not_share_what_they_know():
    first, second = GuardedScope({"n": 37}), GuardedScope({"n": 5})
    assert first.dim(N, 2) > 8 and not second.dim(N, 2) > 8


def test_what_is_proved_is_proved_once():
    scope = GuardedScope({"n": 37, "m": 5})
    n, m = scope.dim(Dim("n"), 2), scope.dim(Dim("m"), 2)
    assert n * m >= 4 and (n * m >= 4) is True and len(scope.answered) == 1
    assert n >= 8  # a guard, from which more is proved
    assert n * m >= 16 and not scope.guards[1:]
