"""The heat equation on a plate that is cut into blocks, a device each: neighbours exchange the edges of their blocks.

Each step of the explicit scheme needs one row or column of each neighbour. The program is written twice: with
`ppermute` in a `shard_map`, and as for one device, with shifted slices of a laid-out array. Run it with

    python examples/heat.py
"""

import argparse

import numpy as np
from rich import print as show

import hloom as hl
import hloom.numpy as hnp
from hloom import NamedSharding, P, lax

SIZE, RATE = 32, 0.2


def step(u):
    """One step on the whole plate, whose surroundings have the temperature 0."""
    wide = hnp.pad(u, 1)
    around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
    return u + RATE * (around - 4 * u)


def halo_step(mesh):
    """One step on blocks."""

    def edges(block, axis, name):
        """The block with a row of the neighbours in front and behind along an axis; devices at the end get zeros."""
        size = mesh.shape[name]
        first = lax.slice_in_dim(block, 0, 1, axis=axis)
        last = lax.slice_in_dim(block, block.shape[axis] - 1, block.shape[axis], axis=axis)
        before = lax.ppermute(last, name, [(k, k + 1) for k in range(size - 1)])
        behind = lax.ppermute(first, name, [(k + 1, k) for k in range(size - 1)])
        return hnp.concatenate([before, block, behind], axis)

    @hl.shard_map(mesh=mesh, in_specs=P("y", "x"), out_specs=P("y", "x"))
    def blocks(u):
        tall, wide = edges(u, 0, "y"), edges(u, 1, "x")
        return u + RATE * (tall[:-2] + tall[2:] + wide[:, :-2] + wide[:, 2:] - 4 * u)

    return blocks


def run(report=show, steps=100):
    """The largest differences from one device after 100 steps: of the blocks, and of the laid-out program."""
    with hl.config(num_cpu_devices=max(4, hl.config.num_cpu_devices)):
        mesh = hl.make_mesh((2, 2), ("y", "x"), hl.sharding.AxisType.Auto)
        plate = np.zeros((SIZE, SIZE), np.float32)
        plate[SIZE // 4 : SIZE // 2, SIZE // 3 :] = 1
        split = hl.device_put(plate, NamedSharding(mesh, P("y", "x")))

        def simulate(one_step):
            return hl.jit(lambda u: lax.fori_loop(0, steps, lambda _, u: one_step(u), u))

        blocks = simulate(halo_step(mesh))
        report(blocks.lower(split).compile().collectives())
        expected = np.asarray(simulate(step)(plate))
        return tuple(float(np.abs(np.asarray(f(split)) - expected).max()) for f in (blocks, simulate(step)))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--steps", type=int, default=100, help="steps of the simulation (default: 100)")
    found = run(steps=arguments.parse_args().steps)
    print("blocks within {:.1e} of one device's plate, the laid-out program {:.1e}".format(*found))
