"""Random programs for ranges of sizes as libraries, compared with the same programs compiled for each size."""

from __future__ import annotations

import itertools
import random
import tempfile
from collections import Counter
from collections.abc import Callable

import numpy as np
from open_programs import Open

import hloom as hl
from hloom.backends.cpu.compilation import compile_module
from hloom.errors import ExportError, ShapeError, UndecidedSizeError
from hloom.ir.module import Module
from hloom.ir.ops.specialize import Specialization
from hloom.ir.sizes.expressions import Dim, size_with
from hloom.tracing.trace import trace_function
from hloom.tree import pytrees as tree

COMPARED = 48  # sizes of a program, if it has as many
ELEMENTS = 1 << 20  # of all arguments, at the largest size


def _function(program: Open) -> Callable:
    def run(*given):
        values = list(given)
        for step in program.steps:
            values.append(step(values))
        return tuple(values[len(given) :]) or values[0]

    return run


def _ranges(program: Open, drawn: random.Random) -> dict[str, Dim]:
    found = {}
    for dim in program.dims:
        multiple = drawn.choice([1, 1, 1, 2, 8])
        least = drawn.choice([1, 1, 2, 2, 3])
        most = drawn.choice([5, 12, 40, 300 if len(program.dims) < 3 else 20])
        found[dim.name] = Dim(dim.name, least, max(most, multiple), multiple_of=multiple)
    return found


def _points(dims: dict[str, Dim], drawn: random.Random) -> list[dict[str, int]]:
    """All sizes of a small range; else corners, sizes near them and sizes at random."""
    sizes = [[n for n in range(dim.min, dim.most + 1) if dim.takes(n)] for dim in dims.values()]
    if np.prod([len(one) for one in sizes]) <= COMPARED:
        every = [*itertools.product(*sizes)]
    else:
        every = [*itertools.product(*[sorted({one[0], one[-1]}) for one in sizes])][:16]
        every += [tuple([drawn.choice([one[min(1, len(one) - 1)], *one]) for one in sizes]) for _ in range(COMPARED)]
    return [dict(zip(dims, point, strict=True)) for point in dict.fromkeys(every)]


def check_exported(seed: int) -> Counter:
    """Compares a library with programs for each size, bit by bit. Programs that are refused at a small size, as
    fixed ones are, are compared at larger ones. Raises AssertionError."""
    program, drawn = Open(seed), random.Random(seed)
    dims = _ranges(program, drawn)
    counts: Counter = Counter()
    function = _function(program)
    for attempt in range(2):
        arguments = [
            hl.ShapeDtypeStruct(tuple([size_with(n, dims) for n in one.shape]), one.dtype) for one in program.arguments
        ]
        try:
            computation = trace_function(function, *tree.flatten((tuple(arguments), {})), "random").computation
        except UndecidedSizeError:  # by the bounds of the range
            return Counter({"refused for want of a fact": 1})
        with tempfile.TemporaryDirectory() as folder:
            try:
                library = hl.export(function, *arguments, folder=folder, name=f"random{seed}")
            except ExportError as error:
                assert "do not tell its size" in str(error), error
                return Counter({"whose arguments do not tell a size": 1})
            except ShapeError:  # an index outside of an axis of the least size, as it is refused of fixed ones
                if attempt:
                    return Counter({"refused at a size": 1})
                dims = {n: Dim(n, max(d.min, 3), d.most + 8, multiple_of=d.multiple_of) for n, d in dims.items()}
                counts["with larger sizes"] += 1
                continue
            with library.load(num_threads=1 + seed % 3) as loaded:
                _compare(loaded["call"], program, computation, _points(dims, drawn), seed, counts)
        counts["programs"] += 1
        return counts
    raise AssertionError


def _compare(call, program: Open, computation, points, seed: int, counts: Counter) -> None:
    generator = np.random.default_rng(seed)
    for point in points:
        given = program.arrays(generator, point)
        fixed = Specialization(point).computation(computation)
        if sum(int(np.prod(i.shape.dims)) for i in fixed.instructions if hasattr(i.shape, "dims")) > 16 * ELEMENTS:
            continue
        wanted = compile_module(Module("random", fixed))([one.copy() for one in given])
        found = call.run(given)
        assert len(found) == len(wanted), f"seed {seed}"
        for one, other in zip(found, wanted, strict=True):
            other = np.asarray(other)
            assert one.shape == other.shape and one.dtype == other.dtype, (seed, point, one.shape, other.shape)
            if one.tobytes() != other.tobytes():
                np.testing.assert_allclose(one, other, rtol=3e-4, atol=3e-3, err_msg=f"seed {seed} at {point}")
                counts["values with other bits"] += 1
        counts["calls"] += 1


__all__ = ["check_exported"]
