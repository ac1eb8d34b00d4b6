"""sum-after-scans: which sums leave a scan, which stay, and that results are what they were."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.compiler.pipeline import run_passes
from hloom.ir.interpret import run
from hloom.ir.module import Module

STEPS, ROWS, INNER, OUTER = 6, 5, 24, 40


def draw(*shape) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def recurrent_loss(w, b, xs):
    def step(h, x):
        return hnp.tanh(hnp.concatenate([x, h], axis=1) @ w + b), None

    return (lax.scan(step, hnp.zeros((ROWS, OUTER), xs.dtype), xs)[0] ** 2).sum()


def covariance(xs):
    return lax.scan(lambda c, x: (c + x.T @ x, None), hnp.ones((INNER, INNER), xs.dtype), xs)[0]


def covariance_by_einsum(xs):
    def step(carry, x):
        return (carry[0] + hnp.einsum("ri,rj->ij", x, x), carry[1] + x.sum(0)), x * 2

    return lax.scan(step, (hnp.zeros((INNER, INNER)), hnp.zeros(INNER)), xs, reverse=True)


def turned(xs):
    """The sum of transposed products, with the sum as the second operand."""
    return lax.scan(lambda c, x: (hnp.swapaxes(x.T @ (x * 2), 0, 1) + c, None), hnp.zeros((INNER, INNER)), xs)[0]


def batched(xs):
    def step(c, x):
        a = x.reshape(ROWS, 4, INNER // 4)
        return c + hnp.einsum("rbi,rbj->bij", a, a), None

    return lax.scan(step, hnp.zeros((4, INNER // 4, INNER // 4)), xs)[0]


def integers(xs):
    numbers = (xs * 10).astype("int32")
    return lax.scan(lambda c, x: (c + x.T @ x, None), hnp.zeros((INNER, INNER), "int32"), numbers)[0]


XS = draw(STEPS, ROWS, INNER)
RECURRENT = (draw(INNER + OUTER, OUTER) * 0.2, draw(OUTER), XS)
LEAVE = {
    "gradients of a recurrent net": (hl.grad(recurrent_loss, argnums=(0, 1)), RECURRENT, 1),
    "x.T @ x": (covariance, (XS,), 1),
    "einsum and a sum, backwards": (covariance_by_einsum, (XS,), 1),
    "transposed, the other way round": (turned, (XS,), 1),
    "a batch of products": (batched, (XS,), 1),
    "integers": (integers, (XS,), 1),
}


def stations(function, arguments) -> tuple[Module, Module]:
    """The module as it was traced, and after the pass."""
    before = run_passes(hl.jit(function).lower(*arguments).module, ("inline-calls",), verify=True)
    return before, run_passes(before, ("sum-after-scans",), verify=True)


def values(result) -> list[np.ndarray]:
    return [np.asarray(value) for value in (result if isinstance(result, tuple) else (result,))]


def outside(module: Module, opcode: str) -> int:
    return sum(i.opcode == opcode for i in module.entry.instructions)


@pytest.mark.parametrize("name", LEAVE)
def test_sums_of_products_leave(name):
    function, arguments, products = LEAVE[name]
    before, after = stations(function, arguments)
    assert outside(after, "dot") == outside(before, "dot") + products
    carried = [sum(i["num_carry"] for i in m.entry.instructions if i.opcode == "scan") for m in (before, after)]
    assert carried[1] < carried[0]
    given = list(arguments)
    for got, expected in zip(values(run(after, given)), values(run(before, given)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-4)
    compiled = hl.tree.leaves(hl.jit(function)(*arguments))
    for got, expected in zip(compiled, values(run(before, given)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-4)


def test_a_bias_leaves_with_the_product_that_keeps_what_it_sums():
    _, after = stations(*LEAVE["gradients of a recurrent net"][:2])
    assert outside(after, "reduce") >= 1
    _, alone = stations(lambda xs: lax.scan(lambda c, x: (c + (x * x).sum(0), None), hnp.zeros(INNER), xs), (XS,))
    assert [i["num_carry"] for i in alone.entry.instructions if i.opcode == "scan"] == [
        1
    ]  # x * x would have to be kept


def test_integers_keep_their_bits():
    function, arguments, _ = LEAVE["integers"]
    before, after = stations(function, arguments)
    np.testing.assert_array_equal(run(after, [XS]), run(before, [XS]))


@pytest.mark.parametrize(
    "name, step",
    {
        "the sum is read": lambda c, x: (c + x.T @ x, c[0]),
        "the product is read": lambda c, x: (c + (p := x.T @ x), p[0]),
        "it decays": lambda c, x: (c * 0.9 + x.T @ x, None),
        "it is added twice": lambda c, x: (c + c + x.T @ x, None),
        "a product with the sum": lambda c, x: (c + c @ c, None),
    }.items(),
)
def test_other_carries_stay(name, step):
    start = hnp.zeros((INNER, INNER))
    before, after = stations(lambda xs: lax.scan(step, start, xs), (XS,))
    assert after is before, name


@pytest.mark.parametrize("name, steps, rows", [("few steps", 3, ROWS), ("long sums in each", STEPS, 600)])
def test_what_gains_nothing_stays(name, steps, rows):
    before, after = stations(covariance, (draw(steps, rows, INNER),))
    assert after is before, name


def test_not_more_is_kept_than_a_step_adds_to():
    """A product whose operands are larger than the sum, and made in the loop: to keep them costs more than it saves."""

    def function(xs):
        return lax.scan(lambda c, x: (c + hnp.exp(x).T @ hnp.sin(x), None), hnp.zeros((INNER, INNER)), xs)[0]

    before, after = stations(function, (draw(STEPS, 64, INNER),))
    assert after is before
