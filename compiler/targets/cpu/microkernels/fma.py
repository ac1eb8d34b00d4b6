"""Register tiles: the inner loops of contractions, written as LLVM vector code behind names that kernel texts call.

`tile_f32_6x16(a, a_row, a_k, b, b_k, c, c_row, k, rows, accumulate, ahead, ahead_k, runs, run_offsets, split, jump)`
computes a tile of a matrix product, C[i, j] (+)= sum over p < k of A[i, p] * B[p, j], with the 6x16 sums in registers.
All arguments are int64:

`tile_pair32_6x16` reads A and B in words of two 16-bit integers, for p and p + 1, and sums in 32 bits: both products
and their sum are one instruction on x86 (pmaddwd), so that there are twice as many as in a float32 tile.
`tile_quad32x16_8x48` reads words of four 8-bit integers, A's without and B's with a sign, which one instruction of x86
(vpdpbusd) multiplies and adds to a 32-bit sum, without saturation; 16 sums are in a register. The tiles
`tile_quadss32_32x32` read words of four 8-bit integers, `tile_pairbf32_32x32` of two bfloat16 (`amx`).

- `a`, `b`, `c`: byte addresses. A[i, p] lies at `a + i*a_row + p*a_k` and is read by scalar broadcast, so any strides
  serve. B[p, j] lies at `b + p*b_k + j*itemsize`, C[i, j] at `c + i*c_row + j*itemsize`; no alignment is assumed.
- `k` >= 0 is the number of products in a sum; `rows` in 1..6 says how many rows of the tile exist (the others are
  neither read nor written); `accumulate` != 0 adds to C, else C is overwritten.
- `ahead + p*ahead_k`: addresses that are read later. Step p prefetches that one's cache line.
- `runs` >= 1: where it is more than 1, sums are of runs * k products, and A comes in runs of k: those after the first
  lie at distances from `a` that stand in the int64 words from the address `run_offsets` on. Tiles of words have 1.
- `split`, `jump`: rows of A from number `split` >= 1 on lie `jump` bytes further. Not in tiles for matrix registers.

Columns have no such argument: a tile always reads and writes all of its columns. Each sum runs over p in order, in one
accumulator that starts at zero, with one `fma` a step (floats) or a wrapping multiply and add (integers). It therefore
has the same bits whatever the shape of the tile and however the matrix was split among tiles or threads.

`transpose_f32_8x8(source, source_row, target, target_row)` transposes a square block between two places in memory
(byte addresses and byte strides of the rows; items of a row are adjacent). `copy_f32_16(source, target)` moves 16
consecutive elements, `copy_first_f32_16(source, target, count)` the first count <= 16, `zero_f32_16(target)` makes 16
zeros. `address(pointer)` gives the byte address of a kernel's pointer, `quotient(a, b)` divides what is not negative,
`call_kernel(function, lo, hi, *words)` calls another kernel by its address, `prefetch(address)` asks for a cache line
that is read soon (any address will do).

Tiles are functions of their own in the LLVM module (internal, never inlined): the register allocator sees only the
tile, and a kernel that calls one from several places contains it once.
"""

from __future__ import annotations

from llvmlite import ir

from hloom.compiler.kernels.contractions.tile_shapes import CACHE_LINE, MATRIX_WORDS, QUADS, TILE_ARGUMENTS
from hloom.compiler.targets.cpu.microkernels.amx import build_matrix_tile
from hloom.compiler.targets.cpu.microkernels.ir_building import (
    BYTE,
    BYTES,
    ELEMENTS,
    I16,
    I32,
    I64,
    VOID,
    block_function,
    disable_unrolling,
    integer,
    intrinsic,
    multiply_add,
)
from hloom.compiler.targets.cpu.microkernels.names import PAIR

# A panel of more bytes does not stay in the first cache while the tiles of a block use it. Rows of so many bytes or
# more are then prefetched so many steps before their use. Shorter rows the processor prefetches itself.
FAR, LONG_ROW, SOON = 40 << 10, 4 * CACHE_LINE, 8


