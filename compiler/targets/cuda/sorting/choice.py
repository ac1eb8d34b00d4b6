"""Which way a sort goes, by digits or by the bitonic network: by arithmetic, and by measurement where that is close.

Both ways have one result, so nothing but time depends on the choice. Where the arithmetic leaves it open a program has
the launches of both, marked with one `SortChoice`, and the device that loads it measures
(`hloom/backends/cuda/autotuner.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.targets.cuda.launches import CudaLaunch
from hloom.compiler.targets.cuda.sorting.bitonic import Sort
from hloom.compiler.targets.cuda.sorting.radix import RadixSort
from hloom.ir.records import record, replace
from hloom.ir.types import Shape

LAUNCH = 1 << 22  # bytes that memory moves meanwhile: some 2 microseconds at 2 TB/s
DOUBT = 8.0  # times the other way's bytes up to which a device measures; from there on the arithmetic is believed


@record(frozen=True)
class SortChoice:
    """A sort that has launches of two ways.

    first, other: what they are, for people; the first one is the one that should cost less. rows, count: of the sort.
    operands, results: (pointer of the launches, array) of what is read and of what has to be the same in the end.
    limits: of the elements of integer operands, lowest and one past the highest, where the dtype does not say it.
    """

    first: str
    other: str
    rows: int
    count: int
    operands: tuple[tuple[str, Shape], ...]
    results: tuple[tuple[str, Shape], ...]
    limits: tuple[int, int] | None = None

    def pointers(self) -> tuple[str, ...]:
        return tuple(name for name, _ in (*self.operands, *self.results))


def sort_launches(request: KernelRequest, processors: int) -> list[CudaLaunch]:
    """The launches of a computation of one sort; none where there are no elements."""
    instruction = request.instruction("sort")
    if not instruction.operands[0].shape.size:
        return []
    operands = [(request.names[o], o.shape) for o in dict.fromkeys(instruction.operands)]
    results = [(request.output_name(k), o.shape) for k, o in enumerate(request.outputs)]
    network, digits = Sort(request, instruction, processors), RadixSort(request, instruction, processors)
    return launches_by(network, digits, lambda sort: sort.launches(), operands, results)


def launches_by(
    network: Sort,
    digits: RadixSort,
    launches: Callable[[Sort], list[CudaLaunch]],
    operands: Sequence[tuple[str, Shape]],
    results: Sequence[tuple[str, Shape]],
    limits: tuple[int, int] | None = None,
) -> list[CudaLaunch]:
    """Those of the way that costs less, or of both. The fields of `SortChoice` behind `launches`."""
    if not digits.keys:
        return launches(network)
    ways, costs = [(network, "a bitonic network"), (digits, "digits")], estimates(network, digits)
    if costs[1] < costs[0]:
        ways.reverse()
    (cheaper, first), (_, other) = ways
    if max(costs) > DOUBT * min(costs):
        return launches(cheaper)
    choice = SortChoice(first, other, network.rows, network.count, tuple(operands), tuple(results), limits)
    return [
        replace(launch, choice=choice, way=number) for number, (sort, _) in enumerate(ways) for launch in launches(sort)
    ]


def estimates(network: Sort, digits: RadixSort) -> tuple[float, float]:
    """What the network and the digits cost, in bytes; a launch counts as LAUNCH of them.

    - A pass over digits reads a key of w bytes to count, reads and writes it with its place of 4 bytes, and has for an
      element some 2 bytes of counts: 3 w + 10. The first pass of a key reads the operand and writes the key: w more.
    - The network has log2(n) (log2(n) + 1) / 2 stages, each of which reads all keys of an element: the sum of w, where
      caches have it (a sector of 32 bytes otherwise); and launches that read and write a place: 8 bytes each.

    In bytes alone digits win for every row that is longer than a chunk: 4 passes of 32 bits are 92 bytes, 78 stages for
    4096 elements 312. Launches decide for few short rows: one row of 32-bit keys goes by digits above 2**14 elements,
    one of 64-bit keys above 2**15.
    """
    size, levels = network.rows * network.count, (network.count - 1).bit_length()
    widths = [key.width // 8 for key in digits.keys]
    steps = network.network_launches()
    by_network = levels * (levels + 1) // 2 * sum(widths) + 8 * steps
    by_digits = sum(digits.passes_of(key) * (3 * w + 10) + w for key, w in zip(digits.keys, widths, strict=True))
    return steps * LAUNCH + size * by_network, digits.passes_launches() * LAUNCH + size * by_digits
