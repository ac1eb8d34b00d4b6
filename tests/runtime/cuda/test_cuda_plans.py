"""Whole functions on the fake driver, whose kernels are the texts themselves in the lock-step simulator."""

import cuda_cases as cases
import numpy as np
import pytest
from cuda_simulated_plans import simulated_kernel
from fake_cuda import FakeDriver

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.backends.cuda.program import cuda_program
from hloom.backends.cuda.runner import CudaRunner
from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.targets.cuda.codegen.compile import CudaCode
from hloom.compiler.targets.cuda.sorting import bitonic, choice, radix
from hloom.compiler.targets.cuda.target import CudaTarget
from hloom.ir import interpret
from hloom.runtime.cuda.errors import ComputeCapabilityError
from hloom.runtime.cuda.programs.program import Conditional, Host, While, all_steps

RANDOM = np.random.default_rng(0)
OLD, NEW = 12020, 13000  # drivers without and with loops and branches in graphs


def made(function, *arrays, version: int = NEW):
    """(the program of a function, an opened device of a fake driver with its kernels, the results by the reference)."""
    module = hl.make_module(function)(*arrays)
    target = CudaTarget("sm_90")
    plan = make_plan(run_passes(module, PIPELINE, target=target), target)
    kernels, codes = [], {}
    for number, source in enumerate(dict.fromkeys(step.launch.source for step in plan.kernels())):
        title = f"k{number}_{source.name}"
        kernels.append(simulated_kernel(plan, source, title))
        codes[source] = CudaCode(title, "sm_90", f"cubin {title}".encode(), "", 32, 0, 0, 0)
    wanted = interpret.evaluate(module.entry, [np.asarray(a) for a in arrays])
    dev = cases.device(FakeDriver(kernels, version=version))
    return cuda_program(plan, codes, module.name), dev, wanted if isinstance(wanted, tuple) else (wanted,)


def check(function, *arrays, version: int = NEW):
    program, dev, wanted = made(function, *arrays, version=version)
    run = CudaRunner(program, "sm_90")
    run._loaded = run.load(dev)
    for _ in range(2):  # the second time a graph that is there is replayed
        results = run([np.ascontiguousarray(a) for a in arrays])
        for got, want in zip(results, wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    del run
    cases.finish(dev)
    return program


def floats(*dims):
    return RANDOM.standard_normal(dims).astype(np.float32)


def test_a_dense_layer_and_its_gradient():
    def loss(w, b, x):
        return (hnp.tanh(x @ w + b) ** 2).mean()

    check(hl.grad(loss, argnums=(0, 1)), floats(6, 5), floats(5), floats(7, 6))


@pytest.mark.parametrize("version", [OLD, NEW])
def test_loops_and_branches(version):
    def function(x, n):
        def body(state):
            k, y = state
            y = lax.cond(k % 2 == 0, lambda y: y + 1, lambda y: y * 0.5, y)
            return k + 1, lax.switch(k, [lambda y: y, lambda y: -y, lambda y: y * y], y)

        return lax.while_loop(lambda state: state[0] < n, body, (0, x))

    program = check(function, floats(40), np.int32(4), version=version)
    kinds = [type(step) for step in all_steps(program.steps)]
    assert kinds.count(While) == 1 and kinds.count(Conditional) == 2


def test_a_loop_whose_condition_has_a_loop():
    def function(x):
        def condition(y):
            return lax.fori_loop(0, 3, lambda k, t: t + k, y[0]) < 20

        return lax.while_loop(condition, lambda y: y + lax.fori_loop(0, 2, lambda k, t: t + 1, y), x)

    program = check(function, np.arange(5, dtype=np.float32))
    assert sum(isinstance(step, While) for step in all_steps(program.steps)) == 3


def test_a_callback_between_kernels():
    def function(x):
        doubled = hl.pure_callback(lambda a: a * 2, hl.ShapeDtypeStruct(x.shape, x.dtype), x + 1)
        return doubled - 3

    program = check(function, floats(8))
    assert [type(s) for s in program.steps].count(Host) == 1


def test_sorts_and_scatters_of_several_launches():
    check(lambda x, i, u: (hnp.sort(x), x.at[i].add(u)), floats(50), np.array([3, 3, 9]), floats(3))


def test_sorts_by_digits_read_and_write_two_arrays_in_turn(monkeypatch):
    for name, size in (("digit", 4), ("threads", 32), ("kept", 256)):
        monkeypatch.setattr(radix.RadixSort, name, size)
    monkeypatch.setattr(choice, "estimates", lambda *_: (1.0, 0.0))
    monkeypatch.setattr(bitonic, "CHUNK", 16)
    program = check(lambda x: hnp.sort(x), RANDOM.integers(0, 1000, 100).astype(np.int16))
    assert len(program.steps) == 13


def test_code_of_another_architecture_is_not_loaded():
    program, dev, _ = made(lambda x: x + 1, floats(4))
    with pytest.raises(ComputeCapabilityError, match="target='cuda:sm_90'"):
        CudaRunner(program, "sm_80").load(dev)
    cases.finish(dev)
