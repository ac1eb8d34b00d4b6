"""What placement knows of devices: estimates, of which only the proportions matter."""

from __future__ import annotations

from collections.abc import Callable

from hloom.ir.records import record


@record(frozen=True)
class DeviceModel:
    """What a device can do: flops and bytes of memory a second, and seconds to start a kernel."""

    flops: float = 5e10
    bytes: float = 1.5e10
    start: float = 1e-6


@record(frozen=True)
class Link:
    """What it takes to hand a value to another device: seconds, and bytes a second."""

    seconds: float = 1e-5
    bytes: float = float("inf")


@record(frozen=True)
class Costs:
    """device(name) -> DeviceModel, link(from, to) -> Link. The defaults: devices that share the host's memory."""

    device: Callable[[str], DeviceModel] = lambda name: DeviceModel()
    link: Callable[[str, str], Link] = lambda a, b: Link()
