"""CUDA texts to sm_90 cubins, on a machine without a GPU. Needs the extra `cuda`: pip install "hloom[cuda]"."""

import importlib
import re
import sys

import pytest
from cuda_programs import bias_gelu, computation, layer_norm, request, softmax, transposed
from kernel_nests import nests

from hloom.compiler.kernels import math
from hloom.compiler.targets.cuda.codegen.compile import CudaCompileError, CudaNotInstalledError, available, compile_cuda
from hloom.compiler.targets.cuda.codegen.names import meaning
from hloom.compiler.targets.cuda.codegen.render import render
from hloom.compiler.targets.cuda.codegen.source import CudaSource

needs_cuda = pytest.mark.skipif(not available(), reason='the extra is missing: pip install "hloom[cuda]"')


def compiled(program, arch="sm_90"):
    return compile_cuda([render(nest) for nest in nests(request(program))], arch)


def text(name, body, params) -> CudaSource:
    names = [f"p{position}" for position in range(len(params))]
    lines = "\n    ".join(body)
    return CudaSource(name, f"def {name}({', '.join(names)}):\n    {lines}\n", params, tuple(names), threads=128)


def count(pattern: str, ptx: str) -> int:
    return len(re.findall(pattern, ptx))


@needs_cuda
@pytest.mark.parametrize(
    "program",
    [
        bias_gelu(33, 77),
        computation([("f64", (999,)), ("s8", (999,))], lambda x, y: x + y.convert("f64"), "mixed"),
        softmax(40, 70),
        layer_norm(40, 5000),
        transposed(3, 40, 50, "bf16"),
        computation([("f32", (3000, 77))], lambda x: x.sum([0])),
        computation([("pred", (20, 3000))], lambda x: x.reduce("or", False, [1])),
        computation([("s8", (20, 300))], lambda x: x.reduce("maximum", -128, [1])),
        computation([("f64", (20, 3000))], lambda x: x.sum([0, 1])),
    ],
    ids=lambda program: program.name,
)
def test_kernels_compile_without_spills(program):
    for code in compiled(program):
        assert code.cubin[:4] == b"\x7fELF" and code.arch == "sm_90"
        assert 0 < code.registers <= 96 and code.spills == 0 and code.stack == 0
        assert f".visible .entry {code.name}(" in code.ptx


@needs_cuda
def test_a_warp_combines_by_five_shuffles_for_each_reduction():
    (code,) = compiled(softmax(40, 70))
    assert count(r"shfl\.sync\.bfly\.b32", code.ptx) == 10
    assert code.shared == 0 and "bar.sync" not in code.ptx


@needs_cuda
def test_a_block_combines_by_shuffles_shared_memory_and_barriers():
    (code,) = compiled(softmax(40, 5000))
    assert count(r"shfl\.sync\.bfly\.b32", code.ptx) == 10
    assert count(r"bar\.sync", code.ptx) == 4 and count(r"st\.shared", code.ptx) == 2 and 32 <= code.shared < 2048


@needs_cuda
def test_a_transpose_has_a_padded_tile():
    (code,) = compiled(transposed(3, 40, 50))
    assert code.shared >= 4 * 32 * 33 and "st.shared" in code.ptx and count(r"bar\.sync", code.ptx) == 2


def _branches(ptx: str) -> list[str]:
    """'forward' or 'backward' for every branch."""
    place = {label: k for k, label in enumerate(ptx.split()) if label.endswith(":")}
    words = ptx.split()
    return [
        "forward" if place[f"{words[k + 1].rstrip(';')}:"] > k else "backward"
        for k, word in enumerate(words)
        if word.startswith("bra")
    ]


@needs_cuda
def test_an_element_kernel_has_neither_a_loop_nor_a_division_nor_many_registers():
    (code,) = compiled(bias_gelu(33, 77))
    assert not re.search(r"div\.[us]|rem\.", code.ptx) and code.registers <= 32
    assert "backward" not in _branches(code.ptx)
    assert count(r"ld\.global\.nc\.f32", code.ptx) == 2, "pointers lost their noalias"


@needs_cuda
def test_four_elements_are_one_load_and_one_store():
    program = computation([("f32", (1000,)), ("f32", (1000,))], lambda x, y: (x + y).op("exponential"))
    (code,) = compiled(program)
    assert count(r"ld\.global\.nc\.v4\.f32", code.ptx) == 2 and count(r"st\.global\.v4\.f32", code.ptx) == 1
    assert code.stack == 0 and code.registers <= 32
    (code,) = compiled(computation([("bf16", (1000,))], lambda x: x * 2.0))
    assert re.search(r"ld\.global\.nc\.v4\.u16", code.ptx) and "st.global.v4.u16" in code.ptx and code.stack == 0


@needs_cuda
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("opcode", ["remainder", "lgamma", "digamma", "bessel-i1e", "erfc", "erf-inv"])
def test_long_functions_leave_no_element_in_local_memory(opcode, dtype):
    count = 2 if opcode == "remainder" else 1
    cube = lambda x, *rest: (x.op(opcode, *rest), x * x * x)  # noqa: E731
    (code,) = compiled(computation([(dtype, (1000,))] * count, cube))
    assert code.stack == 0 and code.spills == 0


