"""The verifier: every rule broken once, and what the error says."""

from __future__ import annotations

import numpy as np
import pytest
from op_modules import argmax_combiner, cases

from hloom.ir.build import Builder
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.source import Source
from hloom.ir.text import parse_module
from hloom.ir.types import Shape, TupleShape
from hloom.ir.verify import RULES, VerifyError, verify, verify_computation

pytestmark = pytest.mark.quick

F2 = Shape("f32", (2,))


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.name)
def test_good_modules_pass(case):
    verify(case.module)


def _negate(builder=None, **parts):
    """(builder, x, -x) with parts of the second instruction replaced."""
    b = builder or Builder("main")
    x = b.parameter(F2, "x")
    known = {"opcode": "negate", "operands": (x,), "shape": F2, "attributes": {}, "hint": "y"}
    return b, x, b.add(Instruction(**{**known, **parts}))


def _broken_opcode():
    b, _, y = _negate(opcode="negaet")
    return b.finish(y)


def _broken_once():
    b, _, y = _negate()
    b.add(y)
    return b.finish(y)


def _operand_later():
    b, x, y = _negate()
    b.instructions.reverse()
    return b.finish(y)


def _operand_elsewhere():
    b, _, y = _negate(operands=(Instruction("parameter", (), F2, {"index": 0}, "other"),))
    return b.finish(y)


def _unknown_attribute():
    b, _, y = _negate(attributes={"dimensions": (0,)})
    return b.finish(y)


def _missing_attribute():
    b, _, y = _negate(opcode="reverse")
    return b.finish(y)


def _wrong_attribute():
    b, _, y = _negate(opcode="reverse", attributes={"dimensions": 0})
    return b.finish(y)


def _wrong_shape():
    b, _, y = _negate(shape=Shape("f32", (3,)))
    return b.finish(y)


def _wrong_count():
    b, _, y = _negate(opcode="add")
    return b.finish(y)


def _no_shape():
    b, _, y = _negate(shape=None)
    return b.finish(y)


def _tuple_operand():
    b = Builder("main")
    pair = b.tuple([b.parameter(F2, "x")])
    y = b.add(Instruction("broadcast", (pair,), F2, {"dimensions": (0,)}, "y"))
    return b.finish(y)


def _pad_of_tuples():
    b = Builder("main")
    pair = b.tuple([b.parameter(F2, "x")])
    return b.finish(b.add(Instruction("pad", (pair, pair), F2, {"padding": ((0, 0, 0),)}, "y")))


def _call_of_other_shapes():
    b = Builder("callee")
    callee = b.finish(b.emit("negate", b.parameter(Shape("f32", (3,)))))
    b, _, y = _negate(opcode="call", attributes={"to_apply": callee})
    return b.finish(y)


def _combiner_of_other_dtypes():
    b = Builder("main")
    x = b.parameter(Shape("s32", (2,)), "x")
    zero = b.constant(np.int32(0))
    attributes = {"dimensions": (0,), "to_apply": argmax_combiner()}
    return b.finish(b.add(Instruction("reduce", (x, zero), Shape("s32"), attributes, "y")))


def _parameter_not_added():
    b, x, y = _negate()
    return Computation("main", [x, Instruction("parameter", (), F2, {"index": 1}, "z")], b.instructions, y)


def _parameter_not_listed():
    b, _, y = _negate()
    return Computation("main", [], b.instructions, y)


def _parameter_index():
    b, x, y = _negate()
    x.attributes = {"index": 1}
    return b.finish(y)


def _root_elsewhere():
    b, _, _ = _negate()
    return b.finish(_negate()[2])


BROKEN = {
    "opcode": [_broken_opcode],
    "once": [_broken_once],
    "operand": [_operand_later, _operand_elsewhere],
    "attribute": [_unknown_attribute, _missing_attribute, _wrong_attribute],
    "shape": [
        _wrong_shape,
        _wrong_count,
        _no_shape,
        _tuple_operand,
        _pad_of_tuples,
        _call_of_other_shapes,
        _combiner_of_other_dtypes,
    ],
    "parameter": [_parameter_not_added, _parameter_not_listed, _parameter_index],
    "root": [_root_elsewhere],
}


