"""A session's training step that is fed with batches of many sizes:

    python -m benchmarks.measure.session_sizes [--batches 20] [--least 16] [--most 250] [--hidden 256]

One session, whose program of open sizes serves all batches but those of the first two sizes, against a session for
each, whose program is compiled for it alone: the programs that are compiled, the processor's seconds of the first runs,
and the time of a step when all is compiled, in turns. Run it twice: then kernels are in the disk cache.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom.backends.cpu import compilation, open_sizes
from hloom.sessions import Program, Session, minimize, placeholder, variable

FETCHES = ["cost", "train"]


def network(hidden: int) -> Program:
    """Three layers of a perceptron, and a step of Adam."""
    program = Program("mlp")
    with program:
        layer: Any = placeholder("x", [None, 64])
        y: Any = placeholder("y", [None, 10])
        widths = 64, hidden, hidden, 10
        for k, key in enumerate(hl.random.split(hl.random.key(0), 3)):
            w = variable(f"w{k}", 0.1 * hl.random.normal(key, widths[k : k + 2]))
            b = variable(f"b{k}", hnp.zeros(widths[k + 1]))
            layer = layer @ w + b if k == 2 else hnp.tanh(layer @ w + b)
        cost = hnp.mean((y - layer) ** 2)
        minimize(hl.optim.adam(1e-3), cost, name="train")
        program.initializer(name="init")
    return program


@contextmanager
def counted() -> Iterator[list[None]]:
    """Has an element for each program that is compiled within it."""
    made: list[None] = []
    planned = open_sizes.optimized_plan

    def noted(*arguments, **options):
        made.append(None)
        return planned(*arguments, **options)

    with (
        mock.patch.object(open_sizes, "optimized_plan", noted),
        mock.patch.object(compilation, "optimized_plan", noted),
    ):
        yield made


def seconds_of_first_runs(sessions: list[Session], feeds: list[dict]) -> list[float]:
    """Of the processors, for each session with its feed: other work of the machine is not in them."""
    found = []
    for session, feed in zip(sessions, feeds, strict=True):
        started = time.process_time()
        session.run(FETCHES, feed)
        found.append(time.process_time() - started)
    return found


def shown(what: str, seconds: list[float], programs: int) -> None:
    first, second, *rest = seconds
    print(f"{what}: {programs} programs, {sum(seconds):.2f} s; the first run {first * 1e3:.0f} ms, "
          f"the second {second * 1e3:.0f}, further ones {statistics.median(rest) * 1e3:.1f} (median)")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("batches", 20), ("least", 16), ("most", 250), ("hidden", 256)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    program, generator = network(given.hidden), np.random.default_rng(0)
    sizes = [int(n) for n in np.linspace(given.least, given.most, given.batches)]
    feeds = [{"x": generator.random((n, 64), np.float32), "y": generator.random((n, 10), np.float32)} for n in sizes]
    with ExitStack() as stack:
        one = stack.enter_context(Session(program))
        each = [stack.enter_context(Session(program)) for _ in sizes]
        for session in (one, *each):
            session.run("init")
        with counted() as made:
            seconds = seconds_of_first_runs(each, feeds)
            shown("a session for each size", seconds, len(made))
            made.clear()
            seconds = seconds_of_first_runs([one] * len(feeds), feeds)
            shown("one session", seconds, len(made))
        ratios = []
        for session, feed in zip(each[1:], feeds[1:], strict=True):
            best = [float("inf")] * 2
            for _ in range(15):
                for k, run in enumerate((session.run, one.run)):
                    run(FETCHES, feed)
                    started = time.perf_counter()
                    for _ in range(10):
                        run(FETCHES, feed)
                    best[k] = min(best[k], time.perf_counter() - started)
            ratios.append(best[1] / best[0])
        mean = statistics.geometric_mean(ratios)
        print(f"a step over that of one size: {mean:.3f} (geometric mean), at most {max(ratios):.2f}")


if __name__ == "__main__":
    main()
