"""fft: the discrete Fourier transform over the last one to three dimensions, by pocketfft (SciPy)."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np

from hloom.ir.build import Value
from hloom.ir.errors import AttributeValueError, DTypeError, ShapeError
from hloom.ir.op_table import No, op
from hloom.ir.ops.linalg.matrices import library_batch, require_lapack, zero
from hloom.ir.ops.rules import conjugate, linear_jvp, require_count
from hloom.ir.process.lazy import LazyModule
from hloom.ir.spmd.factors import FactorRule, RuleBuilder
from hloom.ir.types import COMPLEX, DTYPES, HLO_NAME, Shape, real_dtype

scipy_fft = LazyModule("scipy.fft")

FFT_TYPES = ("FFT", "IFFT", "RFFT", "IRFFT")
SMALL = 4096  # elements
COMPLEX_OF = {DTYPES["f32"]: DTYPES["c64"], DTYPES["f64"]: DTYPES["c128"]}


def _fft_infer(operands, attributes, shape):
    require_count("fft", operands, 1)
    (x,) = operands
    require_lapack("fft", x)
    which, length = attributes.get("fft_type"), tuple(attributes.get("fft_length", ()))
    if which not in FFT_TYPES:
        raise AttributeValueError(
            f"fft_type is one of {', '.join(FFT_TYPES)}", f"{which!r}", "choose one of them by name"
        )
    if not 1 <= len(length) <= 3 or len(length) > x.rank or any(n < 0 for n in length):
        raise ShapeError(
            "fft transforms the last one to three dimensions of its operand",
            f"fft_length {length} of {x!r}",
            "give one size for each dimension that is transformed",
        )
    if (x.dtype in COMPLEX) == (which == "RFFT"):
        raise DTypeError(
            f"fft of type {which} takes {'real' if which == 'RFFT' else 'complex'} elements",
            f"{x!r}",
            f"convert the operand first with astype('{HLO_NAME[real_dtype(x.dtype)]}')"
            if which == "RFFT"
            else f"convert the operand first with astype('{HLO_NAME[COMPLEX_OF[x.dtype]]}')",
        )
    expected = length
    if which == "IRFFT":
        expected = (*length[:-1], length[-1] // 2 + 1 if length[-1] else 0)
    if x.dims[x.rank - len(length) :] != expected:
        raise ShapeError(
            f"fft of type {which} and fft_length {length} takes an operand that ends in {expected}",
            f"{x!r}",
            "pad or slice the operand first, as hloom.numpy.fft does",
        )
    if which == "RFFT":
        return Shape(COMPLEX_OF[x.dtype], (*x.dims[:-1], length[-1] // 2 + 1 if length[-1] else 0))
    if which == "IRFFT":
        return Shape(real_dtype(x.dtype), (*x.dims[:-1], length[-1]))
    return x


def _fft_reference(x, shape, fft_type, fft_length):
    if not shape.size or not x.size:
        return np.zeros(shape.dims, shape.dtype)
    transforms: ModuleType | LazyModule
    if x.size <= SMALL:
        transforms = np.fft  # the same algorithm, without the time of importing SciPy's
        # At no cost, single precision is rounded once from a double-precision result.
        x = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64, copy=False)
    else:
        transforms = scipy_fft
    axes = tuple(range(x.ndim - len(fft_length), x.ndim))
    with np.errstate(all="ignore"):
        if fft_type == "IRFFT":
            found = transforms.irfftn(x, s=fft_length, axes=axes)
        else:
            found = getattr(transforms, fft_type.lower() + "n")(x, axes=axes)
    return found.astype(shape.dtype, copy=False)


def _weights(length: int, dims, like, scale: float):
    """The multiplicity of each frequency of a half spectrum in the full one, times a scale: 1, 2, ..., 2, 1."""
    count = np.full(length // 2 + 1, 2.0)
    count[0] = 1
    if length % 2 == 0:
        count[-1] = 1
    vector = Value(like.builder, like.builder.constant((count * scale).astype(like.dtype), like.dtype))
    return vector.broadcast(dims, (len(dims) - 1,))


def _fft_transpose(build, instruction, g, operands):
    which, length = instruction["fft_type"], tuple(instruction["fft_length"])
    operand = instruction.operands[0].shape
    if not operand.size:
        return [g.filled(0, operand)]
    if which in ("FFT", "IFFT"):
        return [g.op("fft", **instruction.attributes)]  # a symmetric matrix
    if which == "RFFT":
        # The real part of the full transform of the half spectrum.
        missing = length[-1] - g.dims[-1]
        padding = ((0, 0, 0),) * (len(g.dims) - 1) + ((0, missing, 0),)
        return [g.op("pad", zero(g), padding=padding).op("fft", fft_type="FFT", fft_length=length).op("real")]
    spectrum = conjugate(g.op("fft", fft_type="RFFT", fft_length=length))
    return [spectrum * _weights(length[-1], operand.dims, spectrum, 1 / math.prod(length))]


def _fft_factors(instruction) -> FactorRule:
    rule = RuleBuilder(instruction)
    first = len(instruction.shape.dims) - len(instruction["fft_length"])
    for d, (size, made) in enumerate(zip(rule.operand_dims[0], rule.result_dims[0], strict=True)):
        if size == made:
            rule.add({0: d}, {0: d}, *(["whole"] if d >= first else []))
    return rule.finish()


op(
    "fft",
    family="library",
    infer=_fft_infer,
    reference=_fft_reference,
    code=No("pocketfft computes it on the host"),
    jvp=linear_jvp,
    transpose=_fft_transpose,
    batch=library_batch,
    factors=_fft_factors,
    attributes={"fft_type": "enum", "fft_length": "ints"},
    flops=50,
    dialects="hlo",
)
