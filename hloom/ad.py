"""What the arguments of `vjp(...)[1].with_refs(...)` may be besides Refs (`jax.ad`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GradValue:
    """Asks for the cotangent of an argument as a value."""


@dataclass(frozen=True)
class DontWant:
    """Asks for no cotangent of an argument."""


@dataclass(frozen=True)
class DidntWant:
    """Stands where `DontWant` was given."""


__all__ = ["DidntWant", "DontWant", "GradValue"]
