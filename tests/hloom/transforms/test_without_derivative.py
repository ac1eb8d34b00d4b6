"""What has no derivative says so by its name, with the line on which it stands, in every mode."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import DifferentiationError
from hloom.ir.ops import OPS
from hloom.jax.experimental import io_callback

pytestmark = pytest.mark.quick

M = hnp.ones((3, 3)) + hnp.eye(3)
LIKE = hl.ShapeDtypeStruct((3, 3), "float32")
TWICE = hnp.asarray([0, 0])


def on_the_host(x):
    return np.asarray(x)


hl.register_custom_call("test.without_derivative", on_the_host)

# name in the error -> a function of a matrix, on one line.
FUNCTIONS = {
    "'schur'": lambda m: lax.linalg.schur(m)[0],
    "'hessenberg'": lambda m: lax.linalg.hessenberg(m)[0],
    "'tridiagonal'": lambda m: lax.linalg.tridiagonal(m + m.T)[1],
    "'geqrf'": lambda m: lax.linalg.geqrf(m)[0],
    "'igamma-grad-a'": lambda m: lax.igamma_grad_a(m, m),
    "zeta with respect to its operand x": lambda m: lax.zeta(m + 1, m),
    "polygamma with respect to its operand n": lambda m: lax.polygamma(m, m),
    "betainc with respect to its operand a": lambda m: lax.betainc(m, m, m / 4),
    "expn with respect to its operand n": lambda m: hl.scipy.special.expn(m, m),
    "hloom.pure_callback.on_the_host": lambda m: hl.pure_callback(on_the_host, LIKE, m),
    "hloom.io_callback.on_the_host": lambda m: io_callback(on_the_host, LIKE, m),
    "test.without_derivative": lambda m: lax.custom_call("test.without_derivative", m, shape=("float32", (3, 3))),
    "a scatter with this computation": lambda m: m.at[TWICE].apply(hnp.sin),
    "scatter-multiply with respect to its updates": lambda m: m.at[TWICE].multiply(m[:2]),
}
ONLY_REVERSE = {
    "the while_loop": lambda m: lax.while_loop(lambda x: x.sum() < 100.0, lambda x: x * 2, m),
    "of the while_loop": lambda m: lax.fori_loop(0, m.sum().astype(int), lambda i, x: x * 2, m),
}
MODES = {
    "grad": lambda f: hl.grad(f)(M),
    "jvp": lambda f: hl.jvp(f, (M,), (M,)),
    "linearize": lambda f: hl.linearize(f, M),
    "vjp": lambda f: hl.vjp(f, M),
    "jit of grad": lambda f: hl.jit(hl.grad(f))(M),
    "grad of jit": lambda f: hl.grad(hl.jit(f))(M),
    "vmap of grad": lambda f: hl.vmap(hl.grad(f))(hnp.stack([M, M])),
    "grad of checkpoint": lambda f: hl.grad(hl.checkpoint(f))(M),
    "grad of scan": lambda f: hl.grad(lambda m: lax.scan(lambda c, _: (c, f(c)), m, None, length=2)[1].sum())(M),
    "grad of cond": lambda f: hl.grad(lambda m: lax.cond(True, f, lambda m: m.sum(), m))(M),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [*FUNCTIONS, *ONLY_REVERSE])
def test_the_error_names_it(name, mode):
    function = FUNCTIONS.get(name) or ONLY_REVERSE[name]
    if name in ONLY_REVERSE and mode in ("jvp", "linearize", "vjp"):
        return  # forward mode exists, and vjp is transposed as its function is made or called
    with pytest.raises(DifferentiationError) as caught:
        MODES[mode](lambda m: function(m).sum())
    error = caught.value
    assert name in error.asked and error.found and error.repair
    assert (error.source.file, error.source.line) == (__file__, function.__code__.co_firstlineno), str(error)


def test_every_op_without_a_derivative_is_tried():
    named = " ".join(FUNCTIONS)
    for opcode, entry in OPS.items():
        if not entry.jvp and entry.family not in ("structure", "control") and opcode != "custom-call":
            assert f"'{opcode}'" in named, f"'{opcode}' has no derivative: {entry.jvp.reason}"
