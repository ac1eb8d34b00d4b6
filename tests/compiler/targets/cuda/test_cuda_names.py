"""Every name of the kernel dialect has a meaning on CUDA or a reason, and one in the simulator where kernels use it."""

import numpy as np
import pytest

from hloom.compiler.kernels import math
from hloom.compiler.kernels.math.registry import REGISTER
from hloom.compiler.targets.cuda.codegen import names
from hloom.compiler.targets.cuda.simulator import dialect
from hloom.ir.ops import OPS
from hloom.ir.types import DTYPES, HLO_NAME, Shape, compute_dtype

MEANINGS = {name: names.meaning(name) for name in math.FUNCTIONS}


def test_every_name_has_a_meaning_or_a_reason():
    for name, meaning in MEANINGS.items():
        assert meaning.how in ("libdevice", "written", "saturate", "shared", "composed", "missing"), name
        assert meaning.what, name


def test_the_tables_name_nothing_that_the_dialect_lacks():
    stems = {names.split(name)[0] for name in math.FUNCTIONS}
    assert names.LIBDEVICE.keys() | names.WRITTEN.keys() <= stems


def test_what_is_missing_serves_other_functions_only():
    """Every name that is missing is a step of a function that CUDA has whole."""
    available = {name for name, meaning in MEANINGS.items() if meaning.how != "missing"}
    for name, meaning in MEANINGS.items():
        if meaning.how == "missing":
            users = {user for user in math.FUNCTIONS if name in math.callees(user)}
            while users and not users & available:
                users = {user for user in math.FUNCTIONS if users & math.callees(user)}
            assert users, f"{name} is missing ({meaning.what}), and nothing available stands for it"


def element_calls():
    """(op, dtype, name) for every name of the dialect that an op's expression of one element calls."""
    for opcode, entry in OPS.items():
        if not isinstance(entry.code, dict):
            continue
        for dtype in (DTYPES[name] for name in REGISTER):
            for count in (1, 2):
                shapes = [Shape(dtype)] * count
                try:
                    result = entry.infer(shapes, {}, None)
                    text = entry.expression(shapes, result, {}, ["x", "y"][:count])
                except Exception:  # this op does not take this dtype or this many operands
                    continue
                name = text.split("(")[0]
                if "(" in text and name.isidentifier() and name not in dialect.CASTS:
                    yield opcode, HLO_NAME[compute_dtype(dtype)], name, count


CALLS = sorted(set(element_calls()))


def test_the_ops_call_many_names():
    assert len({name for _, _, name, _ in CALLS}) > 100


def test_what_ops_call_is_available():
    for opcode, dtype, name, _ in CALLS:
        if name not in MEANINGS:
            continue  # the dialect lacks it, on the CPU too
        assert MEANINGS[name].how != "missing", f"{opcode} of {dtype} writes {name}: {MEANINGS[name].what}"


@pytest.mark.parametrize("dtype", sorted({dtype for _, dtype, _, _ in CALLS}))
def test_the_simulator_knows_what_ops_call(dtype):
    with np.errstate(all="ignore"):
        for opcode, kind, name, count in CALLS:
            if kind == dtype:
                values = [np.asarray(value, DTYPES[dtype])[()] for value in (1, 2)][:count]
                result = dialect.function(name)(*values)
                expected = OPS[opcode].infer([Shape(DTYPES[dtype])] * count, {}, None).dtype
                assert np.asarray(result).dtype == expected, f"{name} gave {np.asarray(result).dtype}"


@pytest.mark.parametrize(
    "name, values, result",
    [
        ("convert_f32_s8", (np.float32(300),), np.int8(127)),
        ("convert_f32_u8", (np.float32(-3),), np.uint8(0)),
        ("convert_f64_s32", (np.float64(np.nan),), np.int32(0)),
        ("convert_f32_bf16", (np.float32(1.00390625),), np.float32(1.0)),
        ("round_f16", (np.float32(1.0001),), np.float32(np.float16(1.0001))),
        ("bitcast_f32_s32", (np.float32(1),), np.int32(0x3F800000)),
        ("bitcast_bf16_u16", (np.float32(1),), np.uint16(0x3F80)),
        ("div_s32", (np.int32(-7), np.int32(2)), np.int32(-3)),
        ("div_u8", (np.uint8(3), np.uint8(0)), np.uint8(255)),
        ("sum_s8", (np.int8(127), np.int8(1)), np.int8(-128)),
        ("accmax_f32", (np.float32(np.nan), np.float32(1)), np.float32(np.nan)),
        ("s8", (300,), np.int8(44)),
        ("u32", (-1,), np.uint32(2**32 - 1)),
        ("f32", (0.1,), np.float32(0.1)),
    ],
)
def test_meanings_in_the_simulator(name, values, result):
    with np.errstate(all="ignore"):
        got = dialect.function(name)(*values)
    assert got.dtype == result.dtype
    np.testing.assert_array_equal(got, result)
