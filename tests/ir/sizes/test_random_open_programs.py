"""Random programs of unknown sizes; `python tests/reliability.py --only sizes` runs more of them."""

from __future__ import annotations

import open_programs
import pytest


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_programs_compute_what_those_of_fixed_sizes_do(first):
    used = sum((open_programs.check(seed)[0] for seed in range(first, first + 20)), open_programs.Counter())
    assert len(used) > 15


def test_one_executable_computes_what_the_reference_does():
    calls, variants = zip(*[open_programs.check_compiled(seed) for seed in range(16)], strict=True)
    assert sum(calls) > 60 and sum(variants) < sum(calls)
