"""Inception-v3, whole (Szegedy et al., 2015), on JPEG files that are distorted on the way; on one device or in towers.

Weights of torchvision's `inception_v3` are read from a safetensors file.

    python examples/tf1/inception.py [--size 107] [--batch 4] [--towers 2] [--weights inception_v3.safetensors]
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

import hloom as hl
import hloom.numpy as hnp
from hloom import nn, optim
from hloom.nn.losses import softmax_cross_entropy_with_integer_labels

CLASSES = 10


class Unit(nn.Module):
    """A convolution without bias, batch normalization, relu."""

    conv: nn.Module
    bn: nn.Module

    def __init__(self, key, inputs, outputs, window, stride=1, padding="VALID"):
        self.conv = nn.Conv(inputs, outputs, window, strides=stride, padding=padding, use_bias=False, key=key)
        self.bn = nn.BatchNorm(outputs, epsilon=1e-3)

    def __call__(self, x):
        return nn.relu(self.bn(self.conv(x)))


def units(keys, inputs, *rows, stride=1, padding="SAME"):
    """Convolutions one after the other: rows of (outputs, window); the stride is that of the last one."""
    found = []
    for k, (outputs, window) in enumerate(rows):
        last = k + 1 == len(rows)
        found.append(Unit(next(keys), inputs, outputs, window, stride if last else 1, padding if last else "SAME"))
        inputs = outputs
    return nn.Sequential(*found)


class Mixed(nn.Module):
    """Branches whose channels are joined; `pool` is what a branch without convolutions, or its first step, does."""

    branches: list

    def __init__(self, *branches):
        self.branches = list(branches)

    def __call__(self, x):
        return hnp.concatenate([branch(x) for branch in self.branches], axis=-1)


def average(keys, inputs, outputs):
    return nn.Sequential(nn.AvgPool((3, 3), (1, 1), "SAME"), Unit(next(keys), inputs, outputs, (1, 1)))


def mixed_a(k, c, pool):
    one, three, five = (1, 1), (3, 3), (5, 5)
    return Mixed(units(k, c, (64, one)), units(k, c, (48, one), (64, five)),
                 units(k, c, (64, one), (96, three), (96, three)), average(k, c, pool))  # fmt: skip


def mixed_b(k, c):
    return Mixed(units(k, c, (384, (3, 3)), stride=2, padding="VALID"),
                 units(k, c, (64, (1, 1)), (96, (3, 3)), (96, (3, 3)), stride=2, padding="VALID"),
                 nn.MaxPool((3, 3), (2, 2)))  # fmt: skip


def mixed_c(k, c, m):
    row, column = (1, 7), (7, 1)
    return Mixed(units(k, c, (192, (1, 1))), units(k, c, (m, (1, 1)), (m, row), (192, column)),
                 units(k, c, (m, (1, 1)), (m, column), (m, row), (m, column), (192, row)),
                 average(k, c, 192))  # fmt: skip


def mixed_d(k, c):
    return Mixed(units(k, c, (192, (1, 1)), (320, (3, 3)), stride=2, padding="VALID"),
                 units(k, c, (192, (1, 1)), (192, (1, 7)), (192, (7, 1)), (192, (3, 3)), stride=2, padding="VALID"),
                 nn.MaxPool((3, 3), (2, 2)))  # fmt: skip


def mixed_e(k, c):
    def fork(inputs):
        return Mixed(
            Unit(next(k), inputs, 384, (1, 3), padding="SAME"), Unit(next(k), inputs, 384, (3, 1), padding="SAME")
        )

    return Mixed(units(k, c, (320, (1, 1))), nn.Sequential(Unit(next(k), c, 384, (1, 1)), fork(384)),
                 nn.Sequential(*units(k, c, (448, (1, 1)), (384, (3, 3))).layers, fork(384)),
                 average(k, c, 192))  # fmt: skip


def inception(key, classes=CLASSES):
    k = iter(hl.random.split(key, 100))
    return nn.Sequential(
        Unit(next(k), 3, 32, (3, 3), 2), Unit(next(k), 32, 32, (3, 3)), Unit(next(k), 32, 64, (3, 3), padding="SAME"),
        nn.MaxPool((3, 3), (2, 2)),
        Unit(next(k), 64, 80, (1, 1)), Unit(next(k), 80, 192, (3, 3)), nn.MaxPool((3, 3), (2, 2)),
        mixed_a(k, 192, 32), mixed_a(k, 256, 64), mixed_a(k, 288, 64),
        mixed_b(k, 288), mixed_c(k, 768, 128), mixed_c(k, 768, 160), mixed_c(k, 768, 160), mixed_c(k, 768, 192),
        mixed_d(k, 768), mixed_e(k, 1280), mixed_e(k, 2048),
        lambda x: hnp.mean(x, axis=(1, 2)), nn.Linear(2048, classes, key=next(k)),
    )  # fmt: skip


# --- pretrained weights ----------------------------------------------------------------------------------------------

A = "branch1x1 branch5x5_1 branch5x5_2 branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3 branch_pool"
B = "branch3x3 branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3"
C = ("branch1x1 branch7x7_1 branch7x7_2 branch7x7_3 branch7x7dbl_1 branch7x7dbl_2 branch7x7dbl_3 branch7x7dbl_4 "
     "branch7x7dbl_5 branch_pool")  # fmt: skip
D = "branch3x3_1 branch3x3_2 branch7x7x3_1 branch7x7x3_2 branch7x7x3_3 branch7x7x3_4"
E = ("branch1x1 branch3x3_1 branch3x3_2a branch3x3_2b branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3a branch3x3dbl_3b "
     "branch_pool")  # fmt: skip
STEM = "Conv2d_1a_3x3 Conv2d_2a_3x3 Conv2d_2b_3x3 Conv2d_3b_1x1 Conv2d_4a_3x3".split()
BLOCKS = {"5b": A, "5c": A, "5d": A, "6a": B, "6b": C, "6c": C, "6d": C, "6e": C, "7a": D, "7b": E, "7c": E}
NAMES = STEM + [f"Mixed_{block}.{branch}" for block, names in BLOCKS.items() for branch in names.split()]


def is_unit(value):
    return isinstance(value, Unit)


def with_weights(model, path):
    """The network with the weights of a file, by torchvision's names. A last layer of other classes stays as it is."""
    found, names = hl.checkpoints.load_safetensors(path), iter(NAMES)

    def loaded(part):
        if isinstance(part, nn.Linear):
            weight = found["fc.weight"].T
            return part.replace(kernel=weight, bias=found["fc.bias"]) if weight.shape == part.kernel.shape else part
        if not is_unit(part):
            return part
        name = next(names)
        kernel = hnp.transpose(found[f"{name}.conv.weight"], (2, 3, 1, 0))  # torch: outputs, inputs, rows, columns
        called = {"scale": "weight", "bias": "bias", "mean": "running_mean", "variance": "running_var"}
        bn = {ours: found[f"{name}.bn.{theirs}"] for ours, theirs in called.items()}
        return part.replace(conv=part.conv.replace(kernel=kernel), bn=part.bn.replace(**bn))

    return hl.tree.map(loaded, model, is_leaf=lambda part: isinstance(part, (Unit, nn.Linear)))


