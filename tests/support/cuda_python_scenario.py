"""Run by test_cuda_python.py in a process whose libcuda.so.1 is the stub: the runtime through cuda-python."""

from __future__ import annotations

import cuda_cases as cases
import numpy as np
from cuda_cases import OUT, TEMPORARY, VECTOR, N, X, fetch, host, launch, place, vectors

from hloom.runtime.cuda import Device, DeviceArray, Executable, available, gpus, import_array, load_api
from hloom.runtime.cuda.errors import CudaLaunchError, CudaModuleError, CudaOutOfMemoryError
from hloom.runtime.cuda.programs.executable import CAPTURES, REBUILDS
from hloom.runtime.cuda.programs.program import Copy, CudaProgram, Enqueue, Fill, Kernel, Launch


def programs(api, device: Device) -> None:
    kept: list = []
    straight, powers = (Executable(program, device) for program in (cases.straight(), cases.powers()))
    for turn in range(CAPTURES + REBUILDS + 4):
        x, y = vectors(2, turn)
        inputs = [device.put(x, "x"), device.put(y, "y")]
        (out,) = straight(inputs)
        assert (fetch(device, out) == cases.straight_result(x, y)).all()
        inputs.append(device.put(np.int32(turn % 4), "steps"))
        (other,) = powers(inputs)
        assert np.allclose(fetch(device, other), x * y ** np.float32(turn % 4))
        kept += [inputs, out, other]
    for by_index, count, value in ((False, 2, True), (False, 2, False), (True, 3, 1), (True, 3, -4), (True, 2, 0)):
        selector = np.asarray(value, np.int32 if by_index else np.bool_)
        (out,) = Executable(cases.chosen(by_index, count), device)([inputs[0], device.put(selector, "selector")])
        branch = (value if 0 <= value < count else count - 1) if by_index else (0 if value else 1)
        assert np.allclose(fetch(device, out), x * 10 * (branch + 1))


def all_kinds(api, device: Device) -> None:
    def library(stream, source, target):
        api.copy(target, source, 4 * N, api.stream_of(stream), "a library copied")
        api.fill(target, 0, 8, api.stream_of(stream))

    steps = (
        Enqueue(library, (X, TEMPORARY), "a library"),
        launch("add", TEMPORARY, X, OUT, N, shared=100_000),
        host(lambda a: a + 1, OUT, OUT),
        Fill(place("output", 1), 7, 4 * N),
        Copy(place("output", 2), X, 4 * N),
    )
    run = Executable(CudaProgram("f", steps, [np.ones(3)], 4 * N, [VECTOR], [VECTOR] * 3), device)
    kept: list = []
    for turn in range(CAPTURES + 2):
        (x,) = vectors(1, turn)
        given = device.put(x, "x")
        outs = run([given])
        want = x.copy()
        want[:2] = 0
        first, second, third = (fetch(device, out) for out in outs)
        assert np.allclose(first, want + x + 1) and (second.view(np.uint8) == 7).all() and (third == x).all()
        kept += [given, outs]


def answers(api, device: Device) -> None:
    (given,) = [device.put(v, "v") for v in vectors(1)]
    assert api.pool_bytes(device.pool_handle) == (3000, 2000) and api.free_memory() == (1 << 29, 1 << 30)
    facts = device.function_facts(Kernel(cases.CUBIN, "add"))
    assert (facts.registers, facts.max_threads, facts.local_bytes) == (40, 1024, 0)
    assert device.milliseconds(lambda: None) == 1.5
    for kernel, threads, error, word in (
        (Kernel(b"junk", "add"), 32, CudaModuleError, "CUDA_ERROR_INVALID_IMAGE (200): words of the stub"),
        (Kernel(cases.CUBIN, "none"), 32, CudaModuleError, "CUDA_ERROR_NOT_FOUND (500)"),
        (Kernel(cases.CUBIN, "add"), 2048, CudaLaunchError, "CUDA_ERROR_INVALID_VALUE (1)"),
    ):
        step = Launch(kernel, (1, 1, 1), (threads, 1, 1), (X, X, X, N), 0, "model.py:1")
        try:
            Executable(CudaProgram("bad", (step,), [], 0, [VECTOR], []), device)([given])
        except error as caught:
            assert word in str(caught) and "model.py:1" in str(caught), caught
        else:
            raise AssertionError(word)
    try:
        device.pool.take(1 << 31, "too much")
    except CudaOutOfMemoryError as caught:
        assert caught.largest[0] == ("v", 4 * N)
    else:
        raise AssertionError("there is not so much memory")


def shared(api, device: Device) -> None:
    (x,) = vectors(1)
    ours = DeviceArray.put(device, x, "x")
    again = import_array(device, ours)
    assert again.buffer.address == ours.buffer.address and (again.numpy() == x).all()
    assert ours.__cuda_array_interface__["stream"] == int(device.main)


def between(api, device: Device) -> None:
    """The calls for a second GPU, of which the stub has a number only."""
    x, y = vectors(2)
    source, target = device.put(x, "x"), device.put(y, "y")
    assert api.can_access_peer(device.handle, 1) is True
    api.share_pool(device.pool_handle, 1)
    api.enable_peer_access(device.context)
    api.copy_peer(
        target.address, device.context, source.address, device.context, 4 * N, device.main, "a copy was asked for"
    )
    assert (fetch(device, target) == x).all()


if __name__ == "__main__":
    assert available() is None
    driver = load_api()
    (gpu,) = gpus(driver)
    assert (gpu.name, gpu.arch, gpu.multiprocessors) == ("Stub", "sm_90", 132)
    for stepwise in (False, True):
        opened = Device(driver, gpu, stepwise=stepwise).open()
        for part in (programs, all_kinds, answers, shared, between):
            part(driver, opened)
        opened.close()
    print("all is well")
