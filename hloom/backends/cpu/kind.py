"""`cpu:0` ... as a kind of device."""

from __future__ import annotations

from hloom.backends.cpu.executor import NativeLane
from hloom.config import config
from hloom.platforms.kinds import DeviceKind, LaneRequest


class CpuKind(DeviceKind):
    """`cpu:0` ...: each has a share of the threads; all have the host's memory."""

    name = "cpu"
    host_memory = True

    def count(self) -> int:
        return config.num_cpu_devices

    def lane(self, request: LaneRequest) -> NativeLane:
        return NativeLane(request)
