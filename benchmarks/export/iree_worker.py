"""Compiles StableHLO files with IREE and times them on request. Runs in an environment that has iree-base-compiler and
iree-base-runtime, but not hloom: lines "NAME CALLS" on standard input; seconds of
processor time per call on standard output."""

import sys
import time
from pathlib import Path

import iree.compiler as compiler
import iree.runtime as runtime
import numpy as np


def main(folder: Path) -> None:
    functions = {}
    for file in sorted(folder.glob("*.mlir")):
        flags = ["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"]
        code = compiler.compile_str(
            file.read_text(), target_backends=["llvm-cpu"], input_type="stablehlo", extra_args=flags
        )
        config = runtime.Config("local-sync")  # one thread
        module = runtime.load_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, code), config)
        with np.load(file.with_suffix(".npz")) as arrays:
            given = [runtime.asdevicearray(config.device, arrays[f"in{k}"]) for k in range(len(arrays.files))]
        functions[file.stem] = module["main"], given
        function, given = functions[file.stem]
        results = function(*given)
        results = results if isinstance(results, (tuple, list)) else [results]
        np.savez(file.with_suffix(".out.npz"), *[np.asarray(r) for r in results])
    print("ready", flush=True)
    for line in sys.stdin:
        name, calls = line.split()
        function, given = functions[name]
        started = time.process_time()
        for _ in range(int(calls)):
            function(*given)
        print((time.process_time() - started) / int(calls), flush=True)


main(Path(sys.argv[1]))
