"""Object files into memory without LLVM: calls, constants, functions of the C library, and what is refused."""

from __future__ import annotations

import ctypes
import struct

import llvmlite.binding as llvm
import pytest

from hloom.compiler.targets.cpu import backend
from hloom.runtime import elf, native

pytestmark = [pytest.mark.quick, pytest.mark.skipif(not elf.usable(), reason="it is for Linux on x86-64")]


def compiled(text: str) -> bytes:
    return backend.compiled(f'target triple = "{llvm.get_process_triple()}"\n{text}')


def test_constants_and_functions_of_the_c_library():
    code = compiled("""
@table = private constant [4 x double] [double 1.0, double 2.0, double 3.0, double 4.0], align 32
declare double @pow(double, double)
define double @power(i64 %k, double %x) {
  %place = getelementptr [4 x double], ptr @table, i64 0, i64 %k
  %base = load double, ptr %place
  %result = call double @pow(double %base, double %x)
  ret double %result
}
define double @twice(i64 %k, double %x) {
  %one = call double @power(i64 %k, double %x)
  %two = fmul double %one, 2.0
  ret double %two
}""")
    (found,), (memory,) = elf.load([(code, ("power", "twice"))])
    power, twice = (
        ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64, ctypes.c_double)(found[n]) for n in ("power", "twice")
    )
    assert power(2, 3.0) == 27.0 and twice(3, 0.5) == 4.0
    assert len(memory) >= 64


def test_objects_with_equal_names_do_not_collide():
    codes = [compiled(f"define i64 @f() {{\n  ret i64 {k}\n}}") for k in range(3)]
    found, _ = elf.load([(code, ("f",)) for code in codes])
    assert [ctypes.CFUNCTYPE(ctypes.c_int64)(f["f"])() for f in found] == [0, 1, 2]


def test_what_it_does_not_know_is_left_to_llvm():
    code = compiled("@count = internal global i64 41\ndefine i64 @next() {\n"
                    "  %a = load volatile i64, ptr @count\n  %b = add i64 %a, 1\n"
                    "  store volatile i64 %b, ptr @count\n  ret i64 %b\n}")  # fmt: skip
    with pytest.raises(elf.Unknown, match="variables"):
        elf.load([(code, ("next",))])
    function = ctypes.CFUNCTYPE(ctypes.c_int64)(native.load(code, ("next",))["next"])
    assert (function(), function()) == (42, 43)


def test_other_files_and_names_are_refused():
    code = compiled("define i64 @f() {\n  ret i64 1\n}")
    with pytest.raises(elf.Unknown, match="defines no g"):
        elf.load([(code, ("g",))])
    for data in (b"", b"MZ" + bytes(100), code[:18] + struct.pack("<H", 183) + code[20:]):  # 183: AArch64
        with pytest.raises(elf.Unknown, match="format"):
            elf.load([(data, ())])


def test_an_unknown_function_is_an_error():
    code = compiled(
        "declare i64 @hloom_is_nowhere()\ndefine i64 @f() {\n  %x = call i64 @hloom_is_nowhere()\n  ret i64 %x\n}"
    )
    with pytest.raises(elf.Unknown, match="hloom_is_nowhere"):
        elf.load([(code, ("f",))])
    with pytest.raises(RuntimeError):
        native.load(code, ("f",))


def test_code_may_not_be_written():
    (found,), _ = elf.load([(compiled("define i64 @f() {\n  ret i64 1\n}"), ("f",))])
    maps = open("/proc/self/maps").read().splitlines()
    start = found["f"]
    line = next(x for x in maps if int(x.split("-")[0], 16) <= start < int(x.split("-")[1].split()[0], 16))
    assert line.split()[1].startswith("r-x")