@pytest.mark.parametrize("rule, make", [(r, m) for r, makers in BROKEN.items() for m in makers])
def test_broken_computations(rule, make):
    computation = make()
    for check in (lambda: verify_computation(computation), lambda: verify(Module("m", computation))):
        with pytest.raises(VerifyError) as caught:
            check()
        assert caught.value.rule == rule
        assert str(caught.value).startswith(f"rule '{rule}' is broken in computation main: {RULES[rule]}")


def test_every_rule_is_broken_here():
    assert set(BROKEN) | {"recursion", "alias", "sharding"} == set(RULES)  # sharding: text/test_placement.py


def test_error_says_text_provenance_and_repair():
    b = Builder("main")
    b.source, b.made_by = Source("model.py", 7, "layer", "y"), ("fold", "cse")
    x = b.parameter(F2, "x")
    y = b.add(Instruction("add", (x, x), Shape("f32", (3,)), {}, "y", b.source, b.made_by))
    with pytest.raises(VerifyError) as caught:
        verify(Module("m", b.finish(y)))
    assert caught.value.instruction is y
    assert str(caught.value) == (
        "rule 'shape' is broken in computation main: the shape of an instruction is what its op infers\n"
        "    %y = f32[3]{0} add(%x, %x)\n"
        "  found:  f32[3], inferred f32[2] (made by fold, cse)\n"
        "  where:  model.py:7 in layer"
    )


def test_error_without_provenance_names_no_line():
    with pytest.raises(VerifyError) as caught:
        verify(Module("m", _wrong_shape()))
    assert caught.value.source is None and "where" not in str(caught.value)


def test_recursion():
    b, x, y = _negate(opcode="call")
    inner = b.finish(y)
    y.attributes = {"to_apply": inner}
    with pytest.raises(VerifyError, match="rule 'recursion'"):
        verify(Module("m", inner))
    b, _, y = _negate(opcode="call")
    outer = b.finish(y)
    b, _, z = _negate(opcode="call", attributes={"to_apply": outer})
    y.attributes = {"to_apply": b.finish(z)}
    with pytest.raises(VerifyError, match="rule 'recursion'"):
        verify(Module("m", outer))


def _swap() -> Computation:
    b = Builder("main")
    x, y, z = b.parameter(F2, "x"), b.parameter(F2, "y"), b.parameter(Shape("s32"), "z")
    return b.finish(b.tuple([y, x, z]))


@pytest.mark.parametrize("aliases", [{}, {0: 0}, {0: 1, 1: 0, 2: 2}])
def test_good_aliases(aliases):
    verify(Module("m", _swap(), aliases))


@pytest.mark.parametrize("aliases", [{3: 0}, {-1: 0}, {0: 3}, {0: -1}, {2: 0}, {0: 2}, {0: 0, 1: 0}])
def test_broken_aliases(aliases):
    with pytest.raises(VerifyError) as caught:
        verify(Module("m", _swap(), aliases))
    assert caught.value.rule == "alias"


def test_a_parsed_text_may_be_broken():
    module = parse_module("main { x = f32[2] parameter(0)\n ROOT y = f32[3] add(x, x) }")
    with pytest.raises(VerifyError, match="inferred f32\\[2\\]"):
        verify(module)
    module = parse_module("main { x = f32[2] parameter(0)\n ROOT y = f32[2] reverse(x) }")
    with pytest.raises(VerifyError, match="'dimensions' is missing"):
        verify(module)


def test_attributes_that_may_be_missing():
    dot = "main { x = f32[2] parameter(0)\n ROOT y = f32[2,2] dot(x, x) }"
    verify(parse_module(dot))
    call = 'main { ROOT y = (f32[2], s32[]) custom-call(), custom_call_target="f" }'
    module = parse_module(call)
    verify(module)
    assert module.entry.shape is TupleShape([F2, Shape("s32")])
