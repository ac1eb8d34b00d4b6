"""Matrix products as machine code for sm_80 and sm_90: registers, spills, and the instructions that are promised."""

import re

import pytest
from contraction_programs import bias_gelu, launches, product
from cuda_programs import computation

from hloom.compiler.cache import default_cache
from hloom.compiler.targets.cuda.codegen.compile import available
from hloom.compiler.targets.cuda.codegen.cubins import cubins, disassembled
from hloom.compiler.targets.cuda.contractions.tiles import Tile
from hloom.compiler.targets.cuda.machine import machine_of
from hloom.ir.window import WindowDimension

pytestmark = pytest.mark.skipif(not available(), reason='the extra is missing: pip install "hloom[cuda]"')

LARGE, MIDDLE = ({"i": n, "j": n, "p": n} for n in (4096, 256))
GELU = {"after": bias_gelu}


def compiled(arch="sm_90", options=None, *arguments, **named):
    """The machine code of a product's launches."""
    made = launches(product(*arguments, **named), arch=arch, **(options or {}))
    return made, cubins([launch.source for launch in made], arch, default_cache())


def count(pattern: str, text: str) -> int:
    return len(re.findall(pattern, text))


# What is compiled, and the most registers that a thread of its first kernel has on either architecture.
CASES = {
    "large bf16": ((LARGE, "bf16"), {}, {}, 232),
    "large bf16, both along p": ((LARGE, "bf16", "ip", "jp"), {}, {}, 232),
    "middle f16": ((MIDDLE, "f16"), {}, {}, 128),
    "large bf16, bias and gelu": ((LARGE, "bf16"), {**GELU, "more": [("bf16", (4096,))]}, {}, 232),
    "large f32": ((LARGE, "f32"), {}, {}, 128),
    "middle f32, from the left": ((MIDDLE, "f32", "pi"), {}, {}, 128),
    "large tf32": ((LARGE, "f32"), {}, {"tf32": True}, 255),
    "middle f64": ((MIDDLE, "f64"), {}, {}, 160),
    "middle s64": ((MIDDLE, "s64"), {}, {}, 240),
    "s8": ((MIDDLE, "s8"), {"result": "s32"}, {}, 160),
    "odd f32": (({"i": 301, "j": 303, "p": 305}, "f32"), {}, {}, 160),
    "odd bf16": (({"i": 301, "j": 303, "p": 305}, "bf16"), {}, {}, 168),
    "evaluated bf16": ((MIDDLE, "bf16"), {"before": lambda x, y: (x.op("tanh"), y * 2.0)}, {}, 200),
    "in parts": (({"i": 64, "j": 64, "p": 8192}, "bf16"), {}, {}, 128),
}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", CASES)
def test_no_product_spills(name, arch):
    arguments, named, options, registers = CASES[name]
    made, codes = compiled(arch, options, *arguments, **named)
    for launch, code in zip(made, codes, strict=True):
        assert code.spills == 0 and code.stack == 0, f"{code.spills} bytes spilled, {code.stack} of stack"
        assert code.registers * launch.threads <= 65536
    assert codes[0].registers <= registers
    assert made[0].shared_bytes <= machine_of(arch).dynamic_bytes and codes[0].shared <= 1024


