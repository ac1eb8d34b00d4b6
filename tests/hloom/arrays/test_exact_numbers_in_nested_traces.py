"""A Python number beside 64 bits is the number that Python computes with, in every nested trace: as a value from
outside, as an argument, as a loop's state, in trees and as a result."""

import functools

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.sharding import PartitionSpec as P

X = np.linspace(1.0, 2.0, 4)
NUMBERS = {"float": 0.1, "int": 100_001, "complex": 0.1 + 0.3j, "large": 1e300}


@pytest.fixture(autouse=True)
def two_devices():
    with hl.config(num_cpu_devices=2):
        yield


def _over_two_devices(f, specs):
    mesh = hl.make_mesh((2,), ("i",))
    return hl.shard_map(f, mesh=mesh, in_specs=specs, out_specs=P("i"))


def _custom_jvp(body):
    made = hl.custom_jvp(body)
    made.defjvp(lambda primals, tangents: (made(*primals), body(tangents[0], primals[1])))
    return made


def _custom_vjp(body):
    made = hl.custom_vjp(body)
    made.defvjp(lambda x, a: (body(x, a), a), lambda a, ct: (body(ct, a), hnp.zeros_like(a)))
    return made


def _closed_vjp(x, a, of):
    made = hl.custom_vjp(lambda x: of(x, a))
    made.defvjp(lambda x: (of(x, a), None), lambda _, ct: (of(ct, a),))
    return made(x)


def _zero(a):
    """The tangent of a number: that of an integer is False."""
    return a * 0 if hnp.issubdtype(hnp.asarray(a).dtype, hnp.inexact) else False


def _sum(value):
    return hnp.sum(hnp.real(value))


