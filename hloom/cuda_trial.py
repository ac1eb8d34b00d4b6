"""A `Library` step on arrays of its own: what our kernels and a library's ways give, and what they take.

trial = Trial(step, work, device)
trial.results(choose)           what comes out where `choose` decides the step
trial.agrees(wanted, found)
trial.milliseconds([choose, ...])
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.cuda_library_work import Work
from hloom.ir.types import COMPLEX, Shape
from hloom.runtime.cuda.choice import Choose
from hloom.runtime.cuda.detach import with_places
from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.executable import Executable
from hloom.runtime.cuda.program import CudaProgram, Library, Ref

REPEATS = 5  # of the work in a program that is timed: launches of graphs weigh less
ROUNDS = 5  # in which each is timed; the lowest time counts, since what else goes on only adds
DISTINCT = 1 << 20  # numbers that are drawn; larger arrays repeat them


class Trial:
    """The methods raise CudaError."""

    def __init__(self, step: Library, work: Work, device: Device):
        self.device, self.work = device, work
        self.output = work.arrays[work.output]
        out = step.places[work.output]
        moved: dict[Ref, Ref] = {}
        self.inputs: list[Shape] = []
        self.donated: dict[int, int] = {}
        for position, (ref, shape) in enumerate(zip(step.places, work.arrays, strict=True)):
            if position == work.output or ref in moved or shape is None:
                continue
            moved[ref] = Ref("input", len(self.inputs))
            if ref == out:  # it overwrites what is added
                self.donated[0] = len(self.inputs)
            self.inputs.append(shape)
        moved[out] = Ref("output", 0)
        self.constants = [array for _, array in step.constants]
        moved |= {ref: Ref("constant", number) for number, (ref, _) in enumerate(step.constants)}
        self.arena_bytes = 0
        for ref, nbytes in step.scratch:
            moved[ref] = Ref("arena", self.arena_bytes)
            self.arena_bytes += -(-nbytes // 256) * 256
        self.step = with_places(step, moved.__getitem__)

    def results(self, choose: Choose) -> np.ndarray:
        """What comes out, as float64, parts of complex numbers one behind the other; where NaNs matter, once more with
        one in the first array."""
        program, found = self._program(choose, 1), []
        for nan in (False, True)[: 1 + self.work.nan]:
            (out,) = program(self._arguments(nan))
            array = self.device.get(out, np.empty(self.output.dims, self.output.dtype)).result()
            found.append(array.view(array.real.dtype) if self.output.dtype in COMPLEX else array)
        return np.concatenate(found, axis=None).astype(np.float64)

    def milliseconds(self, ways: Sequence[Choose]) -> list[float]:
        """What each of several ways takes."""
        programs, arguments = [self._program(choose, REPEATS) for choose in ways], self._arguments()
        for program in programs:
            program(arguments)  # makes the graph
        times = [[self.device.milliseconds(lambda p=p: p(arguments)) for p in programs] for _ in range(ROUNDS)]
        return [min(found) / REPEATS for found in zip(*times, strict=True)]

    def agrees(self, wanted: np.ndarray, found: np.ndarray) -> bool:
        """Whether results differ by no more than the order of the sums explains; NaNs have to be in the same places."""
        scale = np.max(np.abs(wanted[np.isfinite(wanted)]), initial=1.0)
        return bool(np.allclose(found, wanted, rtol=0.0, atol=self.work.tolerance * scale, equal_nan=True))

    def _program(self, choose: Choose, repeats: int) -> Executable:
        program = CudaProgram(
            self.work.title, (self.step,) * repeats, self.constants, self.arena_bytes, self.inputs, [self.output],
            dict(self.donated),
        )  # fmt: skip
        return Executable(program, self.device, choose)

    def _arguments(self, nan: bool = False) -> list:
        random = np.random.default_rng(0)
        made = []
        for number, shape in enumerate(self.inputs):
            count = min(shape.size, DISTINCT)
            values = random.uniform(-1, 1, count).astype(np.float32)
            if shape.dtype in COMPLEX:
                values = values + 1j * random.uniform(-1, 1, count)
            if nan and number == 0:
                values[0] = np.nan
            made.append(self.device.put(np.resize(values, shape.dims).astype(shape.dtype), "an array for timing"))
        return made
