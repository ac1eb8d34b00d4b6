"""Memory and copies on the fake driver: what is reused, what is given back, what runs beside what, and running out."""

from __future__ import annotations

import gc
import os
import threading

import cuda_cases as cases
import numpy as np
import pytest
from cuda_cases import VECTOR, N, device, driver, fetch, finish, gpu, vectors

from hloom.ir import records
from hloom.ir.types import Shape
from hloom.runtime.cuda.array import DeviceArray
from hloom.runtime.cuda.errors import CudaError, CudaOutOfMemoryError
from hloom.runtime.cuda.memory import rounded
from hloom.runtime.cuda.programs.executable import CAPTURES, REBUILDS, Executable
from hloom.runtime.cuda.staging import PIECE

MIB = 1 << 20


def small_gpu(memory: int, **options):
    return device(driver(gpus=[gpu(memory=memory)]), **options).open()


def test_a_device_takes_nothing_before_its_first_use():
    dev = device()
    assert not any(name.startswith(("cuDevicePrimaryCtx", "cuMem", "cuStream")) for name in dev.fake.counts())
    dev.open()
    counts = dev.fake.counts()
    assert counts["cuMemPoolCreate"] == 1 and "cuMemAllocFromPoolAsync" not in counts
    assert "cuMemHostAlloc" not in counts
    finish(dev)


def test_memory_is_used_again_at_its_address_without_the_driver():
    dev = device().open()
    first = dev.pool.take(5000, "first")
    address = first.address
    other = dev.pool.take(5000, "other")
    assert other.address != address
    del first
    start = len(dev.fake.calls)
    second = dev.pool.take(4900, "second")  # the same size of block
    assert second.address == address and dev.fake.calls[start:] == []
    statistics = dev.memory()
    assert (statistics.hits, statistics.misses) == (1, 2)
    assert statistics.bytes_in_use == statistics.peak == 2 * rounded(5000)
    finish(dev)


@pytest.mark.parametrize("nbytes", [0, 1, 512, 513, MIB, MIB + 1, 3 * MIB + 5])
def test_blocks_are_large_enough_and_round(nbytes):
    assert nbytes <= rounded(nbytes) <= max(512, nbytes * 1.07 + 512) and rounded(nbytes) % 512 == 0


def test_idle_memory_beyond_the_limit_goes_to_the_driver_the_oldest_sizes_first():
    dev = small_gpu(32 * MIB)  # 4 MiB may be idle
    for size in (MIB, 2 * MIB, 3 * MIB):
        dev.pool.take(size, "a block")
    assert dev.memory().bytes_idle == 3 * MIB
    assert dev.fake.counts()["cuMemFreeAsync"] == 2
    dev.pool.trim()
    assert dev.memory().bytes_idle == 0 and dev.fake.used == [0]
    finish(dev)


