"""Non-temporal stores: `stream_f32(p, i, v)` of kernel sources as x86's non-temporal vector stores.

An ordinary store into a line that is not in the caches reads the line from memory first. A non-temporal one does not,
but needs an address that is a multiple of the vector's size, which LLVM's vectorizer can't know and therefore refuses.
So the vectorizer sees ordinary stores with a mark, and this pass comes after it: each marked vector store becomes a
test of the address and one store of either kind. Rows of any length are right that way, and aligned ones fast.
The pass reads and changes text: llvmlite's objects have neither the marks and alignments of instructions nor a way to
change them.

What such a loop reads comes from memory too, one vector at a time behind the arithmetic of the last ones, while a core
can wait for many lines at the same time. So the loop prefetches what it will read 4 KiB later. Loops that sum rows or
columns, and those that read each value several times, do not prefetch: it made them slower.
"""

from __future__ import annotations

import re

import llvmlite.binding as llvm

from hloom.compiler.kernels.codegen.source import STREAM_MARK
from hloom.compiler.kernels.contractions.tile_shapes import CACHE_LINE

_STORE = re.compile(r"^  store <(\d+) x (\w+)> (\S+), ptr (\S+), align (\d+), .*!mmra ")
_LOAD = re.compile(r"^  %\S+ = load <(\d+) x (\w+)>, ptr (\S+), align ")
_PLACE = re.compile(r"^  (%\S+) = getelementptr (?:inbounds |nuw |nusw )*(\w+), ptr %\S+, i64 (\d+)$")
_BYTES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8}
_FENCE = "llvm.x86.sse.sfence"
_STREAM = "call void @hloom_stream_"
_AHEAD = "llvm.prefetch.p0"
AHEAD = 4096  # bytes between what a loop prefetches and what it reads


def is_streamed(text: str) -> bool:
    """Whether LLVM IR (text) has stores with the mark."""
    return STREAM_MARK in text


def past_caches(module: llvm.ModuleRef, vector_bytes: int, context: llvm.ContextRef | None = None) -> llvm.ModuleRef:
    """The optimized module with its marked vector stores non-temporal, fenced before each return.

    vector_bytes: the widest store that the processor has. Stores of less than 16 bytes stay as they are.
    context: LLVM's, of the module. The stores are calls of functions that have yet to be inlined.
    """
    lines = str(module).split("\n")
    helpers: dict[str, str] = {}
    start = 0  # the first line of the function that `line` is in
    streaming = False
    result: list[str] = []
    for line in lines:
        if line.startswith("define"):
            start, streaming = len(result), False
        elif line == "}" and streaming:
            result[start:] = [
                part
                for old in result[start:]
                for part in ([f"  call void @{_FENCE}()", old] if old.startswith("  ret ") else [old])
            ]
        elif STREAM_MARK in line and (store := _STORE.match(line)):
            count, element, value, place, align = store.groups()
            size = int(count) * _BYTES.get(element, 0)
            if size >= 16:
                name = f"hloom_stream_{count}x{element}_{align}"
                helpers[name] = _helper(name, f"<{count} x {element}>", int(align), min(size, vector_bytes))
                line = f"  call void @{name}(<{count} x {element}> {value}, ptr {place})"
                streaming = True
        result.append(line)
    if not helpers:
        return module
    result = _prefetching(result, vector_bytes)
    result += [*helpers.values(), f"declare void @{_FENCE}()", "!90000 = !{i32 1}"]
    return llvm.parse_assembly("\n".join(result), context)


def _prefetching(lines: list[str], vector_bytes: int) -> list[str]:
    """The lines with a prefetch of each cache line that a loop will read, where its stores are non-temporal."""
    result: list[str] = []
    block: list[str] = []  # from a label on
    offsets: dict[str, int] = {}  # of addresses that are so many bytes from another
    asked = 0
    for line in [*lines, "}"]:
        if line[:1] != " ":  # a label, or what is outside of a function
            storing = any(_STREAM in part for part in block)
            for part in block:
                load = _LOAD.match(part) if storing else None
                if (
                    load
                    and int(load[1]) * _BYTES.get(load[2], 0) == vector_bytes
                    and not offsets.get(load[3], 0) % CACHE_LINE
                ):
                    asked += 1
                    result.append(f"  %ahead.{asked} = getelementptr i8, ptr {load[3]}, i64 {AHEAD}")
                    result.append(f"  call void @{_AHEAD}(ptr %ahead.{asked}, i32 0, i32 2, i32 1)")
                result.append(part)
            block = []
            if line.startswith("define"):
                offsets = {}
        elif place := _PLACE.match(line):
            offsets[place[1]] = int(place[3]) * _BYTES.get(place[2], 0)
        block.append(line)
    if asked and not any(line.startswith("declare") and f"@{_AHEAD}(" in line for line in lines):
        result.append(f"declare void @{_AHEAD}(ptr, i32, i32, i32)")
    return result


def _helper(name: str, vector: str, align: int, wanted: int) -> str:
    """A function that stores a vector non-temporally where its address is a multiple of `wanted`."""
    return f"""
define internal void @{name}({vector} %value, ptr %place) alwaysinline nounwind {{
  %address = ptrtoint ptr %place to i64
  %rest = and i64 %address, {wanted - 1}
  %aligned = icmp eq i64 %rest, 0
  br i1 %aligned, label %past, label %into
past:
  store {vector} %value, ptr %place, align {wanted}, !nontemporal !90000
  ret void
into:
  store {vector} %value, ptr %place, align {align}
  ret void
}}"""
