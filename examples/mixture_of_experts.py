"""A mixture of experts, one a device: tokens are sent to the expert that a router chooses, and come back.

Each device routes its share of the tokens. It packs them into a box for each expert, with room for a fixed number; an
all-to-all brings every box to its expert, a second one back. Run it with

    python examples/mixture_of_experts.py [--devices 4]
"""

import argparse

import numpy as np
from rich import print as show

import hloom as hl
import hloom.numpy as hnp
from hloom import NamedSharding, P, lax, nn

TOKENS, WIDTH, HIDDEN = 64, 16, 32


def whole(router, up, down, x):
    """Every token through its expert, on one device: up[expert, width, hidden], down[expert, hidden, width]."""
    chosen = nn.softmax(x @ router)
    expert = hnp.argmax(chosen, 1)
    outputs = hnp.einsum("teh,ehw->tew", hnp.tanh(hnp.einsum("tw,ewh->teh", x, up)), down)
    gate = hnp.take_along_axis(chosen, expert[:, None], 1)
    return gate * hnp.take_along_axis(outputs, expert[:, None, None], 1)[:, 0]


def experts(mesh):
    """The same with an expert a device. A box has room for all tokens of a device, so that none is lost."""
    count = mesh.shape["expert"]
    split = P("expert")

    @hl.shard_map(mesh=mesh, in_specs=(P(), split, split, split), out_specs=split)
    def mixture(router, up, down, x):
        chosen = nn.softmax(x @ router)
        expert = hnp.argmax(chosen, 1)
        where = nn.one_hot(expert, count)  # [token, expert]
        place = hnp.cumsum(where, 0) * where - where  # how many tokens are before it in its box
        boxed = where[:, :, None] * nn.one_hot(place.sum(1).astype("s32"), len(x))[:, None]  # [token, expert, place]
        boxes = hnp.einsum("tw,tep->epw", x, boxed)
        arrived = lax.all_to_all(boxes, "expert", 0, 0, tiled=True).reshape(-1, WIDTH)
        results = (hnp.tanh(arrived @ up[0]) @ down[0]).reshape(boxes.shape)
        back = lax.all_to_all(results, "expert", 0, 0, tiled=True)
        return hnp.einsum("epw,tep->tw", back, boxed) * hnp.max(chosen, 1, keepdims=True)

    return mixture


def run(devices=4, report=show):
    """The largest differences from one device: of the results, and of the gradients with respect to all weights."""
    with hl.config(num_cpu_devices=max(devices, hl.config.num_cpu_devices)):
        mesh = hl.make_mesh((devices,), ("expert",))
        random = np.random.default_rng(0)
        shapes = (WIDTH, devices), (devices, WIDTH, HIDDEN), (devices, HIDDEN, WIDTH), (TOKENS, WIDTH)
        arrays = [random.normal(size=s).astype(np.float32) / 2 for s in shapes]
        specs = [P(), P("expert"), P("expert"), P("expert")]
        split = [hl.device_put(a, NamedSharding(mesh, s)) for a, s in zip(arrays, specs, strict=True)]

        def gradient(function):
            return hl.jit(hl.grad(lambda *a: (function(*a) ** 2).sum(), (0, 1, 2)))

        mixture = hl.jit(experts(mesh))
        report(mixture.lower(*split).compile().collectives())
        apart = np.abs(np.asarray(mixture(*split)) - whole(*arrays)).max()
        pairs = zip(gradient(experts(mesh))(*split), gradient(whole)(*arrays), strict=True)
        return float(apart), max(float(np.abs(np.asarray(a) - b).max()) for a, b in pairs)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--devices", type=int, default=4, help="experts (default: 4)")
    print("within {:.1e} of one device's, gradients {:.1e}".format(*run(arguments.parse_args().devices)))
