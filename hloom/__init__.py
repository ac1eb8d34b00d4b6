"""hloom: an XLA-style just-in-time tensor compiler in Python.

import hloom as hl
import hloom.numpy as hnp

@hl.jit
def layer(x, w, b):
    return hnp.tanh(x @ w + b)
"""

from __future__ import annotations

from importlib import import_module as _import_module

from hloom import errors, lax, numpy, tree
from hloom._version import __version__
from hloom.arrays.interchange import from_numpy, from_torch, to_numpy, to_torch
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.backends import preload as _preload
from hloom.config import config
from hloom.contexts import (
    check_tracer_leaks,
    checking_leaks,
    debug_infs,
    debug_nans,
    default_matmul_precision,
    disable_jit,
    enable_x64,
    explain_cache_misses,
    log_compiles,
    numpy_dtype_promotion,
    numpy_rank_promotion,
    transfer_guard,
    transfer_guard_device_to_device,
    transfer_guard_device_to_host,
    transfer_guard_host_to_device,
)
from hloom.dispatch.from_text import from_hlo, from_stablehlo
from hloom.dispatch.jit import jit, make_module
from hloom.ir.ops.programs.structure import register_custom_call
from hloom.jax import lax_primitives as _lax_primitives
from hloom.jax import settings as _settings
from hloom.jax.compatibility import (
    clear_caches,
    default_device,
    effects_barrier,
    make_array_from_callback,
    make_array_from_single_device_arrays,
    make_jaxpr,
    named_call,
    named_scope,
    print_environment_info,
    typeof,
)
from hloom.jax.import_hook import MODULES as _MODULES
from hloom.jax.import_hook import as_jax
from hloom.jax.import_hook import install_finder as _install_finder
from hloom.jax.process import (
    fwd_and_bwd,
    host_count,
    host_id,
    host_ids,
    live_arrays,
    make_array_from_process_local_data,
    process_indices,
)
from hloom.jax.version import __version_info__  # of the JAX whose names these are
from hloom.lax.control.associative import associative_scan
from hloom.lax.control.branches import cond, switch
from hloom.lax.control.loops import fori_loop, while_loop
from hloom.lax.control.scan import scan
from hloom.lax.transfer import block_until_ready, copy_to_host_async, device_get, device_put, reshard
from hloom.numpy import methods as _methods
from hloom.platforms.device import (
    Device,
    default_backend,
    device,
    device_count,
    devices,
    local_device_count,
    local_devices,
    process_count,
    process_index,
)
from hloom.sharding.shardings import NamedSharding, P, Shard, get_mesh, make_mesh, set_mesh
from hloom.tracing.callback import io_callback, pure_callback
from hloom.tracing.concrete import ensure_compile_time_eval
from hloom.tracing.eval_shape import eval_shape
from hloom.tracing.refs import Ref, freeze, new_ref
from hloom.transforms.custom_derivatives import closure_convert, custom_gradient, custom_jvp, custom_vjp
from hloom.transforms.gradient import grad, jvp, linearize, value_and_grad, vjp
from hloom.transforms.jacobians import hessian, jacfwd, jacobian, jacrev, linear_transpose
from hloom.transforms.pmap import pmap
from hloom.transforms.remat import checkpoint, checkpoint_name, checkpoint_policies, print_saved_residuals, remat
from hloom.transforms.shard_map import shard_map
from hloom.transforms.vmap import vmap
from hloom.typing import Array

_install_finder()

# Imported when they are first used: a program that needs arrays and gradients only starts without them.
_LAZY = frozenset(("image", "metrics", "nn", "ops", "optim", "random", "scipy", "sharding", "typing", *_MODULES))


def __getattr__(name: str):
    if name in _LAZY:
        return _import_module(_MODULES.get(name, f"hloom.{name}"))
    raise AttributeError(f"module 'hloom' has no attribute '{name}'")


__all__ = [
    "Array", "Device", "NamedSharding", "P", "Ref", "ShapeDtypeStruct", "Shard", "__version__", "ad", "ad_checkpoint",
    "ad_util", "api_util", "as_jax", "associative_scan", "block_until_ready", "check_tracer_leaks", "checking_leaks",
    "checkpoint", "checkpoint_name", "checkpoint_policies", "clear_caches", "closure_convert", "cond", "config",
    "copy_to_host_async", "core", "custom_batching", "custom_derivatives", "custom_gradient", "custom_jvp",
    "custom_vjp", "debug", "debug_infs", "debug_nans", "default_backend", "default_device",
    "default_matmul_precision", "device", "device_count", "device_get", "device_put", "devices", "disable_jit",
    "dlpack", "dtypes", "effects_barrier", "enable_x64", "ensure_compile_time_eval", "errors", "eval_shape",
    "example_libraries", "experimental", "explain_cache_misses", "extend", "flatten_util", "fori_loop", "freeze",
    "from_hlo", "from_numpy", "from_stablehlo", "from_torch", "fwd_and_bwd", "get_mesh", "grad", "hessian",
    "host_count", "host_id", "host_ids", "image", "interpreters", "io_callback", "jacfwd", "jacobian", "jacrev",
    "jit", "jvp", "lax", "linear_transpose", "linearize", "live_arrays", "local_device_count", "local_devices",
    "log_compiles", "make_array_from_callback", "make_array_from_process_local_data",
    "make_array_from_single_device_arrays", "make_jaxpr", "make_mesh", "make_module", "metrics", "monitoring",
    "named_call", "named_scope", "new_ref", "nn", "numpy", "numpy_dtype_promotion", "numpy_rank_promotion", "ops",
    "optim", "pmap", "print_environment_info", "print_saved_residuals", "process_count", "process_index",
    "process_indices", "pure_callback", "random", "ref", "register_custom_call", "remat", "reshard", "scan", "scipy",
    "set_mesh", "shard_map", "sharding", "stages", "switch", "test_util", "to_numpy", "to_torch", "traceback_util",
    "transfer_guard", "transfer_guard_device_to_device", "transfer_guard_device_to_host",
    "transfer_guard_host_to_device", "tree", "tree_util", "typeof", "typing", "value_and_grad", "version", "vjp",
    "vmap", "while_loop",
]  # fmt: skip
__dir__ = __all__.copy

_preload.start()
