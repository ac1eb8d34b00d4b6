"""Random loops that update arrays: gradients against complex steps in NumPy, and costs that grow with the rows."""

from __future__ import annotations

import pytest
from differentiated_loops import check


@pytest.mark.parametrize("seed", range(6))
def test_gradients_are_right_and_linear(seed):
    check(seed)
