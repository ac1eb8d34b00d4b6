"""What jax decides by the names of platforms: for hloom's devices as for its CPUs.

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
    """Groups of platforms (None: all others), with hloom beside cpu unless one names hloom."""
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


def _cost_analysis(computation: pxla.MeshComputation) -> Any:
    """XLA's count for a program that is not compiled yet, by jax's CPU: hloom's would need its fusions."""
    return _jax.hlo_module_cost_analysis(xla_bridge.get_backend("cpu"), computation.hlo().as_hlo_module())


def _exported(for_others):
    """jax's export. Programs that jax2tf writes run on TensorFlow's devices, among which hloom is not."""

    def export(*arguments, platforms=None, _device_assignment_for_internal_jax2tf_use_only=None, **options):
        for_tensorflow = _device_assignment_for_internal_jax2tf_use_only is not None
        if for_tensorflow and platforms is None and _export.default_export_platform() == "hloom":
            platforms = ("cpu",)
        options["_device_assignment_for_internal_jax2tf_use_only"] = _device_assignment_for_internal_jax2tf_use_only
        return for_others(*arguments, platforms=platforms, **options)

    return export


class _Cpu:
    """What jax's cache asks of a backend: whether it is of a kind whose programs can be stored."""

    platform, supports_executable_serialization = "cpu", True


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
    _export._export_internal = _exported(_export._export_internal)
    mlir._platforms_with_donation.append("hloom")
    for_others = compilation_cache.is_cache_used
    count_for_others = pxla.MeshComputation.cost_analysis

    def is_cache_used(backend) -> bool:
        return for_others(_Cpu if backend.platform == "hloom" else backend)

    def cost_analysis(self) -> Any:
        backend = xla_bridge.get_backend(self.compile_args["backend"])
        return (_cost_analysis if backend.platform == "hloom" else count_for_others)(self)

    compilation_cache.is_cache_used = is_cache_used
    pxla.MeshComputation.cost_analysis = cost_analysis  # type: ignore[method-assign]  # jax has none for plugins
