"""Orders along an axis. NaN is the largest element, as in PyTorch; equal elements keep their order."""

from __future__ import annotations

from hloom import lax
from hloom.bridges.torch.dtypes import S64, convert
from hloom.bridges.torch.table import rule
from hloom.ir.types import FLOATS
from hloom.lax.sorting import sort_by


def _ordered(x, dim: int, descending: bool):
    """(elements in order, their positions)."""
    dim %= x.ndim
    positions = lax.broadcasted_iota(S64 if x.shape[dim] > 2**31 else "i4", x.shape, dim)
    values, places = sort_by((x, positions), dim, True, 1, descending)
    return values, convert(places, S64)


@rule("sort.default", "sort.stable")
def sort(x, dim=-1, descending=False, *, stable=None):
    return _ordered(x, dim, descending) if x.ndim else (x, lax.full((), 0, S64))


@rule("topk.default")
def topk(x, k, dim=-1, largest=True, sorted=True):  # noqa: A002 - PyTorch's name
    if not x.ndim:
        return x, lax.full((), 0, S64)
    dim %= x.ndim
    if largest and x.dtype in FLOATS:
        values, places = lax.top_k(x, k, axis=dim)
        return values, convert(places, S64)
    values, places = _ordered(x, dim, largest)
    return lax.slice_in_dim(values, 0, k, 1, dim), lax.slice_in_dim(places, 0, k, 1, dim)