def test_bf16_is_multiplied_by_tensor_cores():
    _, (code,) = compiled("sm_80", None, LARGE, "bf16")
    assert count(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16\.bf16\.f32", code.ptx) >= 32
    assert count(r"ldmatrix\.sync\.aligned\.m8n8\.x4\.shared", code.ptx) and count(r"x4\.trans\.shared", code.ptx)
    assert count(r"cp\.async\.cg\.shared\.global \[%r\d+\], \[%rd\d+\], 16", code.ptx) >= 4
    assert "cp.async.commit_group" in code.ptx and "cp.async.wait_group" in code.ptx
    assert not re.search(r"\bld\.(f32|u16|b16)", code.ptx), "shared memory is read by generic loads"


def test_f16_and_tf32_too():
    _, (code,) = compiled("sm_80", None, MIDDLE, "f16")
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in code.ptx
    _, (code,) = compiled("sm_80", {"tf32": True}, MIDDLE, "f32")
    assert "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in code.ptx and "cvt.rna.tf32.f32" in code.ptx
    _, (code,) = compiled("sm_80", None, MIDDLE, "f32")
    assert "mma" not in code.ptx


def test_float32_is_fused_and_moved_16_bytes_at_a_time():
    _, (code,) = compiled("sm_90", {"tile": Tile("thread", 128, 128, 8, 8, 16)}, LARGE, "f32")
    assert count(r"fma\.rn\.f32", code.ptx) >= 64 and not re.search(r"mul\.(rn\.)?f32", code.ptx)
    assert "ld.global.nc.v4.f32" in code.ptx, "the left operand goes through registers"
    assert "cp.async.cg.shared.global" in code.ptx and "st.global.v4.f32" in code.ptx
    assert count(r"ld\.shared\.v4\.f32", code.ptx) >= 4


def test_without_aligned_arrays_nothing_is_moved_16_bytes_at_a_time():
    for dtype in ("f32", "bf16"):
        made, (code,) = compiled("sm_90", {"vectors": False}, MIDDLE, dtype)
        assert made[0].source.alignment == 1
        assert not re.search(r"global(\.nc)?\.v4|cp\.async\.cg", code.ptx)


def test_the_registers_of_a_thread_leave_room_for_a_second_block():
    made, (code,) = compiled("sm_80", {"tile": Tile("tensor", 128, 128, 64, 32, 32, 3)}, LARGE, "bf16")
    assert made[0].source.together == 2 and ".minnctapersm 2" in code.ptx and code.registers <= 128


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("labels, features", [("b01f_01io->b01f", 64), ("bf01_oi01->bf01", 64), ("b01f_01io->b01f", 3)])
def test_no_convolution_spills(labels, features, arch):
    sizes = {"b": 8, "f": features, "0": 28, "1": 28, "i": features, "o": 128}
    lhs, rhs, _ = labels.replace("->", "_").split("_")
    window = (WindowDimension(3, 1, 1, 1),) * 2
    shapes = [("bf16", tuple(sizes[c] for c in lhs)), ("bf16", tuple((sizes | {"0": 3, "1": 3})[c] for c in rhs))]
    program = computation(shapes, lambda x, w: x.op("convolution", w, window=window, dim_labels=labels), "convolved")
    (launch,) = launches(program, arch=arch)
    (code,) = cubins([launch.source], arch, default_cache())
    assert code.spills == 0 and code.stack == 0 and code.registers * launch.threads <= 65536
    assert "mma.sync" in code.ptx and not re.search(r"div\.[us]\d", code.ptx.split("mma.sync")[1])
    assert ("load_bf16(in0" in launch.source.text) == (features == 3 or labels.startswith("bf"))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_machine_code_has_what_is_promised(arch):
    _, codes = compiled(arch, None, LARGE, "bf16")
    try:
        text = disassembled(codes[0])
    except ImportError as error:
        pytest.skip(f"no disassembler: {error}")
    assert count(r"HMMA\.16816\.F32\.BF16", text) >= 32 and count(r"LDSM\.16\.M(T)?88\.4", text) >= 8
    assert re.search(r"LDGSTS\.E\.BYPASS(\.LTC\d+B)?\.128", text)
    assert not re.search(r"\b(LDL|STL)\b", text), "something is in local memory"
    _, codes = compiled(arch, None, MIDDLE, "f32")
    text = disassembled(codes[0])
    assert re.search(r"LDG\.E\.128", text) and re.search(r"STG\.E\.128", text) and re.search(r"LDS\.128", text)
    assert "HMMA" not in text and count(r"\bFFMA\b", text) >= 16
