"""Sizes that a traced function computes: how many elements of an array are true."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from hloom.errors import ConcretizationTypeError
from hloom.ir.module import Computation, Instruction, below
from hloom.ir.ops.programs.sizes import computes_sizes
from hloom.ir.ops.specialize import Specialization
from hloom.ir.rewrite import has_effects
from hloom.ir.sizes.counted import REPAIR, Check, CountedScope, counted_dim
from hloom.ir.sizes.expressions import Dim, SizeExpression, single, size_with
from hloom.ir.source import current_source
from hloom.ir.types import Shape
from hloom.tracing.active import TRACES
from hloom.tracing.trace import Tracer, bind

__all__ = ["counts", "size_of_mask", "with_own_sizes", "with_size"]

COMPARED = 4096  # bytes of a constant up to which it is compared by its elements
MOST = 2**31 - 1  # the largest bound: sizes are counted in s32


def counts(x: Any) -> bool:
    """Whether the number of true elements of an array becomes a size that the program computes."""
    return isinstance(x, Tracer) and x.value is None and TRACES.counts is not None and not x._shape.is_open


def size_of_mask(mask: Tracer, asked: str) -> Dim:
    """The size given by the number of true elements of a mask; equal masks share one. asked: what selects them."""
    trace, bound = mask.trace, mask._shape.size
    assert TRACES.counts is not None
    if bound > MOST:
        raise ConcretizationTypeError(f"{asked} of {mask._shape!r}", f"at most {MOST:,} elements are counted", REPAIR)
    if trace.equal_values is None:
        trace.equal_values = EqualValues()
    known = trace.equal_values
    key = known.number(mask.instruction)
    found = known.sizes.get(key)
    if found is None:
        found = known.sizes[key] = counted_dim(f"count_{next(TRACES.counts)}", bound, asked, current_source())
    return found


def with_size(x: Tracer, count: Tracer, size: Dim) -> Any:
    """Positions of rank 1, stored with the bound of a size, with the size. count: its value, s32."""
    return bind("set-dimension-size", x, count, shape=Shape(x.dtype, (size,)), dimensions=(0,))


class EqualValues:
    """Value numbering of a trace: values with the same op, attributes and operands get equal numbers. sizes: of masks,
    by their value numbers."""

    def __init__(self) -> None:
        self.sizes: dict[int, Dim] = {}
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[Instruction, int] = {}

    def number(self, instruction: Instruction) -> int:
        stack = [instruction]
        while stack:
            one = stack[-1]
            if missing := [o for o in one.operands if o not in self._known]:
                stack += missing
                continue
            stack.pop()
            if one not in self._known:
                self._known[one] = self._numbers.setdefault(self._key(one), len(self._numbers))
        return self._known[instruction]

    def _key(self, one: Instruction) -> Hashable:
        if one.opcode == "parameter" or one.called() or has_effects(one):
            return id(one)
        attributes = [(name, _hashable(value)) for name, value in sorted(one.attributes.items())]
        return one.opcode, one.shape, *attributes, *[self._known[o] for o in one.operands]


def _hashable(value: Any) -> Hashable:
    """A key for an attribute; large arrays and unhashable values equal only themselves."""
    if isinstance(value, np.ndarray) and value.nbytes <= COMPARED:
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, (tuple, list)):
        return tuple(map(_hashable, value))
    return value if isinstance(value, (str, bool, int, float, SizeExpression)) else id(value)


def with_own_sizes(computation: Computation) -> Computation:
    """A separately traced computation, for one call of it: the sizes it computes belong to this call.

    Raises ConcretizationTypeError if the traced code may not compute sizes.
    """
    if not computes_sizes(computation):
        return computation
    sizes: dict[str, Dim] = {}
    scopes: list[tuple[CountedScope, CountedScope]] = []
    for one in below(computation.instructions):
        if one.opcode != "set-dimension-size":
            continue
        dim = single(one.shape.dims[one["dimensions"][0]])
        assert dim is not None and isinstance(dim.scope, CountedScope)
        if TRACES.counts is None:
            raise ConcretizationTypeError(
                f"{dim.scope.asked} outside of hl.jit, where the number of elements is a shape",
                f"a traced value {one.operands[0].shape!r}, which has no value yet", REPAIR,
            )  # fmt: skip
        if dim.name not in sizes:
            own = counted_dim(f"count_{next(TRACES.counts)}", dim.most, dim.scope.asked, dim.scope.source)
            sizes[dim.name] = own
            assert isinstance(own.scope, CountedScope)
            scopes.append((dim.scope, own.scope))
    for known, scope in scopes:
        for check in known.checks:
            size = size_with(check.size, sizes)
            if isinstance(size, SizeExpression):
                scope.checks.append(Check(size, check.error))
    return Specialization(sizes).computation(computation)
