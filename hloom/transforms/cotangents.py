"""What the arguments of `vjp(...)[1].with_refs(...)` may be besides Refs (`jax.ad`)."""

from __future__ import annotations

from hloom.ir.records import record


@record(frozen=True)
class GradValue:
    """Asks for the cotangent of an argument as a value."""


@record(frozen=True)
class DontWant:
    """Asks for no cotangent of an argument."""


@record(frozen=True)
class DidntWant:
    """Stands where `DontWant` was given."""


__all__ = ["DidntWant", "DontWant", "GradValue"]
__dir__ = __all__.copy
