"""A partitioned program computes what the whole one does: random programs, random layouts, all meshes."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_modules import cases
from random_programs import Programs, arguments, check_outputs
from spmd_modules import MESHES, annotated, check, copied, run_partitioned

NAMES = [c.name for c in cases() if c.name not in ("custom_calls", "collectives", "collective_broadcast")]


@pytest.mark.parametrize("name", NAMES)
def test_every_op_in_random_layouts(name):
    case = next(c for c in cases() if c.name == name)
    for seed in range(3):
        drawn = random.Random(zlib.crc32(name.encode()) + seed)
        check(annotated(copied(case.module), drawn.choice(MESHES), drawn), list(case.arguments))


@given(st.randoms(use_true_random=False), st.sampled_from(MESHES), st.integers(1, 12), st.floats(0.3, 1.0))
def test_random_programs_in_random_layouts(drawn, mesh, size, chance):
    programs = Programs(drawn)
    module = programs.module(size)
    arrays = arguments(module, drawn.randrange(1000))
    with np.errstate(all="ignore"):
        check_outputs(programs, module, run_partitioned(annotated(module, mesh, drawn, chance), arrays), arrays)
