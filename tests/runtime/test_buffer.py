"""The buffer pool: what counts as in use, limits, statistics, and speed of thought (no allocation after the first)."""

import gc
import pickle
import sys
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest

from hloom.runtime import buffer
from hloom.runtime.buffer import Arena, Pool, address

pytestmark = pytest.mark.quick

FLOAT = np.dtype(np.float32)


def place(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (2, 0, 4), (1000,), (3, 1 << 20)])
@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float32, np.complex128, ml_dtypes.bfloat16])
def test_arrays_are_aligned_writable_and_contiguous(shape, dtype):
    array = Pool().allocate(shape, np.dtype(dtype))
    assert array.shape == shape and array.dtype == dtype
    assert place(array) % 64 == 0
    assert array.flags.c_contiguous and array.flags.writeable
    array[...] = 1
    assert (array == np.ones(shape, dtype)).all()


def test_address_is_the_address():
    for array in (np.empty(3), np.empty((4, 4))[1:, 2:], np.empty(0), np.float32(3) * np.ones(())):
        array = np.asarray(array)
        assert address(array) == place(array)


def test_a_dropped_array_is_recycled_and_a_kept_one_is_not():
    pool = Pool()
    first = pool.allocate((100,), FLOAT)
    second = pool.allocate((100,), FLOAT)
    assert place(first) != place(second)
    old = place(first)
    del first
    third = pool.allocate((100,), FLOAT)
    assert place(third) == old
    assert pool.allocate((100,), np.dtype(np.int32)).dtype == np.int32
    statistics = pool.statistics
    assert (statistics.hits, statistics.misses, statistics.bytes_allocated) == (1, 3, 1200)


# Each way makes something that refers to the memory of an array, without referring to the array object itself.
WAYS = {
    "the array": lambda array: array,
    "a slice": lambda array: array[3:],
    "a view of a view": lambda array: array[1:].reshape(3, 3)[::2].T,
    "another dtype": lambda array: array.view(np.uint8),
    "np.asarray of a view": lambda array: np.asarray(array[2:]),
    "a memoryview": memoryview,
    "a memoryview of a view": lambda array: memoryview(array[1:]),
    "a slice of a memoryview": lambda array: memoryview(array)[2:4],
    "DLPack, capsule": lambda array: array.__dlpack__(),
    "DLPack, imported": np.from_dlpack,
    "frombuffer": lambda array: np.frombuffer(array, np.uint8),
    "an iterator": lambda array: array.flat,
    "a subclass": lambda array: array.view(np.recarray),
    "as_strided": lambda array: np.lib.stride_tricks.as_strided(array, (2, 2), (4, 4)),
    "pickle 5, out of band": lambda array: _pickled(array),
    "in a list": lambda array: [array],
    "broadcast": lambda array: np.broadcast_to(array, (4, 10)),
}


def _pickled(array):
    buffers = []
    pickle.dumps(array, protocol=5, buffer_callback=buffers.append)
    return buffers


@pytest.mark.parametrize("way", WAYS)
def test_whatever_refers_to_the_memory_keeps_it(way):
    pool = Pool()
    array = pool.allocate((10,), FLOAT)
    array[:] = 7
    old = place(array)
    kept = WAYS[way](array)
    del array
    gc.collect()
    others = [pool.allocate((10,), FLOAT) for _ in range(3)]
    assert old not in [place(other) for other in others]
    del kept
    gc.collect()
    assert place(pool.allocate((10,), FLOAT)) == old


def test_a_view_outlives_trimming():
    pool = Pool()
    view = pool.allocate((1 << 20,), FLOAT)[5:]
    view[:] = 3
    assert pool.trim() == 0
    del pool
    gc.collect()
    assert (view == 3).all()


def test_changes_in_place_do_not_reach_the_next_user():
    pool = Pool()
    array = pool.allocate((6,), FLOAT)
    old = place(array)
    array.shape = (2, 3)
    array.flags.writeable = False
    del array
    again = pool.allocate((6,), FLOAT)
    assert place(again) == old and again.shape == (6,) and again.flags.writeable


def test_a_weak_reference_does_not_keep_memory():
    pool = Pool()
    array = pool.allocate((6,), FLOAT)
    old, weak = place(array), weakref.ref(array)
    del array
    assert weak() is None
    assert place(pool.allocate((6,), FLOAT)) == old


def test_a_training_loop_allocates_nothing_after_the_first_steps():
    pool = Pool()
    shapes = [(64, 32), (32,), (32, 10), (10,), (64, 32)]
    weights = [pool.allocate(shape, FLOAT) for shape in shapes]
    for turn in range(20):
        new = [pool.allocate(shape, FLOAT) for shape in shapes]  # next weights, while the old ones still live
        loss = pool.allocate((), FLOAT)
        weights = new
        if turn == 1:
            settled = pool.statistics
    assert pool.statistics.misses == settled.misses
    assert pool.statistics.bytes_allocated == settled.bytes_allocated
    assert pool.statistics.hits == settled.hits + 18 * 6
    assert len(weights) == 5 and loss.shape == ()