def row_counts(rows: int) -> list[int]:
    """Rows of the loops inside a tile of `rows` rows, the most first, so that edges of few rows take less time. Two FMA
    units of 4 cycles are busy with 8 sums, which 2 rows have in most tiles of few rows."""
    step = 2 if rows <= 8 else 4
    return [rows, *range((rows - 1) // step * step, 0, -step)]


def prefetch(builder: ir.IRBuilder, place, level: int) -> None:
    """Ask for a cache line that is read soon. level: 3 for all caches, 2 for all but the first."""
    function = intrinsic(builder.module, "llvm.prefetch.p0", VOID, [BYTES, I32, I32, I32])
    builder.call(function, [place, *(ir.Constant(I32, value) for value in (0, level, 1))])


def build_tile(module: ir.Module, dtype: str, rows: int, columns: int) -> ir.Function:
    """Define the tile function `dtype`, rows x columns, in `module` (once) and return it; arguments as in the module's
    docstring. It needs no Numba: the tests compile it for machines other than the host."""
    function, new = block_function(module, f"hloom_tile_{dtype}_{rows}x{columns}", TILE_ARGUMENTS)
    if not new:
        return function
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    if dtype in MATRIX_WORDS:
        build_matrix_tile(builder, function, dtype)
        return function
    counts = row_counts(rows)
    for count, less in zip(counts, [*counts[1:], 0], strict=True):
        enough, fewer = function.append_basic_block(f"rows{count}"), function.append_basic_block("fewer")
        builder.cbranch(builder.icmp_signed(">", function.args[8], integer(less)), enough, fewer)
        builder.position_at_end(enough)
        if count == rows and columns * _element(dtype)[2] >= LONG_ROW:
            far, near = function.append_basic_block("far"), function.append_basic_block("near")
            b_k, k, runs = function.args[4], function.args[7], function.args[12]
            panel = builder.mul(builder.mul(b_k, k), runs)
            builder.cbranch(builder.icmp_signed(">", panel, integer(FAR)), far, near)
            builder.position_at_end(far)
            _Tile(builder, function, dtype, count, columns, True).write()
            builder.position_at_end(near)
        _Tile(builder, function, dtype, count, columns, False).write()
        builder.position_at_end(fewer)
    builder.ret_void()
    return function


def _element(dtype: str) -> tuple[ir.Type, str, int]:
    """What is summed in a tile of a dtype, as in ELEMENTS."""
    return ELEMENTS["s32" if dtype == PAIR or dtype in QUADS else dtype]


class _Tile:
    """The computation of a tile of at most `rows` rows, from the builder's block to a return. far: whether B has no
    room in the first cache, so that its rows are prefetched."""

    def __init__(self, builder: ir.IRBuilder, function: ir.Function, dtype: str, rows: int, columns: int, far: bool):
        self.builder, self.dtype, self.rows, self.columns, self.far = builder, dtype, rows, columns, far
        self.given = dict(zip(TILE_ARGUMENTS, function.args, strict=True))
        for name in ("a", "b", "c", "ahead", "run_offsets"):
            self.given[name] = builder.inttoptr(self.given[name], BYTES)
        element, self.letters, self.size = _element(dtype)
        # The widest power of two that divides the columns: LLVM splits wide vectors into registers of the target, but
        # pads a vector whose length is not a power of two.
        self.lanes = QUADS.get(dtype, columns & -columns)
        self.vectors = columns // self.lanes
        self.element, self.vector = element, ir.VectorType(element, self.lanes)
        self.is_float = dtype[0] == "f"
        self.zero = ir.Constant(self.vector, [0.0 if self.is_float else 0] * self.lanes)
        # A row that does not exist repeats the last one: its sums are computed and dropped.
        self.last = builder.sub(self.given["rows"], integer(1))

    def write(self) -> None:
        builder, function = self.builder, self.builder.function
        starts = self.row_starts()
        self.prefetch_sums()
        self.soon = builder.mul(self.given["b_k"], integer(SOON)) if self.far else None
        entry, loop = builder.block, function.append_basic_block("loop")
        run_end, run_start = function.append_basic_block("run_end"), function.append_basic_block("run_start")
        done, end = function.append_basic_block("done"), function.append_basic_block("end")
        builder.cbranch(builder.icmp_signed(">", self.given["k"], integer(0)), loop, done)
        after = self.loop(starts, entry, loop, run_end, run_start, done)
        builder.position_at_end(done)
        results = []
        for value in after:
            phi = builder.phi(self.vector)
            phi.add_incoming(self.zero, entry)
            phi.add_incoming(value, run_end)
            results.append(phi)
        self.store(results, end)
        builder.position_at_end(end)
        builder.ret_void()

    def moved(self, pointer, offset):
        return self.builder.gep(pointer, [offset], source_etype=BYTE)

    def prefetch_lines(self, pointer) -> None:
        for line in range(0, self.columns * self.size, CACHE_LINE):
            prefetch(self.builder, self.moved(pointer, integer(line)) if line else pointer, 3)

    def row_starts(self) -> list[ir.Value]:
        """Addresses of the first element of each row of A."""
        builder, given = self.builder, self.given
        starts = [given["a"]]
        for i in range(1, self.rows):
            row = builder.select(builder.icmp_signed("<", self.last, integer(i)), self.last, integer(i))
            more = builder.select(builder.icmp_signed("<", row, given["split"]), integer(0), given["jump"])
            starts.append(self.moved(given["a"], builder.add(builder.mul(row, given["a_row"]), more)))
        return starts

    def prefetch_sums(self) -> None:
        """The sums lie in the last cache or beyond: prefetched now, they are here when the products are done."""
        for i in range(self.rows):
            c = self.given["c"]
            self.prefetch_lines(self.moved(c, self.builder.mul(self.given["c_row"], integer(i))) if i else c)

    def loop(self, starts, entry, loop, run_end, run_start, done) -> list[ir.Value]:
        """The loop over runs of k products; the sums after its last step."""
        builder, given = self.builder, self.given
        builder.position_at_end(loop)
        remaining, runs_left, offset, next_run, right, later = (
            builder.phi(kind) for kind in (I64, I64, I64, BYTES, BYTES, BYTES)
        )
        sums = [builder.phi(self.vector) for _ in range(self.rows * self.vectors)]
        after = self.step(starts, sums, offset, right, later)
        next_remaining, next_offset = builder.sub(remaining, integer(1)), builder.add(offset, given["a_k"])
        pointers = [self.moved(right, given["b_k"]), self.moved(later, given["ahead_k"])]
        branch = builder.cbranch(builder.icmp_signed("!=", next_remaining, integer(0)), loop, run_end)
        builder.position_at_end(run_end)
        fewer = builder.sub(runs_left, integer(1))
        builder.cbranch(builder.icmp_signed(">", fewer, integer(0)), run_start, done)
        builder.position_at_end(run_start)
        away, following_run = builder.load(next_run, align=8, typ=I64), self.moved(next_run, integer(8))
        builder.branch(loop)
        phis = [remaining, runs_left, offset, next_run, right, later, *sums]
        zeros = [self.zero] * len(sums)
        starting = [*(given["k"], given["runs"], integer(0), given["run_offsets"], given["b"], given["ahead"]), *zeros]
        following = [next_remaining, runs_left, next_offset, next_run, *pointers, *after]
        anew = [given["k"], fewer, away, following_run, *pointers, *after]
        for phi, *values in zip(phis, starting, following, anew, strict=True):
            for value, block in zip(values, (entry, loop, run_start), strict=True):
                phi.add_incoming(value, block)
        disable_unrolling(branch)
        return after

    def step(self, starts, sums, offset, right, later) -> list[ir.Value]:
        """The sums with the products of one column of A and one row of B."""
        builder, lanes = self.builder, self.lanes
        row_of_b = [
            builder.load(
                self.moved(right, integer(j * lanes * self.size)) if j else right, align=self.size, typ=self.vector
            )
            for j in range(self.vectors)
        ]
        prefetch(builder, later, 2)
        if self.far:
            coming = self.moved(right, self.soon)
            for line in range(0, self.columns * self.size, CACHE_LINE):
                prefetch(builder, self.moved(coming, integer(line)), 3)
        undefined = ir.Constant(self.vector, ir.Undefined)
        broadcast = ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
        after = []
        for i, start in enumerate(starts):
            scalar = builder.load(self.moved(start, offset), align=self.size, typ=self.element)
            first = builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
            left = builder.shuffle_vector(first, undefined, broadcast)
            after += [self.multiply_add(left, row_of_b[j], sums[i * self.vectors + j]) for j in range(self.vectors)]
        return after

    def multiply_add(self, left, right, total):
        builder, lanes = self.builder, self.lanes
        if self.is_float:
            return multiply_add(builder, self.letters, left, right, total)
        if self.dtype == PAIR:
            wide = ir.VectorType(I32, 2 * lanes)
            every_other = [ir.Constant(ir.VectorType(I32, lanes), [2 * x + y for x in range(lanes)]) for y in (0, 1)]
            halves = ir.VectorType(I16, 2 * lanes)
            left, right = (builder.sext(builder.bitcast(x, halves), wide) for x in (left, right))
            products = builder.mul(left, right)
            even, odd = (builder.shuffle_vector(products, products, mask) for mask in every_other)
            return builder.add(builder.add(even, odd), total)
        if self.dtype in QUADS:
            quads = ir.VectorType(BYTE, 4 * lanes)
            dot = intrinsic(builder.module, f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", self.vector,
                            [self.vector, quads, quads])  # fmt: skip
            return builder.call(dot, [total, builder.bitcast(left, quads), builder.bitcast(right, quads)])
        return builder.add(builder.mul(left, right), total)

    def store(self, results: list[ir.Value], end: ir.Block) -> None:
        """Writes the rows that exist, added to C or in its place."""
        builder, c = self.builder, self.given["c"]
        adds = builder.icmp_signed("!=", self.given["accumulate"], integer(0))
        add = builder.fadd if self.is_float else builder.add
        for i in range(self.rows):
            for j in range(self.vectors):
                slot = self.moved(c, integer(j * self.lanes * self.size)) if j else c
                old = builder.select(adds, builder.load(slot, align=self.size, typ=self.vector), self.zero)
                builder.store(add(old, results[i * self.vectors + j]), slot, align=self.size)
            if i + 1 < self.rows:
                following = builder.function.append_basic_block("row")
                builder.cbranch(builder.icmp_signed(">", self.last, integer(i)), following, end)
                builder.position_at_end(following)
                c = self.moved(c, self.given["c_row"])
        builder.branch(end)


def build_transpose(module: ir.Module, dtype: str, lanes: int) -> ir.Function:
    """Define the function that transposes a lanes x lanes block (arguments as in the module's docstring)."""
    names = ("source", "source_row", "target", "target_row")
    function, new = block_function(module, f"hloom_transpose_{dtype}_{lanes}x{lanes}", names)
    if not new:
        return function
    source, source_row, target, target_row = function.args
    element, _, size = ELEMENTS[dtype]
    vector = ir.VectorType(element, lanes)
    builder = ir.IRBuilder(function.append_basic_block("entry"))

    def row(base, stride, i):
        address = builder.add(base, builder.mul(integer(i), stride))
        return builder.inttoptr(address, BYTES)

    rows = [builder.load(row(source, source_row, i), align=size, typ=vector) for i in range(lanes)]
    # Each of the log2(lanes) rounds swaps, in every pair of rows that differ in one bit of the row number, the lanes
    # that differ in the same bit of the lane number: together they exchange the two numbers.
    bit = lanes // 2
    while bit:
        for i in range(lanes):
            if not i & bit:
                low = [x if not x & bit else lanes + x - bit for x in range(lanes)]
                high = [x + bit if not x & bit else lanes + x for x in range(lanes)]
                pair = rows[i], rows[i | bit]
                rows[i], rows[i | bit] = (
                    builder.shuffle_vector(*pair, ir.Constant(ir.VectorType(I32, lanes), mask)) for mask in (low, high)
                )
        bit //= 2
    for i in range(lanes):
        builder.store(rows[i], row(target, target_row, i), align=size)
    builder.ret_void()
    return function