def test_running_out_frees_what_is_cached_and_tries_once_more():
    dev = small_gpu(16 * MIB)
    kept = dev.pool.take(8 * MIB, "kept")
    for k in range(4):
        dev.pool.take(MIB // 2 * (k + 1), "idle")
    cycle = [dev.pool.take(5 * MIB, "in a cycle")]
    cycle.append(cycle)
    gc.disable()
    try:
        del cycle
        big = dev.pool.take(8 * MIB, "big")  # fits only when all of these are gone
    finally:
        gc.enable()
    assert dev.memory().retries == 1 and big.nbytes == kept.nbytes
    finish(dev)


def test_graphs_for_which_memory_is_missing_are_tried_once_more():
    dev = device()
    x, y = vectors(2)
    for name in ("cuGraphInstantiate", "cuGraphLaunch", "cuModuleLoadData"):
        run = Executable(cases.straight() if name != "cuModuleLoadData" else renamed(), dev)
        inputs = [dev.put(x, "x"), dev.put(y, "y")]
        dev.synchronize()
        refuse_next(dev.fake, name)
        (out,) = run(inputs)
        assert (fetch(dev, out) == cases.straight_result(x, y)).all()
        del out, inputs
    finish(dev)


def renamed():
    """The same program with machine code that has not been loaded."""
    program = cases.straight()
    program.steps = [
        records.replace(s, kernel=records.replace(s.kernel, cubin=s.kernel.cubin + b" other")) for s in program.steps
    ]
    return program


def refuse_next(fake, name: str) -> None:
    """The next call of a function finds no memory."""
    enter = fake.enter

    def entered(function, outputs, arguments):
        if function.__name__ == name:
            fake.enter = enter
            fake.inject(0, 2)
        return enter(function, outputs, arguments)

    fake.enter = entered


def test_out_of_memory_names_the_largest_buffers_of_the_user():
    dev = small_gpu(16 * MIB)
    kept = [dev.pool.take(size * MIB, label) for size, label in ((1, "bias"), (8, "weights"), (4, "images"))]
    with pytest.raises(CudaOutOfMemoryError) as caught:
        dev.pool.take(6 * MIB, "logits")
    error = caught.value
    assert isinstance(error, MemoryError) and error.code == 2
    assert error.largest == (("weights", 8 * MIB), ("images", 4 * MIB), ("bias", MIB))
    assert "6,291,456 bytes of cuda:0" in error.asked and "logits" in error.asked
    assert "weights 8.0 MiB; images 4.0 MiB" in error.found and "3.0 MiB of 16.0 MiB are free" in error.found
    assert "delete" in error.repair
    del kept[1]
    again = dev.pool.take(6 * MIB, "logits")
    again.label = "renamed"
    assert dev.pool.largest(1) == [("renamed", 6 * MIB)]
    finish(dev)


def test_temporaries_of_idle_programs_are_given_up_under_pressure():
    dev = small_gpu(4 * MIB)
    program = cases.straight()
    program.arena_bytes = 2 * MIB
    run = Executable(program, dev)
    x, y = vectors(2)
    inputs = [dev.put(x, "x"), dev.put(y, "y")]
    fetch(dev, run(inputs)[0])
    big = dev.pool.take(3 * MIB, "big")
    assert dev.memory().retries == 1
    with pytest.raises(CudaOutOfMemoryError, match="temporaries of f"):
        run(inputs)
    del big
    assert (fetch(dev, run(inputs)[0]) == cases.straight_result(x, y)).all()
    finish(dev)


# --- copies ---


@pytest.mark.parametrize("size", [0, 1, 1000, 64 << 10, (64 << 10) + 1, PIECE + 3, 3 * PIECE, 6 * PIECE + 7])
def test_arrays_come_back_as_they_went(size):
    dev = device()
    array = np.random.default_rng(1).integers(0, 255, size, np.uint8)
    sent = array.copy()
    there = DeviceArray.put(dev, array, "bytes")
    array[:] = 0  # the caller's own again
    assert (there.numpy() == sent).all()
    finish(dev)


@pytest.mark.parametrize("array", [np.float32(3), np.arange(12).reshape(3, 4).T, np.zeros((2, 0, 3)), np.bool_(True)])
def test_arrays_of_all_kinds(array):
    dev = device()
    there = DeviceArray.put(dev, array, "an array")
    assert there.shape == np.shape(array) and there.dtype == np.asarray(array).dtype
    assert (there.numpy() == array).all() and there.numpy().shape == np.shape(array)
    finish(dev)


def test_small_arrays_share_a_copy():
    dev = device()
    sizes = [1, 100, 0, 4000, 20_000, 3, *[4000] * 20]
    arrays = [np.full(n, k, np.float32) for k, n in enumerate(sizes)]
    buffers = dev.put_all(arrays, [f"argument {k}" for k in range(len(arrays))])
    counts = dev.fake.counts()
    assert counts["cuMemcpyAsync"] == counts["cuMemAllocFromPoolAsync"] == 1 + 6  # the large one; 4 of 4000 to a piece
    assert len({b.address for b in buffers}) == len(buffers) and all(b.address % 256 == 0 for b in buffers)
    for buffer, array in zip(buffers, arrays, strict=True):
        assert (fetch(dev, buffer, Shape("f32", array.shape)) == array).all()
    del buffers[::2], buffer
    assert dev.memory().bytes_in_use > 0
    coming = [dev.get(b, np.empty(b.nbytes // 4, np.float32)) for b in buffers]
    buffers.clear()
    for one in coming:
        one.buffer = None
    assert dev.memory().bytes_in_use == 0  # the fake says where memory is freed that is still being read
    for one, array in zip(coming, arrays[1::2], strict=True):
        assert (one.result() == array).all()
    finish(dev)


def test_parts_of_a_block_are_arguments_like_others():
    dev = device()
    run = Executable(cases.straight(), dev)
    for turn in range(CAPTURES + 2):
        x, y = vectors(2, turn)
        start = len(dev.fake.calls)
        (out,) = run(dev.put_all([x, y], ["x", "y"]))
        if turn == CAPTURES:
            # For both arguments, and for the copy of the result before, whose memory is used again.
            assert dev.fake.counts(start)["cuStreamWaitEvent"] == 2
        assert (fetch(dev, out) == cases.straight_result(x, y)).all()
    program = cases.straight()
    program.donated = {0: 0}
    inputs = dev.put_all([x, y], ["x", "y"])
    (out,) = Executable(program, dev)(inputs)
    assert out is inputs[0] and (fetch(dev, out) == cases.straight_result(x, y)).all()
    finish(dev)


def test_an_upload_does_not_wait_for_programs_and_they_wait_for_it():
    dev = device()
    run = Executable(cases.straight(), dev)
    inputs = [dev.put(v, "v") for v in vectors(2)]
    run(inputs)
    start = len(dev.fake.calls)
    fresh = dev.put(vectors(1)[0], "fresh")
    waits = [arguments for name, arguments in dev.fake.calls[start:] if name == "cuStreamWaitEvent"]
    assert waits == [] and not any("Synchronize" in name for name, _ in dev.fake.calls[start:])
    run([fresh, inputs[1]])
    waits = [a for name, a in dev.fake.calls[start:] if name == "cuStreamWaitEvent"]
    assert [int(a[0]) for a in waits] == [int(dev.main)]
    assert fresh.pending is None
    finish(dev)


def test_a_download_is_read_later_while_programs_run():
    dev = device()
    run = Executable(cases.straight(), dev)
    x, y = vectors(2)
    inputs = [dev.put(x, "x"), dev.put(y, "y")]
    (out,) = run(inputs)
    start = len(dev.fake.calls)
    coming = dev.get(out, np.empty(N, np.float32))
    del out  # its memory is used again, after the copy
    others = [run(inputs) for _ in range(3)]
    assert not any("Synchronize" in name for name, _ in dev.fake.calls[start:])
    assert (coming.result() == cases.straight_result(x, y)).all()
    assert len(others) == 3
    finish(dev)


def test_memory_of_a_download_is_not_used_before_it_is_done():
    """A buffer dropped while it is copied: the main stream waits, or the fake says that it does not."""
    dev = device()
    x, y = vectors(2)
    (buffer,) = Executable(cases.straight(), dev)([dev.put(x, "x"), dev.put(y, "y")])
    coming = dev.get(buffer, np.empty(N, np.float32))
    address = buffer.address
    del buffer
    coming.buffer = None
    again = dev.pool.take(4 * N, "again")
    assert again.address == address
    dev.api.fill(again.address, 0, 4 * N, dev.main)
    assert (coming.result() == cases.straight_result(x, y)).all()
    finish(dev)


def test_pinned_memory_is_bounded_however_many_copies_are_open():
    dev = device()
    arrays = [np.full(100, k, np.int32) for k in range(100)]
    buffers = [dev.put(a, "a") for a in arrays]
    coming = [dev.get(b, np.empty(100, np.int32)) for b in buffers]
    abandoned = [dev.get(b, np.empty(100, np.int32)) for b in buffers[:40]]
    del abandoned
    for array, one in zip(arrays, coming, strict=True):
        assert (one.result() == array).all()
    pinned = [b.nbytes for b in dev.fake.memory.blocks if b.kind == "pinned"]
    assert sum(pinned) <= 2 * 32 * (64 << 10)
    finish(dev)


@pytest.mark.parametrize("pieces", [1, 3, 9])
def test_what_is_written_after_a_download_has_begun_does_not_show(pieces):
    """Larger than all pinned memory, too."""
    dev = device()
    size = pieces * PIECE - 7
    array = np.random.default_rng(1).integers(0, 255, size, np.uint8)
    buffer = dev.put(array, "bytes")
    dev.use(buffer)
    coming = dev.get(buffer, np.empty(size, np.uint8))
    for event in buffer.readers:  # as the pool does before it gives the memory out again
        dev.api.wait_event(dev.main, event.handle)
    dev.api.fill(buffer.address, 0, size, dev.main)
    assert (coming.result() == array).all()
    assert (fetch(dev, buffer, Shape("u8", (size,))) == 0).all()
    finish(dev)


def test_several_threads_download_at_once():
    dev = device()
    arrays = [np.full(50_000, k, np.int32) for k in range(12)]
    buffers = [dev.put(a, "a") for a in arrays]
    wrong = []

    def work(number):
        for turn in range(12):
            k = (number * 5 + turn) % 12
            coming = [dev.get(buffers[j], np.empty(50_000, np.int32)) for j in (k, (k + 1) % 12)]
            for j, one in zip((k, (k + 1) % 12), coming, strict=True):
                if not (one.result() == arrays[j]).all():
                    wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads) and wrong == []
    finish(dev)


def test_a_result_may_be_waited_for_while_others_enqueue():
    """The lock of the device is free meanwhile."""
    dev = device()
    run = Executable(cases.straight(), dev)
    inputs = [dev.put(v, "v") for v in vectors(2)]
    (out,) = run(inputs)
    free = []
    whole = dev.api.synchronize_event

    def waiting(event, asked):
        thread = threading.Thread(target=lambda: free.append(run(inputs)))
        thread.start()
        thread.join(20)
        whole(event, asked)

    dev.api.synchronize_event = waiting
    dev.wait(out.ready, "a result was waited for")
    assert len(free) == 1
    finish(dev)


def test_time_of_what_is_enqueued():
    dev = device()
    run = Executable(cases.straight(), dev)
    inputs = [dev.put(v, "v") for v in vectors(2)]
    run(inputs)
    one, three = (dev.milliseconds(lambda n=n: [run(inputs) for _ in range(n)]) for n in (1, 3))
    assert 0 < one < three
    finish(dev)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_told():
    dev = device().open()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            dev.open()
        except CudaError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    text = os.read(reader, 1000).decode()
    assert "forked" in text and "spawn" in text
    finish(dev)


def test_an_upload_that_nobody_uses():
    dev = device()
    for k in range(50):
        dev.put(np.full(1000, k), "unused")
    assert dev.memory().bytes_in_use == 0
    finish(dev)


def test_a_loop_that_uploads_keeps_no_more_memory_than_it_uses():
    dev = device()
    run = Executable(cases.straight(), dev)
    for turn in range(30):
        x, y = vectors(2, turn)
        (out,) = run([dev.put(x, "x"), dev.put(y, "y")])
        assert (fetch(dev, out) == cases.straight_result(x, y)).all()
    assert dev.fake.used[0] <= 12 * rounded(4 * N)
    finish(dev)


def test_block_until_ready():
    dev = device()
    run = Executable(cases.straight(), dev)
    x, y = vectors(2)
    xs = [DeviceArray.put(dev, v, "v") for v in (x, y)]
    (out,) = run([a.buffer for a in xs])
    result = DeviceArray(dev, out, VECTOR).block_until_ready()
    start = len(dev.fake.calls)
    result.block_until_ready()
    assert dev.fake.calls[start:] == [] and result.buffer.ready is None
    assert "f32[1000] on cuda:0" in repr(result)
    finish(dev)


def test_another_library_may_make_another_gpu_current():
    fake = driver(gpus=[gpu(), gpu()])
    first, second = device(fake).open(), device(fake, 1).open()
    x, y = vectors(2)
    for dev, other in ((first, second), (second, first), (first, second)):
        fake.cuCtxSetCurrent(other.context)
        run = Executable(cases.straight(), dev)
        (out,) = run([dev.put(x, "x"), dev.put(y, "y")])
        fake.cuCtxSetCurrent(other.context)
        assert (fetch(dev, out) == cases.straight_result(x, y)).all()
    second.close()
    finish(first)


def test_closing_twice_and_using_again():
    dev = device()
    x, y = vectors(2)
    run, loop = Executable(cases.straight(), dev), Executable(cases.powers(), dev)
    for _ in range(3):
        kept = []
        for turn in range(CAPTURES + REBUILDS + 1):
            inputs = [dev.put(x, "x"), dev.put(y, "y"), dev.put(np.int32(turn), "steps")]
            outs = run(inputs[:2]) + loop(inputs)
            assert (fetch(dev, outs[0]) == cases.straight_result(x, y)).all()
            assert np.allclose(fetch(dev, outs[1]), x * y ** np.float32(turn))
            kept += [inputs, outs]
        finish(dev)
        dev.close()


def test_a_loop_gives_up_memory_of_its_own_under_pressure():
    dev = small_gpu(4 * MIB)
    loop, kept = Executable(cases.powers(), dev), []
    x, y = vectors(2)
    for _ in range(CAPTURES + REBUILDS + 1):
        inputs = [dev.put(x, "x"), dev.put(y, "y"), dev.put(np.int32(2), "steps")]
        kept += [inputs, loop(inputs)]
    assert "copies for the loops" in str(dev.pool.largest(99))
    dev.pool.release_unused()
    assert "copies for the loops" not in str(dev.pool.largest(99))
    assert np.allclose(fetch(dev, loop(inputs)[0]), x * y * y)
    assert "copies for the loops" in str(dev.pool.largest(99))
    finish(dev)
