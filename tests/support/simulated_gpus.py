"""GPUs as devices of the front end: on the fake driver, whose kernels are the texts in the lock-step simulator."""

from __future__ import annotations

from contextlib import contextmanager

import cuda_cases as cases
import pytest
from cuda_simulated_plans import simulated_kernel
from fake_cuda import FakeDriver

import hloom as hl
from hloom.backends.cuda import compilation
from hloom.backends.cuda import devices as gpu_devices
from hloom.backends.cuda.kind import CudaKind
from hloom.compiler.targets.cuda.codegen.compile import CudaCode
from hloom.platforms.kinds import device_kinds
from hloom.runtime.cuda.device import Device


@contextmanager
def simulated_gpus(count: int = 1, version: int = 13000, stepwise: bool = False, memory: int | None = None, **options):
    """`cuda:0` ... of a fake driver, beside two CPU devices: kernels are compiled to nothing, and simulated when they
    are launched. Gives (the driver, the devices of the runtime). At the end nothing may have gone against the driver's
    rules. stepwise: of `Device`. memory: bytes of each GPU. options: of `FakeDriver`.
    """
    facts = {} if memory is None else {"memory": memory}
    driver = FakeDriver([], gpus=[cases.gpu(**facts) for _ in range(count)], version=version, **options)
    devices: list[Device] = [cases.device(driver, index, stepwise=stepwise) for index in range(count)]
    kind = CudaKind()
    kind._found = [device.facts for device in devices]
    plans = []
    real = compilation.optimized_plan

    def planned(*args, **kwargs):
        found = real(*args, **kwargs)
        plans.append(found[1])
        return found

    def codes(sources, arch, cache):
        made = []
        for source in sources:
            title = f"k{len(driver.kernels)}_{source.name}"
            driver.kernels[title] = simulated_kernel(plans[-1], source, title)
            made.append(CudaCode(title, arch, f"cubin {title}".encode(), "", 32, 0, 0, 0))
        return made

    with pytest.MonkeyPatch.context() as patch, hl.config(num_cpu_devices=2):
        patch.setattr(gpu_devices, "_devices", dict(enumerate(devices)))
        patch.setitem(device_kinds(), "cuda", kind)
        patch.setattr(compilation, "optimized_plan", planned)
        patch.setattr(compilation, "cubins", codes)
        yield driver, devices
    assert driver.violations == []
