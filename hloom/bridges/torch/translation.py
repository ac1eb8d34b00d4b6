"""A graph's module and how it is called: the memory it reads and writes, and its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from hloom.bridges.torch.conditions import Condition
from hloom.bridges.torch.memory import View
from hloom.ir.module import Module
from hloom.ir.records import field, record, replace
from hloom.ir.sizes.expressions import Size, size_at

__all__ = ["Argument", "Check", "Given", "New", "Number", "Part", "Translation", "Update"]


Numbers = Callable[[tuple[Size, ...]], tuple[int, ...]]


@record
class Argument:
    """The source of a parameter's memory: argument `position` of the call, or `tensor`; the seed if neither is set.

    order: of its dimensions in memory; None if the memory is copied first, as it has gaps. whole: the memory from
    the first element to the last, gaps too, as one dimension.
    """

    position: int | None = None
    tensor: Any = None
    order: tuple[int, ...] | None = ()
    whole: bool = False


@record(frozen=True)
class New:
    """A tensor that the program computes: its number among the program's outputs. spread: strides with gaps, to which
    its elements are copied after the call."""

    number: int
    dtype: torch.dtype
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    spread: tuple[Size, ...] | None = None

    def at(self, numbers: Numbers) -> New:
        spread = None if self.spread is None else numbers(self.spread)
        return New(self.number, self.dtype, numbers(self.sizes), numbers(self.strides), spread)


@record(frozen=True)
class Given:
    """An unchanged argument. lazy: whether it was declared to be conjugated, and negated, lazily."""

    position: int
    lazy: tuple[bool, bool] = (False, False)


@record(frozen=True)
class Part:
    """A view of the memory of another result."""

    base: Any
    view: View


@record(frozen=True)
class Number:
    """A size, or None."""

    value: Any


@record(frozen=True)
class Update:
    """An output that replaces the elements of argument `position`. strides: of the argument, or those of a contiguous
    tensor where that has gaps (not `as_it_lies`)."""

    position: int
    dtype: torch.dtype
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    as_it_lies: bool


@record(frozen=True)
class Check:
    """LAPACK's `info` in a new tensor, which has to be 0: otherwise torch's error of the function `name` is raised."""

    number: int
    name: str
    is_matrix: bool


@record
class Translation:
    """A module and how it is called.

    results: New, Given, Part or Number, one for each result of the graph. new: the tensors that are allocated, which
    are the module's first outputs; updates: its others. layouts: sizes and strides of the tensors among the graph's
    arguments, by position. checks: conditions to test after a call. lazy: positions of tensors that may be conjugated
    or negated lazily: they are read, and changed, through copies. conditions: those of the flag, the module's last
    output, where there are any. free: numbers of the new tensors that may lie in any order.
    """

    module: Module | None
    arguments: list[Argument]
    results: list
    new: list[New]
    updates: list[Update] = field(default_factory=list)
    layouts: dict[int, tuple[tuple[Size, ...], tuple[Size, ...]]] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    lazy: list[int] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)

    def at(self, sizes: Mapping[str, int]) -> Translation:
        """How the module is called for sizes of its dimensions, by name. The module is unchanged."""
        known: dict[Size, int] = {}

        def number(size: Size) -> int:
            found = known.get(size)
            if found is None:
                found = known[size] = size_at(size, sizes)
            return found

        def numbers(several: tuple[Size, ...]) -> tuple[int, ...]:
            return tuple([number(size) for size in several])

        def result(one: Any) -> Any:
            if isinstance(one, Part):
                view = replace(
                    one.view, sizes=numbers(one.view.sizes), strides=numbers(one.view.strides),
                    offset=number(one.view.offset),
                )  # fmt: skip
                return Part(result(one.base), view)
            if isinstance(one, New):
                return one.at(numbers)
            return Number(size_at(one.value, sizes)) if isinstance(one, Number) else one

        return replace(
            self,
            results=[result(r) for r in self.results],
            new=[n.at(numbers) for n in self.new],
            updates=[replace(u, sizes=numbers(u.sizes), strides=numbers(u.strides)) for u in self.updates],
            layouts={k: (numbers(dims), numbers(strides)) for k, (dims, strides) in self.layouts.items()},
            conditions=[replace(c, size=number(c.size)) for c in self.conditions],
        )
