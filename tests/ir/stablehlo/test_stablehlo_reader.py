"""Ops of StableHLO that are read as other ops, against NumPy; functions that call each other."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.errors import ParseError
from hloom.ir.interpret import run
from hloom.ir.stablehlo import parse_program, print_program, to_module


def type_of(dims, element: str) -> str:
    return f"tensor<{'x'.join(map(str, (*dims, element)))}>"


@pytest.mark.parametrize(
    "dims, dim, index_dims, batch",
    [
        ((4, 3), 0, (5,), 0),
        ((4, 3), 1, (5,), 0),
        ((4, 3), 1, (2, 2), 0),
        ((4, 3, 2), 1, (), 0),
        ((2, 3, 4), 1, (2, 5), 1),
        ((2, 3, 4), 2, (2, 5), 1),
        ((2, 3, 4, 5), 2, (2, 3, 1, 2), 2),
        ((2, 3, 4, 5), 3, (2, 2, 3), 1),
    ],
)
def test_index_select(dims, dim, index_dims, batch):
    """`take` along a dimension, in each element of the batch dimensions, which both operands have first."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=dims).astype(np.float32)
    index = rng.integers(0, dims[dim], index_dims).astype(np.int32)
    wanted = np.empty((*dims[:dim], *index_dims[batch:], *dims[dim + 1 :]), np.float32)
    for at in np.ndindex(*dims[:batch]):
        wanted[at] = np.take(x[at], index[at], axis=dim - batch)
    given, places, made = type_of(dims, "f32"), type_of(index_dims, "i32"), type_of(wanted.shape, "f32")
    text = f"""func.func @main(%x: {given}, %i: {places}) -> {made} {{
      %0 = "stablehlo.torch_index_select"(%x, %i) <{{dim = {dim} : i64, batch_dims = {batch} : i64}}> :
        ({given}, {places}) -> {made}
      return %0 : {made}
    }}"""
    np.testing.assert_array_equal(run(to_module(parse_program(text)), [x, index]), wanted)


@pytest.mark.parametrize("calls", [{"f": "f"}, {"f": "g", "g": "f"}, {"f": "g", "g": "h", "h": "g"}])
def test_functions_that_call_themselves_are_an_error(calls):
    """Those that the entry function only leads to as well."""
    text = "".join(
        f"""func.func {"@main" if name == "main" else f"private @{name}"}(%x: tensor<2xf32>) -> tensor<2xf32> {{
          %0 = call @{callee}(%x) : (tensor<2xf32>) -> tensor<2xf32>
          return %0 : tensor<2xf32>
        }}
        """
        for name, callee in {"main": "f", **calls}.items()
    )
    with pytest.raises(ParseError, match="calls itself"):
        to_module(parse_program(text))


def test_tokens_of_several_operands():
    text = """func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.create_token : !stablehlo.token
      %1 = stablehlo.after_all %0, %0, %0 : !stablehlo.token
      %2 = stablehlo.after_all : !stablehlo.token
      return %x : tensor<f32>
    }"""
    program = parse_program(text)
    assert "stablehlo.after_all %0, %0, %0 : !stablehlo.token" in print_program(program)
    assert print_program(parse_program(print_program(program))) == print_program(program)
    assert run(to_module(program), [np.float32(3)]) == 3


@pytest.mark.parametrize(
    "attribute",
    ["permutation = array<i32: 1, 0>", "permutation = dense<[1, 0]> : tensor<2xi64>"],
)
def test_attributes_of_other_types_are_written_as_they_are(attribute):
    """The short spelling has no place for a type."""
    text = f"""func.func @main(%x: tensor<2x3xf32>) -> tensor<3x2xf32> {{
      %0 = "stablehlo.transpose"(%x) {{{attribute}}} : (tensor<2x3xf32>) -> tensor<3x2xf32>
      return %0 : tensor<3x2xf32>
    }}"""
    printed = print_program(parse_program(text))
    assert attribute in printed
    assert print_program(parse_program(printed)) == printed
