"""Data-parallel training on a mesh, written twice: with a tower on each device, and with a batch that is laid out.

The towers are a `shard_map`: each device computes the gradient of its share of a batch, and `pmean` averages them. The
second step is the one of a single device; only its batch is split, and the compiler finds the same all-reduce. Both do
the same training, to rounding. Run it with

    python examples/sharded_digits.py [--devices 4]
"""

import argparse

import numpy as np
from digits import accuracy, initial_parameters, load, loss
from rich import print as show

import hloom as hl
import hloom.numpy as hnp
from hloom import NamedSharding, P, lax

BATCH, EPOCHS, RATE = 64, 20, 0.1


def make_steps(mesh):
    """The two training steps: (parameters, images, labels) -> (parameters, loss)."""

    def updated(parameters, gradient):
        return hl.tree.map(lambda p, g: p - RATE * g, parameters, gradient)

    @hl.jit
    @hl.shard_map(mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=P())
    def towers(parameters, images, labels):
        value, gradient = hl.value_and_grad(loss)(parameters, images, labels)
        return updated(parameters, lax.pmean(gradient, "data")), lax.pmean(value, "data")

    @hl.jit
    def split_batch(parameters, images, labels):
        value, gradient = hl.value_and_grad(loss)(parameters, images, labels)
        return updated(parameters, gradient), value

    return {"towers": towers, "split batch": split_batch}


def train(devices=4, epochs=EPOCHS, report=show):
    """Trains; returns the accuracy on the held-out fifth by step, and how far their parameters are apart."""
    images, labels, held_images, held_labels = load()
    with hl.config(num_cpu_devices=max(devices, hl.config.num_cpu_devices)):
        mesh = hl.make_mesh((devices,), ("data",), hl.sharding.AxisType.Auto)
        batches, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
        steps = make_steps(mesh)
        parameters = dict.fromkeys(steps, hl.device_put(initial_parameters(), whole))
        for name, step in steps.items():
            some = hl.device_put((images[:BATCH], labels[:BATCH]), batches)
            report(f"{name}:", step.lower(parameters[name], *some).compile().collectives())
        random = np.random.default_rng(2)
        for epoch in range(1, epochs + 1):
            order = random.permutation(len(labels))
            for start in range(0, len(order) - BATCH + 1, BATCH):
                chosen = order[start : start + BATCH]
                batch = hl.device_put((images[chosen], labels[chosen]), batches)
                for name, step in steps.items():
                    parameters[name], value = step(parameters[name], *batch)
            if epoch % 10 == 0:
                report(f"epoch {epoch:3d}  loss {float(value):.4f}")
        pairs = zip(*map(hl.tree.leaves, parameters.values()), strict=True)
        apart = max(float(hnp.max(hnp.abs(a - b))) for a, b in pairs)
        return {name: float(accuracy(p, held_images, held_labels)) for name, p in parameters.items()}, apart


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--devices", type=int, default=4, help="devices of the mesh (default: 4)")
    found, apart = train(arguments.parse_args().devices)
    print(f"accuracy on the held-out fifth: {found}; parameters within {apart:.1e} of each other")
