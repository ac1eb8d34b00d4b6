"""Where the scratch memory of a kernel lies: little of it on the stack, the rest in one block of the C library's heap.

A thread that runs kernels may have a small stack: 128 KB in some C libraries, 512 KB on macOS, whatever a host program
gives its own threads. Blocks of a contraction are larger than that.

Guards (`hl.config.guard_scratch`) are for tests. Each array then has pages of its own and ends where a page begins that
may not be touched, so that the first access behind it ends the process. What lies before the array in its first page
is compared at the end. All bytes are 0xFF first: floats that were never written are NaN.
"""

from __future__ import annotations

import mmap
import sys

from hloom.ir.records import record

ALIGNMENT = 64
# Bytes on the stack of one function. Kernels call each other two deep.
ON_STACK = 16 << 10
# The least bytes on the heap of a function that calls kernels which have arrays there, too. What it does not touch
# costs nothing. GNU's C library gives memory back to the system where more is free at the end of the heap than twice
# the largest block that it has seen: both functions' arrays, if they were about equally large, in each call. A
# convolution took a fifth longer.
OF_CALLERS = 1536 << 10


@record(frozen=True)
class Array:
    """name: of the pointer in LLVM IR. kind: the LLVM type of its elements. nbytes: its size."""

    name: str
    kind: str
    count: int
    nbytes: int


_guards = False


def use_guards(on: bool) -> None:
    """From now on code is generated with guards, or without."""
    global _guards
    _guards = on


def guarded() -> bool:
    """Whether code is generated with guards: part of the keys of code."""
    return _guards


def places(arrays: list[Array], calls_kernels: bool, size_type: str) -> tuple[list[str], list[str], dict[str, str]]:
    """(statements of the entry block, statements before the function returns, declarations by symbol).

    size_type: LLVM's type of C's size_t.
    """
    if not arrays:
        return [], [], {}
    return _with_guards(arrays) if guarded() else _without_guards(arrays, calls_kernels, size_type)


def size_type(triple: str) -> str:
    """LLVM's type of C's size_t on a system: calls of a function with another type fail in WebAssembly."""
    return "i32" if triple.startswith(("armv7", "wasm32")) else "i64"


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _without_guards(
    arrays: list[Array], calls_kernels: bool, size_type: str
) -> tuple[list[str], list[str], dict[str, str]]:
    first, far, used = [], [], 0
    for array in sorted(arrays, key=lambda array: array.nbytes):
        used += _rounded(array.nbytes)
        if used > ON_STACK:
            far.append(array)
        else:
            first.append(f"  {array.name} = alloca {array.kind}, i64 {array.count}, align {ALIGNMENT}")
    if not far:
        return first, [], {}
    total = max(sum(_rounded(array.nbytes) for array in far) + ALIGNMENT, OF_CALLERS if calls_kernels else 0)
    first += [
        f"  %heap = call noalias ptr @malloc({size_type} {total})",
        "  %heap.none = icmp eq ptr %heap, null",
        "  br i1 %heap.none, label %heap.out, label %heap.in",
        "heap.out:",
        "  call void @abort()",
        "  unreachable",
        "heap.in:",
        "  %heap.word = ptrtoint ptr %heap to i64",
        "  %heap.negative = sub i64 0, %heap.word",
        f"  %heap.gap = and i64 %heap.negative, {ALIGNMENT - 1}",
        "  %heap.first = getelementptr i8, ptr %heap, i64 %heap.gap",
        f'  call void @llvm.assume(i1 true) ["align"(ptr %heap.first, i64 {ALIGNMENT})]',
    ]
    offset = 0
    for array in far:
        first.append(f"  {array.name} = getelementptr i8, ptr %heap.first, i64 {offset}")
        offset += _rounded(array.nbytes)
    declarations = {
        "malloc": f"declare noalias ptr @malloc({size_type})",
        "free": "declare void @free(ptr)",
        "abort": "declare void @abort() noreturn",
        "llvm.assume": "declare void @llvm.assume(i1)",
    }
    return first, ["  call void @free(ptr %heap)"], declarations


def _with_guards(arrays: list[Array]) -> tuple[list[str], list[str], dict[str, str]]:
    first = [f"  {a.name} = call noalias ptr @hloom_guard(i64 {a.nbytes})" for a in arrays]
    last = [f"  call void @hloom_unguard(ptr {a.name}, i64 {a.nbytes})" for a in arrays]
    declarations = {
        "hloom_guard": "declare noalias ptr @hloom_guard(i64)",
        "hloom_unguard": "declare void @hloom_unguard(ptr, i64)",
    }
    return first, last, declarations


_PAGE = mmap.PAGESIZE
_ANONYMOUS = 0x1002 if sys.platform == "darwin" else 0x22  # MAP_PRIVATE | MAP_ANONYMOUS
# A module that kernels with guards are linked with. An array lies behind the rest of its pages, between two pages that
# may not be touched.
GUARDS = f"""\
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @mprotect(ptr, i64, i32)
declare i32 @munmap(ptr, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.trap()

define internal i64 @hloom_guard_pages(i64 %nbytes) alwaysinline nounwind {{
  %more = add i64 %nbytes, {_PAGE - 1}
  %pages = and i64 %more, {-_PAGE}
  ret i64 %pages
}}

define linkonce_odr ptr @hloom_guard(i64 %nbytes) noinline nounwind {{
entry:
  %pages = call i64 @hloom_guard_pages(i64 %nbytes)
  %total = add i64 %pages, {2 * _PAGE}
  %base = call ptr @mmap(ptr null, i64 %total, i32 0, i32 {_ANONYMOUS}, i32 -1, i64 0)
  %inside = getelementptr i8, ptr %base, i64 {_PAGE}
  %failed = call i32 @mprotect(ptr %inside, i64 %pages, i32 3)
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %none, label %fill
none:
  call void @llvm.trap()
  unreachable
fill:
  call void @llvm.memset.p0.i64(ptr %inside, i8 -1, i64 %pages, i1 false)
  %gap = sub i64 %pages, %nbytes
  %array = getelementptr i8, ptr %inside, i64 %gap
  ret ptr %array
}}

define linkonce_odr void @hloom_unguard(ptr %array, i64 %nbytes) noinline nounwind {{
entry:
  %pages = call i64 @hloom_guard_pages(i64 %nbytes)
  %gap = sub i64 %pages, %nbytes
  %back = sub i64 0, %gap
  %inside = getelementptr i8, ptr %array, i64 %back
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %next, %body ]
  %done = icmp uge i64 %at, %gap
  br i1 %done, label %whole, label %body
body:
  %place = getelementptr i8, ptr %inside, i64 %at
  %byte = load i8, ptr %place
  %next = add i64 %at, 1
  %same = icmp eq i8 %byte, -1
  br i1 %same, label %head, label %broken
broken:
  call void @llvm.trap()
  unreachable
whole:
  %base = getelementptr i8, ptr %inside, i64 {-_PAGE}
  %total = add i64 %pages, {2 * _PAGE}
  %ignored = call i32 @munmap(ptr %base, i64 %total)
  ret void
}}
"""
