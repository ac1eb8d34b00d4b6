"""Networks in ONNX, on hloom and on ONNX Runtime: `python -m hloom.benchmarks.onnx_models [--only NAME]`.

The nine networks that come with the package onnx, with random weights in place of their generated ones, and one image
of 224 × 224. Steps alternate, on one thread each; the lowest CPU time counts. Prints a table for BRIDGES.md.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hloom.config import config
from hloom.onnx import load
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


def measure(name: str, file: Path, runtime: Any, repeats: int) -> str:
    """A row: first call and step of both, in milliseconds, and the greatest difference."""
    model = with_weights(file)
    start = time.perf_counter()
    ours = load(model)
    shape = [s if isinstance(s, int) else 1 for s in ours.inputs[0].shape or ()]
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    mine = np.asarray(ours(x))
    first = time.perf_counter() - start
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    start = time.perf_counter()
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {ours.inputs[0].name: x}
    theirs = session.run(None, feed)[0]
    other = time.perf_counter() - start
    steps: tuple[Callable, Callable] = (lambda: np.asarray(ours(x)), lambda: session.run(None, feed))
    best = [math.inf, math.inf]
    for _ in range(repeats):
        for k, step in enumerate(steps):
            start = time.process_time()
            step()
            best[k] = min(best[k], time.process_time() - start)
    error = float(np.abs(mine - theirs).max() / np.abs(theirs).max())
    return (f"| {name} | {first * 1e3:.0f} | {other * 1e3:.0f} | {best[0] * 1e3:.1f} | {best[1] * 1e3:.1f} | "
            f"{best[1] / best[0]:.2f} | {error:.1e} |")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="networks whose names contain this")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    try:
        # A peer that is measured where it is installed.
        import onnxruntime
    except ImportError:
        print("pip install onnxruntime: the peer of this benchmark", file=sys.stderr)
        return 2
    config.num_threads = 1
    print("| network | load and first call, ms | ONNX Runtime | step, ms | ONNX Runtime | ratio | difference |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, file in networks():
        if options.only in name:
            print(measure(name, file, onnxruntime, options.repeats), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
