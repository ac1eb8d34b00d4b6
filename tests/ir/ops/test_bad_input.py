"""Every op of the table, with operands, attributes and regions that do not fit: refused, in four parts."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from op_modules import cases

import hloom
from hloom.ir.build import Builder
from hloom.ir.errors import AttributeValueError, DTypeError, HloomError, ShapeError
from hloom.ir.module import Computation
from hloom.ir.ops import OPS
from hloom.ir.text.attributes import is_required, kind_of
from hloom.ir.types import DTYPES, Shape, TupleShape

PER_OP = 6  # instructions of each op that are broken in every way
INSTRUCTIONS: dict = {}
for _case in cases():
    for _instruction in _case.module.instructions():
        if _instruction.opcode not in ("parameter", "constant"):
            found = INSTRUCTIONS.setdefault(_instruction.opcode, [])
            if len(found) < PER_OP:
                found.append(_instruction)

TUPLE = TupleShape([Shape("f32", (2,)), Shape("s32")])
DTYPES_TRIED = ("pred", "s32", "u8", "f16", "f64", "c64", "f8e5m2")
# These take whatever there is: a tuple is made of anything, a custom call has a meaning of its own.
ANYTHING = {"tuple", "optimization-barrier", "custom-call", "call", "fusion", "while", "conditional"}
# What transforms write of named axes (axis_name, axis_size, ...).
OF_AXES = ("frontend_names", "frontend_int", "frontend_groups")


def computation(name: str, shapes, root) -> Computation:
    builder = Builder(name)
    return builder.finish(root(builder, [builder.parameter(s) for s in shapes]))


def regions(like: Computation) -> list[Computation]:
    """Computations that cannot stand where this one does."""
    shapes = [p.shape for p in like.parameters]
    return [
        computation("of_s8", [Shape("s8", (7,))] * len(shapes), lambda b, p: p[0] if p else b.constant(1)),
        computation("without_parameters", [], lambda b, p: b.constant(np.float32(1))),
        computation("one_more", [*shapes, Shape("s8", (7,))], lambda b, p: p[-1]),
        computation("in_a_tuple", shapes, lambda b, p: b.tuple([b.tuple(p)])),
    ]


def emit(instruction, shapes, attributes, shape=None):
    """The error of an instruction on operands of these shapes, or None where it is accepted."""
    builder = Builder("main")
    operands = [builder.parameter(s) for s in shapes]
    wanted = instruction.shape if OPS[instruction.opcode].shaped and shape is None else shape
    try:
        builder.emit(instruction.opcode, *operands, shape=wanted, **attributes)
    except HloomError as error:
        return error
    return None


def check(error: HloomError, opcode: str) -> None:
    assert error.asked and error.found and error.repair, str(error)
    assert error.source is not None and error.source.file == __file__
    assert "Traceback" not in str(error) and len(str(error)) < 3000


def recast(shape, dtype):
    if isinstance(shape, TupleShape):
        return TupleShape([recast(e, dtype) for e in shape.elements])
    return shape.with_dtype(DTYPES[dtype])


@pytest.mark.parametrize("opcode", sorted(INSTRUCTIONS))
def test_operands(opcode):
    """Too few and too many are refused, and tuples; other ranks and dtypes are accepted or refused, and no surprise."""
    for instruction in INSTRUCTIONS[opcode]:
        shapes, attributes = [o.shape for o in instruction.operands], instruction.attributes
        refused = [[*shapes, Shape("u16", (2, 9))]]
        tried = []
        for k, shape in enumerate(shapes):
            before, after = shapes[:k], shapes[k + 1 :]
            refused.append([*before, TUPLE, *after])
            if opcode not in ("concatenate", "all-reduce", "sort", "dynamic-slice") or len(shapes) < 2:
                refused.append([*before, *after])
            if isinstance(shape, Shape):
                tried.append([*before, shape.with_dims((*shape.dims, 3)), *after])
                tried.append([*before, shape.with_dims(shape.dims[1:]), *after])
            tried += [[*before, recast(shape, dtype), *after] for dtype in DTYPES_TRIED]
        tried += [[recast(s, dtype) for s in shapes] for dtype in DTYPES_TRIED]
        for given in refused:
            error = emit(instruction, given, attributes)
            accepts = opcode in ANYTHING or (opcode in ("get-tuple-element", "all-to-all", "scan") and error is None)
            assert accepts or isinstance(error, (ShapeError, DTypeError, AttributeValueError)), given
            if error is not None:
                check(error, opcode)
        for given in tried:
            error = emit(instruction, given, attributes)
            if error is not None:
                check(error, opcode)


@pytest.mark.parametrize("opcode", sorted(o for o in INSTRUCTIONS if OPS[o].attributes))
def test_attributes_and_regions(opcode):
    """Values of other kinds, outside of the domain, none at all, and computations of other types."""
    for instruction in INSTRUCTIONS[opcode]:
        shapes, attributes = [o.shape for o in instruction.operands], instruction.attributes
        for name, declared in OPS[opcode].attributes.items():
            if declared == "hidden" or declared in OF_AXES:
                continue
            kind = kind_of(declared)
            value = attributes.get(name)
            tried = [None, "x", -1, 99, (), (-1,), (99,), (0, 0), (0, 1, 2, 3, 4, 5, 6), 1.5, ((0, 99, 1),), ((9, 9),)]
            if isinstance(value, Computation):
                for region in regions(value):
                    error = emit(instruction, shapes, {**attributes, name: region})
                    free = opcode in ("call", "fusion", "custom-call") or region.shape is value.shape
                    free = free and [p.shape for p in region.parameters] == [p.shape for p in value.parameters]
                    assert free or error is not None, (name, region.name)
                    if error is not None:
                        check(error, opcode)
            for wrong in tried:
                error = emit(instruction, shapes, {**attributes, name: wrong})
                if error is not None:
                    check(error, opcode)
                elif declared == "computation" or (kind.holds(wrong) and isinstance(wrong, tuple) and 99 in wrong):
                    pytest.fail(f"{opcode} takes {name}={wrong!r}")
            if is_required(declared) and name in attributes:
                missing = {k: v for k, v in attributes.items() if k != name}
                error = emit(instruction, shapes, missing)
                if error is not None:
                    check(error, opcode)


@pytest.mark.parametrize("opcode", sorted(o for o in INSTRUCTIONS if OPS[o].shaped))
def test_shapes_that_are_asked_for(opcode):
    instruction = INSTRUCTIONS[opcode][0]
    shapes = [o.shape for o in instruction.operands]
    builder = Builder("main")
    wrongs = [None] if opcode == "custom-call" else [None, TUPLE]
    if opcode not in ("custom-call", "iota"):
        wrongs.append(Shape("s8", (999, 3)))
    for wrong in wrongs:
        with pytest.raises(HloomError) as caught:
            builder.emit(opcode, *[builder.parameter(s) for s in shapes], shape=wrong, **instruction.attributes)
        check(caught.value, opcode)


def test_all_ops_are_broken():
    # Of sizes, which programs of known ones do not have: tests/ir/sizes/test_open_programs.py and
    # tests/hloom/dispatch/test_computed_sizes.py; of users' kernels: tests/hloom/kernels.
    others = {"parameter", "constant", "send", "recv", "size", "set-dimension-size", "kernel", "kernel-map"}
    assert set(OPS) - set(INSTRUCTIONS) == others


def _calls_without_parts(path: Path) -> list[str]:
    """Errors in a module of hloom that are raised without all of: what was asked, what was found, one repair."""
    # A failed check of the user's says what the user wrote.
    names = {n for n in dir(hloom.errors) if n.endswith("Error")} - {"ParseError", "VerifyError", "JaxRuntimeError"}
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
        if name not in names or any(isinstance(a, ast.Starred) for a in node.args):
            continue
        parts = dict(zip(("asked", "found", "repair"), node.args, strict=False))
        parts |= {k.arg: k.value for k in node.keywords}
        if any(k not in parts or (isinstance(v := parts[k], ast.Constant) and not v.value) for k in
               ("asked", "found", "repair")):  # fmt: skip
            found.append(f"{path}:{node.lineno}")
    return found


@pytest.mark.parametrize("room", ["ir", "compiler/transforms", "compiler/passes", "runtime", "hloom"])
def test_errors_are_raised_with_all_their_parts(room):
    package = Path(hloom.__file__).parent
    root = package if room == "hloom" else package / room
    missing = []
    for path in sorted(root.rglob("*.py")):
        if room != "hloom" or path.relative_to(root).parts[0] not in ("ir", "compiler", "runtime"):
            missing += _calls_without_parts(path)
    assert not missing, missing
