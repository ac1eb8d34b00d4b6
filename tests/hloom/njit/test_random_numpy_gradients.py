"""Random NumPy programs with loops of known and unknown length: gradients are right, and cost what the programs do."""

from __future__ import annotations

import pytest
from differentiated_numpy import check


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5])
def test_gradients_are_right_and_linear(seed):
    check(seed)
