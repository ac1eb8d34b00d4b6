"""Fully sharded weights: each device keeps a part of every weight, gathers a layer's when it is used, and gets its part
of the sum of the gradients.

The model is written for one device. The weights are split over the axis that splits the batch too; a constraint keeps
the activations split by the batch, so that each layer gathers its weights, and their gradients are reduce-scattered.
Run it with

    python examples/sharded_weights.py [--devices 4]
"""

import argparse

import numpy as np
from rich import print as show

import hloom as hl
import hloom.numpy as hnp
from hloom import NamedSharding, P, lax

BATCH, WIDTH, LAYERS = 32, 64, 3


def make_step(mesh):
    split = NamedSharding(mesh, P("data"))

    def predict(weights, x):
        for w in weights:
            x = lax.with_sharding_constraint(hnp.tanh(x @ w), split)
        return x

    def step(weights, x, y):
        value, gradients = hl.value_and_grad(lambda w: hnp.mean((predict(w, x) - y) ** 2))(weights)
        return [w - g for w, g in zip(weights, gradients, strict=True)], value

    return hl.jit(step, out_shardings=([split] * LAYERS, None))


def run(devices=4, report=show):
    """The largest difference of the weights from one device's after three steps, and the bytes of weights a device."""
    with hl.config(num_cpu_devices=max(devices, hl.config.num_cpu_devices)):
        random = np.random.default_rng(0)
        weights = [random.normal(size=(WIDTH, WIDTH)).astype(np.float32) / WIDTH**0.5 for _ in range(LAYERS)]
        x, y = random.normal(size=(2, BATCH, WIDTH)).astype(np.float32)
        found = {}
        for count in (1, devices):
            mesh = hl.make_mesh((count,), ("data",), hl.sharding.AxisType.Auto)
            step = make_step(mesh)
            state = hl.device_put((weights, x, y), NamedSharding(mesh, P("data")))
            if count > 1:
                report(step.lower(*state).compile().collectives())
            found[count], *batch = state
            for _ in range(3):
                found[count], _ = step(found[count], *batch)
        apart = max(float(np.abs(a - np.asarray(b)).max()) for a, b in zip(found[1], found[devices], strict=True))
        return apart, sum(w.addressable_data(0).nbytes for w in found[devices])


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--devices", type=int, default=4, help="devices of the mesh (default: 4)")
    print("weights within {:.1e} of one device's, {:,} bytes a device".format(*run(arguments.parse_args().devices)))
