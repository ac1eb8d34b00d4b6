"""Rotations in three dimensions and their interpolation, as in `jax.scipy.spatial.transform`.

Quaternions are (x, y, z, w); one rotation is an array of shape (4,), n of them (n, 4). Both classes are pytrees. Euler
angles come from quaternions directly: E. Bernardes and S. Viollet, Quaternion to Euler angles conversion (2022).
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import hloom.numpy as hnp
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.types import INEXACT
from hloom.numpy import linalg
from hloom.random import normal

_AXES = "xyz"
_NEAR = 1e-3  # radians below which quotients of an angle and its sine are series


def _norm(x):
    return hnp.sqrt(hnp.sum(x * x, axis=-1, keepdims=True))


def _unit(quat):
    return quat / _norm(quat)


def _floats(x):
    x = hnp.asarray(x)
    return x if x.dtype in INEXACT else x.astype(float)


def _axes(seq: str, counts, what: str):
    """(the numbers of the axes, whether they turn with the body). Raises ArgumentError."""
    lower = seq.lower() if isinstance(seq, str) else ""
    one_case = lower and (seq == lower or seq == seq.upper())
    if len(lower) not in counts or not one_case or not set(lower) <= set(_AXES):
        raise ArgumentError(
            f"{what} takes a sequence of axes", f"{seq!r}", "'xyz' for axes that stay, 'XYZ' for those of the body"
        )
    if any(a == b for a, b in itertools.pairwise(lower)):
        raise ArgumentError(f"{what} takes consecutive axes that differ", f"{seq!r}", "join equal neighbours")
    return [_AXES.index(a) for a in lower], seq != lower


def _product(p, q):
    """The quaternion of the rotation q, then p."""
    (a, u), (b, v) = (p[..., 3:], p[..., :3]), (q[..., 3:], q[..., :3])
    vector = a * v + b * u + hnp.cross(u, v)
    return hnp.concatenate([vector, a * b - hnp.sum(u * v, axis=-1, keepdims=True)], axis=-1)


class Rotation(NamedTuple):
    """A rotation, or n of them: `r1 * r2` turns by r2 first, `r[k]` and `len(r)` are for several."""

    quat: Any

    @classmethod
    def concatenate(cls, rotations):
        """The rotations of several objects of n rotations each, one after the other."""
        return cls(hnp.concatenate([rotation.quat for rotation in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles, degrees: bool = False):
        """From angles about up to 3 axes, a scalar or (k,) for one rotation and (n, k) for n; lower-case letters name
        axes that stay, upper-case ones those of the body. Raises ArgumentError, ShapeError."""
        axes, with_body = _axes(seq, (1, 2, 3), "Rotation.from_euler")
        angles = hnp.atleast_1d(_floats(angles))
        if angles.shape[-1] != len(axes):
            raise ShapeError(
                "Rotation.from_euler takes an angle for each axis", f"{angles.shape} for {seq!r}", "match them"
            )
        half = (hnp.deg2rad(angles) if degrees else angles) / 2
        result = None
        for k, axis in enumerate(axes):
            parts = [hnp.zeros_like(half[..., k])] * 3
            parts[axis] = hnp.sin(half[..., k])
            turn = hnp.stack([*parts, hnp.cos(half[..., k])], axis=-1)
            result = turn if result is None else _product(result, turn) if with_body else _product(turn, result)
        return cls(result)

    @classmethod
    def from_matrix(cls, matrix):
        """From orthogonal matrices (3, 3) or (n, 3, 3)."""
        m = _floats(matrix)
        trace = m[..., 0, 0] + m[..., 1, 1] + m[..., 2, 2]
        found = []
        for i in range(3):  # as if component i were the largest
            j, k = (i + 1) % 3, (i + 2) % 3
            parts = [None] * 4
            parts[i] = 1 - trace + 2 * m[..., i, i]
            parts[j] = m[..., j, i] + m[..., i, j]
            parts[k] = m[..., k, i] + m[..., i, k]
            parts[3] = m[..., k, j] - m[..., j, k]
            found.append(hnp.stack(parts, axis=-1))
        off = [m[..., (i + 2) % 3, (i + 1) % 3] - m[..., (i + 1) % 3, (i + 2) % 3] for i in range(3)]
        found.append(hnp.stack([*off, 1 + trace], axis=-1))
        largest = hnp.argmax(hnp.stack([m[..., 0, 0], m[..., 1, 1], m[..., 2, 2], trace], axis=-1), axis=-1)
        quat = found[3]
        for i in range(3):
            quat = hnp.where((largest == i)[..., None], found[i], quat)
        return cls(_unit(quat))

    @classmethod
    def from_mrp(cls, mrp):
        """From modified Rodrigues parameters, axis * tan(angle / 4)."""
        mrp = _floats(mrp)
        square = hnp.sum(mrp * mrp, axis=-1, keepdims=True)
        return cls(hnp.concatenate([2 * mrp, 1 - square], axis=-1) / (1 + square))

    @classmethod
    def from_quat(cls, quat):
        """From quaternions (x, y, z, w) of any length but 0."""
        return cls(_unit(_floats(quat)))

    @classmethod
    def from_rotvec(cls, rotvec, degrees: bool = False):
        """From vectors along the axis, of the angle's length."""
        rotvec = hnp.deg2rad(_floats(rotvec)) if degrees else _floats(rotvec)
        square = hnp.sum(rotvec * rotvec, axis=-1, keepdims=True)
        near = square <= _NEAR**2
        angle = hnp.sqrt(hnp.where(near, 1, square))
        scale = hnp.where(near, 0.5 - square / 48 + square * square / 3840, hnp.sin(angle / 2) / angle)
        w = hnp.where(near, 1 - square / 8 + square * square / 384, hnp.cos(angle / 2))
        return cls(hnp.concatenate([scale * rotvec, w], axis=-1))

    @classmethod
    def identity(cls, num: int | None = None, dtype=float):
        """The rotation that changes nothing, or `num` of them."""
        quat = hnp.array([0.0, 0.0, 0.0, 1.0], dtype=dtype)
        return cls(quat if num is None else hnp.tile(quat, (num, 1)))

    @classmethod
    def random(cls, random_key, num: int | None = None):
        """A rotation from the uniform distribution, or `num` of them."""
        return cls(_unit(normal(random_key, (4,) if num is None else (num, 4))))

    def __getitem__(self, indexer):
        if self.single:
            raise TypeError("a single rotation has no elements; build it from an array of shape (n, 4)")
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        if self.single:
            raise TypeError("a single rotation has no length; build it from an array of shape (n, 4)")
        return self.quat.shape[0]

    def __mul__(self, other) -> Rotation:
        return Rotation(_unit(_product(self.quat, other.quat)))

    def apply(self, vectors, inverse: bool = False):
        """The vectors (3,) or (n, 3) turned."""
        matrix = self.as_matrix()
        matrix = hnp.where(inverse, hnp.swapaxes(matrix, -1, -2), matrix)
        return hnp.sum(matrix * hnp.asarray(vectors)[..., None, :], axis=-1)

    def as_euler(self, seq: str, degrees: bool = False):
        """The angles about 3 axes, the middle one in [0, pi], or [-pi / 2, pi / 2] for three different axes. Where only
        a sum of the first and the third is known, the third is 0. Raises ArgumentError."""
        (i, j, k), with_body = _axes(seq, (3,), "Rotation.as_euler")
        if with_body:
            i, k = k, i
        symmetric = i == k
        if symmetric:
            k = 3 - i - j
        sign = (i - j) * (j - k) * (k - i) // 2
        x = [self.quat[..., n] for n in range(4)]
        a, b, c, d = (x[3], x[i], x[j], x[k] * sign)
        if not symmetric:
            a, b, c, d = (a - x[j], b + d, c + a, d - b)
        middle = 2 * hnp.arctan2(hnp.hypot(c, d), hnp.hypot(a, b))
        half_sum, half_difference = hnp.arctan2(b, a), hnp.arctan2(d, c)
        at_zero, at_pi = hnp.abs(middle) <= 1e-7, hnp.abs(middle - math.pi) <= 1e-7
        outer = hnp.where(at_zero, 2 * half_sum, 2 * half_difference * (1 if with_body else -1))
        first, third = half_sum - half_difference, half_sum + half_difference
        if with_body:
            first, third = third, first
        # After the exchange `first` is the angle of the axis that seq names first.
        degenerate = at_zero | at_pi
        first = hnp.where(degenerate, outer, first)
        third = hnp.where(degenerate, 0, third)
        if not symmetric:
            if with_body:
                first = first * sign
            else:
                third = third * sign
            middle = middle - math.pi / 2
        angles = hnp.stack([first, middle, third], axis=-1)
        angles = (angles + math.pi) % (2 * math.pi) - math.pi
        return hnp.rad2deg(angles) if degrees else angles

    def as_matrix(self):
        """The orthogonal matrices (3, 3) or (n, 3, 3)."""
        x, y, z, w = (self.quat[..., n] for n in range(4))
        rows = [
            [x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), y * y - x * x - z * z + w * w, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), z * z - x * x - y * y + w * w],
        ]
        return hnp.stack([hnp.stack(row, axis=-1) for row in rows], axis=-2)

    def as_mrp(self):
        """Modified Rodrigues parameters, axis * tan(angle / 4), of length at most 1."""
        sign = hnp.where(self.quat[..., 3:] < 0, -1.0, 1.0)
        return sign * self.quat[..., :3] / (1 + sign * self.quat[..., 3:])

    def as_rotvec(self, degrees: bool = False):
        """Vectors along the axis, of the angle's length in [0, pi]."""
        quat = hnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        square = hnp.sum(quat[..., :3] ** 2, axis=-1, keepdims=True)
        near = square <= (_NEAR / 2) ** 2
        sine = hnp.sqrt(hnp.where(near, 1, square))
        scale = hnp.where(near, 2 + square / 3, 2 * hnp.arctan2(sine, quat[..., 3:]) / sine)
        rotvec = scale * quat[..., :3]
        return hnp.rad2deg(rotvec) if degrees else rotvec

    def as_quat(self, canonical: bool = False, scalar_first: bool = False):
        """The quaternions. canonical: with w > 0, or the first of w, x, y, z that is not 0. scalar_first: w comes
        first."""
        quat = self.quat
        if canonical:
            negative, zero = quat < 0, quat == 0
            flip = negative[..., 2]
            for n in (1, 0, 3):
                flip = negative[..., n] | (zero[..., n] & flip)
            quat = hnp.where(flip[..., None], -quat, quat)
        return hnp.roll(quat, 1, axis=-1) if scalar_first else quat

    def inv(self) -> Rotation:
        """The rotation back."""
        return Rotation(self.quat * hnp.array([-1, -1, -1, 1], dtype=self.quat.dtype))

    def magnitude(self):
        """The angles, in [0, pi]."""
        return 2 * hnp.arctan2(_norm(self.quat[..., :3]), hnp.abs(self.quat[..., 3:]))[..., 0]

    def mean(self, weights=None) -> Rotation:
        """The rotation with the least sum of squared distances to all. Raises ShapeError."""
        count, dtype = len(self), self.quat.dtype
        weights = hnp.ones(count, dtype) if weights is None else hnp.asarray(weights, dtype)
        if weights.shape != (count,):
            raise ShapeError(
                "Rotation.mean takes a weight for each rotation", f"{weights.shape} for {count}", "match them"
            )
        _, vectors = linalg.eigh((weights * self.quat.T) @ self.quat)
        return Rotation(vectors[:, -1])

    @property
    def single(self) -> bool:
        """Whether it is one rotation, without a first axis."""
        return self.quat.ndim == 1


