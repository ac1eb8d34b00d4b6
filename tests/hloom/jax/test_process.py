"""JAX's names for facts about the process, settings for a while, and derivatives in two steps."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError


def test_one_process():
    assert (hl.host_count(), hl.host_id(), hl.host_ids(), hl.process_indices()) == (1, 0, [0], [0])
    x = hnp.arange(5)
    assert any(y is x for y in hl.live_arrays())
    x.delete()
    assert not any(y is x for y in hl.live_arrays())
    sharding = hnp.ones(2).sharding
    np.testing.assert_array_equal(hl.make_array_from_process_local_data(sharding, np.arange(3), (3,)), np.arange(3))
    with pytest.raises(ArgumentError, match="of one process"):
        hl.make_array_from_process_local_data(sharding, np.arange(3), (6,))


def test_settings_for_a_while(capsys):
    before = hl.config.debug
    with hl.log_compiles():
        assert hl.config.debug >= 1
        hl.jit(lambda x: x * 3.25 + 1)(hnp.ones(3))
    assert hl.config.debug == before and "compil" in capsys.readouterr().err
    with hl.transfer_guard("disallow"), hl.numpy_rank_promotion("allow"):
        assert float(hnp.sum(np.ones(3))) == 3
    with pytest.raises(ArgumentError, match="log_explicit"), hl.transfer_guard("never"):
        pass


def test_forward_and_backward_apart():
    forward, backward = hl.fwd_and_bwd(lambda x, y, z: x * y + z, argnums=(0, 1))
    result, residuals = forward(2.0, 3.0, 4.0)
    assert float(result) == 10 and [float(g) for g in backward(residuals, 1.0)] == [3, 2]
    forward, backward = hl.fwd_and_bwd(lambda x, y: (x * y, y), argnums=-1, has_aux=True)
    result, residuals, aux = forward(2.0, 3.0)
    assert (float(result), float(aux), float(backward(residuals, 5.0))) == (6, 3, 10)
