"""What the runtime says where CUDA cannot be used: one typed error each, with one repair, and none at import."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cuda_cases import driver, gpu
from fake_cuda import FakeDriver
from fake_cuda_model import CUresult

from hloom.runtime.cuda.api import Api
from hloom.runtime.cuda.discovery import available, bus_address, gpus
from hloom.runtime.cuda.errors import (
    STICKY,
    ComputeCapabilityError,
    CudaDeviceLostError,
    CudaError,
    CudaLaunchError,
    CudaModuleError,
    CudaNotInstalledError,
    CudaOutOfMemoryError,
    CudaUnavailableError,
    DriverTooOldError,
    NoDriverError,
    NoGpuError,
    typed_error,
)


def why(fake, needed: int = 13000):
    error = available(Api(fake), needed)
    if error is not None:
        assert error.asked and error.found and error.repair
        with pytest.raises(CudaError):
            gpus(Api(fake), needed)
    return error


def test_a_gpu_that_can_be_used():
    fake = driver(gpus=[gpu(name="Old", capability=(7, 0)), gpu(name="New", capability=(9, 0))])
    assert why(fake) is None
    (found,) = gpus(Api(fake))
    assert (found.index, found.name, found.arch) == (1, "New", "sm_90")
    assert bus_address(found.index, Api(fake)) == "0000:06:00.0"
    assert found.while_nodes and found.switch_nodes and found.memory == 1 << 30


def test_no_driver():
    class Missing(FakeDriver):
        def cuInit(self, flags):
            raise RuntimeError("libcuda.so.1 was not found\nat length")

    error = why(Missing())
    assert type(error) is NoDriverError
    assert "libcuda.so.1 was not found" in error.found and "length" not in error.found
    assert "install" in error.repair


@pytest.mark.parametrize("code", [803, 999, 4])
def test_a_driver_that_does_not_start(code):
    fake = driver()
    fake.inject(0, code)
    error = available(Api(fake))
    assert type(error) is NoDriverError and error.code == code and str(code) in error.found
    assert available(Api(fake)) is None


def test_a_driver_that_is_too_old():
    error = why(driver(version=12080))
    assert type(error) is DriverTooOldError
    assert "12.8" in error.found and "13.0" in error.found and "580" in error.repair
    assert why(driver(version=12080), needed=12000) is None
    assert why(driver(version=13010)) is None


def test_no_gpu():
    error = why(driver(gpus=[]))
    assert type(error) is NoGpuError and "CUDA_VISIBLE_DEVICES" in error.repair


def test_compute_capability():
    error = why(driver(gpus=[gpu(name="Turing", capability=(7, 5))]))
    assert type(error) is ComputeCapabilityError
    assert "Turing (sm_75)" in error.found and "sm_80" in error.found


def test_something_unexpected_is_an_answer_too():
    fake = driver()
    fake.inject(3, 999)
    error = available(Api(fake))
    assert isinstance(error, CudaUnavailableError) and error.code == 999


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    error = available()
    assert type(error) is CudaNotInstalledError and isinstance(error, ImportError)
    assert "hloom[cuda]" in error.repair


def test_nothing_of_cuda_is_imported_before_it_is_asked_for():
    code = "import hloom, hloom.runtime.cuda, sys; assert not [m for m in sys.modules if m.split('.')[0] == 'cuda']"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("code", [int(c) for c in CUresult if c and c != 600])
def test_every_code_has_a_type_and_a_repair(code):
    error = typed_error(code, CUresult(code).name, "words", "something was asked", "file.py:1 in f")
    text = str(error)
    assert error.code == code and error.name in text and "file.py:1 in f" in text and error.repair in text
    kind = CudaLaunchError
    if code in STICKY:
        kind = CudaDeviceLostError
    elif code == 2:
        kind = CudaOutOfMemoryError
    elif code in (200, 209, 500):
        kind = CudaModuleError
    assert type(error) is kind
