"""A restored iterator goes on with exactly the rest, whatever the steps and wherever it was."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom import data

pytestmark = pytest.mark.quick

FEATURES = {"x": data.Int64(), "image": data.Bytes((2, 3), "uint8"), "words": data.Int64(None)}


def numbers(count=300):
    return data.arrays({"x": np.arange(count)})


def counted():
    yield from ({"x": k} for k in range(150))


def double(element):
    return {**element, "x": element["x"] * 2}


def noisy(element, random):
    return {**element, "noise": random.random()}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    for k in range(3):
        rows = (
            {"x": 100 * k + r, "image": np.full((2, 3), r, np.uint8), "words": range(r % 4)} for r in range(100 + k)
        )
        data.write_tfrecord(folder / f"part-{k}.tfrecord", rows, FEATURES, compression=[None, "gzip", "zlib"][k])
    return str(folder / "part-*.tfrecord")


CASES = {
    "arrays": lambda files: numbers(),
    "batches": lambda files: numbers().batch(7),
    "padded": lambda files: numbers().batch(7, last="pad").repeat(2),
    "generator": lambda files: data.generator(counted).shuffle(20).repeat(3),
    "window": lambda files: numbers().shuffle(50).batch(7).repeat(),
    "window over repeat": lambda files: numbers(40).repeat(5).shuffle(30),
    "large window": lambda files: numbers(40).shuffle(100).repeat(3),
    "full": lambda files: numbers().shuffle().batch(8).repeat(),
    "full of a stream": lambda files: data.generator(counted).shuffle().repeat(2),
    "shards": lambda files: numbers().shuffle().shard(1, 3).repeat(2),
    "shard of a stream": lambda files: data.generator(counted).shard(2, 4).repeat(),
    "part": lambda files: numbers().skip(3).take(20).repeat(),
    "filter": lambda files: numbers().filter(lambda e: e["x"] % 3 == 0).batch(4, last="drop"),
    "map": lambda files: numbers().map(noisy, seed=3).shuffle(10).batch(5),
    "threads": lambda files: numbers().map(noisy, seed=3, threads=3).shuffle(64).batch(10, last="pad"),
    "threads over batches": lambda files: numbers().batch(3).map(double, threads=2).repeat(2),
    "processes": lambda files: numbers().map(double, processes=2).batch(5),
    "prefetch": lambda files: numbers().shuffle(50).repeat().batch(7).prefetch(),
    "prefetched elements": lambda files: numbers().prefetch(2).shuffle(9),
    "mix": lambda files: data.mix([numbers(60), data.generator(counted)], [0.7, 0.3], stop="all").batch(9),
    "mix first": lambda files: data.mix([numbers(60).repeat(), data.generator(counted)], seed=4),
    "buckets": lambda files: data.tfrecord(files, FEATURES).bucket("words", [1, 3], [4, 3]),
    "records": lambda files: data.tfrecord(files, FEATURES).batch(8, pad={"words": 3}),
    "interleaved": lambda files: data.tfrecord(files, FEATURES, interleave=2, run=5, shuffle_files=1).repeat(2),
    "records shuffled": lambda files: (
        data.tfrecord(files, FEATURES, interleave=3, run=7).shuffle(40).repeat().prefetch(3)
    ),
}


def same(a, b):
    return hl.tree.structure(a) == hl.tree.structure(b) and hl.tree.all(
        hl.tree.map(lambda x, y: bool(np.array_equal(x, y)), a, b)
    )


def rest(iterator, limit=150):
    return [element for _, element in zip(range(limit), iterator, strict=False)]


@pytest.mark.parametrize("case", CASES)
def test_resumed_runs_see_the_rest(case, files, tmp_path):
    dataset = CASES[case](files)
    whole = rest(iter(dataset), 400)
    with iter(dataset) as fresh:
        like = fresh.state()
    for seen in (0, 1, 5, 23, 61):
        if seen > len(whole):
            break
        with iter(dataset) as iterator:
            for k in range(seen):
                assert same(next(iterator), whole[k])
            state = iterator.state()
            structure = hl.tree.map(np.shape, state)
            assert structure == hl.tree.map(np.shape, like)  # so that a fresh state is the `like` of a saved one
            following = rest(iterator)
        hl.checkpoints.save(tmp_path / f"{seen}", state)
        state = hl.checkpoints.restore(tmp_path / f"{seen}", like=like)
        with iter(dataset) as resumed:
            resumed.restore(state)
            assert same(resumed.state(), state) or case in ("filter", "buckets")
            found = rest(resumed)
            assert len(found) == len(following) and all(map(same, found, following)), seen
        assert all(map(same, following, whole[seen:]))


def test_a_used_iterator_can_be_restored(files):
    dataset = data.tfrecord(files, FEATURES, interleave=2).shuffle(30).prefetch()
    with iter(dataset) as iterator:
        state = iterator.state()
        first = rest(iterator)
        assert all(map(same, first, rest(iterator.restore(state))))


@pytest.mark.parametrize("workers", [{}, {"threads": 1}, {"threads": 4}, {"processes": 3}])
def test_the_order_does_not_depend_on_workers(workers):
    expected = [e["noise"] for e in numbers(100).map(noisy, seed=1).shuffle(20, seed=2)]
    with iter(numbers(100).map(noisy, seed=1, **workers).shuffle(20, seed=2)) as iterator:
        assert [e["noise"] for e in iterator] == expected


def test_epochs_differ_and_runs_do_not():
    dataset = numbers(50).shuffle(10, seed=1).batch(50).repeat(2)
    first, second = (batch["x"] for batch in dataset)
    assert sorted(first) == sorted(second) == list(range(50)) and first.tolist() != second.tolist()
    assert [b["x"].tolist() for b in dataset] == [first.tolist(), second.tolist()]


def test_loops_without_repeat_have_epochs_too():
    dataset = numbers(30).shuffle(seed=1).batch(30)
    orders = [next(iter(dataset.at_epoch(k)))["x"].tolist() for k in (0, 1, 2, 1)]
    assert orders[0] == next(iter(dataset))["x"].tolist() and orders[1] == orders[3]
    assert orders[0] != orders[1] != orders[2]
    with iter(dataset.at_epoch(2)) as iterator:
        state = iterator.state()
    assert next(iter(dataset.at_epoch(2)).restore(state))["x"].tolist() == orders[2]


def test_a_state_of_another_dataset_is_refused():
    with iter(numbers().shuffle(10)) as iterator:
        next(iterator)
        state = iterator.state()
    for other in (numbers().shuffle(20), numbers(5), numbers().batch(3)):
        with iter(other) as iterator, pytest.raises(hl.errors.DataError, match="restore the state"):
            iterator.restore(state)
