"""`hloom run model.onnx`: a part of the command `run`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from hloom import onnx
from hloom.commands import CommandError
from hloom.ir.types import HLO_NAME


def run_model(options: argparse.Namespace) -> list[tuple[str, np.ndarray]]:
    """(name, value) of each output of the model in options.file."""
    model = onnx.load(options.file)
    if options.unfused:
        raise CommandError("--unfused with an ONNX model", "a model that is compiled by parts", "leave out --unfused")
    inputs = _drawn(model, options.random) if options.random is not None else _read(model, options.inputs)
    if options.source:
        print(model.lower(**inputs).compile().source())
    results = model(**inputs)
    if options.time:
        start = time.perf_counter()
        again = model(**inputs)
        for value in again if isinstance(again, onnx.Outputs) else (again,):
            np.asarray(value)
        print(f"# run {(time.perf_counter() - start) * 1e6:.1f} us", file=sys.stderr)
    values = results if isinstance(results, onnx.Outputs) else (results,)
    named = []
    for port, value in zip(model.outputs, values, strict=True):
        if isinstance(value, (list, tuple)):
            named += [(f"{port.name}.{k}", np.asarray(v)) for k, v in enumerate(value)]
        elif value is not None:
            named.append((port.name, np.asarray(value)))
    return named


def described(value: np.ndarray) -> str:
    """f32[2,3], or string[2]."""
    name = "string" if value.dtype == object else HLO_NAME[value.dtype]
    return f"{name}[{','.join(map(str, value.shape))}]"


def _read(model: onnx.Model, files: list[str]) -> dict[str, np.ndarray]:
    """The inputs from .npy files, in the model's order or as NAME=FILE."""
    names = [port.name for port in model.inputs]
    found = {}
    for k, text in enumerate(files):
        name, given, file = text.partition("=")
        if not given or name not in names:
            name, file = (names[k] if k < len(names) else ""), text
        if not name:
            ports = ", ".join(map(repr, model.inputs)) or "none"
            raise CommandError(
                f"the model's inputs are: {ports}", f"{len(files)} files after --inputs", "one file per input"
            )
        try:
            found[name] = np.load(file, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise CommandError(f"--inputs {text}", f"not a file in the .npy format ({error})") from None
    return found


def _drawn(model: onnx.Model, seed: int) -> dict[str, np.ndarray]:
    """Random inputs; sizes that the model leaves open are 1."""
    found = {}
    for number, port in enumerate(model.inputs):
        if port.dtype is None or port.dtype == object or port.kind != "tensor":
            raise CommandError("--random", f"the input {port!r}", "pass this model's inputs by --inputs")
        random = np.random.default_rng([seed, number])
        shape = tuple(s if isinstance(s, int) else 1 for s in port.shape or ())
        if port.dtype.kind in "biu":
            values = random.integers(0, 2, shape)
        else:
            values = np.asarray(random.standard_normal(shape))
        found[port.name] = np.asarray(values).astype(port.dtype)
    return found


def is_model(file: str) -> bool:
    """Whether a file is an ONNX model, by its name."""
    return Path(file).suffix == ".onnx"
