"""hl.checkpoint: gradients, what is kept and what is computed again, policies, nesting."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.compiler.transforms.inline import inline_calls
from hloom.compiler.transforms.vjp import vjp
from hloom.errors import ArgumentError, HloomError
from hloom.tracing.trace import trace_function

W = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)


def layer(x, w):
    return hnp.sin(hnp.exp(hnp.tanh(x @ w)) @ w)


def plain(x, w):
    return layer(layer(x, w), w).sum()


def with_policy(policy=None, **options):
    kept = hl.checkpoint(layer, policy=policy, **options)
    return lambda x, w: kept(kept(x, w), w).sum()


POLICIES = hl.checkpoint_policies


def residuals(function, *arguments):
    """The shapes of what the forward pass keeps for the backward pass, arguments aside; and the backward pass."""
    arrays = [hnp.asarray(a) for a in arguments]
    _, structure = hl.tree.flatten((tuple(arrays), {}))
    traced = trace_function(function, arrays, structure, "f")
    computation = inline_calls(traced.computation)
    forward, backward = vjp(computation, range(len(arrays)))
    kept = forward.outputs()[len(computation.outputs()) :]
    return [k.shape.dims for k in kept if k.opcode != "parameter"], inline_calls(backward, rules=True)


def opcodes(computation):
    return [i.opcode for i in computation.instructions]


@pytest.mark.parametrize(
    "policy",
    [
        None,
        POLICIES.nothing_saveable,
        POLICIES.everything_saveable,
        POLICIES.dots_saveable,
        POLICIES.dots_with_no_batch_dims_saveable,
    ],
)
def test_gradients_are_those_of_the_function(policy):
    expected = hl.grad(plain, argnums=(0, 1))(X, W)
    f = with_policy(policy)
    for g in (hl.grad(f, argnums=(0, 1)), hl.jit(hl.grad(hl.jit(f), argnums=(0, 1)))):
        for a, b in zip(g(X, W), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(f(X, W), plain(X, W), rtol=1e-5)
    np.testing.assert_allclose(hl.jvp(f, (X, W), (X, W))[1], hl.jvp(plain, (X, W), (X, W))[1], rtol=1e-4)


def test_only_arguments_are_kept():
    kept, _ = residuals(plain, X, W)
    assert len(kept) >= 7
    kept, backward = residuals(with_policy(), X, W)
    assert kept == [(3, 4)]  # what goes from the first call to the second
    # The backward pass runs both again: their tanh, exponential and products.
    assert opcodes(backward).count("tanh") == 2 and opcodes(backward).count("exponential") == 2
    assert opcodes(backward).count("optimization-barrier") == 2


def test_policies_keep_what_they_name():
    f = with_policy(POLICIES.dots_saveable)
    kept, backward = residuals(f, X, W)
    assert kept.count((3, 4)) == 4 + 1  # four products, and what goes from call to call
    # Forward products are not computed again: six are left, three cotangents' products a layer.
    dots = opcodes(backward).count("dot")
    kept, again = residuals(with_policy(), X, W)
    assert opcodes(again).count("dot") > dots
    kept, _ = residuals(with_policy(POLICIES.everything_saveable), X, W)
    assert len(kept) >= 7


def test_batched_products_are_told_from_others():
    body = lambda x, w: hnp.sin(hnp.einsum("bij,bjk->bik", x, w)).sum() + hnp.sin(x[0] @ w[0]).sum()  # noqa: E731
    x = np.ones((2, 3, 3), np.float32)
    kept, _ = residuals(hl.checkpoint(body, policy=POLICIES.dots_with_no_batch_dims_saveable), x, x)
    assert kept == [(3, 3)]
    kept, _ = residuals(hl.checkpoint(body, policy=POLICIES.dots_saveable), x, x)
    assert sorted(kept) == [(2, 3, 3), (3, 3)]


def test_names():
    def body(x):
        y = hl.checkpoint_name(hnp.sin(x), "first")
        z = hl.checkpoint_name(hnp.exp(y), "second")
        return hnp.tanh(z * z).sum()

    expected = hl.grad(body)(X)
    names = {
        POLICIES.save_only_these_names("first"): 1,
        POLICIES.save_only_these_names("first", "second"): 2,
        POLICIES.save_only_these_names("third"): 0,
        POLICIES.save_any_names_but_these("first"): 1,
        POLICIES.save_from_both_policies(
            POLICIES.save_only_these_names("first"), POLICIES.save_any_names_but_these()
        ): 2,
    }
    for policy, count in names.items():
        f = hl.checkpoint(body, policy=policy)
        assert len(residuals(f, X)[0]) == count
        np.testing.assert_allclose(hl.jit(hl.grad(f))(X), expected, rtol=1e-4, atol=1e-6)
    kept = len(residuals(hl.checkpoint(body, policy=POLICIES.save_anything_except_these_names("first")), X)[0])
    assert kept > 2
    np.testing.assert_array_equal(hl.checkpoint_name(X, "outside"), X)


def test_the_second_run_survives_compilation():
    """The compiled gradient computes tanh twice; without the barrier once."""

    def count(layer):
        both = hl.jit(hl.value_and_grad(lambda x, w: layer(x, w).sum()))
        return both.lower(X, W).compile().as_text().count("tanh(")

    once = count(layer)
    assert count(hl.checkpoint(layer)) == once + 1
    assert count(hl.checkpoint(layer, prevent_cse=False)) == once


def test_nesting():
    f = lambda x: hnp.sin(x) ** 2 * x  # noqa: E731
    g = hl.checkpoint(f)
    x = np.linspace(-1, 1, 5).astype(np.float32)
    for derive in (
        lambda f: hl.vmap(hl.grad(f)),
        lambda f: hl.vmap(hl.grad(hl.grad(f))),
        lambda f: hl.grad(lambda x: hl.vmap(f)(x).sum()),
        lambda f: hl.vmap(hl.grad(lambda x: hl.jvp(f, (x,), (x,))[1])),
        lambda f: lambda x: hl.jvp(hl.vmap(hl.grad(f)), (x,), (x,))[1],
        lambda f: hl.grad(lambda x: hl.grad(lambda x: hl.vmap(hl.checkpoint(f))(x).sum())(x).sum()),
    ):
        expected = derive(f)(x)
        np.testing.assert_allclose(derive(g)(x), expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(hl.jit(derive(hl.remat(g)))(x), expected, rtol=1e-4, atol=1e-5)


def test_static_arguments_closures_trees_and_custom_rules():
    def body(d, mode, *, scale):
        return {"y": (hnp.sin(d["x"]) if mode == "sin" else d["x"]) * scale}

    @hl.custom_jvp
    def odd(x):
        return x

    odd.defjvp(lambda p, t: (p[0], t[0] * 3))

    def loss(x, w):
        inner = hl.checkpoint(lambda x: odd(x) * w)  # uses w from outside
        return (inner(x) + hl.checkpoint(body, static_argnums=1)({"x": x}, "sin", scale=w)["y"]).sum()

    gx, gw = hl.grad(loss, argnums=(0, 1))(X, 2.0)
    np.testing.assert_allclose(gx, 6 + 2 * np.cos(X), rtol=1e-5)
    np.testing.assert_allclose(gw, (X + np.sin(X)).sum(), rtol=1e-5)


def test_python_control_flow_on_values_outside_of_jit():
    f = hl.checkpoint(lambda x: x * 2 if x > 0 else -x)
    assert float(hl.grad(f)(3.0)) == 2.0 and float(hl.grad(f)(-3.0)) == -1.0


@pytest.mark.parametrize(
    "wrong", [lambda: hl.checkpoint(3), lambda: hl.checkpoint(layer, policy="dots"), lambda: hl.checkpoint_name(X, 3)]
)
def test_errors(wrong):
    with pytest.raises(ArgumentError) as caught:
        wrong()
    assert isinstance(caught.value, HloomError) and caught.value.repair and caught.value.found


def test_what_is_kept_is_printed(capsys):
    hl.print_saved_residuals(plain, X, W)
    lines = capsys.readouterr().out.splitlines()
    assert "f32[4,4] from the argument w" in lines
    assert any(line.startswith("f32[3,4] from exponential at ") and "test_remat.py" in line for line in lines)
    hl.print_saved_residuals(hl.checkpoint(plain), X, W)
    assert capsys.readouterr().out.splitlines() == ["f32[3,4] from the argument x", "f32[4,4] from the argument w"]
    f = hl.checkpoint(
        lambda x: hnp.cos(hl.checkpoint_name(hnp.sin(x), "mine")), policy=POLICIES.save_only_these_names("mine")
    )
    hl.print_saved_residuals(f, X)
    assert "the value named 'mine'" in capsys.readouterr().out
