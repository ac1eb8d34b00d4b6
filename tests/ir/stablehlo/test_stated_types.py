"""Calls and functions are of the types that they state; others are a VerifyError, also where nothing uses the value."""

import numpy as np
import pytest

import hloom as hl
from hloom.errors import VerifyError

ONES = "%c = stablehlo.constant dense<1.0> : tensor<4xf32>\n return %c : tensor<4xf32>"
SAME = "return %arg0 : tensor<4xf32>"


def program(callee: str, body: str, result: str = "tensor<4xf32>") -> str:
    return f"""module @m {{
  func.func public @main(%arg0: tensor<4xf32>) -> {result} {{
    %0 = call @g(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }}
  func.func private @g{callee} {{
    {body}
  }}
}}"""


@pytest.mark.parametrize(
    "text, line",
    [
        (program("(%arg0: tensor<5xf32>) -> tensor<4xf32>", ONES), 3),
        (program("(%arg0: tensor<4xi32>) -> tensor<4xf32>", ONES), 3),
        (program("(%arg0: tensor<?xi32>) -> tensor<4xf32>", ONES), 3),
        (program("(%arg0: tensor<2x?xf32>) -> tensor<4xf32>", ONES), 3),
        (program("(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>) -> tensor<4xf32>", ONES), 3),
        (program("(%arg0: tensor<4xf32>) -> tensor<4xi32>", SAME), 6),
        (program("(%arg0: tensor<4xf32>) -> tensor<4xf32>", SAME, "tensor<4xi32>"), 2),
    ],
    ids=["size", "dtype", "open_size", "rank", "count", "result", "result_of_main"],
)
def test_stablehlo(text, line):
    with pytest.raises(VerifyError, match="state") as found:
        hl.from_stablehlo(text)(np.ones(4, np.float32))
    assert f":{line} in" in str(found.value)


def test_open_sizes_take_any():
    text = program("(%arg0: tensor<?xf32>) -> tensor<?xf32>", "return %arg0 : tensor<?xf32>")
    np.testing.assert_array_equal(hl.from_stablehlo(text)(np.ones(4, np.float32)), np.ones(4))


@pytest.mark.parametrize("parameter, result", [("f32[5]", "f32[4]"), ("s32[4]", "f32[4]"), ("f32[4]", "s32[4]")])
def test_hlo(parameter, result):
    text = f"""HloModule m
g {{
  p = {parameter} parameter(0)
  ROOT c = f32[4] constant({{1, 2, 3, 4}})
}}
ENTRY main {{
  x = f32[4] parameter(0)
  ROOT c = {result} call(x), to_apply=g
}}
"""
    with pytest.raises(VerifyError):
        hl.from_hlo(text)(np.ones(4, np.float32))
