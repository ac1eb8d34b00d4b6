"""Makes jax treat hloom's devices like its CPUs where it decides by platform names.

hloom reads the custom calls of LAPACK that jax writes for CPUs.
"""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from typing import Any

from jax._src import compilation_cache, custom_partitioning, debugging, xla_bridge
from jax._src.export import _export
from jax._src.interpreters import mlir, pxla
from jax._src.lax import linalg
from jax._src.lax.control_flow import conditionals
from jaxlib import _jax

from hloom.bridges.pjrt.spmd import inspection, partitioners

__all__ = ["register"]


def _named(groups):
    """Groups of platforms (None: all others), with hloom added next to cpu unless one names hloom."""
    if groups is None or any("hloom" in group for group in groups if group):
        return groups
    return tuple((*group, "hloom") if group and "cpu" in group else group for group in groups)


def _platform_index(context, *, platforms):
    return conditionals._platform_index_lowering(context, platforms=_named(platforms))


def _cond(context, index, *arguments, branches_platforms=None, **parameters):
    found = _named(branches_platforms)
    return conditionals._cond_lowering(context, index, *arguments, branches_platforms=found, **parameters)


def _call_exported(context, *arguments, exported):
    platforms = [name for group in _named([(name,) for name in exported.platforms]) for name in group[-1:]]
    made = dataclasses.replace(exported, platforms=tuple(platforms))
    return _export._call_exported_lowering(context, *arguments, exported=made)


class _Cpu:
    """The attributes of a backend that jax's cache reads to decide whether its programs can be stored."""

    platform, supports_executable_serialization = "cpu", True


def _is_cache_used(for_others):
    def is_cache_used(backend) -> bool:
        return for_others(_Cpu if backend.platform == "hloom" else backend)

    return is_cache_used


def _cost_analysis(for_others):
    """XLA's count for a program that is not compiled yet, by jax's CPU: hloom's would need its fusions."""

    def cost_analysis(self) -> Any:
        if xla_bridge.get_backend(self.compile_args["backend"]).platform != "hloom":
            return for_others(self)
        return _jax.hlo_module_cost_analysis(xla_bridge.get_backend("cpu"), self.hlo().as_hlo_module())

    return cost_analysis


def _export_internal(for_others):
    """Programs that jax2tf writes run on TensorFlow's devices, among which hloom is not."""

    def export_internal(*arguments, **options):
        for_tensorflow = options.get("_device_assignment_for_internal_jax2tf_use_only") is not None
        if for_tensorflow and options.get("platforms") is None and _export.default_export_platform() == "hloom":
            options["platforms"] = ("cpu",)
        return for_others(*arguments, **options)

    return export_internal


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
    # Branches and exported programs for CPUs are for hloom, too, where they do not name it.
    mlir.register_lowering(conditionals.platform_index_p, _platform_index, platform="hloom")
    mlir.register_lowering(conditionals.cond_p, _cond, platform="hloom")
    mlir.register_lowering(_export.call_exported_p, _call_exported, platform="hloom")
    mlir.register_lowering(custom_partitioning.custom_partitioning_p, partitioners.lowering, platform="hloom")
    mlir.register_lowering(debugging.inspect_sharding_p, inspection.lowering, platform="hloom")
    mlir._platforms_with_donation.append("hloom")
    compilation_cache.is_cache_used = _is_cache_used(compilation_cache.is_cache_used)
    _export._export_internal = _export_internal(_export._export_internal)
    count = _cost_analysis(pxla.MeshComputation.cost_analysis)
    pxla.MeshComputation.cost_analysis = count  # type: ignore[method-assign]  # jax has none for plugins
