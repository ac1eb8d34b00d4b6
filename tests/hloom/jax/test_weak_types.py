"""Weak types, those of Python numbers, go where JAX's go: through rules, transforms, loops and functions."""

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.jax import core


@hl.custom_jvp
def doubled(x):
    return x * 2


@doubled.defjvp
def _rule(primals, tangents):
    assert primals[0].weak_type and tangents[0].weak_type
    return doubled(primals[0]), tangents[0] * 2


@hl.custom_vjp
def tripled(x):
    return x * 3


def _forward(x):
    assert x.weak_type
    return x * 3, None


tripled.defvjp(_forward, lambda residual, g: (g * 3,))


def number():
    return hnp.where(hnp.array(True), 1.0, 2.0)


def whole():
    return hnp.where(hnp.array(True), 1, 2)


def strong():
    return hnp.float32(2)


def in_jaxpr(x):
    program = hl.make_jaxpr(lambda y: y + 1)(x)
    return core.eval_jaxpr(program, program.consts, x)[0]


def in_converted(x):
    converted, values = hl.closure_convert(lambda y: y * 2, x)
    return converted(x, *values)


WEAK = {
    "custom_jvp": lambda: doubled(number()),
    "jvp of custom_jvp": lambda: hl.jvp(doubled, (number(),), (number(),)),
    "grad of custom_jvp": lambda: hl.grad(doubled)(number()),
    "grad of custom_vjp": lambda: hl.grad(tripled)(number()),
    "jvp": lambda: hl.jvp(lambda x: x * 2, (number(),), (number(),)),
    "vjp": lambda: hl.vjp(lambda x: x * 2, number())[1](number()),
    "linearize": lambda: hl.linearize(lambda x: x * 2, number())[1](number()),
    "jacfwd": lambda: hl.jacfwd(lambda x: x * 2.0)(number()),
    "jacrev": lambda: hl.jacrev(lambda x: x * 2.0)(number()),
    "eval_jaxpr": lambda: in_jaxpr(whole()),
    "closure_convert": lambda: in_converted(whole()),
    "fori_loop's number": lambda: lax.fori_loop(0, 3, lambda i, total: total + i, whole()),
    "at[].add": lambda: hnp.broadcast_to(whole(), (3,)).at[0].add(hnp.int32(1)),
    "full_like": lambda: lax.full_like(whole(), 1),
    "relu": lambda: hl.nn.relu(number()),
    "elu": lambda: hl.nn.elu(number()),
    "sinc": lambda: hnp.sinc(number()),
    "outer": lambda: hnp.outer(whole(), 2),
    "dot": lambda: hnp.dot(2, whole()),
    "sort": lambda: lax.sort((whole().reshape(-1), whole().reshape(-1))),
    "top_k": lambda: lax.top_k(number().reshape(-1), 1)[0],
    "clamp": lambda: lax.clamp(0.0, number(), 1.0),
    "psum": lambda: hl.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(hnp.broadcast_to(whole(), (2,))),
}
STRONG = {
    "clamp": lambda: lax.clamp(strong(), number(), strong()),
    "pad": lambda: lax.pad(number().reshape(-1), strong(), [(1, 1, 0)]),
    "array of a list": lambda: hnp.array([number(), number()]),
    "fori_loop's number": lambda: lax.fori_loop(0, hnp.int32(3), lambda i, last: i, hnp.int32(0)),
    "eval_jaxpr": lambda: in_jaxpr(hnp.int32(1)),
}


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", WEAK)
def test_results_that_are_weak(name, jitted):
    result = (hl.jit(WEAK[name]) if jitted else WEAK[name])()
    assert [leaf.weak_type for leaf in hl.tree.leaves(result)] == [True] * len(hl.tree.leaves(result))


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", STRONG)
def test_results_that_are_not_weak(name, jitted):
    result = (hl.jit(STRONG[name]) if jitted else STRONG[name])()
    assert not any(leaf.weak_type for leaf in hl.tree.leaves(result))


def test_a_program_of_weak_arguments_is_not_weak_for_others():
    program = hl.make_jaxpr(lambda x: x + 1)(whole())
    assert not core.eval_jaxpr(program, program.consts, np.int32(1))[0].weak_type


def test_integers_and_a_python_float_are_weak_with_wide_defaults():
    with hl.config(enable_x64=True):
        assert (hnp.arange(3) + 2.0).weak_type
        assert (hnp.arange(3) + 2.0).dtype == np.float64
    assert not (hnp.arange(3, dtype="int64") + 2.0).weak_type  # 64 bits that were asked for


def test_the_mean_over_participants_has_the_default_dtype():
    with hl.config(enable_x64=True):
        assert hl.vmap(lambda x: lax.pmean(x, "i"), axis_name="i")(hnp.arange(2)).dtype == np.float64


def test_shared_constants_stay_strong():
    """A constant is one object for all that use it: what makes a weak array of it leaves it as it is."""
    weak = hnp.sin(2.0)
    assert weak.weak_type and lax.full_like(weak, 1.5).weak_type
    assert not lax.full((), 1.5, np.float32).weak_type
    closed, _ = hl.closure_convert(lambda x: x * 2, 1.0)
    given = hnp.ones((), np.float32)
    closed(given)
    assert not given.weak_type
