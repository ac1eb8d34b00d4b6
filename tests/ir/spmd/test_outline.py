"""XLA's custom calls about shardings become hloom's ops: what stands between them is computed on each device's part."""

from __future__ import annotations

import numpy as np
import pytest
from spmd_modules import run_partitioned

from hloom.ir.errors import UnsupportedError
from hloom.ir.text import parse_module, print_module

X, W = np.arange(8, dtype=np.float32), np.array([3, 5], np.float32)
TEXT = """HloModule m, num_partitions=4

ENTRY main {
  x = f32[8] parameter(0), sharding={devices=[4]<=[4]}
  w = f32[2] parameter(1), sharding={replicated}
  two = f32[] constant(2)
  twos = f32[2] broadcast(two), dimensions={}
  whole = f32[8] custom-call(x), custom_call_target="Sharding", sharding={devices=[4]<=[4]}
  part = f32[2] custom-call(whole), custom_call_target="SPMDFullToShardShape", sharding={manual}
  made = f32[2] OP
  held = f32[2] custom-call(made), custom_call_target="Sharding", sharding={manual}
  ROOT r = f32[8] custom-call(held), custom_call_target="SPMDShardToFullShape", sharding={devices=[4]<=[4]}
}
"""


@pytest.mark.parametrize(
    "op, wanted",
    {
        "negate(part)": -X,
        "add(part, twos)": X + 2,  # the constant is computed inside
        "negate(twos)": np.full(8, -2),  # of no argument at all
        "multiply(twos, twos)": np.full(8, 4),
    }.items(),
)
def test_a_manual_region_is_computed_on_parts(op, wanted):
    module = parse_module(TEXT.replace("OP", op))
    assert "SPMD" not in print_module(module)
    np.testing.assert_array_equal(run_partitioned(module, [X, W])[0], wanted)


@pytest.mark.parametrize("op", ["add(part, w)", "negate(w)", "add(twos, w)"])
def test_a_region_that_uses_an_argument_from_outside_is_an_error(op):
    with pytest.raises(UnsupportedError, match="uses a value from outside of it") as error:
        parse_module(TEXT.replace("OP", op))
    assert "<w = f32[2] parameter()>" in str(error.value)


def test_a_region_that_uses_what_another_was_given_is_an_error():
    """The second region begins with a constant, and reads what the first one left."""
    text = TEXT.replace("OP", "negate(part)").replace("ROOT r =", "r =").replace(
        "\n}", '\n  inner = f32[8] negate(r)\n  root = f32[32] custom-call(inner), '
        'custom_call_target="SPMDShardToFullShape", sharding={devices=[4]<=[4]}\n}'
    ).replace("root =", "ROOT root =")  # fmt: skip
    with pytest.raises(UnsupportedError, match="uses a value from outside of it") as error:
        parse_module(text)
    assert "SPMDShardToFullShape" in str(error.value)


def test_what_a_region_computes_of_constants_is_found_once():
    """64 doublings of a constant, each of which has its operand twice."""
    lines = "\n".join(f"  d{k + 1} = f32[2] add(d{k}, d{k})" for k in range(64))
    text = TEXT.replace("OP", "multiply(part, d64)").replace("twos =", "d0 =").replace("  made =", f"{lines}\n  made =")
    assert sum(i.opcode == "add" for i in parse_module(text).instructions()) == 128  # inside, and outside as it was
    alone = text.replace("multiply(part, d64)", "negate(d64)")  # of no argument
    assert sum(i.opcode == "add" for i in parse_module(alone).instructions()) == 64
