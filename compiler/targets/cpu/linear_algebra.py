"""The kernel kinds of sorts and of linear algebra, and from which sizes on a library of the host is faster.

A program that has to run without Python (`CpuTarget.self_contained`) uses these kernels for all sizes.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.compiler.kernels.kinds import contains
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.kernels.matrices import cholesky, eigh, lu, pinv, qr, svd, triangular, unitary
from hloom.compiler.kernels.matrices.common import is_complex, is_real, largest_side
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.sort import has_sort_kernel, sort_launches
from hloom.compiler.targets.base import KernelKind
from hloom.ir.module import Instruction
from hloom.ir.ops.indexing.sort import sort_keys

# The largest side of a matrix for which our kernels are at least as fast as LAPACK, called by a step of Python.
LARGEST_SIDE = {
    "cholesky": 512, "triangular-solve": 160, "lu": 256, "solve": 160, "det": 256, "qr": 128, "geqrf": 128,
    "householder-product": 128, "eigh": 96, "svd": 24, "pinv": 24,
}  # fmt: skip
LARGEST_COMPLEX = 16
FEW_RIGHT_SIDES, LARGEST_FEW = 4, 1024  # LAPACK gains from blocks of right sides, which few have not
PLAIN_SORT = 2048  # elements from which on NumPy's vectorized sorts of numbers alone are faster


def library_is_faster(instruction: Instruction) -> bool:
    """Whether a step that calls NumPy, SciPy or LAPACK takes less time than our kernel."""
    if instruction.opcode == "sort":
        (x, *others), keys = instruction.operands, sort_keys(instruction["to_apply"]) or []
        alone = not others and len(keys) == 1 and not keys[0].total
        return alone and x.dtype.kind in "iuf" and x.dtype.itemsize >= 4 and x.shape.size >= PLAIN_SORT
    largest = LARGEST_SIDE.get(instruction.opcode)
    if largest is not None and is_complex(instruction):  # LLVM's vectorizer leaves pairs alone
        largest = LARGEST_COMPLEX
    elif instruction.opcode == "triangular-solve":
        b = instruction.operands[1].dims
        few = b[-1 if instruction.attributes.get("left_side") else -2] <= FEW_RIGHT_SIDES
        largest = LARGEST_FEW if few else largest
    return largest is not None and largest_side(instruction) > largest


def _is_supported(instruction: Instruction) -> bool:
    return is_real(instruction) and not instruction.attributes.get("pivoting")


def _is_supported_complex(instruction: Instruction) -> bool:
    return (is_real(instruction) or is_complex(instruction)) and not instruction.attributes.get("pivoting")


def _eigh(request: KernelRequest) -> list[Launch]:
    made = unitary if is_complex(request.instruction("eigh")) else eigh
    return made.eigh_launches(request)


def _svd(request: KernelRequest) -> list[Launch]:
    made = unitary if is_complex(request.instruction("svd")) else svd
    return made.svd_launches(request)


def _kind(opcode: str, launches: Callable[[KernelRequest], list[Launch]], supports=_is_supported) -> KernelKind:
    return KernelKind(
        opcode, contains(opcode), lambda request, target: launches(request), frozenset([opcode]), supports
    )


LIBRARY_KINDS = (
    _kind("sort", sort_launches, has_sort_kernel),
    _kind("cholesky", cholesky.cholesky_launches, _is_supported_complex),
    _kind("triangular-solve", triangular.triangular_launches, _is_supported_complex),
    _kind("lu", lu.lu_launches, _is_supported_complex),
    _kind("solve", lu.solve_launches, _is_supported_complex),
    _kind("det", lu.det_launches, _is_supported_complex),
    _kind("lu-pivots-to-permutation", lu.permutation_launches, lambda instruction: True),
    _kind("qr", qr.qr_launches, _is_supported_complex),
    _kind("geqrf", qr.geqrf_launches, _is_supported_complex),
    _kind("householder-product", qr.householder_launches, _is_supported_complex),
    _kind("eigh", _eigh, _is_supported_complex),
    _kind("svd", _svd, _is_supported_complex),
    _kind("pinv", pinv.pinv_launches, _is_supported_complex),
)