# --- pictures --------------------------------------------------------------------------------------------------------


def write_pictures(folder, count):
    """JPEG files, one color for each class, as no pictures come with hloom."""
    rng = np.random.default_rng(0)
    colors = rng.integers(0, 255, (CLASSES, 3))
    for k in range(count):
        pixels = np.clip(colors[k % CLASSES] + rng.normal(0, 30, (160, 160, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(Path(folder, f"{k % CLASSES}_{k}.jpg"))


def read(path, size):
    """A picture, a little larger than the network takes, and its class."""
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB").resize((size + 8, size + 8)), np.float32) / 127.5 - 1
    return pixels, np.int32(path.name.split("_")[0])


def distorted(key, pictures, size):
    """Cut out at random places, mirrored at random, with random brightness."""

    def one(key, picture):
        place, mirror, light = hl.random.split(key, 3)
        row, column = hl.random.randint(place, (2,), 0, 9)
        picture = hl.lax.dynamic_slice(picture, (row, column, 0), (size, size, 3))
        picture = hnp.where(hl.random.bernoulli(mirror), picture[:, ::-1], picture)
        return hnp.clip(picture + hl.random.uniform(light, (), minval=-0.2, maxval=0.2), -1, 1)

    return hl.vmap(one)(hl.random.split(key, len(pictures)), pictures)


def train(size=107, batch=4, towers=1, steps=3, weights=None, report=print):
    """Returns the losses."""
    optimizer = optim.rmsprop(0.01, decay=0.9, eps=1.0)

    def loss(model, x, y):
        logits, changed = nn.apply(model, x, training=True)
        return hnp.mean(softmax_cross_entropy_with_integer_labels(logits, y)), changed

    @hl.jit
    def step(model, state, key, x, y):
        found = []
        for k, (some, classes) in enumerate(zip(hnp.split(x, towers), hnp.split(y, towers), strict=True)):
            with hl.device(f"cpu:{k}"), hl.named_scope(f"tower_{k}"):
                pictures = distorted(hl.random.fold_in(key, k), some, size)
                found.append(hl.value_and_grad(loss, has_aux=True)(model, pictures, classes))
        with hl.device("cpu:0"):
            gradient = hl.tree.map(lambda *g: sum(g) / towers, *(g for _, g in found))
            updates, state = optimizer.update(gradient, state, model)
            changed = found[0][0][1]  # the first tower's running statistics
            return optim.apply_updates(changed, updates), state, sum(value for (value, _), _ in found) / towers

    with tempfile.TemporaryDirectory() as folder, hl.config(num_cpu_devices=max(towers, hl.config.num_cpu_devices)):
        write_pictures(folder, 4 * batch)
        files = sorted(Path(folder).glob("*.jpg"))
        data = hl.data.sequence(files).shuffle(len(files), seed=0).map(lambda path: read(path, size))
        batches = iter(data.batch(batch, last="drop").repeat().prefetch())
        model = inception(hl.random.key(0))
        model = model if weights is None else with_weights(model, weights)
        model, state = hl.device_put((model, optimizer.init(model)), "cpu:0")
        losses = []
        report(f"{sum(p.size for p in hl.tree.leaves(model)) / 1e6:.1f} million parameters")
        for k in range(steps):
            started = time.perf_counter()
            model, state, value = step(model, state, hl.random.key(k), *next(batches))
            losses.append(float(value))
            report(f"step {k}  loss {losses[-1]:.3f}  {time.perf_counter() - started:.2f} s")
    return losses


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--size", type=int, default=107, help="of pictures, at least 75 (default: 107; paper: 299)")
    arguments.add_argument("--batch", type=int, default=4)
    arguments.add_argument("--towers", type=int, default=1)
    arguments.add_argument("--steps", type=int, default=3)
    arguments.add_argument("--weights", help="a safetensors file of torchvision's inception_v3")
    given = arguments.parse_args()
    train(given.size, given.batch, given.towers, given.steps, given.weights)
