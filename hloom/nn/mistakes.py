"""What users of other frameworks write of a layer, and what hloom answers."""

from __future__ import annotations

from collections.abc import Callable

from hloom.errors import ArgumentError

# What other frameworks call the method that a call of a layer runs.
_CALLS = ("forward", "call", "apply")


def refused_call(cls: type) -> Callable | None:
    """The `__call__` of a class that has none, but a method of which users think that a call runs it; else None."""
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
    """Raises ArgumentError for what `nn.apply` or a summary cannot call."""
    if callable(module):
        return
    cls = type(module).__name__
    methods = [n for n, v in vars(type(module)).items() if callable(v) and not n.startswith("_")]
    found = f"{cls}, which has no method __call__" + (f", only {', '.join(methods)}" if methods else "")
    raise ArgumentError(f"{what} calls a module", found, "pass a module whose class has def __call__(self, x)")
