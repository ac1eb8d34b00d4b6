"""`jax.scipy.cluster.vq`: which row of a code book is the nearest."""

from __future__ import annotations

import hloom.numpy as hnp
from hloom.errors import ShapeError
from hloom.lax.operands import inexact_dtype, promote_operands

__all__ = ["vq"]
__dir__ = __all__.copy


def vq(obs, code_book, check_finite: bool = True):
    """(the index of the row of code_book (k, n) that is nearest to each row of obs (m, n), its distance).

    Vectors are taken for columns of one number a row. Raises ShapeError, DTypeError.
    """
    (x, codes), _ = promote_operands("vq", (obs, code_book), inexact_dtype, broadcast=False)
    if x.ndim not in (1, 2) or x.ndim != codes.ndim or x.shape[1:] != codes.shape[1:]:
        raise ShapeError(
            "vq takes rows of as many numbers as the code book's", f"{x._shape!r} and {codes._shape!r}", "match them"
        )
    if x.ndim == 1:
        x, codes = x[:, None], codes[:, None]
    distances = hnp.sqrt(hnp.sum((x[:, None, :] - codes[None, :, :]) ** 2, axis=-1))
    return hnp.argmin(distances, axis=-1), hnp.min(distances, axis=-1)
