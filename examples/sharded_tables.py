"""Arrays too large for a device: an embedding table split by vocabulary, and k-means of points split by rows.

Both are written for one device; only the arrays are laid out. Looking words up in the table, each device finds those
that it has, and the rest is a sum. Of k-means' points each device adds up its own. Run it with

    python examples/sharded_tables.py [--devices 4]
"""

import argparse

import numpy as np
from rich import print as show

import hloom as hl
import hloom.numpy as hnp
from hloom import NamedSharding, P, nn

VOCABULARY, WIDTH, WORDS, POINTS, CENTRES = 64, 8, 24, 120, 3


@hl.jit
def train_table(table, words, goals):
    """A step of gradient descent on the table so that words have the goals as vectors."""
    value, gradient = hl.value_and_grad(lambda t: hnp.mean((t[words] - goals) ** 2))(table)
    return table - 10 * gradient, value


@hl.jit
def move_centres(centres, points):
    """A step of k-means: each centre to the mean of the points that are nearest to it."""
    distances = ((points[:, None] - centres) ** 2).sum(2)
    nearest = nn.one_hot(hnp.argmin(distances, 1), CENTRES)
    return (nearest.T @ points) / nearest.sum(0)[:, None], distances.min(1).mean()


def run(devices=4, report=show):
    """The largest differences from one device: of the table, and of the centres."""
    with hl.config(num_cpu_devices=max(devices, hl.config.num_cpu_devices)):
        mesh = hl.make_mesh((devices,), ("part",), hl.sharding.AxisType.Auto)
        rows = NamedSharding(mesh, P("part"))
        random = np.random.default_rng(0)
        table = random.normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
        words, goals = random.integers(0, VOCABULARY, WORDS), random.normal(size=(WORDS, WIDTH)).astype(np.float32)
        middles = 4 * random.normal(size=(CENTRES, 1, 2)).astype(np.float32)
        points = (middles + random.normal(size=(CENTRES, POINTS // CENTRES, 2))).astype(np.float32).reshape(POINTS, 2)
        found = {"table": hl.device_put(table, rows), "centres": points[:: POINTS // CENTRES]}
        expected = {"table": table, "centres": points[:: POINTS // CENTRES]}
        split = hl.device_put(points, rows)
        report("table:", train_table.lower(found["table"], words, goals).compile().collectives())
        report("k-means:", move_centres.lower(found["centres"], split).compile().collectives())
        for _ in range(5):
            expected["table"], _ = train_table(expected["table"], words, goals)
            found["table"], _ = train_table(found["table"], words, goals)
            expected["centres"], _ = move_centres(expected["centres"], points)
            found["centres"], _ = move_centres(found["centres"], split)
        assert found["table"].sharding == rows
        return tuple(float(np.abs(np.asarray(found[n]) - np.asarray(expected[n])).max()) for n in found)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--devices", type=int, default=4, help="devices of the mesh (default: 4)")
    print("table within {:.1e} of one device's, centres {:.1e}".format(*run(arguments.parse_args().devices)))
