"""Programs on the fake driver: what goes wrong, threads, and what is given back."""

from __future__ import annotations

import threading

import cuda_cases as cases
import numpy as np
import pytest
from cuda_cases import OUT, VECTOR, N, X, Y, device, fetch, finish, launch, vectors
from fake_cuda_model import FakeKernel, writes

from hloom.ir.types import Shape
from hloom.runtime.cuda.errors import CudaDeviceLostError, CudaLaunchError, CudaModuleError
from hloom.runtime.cuda.programs.executable import Executable
from hloom.runtime.cuda.programs.program import Copy, CudaProgram, Kernel, Launch


def failing() -> CudaProgram:
    steps = (*cases.straight().steps, launch("fails", X, where="model.py:9 in broken"))
    return CudaProgram("broken", steps, [], 4 * N, [VECTOR, VECTOR], [VECTOR])


def test_a_kernel_that_fails_is_found_later_and_names_program_and_lines():
    dev = device()
    good, bad = Executable(cases.straight(), dev), Executable(failing(), dev)
    inputs = [dev.put(v, "v") for v in vectors(2)]
    dev.wait(good(inputs)[0].ready, "waited")
    (out,) = bad(inputs)  # enqueued: nothing is known yet
    with pytest.raises(CudaDeviceLostError) as caught:
        dev.wait(out.ready, "the result of broken was waited for")
    assert "broken" in caught.value.found and caught.value.programs == ("broken",)
    assert "model.py:9 in broken" in caught.value.source
    assert caught.value.name == "CUDA_ERROR_ILLEGAL_ADDRESS" and caught.value.code == 700
    with pytest.raises(CudaDeviceLostError, match="was lost") as again:
        good(inputs)
    assert "CPU" in again.value.repair and "ILLEGAL_ADDRESS" in again.value.found


def test_stepwise_names_the_launch():
    dev = device(stepwise=True)
    bad = Executable(failing(), dev)
    with pytest.raises(CudaDeviceLostError) as caught:
        bad([dev.put(v, "v") for v in vectors(2)])
    assert caught.value.source == "model.py:9 in broken"
    assert "the kernel fails of broken" in caught.value.asked


@pytest.mark.parametrize("stepwise", [False, True])
def test_a_launch_that_the_driver_refuses_names_the_line_and_harms_nothing(stepwise):
    dev = device(stepwise=stepwise)
    kernel = Kernel(cases.CUBIN, "add")
    bad = Launch(kernel, (1, 1, 1), (2048, 1, 1), (X, Y, OUT, N), 0, "model.py:5 in f")
    run = Executable(CudaProgram("f", (bad,), [], 0, [VECTOR, VECTOR], [VECTOR]), dev)
    inputs = [dev.put(v, "v") for v in vectors(2)]
    with pytest.raises(CudaLaunchError) as caught:
        run(inputs)
    assert caught.value.source == "model.py:5 in f" and "(2048, 1, 1)" in caught.value.asked
    assert "block" in caught.value.repair
    good = Executable(cases.straight(), dev)
    fetch(dev, good(inputs)[0])
    finish(dev)


def test_machine_code_that_does_not_load_or_lacks_the_kernel():
    dev = device()
    inputs = [dev.put(v, "v") for v in vectors(2)]
    for kernel, word in ((Kernel(b"garbage", "add"), "INVALID_IMAGE"), (Kernel(cases.CUBIN, "none"), "NOT_FOUND")):
        step = Launch(kernel, (1, 1, 1), (32, 1, 1), (X, Y, OUT, N), 0, "model.py:6 in f")
        run = Executable(CudaProgram("f", (step,), [], 0, [VECTOR, VECTOR], [VECTOR]), dev)
        with pytest.raises(CudaModuleError, match=word) as caught:
            run(inputs)
        assert caught.value.source == "model.py:6 in f" and "compile" in caught.value.repair
    finish(dev)


def test_dynamic_shared_memory_is_asked_for_before_the_launch():
    dev = device()
    step = launch("add", X, Y, OUT, N, shared=100_000)
    run = Executable(CudaProgram("f", (step,), [], 0, [VECTOR, VECTOR], [VECTOR]), dev)
    x, y = vectors(2)
    assert (fetch(dev, run([dev.put(x, "x"), dev.put(y, "y")])[0]) == x + y).all()
    assert dev.fake.counts()["cuFuncSetAttribute"] == 1
    assert dev.function_facts(step.kernel).registers == 32
    finish(dev)


def test_arguments_by_value():
    dev = device()
    seen = []

    def run_kernel(fake, out, number):
        seen.append(number)
        fake.view(out, 4 * N)[...] = 1

    by_value = (-7).to_bytes(8, "little", signed=True)
    dev.fake.kernels["by_value"] = FakeKernel("by_value", "pi", run_kernel, lambda out, n: [writes(out, 4 * N)])
    step = Launch(Kernel(b"cubin by_value", "by_value"), (1, 1, 1), (32, 1, 1), (OUT, by_value))
    run = Executable(CudaProgram("f", (step,), [], 0, [], [VECTOR]), dev)
    fetch(dev, run([])[0])
    assert seen == [-7]
    finish(dev)


def test_threads_take_turns():
    """Graphs are changed and launched by several threads at once; the fake pauses in the middle of a change."""
    dev = device()
    dev.fake.slow_changes = True
    run = Executable(cases.straight(), dev)
    wrong, kept = [], []

    def work(number):
        try:
            for turn in range(6):
                x, y = vectors(2, 100 * number + turn)
                inputs = [dev.put(x, "x"), dev.put(y, "y")]
                (out,) = run(inputs)
                kept.append((inputs, out))
                if not (fetch(dev, out) == cases.straight_result(x, y)).all():
                    wrong.append((number, turn))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert dev.fake.counts()["cuGraphExecKernelNodeSetParams"] > 0
    finish(dev)


def test_a_program_that_is_dropped_gives_its_graphs_back():
    dev = device()
    run = Executable(cases.straight(), dev)
    inputs = [dev.put(v, "v") for v in vectors(2)]
    fetch(dev, run(inputs)[0])
    del run
    dev.synchronize()
    dev.synchronize()
    counts = dev.fake.counts()
    assert counts["cuGraphExecDestroy"] == 1 and counts["cuGraphDestroy"] == 1
    finish(dev)


def test_empty_programs_and_arrays():
    dev = device()
    empty = Shape("f32", (0,))
    run = Executable(CudaProgram("f", (Copy(OUT, X, 0),), [], 0, [empty], [empty]), dev)
    assert fetch(dev, run([dev.put(np.zeros(0, np.float32), "x")])[0], empty).shape == (0,)
    finish(dev)
