"""Networks in ONNX, on hloom and on ONNX Runtime: `python -m hloom.benchmarks.onnx_models [--only NAME]`.

The nine networks that come with the package onnx, with random weights in place of their generated ones, and one image
of 224 × 224. Steps alternate, on one thread each; the lowest CPU time counts. Prints a table for BRIDGES.md.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hloom.config import config
from hloom.onnx import Model, Outputs, Port, load
from hloom.onnx.reader import package


def networks() -> list[tuple[str, Path]]:
    """(name, file) of the networks that come with onnx."""
    folder = Path(package().__file__).parent / "backend" / "test" / "data" / "light"
    return [(p.stem.removeprefix("light_"), p) for p in sorted(folder.glob("*.onnx"))]


def with_weights(file: Path) -> Any:
    """The model with initializers in place of the nodes that make its weights: random, of variance 2 / fan-in."""
    onnx = package()
    model = onnx.load(str(file))
    random = np.random.default_rng(0)
    values = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        shape = values.get(node.input[0]) if node.op_type == "ConstantOfShape" else None
        if shape is None:
            kept.append(node)
            continue
        fan = max(1, int(np.prod(shape[1:])))
        array = (
            random.standard_normal(tuple(shape)) * math.sqrt(2 / fan)
            if len(shape) > 1
            else random.random(tuple(shape)) + 0.5
        )
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def image(ports: Sequence[Port]) -> dict[str, np.ndarray]:
    """Random numbers for the one input of a network."""
    shape = [s if isinstance(s, int) else 1 for s in ports[0].shape or ()]
    return {ports[0].name: np.random.default_rng(1).standard_normal(shape).astype(np.float32)}


def measure(
    name: str,
    model: bytes,
    inputs: Callable[[Sequence[Port]], dict],
    runtime: Any,
    repeats: int,
    threads: int = 1,
    seconds: float = 0,
) -> str:
    """A row: first call and step of both, in milliseconds, their ratio, and the greatest difference of an output
    relative to its greatest number. inputs: by name, for the ports of the model. Steps are CPU time, of several threads
    wall time, where those of ONNX Runtime do not spin between steps; seconds: for which steps go on after `repeats`."""
    start = time.perf_counter()
    ours = load(model)
    feed = inputs(ours.inputs)
    mine = run(ours, feed)
    first = time.perf_counter() - start
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    if threads > 1:  # they would take the other's processor
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    start = time.perf_counter()
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    theirs = session.run(None, feed)
    other = time.perf_counter() - start
    steps: tuple[Callable, Callable] = (lambda: run(ours, feed), lambda: session.run(None, feed))
    clock = time.process_time if threads == 1 else time.perf_counter
    best, end = [math.inf, math.inf], time.perf_counter() + seconds
    while repeats > 0 or time.perf_counter() < end:
        repeats -= 1
        for k, step in enumerate(steps):
            start = clock()
            step()
            best[k] = min(best[k], clock() - start)
    error = max(difference(a, b) for a, b in zip(mine, theirs, strict=True))
    return (f"| {name} | {first * 1e3:.0f} | {other * 1e3:.0f} | {best[0] * 1e3:.3g} | {best[1] * 1e3:.3g} | "
            f"{best[1] / best[0]:.2f} | {error:.1e} |")  # fmt: skip


def run(model: Model, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs, as NumPy arrays."""
    found = model(**feed)
    return list(map(np.asarray, found)) if isinstance(found, Outputs) else [np.asarray(found)]


def difference(mine: np.ndarray, theirs: np.ndarray) -> float:
    """The greatest difference, relative to the greatest number."""
    if mine.shape != theirs.shape:
        return math.inf
    wide = [a.astype(np.float64) for a in (mine, theirs)]
    return float(np.abs(wide[0] - wide[1]).max(initial=0) / max(np.abs(wide[1]).max(initial=0), 1e-30))


HEADER = """| network | load and first call, ms | ONNX Runtime | step, ms | ONNX Runtime | ratio | difference |
| --- | --- | --- | --- | --- | --- | --- |"""


def peer() -> Any:
    """ONNX Runtime; None, with a line that says so, where it is not installed."""
    try:
        # A peer that is measured where it is installed.
        import onnxruntime
    except ImportError:
        print("pip install onnxruntime: the peer of this benchmark", file=sys.stderr)
        return None
    return onnxruntime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="networks whose names contain this")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    runtime = peer()
    if runtime is None:
        return 2
    config.num_threads = 1
    print(HEADER)
    for name, file in networks():
        if options.only in name:
            model = with_weights(file).SerializeToString()
            print(measure(name, model, image, runtime, options.repeats), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