@needs_cuda
def test_arithmetic_is_precise():
    """Divisions and roots are correctly rounded, a product and a sum are rounded each, nothing is flushed to zero."""
    source = text("precise", ["p2[0] = sqrt_f32(p0[0] / p1[0]) * p1[1] + p0[1]"], ("f32*", "f32*", "f32*"))
    (code,) = compile_cuda([source])
    for instruction in (r"div\.rn\.f32", r"sqrt\.rn\.f32", r"mul\.rn\.f32", r"add\.rn\.f32"):
        assert count(instruction, code.ptx) == 1, instruction
    assert not re.search(r"fma|ftz|approx", code.ptx)


@needs_cuda
def test_maximum_keeps_nan_in_one_instruction():
    (code,) = compile_cuda([text("largest", ["p2[0] = max_f32(p0[0], p1[0])"], ("f32*", "f32*", "f32*"))])
    assert "max.NaN.f32" in code.ptx


@needs_cuda
@pytest.mark.parametrize("how", ["libdevice", "written", "saturate", "shared", "composed"])
def test_every_name_compiles(how):
    """All names of one kind, a few dozen in a kernel, to PTX."""
    from hloom.compiler.targets.cuda.codegen.lowering import lower_cuda, ptx_of

    chosen = [
        name
        for name, entry in math.FUNCTIONS.items()
        if meaning(name).how == how
        and entry.parameters
        and not name.startswith(("load_", "store_", "stream_", "scratch_"))
    ]
    assert chosen
    register = {"f16": "f32", "bf16": "f32"}
    for start in range(0, len(chosen), 60):
        body, pointers = [], {}
        for name in chosen[start : start + 60]:
            entry = math.FUNCTIONS[name]
            arguments = []
            for k, kind in enumerate(entry.parameters):
                kind = register.get(kind, kind)
                pointer = pointers.setdefault(kind, f"p{len(pointers)}")
                arguments.append(f"load_pred({pointer}, {k})" if kind == "pred" else f"{pointer}[{k}]")
            kind = register.get(entry.result, entry.result)
            pointer = pointers.setdefault(kind, f"p{len(pointers)}")
            call = f"{name}({', '.join(arguments)})"
            # A place of its own for each result, or all but the last would be removed.
            place = 8 + len(body)
            body.append(f"store_pred({pointer}, {place}, {call})" if kind == "pred" else f"{pointer}[{place}] = {call}")
        source = text(f"names_{how}_{start}", body, tuple(f"{kind}*" for kind in pointers))
        assert ".visible .entry" in ptx_of(lower_cuda(source), "sm_90")


@needs_cuda
@pytest.mark.parametrize("dtype", ["f16", "bf16", "pred"])
def test_narrow_elements_are_loaded_and_stored(dtype):
    body = [f"store_{dtype}(p1, 0, load_{dtype}(p0, 1))"]
    (code,) = compile_cuda([text("narrow", body, (f"{dtype}*", f"{dtype}*"))])
    width = 8 if dtype == "pred" else 16
    assert re.search(rf"ld\.global(\.nc)?\.[us]{width}", code.ptx) and f"st.global.u{width}" in code.ptx


@needs_cuda
def test_an_architecture_with_a_letter():
    (code,) = compiled(softmax(40, 70), "sm_90a")
    assert ".target sm_90a" in code.ptx and code.registers > 0


@needs_cuda
def test_a_text_that_does_not_compile_is_shown():
    with pytest.raises(CudaCompileError) as error:
        compile_cuda([text("wrong", ["p0[0] = no_such_name(p0[1])"], ("f32*",))])
    assert "compile wrong for sm_90" in str(error.value) and "no_such_name(p0[1])" in str(error.value)


@needs_cuda
@pytest.mark.parametrize("arch", ["sm_75", "90", "sm_x"])
def test_an_architecture_that_is_too_old_or_no_name(arch):
    with pytest.raises(CudaCompileError, match="sm_80 on"):
        compiled(softmax(40, 70), arch)


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvjitlink", None)
    module = importlib.import_module("hloom.compiler.targets.cuda.codegen.compile")
    assert not module.available()
    with pytest.raises(CudaNotInstalledError, match=r"hloom\[cuda\]") as error:
        compile_cuda([text("any_text", ["p0[0] = p0[1]"], ("f32*",))])
    assert isinstance(error.value, ImportError)


@needs_cuda
def test_registers_are_not_bounded_where_that_spills():
    """Room for two blocks of 1024 threads leaves 32 registers each: these sums do not fit."""
    sums = [f"a{k} = p0[{k}]" for k in range(60)]
    sums += [line for turn in range(3) for line in (f"a{k} = a{k} * a{(7 * k + turn) % 60}" for k in range(60))]
    body = [*sums, *(f"p1[{k}] = a{k}" for k in range(60))]
    plain = text("wide", body, ("f32*", "f32*"))
    source = CudaSource(plain.name, plain.text, plain.params, (), plain.params, (), threads=1024, together=2)
    (bounded,) = compile_cuda([source], "sm_90")
    assert bounded.spills == 0 and bounded.registers > 32
