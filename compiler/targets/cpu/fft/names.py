"""The names of the passes of Fourier transforms in kernel texts, and of their arguments; `butterflies` says more."""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

RADICES = (2, 3, 4, 5, 7, 8, 11, 13)
LANES = {"f32": (4, 8, 16), "f64": (2, 4, 8)}  # of vectors of 16, 32 and 64 bytes
# What a pass may read and write besides blocks.
_READS = ("", "_frompairs", "_fromreals")
_WRITES = ("", "_topairs")


class Pass(NamedTuple):
    """stage: "first", "inner" or "last". read, write: "" for a block, or the word that the name has."""

    radix: int
    dtype: str
    lanes: int
    stage: str
    inverse: bool
    read: str
    write: str
    twiddled: bool
    scaled: bool

    @property
    def name(self) -> str:
        return f"fft{self.radix}_{self.dtype}_{self.lanes}_{_words(*self[3:])}"


class Spectrum(NamedTuple):
    """kind: "half" or "whole"."""

    kind: str
    dtype: str
    lanes: int

    @property
    def name(self) -> str:
        return f"fft_{self.kind}_{self.dtype}_{self.lanes}"


def _words(stage: str, inverse: bool, read: str, write: str, twiddled: bool, scaled: bool) -> str:
    return f"{stage}{'_inverse' * inverse}{read}{write}{'_twiddled' * twiddled}{'_scaled' * scaled}"


@functools.cache
def _functions() -> dict[str, Pass | Spectrum]:
    """Every function of `butterflies` by its name."""
    either, no = (False, True), (False,)
    stages = [
        *itertools.product(("first",), either, _READS, ("",), no, no),
        *itertools.product(("inner",), either, ("",), ("",), no, no),
        *itertools.product(("last",), either, _READS, _WRITES, either, either),
    ]
    forms = [(_words(*form), form) for form in stages]
    vectors = [(dtype, lanes) for dtype, several in LANES.items() for lanes in several]
    found: dict[str, Pass | Spectrum] = {}
    for dtype, lanes in vectors:
        for radix in RADICES:
            found |= {f"fft{radix}_{dtype}_{lanes}_{words}": Pass(radix, dtype, lanes, *form) for words, form in forms}
    spectra = [Spectrum(kind, dtype, lanes) for kind in ("half", "whole") for dtype, lanes in vectors]
    return found | {spectrum.name: spectrum for spectrum in spectra}


def function_of(name: str) -> Pass | Spectrum | None:
    """The function of a name; None where there is none of that name."""
    return _functions().get(name) if name.startswith("fft") else None


def parameters(name: str) -> tuple[str, ...] | None:
    """The names of the arguments of a function; None where there is none of that name."""
    match function_of(name):
        case None:
            return None
        case Spectrum():
            return ("block", "twiddles", "m")
        case Pass(stage=stage) as found:
            result = ["source"] + ["source_step"] * bool(found.read) + ["target"] + ["target_step"] * bool(found.write)
            result += {"first": ["factors", "m"], "inner": ["factors", "m", "s"], "last": ["s"]}[stage]
            return tuple(result + ["twiddles", "lane_twiddles"] * found.twiddled + ["scale"] * found.scaled)
