"""kernel: a user-defined kernel (`hloom.kernel`), for the shapes and dtypes of one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.ir.build import Value, tuple_elements
from hloom.ir.errors import AttributeValueError, ShapeError, UnsupportedError
from hloom.ir.op_table import No, op
from hloom.ir.types import Shape, TupleShape


class UserKernel(str):
    """The name of a kernel in HLO text, which also holds the kernel. Equal names are equal kernels.

    shape: of the results. program: the source of launches for targets (`hloom.compiler.kernels.user.Program`).
    """

    shape: TupleShape
    program: Any

    def evaluate(self, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """The results computed by Python, which define the kernel's semantics."""
        raise self.lost()

    def batched(self, size: Any, mapped: Sequence[bool]) -> UserKernel:
        """The kernel of `size` independent calls; mapped operands and all results have this dimension first."""
        raise self.lost()

    def jvp(self, build, instruction, primals, tangents):
        raise self.lost()

    def transpose(self, build, instruction, cotangent, operands):
        raise self.lost()

    def lost(self) -> UnsupportedError:
        return _lost(self)


def _lost(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"the kernel '{name}' of a program that was read from text",
        "the text has a kernel's name, and not its code",
        "trace the function that calls the kernel, or hl.export it",
    )


def _given(attributes) -> object:
    """The attribute `kernel`."""
    if "kernel" not in attributes:
        raise AttributeValueError("an instruction of a kernel has the kernel", "none", "trace a call of the kernel")
    return attributes["kernel"]


def _own(name) -> UserKernel:
    if not isinstance(name, UserKernel):
        raise _lost(name)
    return name


def _batch(build, instruction, operands, mapped):
    kernel = _own(instruction["kernel"]).batched(build.size, mapped)
    builder = build.builder
    made = builder.emit("kernel", *[v.instruction for v in operands], kernel=kernel)
    results = [Value(builder, element) for element in tuple_elements(builder, made)]
    if kernel.shape.elements[-1:] == instruction.shape.elements[-1:]:  # whether an index was out of range in any call
        results[-1] = build.unmapped(results[-1])
    return results


op(
    "kernel",
    family="library",
    infer=lambda operands, attributes, shape: _own(_given(attributes)).shape,
    reference=lambda *arrays, shape, kernel: _own(kernel).evaluate(arrays),
    code=No("it has kernels of its own"),
    jvp=lambda build, instruction, *given: _own(instruction["kernel"]).jvp(build, instruction, *given),
    transpose=lambda build, instruction, *given: _own(instruction["kernel"]).transpose(build, instruction, *given),
    batch=_batch,
    factors=No("the partitioning of a user's kernel over devices is unknown"),
    bounded=No("a user's kernel has sizes that are known before it runs"),
    attributes={"kernel": "string"},
    text="hloom.kernel",
    flops=50,
)


class ElementKernel(str):
    """The name of an element-wise user kernel, which also holds the kernel. dtype: of the result."""

    dtype: np.dtype

    def expression(self, arguments: Sequence[str]) -> str:
        """An element of the result, in the kernel language."""
        raise _lost(self)

    def evaluate(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        raise _lost(self)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None]) -> Value | None:
        raise _lost(self)


def _own_element(name) -> ElementKernel:
    if not isinstance(name, ElementKernel):
        raise _lost(name)
    return name


def _map_infer(operands, attributes, shape):
    kernel = _own_element(_given(attributes))
    first, *rest = operands
    for other in rest:
        if not isinstance(other, Shape) or other.dims != first.dims:
            raise ShapeError(
                f"the kernel '{kernel}' takes arrays of one shape",
                ", ".join(map(repr, operands)),
                "broadcast the operands first",
            )
    return Shape(kernel.dtype, first.dims)


op(
    "kernel-map",
    family="elementwise",
    infer=_map_infer,
    reference=lambda *arrays, shape, kernel: _own_element(kernel).evaluate(arrays),
    code=lambda operands, shape, attributes, arguments: _own_element(attributes["kernel"]).expression(arguments),
    jvp=lambda build, instruction, primals, tangents: _own_element(instruction["kernel"]).jvp(primals, tangents),
    transpose=No("its tangent is a sum of products"),
    attributes={"kernel": "string"},
    text="hloom.kernel_map",
    flops=8,
)
