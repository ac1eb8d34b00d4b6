"""What jax decides by the names of platforms: for hloom's devices as for its CPUs.

hloom reads the custom calls of LAPACK that jax writes for CPUs.
"""

from __future__ import annotations

from collections import ChainMap
from typing import Any

from jax._src import compilation_cache
from jax._src.interpreters import mlir
from jax._src.lax import linalg

__all__ = ["register"]


def register() -> None:
    """Enters platform hloom in jax's tables."""
    # A primitive without a rule for hloom has that for CPUs, also where jax enters it later.
    rules: dict[str, Any] = mlir._platform_specific_lowerings
    if isinstance(rules["hloom"], ChainMap):
        return
    rules["hloom"] = ChainMap(rules["hloom"], rules["cpu"])
    # LAPACK's ormqr, in products: jax has that for platforms without it.
    ormqr = mlir.lower_fun(linalg._ormqr_lowering, multiple_results=False)
    mlir.register_lowering(linalg.ormqr_p, ormqr, platform="hloom")
    mlir._platforms_with_donation.append("hloom")
    for_others = compilation_cache.is_cache_used

    def is_cache_used(backend) -> bool:
        return compilation_cache._is_cache_enabled() if backend.platform == "hloom" else for_others(backend)

    compilation_cache.is_cache_used = is_cache_used
