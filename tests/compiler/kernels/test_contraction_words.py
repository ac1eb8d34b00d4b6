"""Products whose operands are read in words: two 16-bit integers, four of 8 bits, for matrix registers two bf16."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest
from llvmlite import ir

import hloom as hl
from hloom.compiler.kernels.contractions.render import render, shared_kernels
from hloom.compiler.kernels.contractions.spec import ContractionSpec, PlainOperand, PlainStore
from hloom.compiler.kernels.contractions.tile_shapes import MATRIX_WORDS, QUADS
from hloom.compiler.targets.cpu import machine
from hloom.compiler.targets.cpu.machine import host
from hloom.compiler.targets.cpu.microkernels import fma
from hloom.ir.records import replace

AMX = replace(
    host(), arch="x86_64", vector_bytes=64, vector_registers=32, features="+avx512f,+amx-tile,+amx-int8,+amx-bf16"
)
VNNI = replace(AMX, features="+avx512f,+avx512vl,+avx512vnni")
SHORT = replace(host(), arch="x86_64", vector_bytes=32, vector_registers=16, features="+avx2,+avxvnni")
RANDOM = np.random.default_rng(7)


def numbers(dtype, shape):
    if dtype == "bool":
        return RANDOM.integers(0, 2, shape).astype(bool)
    info = np.iinfo(dtype)
    return RANDOM.integers(info.min, info.max + 1, shape).astype(dtype)


@pytest.mark.parametrize("turned", ["", "left", "right", "both"])
@pytest.mark.parametrize("left", ["int8", "uint8", "bool", "int16"])
@pytest.mark.parametrize("right", ["int8", "uint8", "bool"])
def test_every_sum_is_exact(left, right, turned):
    """Sizes with whole registers, with rest rows, columns and words, words that lack elements, and several steps."""
    for m, n, k in ((64, 64, 64), (33, 65, 67), (1, 300, 129), (100, 10, 700), (17, 31, 66), (50, 40, 2 * 2561 + 1)):
        x, y = numbers(left, (m, k)), numbers(right, (k, n))
        expected = (x.astype(np.int64) @ y.astype(np.int64)).astype(np.int32)
        x = np.ascontiguousarray(x.T) if turned in ("left", "both") else x
        y = np.ascontiguousarray(y.T) if turned in ("right", "both") else y
        over = (((0 if turned in ("left", "both") else 1,), (1 if turned in ("right", "both") else 0,)), ((), ()))
        product = hl.jit(lambda x, y, over=over: hl.lax.dot_general(x, y, over, preferred_element_type=np.int32))
        np.testing.assert_array_equal(np.asarray(product(x, y)), expected)


def test_batches_and_what_follows_a_product():
    x, y = numbers("int8", (3, 40, 50)), numbers("int8", (3, 50, 70))
    function = hl.jit(lambda x, y: hl.numpy.matmul(x, y, preferred_element_type=np.int32) * 2 + 1)
    np.testing.assert_array_equal(np.asarray(function(x, y)), x.astype(np.int32) @ y.astype(np.int32) * 2 + 1)


def bf16(*dims):
    return RANDOM.normal(size=dims).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("turned", ["", "left", "right", "both"])
def test_sums_of_bfloat16_are_those_of_float32(turned):
    """Products are exact, so only the sums are rounded; the same sizes as above, and the epilogue's rounding."""
    for m, n, k in ((64, 64, 64), (33, 65, 67), (1, 300, 129), (100, 10, 700), (17, 31, 66), (50, 40, 2 * 2561 + 1)):
        x, y = bf16(m, k), bf16(k, n)
        wide = x.astype(np.float64) @ y.astype(np.float64)
        bound = 2.0**-24 * (np.sqrt(k) + 2) * (np.abs(x.astype(np.float64)) @ np.abs(y.astype(np.float64)))
        x = np.ascontiguousarray(x.T) if turned in ("left", "both") else x
        y = np.ascontiguousarray(y.T) if turned in ("right", "both") else y
        over = (((0 if turned in ("left", "both") else 1,), (1 if turned in ("right", "both") else 0,)), ((), ()))
        product = hl.jit(lambda x, y, over=over: hl.lax.dot_general(x, y, over, preferred_element_type=np.float32))
        assert np.all(np.abs(np.asarray(product(x, y)) - wide) <= bound)
        rounded = np.asarray(hl.jit(lambda x, y, over=over: hl.lax.dot_general(x, y, over))(x, y)).astype(np.float64)
        assert np.all(np.abs(rounded - wide) <= bound + 2.0**-8 * np.abs(wide))


