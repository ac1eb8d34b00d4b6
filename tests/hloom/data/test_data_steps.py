"""What each step does, and the mistakes that it names."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom import data
from hloom.data.shuffle import Pool, below, draws
from hloom.errors import ArgumentError, DataError, ShapeError, WorkerError

pytestmark = pytest.mark.quick


def numbers(count=20):
    return data.arrays(np.arange(count))


def lists(dataset):
    return [np.asarray(batch).tolist() for batch in dataset]


def test_parts():
    assert lists(numbers(7).batch(3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert lists(numbers(7).batch(3, last="drop")) == [[0, 1, 2], [3, 4, 5]]
    assert lists(numbers(9).skip(2).take(4)) == [2, 3, 4, 5]
    assert lists(numbers(9).shard(1, 4)) == [1, 5]
    assert lists(numbers(9).filter(lambda x: x > 4).shard(0, 2)) == [5, 7]
    assert lists(numbers(2).repeat(3)) == [0, 1] * 3
    assert lists(numbers(0).repeat()) == []
    assert lists(numbers(4).map(lambda x: x * 2).filter(lambda x: x)) == [2, 4, 6]


def test_lengths():
    dataset = numbers(10)
    cases = [dataset.batch(3), dataset.batch(3, last="drop"), dataset.repeat(2), dataset.shard(1, 3), dataset.take(4),
             dataset.skip(4), dataset.shuffle(), dataset.map(abs), dataset.prefetch()]  # fmt: skip
    for case in cases:
        with iter(case) as iterator:
            assert len(case) == sum(1 for _ in iterator)


def test_padded_last_batches_have_a_mask_and_compile_nothing():
    traced = []

    @hl.jit
    def total(batch, mask):
        traced.append(batch.shape)
        return hl.numpy.sum(hl.numpy.where(mask, batch, 0))

    assert [int(total(*pair)) for pair in numbers(10).batch(4, last="pad")] == [6, 22, 17]
    assert traced == [(4,)]
    (_, last) = data.arrays({"x": np.ones((5, 2), np.float32)}).batch(4, last="pad")
    assert last["mask"].tolist() == [True, False, False, False] and last["x"][1:].sum() == 0
    x, y, mask = next(iter(data.arrays((np.ones(2), np.zeros(2))).batch(3, last="pad")))
    assert mask.tolist() == [True, True, False] and x.shape == y.shape == (3,)
    with pytest.raises(DataError, match="mask=NAME"):
        next(iter(data.arrays({"mask": np.ones(2)}).batch(3, last="pad")))


def test_padding_and_buckets():
    rows = [{"t": np.arange(n), "n": n} for n in (1, 4, 2, 3, 6)]
    (batch,) = data.sequence(rows).batch(8, pad=True, pad_value=-1)
    assert batch["t"].shape == (5, 6) and batch["t"][0].tolist() == [0, -1, -1, -1, -1, -1]
    (batch,) = data.sequence(rows).batch(8, pad={"t": 7})
    assert batch["t"].shape == (5, 7) and batch["n"].tolist() == [1, 4, 2, 3, 6]
    batches = list(data.sequence(rows).bucket("t", [2, 6], [2, 2], last="pad"))
    assert [b["t"].shape for b in batches] == [(2, 2), (2, 6), (2, 6)]
    assert [b["n"].tolist() for b in batches] == [[1, 2], [4, 3], [6, 0]]
    assert batches[2]["mask"].tolist() == [True, False]
    with pytest.raises(DataError, match="record 1 of the list has length 4"):
        list(data.sequence(rows).bucket("t", [3], 2))
    with pytest.raises(DataError, match="there are n, t"):
        list(data.sequence(rows).batch(2, pad={"tokens": 3}))
    with pytest.raises(DataError, match=r"batch\(5\): t\n.*int64\[1\] in record 0 .*int64\[4\] in record 1"):
        list(data.sequence(rows).batch(5))


def test_windows_draw_uniformly_and_each_element_once():
    order = np.array(lists(numbers(2000).shuffle(100, seed=3)))
    assert sorted(order) == list(range(2000))
    delay = np.arange(2000) - order  # element k cannot come more than 99 places early
    assert delay.min() >= -99 and delay.max() > 200
    counts = np.zeros(20)
    for seed in range(600):
        counts[next(iter(numbers(40).shuffle(20, seed=seed)))] += 1
    assert counts.min() > 10 and counts.max() < 60  # 30 are expected
    assert len(lists(numbers(10).shuffle(100))) == 10


def test_a_pool_draws_as_if_one_by_one():
    random = np.random.default_rng(0)
    pool = Pool(data.Block.of_columns(hl.tree.pytrees.structure(0), [np.arange(5)]))
    held, taken = list(range(5)), []
    for step in range(20):
        new = np.arange(100 + 10 * step, 110 + 10 * step)
        slots = random.integers(0, 5, 10)
        for slot, value in zip(slots, new, strict=True):
            taken.append(held[slot])
            held[slot] = value
        drawn = pool.exchange(slots, data.Block.of_columns(pool.block.structure, [new]))
        assert drawn.leaves[0].tolist() == taken[-10:]
    assert pool.block.leaves[0].tolist() == held
    assert np.array_equal(draws(7, 0, 50)[20:], draws(7, 20, 30))
    assert set(below(draws(7, 0, 1000), 4).tolist()) == {0, 1, 2, 3}


def test_mix():
    a, b = data.arrays(np.zeros(1000)), data.arrays(np.ones(1000))
    found = np.array(lists(data.mix([a, b], [3, 1], seed=1).take(1000)))
    assert 0.2 < found.mean() < 0.3
    assert len(lists(data.mix([a, b], stop="all"))) == 2000
    first = lists(data.mix([numbers(5), data.arrays(np.full(1000, 9))]))
    assert [x for x in first if x != 9] == [0, 1, 2, 3, 4]


def test_devices_and_shardings():
    with iter(data.arrays({"x": np.ones((4, 2), np.float32)}).batch(2).prefetch(device="cpu:0")) as batches:
        assert isinstance(next(batches)["x"], hl.Array)
    with iter(data.sequence([{"s": "text", "x": 1.0}]).batch(1).prefetch(device="cpu:0")) as batches:
        batch = next(batches)
        assert batch["s"][0] == "text" and isinstance(batch["x"], hl.Array)
    with pytest.raises(ArgumentError, match="device='cpu:0'"):
        numbers().prefetch("cpu:0")
    with iter(numbers(4).batch(2).prefetch(device="cpu:99")) as batches, pytest.raises(hl.errors.DeviceError):
        next(batches)


def test_arrays_of_the_user_stay_as_they_are():
    array = np.arange(6)
    for batch in data.arrays(array).batch(2):
        assert not batch.flags.writeable
    for batch in data.arrays(array).shuffle(3).batch(2):
        batch[:] = -1
    assert array.tolist() == list(range(6))
    with pytest.raises(ShapeError, match="x: 2, y: 3"):
        data.arrays({"x": np.ones(2), "y": np.ones(3)})


def test_errors_of_functions_name_the_element_and_the_line():
    def broken(x):
        return 1 // (int(x) - 7)

    for workers in ({}, {"threads": 2}, {"processes": 2}):
        with iter(numbers(40).shuffle(seed=1).map(broken, **workers).batch(4).prefetch()) as batches:
            with pytest.raises(
                WorkerError, match=r"map\(broken\) of record 7 of the arrays\n.*ZeroDivisionError"
            ) as caught:
                list(batches)
            assert caught.value.source.file == __file__ and "1 // (int(x) - 7)" in str(caught.value)
            with pytest.raises(WorkerError, match="record 7"):
                next(batches)

    with pytest.raises(WorkerError, match=r"filter\(<lambda>\) of record 0 .*\n.*ValueError"):
        list(data.arrays(np.ones((3, 2))).filter(lambda x: x))

    def failing():
        yield 1
        raise KeyError("gone")

    with pytest.raises(WorkerError, match=r"element 1 of failing\(\)\n.*KeyError") as caught:
        list(data.generator(failing))
    assert caught.value.source.function == "failing"


MISTAKES = {
    "size": lambda: numbers().batch(0),
    "last": lambda: numbers().batch(2, last="dorp"),
    "window": lambda: numbers().shuffle(1.5),
    "function": lambda: numbers().map(3),
    "workers": lambda: numbers().map(abs, threads=2, processes=2),
    "shard": lambda: numbers().shard(3, 3),
    "boundaries": lambda: numbers().bucket(abs, [3, 2], 1),
    "sizes": lambda: numbers().bucket(abs, [2, 3], [1]),
    "weights": lambda: data.mix([numbers()], [1, 2]),
    "datasets": lambda: data.mix([np.arange(3)]),
    "generator": lambda: data.generator(iter([1])),
    "sequence": lambda: data.sequence(iter([1])),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_of_arguments(case):
    with pytest.raises(ArgumentError) as caught:
        MISTAKES[case]()
    assert caught.value.found and caught.value.repair and caught.value.source.file == __file__


def test_elements_before_an_error_of_the_source_are_seen():
    def failing():
        yield from range(37)
        raise KeyError("gone")

    for workers in ({"threads": 2}, {"processes": 1}, {}):
        seen = []
        with iter(data.generator(failing).map(abs, **workers).prefetch()) as iterator:
            with pytest.raises(WorkerError, match="element 37"):
                for element in iterator:
                    seen.append(element)
        assert seen == list(range(37))


def test_closed_iterators():
    iterator = iter(numbers().batch(2).prefetch())
    next(iterator)
    iterator.close()
    with pytest.raises(DataError, match="closed"):
        next(iterator)