class Slerp(NamedTuple):
    """Rotations between given ones, at a constant angular velocity from each to the next:
    `Slerp.init(times, rotations)`, then `slerp(times)`."""

    times: Any
    timedelta: Any
    rotations: Rotation
    rotvecs: Any

    @classmethod
    def init(cls, times, rotations: Rotation):
        """times: (n,), increasing, for n >= 2 rotations. Raises ArgumentError, ShapeError."""
        if not isinstance(rotations, Rotation) or rotations.single or len(rotations) < 2:
            raise ArgumentError(
                "Slerp takes two rotations or more", f"{rotations!r:.80}", "pass a Rotation of shape (n, 4)"
            )
        times = hnp.asarray(times, rotations.quat.dtype)
        if times.shape != (len(rotations),):
            raise ShapeError(
                "Slerp takes a time for each rotation", f"{times.shape} for {len(rotations)}", "match them"
            )
        first, following = Rotation(rotations.quat[:-1]), Rotation(rotations.quat[1:])
        return cls(times, hnp.diff(times), first, (first.inv() * following).as_rotvec())

    def __call__(self, times):
        times = hnp.asarray(times, self.times.dtype)
        if times.ndim > 1:
            raise ShapeError("a Slerp takes a time, or a vector of times", f"{times.shape}", "reshape them")
        every = hnp.atleast_1d(times)
        k = hnp.clip(hnp.searchsorted(self.times, every) - 1, 0, len(self.rotations) - 1)
        share = (every - self.times[k]) / self.timedelta[k]
        found = self.rotations[k] * Rotation.from_rotvec(self.rotvecs[k] * share[:, None])
        return found if times.ndim else found[0]


__all__ = ["Rotation", "Slerp"]
__dir__ = __all__.copy
