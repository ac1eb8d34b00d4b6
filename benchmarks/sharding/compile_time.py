"""Seconds to propagate and to partition a training step of 24 transformer layers over 4 x 8 devices.

python -m benchmarks.sharding.compile_time
"""

from __future__ import annotations

import time
from typing import NamedTuple

LAYERS, WIDTH, HEADS, LENGTH, BATCH = 24, 256, 8, 64, 32
MESH = {"data": 4, "model": 8}
REPEATS = 3


class Found(NamedTuple):
    instructions: int
    propagate: float
    partition: float
    collectives: int


def step_module():
    """The module of a step with Adam, its parameters split over the axis model, the batch over data."""
    import hloom as hl
    from hloom.ir.module import Module
    from hloom.ir.spmd.sharding import DeviceMesh, Sharding

    hnp = hl.numpy
    mesh = DeviceMesh(tuple(MESH), tuple(MESH.values()))
    shapes = {
        "q": (WIDTH, HEADS, WIDTH // HEADS), "k": (WIDTH, HEADS, WIDTH // HEADS), "v": (WIDTH, HEADS, WIDTH // HEADS),
        "o": (HEADS, WIDTH // HEADS, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH),
        "bias": (4 * WIDTH,), "scale": (WIDTH,),
    }  # fmt: skip
    split = {"q": 1, "k": 1, "v": 1, "o": 0, "up": 1, "down": 0, "bias": 0}

    def loss(weights, x, y):
        for w in weights:
            h = hl.nn.standardize(x) * w["scale"]
            q, k, v = (hnp.einsum("bsd,dhe->bshe", h, w[name]) for name in "qkv")
            scores = hl.nn.softmax(hnp.einsum("bqhe,bkhe->bhqk", q, k))
            x = x + hnp.einsum("bqhe,hed->bqd", hnp.einsum("bhqk,bkhe->bqhe", scores, v), w["o"])
            x = x + hl.nn.gelu(hl.nn.standardize(x) @ w["up"] + w["bias"]) @ w["down"]
        return hnp.mean((x - y) ** 2)

    def step(weights, state, x, y):
        gradients = hl.grad(loss)(weights, x, y)
        optimizer = hl.optim.adam(1e-3)
        updates, state = optimizer.update(gradients, state, weights)
        return hl.optim.apply_updates(weights, updates), state

    weights = [{n: hl.ShapeDtypeStruct(s, "float32") for n, s in shapes.items()} for _ in range(LAYERS)]
    state = hl.eval_shape(hl.optim.adam(1e-3).init, weights)
    rows = hl.ShapeDtypeStruct((BATCH, LENGTH, WIDTH), "float32")
    entry = hl.jit(step).lower(weights, state, rows, rows).module.entry
    kinds = {s: split.get(n) for n, s in shapes.items()}
    for parameter in entry.parameters:
        dims: list[tuple[str, ...]] = [()] * len(parameter.shape.dims)
        if parameter.shape.dims == (BATCH, LENGTH, WIDTH):
            dims[0] = ("data",)
        elif (d := kinds.get(parameter.shape.dims)) is not None:
            dims[d] = ("model",)
        parameter.sharding = Sharding(mesh, tuple(dims))
    return Module("step", entry, partitions=mesh.size), mesh


def measured() -> Found:
    """The least of a few measurements, in processor time of this thread, which other load does not lengthen."""
    from hloom.compiler.communication import collective_uses
    from hloom.compiler.passes.spmd.collectives import combine_collectives
    from hloom.compiler.passes.spmd.partition import partition
    from hloom.compiler.passes.spmd.propagate import propagate

    module, mesh = step_module()
    seconds: list[list[float]] = [[], []]
    for _ in range(REPEATS):
        start = time.thread_time()
        found = propagate(module)
        seconds[0].append(time.thread_time() - start)
        start = time.thread_time()
        parts = combine_collectives(partition(found))
        seconds[1].append(time.thread_time() - start)
    uses = collective_uses(parts, mesh)
    return Found(len(module.entry.instructions), min(seconds[0]), min(seconds[1]), len(uses))


if __name__ == "__main__":
    print(measured())