def test_what_bfloat16_products_keep():
    """Infinities, NaNs, the largest and the smallest normal numbers; the same bits for one thread and for two."""
    x, y = bf16(70, 90), bf16(90, 50)
    x[3, 5], x[4, 6], x[5, 7], x[6, :] = np.inf, -np.inf, np.nan, 0
    x[6, 8], y[8, 9] = 2.0**-126, 2.0**60
    with np.errstate(invalid="ignore"):
        wide = (x.astype(np.float64) @ y.astype(np.float64)).astype(np.float32)
    product = hl.jit(lambda x, y: hl.lax.dot(x, y, preferred_element_type=np.float32))
    got = np.asarray(product(x, y))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wide))
    np.testing.assert_array_equal(np.isposinf(got), np.isposinf(wide))
    assert got[6, 9] == 2.0**-66
    with hl.config(num_threads=1):
        np.testing.assert_array_equal(np.asarray(hl.jit(lambda x, y: hl.lax.dot(
            x, y, preferred_element_type=np.float32))(x, y)), got)  # fmt: skip


@pytest.mark.parametrize("left, right, extents, machine_, word", [
    ("bf16", "bf16", (1, 64, 64, 64), AMX, "pairbf32"),
    ("bf16", "bf16", (1, 8, 8, 8), AMX, ""),
    ("bf16", "f16", (1, 64, 64, 64), AMX, ""),
    ("bf16", "f32", (1, 64, 64, 64), AMX, ""),
    ("bf16", "bf16", (1, 64, 64, 64), replace(AMX, features="+avx512f,+amx-tile,+amx-int8"), ""),
    ("s8", "s8", (1, 64, 64, 64), AMX, "quadss32"),
    ("s8", "u8", (1, 64, 64, 64), AMX, "quadsu32"),
    ("u8", "s8", (1, 64, 64, 64), AMX, "quadus32"),
    ("pred", "u8", (1, 64, 64, 64), AMX, "quaduu32"),
    ("s8", "s8", (1, 8, 8, 8), AMX, "pair32"),  # to say how large registers are would take longer
    ("s8", "s8", None, AMX, "pair32"),
    ("s8", "s16", (1, 64, 64, 64), AMX, "pair32"),
    ("s8", "s8", (1, 64, 64, 64), replace(AMX, features="+avx512f"), "pair32"),
    ("s8", "s32", (1, 64, 64, 64), AMX, ""),
    ("u8", "s8", (1, 8, 8, 8), AMX, "pair32"),
    ("u8", "s8", None, VNNI, "quad32x16"),
    ("pred", "s8", (1, 8, 8, 8), VNNI, "quad32x16"),
    ("u8", "u8", (1, 64, 64, 64), VNNI, "pair32"),
    ("s8", "s8", (1, 64, 64, 64), VNNI, "pair32"),
    ("u8", "s16", (1, 64, 64, 64), VNNI, "pair32"),
    ("u8", "s8", (1, 64, 64, 64), SHORT, "quad32x8"),
    ("u8", "s8", (1, 64, 64, 64), replace(SHORT, features="+avx2"), "pair32"),
    ("u8", "s8", (1, 64, 64, 64), replace(SHORT, features="+avx512vnni"), "pair32"),
])  # fmt: skip
def test_which_words(left, right, extents, machine_, word):
    accumulate = "f32" if left == "bf16" else "s32"
    spec = ContractionSpec("dot", accumulate, PlainOperand("x", left), PlainOperand("w", right), PlainStore("o"))
    assert render(spec, machine_, extents).blocking.word == word


