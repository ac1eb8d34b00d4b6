"""Register tiles of narrow numbers for processors with AMX (Intel's Advanced Matrix Extensions).

`tile_quadss32_32x32` is like `tile_s32_32x32` of `fma`, but A and B are words of four 8-bit integers, for p to p + 3,
whose products are summed in 32 bits; `s` stands for signed and `u` for unsigned, first A, then B.
`tile_pairbf32_32x32` is like `tile_f32_32x32`, with words of two bfloat16 numbers, for p and p + 1. Their products are
exact; those of each step of 32 are summed by themselves, even and odd ones apart, and then added to the sum. Numbers
below 2**-126 count as zero, among operands and among sums. The words of a row of A have to be adjacent (a_k is 4).

A matrix register has 16 rows of 64 bytes. Four of them hold the sums, two the words of 16 rows of A each, two those of
16 columns of B; one instruction multiplies 16 x 64 by 64 x 16 integers, or 16 x 32 by 32 x 16 bfloat16 numbers. How
much of each register is used, where rows or words are fewer, is said beforehand for all of them, which also clears
them. So what remains of k is a pass of its own.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18, and TDPB[SS,SU,US,UU]D and
TDPBF16PS in volume 2. The system has to permit a process to use the registers (`compiler.targets.cpu.machine`).
"""

from __future__ import annotations

from llvmlite import ir

from hloom.compiler.kernels.contractions.tile_shapes import MATRIX_WORDS
from hloom.compiler.targets.cpu.microkernels.ir_building import BYTE, BYTES, I16, I64, VOID, integer, intrinsic

SIDE = 16  # rows of a register, and words of a row
LINE = 64  # bytes of a row of a register
SUMS, LEFT, RIGHT = (0, 1, 2, 3), (4, 5), (6, 7)  # numbers of registers: sums of A's half i and B's half j in 2 i + j
CONFIGURATION = 64  # bytes: palette, then from byte 16 on the bytes of a row of each register, from 48 on its rows


def build_matrix_tile(builder: ir.IRBuilder, function: ir.Function, words: str) -> None:
    """The body of a tile of 32 x 32 sums, from the builder's block to a return. words: of MATRIX_WORDS."""
    rows = function.args[8]
    whole, upper = function.append_basic_block("whole"), function.append_basic_block("upper")
    builder.cbranch(builder.icmp_signed(">", rows, integer(SIDE)), whole, upper)
    for block, halves in ((whole, 2), (upper, 1)):
        builder.position_at_end(block)
        _Body(builder, function, MATRIX_WORDS[words], halves).write()


