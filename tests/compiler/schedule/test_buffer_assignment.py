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


def most_at_a_time(buffers: list[Buffer]) -> int:
    """Bytes, rounded up to the alignment, of what lives at the time at which that is most."""
    sizes = {id(b): max(1, -(-b.bytes // ALIGNMENT)) * ALIGNMENT for b in buffers}
    return max(sum(sizes[id(b)] for b in buffers if b.first <= t <= b.last) for t in {b.first for b in buffers})


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


def test_what_has_ended_is_used_again_in_order():
    """A chain of values of which two live at a time needs two places, however long it is."""
    buffers = [Buffer(1000, None, k, k + 1) for k in range(1000)]
    assert _by_time(buffers) == 2 * 1024
