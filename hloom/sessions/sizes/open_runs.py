"""Runs of graphs with unknown sizes: one compiled program serves all sizes that are fed.

The dimensions of the graph (`hloom.sessions.sizes`) are those of a jitted function of open sizes (`hl.jit(dims=...)`).
A run that has no such program, or none for some sizes, is compiled for the sizes of each feed.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence

from hloom.arrays.array import Array
from hloom.config import config
from hloom.dispatch.backend import takes_open_sizes
from hloom.dispatch.jit import JitFunction
from hloom.dispatch.open_arguments import open_function
from hloom.errors import FallbackWarning, HloomError
from hloom.ir.module import Computation
from hloom.ir.ops.specialize import Renaming
from hloom.ir.sizes.expressions import Dim, dims_of
from hloom.ir.source import current_source

__all__ = ["OpenRun"]

Jit = Callable[[Callable, Mapping[str, tuple]], JitFunction]


class OpenRun:
    """A computation whose parameters have open sizes, as one function for all of them.

    function: takes its operands. closed: whether it serves no further sizes.
    """

    def __init__(self, computation: Computation, name: str, jitted: Jit):
        """jitted: compiles a function whose arguments have dimensions, by name."""
        shapes = [p.shape.dims for p in computation.parameters]
        # Those of a graph that is built count as at least 2 for good; a function's do so while it is traced.
        dims = {n: _own(d) for shape in shapes for size in shape for n, d in dims_of(size).items()}
        self._name, self.closed = name, False
        renamed = Renaming(dims).computation(computation)
        names = [f"arg{k}" for k in range(len(shapes))]
        self.function = jitted(*open_function(renamed, names, tuple))

    def refusal(self, operands: Sequence[Array]) -> str:
        """Compiles the program that a call with these operands runs. Returns why the function does not serve them, ""
        if it does. Otherwise the computation for their sizes serves them, or reports the error in them."""
        if config.disable_jit:
            return ""
        try:
            if not takes_open_sizes(operands):
                return "programs of open sizes run on one CPU device"
            with warnings.catch_warnings():
                # The user did not request open sizes, so fall back to compiling for each size.
                warnings.simplefilter("ignore", FallbackWarning)
                if not self.function.ready_for(*operands):
                    self.close("most sizes need a separate program")  # these have one now
            return ""
        except HloomError as error:
            return f"{error.asked}: {error.found}"

    def close(self, refusal: str) -> None:
        """Stops using it for further sizes. `HLOOM_DEBUG=1` prints why."""
        self.closed = True
        if config.debug >= 1:
            print(
                f"hloom: '{self._name}' is compiled for the sizes of each run: {refusal}, at {current_source()}",
                file=sys.stderr,
            )


def _own(dim: Dim) -> Dim:
    return Dim(dim.name, dim.min, dim.max, multiple_of=dim.multiple_of)
