"""The table of GPUs, and how many blocks of a kernel a multiprocessor runs at once."""

import pytest

from hloom.compiler.targets.cuda.machine import MACHINES, machine_of
from hloom.compiler.targets.cuda.target import CudaTarget
from hloom.ir.errors import AttributeValueError


@pytest.mark.parametrize(
    "arch, threads, registers, shared, blocks",
    [
        ("sm_80", 256, 32, 0, 8),  # all 64 warps
        ("sm_80", 256, 64, 0, 4),  # registers: 2048 a warp
        ("sm_80", 256, 65, 0, 3),  # 2304 a warp: 28 warps
        ("sm_80", 256, 255, 0, 1),
        ("sm_80", 32, 16, 0, 32),  # blocks
        ("sm_80", 1024, 64, 0, 1),
        ("sm_80", 1024, 128, 0, 0),  # a block has no room
        ("sm_80", 128, 32, 48 * 1024, 3),  # shared memory, 1 KiB of it reserved for each block
        ("sm_90", 128, 32, 48 * 1024, 4),
        ("sm_90", 256, 32, 227 * 1024, 1),
        ("sm_90", 256, 32, 228 * 1024, 0),
        ("sm_86", 256, 32, 0, 6),  # 1536 threads
    ],
)
def test_blocks_together(arch, threads, registers, shared, blocks):
    machine = machine_of(arch)
    assert machine.blocks_together(threads, registers, shared) == blocks
    warps = machine.threads // 32
    assert machine.occupancy(threads, registers, shared) == blocks * -(-threads // 32) / warps


def test_rates_are_those_of_the_data_sheets():
    """Within a few percent: clocks are those that boost reaches."""
    for arch, dtype, rate in (
        ("sm_80", "f32", 19.5e12), ("sm_80", "bf16", 312e12), ("sm_90", "f32", 62e12), ("sm_90", "f16", 989e12),
        ("sm_89", "f32", 82.6e12),
    ):  # fmt: skip
        assert machine_of(arch).flops(dtype) == pytest.approx(rate, rel=0.04), (arch, dtype)
    assert machine_of("sm_90").flops("c64") == machine_of("sm_90").flops("f32")


def test_names():
    assert machine_of("sm_90a") is MACHINES["sm_90"] and machine_of("sm_86").capability == (8, 6)
    with pytest.raises(AttributeValueError, match="did you mean 'sm_90'"):
        CudaTarget("sm_9")
    with pytest.raises(AttributeValueError, match="sm_80, sm_86, sm_89, sm_90"):
        machine_of("gfx90a")
