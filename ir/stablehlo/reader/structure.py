"""Converters of structural ops: tuples, calls, custom calls, checks, channels to the host."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hloom.ir.build import scalar_computation
from hloom.ir.errors import UnsupportedError
from hloom.ir.library_calls import Call, expand, is_library_call, parse_options
from hloom.ir.op_table import OPS
from hloom.ir.stablehlo.assembly.attributes import Number, Symbol
from hloom.ir.stablehlo.reader.dynamic_calls import KNOWN_TARGETS, result_shapes
from hloom.ir.stablehlo.reader.module import Check
from hloom.ir.stablehlo.reader.registry import CONVERTERS, Item, converts
from hloom.ir.stablehlo.values import flag, ints, number
from hloom.ir.text.attributes import attribute_of_text
from hloom.ir.types import PRED, Shape, TupleShape


@converts("stablehlo.tuple")
def _tuple(scope, op, items):
    return scope.emit("tuple", *items)


@converts("stablehlo.get_tuple_element")
def _get_tuple_element(scope, op, items):
    return scope.emit("get-tuple-element", *items, index=number(op.attributes["index"]))


@converts("stablehlo.optimization_barrier")
def _optimization_barrier(scope, op, items):
    if not items:
        return []
    if len(items) == 1:
        return Item(scope.emit("optimization-barrier", *items).instruction, items[0].quantized)
    results = scope.elements(scope.emit("optimization-barrier", *items))
    return [Item(r.instruction, i.quantized) for r, i in zip(results, items, strict=True)]


@converts("stablehlo.create_token", "stablehlo.after_all")
def _token(scope, op, items):
    return Item(None)


@converts("func.call")
def _call(scope, op, items):
    name = op.attributes["callee"].name
    test = scope.converter.collects and scope.is_entry and name in ("inputs", "expected")
    if test or not scope.converter.is_static(name) or any(i.instruction is None or i.quantized for i in items):
        return scope.inline(op, name, items)
    if not all(isinstance(i.shape, Shape) for i in items):
        return scope.inline(op, name, items)
    computation, count = scope.computation_of(op, name, tuple(i.shape for i in items))
    result = scope.emit("call", *items, to_apply=computation)
    return result if count == 1 else scope.elements(result) if count else []


@converts("stablehlo.composite")
def _composite(scope, op, items):
    """A composite is defined by its decomposition. One with the name of a CHLO op becomes that op, as exporters
    decompose ops for readers that lack them."""
    name, meant = op.attributes.get("name"), None
    if isinstance(name, str) and name.startswith("chlo.") and not op.regions:
        meant = CONVERTERS.get(name)
    if meant is not None:
        given = op.attributes.get("composite_attributes", {})
        return meant(scope, replace(op, name=name, attributes=dict(given)), items)
    decomposition = op.attributes.get("decomposition")
    if not isinstance(decomposition, Symbol):
        raise ValueError("a composite has a decomposition, @function")
    return scope.inline(op, decomposition.name, items)


@converts("stablehlo.custom_call")
def _custom_call(scope, op, items):
    target = op.attributes["call_target_name"]
    if target.startswith("check."):
        return check(scope, op, items, target)
    known = KNOWN_TARGETS.get(target)
    if known is not None:
        return known(scope, op, items)
    if target.startswith(("hloom.", "chlo.")):
        found = next((name for name, entry in OPS.items() if entry.text == target), None)
        if found is not None:
            return _op_of_table(scope, op, items, found)
    if is_library_call(target):
        return _library_call(scope, op, items, target)
    effect = flag(op.attributes.get("has_side_effect", False))
    shapes = [scope.result_shape(op, k) for k in range(len(op.result_types))]
    shape = shapes[0] if len(shapes) == 1 else TupleShape(shapes)
    attributes: dict = {"custom_call_has_side_effect": True} if effect else {}
    attributes |= scope.converter.placement.caller(op)
    result = scope.emit("custom-call", *items, shape=shape, custom_call_target=target, **attributes)
    return result if len(shapes) == 1 else scope.elements(result)


def _library_call(scope, op, items, target: str):
    """Custom calls of LAPACK and XLA, as ops."""
    config = op.attributes.get("mhlo.backend_config", op.attributes.get("backend_config", {}))
    if isinstance(config, dict):
        options = {key: number(value) if isinstance(value, Number) else value for key, value in config.items()}
    else:
        options = parse_options(str(config))

    def computation(k: int):
        called = op.attributes.get("called_computations")
        if not isinstance(called, (tuple, list)) or k >= len(called) or not isinstance(called[k], Symbol):
            raise ValueError(f"{target} calls a computation")
        shapes = [Shape(i.dtype, ()) for i in items[: len(op.result_types)] for _ in range(2)]
        return scope.computation_of(op, called[k].name, tuple(shapes))[0]

    shapes, items = result_shapes(scope, op, items)
    operands = tuple(i.instruction for i in items)
    return [Item(i) for i in expand(target, Call(scope.builder, operands, options, shapes, computation))]


def _op_of_table(scope, op, items, opcode: str):
    """An hloom-specific op in the writer's form, with its attributes in the dictionary `hloom.attributes`."""
    attributes = {}
    declared = OPS[opcode].attributes
    for key, value in op.attributes.get("hloom.attributes", {}).items():
        if isinstance(value, str):
            attributes[key] = attribute_of_text(declared[key], value) if key in declared else value
        elif isinstance(value, bool):
            attributes[key] = value
        else:
            attributes[key] = number(value) if isinstance(value, Number) else ints(value)
    shape = scope.result_shape(op) if len(op.result_types) == 1 and OPS[opcode].shaped else None
    result = scope.emit(opcode, *items, shape=shape, **attributes)
    return scope.elements(result) if isinstance(result.shape, TupleShape) else result


@converts("check.expect_eq_const", "check.expect_almost_eq_const", "check.expect_close_const")
def _check_constant(scope, op, items):
    value = op.attributes["value"]
    expected = scope.constant(scope.dense(value))
    return check(scope, op, [items[0], expected], op.name.removesuffix("_const"))


@converts("check.expect_eq", "check.expect_almost_eq", "check.expect_close")
def _check_op(scope, op, items):
    return check(scope, op, items, op.name)


def check(scope, op, items, name: str):
    """A check of a test program: collected, or a custom call that raises if it fails."""
    converter = scope.converter
    if converter.collects:
        if not scope.is_entry:
            raise UnsupportedError(
                "checks are allowed in the entry function only",
                f"{op.name} in the body of another op",
                "return the value, and check it there",
                scope.builder.source,
            )
        converter.checks.append(Check(name, items[0], items[1], op.attributes))
        if name == "check.eq":
            same = scope.emit("compare", *items, direction="EQ")
            start = scope.constant(np.asarray(True), PRED)
            both = scope.emit(
                "reduce", same, start, dimensions=tuple(range(len(same.dims))), to_apply=scalar_computation("and", PRED)
            )
            return both if op.result_types else []
        return []
    shapes = [scope.result_shape(op, k) for k in range(len(op.result_types))]
    shape = shapes[0] if len(shapes) == 1 else TupleShape(shapes)
    result = scope.emit("custom-call", *items, shape=shape, custom_call_target=name, custom_call_has_side_effect=True)
    return result if len(shapes) == 1 else []


@converts("stablehlo.infeed", "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv")
def _feeds(scope, op, items):
    raise UnsupportedError(
        f"{op.name}: hloom's programs have no channels to a host or to other programs", f"{op.name}",
        "pass the values as arguments and return them as results", scope.builder.source,
    )  # fmt: skip
