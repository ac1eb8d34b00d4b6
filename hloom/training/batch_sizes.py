"""Batches of several sizes: the first sizes have dedicated programs, and one program serves all others.

A data set whose size is not a multiple of the batch size has a smaller last batch, a second size. Buckets have many. A
program of open sizes (`hl.Dim`) takes about twice as long to compile as one of a fixed size, but serves all later
sizes: so it is compiled at the third size; earlier it would not pay off.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.arrays.array import common_device
from hloom.dispatch.jit import JitFunction
from hloom.dispatch.signature import Call
from hloom.dispatch.specialization import Specialization
from hloom.dispatch.spmd import OpenSpmdSpecialization
from hloom.errors import DonationWarning, FallbackWarning, HloomError
from hloom.ir.records import field, record, replace
from hloom.ir.sizes.expressions import Dim, Scope
from hloom.ir.sizes.policy import ALONE, SMALLEST
from hloom.ir.source import current_source, warn_while_compiling
from hloom.sharding.shardings import over_several
from hloom.tracing.signatures import function_name
from hloom.tracing.trace import as_array
from hloom.tree import pytrees as tree

KEPT = 1024  # sizes whose program is known

# The types of the arrays of a batch: (dimensions, dtype, whether weak, device); (None, type) for other leaves. An open
# dimension is None.
Kinds = tuple[tuple, ...]
Signature = tuple[Any, Kinds]


class BatchSizes:
    """A compiled function(state, batch), called with batches of several sizes. begins: whether the size of the first
    batch, the most common one of a run, gets a dedicated program, regardless of other runs."""

    def __init__(self, function: JitFunction, *, begins: bool = False):
        self._function, self._begins = function, begins
        if function not in _known:
            _known[function] = _Known()
        self._known = _known[function]

    def __call__(self, state: Any, batch: Any) -> Any:
        known, signature = self._known, _signature(batch)
        if self._begins:
            self._begins = False
            known.alone[signature] = known.programs[signature] = None
        try:
            program = known.programs[signature]
        except KeyError:
            program = known.programs[signature] = self._program(signature)
        if program is None:
            return self._function(state, batch)
        try:
            return program(state, batch)
        except _Refused as refused:
            known.refuse(program)
            found = self._function(state, batch)  # what is wrong at this size, too, is an error of this call
            self._warn(refused)
            return found

    def _program(self, signature: Signature) -> _OpenFunction | None:
        """The program for batches of a new size; None: the function itself."""
        known = self._known
        if len(known.programs) >= KEPT:
            known.programs.clear()
        patterns = [found for one in known.alone if (found := _pattern(one, signature)) is not None]
        for pattern in dict.fromkeys(patterns):
            if pattern in known.open or patterns.count(pattern) >= ALONE:
                if pattern not in known.open:
                    known.open[pattern] = _OpenFunction(self._function, pattern)
                return known.open[pattern]
        known.alone[signature] = None
        return None

    def _warn(self, refused: _Refused) -> None:
        if not self._known.warned:
            self._known.warned = True
            warn_while_compiling(
                f"'{function_name(self._function)}' is compiled for each size of batches: {refused}. Batches of few "
                "sizes, such as those of hl.data's `batch(last='pad')`, need few programs",
                FallbackWarning,
                current_source(),
            )


@record
class _Known:
    """The state kept for a function. alone: the sizes with dedicated programs, in order. open: the program by its open
    dimensions; None if there is none. programs: the program for a size, None for the function itself."""

    alone: dict[Signature, None] = field(default_factory=dict)
    open: dict[Signature, _OpenFunction | None] = field(default_factory=dict)
    programs: dict[Signature, _OpenFunction | None] = field(default_factory=dict)
    warned: bool = False

    def refuse(self, program: _OpenFunction) -> None:
        for programs in (self.open, self.programs):
            programs.update(dict.fromkeys([key for key, one in programs.items() if one is program]))


_known: weakref.WeakKeyDictionary[JitFunction, _Known] = weakref.WeakKeyDictionary()


class _Refused(Exception):
    """A call has no program of open sizes. Nothing has run yet."""


class _OfNumbers(Scope):
    """For a function written for fixed sizes: decisions that do not hold for all sizes are refused."""

    __slots__ = ()
    refuses_lookups = True


class _OpenFunction(JitFunction):
    """A function whose batches have an open size. Raises _Refused instead of any error before a run."""

    def __init__(self, function: JitFunction, pattern: Signature):
        structure, kinds = pattern
        self._refusal = _refusal(function)
        size = Dim("batch", min=SMALLEST, scope=_OfNumbers())
        axes = [{0: size} if kind[0] and kind[0][0] is None else None for kind in kinds]
        abstracted = None if self._refusal else (None, tree.unflatten(structure, axes))
        super().__init__(function.function, replace(function.options, abstracted_axes=abstracted))

    def _version(self, call: Call, args: Sequence, kwargs: dict) -> Specialization:
        try:
            if self._refusal:
                raise _Refused(self._refusal)
            device = common_device(call.leaves, "a batch")
            if over_several(device):
                raise _Refused("its arrays are on several devices")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FallbackWarning)  # the refusal is one
                # The choice between two states reads buffers that the step alone would overwrite.
                warnings.simplefilter("ignore", DonationWarning)
                found = super()._version(call, args, kwargs)
                if found.traced.uses_mesh or isinstance(found, OpenSpmdSpecialization):
                    raise _Refused("it names a mesh")
                if not found.ready_for([as_array(leaf) for leaf in call.leaves]):
                    raise _Refused("most sizes need a separate program")
        except _Refused:
            raise
        except HloomError as error:
            where = f", at {error.source}" if error.source else ""
            raise _Refused(f"{error.asked}: {error.found}{where}") from error
        except Exception as error:  # of the function too, which may take sizes for integers
            raise _Refused(f"{type(error).__name__}: {error}") from error
        return found


def _refusal(function: JitFunction) -> str:
    """Why a function's options rule out a program of open sizes; '' if they do not."""
    o = function.options
    if o.in_shardings is not None or o.out_shardings is not None:
        return "it has shardings"
    if o.target is not None:
        return f"it is compiled for {o.target}"
    if o.autotune:
        return "it is tuned for the sizes of its arrays"
    return "it has static arguments" if o.static_argnums or o.static_argnames else ""


