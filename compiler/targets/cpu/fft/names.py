"""The names of the passes of Fourier transforms in kernel texts, and of their arguments; `tiles_fft` says more."""

from __future__ import annotations

import re

RADICES = (2, 3, 4, 5, 7, 8, 11, 13)

PASS = re.compile(
    r"fft(\d+)_(f32|f64)_(\d+)_(first|inner|last)(_inverse)?(_frompairs|_fromreals)?(_topairs)?(_twiddled)?(_scaled)?"
)
SPECTRUM = re.compile(r"fft_(half|whole)_(f32|f64)_(\d+)")


def parameters(name: str) -> tuple[str, ...] | None:
    """The names of the arguments of a function of this module; None where it has none of that name."""
    if SPECTRUM.fullmatch(name):
        return ("block", "twiddles", "m")
    match = PASS.fullmatch(name)
    if match is None or int(match[1]) not in RADICES:
        return None
    stage, read, write, twiddled, scaled = match[4], match[6], match[7], match[8], match[9]
    if (stage != "last" and (write or twiddled or scaled)) or (stage == "inner" and read):
        return None
    result = ["source"] + ["source_step"] * bool(read) + ["target"] + ["target_step"] * bool(write)
    result += {"first": ["factors", "m"], "inner": ["factors", "m", "s"], "last": ["s"]}[stage]
    return tuple(result + ["twiddles", "lane_twiddles"] * bool(twiddled) + ["scale"] * bool(scaled))
