"""hloom: an XLA-style just-in-time tensor compiler in Python.

import hloom as hl
import hloom.numpy as hnp

@hl.jit
def layer(x, w, b):
    return hnp.tanh(x @ w + b)
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

try:
    from hloom import errors, lax, numpy, tree
    from hloom._version import __version__
    from hloom.backends import preload as _preload
    from hloom.config import config
    from hloom.dispatch.jit import jit, make_module
    from hloom.ir import tracebacks as _tracebacks
    from hloom.ir.process import lazy as _lazy
    from hloom.jax import settings as _settings
    from hloom.jax.import_hook import MODULES as _MODULES
    from hloom.jax.import_hook import install_finder as _install_finder
    from hloom.jax.version import __version_info__  # of the JAX whose names these are
    from hloom.numpy import methods as _methods
except ModuleNotFoundError as _error:
    if (_error.name or "hloom").partition(".")[0] == "hloom":
        raise
    raise ImportError(  # not of the same class: who asks for hloom, as jax does for plugins, would take it for missing
        f"import of hloom\n  found:  {_error}\n  repair: install what hloom needs: pip install {_error.name}",
        name=_error.name,
    ) from _error

if _TYPE_CHECKING:  # the names of _HOMES, for type checkers
    # fmt: off
    # isort: off
    from hloom import (
        checkpoints, cluster, data, distributed, image, metrics, nn, onnx, ops, optim, profiler, random,
        scipy, sessions, sharding, summary, training, typing,
    )
    from hloom.export import callable_module as export
    from hloom.jax import (
        core, custom_batching, custom_derivatives, dlpack, dtypes, experimental, flatten_util, monitoring, stages,
        test_util, tree_util, version,
    )
    from hloom.tracing import debug, refs as ref
    from hloom.transforms import cotangents as ad, remat as ad_checkpoint

    from hloom.ir.sizes.expressions import Dim
    from hloom.arrays.from_parts import (
        make_array_from_callback, make_array_from_process_local_data, make_array_from_single_device_arrays,
    )
    from hloom.arrays.interchange import from_numpy, from_torch, to_numpy, to_torch
    from hloom.arrays.shape_dtype import ShapeDtypeStruct
    from hloom.contexts import (
        check_tracer_leaks, checking_leaks, debug_infs, debug_key_reuse, debug_nans, default_matmul_precision,
        disable_jit, enable_x64, explain_cache_misses, log_compiles, numpy_dtype_promotion, numpy_rank_promotion,
        transfer_guard, transfer_guard_device_to_device, transfer_guard_device_to_host, transfer_guard_host_to_device,
    )
    from hloom.dispatch.from_text import from_hlo, from_stablehlo
    from hloom.ir.ops.programs.structure import register_custom_call
    from hloom.jax.compatibility import (
        clear_caches, default_device, effects_barrier, make_jaxpr, named_call, named_scope, print_environment_info,
        typeof,
    )
    from hloom.jax.import_hook import as_jax
    from hloom.jax.process import (
        fwd_and_bwd, host_count, host_id, host_ids, live_arrays, process_indices,
    )
    from hloom.kernels.kernel import kernel
    from hloom.kernels.language import atomic_add, atomic_max, atomic_min, parallel, tile
    from hloom.njit.decorators.guvectorize import guvectorize
    from hloom.njit.decorators.stencil import stencil
    from hloom.njit.decorators.vectorize import vectorize
    from hloom.njit.njit import njit
    from hloom.lax.control.associative import associative_scan
    from hloom.lax.control.branches import cond, switch
    from hloom.lax.control.loops import fori_loop, while_loop
    from hloom.lax.control.scan import scan
    from hloom.lax.transfer import block_until_ready, copy_to_host_async, device_get, device_put, reshard
    from hloom.platforms.device import (
        Device, default_backend, device, device_count, devices, local_device_count, local_devices, process_count,
        process_index,
    )
    from hloom.sharding.meshes import get_mesh, make_mesh, set_mesh
    from hloom.sharding.shardings import NamedSharding, P, Shard
    from hloom.tracing.active import assume
    from hloom.tracing.callback import io_callback, pure_callback
    from hloom.tracing.concrete import ensure_compile_time_eval
    from hloom.tracing.eval_shape import eval_shape
    from hloom.tracing.refs import Ref, freeze, new_ref
    from hloom.transforms.custom_derivatives import closure_convert, custom_gradient, custom_jvp, custom_vjp
    from hloom.transforms.gradient import grad, jvp, linearize, value_and_grad, vjp
    from hloom.transforms.jacobians import hessian, jacfwd, jacobian, jacrev, linear_transpose
    from hloom.transforms.pmap import pmap
    from hloom.transforms.remat import checkpoint, checkpoint_name, checkpoint_policies, print_saved_residuals, remat
    from hloom.transforms.shard_map import shard_map, smap
    from hloom.transforms.vmap import vmap
    from hloom.typing import Array
    # isort: on
    # fmt: on

_install_finder()

# Where the public names are defined.
_HOMES = {
    "hloom.arrays.from_parts": (
        "make_array_from_callback make_array_from_process_local_data make_array_from_single_device_arrays"
    ),
    "hloom.arrays.interchange": "from_numpy from_torch to_numpy to_torch",
    "hloom.arrays.shape_dtype": "ShapeDtypeStruct",
    "hloom.contexts": (
        "check_tracer_leaks checking_leaks debug_infs debug_key_reuse debug_nans default_matmul_precision "
        "disable_jit enable_x64 explain_cache_misses log_compiles numpy_dtype_promotion numpy_rank_promotion "
        "transfer_guard transfer_guard_device_to_device transfer_guard_device_to_host transfer_guard_host_to_device"
    ),
    "hloom.dispatch.from_text": "from_hlo from_stablehlo",
    "hloom.ir.ops.programs.structure": "register_custom_call",
    "hloom.ir.sizes.expressions": "Dim",
    "hloom.jax.compatibility": (
        "clear_caches default_device effects_barrier make_jaxpr named_call named_scope print_environment_info typeof"
    ),
    "hloom.jax.import_hook": "as_jax",
    "hloom.jax.process": ("fwd_and_bwd host_count host_id host_ids live_arrays process_indices"),
    "hloom.kernels.kernel": "kernel",
    "hloom.kernels.language": "atomic_add atomic_max atomic_min parallel tile",
    "hloom.njit.decorators.guvectorize": "guvectorize",
    "hloom.njit.decorators.stencil": "stencil",
    "hloom.njit.decorators.vectorize": "vectorize",
    "hloom.njit.njit": "njit",
    "hloom.lax.control.associative": "associative_scan",
    "hloom.lax.control.branches": "cond switch",
    "hloom.lax.control.loops": "fori_loop while_loop",
    "hloom.lax.control.scan": "scan",
    "hloom.lax.transfer": "block_until_ready copy_to_host_async device_get device_put reshard",
    "hloom.platforms.device": (
        "Device default_backend device device_count devices local_device_count local_devices process_count "
        "process_index"
    ),
    "hloom.sharding.meshes": "get_mesh make_mesh set_mesh",
    "hloom.sharding.shardings": "NamedSharding P Shard",
    "hloom.tracing.active": "assume",
    "hloom.tracing.callback": "io_callback pure_callback",
    "hloom.tracing.concrete": "ensure_compile_time_eval",
    "hloom.tracing.eval_shape": "eval_shape",
    "hloom.tracing.refs": "Ref freeze new_ref",
    "hloom.transforms.custom_derivatives": "closure_convert custom_gradient custom_jvp custom_vjp",
    "hloom.transforms.gradient": "grad jvp linearize value_and_grad vjp",
    "hloom.transforms.jacobians": "hessian jacfwd jacobian jacrev linear_transpose",
    "hloom.transforms.pmap": "pmap",
    "hloom.transforms.remat": "checkpoint checkpoint_name checkpoint_policies print_saved_residuals remat",
    "hloom.transforms.shard_map": "shard_map smap",
    "hloom.transforms.vmap": "vmap",
    "hloom.typing": "Array",
}
_LIBRARIES = (
    "checkpoints", "cluster", "data", "distributed", "export", "image", "metrics", "nn", "onnx", "ops", "optim",
    "profiler", "random", "scipy", "sessions", "sharding", "summary", "training", "typing",
)  # fmt: skip
__getattr__ = _lazy.lazy_names(globals(), _HOMES, {name: f"hloom.{name}" for name in _LIBRARIES} | _MODULES)

__all__ = ["__version__", "config", "errors", "jit", "lax", "make_module", "numpy", "tree"]
__all__ += [*_LIBRARIES, *_MODULES, *" ".join(_HOMES.values()).split()]
__dir__ = __all__.copy

_preload.start()
_tracebacks.install(lambda: config.full_tracebacks)
