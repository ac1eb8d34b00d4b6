"""What block functions read and write: the memory of a call, by the function's name and its arguments."""

from __future__ import annotations

from hloom.compiler.kernel_ir.bounds.accesses import Memory, integer, plus, times
from hloom.compiler.kernel_ir.nodes import Binary, Call, Expr
from hloom.compiler.kernels.contractions.tile_shapes import ITEMSIZES, TILE_ARGUMENTS
from hloom.compiler.targets.cpu.fft.names import Pass, Spectrum, function_of, parameters
from hloom.compiler.targets.cpu.microkernels.names import Block, Move, block_of, move_of

__all__ = ["memory_of"]

_WORD = 4  # bytes of a word of narrow numbers in a tile


def memory_of(name: str, arguments: tuple[Expr, ...]) -> tuple[Memory, ...] | None:
    """The memory that a block function reads and writes; None for a name that is none of them."""
    match move_of(name) or block_of(name) or function_of(name):
        case Move(kind, dtype, count):
            return _move(kind, ITEMSIZES[dtype], count, arguments)
        case Block("tile", dtype, _, columns):
            return _tile(ITEMSIZES.get(dtype, _WORD), columns, arguments)
        case Block("transpose", dtype, side):
            return _transpose(ITEMSIZES[dtype], side, arguments)
        case Pass(radix, dtype, lanes, read=read):
            given = dict(zip(parameters(name) or (), arguments, strict=True))
            return _pass(radix, ITEMSIZES[dtype], lanes, read, given)
        case Spectrum(_, dtype, lanes):
            return _spectrum(ITEMSIZES[dtype], lanes, arguments)
    return None


def _move(kind: str, size: int, count: int, arguments: tuple[Expr, ...]) -> tuple[Memory, ...]:
    if kind == "copy_first":
        *places, some = arguments
        return tuple([Memory(place, size, ((some, integer(size)),)) for place in places])
    return tuple([Memory(place, size * count) for place in arguments])


def _transpose(size: int, side: int, arguments: tuple[Expr, ...]) -> tuple[Memory, ...]:
    source, source_row, target, target_row = arguments
    pairs = (source, source_row), (target, target_row)
    return tuple([Memory(place, size * side, ((integer(side), row),)) for place, row in pairs])


def _tile(size: int, columns: int, arguments: tuple[Expr, ...]) -> tuple[Memory, ...]:
    given = dict(zip(TILE_ARGUMENTS, arguments, strict=True))
    a, row, rows, split = (given[name] for name in ("a", "a_row", "rows", "split"))
    runs = given["runs"], given["run_offsets"]
    along = given["k"], given["a_k"]
    upper = Call("s64", "min", (rows, split))
    lower = plus(rows, times(integer(-1), split))
    below = plus(a, times(split, row), given["jump"])
    line = size * columns
    return (
        Memory(a, size, ((upper, row), along), runs),
        Memory(below, size, ((lower, row), along), runs),
        Memory(given["b"], line, ((times(given["runs"], given["k"]), given["b_k"]),)),
        Memory(given["c"], line, ((rows, given["c_row"]),)),
    )


def _pass(radix: int, size: int, lanes: int, read: str, given: dict[str, Expr]) -> tuple[Memory, ...]:
    block = integer(2 * lanes * size)
    m, s = given.get("m", integer(1)), given.get("s", integer(1))
    count = times(integer(radix), times(m, s))
    element = lanes * size if read == "_fromreals" else 2 * lanes * size
    found = [
        Memory(given["source"], element, ((count, given.get("source_step", block)),)),
        Memory(given["target"], 2 * lanes * size, ((count, given.get("target_step", block)),)),
    ]
    if "factors" in given:
        row = 2 * (radix - 1) * size
        found.append(Memory(given["factors"], row, ((m, integer(row)),)))
    if "twiddles" in given:
        results = times(integer(radix), s)
        found.append(Memory(given["twiddles"], 2 * size, ((results, integer(2 * size)),)))
        found.append(Memory(given["lane_twiddles"], 2 * lanes * size, ((results, block),)))
    if "scale" in given:
        found.append(Memory(given["scale"], size))
    return tuple(found)


def _spectrum(size: int, lanes: int, arguments: tuple[Expr, ...]) -> tuple[Memory, ...]:
    block, twiddles, m = arguments
    pairs = Binary("s64", "//", m, integer(2))
    return (
        Memory(block, 2 * lanes * size, ((plus(m, integer(1)), integer(2 * lanes * size)),)),
        Memory(plus(twiddles, integer(2 * size)), 2 * size, ((pairs, integer(2 * size)),)),
    )
