"""Modules of heavy libraries that are imported when something of them is used first."""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """Stands for a module: its first attribute imports it. SciPy takes longer to import than all of hloom."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # what copy, pickle and inspect ask any object for
            raise AttributeError(attribute)
        value = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value
