"""Which accesses of a kernel are compiled with checks.

A module of its own: a warm process imports no nodes.
"""

from __future__ import annotations

from hloom.ir.records import record

__all__ = ["Checks", "identity", "of_identity"]

_NUMBERS = 12  # bits of an access's number in what says which it is


@record(frozen=True)
class Checks:
    """Which accesses of a kernel are checked, by their numbers. nested: whether other kernels call it. kernel: a number
    of 48 bits that errors name it by."""

    accesses: tuple[int, ...]
    nested: bool
    kernel: int


def identity(kernel: int, access: int) -> int:
    """The number of an access among those of all kernels."""
    return kernel << _NUMBERS | access


def of_identity(number: int) -> tuple[int, int]:
    """The kernel and the access of a number."""
    return number >> _NUMBERS, number & ((1 << _NUMBERS) - 1)
