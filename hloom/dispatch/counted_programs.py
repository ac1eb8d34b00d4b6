"""Compiles modules of every kind of sizes: fixed ones, open ones of arguments, and those that the program computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hloom.compiler.transforms.counted import CountedProgram, counted_program
from hloom.errors import UnsupportedError
from hloom.ir.module import Computation, Module
from hloom.ir.ops.programs.sizes import computes_sizes
from hloom.ir.sizes.counted import REPAIR
from hloom.ir.sizes.expressions import SizeExpression
from hloom.platforms.backend import Backend, CompileOptions, Executable

__all__ = ["compiled_module", "refuse_computed_sizes"]


def compiled_module(backend: Backend, module: Module, options: CompileOptions) -> Executable:
    """The module as an executable. Raises UnsupportedError if sizes are of a kind that is not compiled."""
    is_open = any([p.shape.is_open for p in module.entry.parameters])
    if not computes_sizes(module.entry):
        return (backend.compile_open if is_open else backend.compile)(module, options)
    if is_open:
        refuse_computed_sizes(module.entry, "beside open sizes of arguments")
    program = counted_program(module.entry)
    executable = backend.compile(module.with_entry(program.computation), options)
    if executable.accepts_device_data or executable.output_devices is not None:
        refuse_computed_sizes(module.entry, "on other devices than one CPU")
    return CountedExecutable(executable, program)


def refuse_computed_sizes(computation: Computation, where: str) -> None:
    """Raises UnsupportedError for a program that computes sizes. where: in which kind of program."""
    if computes_sizes(computation):
        raise UnsupportedError(
            f"sizes that '{computation.name}' computes, {where}", "there are no such programs", REPAIR
        )


class CountedExecutable(Executable):
    """A program of fixed shapes whose results are cut to the sizes that it has computed."""

    def __init__(self, executable: Executable, program: CountedProgram):
        self._executable, self._checks = executable, program.checks
        self.module, self.donated, self.timings = executable.module, executable.donated, executable.timings
        self.rejects_none, self.output_shapes = executable.rejects_none, program.shapes
        self.kernels_compiled, self.runner = executable.kernels_compiled, self._run
        self._sizes = program.sizes

    def _run(self, arrays: Sequence) -> list:
        return self._cut(self._executable.runner(arrays))

    def _cut(self, results: list) -> list:
        """The results cut to their sizes. Raises the error for an array that must not be empty."""
        if not self._sizes:
            return results
        *stored, found = results
        sizes = found.tolist()
        for k, check in self._checks:
            if sizes[k] < 1:
                error = check.error
                raise type(error)(error.asked, error.found, error.repair, error.source)
        cut = []
        for array, shape in zip(stored, self.output_shapes, strict=True):
            dims = tuple([sizes[self._sizes[d]] if isinstance(d, SizeExpression) else d for d in shape.dims])
            cut.append(array if dims == array.shape else np.array(array[tuple(map(slice, dims))], order="C"))
        return cut

    def call_donating(self, arrays: list, release: Callable[[], None]) -> list:
        return self._cut(self._executable.call_donating(arrays, release))

    @property
    def plan(self) -> Any:
        """Launches and buffers of the program of fixed shapes."""
        return self._executable.plan  # type: ignore[attr-defined]

    def as_text(self, dialect: str = "hlo", *, export: bool = False) -> str:
        return self._executable.as_text(dialect, export=export)

    def source(self) -> str:
        return self._executable.source()

    def assembly(self, form: str) -> str:
        return self._executable.assembly(form)

    def cost_analysis(self) -> Mapping[str, object]:
        return self._executable.cost_analysis()

    def memory_analysis(self) -> dict[str, int]:
        return self._executable.memory_analysis()
