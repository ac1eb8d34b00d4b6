"""Functions of this process that jax's programs name: by a number, in the target of a custom call."""

from __future__ import annotations

import itertools
import re
import weakref
from typing import Any, Generic, TypeVar

from jaxlib.mlir import ir

__all__ = ["Named", "rename"]

T = TypeVar("T")


class Named(Generic[T]):
    """Functions with names `PREFIX.NUMBER`. A name leads to its function as long as something else holds that: jax's
    module, or an executable."""

    def __init__(self, prefix: str):
        self._prefix = prefix
        self._name = re.compile(re.escape(prefix) + r"\.(\d{1,18})\b")
        self._numbers = itertools.count(1)
        self._functions: weakref.WeakValueDictionary[int, T] = weakref.WeakValueDictionary()

    def add(self, function: T) -> str:
        """The new name of a function."""
        number = next(self._numbers)
        self._functions[number] = function
        return f"{self._prefix}.{number}"

    def is_name(self, target: str | None) -> bool:
        return self._name.fullmatch(target or "") is not None

    def get(self, target: str | None) -> T | None:
        """The function of a name; None for other targets, and where it is not in this process any more."""
        found = self._name.fullmatch(target or "")
        return self._functions.get(int(found[1])) if found else None

    def named_in(self, text: str) -> list[T | None]:
        """The functions that a program's text names, in order; None for those that no longer exist in this process."""
        return [self._functions.get(int(number)) for number in self._name.findall(text)]


def rename(call: Any, name: str) -> None:
    """Makes a custom call, of which jax wrote that it calls an address, call the function of a name."""
    call.attributes["call_target_name"] = ir.StringAttr.get(name)
    call.attributes["backend_config"] = ir.StringAttr.get("")
