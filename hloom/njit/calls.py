"""A compiled NumPy program: from arrays of NumPy to arrays of NumPy, without hloom's arrays in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.dispatch.jit import call_settings
from hloom.errors import ArgumentError
from hloom.ir.source import device_scopes
from hloom.kernels.faults import raise_fault
from hloom.njit.arguments.instances import Constant, instance_of, unpacked
from hloom.njit.control import Trace, in_order
from hloom.njit.values import PYTHON
from hloom.runtime.buffer import is_exclusive
from hloom.tree import pytrees as tree

__all__ = ["MISS", "Entry", "is_quick", "same_arrays", "settings"]


def settings() -> Any:
    """The settings that programs are compiled with."""
    return call_settings().current


def is_quick() -> bool:
    """Whether programs run without the checks and devices that settings may ask for."""
    return not call_settings().checked and not device_scopes.device


def same_arrays(leaves: Sequence[Any]) -> tuple[tuple[int, int], ...] | None:
    """Pairs of leaves that are the same array of NumPy; None where arrays share some memory and are not the same."""
    arrays = [(k, leaf) for k, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray)]
    found = []
    for n, (k, leaf) in enumerate(arrays):
        for first, other in arrays[:n]:
            if leaf is other:
                found.append((k, first))
                break
            if np.may_share_memory(leaf, other) and np.shares_memory(leaf, other):
                return None
    return tuple(found)


MISS = object()  # what a quick call returns for other arguments than those of its program


class Entry:
    """The program for `count` leaves of arguments of some shapes and dtypes. writes: the numbers of leaves that it
    changes."""

    def __init__(self, compiled: Any, spec: Any, name: str, count: int, trace: Trace):
        self.name, self.same, self.outside = name, spec.same, trace.outside
        self.strided = spec.strided
        executable = compiled.executable
        shapes = executable.output_shapes
        self._compiled, self._runner = compiled, executable.runner
        self._given = spec.given(count)
        numbers = tree.unflatten(compiled.out_tree, list(range(len(shapes))))
        self._result = numbers["result"]
        self._written = [(int(k), number) for k, number in numbers["written"].items()]
        self._faults = [(Trace.checked[int(k)], number) for k, number in in_order(numbers["faults"])]
        self.writes = [k for k, _ in self._written]
        self._in_place = {
            k for k, number in self._written if executable.donated.get(number) == self._given.index(k)
        }  # fmt: skip
        single = {tree.flatten(self._result)[0][k] for k in trace.single}
        self._scalars = frozenset(k for k, shape in enumerate(shapes) if shape.dims == () and k not in single)
        self._settings = settings()
        self._count = -1  # of the arguments of quick calls
        self._plan: list[tuple] = []
        self._pairs: list[tuple[int, int]] = []  # arguments that must not share memory: one of them is changed

    def expect(self, arguments: Sequence[Any], constants: tuple[type, ...]) -> None:
        """Prepares for quick calls with arguments like these, which are the leaves. constants: types of numbers that
        the program is compiled for."""
        plan: list[tuple] = []
        for k, leaf in enumerate(arguments):
            kind = type(leaf)
            if kind is np.ndarray:
                plan.append((kind, leaf.dtype, leaf.shape, k in self.writes, k in self._given))
            elif kind in PYTHON and not isinstance(leaf, constants):
                plan.append((kind, PYTHON[kind], None, False, k in self._given))
            elif kind in (int, bool) or leaf is None:
                plan.append((kind, None, leaf, False, False))
            else:
                return  # found by its hash
        if self.same or self.strided or self._given != sorted(self._given):
            return
        arrays = [k for k, (kind, *_) in enumerate(plan) if kind is np.ndarray]
        self._pairs = [(j, k) for k in arrays for j in arrays if j < k and not {j, k}.isdisjoint(self.writes)]
        self._plan, self._count = plan, len(plan)

    def quick(self, arguments: tuple) -> Any:
        """What the program returns, or MISS. The checks of `fits`, with the keys of arguments compared one by one."""
        now = call_settings()
        if len(arguments) != self._count or now.current != self._settings or now.checked or device_scopes.device:
            return MISS
        inputs: list[Any] = []
        for leaf, (kind, dtype, shape, written, given) in zip(arguments, self._plan, strict=True):
            if type(leaf) is not kind:
                return MISS
            if kind is np.ndarray:
                flags = leaf.flags
                if leaf.dtype is not dtype or leaf.shape != shape or not flags.c_contiguous:
                    return MISS
                if written and not flags.writeable:
                    return MISS
                if given:
                    inputs.append(leaf)
            elif dtype is None:
                if leaf != shape:
                    return MISS
            elif given:
                inputs.append(np.asarray(leaf, dtype))
        for j, k in self._pairs:
            if arguments[j] is arguments[k] or np.may_share_memory(arguments[j], arguments[k]):
                return MISS
        if self.outside.changed():
            return MISS
        return self._ran(arguments, inputs)

    def fits(self, leaves: Sequence[Any]) -> bool:
        """Whether arguments share memory as those did that this was compiled for, and nothing from outside changed."""
        if self.outside.changed():
            return False
        arrays = [(k, leaf) for k, leaf in enumerate(leaves) if type(leaf) is np.ndarray]
        if tuple([k for k, leaf in arrays if not leaf.flags.c_contiguous]) != self.strided:
            return False
        shared = bool(self.writes or self.same) and len(arrays) > 1
        return is_quick() and (not shared or same_arrays(leaves) == self.same)  # None: the longer way says why not

    def __call__(self, leaves: Sequence[Any]) -> Any:
        for k in self.writes:
            if not leaves[k].flags.writeable:
                raise ArgumentError(f"'{self.name}' changes an argument in place", "it is read-only", "pass a copy")
        inputs = []
        for k in self._given:
            leaf = leaves[k]
            if type(leaf) is not np.ndarray:
                leaf = np.asarray(leaf, PYTHON.get(type(leaf)))
            elif not leaf.flags.c_contiguous:
                leaf = np.ascontiguousarray(leaf)
            inputs.append(leaf)
        return self._ran(leaves, inputs)

    def _ran(self, leaves: Sequence[Any], inputs: list) -> Any:
        outputs = self._runner(inputs)
        inputs.clear()
        for (name, _, checks), number in self._faults:
            word = int(outputs[number][0])
            if word:
                raise_fault(name, checks, word)
        for k, number in self._written:
            target = leaves[k]
            if not (k in self._in_place and target.flags.c_contiguous):
                np.copyto(target, outputs[number])
        result = self._result
        if type(result) is int:
            return self._owned(outputs, result)
        if result is None:
            return None
        if type(result) is Constant:
            return instance_of(result, leaves)
        if type(result) is tuple and all(type(number) is int for number in result):
            return tuple([self._owned(outputs, number) for number in result])
        return unpacked(tree.map(lambda number: self._owned(outputs, number), result), leaves)

    def _owned(self, outputs: list, number: int) -> Any:
        """A result that only the caller has."""
        if number in self._scalars:
            return outputs[number][()]
        if is_exclusive(outputs[number], 1):
            return outputs[number]
        return outputs[number].copy()
