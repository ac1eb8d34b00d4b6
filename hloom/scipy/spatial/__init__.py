"""Spatial transformations with `jax.scipy.spatial`'s names."""

from __future__ import annotations

from hloom.scipy.spatial import transform

__all__ = ["transform"]
__dir__ = __all__.copy