def sized(function: Callable, *, begins: bool = False) -> Callable:
    """A function(state, batch) for batches of several sizes; the function itself if it is not compiled, or names
    dimensions. begins: as in `BatchSizes`."""
    if not isinstance(function, JitFunction):
        return function
    named = function.options.dims is not None or function.options.abstracted_axes is not None
    return function if named else BatchSizes(function, begins=begins)


def _signature(batch: Any) -> Signature:
    leaves, structure = tree.flatten(batch)
    return structure, tuple(map(_kind, leaves))


def _kind(leaf: Any) -> tuple:
    if type(leaf) is np.ndarray:  # mostly
        return leaf.shape, leaf.dtype, False, None
    shape = getattr(leaf, "shape", None)
    if shape is None:
        return None, type(leaf)
    return tuple(shape), getattr(leaf, "dtype", None), getattr(leaf, "weak", False), getattr(leaf, "_device", None)


def _pattern(known: Signature, new: Signature) -> Signature | None:
    """The common types of two batches that differ only in their size, with None for it; None for other batches."""
    if known[0] != new[0]:
        return None
    sizes, kinds = set(), []
    for one, other in zip(known[1], new[1], strict=True):
        if one != other:
            if not one[0] or not other[0] or (one[0][1:], one[1:]) != (other[0][1:], other[1:]):
                return None
            sizes.add((one[0][0], other[0][0]))
            other = ((None, *other[0][1:]), *other[1:])
        kinds.append(other)
    is_open = len(sizes) == 1 and all(size >= SMALLEST for _, size in sizes)
    return (new[0], tuple(kinds)) if is_open else None


__all__ = ["ALONE", "BatchSizes", "sized"]
