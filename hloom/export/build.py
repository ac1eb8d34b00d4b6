"""`hl.export(f, ...)`: jitted functions as a library with a C header."""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.checkpoints import safetensors
from hloom.compiler.cache import default_cache
from hloom.compiler.targets.cpu import cross
from hloom.compiler.targets.cpu.machine import available_cores
from hloom.errors import ArgumentError, ExportError, file_error
from hloom.export import emit
from hloom.export.functions import (
    State,
    TracedFunction,
    dimensions_of,
    keep,
    plan_of,
    refuse_python,
    requests_of,
    traced,
)
from hloom.export.loading import Library as LoadedLibrary
from hloom.export.loading import load
from hloom.export.names import checked_name, identifier
from hloom.export.programs import STATE, functions_of
from hloom.export.ranges import ranged_body
from hloom.export.tables import Shared, tables_of
from hloom.export.targets import target_of
from hloom.export.toolchain import KINDS, toolchain
from hloom.ir.process.floats import default_floats
from hloom.ir.records import record
from hloom.ir.sizes.expressions import Dim
from hloom.sessions.files import Saved
from hloom.sessions.program import Program
from hloom.tree import pytrees as tree

__all__ = ["ExportedLibrary", "export"]

SMALL = 1024  # bytes: smaller constants are always in the library


@record(frozen=True)
class ExportedLibrary:
    """An exported library. path: its file; header: next to it, with hloom.h and hloom.hpp; weights: the file with the
    constants, or None if they are in the library. functions: their names. target: the name of the target."""

    name: str
    path: Path
    header: Path
    weights: Path | None
    functions: tuple[str, ...]
    target: str

    def load(self, num_threads: int = 1) -> LoadedLibrary:
        """The library in this process: see `hl.export.load`."""
        return load(self.path, num_threads=num_threads)


@default_floats()
def export(
    functions: Callable | Mapping[str, Callable] | Program | Saved,
    /,
    *examples: Any,
    folder: str | os.PathLike = ".",
    name: str | None = None,
    target: str | None = None,
    features: str | None = None,
    kind: str = "shared",
    weights: str = "embedded",
    state: Sequence[str] = (),
    updates: Sequence[str] = (),
    compiler: str | None = None,
    check: str = "all",
    fetches: Any = None,
    feeds: Any = None,
    variables: Mapping[str, Any] | None = None,
    **named: Any,
) -> ExportedLibrary:
    """Compiles functions to a library that runs without Python, and writes a C header for it.

    functions: a function, jitted or not, or several by name. examples, named: its arguments, as arrays or as
        `hl.ShapeDtypeStruct`; those of several functions by the names of their parameters.
    folder: where the files go; it is created if it does not exist. name: of the library; None: the function's.
    target: of `hl.export.TARGETS`; None: this machine. features: of the processor: a level such as "x86-64-v4", or
        LLVM's switches ("+dotprod"). kind: "shared", "static" or "object".
    weights: "embedded" or "file": constants of 1 KB and more go into NAME.safetensors next to the library.
    state: names of parameters that the program keeps between calls. updates: names of the functions whose results begin
    with the state, in this order; the first of them creates it.
    check: accepted, no effect: every size of a named dimension (`hl.Dim`) is known to be served, without samples.
    compiler: the C compiler; None: the system's for this machine, zig for others.

    A program of `hl.sessions`, or a file of one (`sessions.load`), is exported by its runs: fetches={"train": ["train",
    "cost"]} lists the fetches of each function, feeds={"x": (100, 32)} sets the shapes of feeds whose sizes are not
    known. Its variables are the library's state `variables`, which the function `init` sets to the values of
    `variables=` (`session.state()`), of the file, or of the program's initializer.

    Raises ExportError: for steps that only Python can run (listing all of them), unknown targets and names, a compiler
    that is missing or fails.
    """
    _check_choices(kind, check, weights)
    chosen, machine_target, machine = target_of(target, features)
    tools = toolchain(chosen, machine_target, compiler)
    if isinstance(functions, (Program, Saved)):
        if examples or named or state or updates:
            raise ExportError(
                "export of a program", "arguments of functions", "pass fetches=, feeds= and variables= for a program"
            )
        made = functions_of(functions, fetches, feeds, variables)
        name = name or identifier(made.name)
        state = (STATE,) if made.updates else ()
        requests = requests_of(made.functions, (), made.named, state, made.updates)
    elif any(given is not None for given in (fetches, feeds, variables)):
        raise ExportError(
            "export of functions", "fetches=, feeds= or variables=, which are for programs", "pass a sessions.Program"
        )
    else:
        requests = requests_of(functions, *with_dims(functions, examples, named), state, updates)
    dimensions = dimensions_of(requests)
    library_name = checked_name(name or (requests[0].name if callable(functions) else "model"), "the library")
    shared_state = State(state)
    found = [traced(request, shared_state) for request in requests]
    shared = Shared()
    bodies = _bodies(found, machine, shared, dimensions)
    stored = [k for k, value in enumerate(shared.constants) if value.nbytes >= SMALL] if weights == "file" else []
    library = emit.Library(
        library_name, chosen, machine_target, machine, bodies, shared_state.parts, shared,
        dimensions, stored,
        f"{library_name}.safetensors" if stored else None,
    )  # fmt: skip
    emit.check_names(library)
    place = Path(folder)
    header = _write_headers(library, place)
    weights_path = place / f"{library_name}.safetensors" if stored else None
    if weights_path is not None:
        arrays = {emit.stored_name(k): shared.constants[k] for k in stored}
        safetensors.write(weights_path, arrays, {"format": "hloom", "library": library_name})
    path = tools.build(kind, library_name, emit.source(library), _objects(library), place)
    return ExportedLibrary(library_name, path, header, weights_path, tuple(r.name for r in requests), chosen)


