"""`hl.config.codegen = "numba"`: Numba's front end compiles every kernel, to the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax, nn
from hloom.errors import ArgumentError, HloomError

RANDOM = np.random.default_rng(0)
PROGRAMS = {
    "elementwise": lambda x: hnp.tanh(x) * 2 + hnp.exp(-x),
    "row": lambda x: nn.softmax(x, -1),
    "columns": lambda x: x.sum(0) / x.max(0),
    "product": lambda x: x @ x.T,
    "integers": lambda x: hnp.max(~(x * 100).astype(hnp.int64)) + hnp.cumsum((x > 0).astype(hnp.uint8), 1),
    "sort": lambda x: hnp.sort(x, 1),
    "scatter": lambda x: hnp.zeros(7).at[hnp.arange(48).reshape(6, 8) % 7].add(x),
    "loop": lambda x: lax.fori_loop(0, 5, lambda k, c: c * 0.5 + k, x),
    "complex": lambda x: hnp.abs(hnp.linspace(0, 1j, 5) + x[0, 0]),
    "narrow": lambda x: (x.astype(hnp.float16) + 1).astype(hnp.bfloat16),
}


def assert_same_bits(found, wanted) -> None:
    assert np.asarray(found).tobytes() == np.asarray(wanted).tobytes()


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_the_emitter(name, tmp_path):
    x = RANDOM.normal(size=(6, 8)).astype(np.float32)
    wanted = hl.jit(PROGRAMS[name])(x)
    with hl.config(codegen="numba", cache_dir=str(tmp_path)):
        compiled = hl.jit(PROGRAMS[name]).lower(x).compile()
        assert_same_bits(compiled(x), wanted)
        assert compiled.kernels_compiled == len({s.launch.source for s in compiled.plan.kernels()})
    assert_same_bits(hl.jit(PROGRAMS[name]).lower(x).compile()(x), wanted)


def test_other_code_generators():
    with pytest.raises((ArgumentError, HloomError), match="'llvm' or 'numba'"), hl.config(codegen="gcc"):
        pass
