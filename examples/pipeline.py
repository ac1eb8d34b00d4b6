"""A pipeline of four stages, a device each: micro-batches go through it one after the other, gradients come back.

In each step every stage works on a micro-batch of its own and hands the result to the next one. The loop takes
micro-batches + stages - 1 steps; its derivative is the same pipeline run backwards, for which each stage keeps
something of every micro-batch.

The second form is 1F1B (one forward, one backward): in each step a stage works forwards on one micro-batch and
backwards on an earlier one, so that it keeps the inputs of 2 stages - 1 micro-batches, however many there are. Run it
with

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


def one_forward_one_backward(mesh, count):
    """(weights, micro-batches, goals) -> (the mean squared error, its gradient), by a 1F1B schedule."""
    onward = [(k, k + 1) for k in range(STAGES - 1)]
    back = [(k + 1, k) for k in range(STAGES - 1)]
    slots = 2 * STAGES - 1

    @hl.shard_map(mesh=mesh, in_specs=(P("stage"), P(), P()), out_specs=(P(), P("stage")))
    def run(weights, batches, goals):
        own, number = weights[0], lax.axis_index("stage")
        last = number == STAGES - 1

        def step(state, time):
            received, cotangent, kept, gradient, total = state
            # Forwards: stage k has micro-batch n at time n + k. Before and after its micro-batches it computes in vain.
            n = time - number
            x = hnp.where(number == 0, batches[hnp.clip(n, 0, count - 1)], received)
            y, kept = stage(own, x), kept.at[n % slots].set(x)
            # Backwards: the last stage takes the micro-batch whose result it has just computed, the others follow.
            n = time - (2 * (STAGES - 1) - number)
            result, pull = hl.vjp(stage, own, kept[n % slots])
            difference = result - goals[hnp.clip(n, 0, count - 1)]
            from_own, from_input = pull(hnp.where(last, 2 * difference / goals.size, cotangent))
            counts = (n >= 0) & (n < count)
            gradient += hnp.where(counts, from_own, 0)
            total += hnp.where(counts & last, (difference**2).sum() / goals.size, 0)
            received, cotangent = lax.ppermute(y, "stage", onward), lax.ppermute(from_input, "stage", back)
            return (received, cotangent, kept, gradient, total), None

        nothing = hnp.zeros((ROWS, WIDTH))
        start = nothing, nothing, hnp.zeros((slots, ROWS, WIDTH)), hnp.zeros_like(own), 0.0
        (*_, gradient, total), _ = lax.scan(step, start, hnp.arange(count + 2 * (STAGES - 1)))
        return lax.psum(total, "stage"), gradient[None]

    return run


def compare(count=8, report=show):
    """The largest differences from one device, of both forms: of the loss, and of the gradients."""
    with hl.config(num_cpu_devices=max(STAGES, hl.config.num_cpu_devices)):
        mesh = hl.make_mesh((STAGES,), ("stage",))
        random = np.random.default_rng(0)
        weights = random.normal(size=(STAGES, WIDTH, WIDTH)).astype(np.float32) / WIDTH**0.5
        batches, goals = random.normal(size=(2, count, ROWS, WIDTH)).astype(np.float32)

        def loss(forward):
            return hl.jit(hl.value_and_grad(lambda w, x: hnp.mean((forward(w, x) - goals) ** 2)))

        staged = hl.device_put(weights, NamedSharding(mesh, P("stage")))
        over_stages, alternating = loss(pipeline(mesh, count)), hl.jit(one_forward_one_backward(mesh, count))
        report("derivative of the pipeline:", over_stages.lower(staged, batches).compile().collectives())
        report("1F1B:", alternating.lower(staged, batches, goals).compile().collectives())
        found = over_stages(staged, batches), alternating(staged, batches, goals)
        expected, wanted = loss(whole)(weights, batches)
        values = max(abs(float(value) - float(expected)) for value, _ in found)
        return values, max(float(np.abs(np.asarray(gradient) - wanted).max()) for _, gradient in found)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--micro-batches", type=int, default=8)
    print("loss within {:.1e} of one device's, gradients {:.1e}".format(*compare(arguments.parse_args().micro_batches)))
