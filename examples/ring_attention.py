"""Attention over a sequence that is split over a ring of devices: keys and values go round, nobody has all of them.

Each device has a block of the queries, keys and values. In each of N steps it attends to the block that it holds, joins
the result to what it had by the softmax's running maximum and sum, and hands the block on. Run it with

    python examples/ring_attention.py [--devices 4]
"""

import argparse

import numpy as np
from rich import print as show

import hloom as hl
import hloom.numpy as hnp
from hloom import NamedSharding, P, lax, nn

LENGTH, WIDTH = 64, 16


def attention(q, k, v):
    """softmax(q kᵀ / √d) v of whole arrays."""
    return nn.softmax(q @ k.T / WIDTH**0.5) @ v


def ring_attention(mesh):
    """The same function of arrays whose rows are split over the axis "ring"."""
    size = mesh.shape["ring"]
    around = [(k, (k + 1) % size) for k in range(size)]

    @hl.shard_map(mesh=mesh, in_specs=P("ring"), out_specs=P("ring"))
    def attend(qkv):
        q, k, v = qkv

        def step(state, _):
            k, v, largest, total, result = state
            scores = q @ k.T / WIDTH**0.5
            new = hnp.maximum(largest, scores.max(1))
            weights, scale = hnp.exp(scores - new[:, None]), hnp.exp(largest - new)
            result = result * scale[:, None] + weights @ v
            k, v = lax.ppermute((k, v), "ring", around)
            return (k, v, new, total * scale + weights.sum(1), result), None

        nothing = hnp.zeros(len(q))
        state, _ = lax.scan(step, (k, v, nothing - hnp.inf, nothing, hnp.zeros_like(q)), None, length=size)
        return state[4] / state[3][:, None]

    return lambda q, k, v: attend((q, k, v))


def run(devices=4, report=show):
    """The largest differences between whole and ring attention: of the results, and of the gradients."""
    with hl.config(num_cpu_devices=max(devices, hl.config.num_cpu_devices)):
        mesh = hl.make_mesh((devices,), ("ring",))
        random = np.random.default_rng(0)
        whole = [random.normal(size=(LENGTH, WIDTH)).astype(np.float32) for _ in range(3)]
        split = hl.device_put(whole, NamedSharding(mesh, P("ring")))

        def loss(function):
            return lambda *qkv: (function(*qkv) ** 2).sum()

        forward, both = hl.jit(ring_attention(mesh)), hl.jit(hl.grad(loss(ring_attention(mesh)), (0, 1, 2)))
        report(both.lower(*split).compile().collectives())
        apart = float(hnp.abs(forward(*split) - attention(*whole)).max())
        pairs = zip(both(*split), hl.grad(loss(attention), (0, 1, 2))(*whole), strict=True)
        return apart, max(float(hnp.abs(a - b).max()) for a, b in pairs)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--devices", type=int, default=4, help="devices of the ring (default: 4)")
    print("within {:.1e} of whole attention, gradients {:.1e}".format(*run(arguments.parse_args().devices)))
