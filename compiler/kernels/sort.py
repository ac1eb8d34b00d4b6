"""sort: radix sorts of the keys that comparators order by. An item is a range of rows.

A row's places are sorted by its keys, least significant digit first, and then its elements are written in that order.
Counting sorts are stable, so with several keys the last one is sorted by first. The order is that of the reference:
-0 equals 0 and NaN comes last, or the total order of the bits, as the comparator says.

Source: D. Knuth, The Art of Computer Programming vol. 3, 5.2.5 (radix sort), 5.2.1 (insertion sort).
"""

from __future__ import annotations

import functools
import math

import numpy as np

from hloom.compiler.kernel_ir.builder import (
    ONE,
    ZERO,
    call,
    cast,
    chosen,
    constant,
    floor_divided,
    load,
    minus,
    operation,
    plus,
    times,
    unary,
)
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.generic.language import Formula, KernelFunction, Pointer, T, kernel_function, s64
from hloom.compiler.kernel_ir.nodes import Do, Expr, Kernel, Var
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.kernels.codegen.functions import source_of, source_of_parts, statements_of
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
    parameters = [*pointers, *results, "work"]
    source = writer.source(request.title("radix"), parameters)
    strips = min(rows, STRIPS)
    memory = {"work": strips * count * 8 * writer.arrays}
    passes = sum(-(-_bits(writer.dtypes[key.operand]) // 8) for key in keys)
    work = typical(rows * count) * (passes + 2.0) * 6
    return [launch_by_grain(source, [*parameters, count, rows, inner, strips], strips, 1, memory, work)]


def _bits(dtype: np.dtype) -> int:
    """Bits of a key, an integer in the order of the values."""
    return 32 if dtype in NARROW_FLOATS else 8 if dtype == PRED else dtype.itemsize * 8


def _key(value: Expr, dtype: np.dtype, key: Key) -> Expr:
    """A signed integer of `_bits` bits, as an s64, whose order is that of the values."""
    kind = "f32" if dtype in NARROW_FLOATS else HLO_NAME[dtype]
    made: Expr
    if kind in ("f32", "f64"):
        if key.total:
            bits = f"s{kind[1:]}"
            made = call(f"flipped_{bits}", (call(f"bitcast_{kind}_{bits}", (value,), by_name),), by_name)
        else:  # x + 0 makes 0 of -0
            zero = constant(0.0)
            made = call(f"maxkey_{kind}", (plus(value, zero if kind == "f64" else cast(kind, zero)),), by_name)
        made = cast("s64", made) if kind == "f32" else made
    elif dtype == PRED:
        made = chosen(value, cast("s64", ONE), cast("s64", ZERO))
    elif dtype == DTYPES["u64"]:
        made = operation("^", cast("s64", value), cast("s64", unary("-", constant(1 << 63))))
    elif dtype.kind == "u":
        made = minus(cast("s64", value), constant(1 << (_bits(dtype) - 1)))
    else:
        made = cast("s64", value)
    return minus(unary("-", ONE), made) if key.descending else made


class _Sort:
    """The statements of a kernel. arrays: of how many s64 a row's elements each need in `work`. parts: functions that
    they call, where there are many keys or results: one for all of a dtype."""

    def __init__(self, names: list[str], results: list[str], dtypes: list, keys: list[Key], count: int, strided: bool):
        self.names, self.results, self.dtypes, self.keys = names, results, dtypes, keys
        self.digit = 11 if count >= WIDE_DIGITS else 8
        self.short = len(keys) == 1 and _bits(dtypes[keys[0].operand]) <= 32
        self.by_insertion = self.short and count <= INSERTION
        self.many = len(keys) > FEW_KEYS
        self.parts: dict[str, KernelSource] = {}
        self.arrays = 1 if self.by_insertion else 2 if self.short else 4 + len(keys) * self.many
        self.root = Block()
        for name, dtype in (*zip(names, dtypes, strict=True), *zip(results, dtypes, strict=True)):
            self.root.names.declare(name, f"*{HLO_NAME[dtype]}")
        sizes = {name: self.root.names.declare(name, "s64") for name in ("n", "rows", "inner", "strips", "lo", "hi")}
        # What kernel functions are given.
        self.given = sizes | {"work": self.root.names.declare("work", "*s64")}
        self.known = {"each": self.digit, "packed": self.short, "strided": strided, "count": len(keys)}

    def source(self, title: str, pointers: list[str]) -> KernelSource:
        """The kernel of these parameters, and of n, rows, inner, strips, lo and hi."""
        self._write()
        params = [self.root.names[name] for name in (*pointers, "n", "rows", "inner", "strips", "lo", "hi")]
        return source_of_parts(Kernel(title, tuple(params), self.root.statements()), tuple(self.parts.items()))

    def _let(self, block: Block, name: str, value: Expr) -> Var:
        var = self.given[name] = block.let(name, value)
        return var

    def _inline(self, block: Block, function: KernelFunction, *into: Var, kind: str = "", **given) -> None:
        """The statements of a kernel function. into: what becomes of its results. kind: its element type."""
        block.body += statements_of(function, {**self.given, **self.known, **given}, {"T": kind}, into)

    def _write(self) -> None:
        root, given = self.root, self.given
        n, inner, strips = given["n"], given["inner"], given["strips"]
        if not self.by_insertion:
            given["counts"] = root.scratch("counts", "s64", 1 << self.digit)
        if self.many:
            self._widths()
        strip, block = root.loop("strip", given["lo"], given["hi"])
        self._let(block, "at", times(times(strip, n), constant(self.arrays)))
        start, stop = (floor_divided(times(each, given["rows"]), strips) for each in (strip, plus(strip, ONE)))
        row, block = block.loop("row", start, stop)
        begin: Expr = times(row, n)
        if self.known["strided"]:
            above = times(times(floor_divided(row, inner), n), inner)
            begin = plus(above, operation("%", row, inner))
        self._let(block, "base", begin)
        source = self._let(block, "source", given["at"])
        if self.short:
            self._short(block)
        elif self.many:
            self._many(block)
        else:
            self._long(block)
        if len(self.results) > STORES:
            self._move(block, source)
            return
        i, block = block.loop("i", ZERO, n)
        place = block.let("place", self._place(source, i))
        for k, (name, result) in enumerate(zip(self.names, self.results, strict=True)):
            # An element is taken into a variable first: narrow floats are converted.
            taken = block.let(f"taken{k}", load(root.names[name], self._element(place)))
            block.store(root.names[result], self._element(i), taken)

    def _element(self, place: Expr) -> Expr:
        """Where the element of a place in the row is."""
        return plus(self.given["base"], times(place, self.given["inner"]) if self.known["strided"] else place)

    def _place(self, source: Var, i: Var) -> Expr:
        """The place from which an element comes."""
        work = self.given["work"]
        if not self.short:
            return load(work, plus(source, self.given["n"], i))
        start = self.given["at"] if self.by_insertion else source
        return operation("&", load(work, plus(start, i)), constant(LARGEST - 1))

    def _key_of(self, key: Key) -> dict:
        """What a kernel function is given of a key: the operand, and the key of a value."""
        dtype = self.dtypes[key.operand]
        x, key_of = self.root.names[self.names[key.operand]], functools.partial(_key, dtype=dtype, key=key)
        return {"x": x, "key_of": key_of, "kind": HLO_NAME[dtype]}

    def _top(self, bits: int) -> int:
        """The first bit of the highest digit. It has the sign bit, which decides the other way round."""
        return (bits - 1) // self.digit * self.digit

    def _by_key(self, block: Block, key: Key) -> None:
        """Sorts by one key."""
        source, bits = self.given["source"], _bits(self.dtypes[key.operand])
        top = self._top(bits)
        sign, mask = 1 << (bits - 1 - top), (1 << (bits - top)) - 1
        self._inline(block, sorted_by_digits, source, bits=bits, top=top, sign_bit=sign, top_mask=mask)

    def _short(self, block: Block) -> None:
        """Key and place of each element in one number."""
        (key,) = self.keys
        self._inline(block, pack, **self._key_of(key))
        if self.by_insertion:
            self._inline(block, sort_by_insertion)
        else:
            self._by_key(block, key)

    def _long(self, block: Block) -> None:
        """Keys and places beside each other, a key after the other, the least important one first."""
        self._inline(block, begin_places)
        for key in reversed(self.keys):
            self._inline(block, take_keys, **self._key_of(key))
            self._by_key(block, key)

    def _widths(self) -> None:
        """The bits of each key, and where its highest digit begins."""
        widths, tops = (self.root.scratch(name, "s64", len(self.keys)) for name in ("widths", "tops"))
        self.given |= {"widths": widths, "tops": tops}
        for k, key in enumerate(self.keys):
            bits = _bits(self.dtypes[key.operand])
            self.root.store(widths, constant(k), constant(bits))
            self.root.store(tops, constant(k), constant(self._top(bits)))

    def _many(self, block: Block) -> None:
        """As `_long`, with one loop over all keys, which are collected first: a call of a part for each."""
        self._inline(block, begin_places)
        for k, key in enumerate(self.keys):
            kind = HLO_NAME[self.dtypes[key.operand]]
            part = f"{'descending' if key.descending else 'ascending'}_{'total_' if key.total else ''}{kind}"
            given = self._key_of(key)
            self._part(part, collect_keys, {"x": kind}, "keys", given)
            keys = plus(self.given["at"], times(self.given["n"], constant(4 + k)))
            self._call(block, part, given["x"], keys=keys)
        self._inline(block, sorted_by_keys, self.given["source"])

    def _move(self, block: Block, source: Var) -> None:
        """Writes the results by a call for each."""
        n, work = self.given["n"], self.given["work"]
        if self.short:  # key and place are one number
            places = block.let("places", source)
            i, inside = block.loop("i", ZERO, n)
            inside.store(work, plus(places, i), self._place(source, i))
        else:
            places = block.let("places", plus(source, n))
        for name, result, dtype in zip(self.names, self.results, self.dtypes, strict=True):
            kind = HLO_NAME[dtype]
            self._part(f"moved_{kind}", move, {"x": kind, "y": kind}, "places", {"kind": kind})
            self._call(block, f"moved_{kind}", self.root.names[name], self.root.names[result], places=places)

    def _part(self, name: str, function: KernelFunction, pointers: dict[str, str], place: str, given: dict) -> None:
        """Adds a function of pointers (their dtypes by name), work, base, a place in work, n and inner."""
        params = [Var(f"*{kind}", pointer) for pointer, kind in (*pointers.items(), ("work", "s64"))]
        params += [Var("s64", number) for number in ("base", place, "n", "inner", "lo", "hi")]
        own = {**self.known, **given, **{var.name: var for var in params}}
        self.parts[name] = source_of(function, name, params, own, {"T": given["kind"]})

    def _call(self, block: Block, part: str, *pointers: Var, **place: Expr) -> None:
        work, base, n, inner = (self.given[name] for name in ("work", "base", "n", "inner"))
        block.body.append(Do(part, (*pointers, work, base, *place.values(), n, inner, ZERO, ZERO)))


# --- what a kernel does with a row ---


@kernel_function
def pack(
    x: Pointer[T], work: Pointer[s64], base: s64, at: s64, n: s64, inner: s64, key_of: Formula, strided: bool
) -> None:
    for i in range(n):
        value = x[base + (i * inner if strided else i)]
        key = key_of(value)
        work[at + i] = (key << 32) | i


@kernel_function
def sort_by_insertion(work: Pointer[s64], at: s64, n: s64) -> None:
    for i in range(1, n):
        moved = work[at + i]
        j = i
        while j > 0 and work[at + j - 1] > moved:
            work[at + j] = work[at + j - 1]
            j -= 1
        work[at + j] = moved


@kernel_function
def sorted_by_digits(
    work: Pointer[s64], counts: Pointer[s64], at: s64, source: s64, n: s64, bits: s64, top: s64, sign_bit: s64,
    top_mask: s64, each: int, packed: bool,
) -> s64:  # fmt: skip
    """A counting sort for each digit of the numbers at `source`, which is at + 0 or at + half of the memory. Returns
    where they are then. They have so many bits, the highest digit that mask and sign bit."""
    for shift in range(0, bits, each):
        last = shift == top
        mask = top_mask if last else (1 << each) - 1
        sign = sign_bit if last else 0
        for k in range(1 << each):
            counts[k] = 0
        for i in range(n):
            counts[((work[source + i] >> (32 + shift if packed else shift)) & mask) ^ sign] += 1
        # Else all have this digit.
        if counts[((work[source] >> (32 + shift if packed else shift)) & mask) ^ sign] < n:
            total = 0
            for k in range(1 << each):
                found = counts[k]
                counts[k] = total
                total += found
            target = at + (n if packed else n * 2) if source == at else at
            for i in range(n):
                moved = work[source + i]
                digit = ((moved >> (32 + shift if packed else shift)) & mask) ^ sign
                place = counts[digit]
                counts[digit] = place + 1
                work[target + place] = moved
                if not packed:
                    work[target + n + place] = work[source + n + i]
            source = target
    return source


@kernel_function
def begin_places(work: Pointer[s64], at: s64, n: s64) -> None:
    for i in range(n):
        work[at + n + i] = i


@kernel_function
def take_keys(
    x: Pointer[T], work: Pointer[s64], base: s64, source: s64, n: s64, inner: s64, key_of: Formula, strided: bool
) -> None:
    for i in range(n):
        value = x[base + (work[source + n + i] * inner if strided else work[source + n + i])]
        work[source + i] = key_of(value)


@kernel_function
def collect_keys(
    x: Pointer[T], work: Pointer[s64], base: s64, keys: s64, n: s64, inner: s64, lo: s64, hi: s64, key_of: Formula,
    strided: bool,
) -> None:  # fmt: skip
    for i in range(n):
        value = x[base + (i * inner if strided else i)]
        work[keys + i] = key_of(value)


@kernel_function
def sorted_by_keys(
    work: Pointer[s64], counts: Pointer[s64], widths: Pointer[s64], tops: Pointer[s64], at: s64, source: s64, n: s64,
    count: int, each: int,
) -> s64:  # fmt: skip
    for step in range(count):
        number = count - 1 - step
        bits = widths[number]
        top = tops[number]
        sign_bit = 1 << (bits - 1 - top)
        top_mask = (1 << (bits - top)) - 1
        for i in range(n):
            work[source + i] = work[at + n * (4 + number) + work[source + n + i]]
        source = sorted_by_digits(work, counts, at, source, n, bits, top, sign_bit, top_mask, each, False)
    return source


@kernel_function
def move(
    x: Pointer[T], y: Pointer[T], work: Pointer[s64], base: s64, places: s64, n: s64, inner: s64, lo: s64, hi: s64,
    strided: bool,
) -> None:  # fmt: skip
    for i in range(n):
        taken = x[base + (work[places + i] * inner if strided else work[places + i])]
        y[base + (i * inner if strided else i)] = taken
