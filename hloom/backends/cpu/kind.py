"""`cpu:0` ... as a kind of device."""

from __future__ import annotations

import functools
import platform

from hloom.config import config
from hloom.platforms.kinds import DeviceKind


class CpuKind(DeviceKind):
    """`cpu:0` ...: each has a share of the threads; all have the host's memory."""

    name = "cpu"
    host_memory = True
    backend_name = "hloom.backends.cpu.backend:CpuBackend"

    def count(self) -> int:
        return config.num_cpu_devices

    def description(self, index: int) -> str:
        """The processor, which all devices share."""
        return f"name: {_processor()}, in the host's memory"


@functools.cache
def _processor() -> str:
    """The model, as the system names it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() == "model name":
                    return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
