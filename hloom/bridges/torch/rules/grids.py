"""Elements of images at computed positions (`grid_sample`), in 2 and 3 dimensions, and their derivatives.

Positions have one part for each spatial dimension, the outermost first, in elements.
"""

from __future__ import annotations

import itertools
import math

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import S64, TO_TORCH, computed_in, convert, operand
from hloom.bridges.torch.table import rule
from hloom.transforms.gradient import vjp

LINEAR, NEAREST = 0, 1  # of interpolation_mode; 2 is cubic
ZEROS, REFLECTION = 0, 2  # of padding_mode; 1 is the border


def _computed(x):
    return convert(x, computed_in(TO_TORCH[x.dtype]))


def _unnormalized(at, extent: int, align_corners: bool):
    one, half = operand(1, at.dtype), operand(0.5, at.dtype)
    if align_corners:
        return (at + one) * half * operand(float(extent - 1), at.dtype)
    return ((at + one) * operand(float(extent), at.dtype) - one) * half


def _inside(at, extent: int, padding_mode: int, align_corners: bool):
    """Positions moved into the image by its border or by reflection; unchanged for zero padding.

    The derivative is 0 if a position is moved to the border, or is on it, as in ATen.
    """
    zero, top = operand(0, at.dtype), operand(float(extent - 1), at.dtype)
    if padding_mode == ZEROS:
        return at
    if padding_mode == REFLECTION:
        low, span = (0.0, float(extent - 1)) if align_corners else (-0.5, float(extent))
        if span == 0:
            at = at * zero
        else:
            away = at - operand(low, at.dtype)
            away = hnp.where(away < zero, -away, away)
            turns = hnp.floor(away / operand(span, at.dtype))
            rest = hnp.fmod(away, operand(span, at.dtype))
            even = hnp.equal(hnp.fmod(turns, operand(2, at.dtype)), zero)
            at = hnp.where(even, rest + operand(low, at.dtype), operand(span + low, at.dtype) - rest)
    return hnp.where(at > zero, hnp.where(at < top, at, top), zero)


def _pixels(x, positions):
    """x (batch, channels, sizes...) at whole positions (batch, counts...): zeros outside of the image."""
    sizes = x.shape[2:]
    there, number = None, None
    for position, size in zip(positions, sizes, strict=True):
        within = (position >= 0) & (position <= size - 1)
        there = within if there is None else there & within
        limits = operand(0, position.dtype), operand(float(size - 1), position.dtype)
        place = convert(lax.stop_gradient(hnp.clip(position, *limits)), S64)
        number = place if number is None else number * operand(size, S64) + place
    assert there is not None and number is not None, "an image has a dimension"
    counts = positions[0].shape[1:]
    flat = lax.reshape(x, (*x.shape[:2], math.prod(sizes)))
    number = lax.reshape(number, (x.shape[0], 1, math.prod(counts)))
    found = hnp.take_along_axis(flat, hnp.broadcast_to(number, (*x.shape[:2], number.shape[2])), axis=2)
    found = lax.reshape(found, (*x.shape[:2], *counts))
    return hnp.where(hnp.expand_dims(there, 1), found, operand(0, x.dtype))


def _cubic(share):
    """The weights of four pixels (Keys, 1981, a = -0.75)."""
    a = -0.75

    def near(t):
        return ((a + 2) * t - (a + 3)) * t * t + 1

    def far(t):
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    return far(share + 1), near(share), near(1 - share), far(2 - share)


def _grid_sample(x, grid, mode: int, padding_mode: int, align_corners: bool):
    """x (batch, channels, sizes...) at grid (batch, counts..., rank), whose parts run from -1 to 1, the innermost
    first."""
    sizes, rank = x.shape[2:], x.ndim - 2
    positions = [
        _unnormalized(lax.index_in_dim(grid, rank - 1 - k, grid.ndim - 1, keepdims=False), size, align_corners)
        for k, size in enumerate(sizes)
    ]

    def moved(positions):
        return [_inside(p, n, padding_mode, align_corners) for p, n in zip(positions, sizes, strict=True)]

    if mode == NEAREST:
        return _pixels(x, [hnp.round(p) for p in moved(positions)])
    if mode == LINEAR:
        positions = moved(positions)
    lows = [lax.stop_gradient(hnp.floor(p)) for p in positions]
    shares = [p - low for p, low in zip(positions, lows, strict=True)]
    weights = [(1 - s, s) for s in shares] if mode == LINEAR else [_cubic(s) for s in shares]
    total = None
    for taps in itertools.product(range(len(weights[0])), repeat=rank):
        first = 0 if mode == LINEAR else -1
        at = [low + operand(tap + first, low.dtype) for low, tap in zip(lows, taps, strict=True)]
        weight = math.prod([w[tap] for w, tap in zip(weights[1:], taps[1:], strict=True)], start=weights[0][taps[0]])
        part = _pixels(x, at if mode == LINEAR else moved(at)) * hnp.expand_dims(weight, 1)
        total = part if total is None else total + part
    return total


@rule("grid_sampler_2d.default", "grid_sampler_3d.default")
def grid_sampler(x, grid, interpolation_mode, padding_mode, align_corners):
    return _grid_sample(_computed(x), _computed(grid), interpolation_mode, padding_mode, align_corners)


@rule("grid_sampler_2d_backward.default", "grid_sampler_3d_backward.default")
def grid_sampler_backward(grad, x, grid, interpolation_mode, padding_mode, align_corners, output_mask):
    """(derivative of x, derivative of the grid), as requested."""

    def sample(x, grid):
        return _grid_sample(x, grid, interpolation_mode, padding_mode, align_corners)

    of_x, of_grid = vjp(sample, _computed(x), _computed(grid))[1](_computed(grad))
    if interpolation_mode == NEAREST:
        of_grid = lax.full(grid.shape, 0, of_grid.dtype)
    return of_x if output_mask[0] else None, of_grid if output_mask[1] else None
