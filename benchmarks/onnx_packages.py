r"""ONNX files with real weights that packages of PyPI bring, on hloom and on ONNX Runtime.

    pip install --no-deps --target models silero-vad rapidocr rapidocr-onnxruntime magika ddddocr nudenet \
        captcha-whisperer arabic-name-romanizer chython-rxnmap
    python -m hloom.benchmarks.onnx_packages models [--only NAME] [--repeats N] [--seconds S] [--threads N]

Each file runs on random inputs of sizes that its package uses. Steps alternate, on one thread each; the lowest CPU time
counts, with several threads the lowest wall time. Prints a table for BRIDGES.md, and after it the files that do not
run or whose outputs differ.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from hloom.benchmarks.onnx_models import HEADER, measure, peer
from hloom.config import config
from hloom.onnx import Port

# Pattern of files: sizes of their inputs where the file leaves them open, by axis or by name; and numbers below which
# integers are. The first that fits.
SIZES: list[tuple[str, dict[str, tuple[int, ...]], int]] = [
    ("*rapidocr*/*_det_*.onnx", {"x": (1, 3, 320, 320)}, 1),
    ("*rapidocr*/*_rec_*.onnx", {"x": (1, 3, 48, 192)}, 1),
    ("*rapidocr*/*_cls_*.onnx", {"x": (1, 3, 48, 192)}, 1),
    ("*silero_vad_16k_sequence.onnx", {"input": (4, 576)}, 1),
    ("*silero_vad*.onnx", {"input": (1, 576), "state": (2, 1, 128)}, 1),
    ("*magika*.onnx", {"bytes": (1, 2048)}, 256),
    ("*ddddocr*.onnx", {"input1": (1, 1, 64, 128)}, 1),
    ("*nudenet*.onnx", {"images": (1, 3, 320, 320)}, 1),
    ("*captcha*.onnx", {"image": (1, 3, 60, 160)}, 1),
    ("*romanizer*/encoder.onnx", {"src": (1, 12), "src_mask": (1, 12)}, 5),
    ("*romanizer*/decoder.onnx",
     {"prefix": (1, 8), "memory": (1, 12, 256), "src_mask": (1, 12), "hidden": (1, 2, 256)}, 5),
    ("*rxnmap*.onnx", {"atoms": (1, 24), "neighbors": (1, 24), "distances": (1, 24, 24), "roles": (1, 24)}, 2),
]  # fmt: skip
RATE = 16000  # the only integer that is not an index: hertz, of `sr`
LIMIT = 5e-3  # of the difference: probabilities near 0, of noise, have the relative error of their exponents
QUANTIZED, STEP = "*common_old.onnx", 5e-2  # a step of its quantization


def inputs_of(file: Path) -> Callable[[Sequence[Port]], dict[str, np.ndarray]]:
    """Random inputs for the ports of a file."""
    fitting = (row for row in SIZES if fnmatch.fnmatch(file.as_posix(), row[0]))
    _, sizes, below = next(fitting, ("", {}, 1))
    random = np.random.default_rng(0)

    def made(port: Port) -> np.ndarray:
        shape = sizes.get(port.name) or tuple(s if isinstance(s, int) else 1 for s in port.shape or ())
        dtype = np.dtype(port.dtype)
        if port.name == "sr":
            return np.array(RATE, dtype)
        if dtype.kind == "b":
            return np.zeros(shape, dtype)
        if dtype.kind in "iu":
            return random.integers(0, below, shape).astype(dtype)
        return (random.standard_normal(shape) * 0.3).astype(dtype)

    return lambda ports: {port.name: made(port) for port in ports}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the packages are")
    parser.add_argument("--only", default="", help="files whose paths contain this")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.0, help="of steps of each file, after these repeats")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    runtime = peer()
    if runtime is None:
        return 2
    config.num_threads = options.threads
    warnings.simplefilter("ignore")
    failed: list[str] = []
    print(HEADER)
    for file in sorted(options.folder.rglob("*.onnx")):
        name = f"{file.relative_to(options.folder).parts[0]}: {file.name}"
        if options.only not in file.as_posix():
            continue
        try:
            row = measure(name, file.read_bytes(), inputs_of(file), runtime, options.repeats, options.threads,
                          options.seconds)  # fmt: skip
        except Exception as error:  # of either library: the table continues
            failed.append(f"{name}: {type(error).__name__}: {str(error)[:300]}")
            continue
        print(row, flush=True)
        if not float(row.split("|")[-2]) <= (STEP if fnmatch.fnmatch(file.name, QUANTIZED) else LIMIT):
            failed.append(f"{name}: another result")
    print(*failed, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
