"""Grids of devices."""

from __future__ import annotations

import numpy as np

from hloom.sharding import make_mesh


def create_device_mesh(mesh_shape, devices=None, **options) -> np.ndarray:
    """An array of devices of this shape, for `hloom.sharding.Mesh`. Raises DeviceError where there are too few."""
    names = tuple(f"axis{k}" for k in range(len(mesh_shape)))
    return make_mesh(tuple(mesh_shape), names, devices=devices).devices


__all__ = ["create_device_mesh"]
__dir__ = __all__.copy
