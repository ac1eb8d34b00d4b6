"""Habits from other frameworks that are errors here, with their repairs."""

from __future__ import annotations

from collections.abc import Callable

from hloom.errors import ArgumentError

# Names of a layer's call method in other frameworks.
_CALLS = ("forward", "call", "apply")


def refused_call(cls: type) -> Callable | None:
    """A `__call__` that raises, for a class that lacks one but has another framework's call method; else None."""
    if any("__call__" in base.__dict__ for base in cls.__mro__):
        return None
    found = next((name for name in _CALLS if callable(cls.__dict__.get(name))), None)
    if found is None:
        return None

    def __call__(self, *args, **kwargs):
        raise ArgumentError(
            f"a call of {cls.__name__} runs its method __call__",
            f"the class has {found}, and no __call__",
            f"rename the method: def __call__(self, ...) in place of def {found}(self, ...)",
        )

    return __call__


def check_callable(module, what: str) -> None:
    """Raises ArgumentError for an object that `nn.apply` or a summary cannot call."""
    if callable(module):
        return
    cls = type(module).__name__
    methods = [n for n, v in vars(type(module)).items() if callable(v) and not n.startswith("_")]
    found = f"{cls}, which has no method __call__" + (f", only {', '.join(methods)}" if methods else "")
    raise ArgumentError(f"{what} calls a module", found, "pass a module whose class has def __call__(self, x)")
