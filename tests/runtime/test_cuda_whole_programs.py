"""Functions of users on the fake driver, from trace to result: each kernel is its own text in the lock-step simulator,
and graphs, memory and copies are the runtime's."""

from __future__ import annotations

from types import SimpleNamespace

import cuda_cases as cases
import numpy as np
import pytest
from cuda_cases import device, finish
from fake_cuda_model import FakeKernel, writes

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.backends.cuda.program import cuda_program
from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.targets.cuda.launches import sources_of
from hloom.compiler.targets.cuda.simulator import simulator
from hloom.compiler.targets.cuda.target import CudaTarget
from hloom.ir import interpret
from hloom.ir.types import DTYPES
from hloom.runtime.cuda.array import DeviceArray
from hloom.runtime.cuda.programs.executable import CAPTURES, Executable
from hloom.runtime.cuda.programs.program import CudaProgram, Host, While, all_steps

_simulated: dict[tuple, list[bytes]] = {}  # what a kernel leaves in its arrays, by the kernel and what it found there


def _simulate(source, arrays: dict, integers: dict, blocks: int, layout: tuple) -> None:
    """Runs a kernel thread by thread, once for the same contents: tests that let every call fail run it very often.

    layout: which arrays share a block of memory, and where they begin in it.
    """
    before = tuple(array.tobytes() for array in arrays.values())
    key = (source, blocks, tuple(integers.values()), layout, before)
    if key not in _simulated:
        simulator.run(source, arrays, integers, blocks, False)
        _simulated[key] = [array.tobytes() for array in arrays.values()]
        return
    for array, after in zip(arrays.values(), _simulated[key], strict=True):
        array.view(np.uint8)[:] = np.frombuffer(after, np.uint8)


def simulated(fake, name: str, source) -> FakeKernel:
    """A kernel that is run thread by thread."""
    pointers = [kind.endswith("*") for kind in source.params]
    # By address: bytes to the end of the block, and the block. Memory may be freed before a kernel that reads it runs.
    sizes: dict[int, int] = {}
    owners: dict[int, int] = {}

    def run(fake, blocks, *words):
        arrays, integers = {}, {}
        found = [word for word, is_pointer in zip(words, pointers, strict=True) if is_pointer]
        order = list(dict.fromkeys(owners[word] for word in found))
        layout = tuple((order.index(owners[word]), word - owners[word]) for word in found)
        for parameter, word, kind in zip(source.parameters, words, source.params, strict=True):
            if kind.endswith("*"):
                dtype = DTYPES[kind.removesuffix("*")]
                arrays[parameter] = fake.view(word, sizes[word] // dtype.itemsize * dtype.itemsize, dtype)
            else:
                integers[parameter] = word
        _simulate(source, arrays, integers, blocks, layout)

    def accesses(*words):
        """What it touches is not known here: all that lies behind its pointers."""
        found = [word for word, is_pointer in zip(words, pointers, strict=True) if is_pointer]
        for word in found:
            block = fake.memory.find(word, 0, name)
            sizes[word], owners[word] = block.address + block.nbytes - word, block.address
        return [writes(word, sizes[word]) for word in found]

    return FakeKernel(name, "".join("p" if p else "i" for p in pointers), run, accesses, with_grid=True)


def compiled(function, *arrays, donated=frozenset(), version: int = 13000, tf32: bool = False, choose=None):
    """(the executable of a function on a new fake device, the module as traced). choose(device): what decides the steps
    that a library could do."""
    module = hl.make_module(function)(*arrays)
    target = CudaTarget("sm_90", tf32=tf32)
    plan = make_plan(run_passes(module, PIPELINE, target=target), target, donated)
    dev = device(cases.driver(version=version))
    codes = {}
    for source in dict.fromkeys(source for step in plan.kernels() for source in sources_of(step.launch)):
        name = f"{source.name}_{len(codes)}"
        codes[source] = SimpleNamespace(cubin=f"cubin {name}".encode(), name=name)
        dev.fake.kernels[name] = simulated(dev.fake, name, source)
    chooser = (choose(dev),) if choose else ()
    return Executable(cuda_program(plan, codes, "whole"), dev, *chooser), module


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
