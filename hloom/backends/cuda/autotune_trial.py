"""An `Alternatives` step on arrays of its own: what its ways give, and what they take.

trial = Trial(step, work, device)
trial.results(choose)           what comes out where `choose` decides the step
trial.agrees(wanted, found)
trial.milliseconds([choose, ...])
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.backends.cuda.algorithms import Work
from hloom.ir.types import COMPLEX, Shape
from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.programs.choice import Choose
from hloom.runtime.cuda.programs.detach import with_places
from hloom.runtime.cuda.programs.executable import Executable
from hloom.runtime.cuda.programs.program import Alternatives, CudaProgram, Ref

REPEATS = 5  # of the work in a program that is timed: launches of graphs weigh less
ROUNDS = 5  # in which each is timed; the lowest time counts, since what else goes on only adds


class Trial:
    """The methods raise CudaError."""

    def __init__(self, step: Alternatives, work: Work, device: Device):
        self.device, self.work = device, work
        results = [step.places[position] for position in work.results]
        self.outputs = [work.arrays[position] for position in work.results]
        moved: dict[Ref, Ref] = {}
        self.inputs: list[Shape] = []
        self.donated: dict[int, int] = {}
        for position, (ref, shape) in enumerate(zip(step.places, work.arrays, strict=True)):
            if position in work.results or ref in moved or shape is None:
                continue
            moved[ref] = Ref("input", len(self.inputs))
            if ref in results:  # it overwrites what is added
                self.donated[results.index(ref)] = len(self.inputs)
            self.inputs.append(shape)
        moved |= {ref: Ref("output", number) for number, ref in enumerate(results)}
        self.constants = [array for _, array in step.constants]
        moved |= {ref: Ref("constant", number) for number, (ref, _) in enumerate(step.constants)}
        self.arena_bytes = 0
        for ref, nbytes in step.scratch:
            if ref not in moved:
                moved[ref] = Ref("arena", self.arena_bytes)
                self.arena_bytes += -(-nbytes // 256) * 256
        self.step = with_places(step, moved.__getitem__)

    def results(self, choose: Choose) -> list[np.ndarray]:
        """What comes out; where NaNs matter, once more with one in the first array."""
        program, found = self._program(choose, 1), []
        for nan in (False, True)[: 1 + self.work.nan]:
            for out, shape in zip(program(self._arguments(nan)), self.outputs, strict=True):
                found.append(self.device.get(out, np.empty(shape.dims, shape.dtype)).result())
        return found

    def milliseconds(self, ways: Sequence[Choose]) -> list[float]:
        """What each of several ways takes."""
        programs, arguments = [self._program(choose, REPEATS) for choose in ways], self._arguments()
        for program in programs:
            program(arguments)  # makes the graph
        times = [[self.device.milliseconds(lambda p=p: p(arguments)) for p in programs] for _ in range(ROUNDS)]
        return [min(found) / REPEATS for found in zip(*times, strict=True)]

    def agrees(self, wanted: list[np.ndarray], found: list[np.ndarray]) -> bool:
        """Whether results differ by no more than the order of the sums explains; NaNs have to be in the same places."""
        if not self.work.tolerance:
            return all(a.tobytes() == b.tobytes() for a, b in zip(wanted, found, strict=True))
        all_wanted, all_found = map(_as_reals, (wanted, found))
        scale = np.max(np.abs(all_wanted[np.isfinite(all_wanted)]), initial=1.0)
        return bool(np.allclose(all_found, all_wanted, rtol=0.0, atol=self.work.tolerance * scale, equal_nan=True))

    def _program(self, choose: Choose, repeats: int) -> Executable:
        program = CudaProgram(
            self.work.title, (self.step,) * repeats, self.constants, self.arena_bytes, self.inputs, self.outputs,
            dict(self.donated),
        )  # fmt: skip
        return Executable(program, self.device, choose)

    def _arguments(self, nan: bool = False) -> list:
        random = np.random.default_rng(0)
        made = []
        for number, shape in enumerate(self.inputs):
            values = self.work.draw(random, shape)
            if nan and number == 0:
                values[0] = np.nan
            made.append(self.device.put(np.resize(values, shape.dims).astype(shape.dtype), "an array for timing"))
        return made


def _as_reals(arrays: list[np.ndarray]) -> np.ndarray:
    """All elements as float64; parts of complex numbers one behind the other."""
    parts = [array.view(array.real.dtype) if array.dtype in COMPLEX else array for array in arrays]
    return np.concatenate(parts, axis=None).astype(np.float64)
