"""The cost model of placement: estimates, of which only the ratios matter."""

from __future__ import annotations

from collections.abc import Callable

from hloom.ir.records import record


@record(frozen=True)
class DeviceModel:
    """The performance of a device: flops and bytes of memory per second, and seconds to start a kernel."""

    flops: float = 5e10
    bytes: float = 1.5e10
    start: float = 1e-6


@record(frozen=True)
class Link:
    """The cost of a transfer to another device: latency in seconds, and bytes per second."""

    seconds: float = 1e-5
    bytes: float = float("inf")


@record(frozen=True)
class Costs:
    """device(name) -> DeviceModel, link(from, to) -> Link. The defaults: devices that share the host's memory."""

    device: Callable[[str], DeviceModel] = lambda name: DeviceModel()
    link: Callable[[str, str], Link] = lambda a, b: Link()
