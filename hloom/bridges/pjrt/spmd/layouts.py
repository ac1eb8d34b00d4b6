"""Layouts of arrays over devices, as jax reads them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jax._src.lib import xla_client

from hloom.ir.records import record
from hloom.ir.spmd.sharding import Sharding

__all__ = ["Layout", "hlo_sharding"]


@record(frozen=True)
class Layout:
    """Which part of an array each device has.

    parts: into how many each dimension is split. at: for each device the number of its part of each dimension. sums: 0,
    or the number of partial sums that devices hold: parts and at then begin with a dimension of that size, along which
    the array is the sum.
    """

    parts: tuple[int, ...]
    at: tuple[tuple[int, ...], ...]
    sums: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether every device has all of the array."""
        return math.prod(self.parts) == 1

    def local(self, dims: Sequence[int]) -> tuple[int, ...]:
        """The dims of a part of an array of these dims."""
        return tuple(d // p for d, p in zip(dims, self.parts[bool(self.sums) :], strict=True))

    def proto(self) -> Any:
        """As an OpSharding."""
        made = xla_client.OpSharding()
        if self.is_whole:
            made.type = xla_client.OpSharding.Type.REPLICATED
            return made
        lead = int(self.sums > 0)
        order = sorted(range(len(self.at)), key=lambda device: (self.at[device][lead:], self.at[device], device))
        copies = len(order) // math.prod(self.parts)
        rest = [(self.sums, xla_client.OpSharding.Type.UNREDUCED), (copies, xla_client.OpSharding.Type.REPLICATED)]
        rest = [(count, kind) for count, kind in rest if count > 1]
        made.type = xla_client.OpSharding.Type.OTHER
        made.tile_assignment_dimensions = [*self.parts[lead:], *(count for count, _ in rest)]
        made.tile_assignment_devices = order
        made.last_tile_dims = [kind for _, kind in rest]
        return made


def hlo_sharding(sharding: Sharding, devices: int) -> Any:
    """A sharding of hloom's as jax's HloSharding."""
    lead = (sharding.unreduced,) if sharding.unreduced else ()
    split = Sharding(sharding.mesh, (*lead, *sharding.dims))
    counts = tuple(split.count(d) for d in range(split.rank))
    at = tuple(tuple(split.part(device, d) for d in range(split.rank)) for device in range(devices))
    return xla_client.HloSharding.from_proto(Layout(counts, at, counts[0] if lead else 0).proto())
