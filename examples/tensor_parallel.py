"""A transformer block on a 2 x 2 mesh of data and tensor: the batch is split over one axis, heads and hidden units over
the other.

The block is written for one device. The first matrix of each pair is split by columns and the second by rows, so that a
block needs one sum over the tensor axis for each pair. Run it with

    python examples/tensor_parallel.py
"""

import argparse

import numpy as np
from rich import print as show

import hloom as hl
import hloom.numpy as hnp
from hloom import NamedSharding, P, nn

BATCH, LENGTH, WIDTH, HEADS, HIDDEN = 4, 8, 32, 4, 64
SPECS = {
    "query": P(None, "tensor"),
    "key": P(None, "tensor"),
    "value": P(None, "tensor"),
    "output": P("tensor"),
    "up": P(None, "tensor"),
    "down": P("tensor"),
}


def parameters():
    random = np.random.default_rng(0)
    shapes = dict.fromkeys(SPECS, (WIDTH, WIDTH)) | {"up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}
    return {name: random.normal(size=s).astype(np.float32) / WIDTH**0.5 for name, s in shapes.items()}


def block(w, x):
    """A transformer block of x[batch, length, width]."""
    split = (BATCH, LENGTH, HEADS, WIDTH // HEADS)
    q, k, v = ((x @ w[name]).reshape(split) for name in ("query", "key", "value"))
    weights = nn.softmax(hnp.einsum("bqhd,bkhd->bhqk", q, k) / (WIDTH // HEADS) ** 0.5)
    x = x + hnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ w["output"]
    return x + nn.gelu(x @ w["up"]) @ w["down"]


@hl.jit
def step(w, x, y):
    value, gradient = hl.value_and_grad(lambda w: hnp.mean((block(w, x) - y) ** 2))(w)
    return hl.tree.map(lambda p, g: p - 0.1 * g, w, gradient), value


def run(report=show, steps=3):
    """The largest difference between steps on the mesh and on one device."""
    with hl.config(num_cpu_devices=max(4, hl.config.num_cpu_devices)):
        mesh = hl.make_mesh((2, 2), ("data", "tensor"), hl.sharding.AxisType.Auto)
        random = np.random.default_rng(1)
        x, y = random.normal(size=(2, BATCH, LENGTH, WIDTH)).astype(np.float32)
        whole = parameters()
        split = {name: hl.device_put(p, NamedSharding(mesh, SPECS[name])) for name, p in whole.items()}
        batch = hl.device_put((x, y), NamedSharding(mesh, P("data")))
        report(step.lower(split, *batch).compile().collectives())
        for _ in range(steps):
            (whole, value), (split, found) = step(whole, x, y), step(split, *batch)
        pairs = zip(hl.tree.leaves(whole), hl.tree.leaves(split), strict=True)
        return max(float(hnp.abs(a - np.asarray(b)).max()) for a, b in pairs), abs(float(value) - float(found))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--steps", type=int, default=3, help="steps of training (default: 3)")
    print("parameters within {:.1e} of one device's, loss {:.1e}".format(*run(steps=arguments.parse_args().steps)))
