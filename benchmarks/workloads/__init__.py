"""The workloads of the benchmark, one file per family. `WORKLOADS` has them all by name."""

from hloom.benchmarks.workloads import convolution, elementwise, loops, movement, products, rows, training
from hloom.benchmarks.workloads.table import M, Workload

FAMILIES = tuple(m.FAMILY for m in (elementwise, rows, movement, products, convolution, training, loops))
WORKLOADS: dict[str, Workload] = {name: member for family in FAMILIES for name, member in family.members.items()}

__all__ = ["FAMILIES", "M", "WORKLOADS", "Workload"]