def _check_choices(kind: str, check: str, weights: str) -> None:
    if kind not in KINDS:
        raise ExportError(f"export with kind={kind!r}", f"the kinds are {', '.join(KINDS)}", "name one of them")
    if check not in ("samples", "all"):
        raise ExportError(f"export with check={check!r}", "it is 'samples' or 'all'", "name one of them")
    if weights not in ("embedded", "file"):
        raise ExportError(f"export with weights={weights!r}", "it is 'embedded' or 'file'", "name one of them")


def _write_headers(library: emit.Library, place: Path) -> Path:
    """Writes the headers of hloom and of the library into a folder, which is made. The path of the latter."""
    header = place / f"{library.name}.h"
    try:
        place.mkdir(parents=True, exist_ok=True)
        for file in ("hloom.h", "hloom.hpp"):
            shutil.copyfile(emit.NATIVE / file, place / file)
        header.write_text(emit.header(library))
    except OSError as error:
        raise file_error(f"export into {place}", error) from None
    return header


def with_dims(functions: Any, examples: tuple, named: Mapping[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Arguments with the Dims that are given by the names of parameters: the first dimension of these arguments."""
    dims = {name: value for name, value in named.items() if isinstance(value, Dim)}
    others = {name: value for name, value in named.items() if name not in dims}
    if not dims:
        return examples, others
    parameters = list(inspect.signature(functions).parameters) if callable(functions) else []
    for name in dims:
        if name not in parameters[: len(examples)]:
            raise ArgumentError(
                f"export with {name}={dims[name]!r}",
                "a Dim by name is the first dimension of an argument that is passed by position",
                f"pass an example of {name!r}, or {name}=hl.ShapeDtypeStruct((Dim, ...), dtype)",
            )

    def with_first(leaf: Any, dim: Dim) -> ShapeDtypeStruct:
        array = leaf if isinstance(leaf, ShapeDtypeStruct) else np.asarray(leaf)
        if not array.ndim:
            raise ArgumentError(f"export with {dim!r}", "a scalar has no first dimension", "pass an array")
        return ShapeDtypeStruct((dim, *array.shape[1:]), array.dtype)

    made = [
        tree.map(lambda leaf, dim=dims[name]: with_first(leaf, dim), example) if name in dims else example
        for name, example in zip(parameters, examples, strict=False)
    ]
    return (*made, *examples[len(made) :]), others


def _bodies(
    functions: list[TracedFunction],
    machine: cross.CrossMachine,
    shared: Shared,
    dimensions: list[Dim],
) -> list[emit.Body]:
    used = {f.request.name: [d for d in dimensions if d.name in f.dimension_names()] for f in functions}
    plans = {f.request.name: plan_of(f, machine, f.lowered.module) for f in functions if not used[f.request.name]}
    refuse_python(plans)
    found = []
    for function in functions:
        name = function.request.name
        if used[name]:
            found.append(ranged_body(function, machine, shared, dimensions, used[name]))
            continue
        keep(function, plans[name])
        found.append(emit.Body(function, [tables_of(plans[name], shared, {})]))
    return found


def _objects(library: emit.Library) -> list[tuple[str, bytes]]:
    """The object files of kernels and constants. LLVM runs without the GIL: every core compiles a kernel."""
    machine, shared = library.machine, library.shared
    cache = default_cache()
    with ThreadPoolExecutor(available_cores()) as workers:
        kernels = {
            f"{cross.symbol(kernel, machine)}.o": workers.submit(cross.object_code, kernel, machine, cache)
            for kernel in sorted(shared.kernels, key=lambda one: -len(one.text))
        }
        constants = {
            f"{library.name}_constant_{k}.o": workers.submit(
                cross.data_object, f"{library.name}_constant_{k}", value.tobytes() or b"\0", machine
            )
            for k, value in enumerate(shared.constants)
            if k not in library.stored
        }
        return [(name, job.result()) for name, job in (kernels | constants).items()]
