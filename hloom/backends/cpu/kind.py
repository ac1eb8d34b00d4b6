"""`cpu:0` ... as a kind of device."""

from __future__ import annotations

from hloom.config import config
from hloom.platforms.kinds import DeviceKind


class CpuKind(DeviceKind):
    """`cpu:0` ...: each has a share of the threads; all have the host's memory."""

    name = "cpu"
    host_memory = True
    backend_name = "hloom.backends.cpu.backend:CpuBackend"

    def count(self) -> int:
        return config.num_cpu_devices