def loops_of(name, rows, columns, features):
    """The blocks of the assembly of a tile, on any host."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = ir.Module()
    module.triple = "x86_64-unknown-linux-gnu"
    fma.build_tile(module, name, rows, columns).linkage = "external"
    target = llvm.Target.from_triple(module.triple).create_target_machine(cpu="x86-64-v3", features=features, opt=2)
    parsed = llvm.parse_assembly(str(module))
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(2))
    builder.getModulePassManager().run(parsed, builder)
    return re.split(r"^\.?L\w+:", target.emit_assembly(parsed), flags=re.MULTILINE)


@pytest.mark.parametrize("words, rows, columns, features", [
    ("quad32x16", 8, 48, "+avx512f,+avx512vnni,-prefer-256-bit"),
    ("quad32x8", 6, 16, "+avxvnni"),
    ("quad32x8", 8, 24, "+avx512f,+avx512vl,+avx512vnni"),
])  # fmt: skip
def test_the_tile_of_quads_is_one_instruction_for_each_register(words, rows, columns, features):
    counts = {len(re.findall(r"\bvpdpbusd\b", block)) for block in loops_of(words, rows, columns, features)}
    assert rows * columns // QUADS[words] in counts


@pytest.mark.parametrize("machine_", [VNNI, SHORT], ids=["long", "short"])
def test_kernels_of_quads_are_among_the_shared_ones(machine_):
    spec = ContractionSpec("dot", "s32", PlainOperand("x", "u8"), PlainOperand("w", "s8"), PlainStore("o"))
    found = {kernel.name for kernel in shared_kernels("s32", machine_)}
    assert {k.name for k in render(spec, machine_, (1, 64, 64, 64)).kernels[:2]} <= found


@pytest.mark.parametrize("left", ["int8", "uint8"])
@pytest.mark.parametrize("right", ["int8", "uint8"])
@pytest.mark.parametrize("wide", ["int16", "int32"])
def test_products_of_widened_bytes_are_of_the_bytes(left, right, wide):
    """The largest products, which instructions with 16-bit sums would saturate."""
    x, y = numbers(left, (33, 70)), numbers(right, (70, 50))
    x[:8], y[:, :8] = np.iinfo(left).max, np.iinfo(right).min
    x[8:16], y[:, 8:16] = np.iinfo(left).min, np.iinfo(right).max
    product = hl.jit(lambda x, y: hl.numpy.matmul(x.astype(wide), y.astype(wide), preferred_element_type=np.int32))
    np.testing.assert_array_equal(np.asarray(product(x, y)), x.astype(np.int32) @ y.astype(np.int32))
    assert "s16[" not in product.lower(x, y).compile().as_text()


@pytest.mark.parametrize("words", MATRIX_WORDS)
def test_the_tile_of_words_is_made_of_matrix_products(words):
    """On any host: in the loops four products for four loads, two for three at an edge."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = ir.Module()
    module.triple = "x86_64-unknown-linux-gnu"
    fma.build_tile(module, words, 32, 32).linkage = "external"
    target = llvm.Target.from_triple(module.triple).create_target_machine(cpu="sapphirerapids", opt=2)
    parsed = llvm.parse_assembly(str(module))
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(2))
    builder.getModulePassManager().run(parsed, builder)
    blocks = re.split(r"^\.?L\w+:", target.emit_assembly(parsed), flags=re.MULTILINE)
    loops = [b for b in blocks if MATRIX_WORDS[words] in b and "ldtilecfg" not in b and "tilestored" not in b]
    counts = {(len(re.findall(rf"\b{MATRIX_WORDS[words]}\b", b)), len(re.findall(r"\btileload", b))) for b in loops}
    assert {loads / products for products, loads in counts} == {1.0, 1.5}


def test_a_process_that_the_system_refuses_has_no_matrix_registers(monkeypatch):
    flags = {"avx512f": True, "amx-tile": True, "amx-int8": True}
    monkeypatch.setattr(machine, "_processor", lambda: ("sapphirerapids", dict(flags)))
    monkeypatch.setattr(machine, "_may_use_matrix_registers", lambda: True)
    assert machine.native_machine.__wrapped__().has("amx-int8")
    monkeypatch.setattr(machine, "_may_use_matrix_registers", lambda: False)
    refused = machine.native_machine.__wrapped__()
    assert not refused.has("amx-int8") and not refused.has("amx-tile") and refused.has("avx512f")
