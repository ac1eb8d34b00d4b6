"""`hl.profiler.profile` for functions that jax compiled for hloom's devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import stages, tree

from hloom import profiler
from hloom.bridges.pjrt.client import Client
from hloom.errors import ArgumentError, UnsupportedError

__all__ = ["install"]

_ASKED, _REPAIR = "profiling a program of jax", "pass `jax.jit(f).lower(*args).compile()` and args, in their order"


def install(client: Callable[[], Client]) -> None:
    """Lets the profiler take jax's compiled programs."""

    def read(compiled: object, args: Sequence) -> tuple[Any, list[np.ndarray]] | None:
        """The executable and the arrays that it takes; None for functions that jax did not compile."""
        if not isinstance(compiled, stages.Compiled):
            return None
        return _executable(compiled, client()), _arrays(compiled, args)

    profiler.add_reader(read)


def _executable(compiled: stages.Compiled, client: Client) -> Any:
    loaded: Any = compiled.runtime_executable()
    if loaded.client.platform != "hloom":
        raise ArgumentError(
            _ASKED, f"one that was compiled for '{loaded.client.platform}'",
            "set JAX_PLATFORMS=hloom, and compile it again", "",
        )  # fmt: skip
    found = client.compiled(loaded.fingerprint.decode())
    if found.block["device_count"] > 1:
        raise UnsupportedError(
            _ASKED, f"one for {found.block['device_count']} devices, whose steps wait for each other",
            "profile it on one device; HLOOM_DEBUG=2 prints the collectives with their bytes", "",
        )  # fmt: skip
    return found.compiled


def _arrays(compiled: stages.Compiled, args: Sequence) -> list[np.ndarray]:
    """Those of the arguments that the program takes, in the dtypes that it was compiled for."""
    stated, given = tree.leaves(compiled.in_avals), tree.leaves((tuple(args), {}))
    if [s.shape for s in stated] != [np.shape(x) for x in given]:
        raise ArgumentError(
            _ASKED, f"arguments of the shapes {[np.shape(x) for x in given]}, compiled for {[s.shape for s in stated]}",
            _REPAIR, "",
        )  # fmt: skip
    executable: Any = compiled._executable
    kept = executable._kept_var_idx  # jax drops arguments that the program does not read
    return [np.asarray(x, s.dtype) for k, (s, x) in enumerate(zip(stated, given, strict=True)) if k in kept]