class _Body:
    """The code for rows in one or both halves of A."""

    def __init__(self, builder: ir.IRBuilder, function: ir.Function, product: str, halves: int):
        self.builder, self.function, self.product, self.halves = builder, function, product, halves
        self.a, self.a_row, _, self.b, self.b_k, self.c, self.c_row, self.k, self.rows, self.accumulate, *_ = (
            function.args
        )

    def write(self) -> None:
        builder = self.builder
        with builder.goto_entry_block():
            room = builder.alloca(BYTE, integer(CONFIGURATION))
            room.align = LINE
            self.configuration = builder.inttoptr(builder.ptrtoint(room, I64), BYTES)
        steps, rest = builder.lshr(self.k, integer(4)), builder.and_(self.k, integer(SIDE - 1))
        self.configure(integer(SIDE))
        self.begin(builder.icmp_signed("!=", self.accumulate, integer(0)))
        entry, loop, done = builder.block, *(self.function.append_basic_block(name) for name in ("loop", "done"))
        builder.cbranch(builder.icmp_signed(">", steps, integer(0)), loop, done)
        builder.position_at_end(loop)
        left, right, remaining = (builder.phi(I64) for _ in range(3))
        self.step(left, right)
        following = [
            builder.add(left, integer(LINE)),
            builder.add(right, builder.mul(self.b_k, integer(SIDE))),
            builder.sub(remaining, integer(1)),
        ]
        for phi, first, then in zip((left, right, remaining), (self.a, self.b, steps), following, strict=True):
            phi.add_incoming(first, entry)
            phi.add_incoming(then, loop)
        builder.cbranch(builder.icmp_signed(">", following[2], integer(0)), loop, done)
        builder.position_at_end(done)
        self.end()
        some, last = self.function.append_basic_block("some"), self.function.append_basic_block("last")
        builder.cbranch(builder.icmp_signed(">", rest, integer(0)), some, last)
        builder.position_at_end(some)
        self.configure(rest)
        self.begin(ir.Constant(ir.IntType(1), 1))
        taken = builder.sub(self.k, rest)
        self.step(
            builder.add(self.a, builder.mul(taken, integer(4))), builder.add(self.b, builder.mul(taken, self.b_k))
        )
        self.end()
        builder.branch(last)
        builder.position_at_end(last)
        self.call("tilerelease", [])
        builder.ret_void()

    def call(self, name: str, arguments: list) -> None:
        """An instruction; Python numbers are registers."""
        values = [ir.Constant(BYTE, x) if isinstance(x, int) else x for x in arguments]
        kinds = [value.type for value in values]
        self.builder.call(intrinsic(self.builder.module, f"llvm.x86.{name}", VOID, kinds), values)

    def configure(self, words) -> None:
        """Says how large the registers are: `words` of each row of A and as many rows of B, 16 columns."""
        builder = self.builder
        for at in range(0, CONFIGURATION, 8):
            builder.store(integer(1 if at == 0 else 0), self.place(at), align=8)
        lower = builder.sub(self.rows, integer(SIDE))
        used = [integer(SIDE) if self.halves == 2 else self.rows, lower][: self.halves]
        for i, count in enumerate(used):
            for register in (*SUMS[2 * i : 2 * i + 2], LEFT[i]):
                size = builder.shl(words, integer(2)) if register in LEFT else integer(LINE)
                self.shape(register, size, count)
        for register in RIGHT:
            self.shape(register, integer(LINE), words)
        self.call("ldtilecfg", [self.configuration])

    def place(self, at: int):
        return self.builder.gep(self.configuration, [integer(at)], source_etype=BYTE)

    def shape(self, register: int, size, rows) -> None:
        builder = self.builder
        builder.store(builder.trunc(size, I16), self.place(16 + 2 * register), align=2)
        builder.store(builder.trunc(rows, BYTE), self.place(48 + register), align=1)

    def sums(self) -> list[tuple[int, ir.Value]]:
        """The registers of sums that are used, and their addresses in C."""
        builder = self.builder
        lower = builder.add(self.c, builder.mul(self.c_row, integer(SIDE)))
        return [
            (SUMS[2 * i + j], builder.inttoptr(builder.add(base, integer(j * LINE)), BYTES))
            for i, base in enumerate((self.c, lower)[: self.halves])
            for j in range(2)
        ]

    def begin(self, adds) -> None:
        """The sums are those in C where `adds`, and zero elsewhere; registers are clear when they are configured."""
        builder = self.builder
        with builder.if_then(adds):
            for register, place in self.sums():
                self.call("tileloadd64", [register, place, self.c_row])

    def end(self) -> None:
        for register, place in self.sums():
            self.call("tilestored64", [register, place, self.c_row])

    def step(self, left, right) -> None:
        builder = self.builder
        for i in range(self.halves):
            place = builder.add(left, builder.mul(self.a_row, integer(i * SIDE)))
            self.call("tileloadd64", [LEFT[i], builder.inttoptr(place, BYTES), self.a_row])
        for j in range(2):
            place = builder.add(right, integer(j * LINE))
            self.call("tileloadd64", [RIGHT[j], builder.inttoptr(place, BYTES), self.b_k])
        for i in range(self.halves):
            for j in range(2):
                self.call(self.product, [SUMS[2 * i + j], LEFT[i], RIGHT[j]])
