"""Derivatives and batching of scan, while and conditional against unrolled loops and chosen branches."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import DifferentiationError
from hloom.tracing.trace import bind, trace_function

rng = np.random.default_rng(0)


# --- the ops as functions: closed bodies, trees of arrays as lists -------------------------------------------------


def computation(function, shapes, name):
    """function(*arrays) -> list of arrays, as a computation that returns a tuple."""
    from hloom.compiler.transforms.custom import as_tuple

    structure = hl.tree.structure((tuple(shapes), {}))
    traced = trace_function(function, shapes, structure, name)
    assert not traced.captures
    return as_tuple(traced.computation)


def of_one_tuple(function, shapes, name, single=False):
    from hloom.compiler.transforms.flat import nested

    made = computation(function, shapes, name)
    shape = hl.ir.types.TupleShape(shapes)
    return nested(made, shape, made.shape.elements[0] if single else made.shape)


def shapes_of(arrays):
    return [hnp.asarray(a)._shape for a in arrays]


def scan(body, consts, carry, xs, length, reverse=False):
    consts, carry, xs = ([hnp.asarray(v) for v in vs] for vs in (consts, carry, xs))
    slices = [x._shape.with_dims(x.shape[1:]) for x in xs]
    made = computation(body, [*shapes_of(consts), *shapes_of(carry), *slices], "body")
    return bind(
        "scan",
        *consts,
        *carry,
        *xs,
        body=made,
        num_consts=len(consts),
        num_carry=len(carry),
        length=length,
        reverse=reverse,
    )


def unrolled(body, consts, carry, xs, length, reverse=False):
    carry, rows = list(carry), [None] * length
    for k in reversed(range(length)) if reverse else range(length):
        results = body(*consts, *carry, *(x[k] for x in xs))
        carry, rows[k] = results[: len(carry)], results[len(carry) :]
    ys = [hnp.stack(list(column)) for column in zip(*rows, strict=True)]
    return (*carry, *ys)


def while_loop(condition, body, state):
    state = [hnp.asarray(s) for s in state]
    shapes = shapes_of(state)
    made = of_one_tuple(body, shapes, "body"), of_one_tuple(lambda *s: [condition(*s)], shapes, "condition", True)
    result = bind("while", _tuple(state), body=made[0], condition=made[1])
    return result


def _tuple(arrays):
    """A tuple as an operand: inside a trace only."""
    from hloom.tracing.trace import Tracer, current_trace

    trace = current_trace()
    packed = trace.builder.tuple([trace.lift(a)[0] for a in arrays])
    values = [trace.lift(a)[1] for a in arrays]
    return Tracer(trace, packed, tuple(values) if all(v is not None for v in values) else None)


def conditional(selector, branches, arrays):
    arrays = [hnp.asarray(a) for a in arrays]
    made = tuple(of_one_tuple(b, shapes_of(arrays), f"branch_{k}") for k, b in enumerate(branches))
    packed = _tuple(arrays)
    return bind("conditional", selector, *[packed] * len(branches), branch_computations=made)


def same(found, expected, tolerance=1e-9):
    found, expected = hl.tree.leaves(found), hl.tree.leaves(expected)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


# --- scan ---------------------------------------------------------------------------------------------------------

W = rng.normal(size=(3, 3)) * 0.5
H = rng.normal(size=3)
X = rng.normal(size=(4, 3))


def recurrent(w, h, x):
    new = hnp.tanh(h @ w + x)
    return [new, new * x]


def with_counter(w, i, h, x):
    """A carried integer, a carried value without a tangent, a ys that does not depend on the arguments."""
    new = hnp.sin(h * w.sum()) + x * (i + 1)
    return [i + 1, new, new.sum(), i * 2]


def invariant(w, h, x):
    """exp(w) is the same in each step."""
    return [h * hnp.exp(w)[0] + x, hnp.exp(w).sum() * h]


def no_xs(w, h):
    return [hnp.tanh(h @ w)]


SCANS = {
    "recurrent": (recurrent, 1),
    "invariant": (invariant, 1),
    "late": (lambda w, a, b, x: [a, b + a * x, a * b], 2),
}


def loss(run, body, carry_count, reverse=False):
    def function(w, h, x):
        results = run(body, [w], [h] * carry_count, [x], 4, reverse)
        return sum((r * (k + 1)).sum() for k, r in enumerate(results))

    return function


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", SCANS)
def test_scan_against_the_unrolled_loop(name, reverse):
    body, count = SCANS[name]
    f, g = loss(scan, body, count, reverse), loss(unrolled, body, count, reverse)
    every = (0, 1, 2)
    tangents = (W * 0.3, H * 2, X - 1)
    same(f(W, H, X), g(W, H, X))
    for wrap in (lambda f: f, hl.jit):
        same(wrap(hl.grad(f, every))(W, H, X), hl.grad(g, every)(W, H, X))
        same(wrap(lambda *t: hl.jvp(f, (W, H, X), t))(*tangents), hl.jvp(g, (W, H, X), tangents))
    for which in every:
        same(hl.grad(f, which)(W, H, X), hl.grad(g, which)(W, H, X))
    same(hl.linearize(f, W, H, X)[1](*tangents), hl.linearize(g, W, H, X)[1](*tangents))


@pytest.mark.parametrize("name", SCANS)
def test_second_derivatives_of_scan(name):
    body, count = SCANS[name]
    f, g = loss(scan, body, count), loss(unrolled, body, count)
    for which in (0, 1, 2):
        twice = lambda f, k=which: hl.grad(lambda *a: (hl.grad(f, k)(*a) ** 2).sum(), (0, 1, 2))  # noqa: E731
        same(twice(f)(W, H, X), twice(g)(W, H, X), 1e-7)
    forward = lambda f: lambda w: hl.jvp(lambda w: hl.grad(f)(w, H, X), (w,), (w,))[1]  # noqa: E731
    same(forward(f)(W), forward(g)(W), 1e-8)
    backward = lambda f: hl.grad(lambda w: hl.jvp(lambda w: f(w, H, X), (w,), (W,))[1])  # noqa: E731
    same(hl.jit(backward(f))(W), backward(g)(W), 1e-8)


def test_counters_and_outputs_without_tangents():
    def function(run):
        def f(w, h, x):
            i, new, total, _ = run(with_counter, [w], [np.int32(0), h], [x], 4)
            return new.sum() + (total * i).sum()

        return f

    f, g = function(scan), function(unrolled)
    same(hl.jit(hl.grad(f, (0, 1, 2)))(W, H, X), hl.grad(g, (0, 1, 2))(W, H, X))
    same(
        hl.vmap(hl.grad(f))(np.stack([W, W + 1]), np.stack([H, H]), np.stack([X, X])),
        np.stack([np.asarray(hl.grad(g)(w, H, X)) for w in (W, W + 1)]),
    )


def test_scan_of_no_xs_and_of_no_steps():
    f = lambda run, n: lambda w, h: run(no_xs, [w], [h], [], n)[0].sum()  # noqa: E731
    same(hl.grad(f(scan, 3), (0, 1))(W, H), hl.grad(f(unrolled, 3), (0, 1))(W, H))
    same(hl.grad(f(scan, 0), (0, 1))(W, H), (np.zeros((3, 3)), np.ones(3)))


@pytest.mark.parametrize("axes", [(0, 0, 0), (0, None, None), (None, 0, None), (None, None, 0), (None, 0, 0)])
@pytest.mark.parametrize("name", SCANS)
def test_vmap_of_scan(name, axes):
    body, count = SCANS[name]
    f, g = loss(scan, body, count), loss(unrolled, body, count)
    given = [np.stack([a, a * 0.5, a + 1]) if axis == 0 else a for a, axis in zip((W, H, X), axes, strict=True)]
    run = lambda f: lambda *a: list(f(body, [a[0]], [a[1]] * count, [a[2]], 4))  # noqa: E731
    same(hl.vmap(run(scan), axes)(*given), hl.vmap(run(unrolled), axes)(*given))
    same(hl.jit(hl.vmap(hl.grad(f, (0, 1, 2)), axes))(*given), hl.vmap(hl.grad(g, (0, 1, 2)), axes)(*given), 1e-8)
    total = lambda f: hl.grad(lambda *a: hl.vmap(f, axes)(*a).sum(), (0, 1, 2))  # noqa: E731
    same(total(f)(*given), total(g)(*given), 1e-8)


def test_what_a_scan_keeps_for_its_backward_pass():
    """The x of a step is read again, and what is the same in all steps is not stacked."""
    from hloom.compiler.transforms.vjp import vjp

    traced = computation(lambda w, h, x: [loss(scan, invariant, 1)(w, h, x)], shapes_of([W, H, X]), "f")
    forward, backward = vjp(traced, (0, 1, 2))
    (body,) = [i["body"] for i in forward.instructions if i.opcode == "scan"]
    stacked = [o.shape.dims for o in body.outputs()[1:]]
    assert stacked == [(3,), (3,)]  # the ys, and h
    assert not any(
        i.opcode == "exponential" for s in backward.instructions if s.opcode == "scan" for i in s["body"].instructions
    )


def test_what_a_few_cheap_steps_give_is_not_kept():
    """Of a gated cell the gates, the new memory and its tanh: not their complements and products."""

    def cell(c, z):
        i, f, o = (hl.nn.sigmoid(z + k) for k in range(3))
        c = f * c + i * hnp.tanh(z)
        return c, o * hnp.tanh(c)

    def loss(z):
        return (hl.lax.scan(cell, hnp.zeros(8), z)[1] ** 2).sum()

    z = np.random.default_rng(3).standard_normal((6, 8)).astype(np.float32)
    module = hl.make_module(hl.grad(loss))(z)
    scans = [i for c in module.computations() for i in c.instructions if i.opcode == "scan"]
    kept = [s for s in scans[0].shape.elements if s.dims == (6, 8)]
    # y, i, f, o, tanh z, the memory before and tanh of the one after.
    assert len(kept) <= 7

    def unrolled(z):
        c, total = hnp.zeros(8), 0.0
        for k in range(6):
            c, y = cell(c, z[k])
            total = total + (y**2).sum()
        return total

    np.testing.assert_allclose(hl.jit(hl.grad(loss))(z), hl.grad(unrolled)(z), rtol=1e-5, atol=1e-6)


def test_nested_scans():
    def inner(w, h, x):
        return [hnp.sin(h * w + x)]

    def outer(run):
        def body(w, h, x):
            (h,) = run(inner, [w], [h], [x], 3)
            return [h, h * 2]

        return lambda w, h, x: sum(r.sum() for r in run(body, [w], [h], [x], 2))

    w, h, x = np.float64(0.7), rng.normal(size=2), rng.normal(size=(2, 3, 2))
    f, g = outer(scan), outer(unrolled)
    same(hl.jit(hl.grad(f, (0, 1, 2)))(w, h, x), hl.grad(g, (0, 1, 2))(w, h, x))
    same(hl.grad(hl.grad(f))(w, h, x), hl.grad(hl.grad(g))(w, h, x), 1e-8)
    many = np.linspace(0.1, 1, 3)
    same(hl.vmap(hl.grad(f), (0, None, None))(many, h, x), hl.vmap(hl.grad(g), (0, None, None))(many, h, x))


# --- while --------------------------------------------------------------------------------------------------------


def power(x, n):
    """x to the power n + 1, by a loop."""
    return while_loop(lambda i, y, x: i < n, lambda i, y, x: [i + 1, y * x, x], [np.int32(0), x, x])[1]


def closed_power(x, n):
    """The same with the bound in the state."""
    result = while_loop(lambda i, n, y, x: i < n, lambda i, n, y, x: [i + 1, n, y * x, x], [hnp.int32(0), n, x, x])
    return result[2]


def test_forward_mode_of_while():
    x = np.array([0.5, 1.5, -2.0])
    for n in (0, 1, 3):
        f = lambda x, n=n: power(x, n)  # noqa: E731
        expected = (x ** (n + 1), (n + 1) * x**n)
        same(hl.jit(lambda x, f=f: hl.jvp(f, (x,), (hnp.ones(3, "f64"),)))(x), expected)
        same(hl.jvp(f, (x,), (np.ones(3),)), expected)

    def along(function):
        return lambda x: hl.jvp(function, (x,), (hnp.ones(3, "f64"),))[1]

    twice = along(along(lambda x: power(x, 3)))
    same(hl.jit(twice)(x), 12 * x**2)


def test_reverse_mode_of_while_says_how_to_bound_it():
    with pytest.raises(DifferentiationError) as caught:
        hl.grad(lambda x: closed_power(x, 3))(2.0)
    assert "reverse-mode differentiation of the while_loop" in str(caught.value)
    for repair in ("max_steps=", "fori_loop", "scan"):
        assert repair in caught.value.repair
    # A loop that no gradient goes through is no obstacle.
    assert float(hl.grad(lambda x: x * power(hl.lax.stop_gradient(x), 1))(3.0)) == 9.0


def test_reverse_mode_of_a_loop_that_counts_to_a_constant():
    """Its number of steps is known, so it is a scan."""
    x = np.array([0.5, 1.5, -2.0])
    for n in (0, 1, 3):
        f = lambda x, n=n: power(x, n).sum()  # noqa: E731
        same(hl.grad(f)(x), (n + 1) * x**n)
        same(hl.jit(hl.vmap(hl.grad(f)))(x), (n + 1) * x**n)
    same(hl.jit(hl.vmap(hl.grad(hl.grad(lambda x: power(x, 3)))))(x), 12 * x**2)
    same(hl.linearize(lambda x: power(x, 3), x)[1](x), 4 * x**4)


def test_vmap_of_while():
    x = np.array([0.5, 1.5, -2.0])
    n = np.array([0, 3, 1], np.int32)
    wrapped = lambda x, n: closed_power(x, n)  # noqa: E731
    for wrap in (lambda f: f, hl.jit):
        same(wrap(hl.vmap(wrapped))(x, n), x ** (n + 1.0))
        same(wrap(hl.vmap(wrapped, (0, None)))(x, np.int32(2)), x**3)
        same(wrap(hl.vmap(wrapped, (None, 0)))(x[1], n), x[1] ** (n + 1.0))
        tangent = lambda x, n: hl.jvp(lambda x: closed_power(x, n), (x,), (hnp.ones((), "f64"),))[1]  # noqa: E731
        same(wrap(hl.vmap(tangent))(x, n), (n + 1.0) * x**n)
    assert hl.vmap(wrapped)(np.ones((0,)), np.ones((0,), np.int32)).shape == (0,)


# --- conditional --------------------------------------------------------------------------------------------------

BRANCHES = [
    lambda x, w: [hnp.sin(x) * w.sum(), x.sum()],
    lambda x, w: [x * x, w.prod()],
    lambda x, w: [hnp.ones_like(x), x.max() * 0 + 3.0],
]


def choose(k, x, w):
    a, b = conditional(k, BRANCHES, [x, w])
    return (a * x).sum() + b


def chosen(k, x, w):
    a, b = BRANCHES[k](x, w)
    return (a * x).sum() + b


@pytest.mark.parametrize("k", [0, 1, 2])
def test_conditional_against_the_chosen_branch(k):
    x, w, n = H, W[0], np.int32(k)
    f = lambda x, w, n=n: choose(n, x, w)  # noqa: E731
    g = lambda x, w: chosen(k, x, w)  # noqa: E731
    for wrap in (lambda f: f, hl.jit):
        same(wrap(hl.grad(lambda n, x, w: choose(n, x, w), (1, 2)))(n, x, w), hl.grad(g, (0, 1))(x, w))
        same(wrap(hl.grad(f, 0))(x, w), hl.grad(g, 0)(x, w))
        same(wrap(lambda x, w: hl.jvp(f, (x, w), (w, x)))(x, w), hl.jvp(g, (x, w), (w, x)))
        twice = lambda f: hl.grad(lambda x, w: (hl.grad(f)(x, w) ** 2).sum(), (0, 1))  # noqa: E731
        same(wrap(twice(f))(x, w), twice(g)(x, w))
    many = np.stack([x, x + 1])
    same(hl.vmap(hl.grad(f), (0, None))(many, w), hl.vmap(hl.grad(g), (0, None))(many, w))


def test_vmap_of_conditional_with_a_choice_a_problem():
    n = np.array([2, 0, 1, 7, -1], np.int32)  # what is out of range takes the last
    xs = rng.normal(size=(5, 3))
    w = W[0]
    expected = np.stack(
        [np.asarray(chosen(k if 0 <= k < 3 else 2, hnp.asarray(x), hnp.asarray(w))) for k, x in zip(n, xs, strict=True)]
    )
    gradient = np.stack(
        [
            np.asarray(hl.grad(lambda x, k=k: chosen(k if 0 <= k < 3 else 2, x, hnp.asarray(w)))(x))
            for k, x in zip(n, xs, strict=True)
        ]
    )
    for wrap in (lambda f: f, hl.jit):
        same(wrap(hl.vmap(choose, (0, 0, None)))(n, xs, w), expected)
        same(wrap(hl.vmap(hl.grad(choose, 1), (0, 0, None)))(n, xs, w), gradient)
        same(wrap(lambda xs: hl.grad(lambda xs: hl.vmap(choose, (0, 0, None))(n, xs, w).sum())(xs))(xs), gradient)


def test_conditional_on_a_truth_value():
    f = lambda x: conditional(x > 0, [lambda x: [x * x], lambda x: [-x]], [x])[0]  # noqa: E731
    x = np.array([2.0, -3.0])
    same(hl.vmap(hl.grad(f))(x), np.array([4.0, -1.0]))
    same(hl.jit(hl.grad(f))(2.0), np.float32(4.0))


def test_a_scan_in_a_conditional_in_a_scan():
    def step(w, h):
        return [hnp.sin(h @ w)]

    def body(run, pick):
        def one(w, i, h, x):
            (h,) = pick(
                i % 2,
                [lambda h, x, w: [run(step, [w], [h], [], 2)[0]], lambda h, x, w: [h + x]],
                [h, x, w],
            )
            return [i + 1, h, h * x]

        return one

    def function(run, pick):
        return lambda w, h, x: sum(r.sum() for r in run(body(run, pick), [w], [np.int32(0), h], [x], 4)[1:])

    f = function(scan, lambda k, branches, arrays: conditional(k, branches, arrays))

    def g(w, h, x):
        total = 0.0
        for i in range(4):
            h = unrolled(step, [w], [h], [], 2)[0] if i % 2 == 0 else h + x[i]
            total = total + (h * x[i]).sum()
        return h.sum() + total

    same(hl.jit(hl.grad(f, (0, 1, 2)))(W, H, X), hl.grad(g, (0, 1, 2))(W, H, X), 1e-8)
    same(
        hl.vmap(hl.grad(f), (0, None, None))(np.stack([W, -W]), H, X),
        np.stack([np.asarray(hl.grad(g)(w, H, X)) for w in (W, -W)]),
        1e-8,
    )
