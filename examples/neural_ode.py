"""A neural ordinary differential equation (Chen et al., 2018) that reads handwritten digits.

A state follows dz/dt = f(z, t), with a small network f, from t = 0 to 1; a linear layer classifies the final state. The
solver is adaptive (Dormand and Prince, order 5 with an error estimate of order 4) in a `while_loop`. Its gradient does
not differentiate the steps: `custom_vjp` solves the adjoint equation backwards with the same solver, without saving
anything of the forward pass. Run

    python examples/neural_ode.py [--epochs 12]
"""

import argparse
import functools

import numpy as np
from digits import load

import hloom as hl
import hloom.numpy as hnp
from hloom import lax, nn, optim

BATCH, WIDTH, TOLERANCE = 64, 32, 1e-3

# Dormand and Prince, A family of embedded Runge-Kutta formulae, 1980.
NODES = (0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1)
STAGES = (
    (),
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
FIFTH = (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0)
FOURTH = (5179 / 57600, 0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40)


def solve(f, z, begin, end):
    """z(end) of dz/dt = f(z, t) from z(begin) = z, and the number of steps tried. z: a tree of arrays."""
    direction = 1.0 if end > begin else -1.0

    def combine(z, slopes, weights, h):
        def sum_up(z, *slopes):
            return z + h * sum(w * k for w, k in zip(weights, slopes, strict=True) if w)

        return hl.tree.map(sum_up, z, *slopes)

    def unfinished(state):
        _, t, _, tries = state
        return hnp.logical_and(direction * (end - t) > 1e-6, tries < 200)

    def advance(state):
        z, t, h, tries = state
        h = direction * hnp.minimum(h, hnp.abs(end - t))
        slopes = []
        for node, weights in zip(NODES, STAGES, strict=True):
            slopes.append(f(combine(z, slopes, weights, h) if weights else z, t + node * h))
        new = combine(z, slopes, FIFTH, h)
        wrong = combine(hl.tree.map(hnp.zeros_like, z), slopes, [a - b for a, b in zip(FIFTH, FOURTH, strict=True)], h)
        squares = [
            hnp.mean((e / (TOLERANCE * (1 + hnp.maximum(hnp.abs(a), hnp.abs(b))))) ** 2)
            for e, a, b in zip(*map(hl.tree.leaves, (wrong, z, new)), strict=True)
        ]
        error = hnp.sqrt(hnp.maximum(sum(squares) / len(squares), 1e-12))
        accepted = error <= 1
        z = hl.tree.map(lambda a, b: hnp.where(accepted, a, b), new, z)
        size = hnp.abs(h) * hnp.clip(0.9 * error**-0.2, 0.2, 5.0)
        return z, hnp.where(accepted, t + h, t), size, tries + 1

    start = (z, hnp.asarray(begin, "f32"), hnp.asarray(0.2, "f32"), hnp.asarray(0, "s32"))
    z, _, _, tries = lax.while_loop(unfinished, advance, start)
    return z, tries


@functools.partial(hl.custom_vjp, nondiff_argnums=(0,))
def flow(f, parameters, z):
    """z(1) of dz/dt = f(parameters, z, t) with z(0) = z."""
    return solve(lambda z, t: f(parameters, z, t), z, 0.0, 1.0)[0]


def flow_forward(f, parameters, z):
    arrived = flow(f, parameters, z)
    return arrived, (parameters, arrived)


def flow_backward(f, kept, cotangent):
    """The adjoint equation: state, its cotangent and the parameters' cotangents flow back together."""
    parameters, arrived = kept

    def backward(state, t):
        z, a, _ = state
        slope, pull = hl.vjp(lambda p, z: f(p, z, t), parameters, z)
        by_parameters, by_z = pull(a)
        return slope, -by_z, hl.tree.map(lambda g: -g, by_parameters)

    start = (arrived, cotangent, hl.tree.map(hnp.zeros_like, parameters))
    (_, by_z, by_parameters), _ = solve(backward, start, 1.0, 0.0)
    return by_parameters, by_z


flow.defvjp(flow_forward, flow_backward)


class Velocity(nn.Module):
    """f(z, t): two layers, the time as one more input."""

    first: nn.Linear
    second: nn.Linear

    def __init__(self, key):
        keys = hl.random.split(key)
        self.first = nn.Linear(WIDTH + 1, 64, key=keys[0])
        self.second = nn.Linear(64, WIDTH, key=keys[1])

    def __call__(self, z, t):
        time = hnp.broadcast_to(hnp.asarray(t, z.dtype), (*z.shape[:-1], 1))
        return self.second(hnp.tanh(self.first(hnp.concatenate([z, time], axis=-1))))


def velocity(parameters, z, t):
    return parameters(z, t)


class Reader(nn.Module):
    enter: nn.Linear
    velocity: Velocity
    leave: nn.Linear

    def __init__(self, key):
        keys = hl.random.split(key, 3)
        self.enter, self.velocity = nn.Linear(64, WIDTH, key=keys[0]), Velocity(keys[1])
        self.leave = nn.Linear(WIDTH, 10, key=keys[2])

    def __call__(self, images):
        return self.leave(flow(velocity, self.velocity, self.enter(images)))


def loss(model, images, labels):
    return hnp.mean(nn.losses.softmax_cross_entropy_with_integer_labels(model(images), labels))


@hl.jit
def accuracy(model, images, labels):
    return hl.metrics.accuracy(model(images), labels)


def train(epochs=12, report=print):
    """Returns (accuracy on the held-out fifth, steps of the solver there)."""
    images, labels, held_images, held_labels = load()
    model = Reader(hl.random.key(0))
    optimizer = optim.adam(optim.cosine_decay_schedule(3e-3, epochs * (len(labels) // BATCH), 0.05))
    state = optimizer.init(model)

    @hl.jit
    def step(model, state, images, labels):
        value, gradient = hl.value_and_grad(loss)(model, images, labels)
        updates, state = optimizer.update(gradient, state)
        return optim.apply_updates(model, updates), state, value

    random = np.random.default_rng(1)
    for epoch in range(1, epochs + 1):
        order = random.permutation(len(labels))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            model, state, value = step(model, state, images[rows], labels[rows])
        if epoch % 4 == 0 or epoch == 1:
            held = float(accuracy(model, held_images, held_labels))
            report(f"epoch {epoch}  loss {float(value):.4f}  held out {held:.1%}")
    count = hl.jit(lambda model, x: solve(model.velocity, model.enter(x), 0.0, 1.0)[1])
    return float(accuracy(model, held_images, held_labels)), int(count(model, held_images))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--epochs", type=int, default=12, help="passes over the training images")
    result, steps = train(arguments.parse_args().epochs)
    print(f"accuracy on the held-out fifth: {result:.1%}; the solver takes {steps} steps there")
    assert result >= 0.95
