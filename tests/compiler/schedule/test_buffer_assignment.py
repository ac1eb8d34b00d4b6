"""The arena: values that live at one time never share a byte, and what has ended is used again."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.compiler.schedule.buffer_assignment import ALIGNMENT, Buffer, _by_size, _by_time, allocate


def random_buffers(seed: int, count: int) -> list[Buffer]:
    """Live ranges of all lengths, some at one time, of few sizes or of many."""
    rng = np.random.default_rng(seed)
    sizes = [0, 1, 64, 65, 4096] if seed % 2 else list(range(1, 5000, 37))
    starts = rng.integers(0, max(2, count // 2), count)
    lengths = rng.geometric(0.2, count) * rng.choice([1, 1, 1, 20], count)
    return [
        Buffer(int(rng.choice(sizes)), None, int(first), int(first + length - 1))
        for first, length in zip(starts, lengths, strict=True)
    ]


def sizes_of(buffers: list[Buffer]) -> list[int]:
    """Bytes, rounded up to the alignment."""
    return [max(1, -(-b.bytes // ALIGNMENT)) * ALIGNMENT for b in buffers]


def most_at_a_time(buffers: list[Buffer]) -> int:
    """Bytes, rounded up to the alignment, of what lives at the time at which that is most."""
    sizes = sizes_of(buffers)
    times = {b.first for b in buffers}
    return max(sum(n for b, n in zip(buffers, sizes, strict=True) if b.first <= t <= b.last) for t in times)


@pytest.mark.parametrize("assign", [_by_size, _by_time, allocate])
@pytest.mark.parametrize("seed", range(12))
def test_random_live_ranges(assign, seed):
    buffers = random_buffers(seed, 60 if seed % 3 else 450)
    total = assign(buffers)
    for k, b in enumerate(buffers):
        start, stop = b.assigned.number, b.assigned.number + b.bytes
        assert b.assigned.kind == "arena" and start % ALIGNMENT == 0 and stop <= total
        for other in buffers[:k]:
            if b.first <= other.last and other.first <= b.last:
                at = other.assigned.number
                assert stop <= at or at + other.bytes <= start, (b, other)
    least = most_at_a_time(buffers)
    assert least <= total <= 1.6 * least
    assert total == max(b.assigned.number + sizes_of([b])[0] for b in buffers)  # and no byte behind the last one


def test_what_has_ended_is_used_again_in_order():
    """A chain of values of which two live at a time needs two places, however long it is."""
    buffers = [Buffer(1000, None, k, k + 1) for k in range(1000)]
    assert _by_time(buffers) == 2 * 1024


@pytest.mark.parametrize("ends", [(1, 2, 3), (1, 3, 2), (2, 1, 3), (2, 3, 1), (3, 1, 2), (3, 2, 1)])
def test_neighbouring_holes_become_one(ends):
    """Whichever of three neighbours ends first: a value as large as the three is where they were."""
    three = [Buffer(64, None, 0, end) for end in ends]
    above, large = Buffer(64, None, 0, 9), Buffer(192, None, 4, 9)
    assert _by_time([*three, above, large]) == 256
    assert above.assigned.number == 192 and large.assigned.number == 0


def test_a_value_is_in_the_smallest_hole_that_takes_it_and_leaves_the_rest():
    below = [Buffer(size, None, 0, 1 if k % 2 == 0 else 9) for k, size in enumerate((512, 448, 384, 320))]
    late = [Buffer(256, None, 2, 9), Buffer(512, None, 3, 9), Buffer(128, None, 4, 9)]
    assert _by_time([*below, *late]) == 512 + 448 + 384 + 320
    assert [b.assigned.number for b in late] == [512 + 448, 0, 512 + 448 + 256]


def test_the_hole_at_the_end_grows():
    low, gone, large = Buffer(64, None, 0, 9), Buffer(64, None, 0, 1), Buffer(128, None, 2, 9)
    assert _by_time([low, gone, large]) == 192
    assert large.assigned.number == 64


@pytest.mark.parametrize("assign", [_by_size, _by_time, allocate])
def test_no_buffers_need_no_bytes(assign):
    assert assign([]) == 0
