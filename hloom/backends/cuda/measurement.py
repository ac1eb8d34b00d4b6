"""Candidate algorithms of an `Alternatives` step, run on arrays made up for them.

measured = MeasuredStep(step, algorithms, device)
AlgorithmCandidate(measured, choose)        its results, and the seconds that it takes
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from hloom.backends.cuda.algorithms import Algorithms
from hloom.ir.types import COMPLEX, Shape
from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.programs.choice import Choose
from hloom.runtime.cuda.programs.detach import with_places
from hloom.runtime.cuda.programs.executable import Executable
from hloom.runtime.cuda.programs.program import Alternatives, CudaProgram, Ref

REPEATS = 5  # of the step in a program that is timed: launches of graphs weigh less


class MeasuredStep:
    """A step as a separate program. The methods raise CudaError."""

    def __init__(self, step: Alternatives, algorithms: Algorithms, device: Device):
        self.device, self.algorithms = device, algorithms
        results = [step.places[position] for position in algorithms.results]
        arrays = (algorithms.arrays[position] for position in algorithms.results)
        self.outputs = [shape for shape in arrays if shape is not None]  # results have one
        moved: dict[Ref, Ref] = {}
        self.inputs: list[Shape] = []
        self.donated: dict[int, int] = {}
        for position, (ref, shape) in enumerate(zip(step.places, algorithms.arrays, strict=True)):
            if position in algorithms.results or ref in moved or shape is None:
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

    def agree(self, wanted: list[np.ndarray], found: list[np.ndarray]) -> bool:
        """Whether results differ by no more than the order of the sums explains; NaNs must be at the same positions."""
        if not self.algorithms.tolerance:
            return all(a.tobytes() == b.tobytes() for a, b in zip(wanted, found, strict=True))
        all_wanted, all_found = map(_as_reals, (wanted, found))
        scale = np.max(np.abs(all_wanted[np.isfinite(all_wanted)]), initial=1.0)
        return bool(
            np.allclose(all_found, all_wanted, rtol=0.0, atol=self.algorithms.tolerance * scale, equal_nan=True)
        )

    @cached_property
    def timed_arguments(self) -> list:
        """The arguments that all candidates are timed on."""
        return self.arguments()

    def program(self, choose: Choose, repeats: int) -> Executable:
        """The step, repeated, as `choose` decides it."""
        program = CudaProgram(
            self.algorithms.title, (self.step,) * repeats, self.constants, self.arena_bytes, self.inputs, self.outputs,
            dict(self.donated),
        )  # fmt: skip
        return Executable(program, self.device, choose)

    def arguments(self, nan: bool = False) -> list:
        """Random arrays on the device. nan: with a NaN in the first."""
        random = np.random.default_rng(0)
        made = []
        for number, shape in enumerate(self.inputs):
            values = self.algorithms.draw(random, shape)
            if nan and number == 0:
                values[0] = np.nan
            made.append(self.device.put(np.resize(values, shape.dims).astype(shape.dtype), "an array for timing"))
        return made


class AlgorithmCandidate:
    """The step as `choose` decides it. algorithm: as the choice is kept, None for our own kernels."""

    def __init__(self, measured: MeasuredStep, choose: Choose, algorithm: list | None = None):
        self.measured, self.choose, self.algorithm = measured, choose, algorithm
        self._timed: Executable | None = None

    def results(self) -> list[np.ndarray]:
        """Its results; if NaNs matter, also those with a NaN in the first array."""
        measured, found = self.measured, []
        program = measured.program(self.choose, 1)
        for nan in (False, True)[: 1 + measured.algorithms.nan]:
            for out, shape in zip(program(measured.arguments(nan)), measured.outputs, strict=True):
                found.append(measured.device.get(out, np.empty(shape.dims, shape.dtype)).result())
        return found

    def seconds(self) -> float:
        program, arguments = self._timed, self.measured.timed_arguments
        if program is None:
            program = self._timed = self.measured.program(self.choose, REPEATS)
            program(arguments)  # records the graph
        return self.measured.device.milliseconds(lambda: program(arguments)) / REPEATS / 1e3


def _as_reals(arrays: list[np.ndarray]) -> np.ndarray:
    """All elements as float64; the parts of complex numbers in sequence."""
    parts = [array.view(array.real.dtype) if array.dtype in COMPLEX else array for array in arrays]
    return np.concatenate(parts, axis=None).astype(np.float64)
