"""TensorFlow 1.0's first feature: the compiler fuses operations, which saves time and memory.

python examples/tf1/fused.py [--rows 4096]
"""

import argparse
import time

import numpy as np

import hloom as hl
import hloom.numpy as hnp


def layer(x, w, b):
    h = hnp.tanh(x @ w + b)
    return hnp.sum(hl.nn.softmax(h * 2 + 1) * h)


def main(rows=4096, report=print):
    """Returns (milliseconds, kernels, bytes of temporaries) of the layer's gradient, fused and not."""
    rng = np.random.default_rng(0)
    x, w, b = (rng.random(s, np.float32) for s in ((rows, 512), (512, 512), (512,)))
    found = []
    for fusion in (True, False):
        gradient = hl.jit(hl.grad(layer, argnums=(1, 2)), fusion=fusion)
        compiled = gradient.lower(x, w, b).compile()
        hl.block_until_ready(gradient(x, w, b))
        times = []
        for _ in range(10):
            started = time.perf_counter()
            hl.block_until_ready(gradient(x, w, b))
            times.append(time.perf_counter() - started)
        cost, memory = compiled.cost_analysis(), compiled.memory_analysis()
        found.append((sorted(times)[5] * 1e3, cost["kernels"], memory["temporary bytes"]))
        report(f"{'fused' if fusion else 'unfused':8} {found[-1][0]:.2f} ms, {cost}, {memory}")
    return found


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--rows", type=int, default=4096)
    main(arguments.parse_args().rows)
