"""Random graphs of 1 to 4 unknown sizes in sessions: one session whose program of open sizes runs for most sizes, and a
session for each set of sizes, whose program is compiled for these alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from open_programs import Open

import hloom.numpy as hnp
from hloom.backends import compile as compiling
from hloom.backends.cpu import compilation, open_sizes
from hloom.errors import HloomError
from hloom.ir.sizes.expressions import Dim, size_with
from hloom.sessions import Program, Session, assign_add, control_dependencies, placeholder, variable

RUNS = 2  # of each feed: the second one takes the quick way


@contextmanager
def compilations() -> Iterator[list[str]]:
    """The names of the modules that are compiled within it."""
    found: list[str] = []
    modules, known = (compiling, compilation, open_sizes), compiling.optimized_plan

    def noted(module: Any, **options: Any) -> Any:
        found.append(module.name)
        return known(module, **options)

    having = [module for module in modules if hasattr(module, "optimized_plan")]
    for module in having:
        module.optimized_plan = noted  # type: ignore[attr-defined]
    try:
        yield found
    finally:
        for module in having:
            module.optimized_plan = known  # type: ignore[attr-defined]


def graph(drawn: Open, named: bool) -> tuple[Program, list[str]]:
    """The program of drawn steps, with a variable that each run changes, and what to fetch. named: whether its sizes
    are the program's own, which may be 1, instead of Dims of at least 2. Raises HloomError."""
    program = Program("random")
    dims = {dim.name: program.sizes.dim(dim.name) if named else Dim(dim.name, min=2) for dim in drawn.dims}
    with program:
        values: list = [
            placeholder(f"x{k}", [size_with(n, dims) for n in argument.shape], argument.dtype)
            for k, argument in enumerate(drawn.arguments)
        ]
        total, count = variable("total", 0.0), variable("steps", hnp.zeros(3, "int32"))
        for step in drawn.steps:
            values.append(step(values))
        added = assign_add(total, hnp.tanh(hnp.sum(values[-1].astype("float32"))))
        with control_dependencies([added, assign_add(count, hnp.ones(3, "int32"))]):
            program.target("read", total * 2 + count)
        names = [f"f{k}" for k in range(len(values))]
        for name, value in zip(names, values, strict=True):
            program.target(name, value + 0)
        program.initializer(name="init")
    return program, [*names, "read"]


def outcome(session: Session, fetches: list[str], feeds: dict) -> tuple[list, str]:
    """(what a run returns and the variables after it, its error)."""
    try:
        found = session.run(fetches, feeds)
    except HloomError as error:
        return [], str(error)
    state = session.state()
    return [np.asarray(v) for v in [*found, *state.values()]], ""


def check(seed: int) -> tuple[int, int, int]:
    """Compares runs at the points of a program and beside them. Returns runs, compilations, and runs that were refused.
    Raises AssertionError."""
    drawn = Open(seed)
    generator = np.random.default_rng(seed)
    try:
        program, fetches = graph(drawn, seed % 4 > 0)
    except HloomError:  # a size that nothing that is fed tells
        return 0, 0, 0
    points = [*drawn.points, *[{name: size + 1 for name, size in point.items()} for point in drawn.points[:2]]]
    runs = refused = compiled = 0
    with Session(program) as session:
        session.run("init")
        for point in points:
            feeds = {f"x{k}": array for k, array in enumerate(drawn.arrays(generator, point))}
            with Session(program) as other:
                other.restore(session.state())
                for _ in range(RUNS):
                    wanted, refusal = outcome(other, fetches, feeds)
                    with compilations() as made:
                        found, error = outcome(session, fetches, feeds)
                    compiled += len(made)
                    runs, refused = runs + 1, refused + bool(error)
                    assert error == refusal, (seed, point, error, refusal)
                    for one, right in zip(found, wanted, strict=True):
                        assert one.shape == right.shape and one.dtype == right.dtype, (seed, point)
                        np.testing.assert_allclose(one, right, rtol=3e-4, atol=3e-3, err_msg=f"seed {seed} at {point}")
    return runs, compiled, refused


__all__ = ["check", "compilations"]
