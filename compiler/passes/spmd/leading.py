"""Legalizes collectives for a library: along the first dimension, with supported types and reductions.

NCCL gathers, scatters and exchanges contiguous blocks. A collective along another dimension is transposed to the first
and back, by kernels. An unsupported reduction (of booleans, 16-bit integers, complex numbers or 8-bit floats, by a
custom combiner, or the maximum of floats, for which NCCL loses NaN) gathers or exchanges the operands, and each device
combines them in group order (`in_pairs`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hloom.compiler.passes.walk import change_computations, replaced
from hloom.ir.build import Builder, Value, combiner_opcode
from hloom.ir.errors import UnsupportedError
from hloom.ir.module import Instruction, Module
from hloom.ir.spmd.groups import device_groups, in_pairs

OPCODES = frozenset(("all-reduce", "all-gather", "reduce-scatter", "all-to-all"))
REDUCTIONS = frozenset(("all-reduce", "reduce-scatter"))
Reduces = Callable[[str, np.dtype], bool]  # (opcode of the combiner, dtype) -> whether the library supports it


def along_first_dimension(module: Module, reduces: Reduces) -> Module:
    """The module with its collectives in the library's form. reduces: the supported reductions.

    Raises UnsupportedError for an unsupported reduction over groups of different sizes.
    """

    def make(builder: Builder, instruction: Instruction, original: Instruction):
        groups = device_groups(instruction.opcode, instruction.attributes, module.replicas, module.partitions)
        sizes = {len(group) for group in groups}
        collective = _Collective(instruction, sizes, reduces)
        if collective.is_there:
            return None
        values = [getattr(collective, "made_" + instruction.opcode.replace("-", "_"))(Value(builder, o))
                  for o in instruction.operands]  # fmt: skip
        return values[0].instruction if len(values) == 1 else [v.instruction for v in values]

    return change_computations(
        module, lambda c: replaced(c, "along_first_dimension", lambda i: i.opcode in OPCODES, make)
    )


class _Collective:
    def __init__(self, instruction: Instruction, sizes: set[int], reduces: Reduces):
        self.instruction, self.sizes = instruction, sizes
        dimensions = instruction.attributes.get("dimensions")
        self.dimension = dimensions[0] if dimensions else 0
        self.combiner = None
        self.known = True
        if instruction.opcode in REDUCTIONS:
            self.combiner = combiner_opcode(instruction["to_apply"])
            self.known = self.combiner is not None and all(
                reduces(self.combiner, o.shape.dtype) for o in instruction.operands
            )

    @property
    def is_there(self) -> bool:
        return self.known and self.dimension == 0

    @property
    def size(self) -> int:
        """The size of the groups. Raises UnsupportedError if they differ."""
        if len(self.sizes) > 1:
            raise UnsupportedError(
                f"{self.instruction.opcode} of {self.instruction.operands[0].shape!r} in groups of the sizes "
                f"{sorted(self.sizes)} on GPUs",
                "NCCL has no such reduction, and devices of one program gather arrays of one shape",
                "make the groups of one size",
                self.instruction.source or "",
            )
        return next(iter(self.sizes))

    def _step(self, value: Value, opcode: str) -> Value:
        """A collective along the first dimension over the same devices."""
        given = {k: v for k, v in self.instruction.attributes.items() if k != "to_apply"}
        given["dimensions"] = (0,)
        if opcode in REDUCTIONS:
            given["to_apply"] = self.instruction["to_apply"]
        shape = None
        if opcode == "all-gather":
            shape = value.shape.with_dims((value.dims[0] * self.size, *value.dims[1:]))
        elif opcode == "reduce-scatter":
            shape = value.shape.with_dims((value.dims[0] // self.size, *value.dims[1:]))
        return value.op(opcode, shape=shape, **given)

    def _combined(self, value: Value) -> Value:
        """The rows of a value (one per member) combined."""
        dims = value.dims[1:]
        rest = [(0, d, 1) for d in dims]
        rows = [value.op("slice", slice=((k, k + 1, 1), *rest)).reshape(dims) for k in range(value.dims[0])]
        to_apply, dimensions = self.instruction["to_apply"], tuple(range(len(dims)))

        def both(x: Value, y: Value) -> Value:
            if self.combiner is not None:
                return x.op(self.combiner, y)
            return x.op("map", y, dimensions=dimensions, to_apply=to_apply)

        return in_pairs(rows, both)

    def _opened(self, value: Value) -> Value:
        """From [..., member x part, ...] to [member, ..., part, ...]."""
        d, dims = self.dimension, value.dims
        opened = value.reshape((*dims[:d], self.size, dims[d] // self.size, *dims[d + 1 :]))
        return opened.transpose((d, *(k for k in range(len(dims) + 1) if k != d)))

    def _closed(self, value: Value) -> Value:
        """From [member, ..., part, ...] to [..., member x part, ...]."""
        d, dims = self.dimension, value.dims[1:]
        order = list(range(1, len(dims) + 1))
        order.insert(d, 0)
        return value.transpose(order).reshape((*dims[:d], self.size * dims[d], *dims[d + 1 :]))

    def made_all_reduce(self, value: Value) -> Value:
        if self.size == 1:
            return value
        return self._combined(self._step(value.reshape((1, *value.dims)), "all-gather"))

    def made_all_gather(self, value: Value) -> Value:
        return self._closed(self._step(value.reshape((1, *value.dims)), "all-gather"))

    def made_all_to_all(self, value: Value) -> Value:
        return self._closed(self._step(self._opened(value), "all-to-all"))

    def made_reduce_scatter(self, value: Value) -> Value:
        opened = self._opened(value)
        if self.known:
            return self._step(opened, "reduce-scatter").reshape(opened.dims[1:])
        return self._combined(self._step(opened, "all-to-all"))


__all__ = ["along_first_dimension"]
