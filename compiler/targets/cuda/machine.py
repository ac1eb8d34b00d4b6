"""What the compiler needs to know about a GPU: one table by architecture, and how many blocks run side by side."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from hloom.ir.errors import AttributeValueError
from hloom.ir.records import record

WARP = 32
REGISTER_UNIT = 256  # registers are given to warps in such pieces
SHARED_UNIT = 128  # bytes, as shared memory is given to blocks
WARP_UNIT = 4  # warps are spread over four schedulers, each with a quarter of the registers


@record(frozen=True)
class CudaMachine:
    """One GPU, as seen by the code generator and the cost model. Sizes in bytes, rates a second where not said.

    arch: 'sm_90'. name: the card whose rates these are. Of a multiprocessor: threads and blocks at a time, shared_bytes
    of shared memory, registers of 32 bits; `products`, multiply-adds in a cycle by dtype (f16, bf16 and tf32 on tensor
    cores); cache_rate, bytes that reach it from the second-level cache in a cycle. Of a block: static_bytes of shared
    memory in a text, dynamic_bytes that a launch may ask for, shared_reserved beyond what it asks for.
    vector_bytes: what a load of a thread moves at most. clock: in hertz. bandwidth: of the memory.
    """

    arch: str
    name: str
    multiprocessors: int
    threads: int
    blocks: int
    shared_bytes: int
    dynamic_bytes: int
    l2_bytes: int
    memory_bytes: int
    bandwidth: float
    clock: float
    products: Mapping[str, float]
    cache_rate: float
    static_bytes: int = 48 * 1024
    registers: int = 65536
    block_threads: int = 1024
    shared_reserved: int = 1024
    vector_bytes: int = 16

    @property
    def capability(self) -> tuple[int, int]:
        """(major, minor) of the compute capability."""
        digits = self.arch.removeprefix("sm_").rstrip("af")
        return int(digits[:-1]), int(digits[-1])

    def flops(self, dtype: str) -> float:
        """Operations a second of products of a dtype; those of f32 where the table has none."""
        return 2.0 * self.products.get(dtype, self.products["f32"]) * self.multiprocessors * self.clock

    def blocks_together(self, threads: int, registers: int, shared: int) -> int:
        """Blocks that a multiprocessor runs at once, by what each takes; 0 where it has no room for one."""
        warps = -(-threads // WARP)
        per_warp = -(-max(registers, 1) * WARP // REGISTER_UNIT) * REGISTER_UNIT
        by_registers = self.registers // per_warp // WARP_UNIT * WARP_UNIT // warps
        taken = -(-(shared + self.shared_reserved) // SHARED_UNIT) * SHARED_UNIT
        by_shared = self.shared_bytes // taken if shared <= self.dynamic_bytes else 0
        return min(by_registers, by_shared, self.threads // (warps * WARP), self.blocks)

    def occupancy(self, threads: int, registers: int, shared: int) -> float:
        """The part of a multiprocessor's warps that can be under way at once, 0 to 1."""
        warps = -(-threads // WARP)
        return self.blocks_together(threads, registers, shared) * warps / (self.threads // WARP)


def _products(f32: int, f64: int, half: int, tf32: int) -> Mapping[str, float]:
    """Integers are multiplied at half the rate of float32 from sm_86 on, 64-bit ones by four instructions."""
    s32 = 64.0
    floats = {"f32": float(f32), "f64": float(f64), "f16": float(half), "bf16": float(half), "tf32": float(tf32)}
    return MappingProxyType(floats | {"s32": s32, "u32": s32, "s64": s32 / 4, "u64": s32 / 4})


_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30

# Sources: NVIDIA's white papers of the architectures and data sheets of the cards (dense rates); limits of a
# multiprocessor from the table "Technical Specifications per Compute Capability" of the CUDA programming guide;
# cache_rate from published micro-benchmarks. Not measured here.
MACHINES: dict[str, CudaMachine] = {
    machine.arch: machine
    for machine in (
        CudaMachine(
            "sm_80", "A100 SXM 80GB", 108, 2048, 32, 164 * _KIB, 163 * _KIB, 40 * _MIB, 80 * _GIB, 2.039e12, 1.41e9,
            _products(64, 32, 1024, 512), 48.0,
        ),
        CudaMachine(
            "sm_86", "GeForce RTX 3090", 82, 1536, 16, 100 * _KIB, 99 * _KIB, 6 * _MIB, 24 * _GIB, 0.936e12, 1.7e9,
            _products(128, 2, 256, 128), 48.0,
        ),
        CudaMachine(
            "sm_89", "GeForce RTX 4090", 128, 1536, 24, 100 * _KIB, 99 * _KIB, 72 * _MIB, 24 * _GIB, 1.008e12, 2.52e9,
            _products(128, 2, 256, 128), 48.0,
        ),
        CudaMachine(
            "sm_90", "H100 SXM", 132, 2048, 32, 228 * _KIB, 227 * _KIB, 50 * _MIB, 80 * _GIB, 3.35e12, 1.83e9,
            _products(128, 64, 2048, 1024), 48.0,
        ),
    )
}  # fmt: skip


def machine_of(arch: str) -> CudaMachine:
    """The machine of 'sm_90' (or 'sm_90a'). Raises AttributeValueError for an architecture without an entry."""
    found = MACHINES.get(arch.rstrip("af"))
    if found is None:
        nearest = difflib.get_close_matches(arch, MACHINES, 1)
        raise AttributeValueError(
            f"the CUDA architecture {arch!r}",
            f"there are {', '.join(MACHINES)}",
            f"did you mean '{nearest[0]}'?" if nearest else "name one of them",
        )
    return found
