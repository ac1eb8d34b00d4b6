"""A pipeline of four stages, a device each: micro-batches go through it one after the other, gradients come back.

In each step every stage works on a micro-batch of its own and hands the result to the next one. The loop takes
micro-batches + stages - 1 steps; its derivative is the same pipeline run backwards. Run it with

    python examples/pipeline.py [--micro-batches 8]
"""

import argparse

import numpy as np
from rich import print as show

import hloom as hl
import hloom.numpy as hnp
from hloom import NamedSharding, P, lax

STAGES, WIDTH, ROWS = 4, 16, 4


def stage(w, x):
    return hnp.tanh(x @ w)


def whole(weights, batches):
    """All stages on one device: weights[stage, width, width], batches[micro-batch, rows, width]."""
    for w in weights:
        batches = stage(w, batches)
    return batches


def pipeline(mesh, count):
    """The same for a device a stage and `count` micro-batches."""
    onward = [(k, k + 1) for k in range(STAGES - 1)]

    @hl.shard_map(mesh=mesh, in_specs=(P("stage"), P()), out_specs=P())
    def run(weights, batches):
        own, first = weights[0], lax.axis_index("stage") == 0
        last = lax.axis_index("stage") == STAGES - 1

        def step(received, number):
            x = hnp.where(first, batches[hnp.minimum(number, count - 1)], received)
            y = stage(own, x)
            return lax.ppermute(y, "stage", onward), y

        _, results = lax.scan(step, hnp.zeros((ROWS, WIDTH)), hnp.arange(count + STAGES - 1))
        # The last stage has micro-batch k after step k + stages - 1.
        return lax.psum(hnp.where(last, results[STAGES - 1 :], 0), "stage")

    return run


def compare(count=8, report=show):
    """The largest differences between the pipeline and one device: of the loss, and of the gradients."""
    with hl.config(num_cpu_devices=max(STAGES, hl.config.num_cpu_devices)):
        mesh = hl.make_mesh((STAGES,), ("stage",))
        random = np.random.default_rng(0)
        weights = random.normal(size=(STAGES, WIDTH, WIDTH)).astype(np.float32) / WIDTH**0.5
        batches, goals = random.normal(size=(2, count, ROWS, WIDTH)).astype(np.float32)

        def loss(forward):
            return hl.jit(hl.value_and_grad(lambda w, x: hnp.mean((forward(w, x) - goals) ** 2)))

        staged = hl.device_put(weights, NamedSharding(mesh, P("stage")))
        over_stages = loss(pipeline(mesh, count))
        report(over_stages.lower(staged, batches).compile().collectives())
        (value, gradient), (expected, wanted) = over_stages(staged, batches), loss(whole)(weights, batches)
        return abs(float(value) - float(expected)), float(np.abs(np.asarray(gradient) - wanted).max())


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--micro-batches", type=int, default=8)
    print("loss within {:.1e} of one device's, gradients {:.1e}".format(*compare(arguments.parse_args().micro_batches)))
