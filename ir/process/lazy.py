"""Modules and names that are imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from hloom.ir.process.forking import no_fork


class LazyModule:
    """A proxy of a module, which is imported on the first attribute access. SciPy takes longer to import than all of
    hloom."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # attributes that copy, pickle and inspect look up on any object
            raise AttributeError(attribute)
        with no_fork():
            value = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


def lazy_names(
    namespace: dict[str, Any],
    homes: Mapping[str, str],
    modules: Mapping[str, str] | None = None,
    prepare: Callable[[str, Any], Any] = lambda name, value: value,
) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names are imported from their modules at first use (PEP 562).

    A program does not import the modules of functions that it does not call. Type checkers see the same names through
    `from ... import *` under TYPE_CHECKING; tests keep the two lists consistent.

    homes: module -> its public names, separated by spaces. modules: public name -> the module of that name.
    prepare: applied by the package to a value before it is public.
    """
    package = namespace["__name__"]
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name in home_of:
            value = prepare(name, getattr(importlib.import_module(home_of[name]), name))
        elif modules and name in modules:
            value = importlib.import_module(modules[name])
        else:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        namespace[name] = value
        return value

    return find