def test_many_live_arrays_of_one_shape():
    pool = Pool()
    live = [pool.allocate((8,), FLOAT) for _ in range(200)]
    assert len({place(array) for array in live}) == 200
    free = {place(live[index]) for index in (3, 100, 199)}
    for index in (199, 100, 3):
        del live[index]
    live += [pool.allocate((8,), FLOAT) for _ in range(3)]
    assert {place(array) for array in live[-3:]} == free
    assert pool.statistics.misses == 200


def test_the_limit_bounds_what_is_held():
    pool = Pool(limit=10_000)
    kept = [pool.allocate((1000,), FLOAT) for _ in range(5)]  # 4000 bytes each, of which two fit
    assert pool.statistics.bytes_held == 8000
    assert len({place(array) for array in kept}) == 5
    del kept
    pool.allocate((500,), FLOAT)
    assert pool.statistics.bytes_held <= 10_000
    for size in range(1, 400):  # ever new shapes: the idle blocks of the old ones go
        pool.allocate((size,), FLOAT)
        assert pool.statistics.bytes_held <= 10_000


def test_trimming_takes_the_shapes_used_longest_ago_and_only_idle_blocks():
    pool = Pool()
    used = pool.allocate((100,), FLOAT)
    pool.allocate((200,), FLOAT)
    pool.allocate((300,), FLOAT)
    assert pool.statistics.bytes_held == 2400
    assert pool.trim(bytes_kept=1700) == 800  # the block of 200, as that of 100 is in use
    assert pool.trim() == 1200
    assert pool.statistics.bytes_held == 400
    used[:] = 1
    del used
    assert pool.trim() == 400


def test_several_threads_never_share_a_block():
    pool = Pool()
    clashes = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def work(number):
        for turn in range(3000):
            array = pool.allocate((16,), FLOAT)
            array[:] = number
            second = pool.allocate((16,), FLOAT)
            second[:] = -number
            if (array != number).any() or (second != -number).any():
                clashes.append((number, turn))
            if turn % 500 == 0:
                pool.trim()

    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert clashes == []
    assert pool.trim() >= 0 and pool.statistics.bytes_held == 0


def test_a_shelf_is_the_pool_for_one_shape():
    pool = Pool()
    shelf = pool.shelf((4, 4), "float32")
    assert pool.shelf((4, 4), FLOAT) is shelf
    array = shelf.take()
    assert array.shape == (4, 4) and array.dtype == FLOAT
    old = place(array)
    del array
    assert place(pool.allocate((4, 4), FLOAT)) == old


def test_large_blocks_recycle_too():
    pool = Pool()
    array = pool.allocate((3 << 20,), FLOAT)
    assert place(array) % (2 << 20) == 0  # on a huge page's border
    array[:] = 1
    old = place(array)
    del array
    assert place(pool.allocate((3 << 20,), FLOAT)) == old


def test_large_blocks_serve_other_shapes():
    pool = Pool()
    array = pool.allocate((8 << 20,), FLOAT)
    view, old = array[:10], place(array)
    del array
    assert place(pool.allocate((4 << 20,), FLOAT)) != old  # a view of it is alive
    view[:] = 3
    del view
    other = pool.allocate((4096, 600), np.dtype(np.float64))
    assert place(other) == old and pool.statistics.bytes_allocated == 48 << 20
    other[:] = 1
    second = pool.allocate((8 << 20,), FLOAT)
    assert place(second) != old
    del other
    third = pool.allocate((8 << 20,), FLOAT)
    third[:] = 2
    assert place(third) == old and third.shape == (8 << 20,)
    del second, third
    assert pool.trim() == (48 << 20) + (32 << 20) and pool.statistics.bytes_held == 0


def test_a_small_array_takes_no_block_that_is_much_larger():
    pool = Pool()
    old = place(pool.allocate((48 << 20,), np.dtype(np.uint8)))
    assert place(pool.allocate((5 << 20,), np.dtype(np.uint8))) != old
    assert place(pool.allocate((1 << 20,), np.dtype(np.uint8))) != old
    assert place(pool.allocate((6 << 20,), np.dtype(np.uint8))) == old


def test_several_threads_never_share_a_large_block():
    pool = Pool()
    clashes = []

    def work(number):
        for turn in range(300):
            array = pool.allocate(((4 << 20) + (turn + number) % 3 * 4096,), np.dtype(np.uint8))
            array[:64] = number
            second = pool.allocate(((4 << 20) + turn % 2 * 4096,), np.dtype(np.uint8))
            second[:64] = number + 100
            if (array[:64] != number).any() or (second[:64] != number + 100).any():
                clashes.append((number, turn))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert clashes == []
    held = pool.statistics.bytes_held
    assert pool.trim() == held


def test_the_pool_of_the_process():
    before = buffer.statistics()
    array = buffer.allocate((17, 3), FLOAT)
    same = buffer.shelf((17, 3), FLOAT).take()
    assert place(array) != place(same)
    after = buffer.statistics()
    assert after.hits + after.misses == before.hits + before.misses + 2
    del array, same
    assert buffer.trim() >= 2 * 17 * 3 * 4


@pytest.mark.parametrize("nbytes", [0, 1, 1000, 5 << 20])
def test_an_arena_is_aligned_bytes(nbytes):
    arena = Arena(nbytes)
    assert arena.address % 64 == 0 and arena.address == place(arena.array)
    assert arena.array.nbytes == arena.nbytes == nbytes
    arena.array[:] = 255
