"""Compiles a program in HLO or StableHLO text or an ONNX model, runs it on arrays from .npy files, and prints or saves
the results.

Examples:
    hloom run layer.hlo --inputs x.npy w.npy b.npy --output y.npy
    hloom run layer.mlir --inputs x.npy --output y.npy
    hloom run layer.hlo --random 0 --source --time
    hloom run model.onnx --inputs ids.npy mask=mask.npy --output out.npz

Dynamic dimensions of a StableHLO program (`tensor<?x4xf32>`) take their sizes from the inputs. An output file that ends
in .npz holds all results (out0, out1, ...; those of an ONNX model by their names); one that ends in .npy holds the
single result. Inputs of ONNX models go by position or by name (NAME=FILE); with --random, sizes that a model leaves
open are 1.

"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from hloom.backends.cpu.compilation import compile_module
from hloom.commands import CommandError
from hloom.commands.onnx_models import described, is_model, run_model
from hloom.errors import UnsupportedError
from hloom.ir.module import Module
from hloom.ir.portable import fusions_as_calls
from hloom.ir.stablehlo import parse_program, to_module
from hloom.ir.stablehlo.reading import is_stablehlo
from hloom.ir.text import parse_module
from hloom.ir.types import HLO_NAME, Shape
from hloom.ir.verify import verify

BF16 = np.dtype(ml_dtypes.bfloat16)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        help="a file of HLO or StableHLO (.mlir) text, or an ONNX model (.onnx); - reads text from standard input",
    )
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--inputs", nargs="*", default=[], metavar="NPY", help=".npy files, one per parameter")
    given.add_argument("--random", type=int, metavar="SEED", help="generate random inputs from this seed instead")
    parser.add_argument(
        "--output", metavar="FILE", help="save the results to this .npy or .npz file instead of printing them"
    )
    parser.add_argument("--unfused", action="store_true", help="compile one kernel per operation")
    parser.add_argument("--source", action="store_true", help="also print the source of the kernels")
    parser.add_argument("--time", action="store_true", help="print compile times and the time of the second run")


def run(options: argparse.Namespace) -> int:
    if options.output and Path(options.output).suffix not in (".npy", ".npz"):
        raise CommandError(f"--output {options.output}", "an unknown file extension", "use .npy or .npz")
    if is_model(options.file):
        named = run_model(options)
        if options.output:
            _save(options.output, dict(named))
        else:
            _print(named)
        return 0
    module = read_module(options.file, options.inputs)
    verify(module)
    module = fusions_as_calls(module)
    parameters = list(module.entry.parameters)
    shapes = [p.shape for p in parameters if isinstance(p.shape, Shape)]
    if len(shapes) < len(parameters):
        raise CommandError("run accepts modules whose parameters are arrays", "a parameter that is a tuple")
    if options.random is not None:
        inputs = [_drawn(shape, options.random, k) for k, shape in enumerate(shapes)]
    else:
        inputs = _inputs(parameters, options.inputs)
    compiled = compile_module(module, fusion=not options.unfused)
    if options.source:
        print(compiled.source())
    results = compiled(inputs)
    if options.time:
        start = time.perf_counter()
        compiled(inputs)
        parts = [f"{name} {seconds * 1e3:.1f} ms" for name, seconds in compiled.timings.items()]
        print(f"# {', '.join(parts)}, run {(time.perf_counter() - start) * 1e6:.1f} us", file=sys.stderr)
    if options.output:
        _save(options.output, {f"out{k}": result for k, result in enumerate(results)})
    else:
        _print([(f"result {k}", result) for k, result in enumerate(results)])
    return 0


def _print(named: list[tuple[str, np.ndarray]]) -> None:
    for name, result in named:
        print(f"# {name}: {described(result)}")
        print(result.astype(np.float32) if result.dtype == BF16 else result)


def read_module(file: str, inputs: Sequence[str] = ()) -> Module:
    """The module in a file of HLO text or StableHLO, or on standard input.

    Raises OSError, ParseError, UnsupportedError.

    inputs: .npy files of the arguments; dynamic dimensions of a StableHLO program take their sizes from them.
    """
    text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    name = "<stdin>" if file == "-" else file
    if not is_stablehlo(text, "" if file == "-" else file):
        return parse_module(text, name)
    program = parse_program(text, name)
    if "?" not in text or not inputs:
        return to_module(program)
    arrays = [np.load(path, allow_pickle=False) for path in inputs]
    shapes = [a.shape for a in arrays]
    try:
        return to_module(program, input_shapes=shapes)
    except UnsupportedError:
        # Sizes that are passed as integer arguments.
        known = [a if a.shape == () and a.dtype.kind in "iu" else None for a in arrays]
        return to_module(program, input_shapes=shapes, known=known)


def _described(dtype, dims) -> str:
    return f"{HLO_NAME[np.dtype(dtype)]}[{','.join(map(str, dims))}]"


def _inputs(parameters, files: list[str]) -> list[np.ndarray]:
    wanted = ", ".join(f"{p.hint or p.opcode} {p.shape!r}" for p in parameters) or "none"
    if len(files) != len(parameters):
        raise CommandError(
            f"the module's inputs are: {wanted}",
            f"{len(files)} files after --inputs",
            "pass one .npy file per input, or --random SEED",
        )
    return [_load(file, p) for file, p in zip(files, parameters, strict=True)]


def _load(file: str, parameter) -> np.ndarray:
    shape = parameter.shape
    try:
        array = np.load(file, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise CommandError(f"--inputs {file}", f"not a file in the .npy format ({error})") from None
    if not isinstance(array, np.ndarray):
        raise CommandError(f"--inputs {file}", "several arrays", "save one array with numpy.save")
    if shape.dtype == BF16 and array.dtype == np.dtype("V2"):
        array = array.view(BF16)  # .npy files have no name for bfloat16
    if array.dtype != shape.dtype or array.shape != tuple(shape.dims):
        found = _described(array.dtype, array.shape)
        raise CommandError(
            f"input {parameter.hint or parameter.opcode} is {shape!r}",
            f"{file} holds {found}",
            "save an array of this dtype and shape",
        )
    return np.ascontiguousarray(array).reshape(array.shape)


def _drawn(shape: Shape, seed: int, number: int) -> np.ndarray:
    """Random values: floats from the standard normal distribution, integers from 0 to 9, booleans."""
    random = np.random.default_rng([seed, number])
    kind = shape.dtype.kind
    if kind in "biu":
        return np.asarray(random.integers(0, 2 if kind == "b" else 10, shape.dims)).astype(shape.dtype)
    values = np.asarray(random.standard_normal(shape.dims))
    if kind == "c":
        values = values + 1j * random.standard_normal(shape.dims)
    return values.astype(shape.dtype)


def _save(file: str, results: dict[str, np.ndarray]) -> None:
    """Writes a temporary file and renames it, so that readers never see a partial file."""
    path = Path(file)
    if path.suffix == ".npy" and len(results) != 1:
        raise CommandError(
            f"--output {file}", f"the program has {len(results)} results", "use a file name that ends in .npz"
        )
    handle, aside = tempfile.mkstemp(prefix=".", suffix=path.suffix, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            if path.suffix == ".npy":
                np.save(stream, next(iter(results.values())))
            else:
                named: dict[str, Any] = results
                np.savez(stream, **named)
        os.chmod(aside, 0o644)
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
