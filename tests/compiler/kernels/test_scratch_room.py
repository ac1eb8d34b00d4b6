"""Blocks of contractions have room in scratch memory, on processors with caches of any size."""

from __future__ import annotations

import numpy as np
import pytest
import window_programs as programs
from scratch_cases import SMALL, Processor, target_of

from hloom.backends.cpu.compilation import compile_module
from hloom.compiler.kernels.contractions import room
from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.ir.interpret import evaluate
from hloom.ir.module import Module
from hloom.ir.window import WindowDimension as W


def image(batch: int, extent: int, features: int, taps: int, outputs: int = 16):
    """(computation, arguments) of a convolution that keeps the size of its images."""
    rng = np.random.default_rng(extent)
    x = rng.integers(-3, 4, (batch, extent, extent, features)).astype(np.float32)
    w = rng.integers(-3, 4, (taps, taps, features, outputs)).astype(np.float32)
    window = (W(taps, 1, taps // 2, taps // 2),) * 2
    return programs.single("convolution", [x, w], window=window, dim_labels="b01f_01io->b01f"), [x, w]


def used(monkeypatch, computation, processor: Processor) -> dict[str, tuple[int, int]]:
    """What the plan of a contraction uses of its scratch arrays, and their sizes."""
    found: dict[str, tuple[int, int]] = {}
    check = room.check

    def kept(name, arrays):
        found.update(arrays)
        check(name, arrays)

    monkeypatch.setattr(room, "check", kept)
    with target_of(processor) as target:
        make_plan(run_passes(Module("main", computation), PIPELINE, target=target), target, frozenset())
    return found


@pytest.mark.parametrize(
    "batch, extent, features, taps", [(8, 7, 512, 3), (8, 8, 512, 3), (8, 7, 512, 5), (4, 9, 300, 3)]
)
@pytest.mark.parametrize("l2_bytes", [64 << 10, 1 << 20, 2 << 20, 8 << 20])
@pytest.mark.parametrize("cores", [1, 16])
def test_images_have_room(batch, extent, features, taps, l2_bytes, cores, monkeypatch):
    """ResNet's last stage on a core with 2 MiB of second cache: its image was larger than its scratch memory."""
    computation, _ = image(batch, extent, features, taps)
    found = used(monkeypatch, computation, Processor("native", l2_bytes, cores, False))
    elements, available = found["image"]
    assert 0 < elements <= available


def test_a_large_second_cache_makes_large_images(monkeypatch):
    """The bound is reached: otherwise the tests above would see nothing."""
    computation, arrays = image(8, 7, 512, 3)
    processor = Processor("native", 2 << 20, 1, False)
    elements, available = used(monkeypatch, computation, processor)["image"]
    assert elements * 4 > room.LEFT_BYTES and elements > available * 3 // 4
    with target_of(processor) as target:
        (found,) = compile_module(Module("main", computation), target=target)(arrays)
    np.testing.assert_array_equal(found, evaluate(computation, arrays))


def test_a_block_without_room_is_an_error(monkeypatch):
    """What is chosen is compared with what there is, whichever of the two is changed."""
    computation, _ = image(4, 9, 32, 3)
    monkeypatch.setitem(SMALL, "MOST_ROWS", 48)
    sizes = room.sizes

    def smaller(*arguments):
        made = sizes(*arguments)
        return room.Sizes(**{name: getattr(made, name) // 8 for name in room.Sizes.__annotations__})

    monkeypatch.setattr(room, "sizes", smaller)
    with pytest.raises(room.ScratchError, match="scratch array"):
        used(monkeypatch, computation, Processor("native", 2 << 20, 1, True))


def test_long_rows_of_a_kernel_gradient(monkeypatch):
    """Steps of a whole row of 1,000 positions are longer than the panels that are copied together."""
    rng = np.random.default_rng(1)
    x = rng.integers(-3, 4, (2, 3, 1000, 8)).astype(np.float32)
    y = rng.integers(-3, 4, (2, 3, 1000, 72)).astype(np.float32)
    window = (W(3, 1, 1, 1), W(1000, 1, 2, 2))
    computation = programs.single("convolution", [x, y], window=window, dim_labels="f01b_i01o->01bf")
    processor = Processor("native", 1 << 20, 2, False)
    used(monkeypatch, computation, processor)
    with target_of(processor) as target:
        (found,) = compile_module(Module("main", computation), target=target)([x, y])
    np.testing.assert_array_equal(found, evaluate(computation, [x, y]))
