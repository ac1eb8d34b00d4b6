"""Structural ops: parameter, constant, tuple, call, fusion, custom-call, copy, barrier."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from hloom.ir.build import Value, tuple_elements
from hloom.ir.errors import AttributeValueError, BatchingError, ShapeError, UnsupportedError
from hloom.ir.interpret import evaluate
from hloom.ir.op_table import No, op
from hloom.ir.ops.batching import barrier_batch, sequential_batch
from hloom.ir.ops.rules import elementwise, require_count, zero_jvp
from hloom.ir.spmd.factors import pointwise
from hloom.ir.types import Shape, TupleShape, result_shapes

STRUCTURE = No("holds no element of its own")
LAYOUTS = No("it holds values that have shardings of their own, which propagation walks through")
CALLED = No("propagation walks through the computation that it calls")
_structure = functools.partial(op, family="structure", flops=0, dialects="hlo")


def _given(name):
    def infer(operands, attributes, shape):
        if shape is None:
            raise AttributeValueError(f"{name} needs the shape of its result", "None", "pass shape=")
        return shape

    return infer


_structure(
    "parameter",
    infer=_given("parameter"),
    reference=No("its value is the argument"),
    code=No("the kernel writer loads it"),
    jvp=No("its tangent is the argument's"),
    transpose=No("its cotangent is the result"),
    batch=No("its value is the argument"),
    factors=pointwise,
    attributes={"index": "int"},
    shaped=True,
)


def _constant_infer(operands, attributes, shape):
    value = attributes["value"]
    return Shape(value.dtype, value.shape)


_structure(
    "constant",
    infer=_constant_infer,
    reference=lambda shape, value: value,
    code=No("the kernel writer writes its literal"),
    jvp=zero_jvp,
    transpose=No("it has no operands"),
    batch=No("it has no operands, so it is the same for all batch elements"),
    factors=pointwise,
    attributes={"value": "literal"},
)
_structure(
    "tuple",
    infer=lambda operands, attributes, shape: TupleShape(operands),
    reference=lambda *elements, shape: tuple(elements),
    code=STRUCTURE,
    jvp=No("differentiation takes tuples apart"),
    transpose=No("differentiation takes tuples apart"),
    batch=No("batching takes tuples apart"),
    factors=LAYOUTS,
)


def _element_infer(operands, attributes, shape):
    require_count("get-tuple-element", operands, 1)
    index = attributes.get("index", -1)
    if not isinstance(operands[0], TupleShape) or not 0 <= index < len(operands[0].elements):
        raise ShapeError(
            "get-tuple-element takes an element of a tuple", f"index {index} of {operands[0]!r}", "check the index"
        )
    return operands[0].elements[index]


_structure(
    "get-tuple-element",
    infer=_element_infer,
    reference=lambda elements, shape, index: elements[index],
    code=STRUCTURE,
    jvp=No("differentiation takes tuples apart"),
    transpose=No("differentiation takes tuples apart"),
    batch=No("batching takes tuples apart"),
    factors=LAYOUTS,
    attributes={"index": "int"},
)


def _call_infer(name, attribute):
    def infer(operands, attributes, shape):
        callee = attributes.get(attribute)
        if callee is None:
            raise AttributeValueError(f"{name} calls a computation", "none", f"pass {attribute}=")
        if [p.shape for p in callee.parameters] != list(operands):
            raise ShapeError(
                f"{name} takes the arguments of {callee.name}",
                f"{', '.join(map(repr, operands))}, parameters {', '.join(repr(p.shape) for p in callee.parameters)}",
                "pass what the computation takes",
            )
        return callee.shape

    return infer


def _call_reference(attribute):
    def reference(*arguments, shape, **attributes):
        return evaluate(attributes[attribute], list(arguments))

    return reference


# `fusion_kind`: the call was a fusion of this kind (`hloom.ir.portable`). A call with a `rule`
# (`hloom.compiler.transforms.custom.Rule`) is not inlined before differentiation and batching, which the rule defines.
# Otherwise it is an ordinary call. `partition`: a PartitionRule for its partitioning; `observer`: a LayoutObserver that
# receives the layout of its operand (both in `hloom.compiler.passes.spmd.custom`).
_structure(
    "call",
    infer=_call_infer("call", "to_apply"),
    reference=_call_reference("to_apply"),
    code=STRUCTURE,
    jvp=lambda build, instruction, *given: instruction["rule"].jvp(build, instruction, *given),
    transpose=lambda build, instruction, *given: instruction["rule"].transpose(build, instruction, *given),
    batch=lambda build, instruction, *given: instruction["rule"].batch(build, instruction, *given),
    factors=CALLED,
    attributes={
        "to_apply": "computation",
        "rule": "hidden",
        "partition": "hidden",
        "observer": "hidden",
        "fusion_kind": "frontend_word",
    },
)
_structure(
    "fusion",
    infer=_call_infer("fusion", "calls"),
    reference=_call_reference("calls"),
    code=STRUCTURE,
    jvp=No("differentiation comes before fusion"),
    transpose=No("differentiation comes before fusion"),
    batch=No("batching comes before fusion"),
    factors=CALLED,
    attributes={"kind": "enum", "calls": "computation"},
)

CUSTOM_CALLS: dict[str, Callable] = {}


def register_custom_call(target: str, function: Callable) -> None:
    """Registers `function(*numpy_arrays) -> array or tuple of arrays` as the implementation of custom calls with this
    target name.

    >>> hl.register_custom_call("my_sort", lambda x: np.sort(x))
    >>> hl.lax.custom_call("my_sort", hnp.array([3, 1, 2]), shape=("s32", (3,)))
    Array([1, 2, 3], dtype=int32)
    """
    CUSTOM_CALLS[target] = function


class HostFunction(str):
    """The target of a custom call of an unregistered function, which holds the function itself.

    method: the vmap_method, as for pure_callback. factors: its `Op.factors` on a mesh, or None.
    """

    function: Callable
    method: str | None
    factors: Callable | None = None


class NativeFunction(HostFunction):
    """A function of which there is also a C function of one batch element, which programs on CPUs call without Python.

    address: of a kernel (words, lo, hi), as the runtime's `Native` describes it. Its words after the pointers, which
    are one for each operand and result, are for each of these the bytes between two batch elements, and the dimensions
    of one. depth: the number of batch dimensions, which all results have first. own: for each operand whether it has
    them too. whole: whether one thread calls it for all batch elements.
    """

    address: int
    depth: int
    own: tuple[bool, ...]
    whole: bool

    def numbers(self, instruction) -> tuple[int, ...]:
        """The words of a call after its pointers."""
        results = result_shapes(instruction.shape)
        shapes = [*[operand.shape for operand in instruction.operands], *results]
        found: list[int] = []
        for shape, own in zip(shapes, (*self.own, *[True] * len(results)), strict=True):
            dims = shape.dims[self.depth * own :]
            found += [math.prod(dims) * shape.dtype.itemsize * own, *dims]
        return tuple(found)

    def sizes(self, shape: TupleShape) -> tuple[int, ...]:
        """The batch dimensions of results."""
        return result_shapes(shape)[0].dims[: self.depth]

    def evaluate(self, arrays: Sequence[np.ndarray], shape: TupleShape) -> tuple[np.ndarray, ...]:
        """The results as Python computes them."""
        raise self.lost()

    def batched(self, mapped: Sequence[bool]) -> NativeFunction:
        """The function with one more batch dimension, which is the first one. mapped: which operands have it."""
        raise self.lost()

    def lost(self) -> UnsupportedError:
        return UnsupportedError(
            f"the function of the custom-call '{self}'", "it is not in this process", "trace the function that calls it"
        )


def native_function(instruction) -> NativeFunction | None:
    """The function of a custom call that is called without Python; None for other instructions."""
    target = instruction.attributes.get("custom_call_target") if instruction.opcode == "custom-call" else None
    return target if isinstance(target, NativeFunction) else None


def _native_batch(build, instruction, operands, mapped):
    """One call for all batch elements. An operand has all batch dimensions or none."""
    target: NativeFunction = instruction["custom_call_target"]
    inner = target.sizes(instruction.shape)
    given = []
    for value, new, own in zip(operands, mapped, target.own, strict=True):
        if own and not new:
            value = build.spread(value)
        elif new and not own and inner:
            dims = (build.size, *inner, *value.dims[1:])
            value = value.broadcast(dims, (0, *range(1 + len(inner), len(dims))))
        given.append(value)
    shape = TupleShape([s.with_dims((build.size, *s.dims)) for s in instruction.shape.elements])
    attributes = instruction.attributes | {"custom_call_target": target.batched(mapped)}
    made = build.builder.emit("custom-call", *[v.instruction for v in given], shape=shape, **attributes)
    return [Value(build.builder, e) for e in tuple_elements(build.builder, made)]


def _custom_call_batch(build, instruction, operands, mapped):
    target = instruction["custom_call_target"]
    if isinstance(target, NativeFunction):
        return _native_batch(build, instruction, operands, mapped)
    method = getattr(target, "method", "sequential")
    if method == "sequential":
        return sequential_batch(build, instruction, operands, mapped)
    if method is None:
        raise BatchingError(
            "vmap of pure_callback",
            f"the call of '{target}' does not say how",
            "give pure_callback a vmap_method, such as 'sequential' or 'broadcast_all'",
            instruction.source,
        )
    if method == "broadcast_all":
        operands = build.spread_all(operands, mapped)
    elif method == "expand_dims":
        operands = [v if m else v.reshape((1, *v.dims)) for v, m in zip(operands, mapped, strict=True)]
    shape = TupleShape([s.with_dims((build.size, *s.dims)) for s in instruction.shape.elements])
    builder = build.builder
    made = builder.emit("custom-call", *[v.instruction for v in operands], shape=shape, **instruction.attributes)
    return [Value(builder, e) for e in tuple_elements(builder, made)]


def _custom_call_reference(*arrays, shape, custom_call_target, **attributes):
    function = getattr(custom_call_target, "function", None) or CUSTOM_CALLS.get(custom_call_target)
    if function is None:
        raise UnsupportedError(
            f"custom-call '{custom_call_target}' was asked for",
            f"registered targets: {', '.join(sorted(CUSTOM_CALLS)) or 'none'}",
            "register it with hloom.register_custom_call(name, function)",
        )
    native = isinstance(custom_call_target, NativeFunction)
    result = custom_call_target.evaluate(arrays, shape) if native else function(*arrays)
    expected = result_shapes(shape)
    results = tuple(result) if isinstance(shape, TupleShape) else (result,)
    results = tuple(np.asarray(r) for r in results)
    found = tuple((r.dtype, r.shape) for r in results)
    if found != tuple((e.dtype, e.dims) for e in expected):
        raise ShapeError(
            f"custom-call '{custom_call_target}' promised {shape!r}",
            f"its function returned {', '.join(f'{d}{list(s)}' for d, s in found)}",
            "return arrays of the promised shapes and dtypes",
        )
    return results if isinstance(shape, TupleShape) else results[0]


_structure(
    "custom-call",
    infer=_given("custom-call"),
    reference=_custom_call_reference,
    code=No("its function is called by the runtime"),
    jvp=No("hloom cannot see into a custom call; hl.custom_jvp gives it a derivative"),
    transpose=No("hloom cannot see into a custom call; hl.custom_vjp gives it a derivative"),
    batch=_custom_call_batch,
    factors=No("hloom cannot see into a custom call; in hl.shard_map each device calls it with its part"),
    # device: the partition that calls it and broadcasts its results to the others.
    attributes={"custom_call_target": "string", "custom_call_has_side_effect": "flag", "device": "frontend_int"},
    shaped=True,
)


def _barrier_reference(*operands, shape):
    return tuple(operands) if len(operands) > 1 else operands[0]


def _barrier_each(values):
    """A barrier over the values that are not None; returns a list of the same length, with None in the same
    positions."""
    given = [v for v in values if v is not None]
    held = given[0].op("optimization-barrier", *given[1:])
    if len(given) == 1:
        results = iter([held])
    else:
        results = iter([held.op("get-tuple-element", index=k) for k in range(len(given))])
    return [None if v is None else next(results) for v in values]


def _barrier_jvp(build, instruction, primals, tangents):
    if isinstance(instruction.shape, TupleShape):
        return _barrier_each(tangents[0] if len(tangents) == 1 else tangents)
    return _barrier_each(tangents)[0]


def _barrier_transpose(build, instruction, g, operands):
    if not isinstance(instruction.shape, TupleShape):
        return _barrier_each([g])
    results = _barrier_each(g)
    return [results] if len(operands) == 1 else results


_structure(
    "optimization-barrier",
    text="opt-barrier",
    infer=lambda operands, attributes, shape: operands[0] if len(operands) == 1 else TupleShape(operands),
    reference=_barrier_reference,
    code=STRUCTURE,
    jvp=_barrier_jvp,
    transpose=_barrier_transpose,
    batch=barrier_batch,
    factors=LAYOUTS,
)


def _copy_jvp(build, instruction, primals, tangents):
    return None if instruction.attributes.get("stop_gradient") else tangents[0]


# `stop_gradient` represents lax.stop_gradient: a copy without a derivative (HLO text: a frontend attribute).
op(
    "copy",
    family="elementwise",
    infer=elementwise("copy", 1),
    reference=lambda x, shape, stop_gradient=False, checkpoint_name="": x,
    code={"any": "{0}"},
    jvp=_copy_jvp,
    transpose=No("its tangent is its operand's, so no tangent is a copy"),
    attributes={"stop_gradient": "frontend", "checkpoint_name": "hidden"},
    flops=0,
    dialects="hlo",
)
