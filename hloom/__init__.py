"""hloom: an XLA-style just-in-time tensor compiler in Python.

import hloom as hl
import hloom.numpy as hnp

@hl.jit
def layer(x, w, b):
    return hnp.tanh(x @ w + b)
"""

from __future__ import annotations

import importlib

from hloom import errors, lax, numpy, tree
from hloom.array import Array
from hloom.checkpoint import checkpoint, checkpoint_name, checkpoint_policies, remat
from hloom.config import config
from hloom.custom_derivatives import closure_convert, custom_gradient, custom_jvp, custom_vjp
from hloom.devices import Device, block_until_ready, device_put, devices
from hloom.gradient import grad, jvp, linearize, value_and_grad, vjp
from hloom.ir.ops.structure import register_custom_call
from hloom.jacobians import hessian, jacfwd, jacobian, jacrev, linear_transpose
from hloom.jit import jit, make_module
from hloom.lax.control_flow import associative_scan, cond, fori_loop, scan, switch, while_loop
from hloom.shapes import ShapeDtypeStruct, eval_shape
from hloom.vmap import vmap

__version__ = "0.1.0"

# Imported when they are first used: a program that needs arrays and gradients only starts without them.
_LAZY = frozenset(("custom_batching", "metrics", "nn", "ops", "optim", "test_util"))


def __getattr__(name: str):
    if name in _LAZY:
        return importlib.import_module(f"hloom.{name}")
    raise AttributeError(f"module 'hloom' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(set(globals()) | _LAZY)

__all__ = [
    "Array",
    "Device",
    "ShapeDtypeStruct",
    "associative_scan",
    "block_until_ready",
    "config",
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "closure_convert",
    "custom_batching",
    "custom_gradient",
    "custom_jvp",
    "custom_vjp",
    "device_put",
    "devices",
    "errors",
    "eval_shape",
    "grad",
    "hessian",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jit",
    "jvp",
    "lax",
    "linear_transpose",
    "linearize",
    "make_module",
    "metrics",
    "nn",
    "numpy",
    "optim",
    "register_custom_call",
    "remat",
    "tree",
    "value_and_grad",
    "vjp",
    "cond",
    "fori_loop",
    "scan",
    "switch",
    "while_loop",
    "vmap",
]
