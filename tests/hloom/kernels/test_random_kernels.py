"""A few random kernels; `tests/reliability.py --only random_kernels` is the campaign, of which they are a sample."""

from __future__ import annotations

import pytest
from random_kernels import check


@pytest.mark.parametrize("first", range(0, 24, 4))
def test_random_kernels_compute_what_python_computes(first):
    for seed in range(first, first + 4):
        check(seed)
