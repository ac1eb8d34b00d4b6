"""Loads the rules of ops that run programs.

Such a rule transforms the computations that its op calls, so its module imports the walks of this package: `jvp`,
`vjp`, `batch`. A walk cannot import the rules in turn; it asks for them here when it begins.
"""

from __future__ import annotations

import functools
import importlib

MODULES = ("control", "manual", "scan")


@functools.cache
def load_rules() -> None:
    """Puts the rules of differentiation and batching into the tables of `hloom.ir.ops.programs`."""
    for name in MODULES:
        importlib.import_module(f"hloom.compiler.transforms.{name}")
