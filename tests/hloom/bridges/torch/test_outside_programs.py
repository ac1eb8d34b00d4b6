"""A few networks of NNSmith through the torch backend; tests/reliability.py has the campaign."""

from __future__ import annotations

import pytest

pytest.importorskip("nnsmith", reason="nnsmith, a generator of networks, is not installed: pip install nnsmith")

import outside_programs


@pytest.mark.parametrize("seed", range(3))
def test_a_network_computes_as_in_eager_torch(seed):
    network, inputs, operators = outside_programs.made(seed)
    wrong, _ = outside_programs.checked(network, inputs)
    assert not wrong, f"{wrong} of {operators}"
