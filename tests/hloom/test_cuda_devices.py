"""GPUs as devices of the front end: on the fake driver, whose kernels are the texts in the lock-step simulator."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import DeviceError

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
import cuda_cases as cases
from fake_cuda import FakeDriver
from test_cuda_plans import simulated_kernel

from hloom import cuda_compilation
from hloom.compiler.targets.cuda.compile import CudaCode
from hloom.cuda_kind import CudaKind
from hloom.device_kinds import device_kinds
from hloom.runtime.cuda.discovery import GpuFacts


@pytest.fixture
def gpu(monkeypatch):
    """One GPU, cuda:0: kernels are compiled to nothing, and simulated when they are launched."""
    driver = FakeDriver([], version=13000)
    device = cases.device(driver)
    monkeypatch.setattr(cuda_compilation, "cuda_device", lambda index=0: device)
    kind = CudaKind()
    kind._found = [GpuFacts(0, "fake", (9, 0), 13000, 1 << 30, 4, 100 << 10)]
    monkeypatch.setitem(device_kinds(), "cuda", kind)
    plans = []
    real = cuda_compilation.optimized_plan

    def planned(*args, **kwargs):
        found = real(*args, **kwargs)
        plans.append(found[1])
        return found

    def codes(sources, arch, cache):
        made = []
        for source in sources:
            title = f"k{len(driver.kernels)}_{source.name}"
            kernel = simulated_kernel(plans[-1], source, title)
            driver.kernels[title] = kernel
            made.append(CudaCode(title, arch, f"cubin {title}".encode(), "", 32, 0, 0, 0))
        return made

    monkeypatch.setattr(cuda_compilation, "optimized_plan", planned)
    monkeypatch.setattr(cuda_compilation, "cubins", codes)
    with hl.config(num_cpu_devices=2):
        yield driver


def normal(*dims, seed=0):
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def test_an_array_on_a_gpu(gpu):
    x = hl.device_put(normal(5), "cuda:0")
    assert str(x.device) == "cuda:0" and x.__dlpack_device__()[0] == 2
    np.testing.assert_array_equal(x, normal(5))
    assert x.__cuda_array_interface__["shape"] == (5,) and "Array([" in repr(x)
    assert sum(x.device.memory_stats().values()) > 0 and hl.devices("cpu")[0].memory_stats() is None
    assert issubclass(hl.errors.CudaError, RuntimeError)
    back = hl.device_put(x, "cpu:0")
    assert str(back.device) == "cpu:0" and back.__dlpack_device__() == (1, 0)
    with pytest.raises(AttributeError):
        back.__cuda_array_interface__  # noqa: B018


def test_a_function_on_a_gpu_keeps_its_results_there(gpu):
    function = hl.jit(lambda x, y: (hnp.tanh(x) * 2 + y, x.sum()))
    x, y = hl.device_put(normal(6, 7), "cuda:0"), normal(6, 7, seed=1)
    for _ in range(3):
        made, total = function(x, y)
        assert str(made.device) == str(total.device) == "cuda:0" and made.__dlpack_device__()[0] == 2
        np.testing.assert_allclose(made, np.tanh(normal(6, 7)) * 2 + y, rtol=1e-5)
        np.testing.assert_allclose(total, normal(6, 7).sum(), rtol=1e-4)
    again, _ = function(made, y)
    np.testing.assert_allclose(again, np.tanh(np.asarray(made)) * 2 + y, rtol=1e-5)
    assert function.lower(x, y).compile().cost_analysis()["by kernel"]


def test_parts_on_a_gpu_and_on_cpus(gpu):
    def parts(devices):
        @hl.jit
        def f(x, w):
            with hl.device(devices[0]):
                h = hnp.tanh(x @ w)
            with hl.device(devices[1]):
                g = h * 2 + x.sum()
            with hl.device(devices[0]):
                return hnp.exp(g) - h, g

        return f

    x, w = normal(4, 6) * 0.1, normal(6, 3, seed=1) * 0.1
    want = parts((None, None))(x, w)
    for devices in (("cuda:0", "cpu:1"), ("cpu:1", "cuda:0")):
        function = parts(devices)
        for _ in range(2):
            found = function(x, w)
            assert [str(v.device) for v in found] == list(devices)
            for a, b in zip(found, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_the_gradient_through_a_gpu(gpu):
    def loss(device):
        def f(w, x):
            with hl.device(device):
                h = hnp.tanh(x @ w)
            with hl.device("cpu:1" if device else None):
                return hnp.sum(h**2)

        return hl.jit(hl.grad(f))

    w, x = normal(5, 4), normal(3, 5, seed=1)
    found, want = loss("cuda:0")(w, x), loss(None)(w, x)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
    assert str(found.device) == "cuda:0"


def test_a_loop_on_a_gpu_between_parts_on_cpus(gpu):
    @hl.jit
    def f(x):
        with hl.device("cpu:1"):
            y = x * 2
        with hl.device("cuda:0"):
            y = hl.lax.fori_loop(0, 3, lambda k, v: v * 0.5 + 1, y)
        with hl.device("cpu:0"):
            return y + 1

    np.testing.assert_allclose(f(np.full(8, 4.0, np.float32)), 3.75, rtol=1e-6)


def test_a_loop_between_a_gpu_and_a_cpu_is_refused(gpu):
    @hl.jit
    def f(x):
        def step(state, _):
            a, b = state
            with hl.device("cuda:0"):
                a = a * 0.5
            with hl.device("cpu:1"):
                b = b + a
            return (a, b), None

        return hl.lax.scan(step, (x, x), length=4)[0]

    with pytest.raises(DeviceError, match="before and after loops") as caught:
        f(normal(4))
    assert "test_cuda_devices.py" in str(caught.value)


def test_what_a_gpu_has_no_kernel_for(gpu):
    @hl.jit
    def f(x):
        with hl.device("cuda:0"):
            values = hnp.linalg.eigvalsh(x)
        with hl.device("cpu:1"):
            return values * 2

    x = np.eye(3, dtype=np.float32)
    with pytest.raises(DeviceError, match="no kernel"):
        f(x)
    with hl.config(soft_placement=True):
        np.testing.assert_allclose(f(x), 2.0, rtol=1e-6)


def test_no_gpu_says_why():
    if CudaKind().count():
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceError, match="no GPU"):
        hl.device_put(np.ones(3), "cuda:0")
    with pytest.raises(DeviceError, match="no GPU"):
        hl.devices("gpu")
    with hl.config(soft_placement=True):
        assert str(hl.device_put(np.ones(3), "cuda:0").device) == "cpu:0"


def test_a_gpu_by_default(gpu):
    with hl.default_device("cuda:0"):
        made = hl.jit(lambda x: x * 2)(normal(4))
    np.testing.assert_array_equal(made, normal(4) * 2)
    assert made.__dlpack_device__()[0] == 2
