"""hl.profiler: where its parts come from. What it measures is tested with the benchmark's limits."""

import numpy as np
import pytest

import hloom as hl

pytestmark = pytest.mark.quick


def test_parts_name_the_instruction_that_they_measure():
    x = np.ones((8, 8), np.float32)
    parts = hl.profiler.profile(hl.jit(lambda x: (x @ x).sum()).lower(x).compile(), (x,), 0.01)
    assert parts and all(isinstance(p, hl.profiler.Part) and p.seconds >= 0 for p in parts)
    assert all(p.instruction is not None and p.what.startswith(p.instruction.hint or "") for p in parts)
