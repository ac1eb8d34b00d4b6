"""Random functions of arrays whose sizes they compute, with NumPy as the reference.

A function is a list of steps over a growing list of values. A step is kept where hloom traces it; what it refuses must
say what to do. The values that it returns are compared for arguments that select some, all or none.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import HloomError

K = 0.37  # no value of an argument


def _set(xp, x, mask, value):
    if xp is hnp:
        return x.at[mask].set(value)
    x = x.copy()
    x[mask] = value
    return x


def _some(xp, a):
    return a * 0 + 0.5 + xp.arange(a.shape[0], dtype=a.dtype).reshape((a.shape[0],) + (1,) * (a.ndim - 1))


# name -> (operands, function of xp and operands). Those below go on with exact integers.
EXACT: dict[str, tuple[int, Callable]] = {
    "mask": (1, lambda xp, a: a[a > K]),
    "mask of another": (2, lambda xp, a, b: a[b > K]),
    "mask of rows": (1, lambda xp, a: a[a[:, 0] > K]),
    "mask of columns": (1, lambda xp, a: a[:, a[0] > K]),
    "mask of sums": (1, lambda xp, a: a[a.sum(-1) > K]),
    "nonzero": (1, lambda xp, a: xp.nonzero(a > K)[-1] * 1.0),
    "flatnonzero": (1, lambda xp, a: xp.flatnonzero(a < -K) * 1.0),
    "argwhere": (1, lambda xp, a: xp.argwhere(a > K) * 1.0),
    "compress": (1, lambda xp, a: xp.compress(a.ravel()[: a.shape[0]] > K, a, axis=0)),
    "extract": (2, lambda xp, a, b: xp.extract(a > K, b)),
    "add": (2, lambda xp, a, b: a + b),
    "multiply": (2, lambda xp, a, b: xp.clip(a, -9, 9) * xp.clip(b, -9, 9)),
    "where": (2, lambda xp, a, b: xp.where(a > K, a, b)),
    "minimum": (2, lambda xp, a, b: xp.minimum(a, b)),
    "affine": (1, lambda xp, a: 1 - 2 * xp.clip(a, -99, 99)),
    "difference": (1, lambda xp, a: a[1:] - a[:-1]),
    "tail": (1, lambda xp, a: a[2:]),
    "head": (1, lambda xp, a: a[:-1]),
    "every second": (1, lambda xp, a: a[1::2]),
    "reversed": (1, lambda xp, a: a[::-1]),
    "column": (1, lambda xp, a: a[:, None]),
    "transposed": (1, lambda xp, a: a.T),
    "flat": (1, lambda xp, a: a.ravel()),
    "reshaped": (1, lambda xp, a: a.reshape(-1, 2)),
    "stacked": (2, lambda xp, a, b: xp.stack([a, b], -1)),
    "stacked first": (2, lambda xp, a, b: xp.stack([a, b])),
    "joined": (2, lambda xp, a, b: xp.concatenate([a, b])),
    "joined columns": (2, lambda xp, a, b: xp.concatenate([a, b], -1)),
    "padded": (1, lambda xp, a: xp.pad(a, [(1, 2)] * a.ndim, constant_values=3)),
    "outer": (2, lambda xp, a, b: xp.clip(a, -9, 9)[:, None] + b[None]),
    "ones": (1, lambda xp, a: xp.ones(a.shape) + a.shape[0]),
    "count": (1, lambda xp, a: xp.arange(a.shape[0]) * 1.0),
    "set": (2, lambda xp, a, b: _set(xp, a, b > K, 7)),
    "set selected": (2, lambda xp, a, b: _set(xp, a, a > K, b[a > K])),
    "taken": (1, lambda xp, a: xp.take(a, xp.flatnonzero(a.reshape(a.shape[0], -1)[:, 0] > K), axis=0)),
    "first": (1, lambda xp, a: a[0]),
    "sum": (1, lambda xp, a: xp.clip(a, -99, 99).sum()),
    "sum of an axis": (1, lambda xp, a: xp.clip(a, -99, 99).sum(0)),
    "sum kept": (1, lambda xp, a: xp.clip(a, -99, 99).sum(-1, keepdims=True)),
    "max": (1, lambda xp, a: a.max()),
    "min of an axis": (1, lambda xp, a: a.min(0)),
    "max with initial": (1, lambda xp, a: a.max(initial=-5)),
    "argmax": (1, lambda xp, a: xp.argmax(a, 0) * 1.0),
    "argmin": (1, lambda xp, a: xp.argmin(a) * 1.0),
    "any": (1, lambda xp, a: (a > 3).any(0) * 1.0),
    "all": (1, lambda xp, a: (a > -3).all() * 1.0),
    "dot": (2, lambda xp, a, b: xp.dot(xp.clip(a, -9, 9), xp.clip(b, -9, 9))),
    "matmul": (2, lambda xp, a, b: xp.clip(a, -9, 9).T @ xp.clip(b, -9, 9)),
    "running sum": (1, lambda xp, a: xp.cumsum(xp.clip(a, -9, 9), 0)),
    "sorted": (1, lambda xp, a: xp.sort(a, 0)),
    "unique": (1, lambda xp, a: xp.unique(a)),
}  # fmt: skip
# These are results alone: masks of what is rounded may differ.
ROUNDED: dict[str, tuple[int, Callable]] = {
    "mean": (1, lambda xp, a: a.mean()),
    "std": (1, lambda xp, a: a.std(0)),
    "centred": (1, lambda xp, a: a - a.mean(0)),
    "prod": (1, lambda xp, a: xp.clip(a, -2, 2).prod()),
    "weights": (1, lambda xp, a: xp.exp(-xp.abs(a)) / (1 + xp.abs(a)).sum()),
    "infinite": (1, lambda xp, a: (1 / _some(xp, a)).sum()),
}  # fmt: skip
ALL = EXACT | ROUNDED


class CountedProgram:
    """A function: its steps are (name, numbers of its operands)."""

    def __init__(self, rng: random.Random):
        self.dims = rng.choice([(rng.randrange(1, 9),), (rng.randrange(1, 5), rng.randrange(1, 4))])
        self.steps: list[tuple[str, tuple[int, ...]]] = []
        self.refused: Counter[str] = Counter()
        known = [0, 1]  # the values that later steps take: exact ones of an axis at least
        shape = hl.ShapeDtypeStruct(self.dims, "float64")
        for _ in range(rng.randrange(2, 9)):
            name = rng.choice([*ALL, *["mask", "mask of another", "mask of rows"] * 3])
            operands = tuple(rng.choice(known[-4:] if rng.random() < 0.7 else known) for _ in range(ALL[name][0]))
            self.steps.append((name, operands))
            try:
                with np.errstate(all="ignore"):
                    lowered = hl.jit(lambda x, y: self(hnp, x, y)[-1]).lower(shape, shape)
                    lowered.compile()
            except HloomError as error:
                self.refused["with size=" if "size=" in str(error) else type(error).__name__] += 1
                self.steps.pop()
            else:
                if name in EXACT and lowered.out_info.ndim:
                    known.append(len(self.steps) + 1)

    def __call__(self, xp, x, y) -> list:
        values = [x, y]
        for name, operands in self.steps:
            values.append(ALL[name][1](xp, *[values[k] for k in operands]))
        return values[2:]

    def __str__(self) -> str:
        return f"{self.dims}: {', '.join(f'{name}{operands}' for name, operands in self.steps)}"


def arguments(rng: random.Random, dims: tuple[int, ...]) -> np.ndarray:
    """Small integers, of which some, all or none are positive."""
    state = np.random.default_rng(rng.randrange(2**32))
    low, high = rng.choice([(-5, 6), (-5, 6), (-5, 1), (1, 6)])
    return state.integers(low, high, dims).astype(np.float64)


def check_counted(seed: int) -> dict[str, int]:
    """Raises AssertionError where a random function differs from NumPy. Returns counts of what happened."""
    rng = random.Random(seed)
    program = CountedProgram(rng)
    counts = Counter({f"refused {kind}": number for kind, number in program.refused.items()})
    compiled = hl.jit(lambda x, y: program(hnp, x, y))
    for _ in range(3):
        x, y = arguments(rng, program.dims), arguments(rng, program.dims)
        wanted, found = None, None
        with np.errstate(all="ignore"):
            try:
                wanted = program(np, x, y)
            except (ValueError, IndexError) as error:
                fault: Exception = error
        try:
            found = compiled(x, y)
        except HloomError as error:
            assert wanted is None, f"{program}: {error}"
            counts["errors of calls"] += 1
            continue
        assert wanted is not None, f"{program}: no error, NumPy has {fault}"
        for step, value, other in zip(program.steps, found, wanted, strict=True):
            assert np.shape(value) == np.shape(other), f"{program}, {step}: {np.shape(value)}, {np.shape(other)}"
            np.testing.assert_allclose(value, other, rtol=1e-6, atol=1e-9, err_msg=f"{program}, {step}")
        counts["calls"] += 1
    return counts
