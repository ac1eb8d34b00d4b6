"""Arguments of `vjp(...)[1].with_refs(...)` besides Refs (`jax.ad`)."""

from __future__ import annotations

from hloom.ir.records import record


@record(frozen=True)
class GradValue:
    """Requests the cotangent of an argument as a value."""


@record(frozen=True)
class DontWant:
    """Requests no cotangent of an argument."""


@record(frozen=True)
class DidntWant:
    """Returned where `DontWant` was passed."""


__all__ = ["DidntWant", "DontWant", "GradValue"]
__dir__ = __all__.copy
