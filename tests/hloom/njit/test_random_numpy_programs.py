"""A few random NumPy programs; `tests/reliability.py --only random_numpy_programs` is the campaign, of which they are a
sample."""

from __future__ import annotations

from collections import Counter

from random_numpy_programs import check


def test_random_programs_compute_what_numpy_computes():
    counts = sum([Counter(check(seed)) for seed in range(8, 24)], Counter())
    assert counts["compared"] >= 8
