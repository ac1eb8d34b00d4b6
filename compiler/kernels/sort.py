"""sort: radix sorts of the keys that comparators order by. An item is a range of rows.

A row's places are sorted by its keys, least significant digit first, and then its elements are written in that order.
Counting sorts are stable, so with several keys the last one is sorted by first. The order is that of the reference:
-0 equals 0 and NaN comes last, or the total order of the bits, as the comparator says.

Source: D. Knuth, The Art of Computer Programming vol. 3, 5.2.5 (radix sort), 5.2.1 (insertion sort).
"""

from __future__ import annotations

import math

import numpy as np

from hloom.compiler.kernels.codegen.elements import load, store
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.launch import Launch, launch_by_grain
from hloom.compiler.kernels.request import KernelRequest
from hloom.ir.module import Instruction
from hloom.ir.ops.indexing.sort import Key, sort_keys
from hloom.ir.sizes.guards import typical
from hloom.ir.types import COMPLEX, DTYPES, HLO_NAME, HOST_DTYPES, NARROW_FLOATS, PRED

STRIPS = 16  # ranges of rows, each with memory of its own
INSERTION = 24  # rows of at most so many elements are sorted by insertion
WIDE_DIGITS = 4096  # elements of a row from which on digits have 11 bits instead of 8
FEW_KEYS = 3  # up to which each key has its own passes in the kernel's text
STORES = 8  # results up to which one loop writes them
LARGEST = 1 << 32  # elements of a row: its places have 32 bits beside short keys


def has_sort_kernel(instruction: Instruction) -> bool:
    """Whether the comparator's keys are known, and kernels load the operands' dtypes."""
    keys = sort_keys(instruction["to_apply"])
    dtypes = [o.dtype for o in instruction.operands]
    (axis,) = instruction["dimensions"]
    return (
        bool(keys)
        and all(dtype not in HOST_DTYPES for dtype in dtypes)
        and all(not key.part and dtypes[key.operand] not in COMPLEX for key in keys or ())
        and instruction.operands[0].dims[axis] < LARGEST
    )


