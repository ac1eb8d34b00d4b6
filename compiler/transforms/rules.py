"""Loads the rules of ops that run programs.

Such a rule transforms the computations that its op calls, so its module imports the transforms of this package: `jvp`,
`vjp`, `batch`. These cannot import the rules in turn, and load them here on first use.
"""

from __future__ import annotations

import functools
import importlib

MODULES = ("control", "manual", "loops.scan")


@functools.cache
def load_rules() -> None:
    """Registers the rules of differentiation and batching in the tables of `hloom.ir.ops.programs`."""
    for name in MODULES:
        importlib.import_module(f"hloom.compiler.transforms.{name}")
