"""Fourier transforms that a library can do too: computations that are nothing but one, from array to array.

Whether a library takes its place is decided by measurement where the program is loaded
(`hloom/backends/cuda/autotuner.py`).
"""

from __future__ import annotations

import math

from hloom.compiler.kernels.request import KernelRequest
from hloom.ir.module import Instruction
from hloom.ir.records import record
from hloom.ir.types import HLO_NAME, real_dtype


@record(frozen=True)
class LibraryTransform:
    """An fft over the last dimensions of a row-major array.

    kind: 'FFT', 'IFFT', 'RFFT' or 'IRFFT', the inverse ones with their factor 1 / product of lengths. lengths: of the
    numbers that are transformed, one to three. batch: how many transforms. parts: HLO dtype of real numbers and of the
    parts of complex ones, 'f32' or 'f64'. operand, out: pointers of the launches.
    """

    kind: str
    lengths: tuple[int, ...]
    batch: int
    parts: str
    operand: str
    out: str

    def pointers(self) -> tuple[str, ...]:
        return (self.operand, self.out)


def library_transform(request: KernelRequest, fft: Instruction) -> LibraryTransform | None:
    """What a fused computation with this fft is for a library; None where it is more: numbers that are converted as
    they are read, work behind, a result that overwrites its operand."""
    (operand,) = fft.operands
    if request.outputs != [fft] or request.shared or operand not in request.names:
        return None
    lengths = tuple(fft["fft_length"])
    batch = math.prod(fft.dims[: len(fft.dims) - len(lengths)])
    parts = HLO_NAME[real_dtype(fft.dtype)]
    return LibraryTransform(fft["fft_type"], lengths, batch, parts, request.names[operand], request.output_name(0))