def sort_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one sort; none where there are no elements."""
    instruction = request.instruction("sort")
    dims = instruction.operands[0].dims
    (axis,) = instruction["dimensions"]
    count, inner = dims[axis], math.prod(dims[axis + 1 :])
    rows = math.prod(dims) // max(count, 1)
    if not rows or not count:
        return []
    keys = sort_keys(instruction["to_apply"])
    assert keys is not None  # has_sort_kernel
    distinct = list(dict.fromkeys(instruction.operands))
    pointers = {request.names[o]: o.dtype for o in distinct}
    results = {request.output_name(k): o.dtype for k, o in enumerate(instruction.operands)}
    names = [request.names[o] for o in instruction.operands]
    writer = _Sort(names, list(results), [o.dtype for o in instruction.operands], keys, count, inner > 1)
    title = request.title("radix")
    parameters = [*pointers, *results, "work"]
    text = f"def {title}({', '.join(parameters)}, n, rows, inner, strips, lo, hi):\n" + writer.text()
    types = [f"{HLO_NAME[dtype]}*" for dtype in (*pointers.values(), *results.values())]
    source = KernelSource(title, text, (*types, "s64*", *["s64"] * 6), tuple(writer.parts.items()))
    strips = min(rows, STRIPS)
    memory = {"work": strips * count * 8 * writer.arrays}
    passes = sum(-(-_bits(writer.dtypes[key.operand]) // 8) for key in keys)
    work = typical(rows * count) * (passes + 2.0) * 6
    return [launch_by_grain(source, [*parameters, count, rows, inner, strips], strips, 1, memory, work)]


def _bits(dtype: np.dtype) -> int:
    """Bits of a key, an integer in the order of the values."""
    return 32 if dtype in NARROW_FLOATS else 8 if dtype == PRED else dtype.itemsize * 8


def _key(value: str, dtype: np.dtype, key: Key) -> str:
    """A signed integer of `_bits` bits, as an s64, whose order is that of the values."""
    if dtype in NARROW_FLOATS or dtype == DTYPES["f32"]:
        # x + 0 makes 0 of -0.
        made = (
            f"s64(maxkey_f32({value} + f32(0.0)))" if not key.total else f"s64(flipped_s32(bitcast_f32_s32({value})))"
        )
    elif dtype == DTYPES["f64"]:
        made = f"maxkey_f64({value} + 0.0)" if not key.total else f"flipped_s64(bitcast_f64_s64({value}))"
    elif dtype == PRED:
        made = f"(s64(1) if {value} else s64(0))"
    elif dtype == DTYPES["u64"]:
        made = f"(s64({value}) ^ s64({-(2**63)}))"
    elif dtype.kind == "u":
        made = f"(s64({value}) - {1 << (_bits(dtype) - 1)})"
    else:
        made = f"s64({value})"
    return f"-1 - {made}" if key.descending else made


class _Sort:
    """The statements of a kernel. arrays: of how many s64 a row's elements each need in `work`. parts: functions that
    they call, where there are many keys or results: one for all of a dtype."""

    def __init__(self, names: list[str], results: list[str], dtypes: list, keys: list[Key], count: int, strided: bool):
        self.names, self.results, self.dtypes, self.keys = names, results, dtypes, keys
        self.step = " * inner" if strided else ""
        self.digit = 11 if count >= WIDE_DIGITS else 8
        self.short = len(keys) == 1 and _bits(dtypes[keys[0].operand]) <= 32
        self.by_insertion = self.short and count <= INSERTION
        self.many = len(keys) > FEW_KEYS
        self.parts: dict[str, KernelSource] = {}
        self.arrays = 1 if self.by_insertion else 2 if self.short else 4 + len(keys) * self.many

    def text(self) -> str:
        if self.by_insertion:
            body = [*self._packed(), *self._insertion()]
            order = "work[at + i] & 4294967295"
        elif self.short:
            body = [*self._packed(), *self._passes(self.keys[0], "32 + ")]
            order = "work[source + i] & 4294967295"
        else:
            body = self._many() if self.many else self._long()
            order = "work[source + n + i]"
        lines = [
            *([] if self.by_insertion else [f"counts = scratch_s64({1 << self.digit})"]),
            *(self._widths() if self.many else []),
            "for strip in range(lo, hi):",
            f"    at = strip * n * {self.arrays}",
            "    for row in range(strip * rows // strips, (strip + 1) * rows // strips):",
            "        base = (row // inner) * n * inner + row % inner" if self.step else "        base = row * n",
            *("        " + line for line in body),
        ]
        if len(self.results) > STORES:
            lines += ["        " + line for line in self._moves(order)]
        else:
            lines += ["        for i in range(n):", f"            place = {order}"]
            lines += ["            " + line for line in self._stores()]
        return "".join(f"    {line}\n" for line in lines)

    def _element(self, operand: int, place: str) -> str:
        return load(self.names[operand], f"base + {place}{self.step}", self.dtypes[operand])

    def _moves(self, order: str) -> list[str]:
        """As `_stores`, by a call for each result."""
        if self.short:  # key and place are one number
            lines = ["places = source", "for i in range(n):", f"    work[places + i] = {order}"]
        else:
            lines = ["places = source + n"]
        for name, result, dtype in zip(self.names, self.results, self.dtypes, strict=True):
            kind = HLO_NAME[dtype]
            place = "(work[places + i])" if self.step else "work[places + i]"
            body = [
                f"taken = {load('x', f'base + {place}{self.step}', dtype)}",
                store("y", f"base + i{self.step}", dtype, "taken"),
            ]
            self._part(f"moved_{kind}", ("x", "y"), (f"{kind}*", f"{kind}*"), "places", body)
            lines.append(f"moved_{kind}({name}, {result}, work, base, places, n, inner, 0, 0)")
        return lines

    def _part(self, name: str, pointers: tuple[str, ...], types: tuple[str, ...], place: str, body: list[str]) -> None:
        """Adds a function of a loop over the elements of a row: pointers, work, base, a place in work, n, inner."""
        text = f"def {name}({', '.join(pointers)}, work, base, {place}, n, inner, lo, hi):\n    for i in range(n):\n"
        text += "".join(f"        {line}\n" for line in body)
        self.parts[name] = KernelSource(name, text, (*types, "s64*", *["s64"] * 6))

    def _stores(self) -> list[str]:
        """An element is taken into a variable first: narrow floats are converted."""
        lines = []
        for k, (result, dtype) in enumerate(zip(self.results, self.dtypes, strict=True)):
            lines += [
                f"taken{k} = {self._element(k, '(place)' if self.step else 'place')}",
                store(result, f"base + i{self.step}", dtype, f"taken{k}"),
            ]
        return lines

    def _packed(self) -> list[str]:
        """Key and place of each element in one number."""
        (key,) = self.keys
        return [
            "source = at",
            "for i in range(n):",
            f"    value = {self._element(key.operand, 'i')}",
            f"    key = {_key('value', self.dtypes[key.operand], key)}",
            "    work[at + i] = (key << 32) | i",
        ]

    def _insertion(self) -> list[str]:
        return [
            "for i in range(1, n):",
            "    moved = work[at + i]",
            "    j = i",
            "    while j > 0 and work[at + j - 1] > moved:",
            "        work[at + j] = work[at + j - 1]",
            "        j -= 1",
            "    work[at + j] = moved",
        ]

    def _passes(self, key: Key, offset: str) -> list[str]:
        """Sorts by one key."""
        bits = _bits(self.dtypes[key.operand])
        top = self._top(bits)
        return self._digits(bits, top, 1 << (bits - 1 - top), (1 << (bits - top)) - 1, offset)

    def _top(self, bits: int) -> int:
        """The first bit of the highest digit. It has the sign bit, which decides the other way round."""
        return (bits - 1) // self.digit * self.digit

    def _digits(self, bits: int | str, top: int | str, sign: int | str, mask: int | str, offset: str) -> list[str]:
        """A counting sort for each digit of the numbers at `source`, which is at + 0 or at + half of the memory. The
        numbers have so many bits, the highest digit that mask and sign bit."""
        digit, size = self.digit, 1 << self.digit
        half = "n" if self.short else "n * 2"
        moves = ["    work[target + place] = moved"]
        if not self.short:
            moves.append("    work[target + n + place] = work[source + n + i]")
        return [
            f"for shift in range(0, {bits}, {digit}):",
            f"    last = shift == {top}",
            f"    mask = {mask} if last else {size - 1}",
            f"    sign = {sign} if last else 0",
            f"    for k in range({size}):",
            "        counts[k] = 0",
            "    for i in range(n):",
            f"        counts[((work[source + i] >> ({offset}shift)) & mask) ^ sign] += 1",
            f"    if counts[((work[source] >> ({offset}shift)) & mask) ^ sign] < n:",  # else all have this digit
            "        total = 0",
            f"        for k in range({size}):",
            "            found = counts[k]",
            "            counts[k] = total",
            "            total += found",
            f"        target = at + {half} if source == at else at",
            "        for i in range(n):",
            "            moved = work[source + i]",
            f"            digit = ((moved >> ({offset}shift)) & mask) ^ sign",
            "            place = counts[digit]",
            "            counts[digit] = place + 1",
            *("        " + line for line in moves),
            "        source = target",
        ]

    def _long(self) -> list[str]:
        """Keys and places side by side, a key after the other, the least important one first."""
        lines = ["source = at", "for i in range(n):", "    work[at + n + i] = i"]
        for key in reversed(self.keys):
            place = "(work[source + n + i])"
            lines += [
                "for i in range(n):",
                f"    value = {self._element(key.operand, place)}",
                f"    work[source + i] = {_key('value', self.dtypes[key.operand], key)}",
                *self._passes(key, ""),
            ]
        return lines

    def _widths(self) -> list[str]:
        """The bits of each key, and where its highest digit begins."""
        lines = [f"widths = scratch_s64({len(self.keys)})", f"tops = scratch_s64({len(self.keys)})"]
        for k, key in enumerate(self.keys):
            bits = _bits(self.dtypes[key.operand])
            lines += [f"widths[{k}] = {bits}", f"tops[{k}] = {self._top(bits)}"]
        return lines

    def _many(self) -> list[str]:
        """As `_long`, with one loop over all keys, which are collected first: a line of text for each."""
        lines = ["source = at", "for i in range(n):", "    work[at + n + i] = i"]
        for k, key in enumerate(self.keys):
            dtype = self.dtypes[key.operand]
            kind = HLO_NAME[dtype]
            part = f"{'descending' if key.descending else 'ascending'}_{'total_' if key.total else ''}{kind}"
            body = [
                f"value = {load('x', f'base + i{self.step}', dtype)}",
                f"work[keys + i] = {_key('value', dtype, key)}",
            ]
            self._part(part, ("x",), (f"{kind}*",), "keys", body)
            lines.append(f"{part}({self.names[key.operand]}, work, base, at + n * {4 + k}, n, inner, 0, 0)")
        return [
            *lines,
            f"for step in range({len(self.keys)}):",
            f"    number = {len(self.keys) - 1} - step",
            "    bits = widths[number]",
            "    top = tops[number]",
            "    sign_bit = 1 << (bits - 1 - top)",
            "    top_mask = (1 << (bits - top)) - 1",
            "    for i in range(n):",
            "        work[source + i] = work[at + n * (4 + number) + work[source + n + i]]",
            *("    " + line for line in self._digits("bits", "top", "sign_bit", "top_mask", "")),
        ]
