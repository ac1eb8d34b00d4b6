"""Random loops that read and update arrays in every order: versions of an array that live on, swaps, aliased results,
nested loops, branches, windows that overlap. All numbers are integers, so results are equal or wrong."""

from __future__ import annotations

import numpy as np
from plan_simulator import simulate

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.compiler.pipeline import run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.targets.cpu.target import host_target
from hloom.ir.interpret import evaluate

SIZES = (5, 12, 100)  # the state of small arrays is copied, that of large ones changes places


class UpdateProgram:
    """`function(*arguments)` of integer arrays. The same seed gives the same program."""

    def __init__(self, seed: int):
        rng = np.random.default_rng(seed)
        self.n = int(rng.choice(SIZES))
        self.count = int(rng.integers(1, 4))
        self.steps = int(rng.integers(0, 6))
        self.kind = str(rng.choice(["fori", "while", "scan", "none"], p=[0.5, 0.15, 0.2, 0.15]))
        self.seed = int(rng.integers(2**31))
        self.arguments = [rng.integers(-9, 9, self.n).astype(np.int32) for _ in range(self.count)]
        self.made_inside = [bool(rng.random() < 0.3) for _ in range(self.count)]

    def function(self, *arrays):
        state = [hnp.arange(self.n) * 3 if inside else x for x, inside in zip(arrays, self.made_inside, strict=True)]
        if self.kind == "none":
            return self._body(np.random.default_rng(self.seed), 2, hnp.sum(arrays[0]) % 7, state)
        if self.kind == "scan":

            def scanned(carry, i):
                made = self._body(np.random.default_rng(self.seed), 2, i, list(carry))
                return tuple(made), (made[0][i % self.n], made[-1])

            return lax.scan(scanned, tuple(state), hnp.arange(self.steps))
        if self.kind == "while":
            made = lax.while_loop(
                lambda carry: carry[0] < self.steps,
                lambda carry: (
                    carry[0] + 1,
                    *self._body(np.random.default_rng(self.seed), 2, carry[0], list(carry[1:])),
                ),
                (hnp.int32(0), *state),
            )
            return made[1:]
        return lax.fori_loop(
            0, self.steps, lambda i, s: tuple(self._body(np.random.default_rng(self.seed), 2, i, list(s))), tuple(state)
        )

    def _body(self, rng, depth: int, i, state: list) -> list:
        """The next arrays, one for each of the state."""
        versions = [[x] for x in state]
        scalars = [i, i * 2 + 1]
        for _ in range(int(rng.integers(2, 8))):
            k = int(rng.integers(len(state)))
            x = versions[k][-1]
            choice = rng.random()
            if choice < 0.35:
                made = self._updated(rng, x, scalars)
            elif choice < 0.5:
                scalars.append(self._any(rng, versions)[self._index(rng, scalars)])
                continue
            elif choice < 0.65:
                made = self._moved(rng, x, self._any(rng, versions), scalars)
            elif choice < 0.72:
                made = x + self._any(rng, versions) * int(rng.integers(-2, 3))
            elif choice < 0.78:
                scalars.append(hnp.sum(self._any(rng, versions)) % 11)
                continue
            elif choice < 0.84:
                other = int(rng.integers(len(state)))
                versions[k].append(versions[other][-1])
                versions[other].append(x)
                continue
            elif depth:
                made = self._nested(rng, depth - 1, x, scalars, self._any(rng, versions))
            else:
                continue
            versions[k].append(made)
        # Mostly the newest; an old version now and then, or that of another array, which two results may share.
        results = []
        for k in range(len(state)):
            chosen = versions[k] if rng.random() < 0.85 else versions[int(rng.integers(len(state)))]
            results.append(chosen[-1] if rng.random() < 0.85 else chosen[int(rng.integers(len(chosen)))])
        return results

    def _any(self, rng, versions):
        """Mostly the newest version of an array."""
        chosen = versions[int(rng.integers(len(versions)))]
        return chosen[-1] if rng.random() < 0.6 else chosen[int(rng.integers(len(chosen)))]

    def _index(self, rng, scalars):
        return (scalars[int(rng.integers(len(scalars)))] + int(rng.integers(-2, 3))) % self.n

    def _updated(self, rng, x, scalars):
        place = x.at[self._index(rng, scalars)]
        value = scalars[int(rng.integers(len(scalars)))]
        return [place.set, place.add, place.max][int(rng.integers(3))](value)

    def _moved(self, rng, x, other, scalars):
        """A window of one array written over another, or the same."""
        width = int(rng.integers(1, min(5, self.n)))
        taken = lax.dynamic_slice(other, (self._index(rng, scalars),), (width,))
        return lax.dynamic_update_slice(x, taken + 1, (self._index(rng, scalars),))

    def _nested(self, rng, depth: int, x, scalars, other):
        inner = int(rng.integers(2**31))
        chosen = rng.random()
        if chosen < 0.5:
            steps = int(rng.integers(0, 4))

            def body(j, pair):
                return tuple(self._body(np.random.default_rng(inner), depth, j + scalars[-1] % 3, list(pair)))

            return lax.fori_loop(0, steps, body, (x, other))[int(rng.integers(2))]
        test = scalars[-1] % 2 == 0

        def branch(x, other):
            return self._body(np.random.default_rng(inner), depth, scalars[0], [x, other])[0]

        return lax.cond(test, branch, (lambda x, _: x) if chosen < 0.8 else (lambda x, o: x.at[0].set(o[1])), x, other)


def outputs_of(result) -> list[np.ndarray]:
    """The reference interpreter's results as a list."""
    return list(result) if isinstance(result, tuple | list) else [result]


def check_simulated(seed: int) -> None:
    """Runs the plan of a program in the simulator, every other one with donated arguments, against the reference."""
    program = UpdateProgram(seed)
    module = hl.make_module(program.function)(*program.arguments)
    expected = outputs_of(evaluate(module.entry, program.arguments))
    donated = frozenset(range(program.count)) if seed % 2 else frozenset()
    plan = make_plan(run_passes(module), host_target(), donated, whole=False)
    for got, want in zip(simulate(plan, program.arguments), expected, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}")
