"""Copies from one GPU to another: directly where there is a link, in the order of both, whatever call fails."""

from __future__ import annotations

import cuda_cases as cases
import numpy as np
import pytest
from cuda_cases import VECTOR, N, device, driver, fetch, finish, gpu, vectors

from hloom.runtime.cuda.array import DeviceArray
from hloom.runtime.cuda.errors import CudaDeviceLostError, CudaError, CudaOutOfMemoryError
from hloom.runtime.cuda.interop import import_array
from hloom.runtime.cuda.peers import receive
from hloom.runtime.cuda.programs.executable import Executable


def two(**options):
    fake = driver(gpus=[gpu(), gpu()], **options)
    return fake, device(fake), device(fake, 1)


def finish_both(first, second) -> None:
    second.close()
    finish(first)


@pytest.mark.parametrize("linked", [True, False])
def test_a_result_goes_to_another_gpu_and_back(linked):
    fake, first, second = two(linked=linked)
    run, other = Executable(cases.straight(), first), Executable(cases.straight(), second)
    x, y = vectors(2)
    for _ in range(3):
        (out,) = run([first.put(x, "x"), first.put(y, "y")])
        there = DeviceArray(first, out, VECTOR).to(second)
        del out  # its memory is used again when the copy is done
        assert there.to(second) is there and str(there.device) == "cuda:1"
        (more,) = other([there.buffer, second.put(y, "y")])
        back = DeviceArray(second, more, VECTOR).to(first)
        assert np.allclose(back.numpy(), cases.straight_result(cases.straight_result(x, y), y))
    assert (fake.direct, fake.staged) == ((24 * N, 0) if linked else (0, 24 * N))
    counts = fake.counts()
    assert counts["cuMemcpyPeerAsync"] == 6 and counts["cuDeviceCanAccessPeer"] == 2
    assert counts.get("cuMemPoolSetAccess", 0) == counts.get("cuCtxEnablePeerAccess", 0) == (2 if linked else 0)
    del there, more, back
    finish_both(first, second)


def test_the_host_does_not_wait_and_neither_do_later_programs_of_the_sender():
    fake, first, second = two()
    run = Executable(cases.straight(), first)
    x, y = vectors(2)
    inputs = [first.put(x, "x"), first.put(y, "y")]
    (out,) = run(inputs)
    start = len(fake.calls)
    for _ in range(3):
        (later,) = run(inputs)
    there = receive(second, out, first)
    counts = fake.counts(start)
    assert not any("Synchronize" in name for name in counts)
    assert there.ready is out.readers[-1]
    waited = [arguments[1] for name, arguments in fake.calls[start:] if name == "cuStreamWaitEvent"]
    assert waited == [out.ready.handle]  # for what made it, and not for what the sender does meanwhile
    assert (fetch(second, there) == cases.straight_result(x, y)).all()
    del inputs, out, later, there
    finish_both(first, second)


def test_an_upload_goes_on_without_the_programs_of_its_gpu():
    fake, first, second = two()
    (x,) = vectors(1)
    there = receive(second, first.put(x, "x"), first)
    assert (fetch(second, there) == x).all()
    del there
    finish_both(first, second)


def test_memory_of_another_library_goes_directly_too():
    fake, first, second = two()
    (x,) = vectors(1)
    theirs = DeviceArray.put(first, x)
    block = fake.memory.find(theirs.buffer.address, 0, "")
    ours = import_array(first, theirs)
    block.pool = None  # as if it was the other library's
    assert (ours.to(second).numpy() == x).all()
    assert fake.direct == 4 * N
    del ours, theirs
    first.synchronize()
    finish_both(first, second)


@pytest.mark.parametrize("code", [704, 711])
def test_access_that_another_library_enabled_or_that_there_is_no_room_for(code):
    fake, first, second = two()
    fake.started = True
    (x,) = vectors(1)
    array = DeviceArray.put(first, x)
    second.open()
    refuse(fake, "cuCtxEnablePeerAccess", code)
    assert (array.to(second).numpy() == x).all()
    del array
    finish_both(first, second)


def test_a_gpu_is_closed_while_another_reads_its_memory():
    fake, first, second = two()
    (x,) = vectors(1)
    arrays = [DeviceArray.put(first, x) for _ in range(2)]
    there = [array.to(second) for array in arrays]
    del arrays[0]  # one has gone, one lives
    first.close()
    assert all((array.numpy() == x).all() for array in there)
    del arrays, there
    finish(second)


def test_a_gpu_goes_on_when_one_that_has_read_its_memory_is_closed():
    fake, first, second = two()
    (x,) = vectors(1)
    array = DeviceArray.put(first, x)
    array.to(second)
    second.close()
    del array
    again = DeviceArray.put(first, x)
    assert (again.numpy() == x).all()
    first.memory()
    del again
    finish(first)


def refuse(fake, name: str, code: int) -> None:
    """The next call of a function fails."""
    real = getattr(fake, name)

    def once(*arguments):
        setattr(fake, name, real)
        fake.inject(0, code)
        return real(*arguments)

    once.outputs = real.outputs
    setattr(fake, name, once)


def copied(first, second) -> None:
    x, y = vectors(2)
    run = Executable(cases.straight(), first)
    (out,) = run([first.put(x, "x"), first.put(y, "y")])
    assert (DeviceArray(first, out, VECTOR).to(second).numpy() == cases.straight_result(x, y)).all()


def calls_of_a_copy() -> list[str]:
    fake, first, second = two()
    second.open()
    start = len(fake.calls)
    copied(first, second)
    return [name for name, _ in fake.calls[start:]]


CALLS = calls_of_a_copy()
PEERS = {"cuDeviceCanAccessPeer", "cuMemPoolSetAccess", "cuCtxEnablePeerAccess", "cuMemcpyPeerAsync"}


def test_the_calls_are_those_of_copies_between_gpus():
    assert PEERS < set(CALLS)


@pytest.mark.parametrize("code", [999, 2])
@pytest.mark.parametrize("number", range(CALLS.index("cuGraphLaunch"), len(CALLS)))
def test_any_call_may_fail(number, code):
    fake, first, second = two()
    second.open()
    fake.inject(number, code)
    again = {"cuGraphLaunch", "cuMemAllocFromPoolAsync"}  # out of memory: once more, with memory freed
    if code == 2 and CALLS[number] in again:
        copied(first, second)
    else:
        with pytest.raises(CudaError) as caught:
            copied(first, second)
        assert isinstance(caught.value, CudaOutOfMemoryError) == (code == 2)
        assert caught.value.asked and caught.value.found and caught.value.repair
    copied(first, second)
    finish_both(first, second)


@pytest.mark.parametrize("name", sorted(PEERS))
def test_a_device_that_is_lost_meanwhile(name):
    fake, first, second = two()
    second.open()
    fake.lose_at(CALLS.index(name), 719)
    with pytest.raises(CudaDeviceLostError):
        copied(first, second)
    with pytest.raises(CudaDeviceLostError):
        copied(first, second)
    assert fake.violations == []


def test_the_fake_driver_knows_what_a_gpu_cannot_use():
    fake, first, second = two(linked=False)
    (x,) = vectors(1)
    buffer = first.put(x, "x")
    first.use(buffer)
    first.synchronize()
    run = Executable(cases.straight(), second)
    with pytest.raises(AssertionError, match="GPU 1 uses memory of GPU 0"):
        run([buffer, buffer])
