"""TensorFlow 1.0's rate of the multi-GPU listing: images per second of its network, on this machine's CPU devices.

python examples/tf1/lenet_rate.py [--towers 1 2] [--batch 100]
"""

import argparse
import time

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom import nn, optim
from hloom.nn.losses import softmax_cross_entropy_with_integer_labels


def network():
    k = hl.random.split(hl.random.key(0), 4)
    return nn.Sequential(
        nn.Conv(1, 32, (5, 5), key=k[0]), nn.relu, nn.MaxPool((2, 2)),
        nn.Conv(32, 64, (5, 5), key=k[1]), nn.relu, nn.MaxPool((2, 2)), nn.Flatten(),
        nn.Linear(3136, 512, key=k[2]), nn.relu, nn.Linear(512, 10, key=k[3]),
    )  # fmt: skip


def make_step(optimizer, towers):
    def loss(model, x, y):
        return hnp.mean(softmax_cross_entropy_with_integer_labels(model(x), y))

    @hl.jit
    def step(model, state, xs, ys):
        found = []
        for k in range(towers):
            with hl.device(f"cpu:{k}"), hl.named_scope(f"tower_{k}"):
                found.append(hl.value_and_grad(loss)(model, xs[k], ys[k]))
        with hl.device("cpu:0"):
            gradient = hl.tree.map(lambda *g: sum(g) / towers, *(g for _, g in found))
            updates, state = optimizer.update(gradient, state, model)
            return optim.apply_updates(model, updates), state, found[-1][0]

    return step


def main(towers=(1, 2), batch=100, repeats=10, report=print):
    """Returns images per second for each number of towers."""
    rng, found = np.random.default_rng(0), []
    with hl.config(num_cpu_devices=max(*towers, hl.config.num_cpu_devices)):
        for count in towers:
            optimizer = optim.sgd(1e-2)
            model = hl.device_put(network(), "cpu:0")
            state, step = optimizer.init(model), make_step(optimizer, count)
            xs = rng.random((count, batch, 28, 28, 1), np.float32)
            ys = rng.integers(0, 10, (count, batch)).astype(np.int32)
            times = []
            for _ in range(repeats + 2):
                started = time.perf_counter()
                model, state, value = step(model, state, xs, ys)
                float(value)
                times.append(time.perf_counter() - started)
            seconds = sorted(times[2:])[repeats // 2]
            found.append(batch * count / seconds)
            report(f"{count} towers: {found[-1]:.0f} images/s, {seconds * 1e3:.1f} ms per step")
    return found


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--towers", type=int, nargs="+", default=[1, 2])
    arguments.add_argument("--batch", type=int, default=100)
    given = arguments.parse_args()
    main(tuple(given.towers), given.batch)
