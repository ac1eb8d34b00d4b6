"""Ops that HLO has no opcode for: custom calls that XLA's parser accepts, and that are read back with attributes."""

from __future__ import annotations

import numpy as np
import pytest
import xla

from hloom.errors import UnsupportedError
from hloom.ir.build import Builder, scalar_computation
from hloom.ir.module import Module
from hloom.ir.op_table import OPS, No, op
from hloom.ir.stablehlo import parse_program, stablehlo_text, to_module
from hloom.ir.text import parse_module, print_module
from hloom.ir.types import Shape
from hloom.ir.window import WindowDimension

NONE = No("a test")
VALUES = {
    "int": 7,
    "float": 0.25,
    "ints": (1, -2),
    "groups": ((0, 1), (2, 3)),
    "slices": ((0, 3, 1), (1, 4, 2)),
    "padding": ((0, 1, 0), (2, 3, 1)),
    "string": 'a "quoted" \\ text',
    "flag": True,
    "enum": "SOME_word",
    "frontend": True,
    "window": (WindowDimension(3, 2, 0, 1), WindowDimension(1)),
}


@pytest.fixture
def new_op():
    def declare(**parts):
        return op("new-op", family="library", infer=lambda operands, attributes, shape: operands[0],
                  reference=lambda x, shape, **attributes: x, code=NONE, jvp=NONE, transpose=NONE, **parts)  # fmt: skip

    yield declare
    OPS.pop("new-op", None)


def module(**attributes) -> Module:
    builder = Builder("main")
    x = builder.parameter(Shape("f32", (3, 4)), "x")
    return Module("m", builder.finish(builder.emit("new-op", x, **attributes)))


@pytest.mark.parametrize("kind", VALUES)
def test_an_attribute_of_each_kind(new_op, kind):
    new_op(attributes={"key": kind, "other": "int?"})
    text = print_module(module(key=VALUES[kind]))
    assert 'custom-call(%x), custom_call_target="hloom.new_op"' in text
    xla.parse(text)
    again = parse_module(text)
    assert again.entry.root.opcode == "new-op" and again.entry.root.attributes == {"key": VALUES[kind]}
    assert print_module(again) == text
    back = to_module(parse_program(stablehlo_text(module(key=VALUES[kind]))))
    assert back.entry.root.attributes == {"key": VALUES[kind]}


def test_computations_are_called_computations(new_op):
    new_op(attributes={"first": "computation", "rest": "computations"})
    add, multiply = (scalar_computation(name, np.float32) for name in ("add", "multiply"))
    one = module(first=add, rest=(multiply, add))
    text = print_module(one)
    xla.parse(text)
    root = parse_module(text).entry.root
    assert [root["first"].name, *(c.name for c in root["rest"])] == ["add_float32", "multiply_float32", "add_float32"]
    assert print_module(parse_module(text)) == text
    with pytest.raises(UnsupportedError, match="new-op cannot be written as StableHLO"):
        stablehlo_text(one)


def test_an_op_of_chlo_has_its_target(new_op):
    new_op(dialects="chlo")
    text = print_module(module())
    assert 'custom_call_target="chlo.new_op"' in text and "chlo.new_op" in stablehlo_text(module())
    xla.parse(text)
    assert parse_module(text).entry.root.opcode == "new-op"


def test_an_attribute_that_is_not_of_its_kind_is_an_error_at_its_place(new_op):
    new_op(attributes={"key": "ints"})
    text = print_module(module(key=(1, 2)))
    with pytest.raises(ValueError, match="a tuple of integers in a string"):
        parse_module(text.replace('"{1,2}"', '"{1,"'))
