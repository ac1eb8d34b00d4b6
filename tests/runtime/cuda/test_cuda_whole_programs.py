"""Functions of users on the fake driver, from trace to result: each kernel is its own text in the lock-step simulator,
and graphs, memory and copies are the runtime's."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from cuda_cases import finish
from cuda_simulated import compiled

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.ir import interpret
from hloom.runtime.cuda.array import DeviceArray
from hloom.runtime.cuda.programs.executable import CAPTURES
from hloom.runtime.cuda.programs.program import CudaProgram, Host, While, all_steps


def check(function, *arrays, turns: int = 1, tolerance: float = 2e-5, **options) -> CudaProgram:
    """The results on the fake GPU are those of the reference interpreter, and nothing is left behind."""
    arrays = [np.asarray(a) for a in arrays]
    run, module = compiled(function, *arrays, **options)
    dev, kept = run.device, []
    with np.errstate(all="ignore"):
        wanted = interpret.evaluate(module.entry, arrays)
    wanted = list(wanted) if isinstance(wanted, tuple) else [wanted]
    for _ in range(turns):
        given = [DeviceArray.put(dev, a, f"argument {k}").buffer for k, a in enumerate(arrays)]
        results = run(given)
        for buffer, shape, want in zip(results, run.program.outputs, wanted, strict=True):
            got = DeviceArray(dev, buffer, shape).numpy()
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
        kept.append((given, results))
    finish(dev)
    return run.program


X = np.random.default_rng(3).normal(size=(5, 40)).astype(np.float32)
Y = np.random.default_rng(4).normal(size=(40, 6)).astype(np.float32)
DRIVERS = pytest.mark.parametrize("version", [12020, 12040, 13000])


def test_a_layer():
    check(lambda x, y: hl.nn.softmax(hnp.tanh(x @ y) + 1, axis=-1), X, Y, turns=2)


def test_arguments_at_ever_new_addresses():
    check(lambda x: (hnp.exp(x) * 2, x.sum(axis=0)), X, turns=CAPTURES + 2)


@DRIVERS
def test_a_while_loop(version):
    def newton(x):
        def step(state):
            k, value = state
            return k + 1, 0.5 * (value + hnp.abs(x) / value)

        return lax.while_loop(lambda state: state[0] < 4, step, (0, hnp.ones_like(x)))[1]

    program = check(newton, np.abs(X) + 1, version=version)
    assert program.steps


@DRIVERS
def test_a_loop_whose_end_is_in_the_data(version):
    def grow(x):
        return lax.while_loop(lambda v: v.sum() < 100, lambda v: v * 2 + hnp.roll(v, 1), hnp.abs(x))

    program = check(grow, X, version=version)
    assert any(isinstance(step, While) for step in all_steps(program.steps))


@DRIVERS
@pytest.mark.parametrize("which", [0, 1, 2, 7])
def test_a_switch_and_a_branch(version, which):
    def choose(k, x):
        y = lax.switch(k, [lambda v: hnp.cumsum(v, 1), lambda v: hnp.sort(v, 1), lambda v: -v], x)
        return lax.cond(y[0, 0] > 0, lambda v: v.T @ v, lambda v: v.T @ (v + 1), y)

    check(choose, np.int32(which), X, version=version)


@DRIVERS
def test_a_scan_with_state_and_results(version):
    def recurrent(w, xs):
        def step(state, x):
            state = hnp.tanh(state @ w + x)
            return state, state.sum()

        return lax.scan(step, hnp.zeros(6, hnp.float32), xs)

    w = np.random.default_rng(5).normal(size=(6, 6)).astype(np.float32) / 3
    xs = np.random.default_rng(6).normal(size=(7, 6)).astype(np.float32)
    check(recurrent, w, xs, version=version, turns=2)


def test_a_python_function_inside():
    def with_host(x):
        shape = hl.ShapeDtypeStruct(x.shape, x.dtype)
        return hl.pure_callback(lambda a: np.flip(np.asarray(a), 0), shape, hnp.sin(x)) + x

    program = check(with_host, X, turns=2)
    assert any(isinstance(step, Host) for step in all_steps(program.steps))


def test_a_function_that_numba_compiles_inside():
    reverse = hl.kernel(numba.njit(lambda a: a[::-1].copy()), results=lambda a: a)
    program = check(lambda x: reverse(hnp.sin(x)) + hl.vmap(reverse)(x), X, turns=2)
    assert any(isinstance(step, Host) for step in all_steps(program.steps))


def test_a_donated_argument():
    run, _ = compiled(lambda x: x * 3 + 1, X, donated=frozenset([0]))
    dev = run.device
    given = DeviceArray.put(dev, X, "x")
    (out,) = run([given.buffer])
    assert out is given.buffer
    np.testing.assert_allclose(given.numpy(), X * 3 + 1, rtol=1e-6)
    finish(dev)


def test_the_users_lines_are_with_the_launches():
    run, _ = compiled(lambda x: hnp.exp(x), X)
    assert run.lines and all("test_cuda_whole_programs.py" in line for line in run.lines)
