"""What all transforms do with their blocks, as kernels of their own: the kernels of `text` call them by address.

They are compiled once for all lengths, and are part of the prebuilt code. A block has element i of LANES
transforms at i * 2 * LANES, real parts, then imaginary ones; of the last transforms there may be fewer (`lanes`).
"""

from __future__ import annotations

import functools
import re

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu.fft.names import parameters

SIZES = {"f32": 4, "f64": 8}

_LINES = """
    whole = quotient(width, LANES) * LANES * (lanes == LANES)
    for k in range(0, whole, LANES):
        transpose_TYPE_LANESxLANES({})
    for k in range(whole, width):
        for lane in range(lanes):
            {} = {}
"""
_COLUMNS = """
    for i in range(n):
        for k in range(2 * lanes):
            {} = {}
"""
_GIVEN, _MADE = (f"address({name}) + k * SIZE, step * SIZE" for name in ("given", "made"))
_BLOCK, _REALS = (f"address(block) + k * {line}" for line in ("LINE, LINE", "PAIR, PAIR"))
_READ, _WRITE = "given*, step, block*", "block*, made*, step"

# By name: parameters and body. A row of complex numbers has `width` numbers, twice its elements; `step` is from one row
# to the next. Columns lie side by side, and `step` is from one element to the next.
PARTS = {
    "rows_in": (
        f"{_READ}, width, lanes",
        _LINES.format(f"{_GIVEN}, {_BLOCK}", "block[k * LANES + lane]", "given[lane * step + k]"),
    ),
    "rows_out": (
        f"{_WRITE}, width, lanes",
        _LINES.format(f"{_BLOCK}, {_MADE}", "made[lane * step + k]", "block[k * LANES + lane]"),
    ),
    "reals_in": (
        f"{_READ}, width, lanes",
        _LINES.format(f"{_GIVEN}, {_REALS}", "block[k * PAIRS + lane]", "given[lane * step + k]")
        + """
    for k in range(width):
        for lane in range(LANES):
            block[k * PAIRS + LANES + lane] = TYPE(0)
""",
    ),
    "reals_out": (
        f"{_WRITE}, width, lanes",
        _LINES.format(f"{_REALS}, {_MADE}", "made[lane * step + k]", "block[k * PAIRS + lane]"),
    ),
    "columns_in": (f"{_READ}, n, lanes", _COLUMNS.format("block[i * PAIRS + k]", "given[i * step + k]")),
    "columns_out": (f"{_WRITE}, n, lanes", _COLUMNS.format("made[i * step + k]", "block[i * PAIRS + k]")),
    # Real results, which stand side by side in the block.
    "real_columns_out": (
        f"{_WRITE}, n, lanes",
        """
    for i in range(n):
        if lanes == LANES:
            copy_TYPE_LANES(address(block) + i * LINE, address(made) + i * step * SIZE)
        else:
            for lane in range(lanes):
                made[i * step + lane] = block[i * LANES + lane]
""",
    ),
    # Completes the spectrum of n real numbers, n odd. The first has no imaginary part, the others come in pairs of
    # conjugates.
    "mirror": (
        "block*, n, lanes",
        """
    for lane in range(lanes):
        block[LANES + lane] = TYPE(0)
    for k in range(quotient(n + 1, 2), n):
        for lane in range(lanes):
            other = (n - k) * PAIRS + lane
            block[k * PAIRS + lane] = block[other]
            block[k * PAIRS + LANES + lane] = -block[other + LANES]
""",
    ),
    "half": ("block, twiddles, m", "\n    fft_half_TYPE_LANES(block, twiddles, m)\n"),
    "whole": ("block, twiddles, m", "\n    fft_whole_TYPE_LANES(block, twiddles, m)\n"),
}


@functools.cache
def part_kernel(name: str, dtype: str, lanes: int) -> KernelSource:
    """A part by its name in `PARTS`."""
    listed, body = PARTS[name]
    size = SIZES[dtype]
    words = {
        "TYPE": dtype, "SIZE": size, "LANES": lanes, "PAIRS": 2 * lanes, "LINE": lanes * size, "PAIR": 2 * lanes * size
    }  # fmt: skip
    body = re.sub("PAIRS|[A-Z]{4,5}", lambda found: str(words[found[0]]), body)
    return _kernel(f"fft_{name}_{dtype}_{lanes}_alone", listed.split(", "), dtype, body)


@functools.cache
def pass_kernel(name: str) -> KernelSource:
    """A pass of `butterflies` by its name."""
    words = parameters(name) or ()
    return _kernel(f"{name}_alone", words, "", f"\n    {name}({', '.join(words)})\n")


def _kernel(title: str, listed, dtype: str, body: str) -> KernelSource:
    names = ", ".join([*(name.removesuffix("*") for name in listed), "lo", "hi"])
    kinds = [f"{dtype}*" if name.endswith("*") else "s64" for name in listed]
    return KernelSource(title, f"def {title}({names}):{body}", (*kinds, "s64", "s64"))
