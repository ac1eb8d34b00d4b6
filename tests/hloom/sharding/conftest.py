"""Meshes over eight devices of this process."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom import NamedSharding, P


@pytest.fixture
def mesh():
    with hl.config(num_cpu_devices=8):
        yield hl.make_mesh((4, 2), ("x", "y"), hl.sharding.AxisType.Auto)


@pytest.fixture
def put(mesh):
    """put(array, "x", None): the array over the mesh."""
    return lambda value, *spec: hl.device_put(np.asarray(value), NamedSharding(mesh, P(*spec)))