# Of x, a number and f: what is f(x, a), computed within a nested trace.
FORMS = {
    "top": lambda x, a, f: f(x, a),
    "fori": lambda x, a, f: lax.fori_loop(0, 1, lambda i, s: (f(x, a), s[0]), (f(x, a) * 0, f(x, a) * 0))[0],
    "fori_traced_bounds": lambda x, a, f: lax.fori_loop(0, hnp.asarray(1), lambda i, s: f(x, a), f(x, a) * 0),
    "scan": lambda x, a, f: lax.scan(lambda c, _: (f(x, a), None), f(x, a) * 0, None, length=1)[0],
    "scan_ys": lambda x, a, f: lax.scan(lambda c, e: (c, f(e, a)), None, x)[1],
    "scan_unrolled": lambda x, a, f: lax.scan(lambda c, e: (c, f(e, a)), None, x, unroll=True)[1],
    "scan_number_as_y": lambda x, a, f: f(x, lax.scan(lambda c, _: (c, a), None, None, length=2)[1][1]),
    "scan_number_as_x": lambda x, a, f: lax.scan(lambda c, e: (c, f(*e)), None, (x, hnp.full(4, a)))[1],
    "scan_carry": lambda x, a, f: lax.scan(lambda c, e: (c, f(e, c)), a, x)[1],
    "scan_last_carry": lambda x, a, f: f(x, lax.scan(lambda c, _: (c + 0, None), a, None, length=2)[0]),
    "scan_tree": lambda x, a, f: lax.scan(lambda c, e: (c, f(e, c["a"][0])), {"a": (a, 1)}, x)[1],
    "while": lambda x, a, f: lax.while_loop(lambda s: s[0] < 1, lambda s: (s[0] + 1, f(x, a)), (0, f(x, a) * 0))[1],
    "while_carry": lambda x, a, f: lax.while_loop(
        lambda s: s[0] < 1, lambda s: (s[0] + 1, f(x, s[2]), s[2]), (0, f(x, a) * 0, a)
    )[1],
    "while_last_carry": lambda x, a, f: f(
        x, lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + 0), (0, a))[1]
    ),
    "while_bounded": lambda x, a, f: lax.while_loop(
        lambda s: s[0] < 1, lambda s: (s[0] + 1, f(x, s[2]), s[2]), (0, f(x, a) * 0, a), max_steps=2
    )[1],
    "cond": lambda x, a, f: lax.cond(x[0] > 0, lambda: f(x, a), lambda: f(x, a) * 0),
    "cond_operand": lambda x, a, f: lax.cond(x[0] > 0, lambda b: f(x, b), lambda b: f(x, b) * 0, a),
    "cond_result": lambda x, a, f: f(x, lax.cond(x[0] > 0, lambda: a, lambda: a + 1)),
    "cond_result_tree": lambda x, a, f: f(x, lax.cond(x[0] > 0, lambda: {"a": a}, lambda: {"a": a + 1})["a"]),
    "switch": lambda x, a, f: lax.switch(1, [lambda b: f(x, b) * 0, lambda b: f(x, b), lambda b: f(x, b)], a),
    "switch_result": lambda x, a, f: f(x, lax.switch(hnp.asarray(1), [lambda: a + 1, lambda: a, lambda: a * 2])),
    "map": lambda x, a, f: lax.map(lambda e: f(e, a), x),
    "map_batched": lambda x, a, f: lax.map(lambda e: f(e, a), x, batch_size=2),
    "vmap": lambda x, a, f: hl.vmap(lambda e: f(e, a))(x),
    "vmap_unmapped": lambda x, a, f: hl.vmap(f, in_axes=(0, None))(x, a),
    "vmap_mapped": lambda x, a, f: hl.vmap(f)(x, hnp.full(4, a)),
    "vmap_result": lambda x, a, f: f(x, hl.vmap(lambda e, b: b + 0, (0, None))(x, a)),
    "vectorize": lambda x, a, f: hnp.vectorize(f)(x, a),
    "grad": lambda x, a, f: f(x, a) if np.iscomplexobj(f(x, a)) else hl.grad(lambda x: _sum(f(x, a)))(x) * x,
    "value_and_grad": lambda x, a, f: (
        hl.vmap(lambda e: hl.value_and_grad(lambda e: _sum(f(e, a)))(e)[0])(x) + 1j * hnp.imag(f(x, a))
    ),
    "jvp": lambda x, a, f: hl.jvp(lambda x: f(x, a), (x,), (x,))[1],
    "jvp_number": lambda x, a, f: hl.jvp(lambda x, a: f(x, a) * 1, (x, a), (x, _zero(a)))[0],
    "vjp": lambda x, a, f: hl.vjp(lambda x: f(x, a), x)[0],
    "vjp_pull": lambda x, a, f: f(x, a) if np.iscomplexobj(f(x, a)) else hl.vjp(lambda x: f(x, a), x)[1](x)[0],
    "linearize": lambda x, a, f: hl.linearize(lambda x: f(x, a), x)[1](x),
    "jacfwd": lambda x, a, f: hl.jacfwd(lambda x: f(x, a))(x) @ x,
    "jacrev": lambda x, a, f: f(x, a) if np.iscomplexobj(f(x, a)) else hl.jacrev(lambda x: f(x, a))(x) @ x,
    "hessian": lambda x, a, f: (
        f(x, a) if np.iscomplexobj(f(x, a)) else hl.hessian(lambda x: _sum(f(x * x, a)))(x) @ x / 2
    ),
    "checkpoint": lambda x, a, f: hl.checkpoint(lambda x: f(x, a))(x),
    "checkpoint_number": lambda x, a, f: hl.checkpoint(f)(x, a),
    "checkpoint_result": lambda x, a, f: f(x, hl.checkpoint(lambda a: a + 0)(a)),
    "checkpoint_grad": lambda x, a, f: (
        f(x, a) if np.iscomplexobj(f(x, a)) else hl.grad(hl.checkpoint(lambda x: _sum(f(x, a))))(x) * x
    ),
    "custom_jvp": lambda x, a, f: hl.jvp(lambda x: _custom_jvp(f)(x, a), (x,), (x,))[1],
    "custom_jvp_result": lambda x, a, f: f(x, _custom_jvp(lambda a, b: a + b)(a, 0)),
    "custom_vjp": lambda x, a, f: _custom_vjp(f)(x, a),
    "custom_vjp_grad": lambda x, a, f: (
        f(x, a)
        if np.iscomplexobj(f(x, a)) or not np.issubdtype(hnp.asarray(a).dtype, np.floating)
        else hl.grad(lambda x: _sum(_custom_vjp(f)(x, a)))(x) * x
    ),
    "custom_vjp_closed": lambda x, a, f: (
        f(x, a) if np.iscomplexobj(f(x, a)) else hl.grad(lambda x: _sum(_closed_vjp(x, a, f)))(x) * x
    ),
    "jit": lambda x, a, f: hl.jit(f)(x, a),
    "jit_closed": lambda x, a, f: hl.jit(lambda x: f(x, a))(x),
    "jit_result": lambda x, a, f: f(x, hl.jit(lambda a: a + 0)(a)),
    "jit_tree": lambda x, a, f: hl.jit(lambda t: f(t["x"], t["a"][0]))({"x": x, "a": [a]}),
    "shard_map": lambda x, a, f: _over_two_devices(lambda x: f(x, a), P("i"))(x),
    "shard_map_number": lambda x, a, f: _over_two_devices(f, (P("i"), P()))(x, a),
    "deep": lambda x, a, f: lax.fori_loop(
        0,
        1,
        lambda i, s: lax.cond(x[0] > 0, lambda: hl.vmap(lambda e: hl.jit(lambda e: f(e, a))(e))(x), lambda: s),
        f(x, a) * 0,
    ),
    "moved": lambda x, a, f: f(x, hnp.stack([hnp.reshape(a, (1,))[0], a])[1].T[None]),
}


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("form", FORMS)
def test_in_a_nested_trace(form, number):
    value = NUMBERS[number]
    # Loses digits, or wraps, unless a * a + a is computed in double width.
    of = (lambda x, a: x * a) if number == "large" else (lambda x, a: x * (a * a + a))
    run = functools.partial(FORMS[form], f=of)
    expected = of(X, value)
    for name, function in {"jit": hl.jit(run), "eager": run}.items():
        found = np.asarray(function(X, value))
        assert found.dtype in (np.float64, np.complex128), name
        np.testing.assert_allclose(found, expected, rtol=4e-16 * 4, err_msg=name)
