"""GPUs as devices of the front end (`simulated_gpus`)."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_gpus import simulated_gpus

import hloom as hl
import hloom.numpy as hnp
from hloom.backends.cuda.kind import CudaKind
from hloom.errors import DeviceError


@pytest.fixture
def gpu():
    """One GPU, cuda:0."""
    with simulated_gpus() as (driver, _):
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


class Foreign:
    """An array of another library on a GPU, with a device of DLPack and a gradient that is in the way."""

    def __init__(self, array, place=(2, 0)):
        self.array, self.place, self.detached = array, place, False

    def detach(self):
        self.detached = True
        return self

    def __dlpack_device__(self):
        return self.place

    def __dlpack__(self, **options):
        assert self.detached
        return self.array.__dlpack__(**options)


def test_an_array_of_another_library_on_a_gpu_is_shared(gpu):
    theirs = Foreign(hl.device_put(normal(6, 7), "cuda:0"))
    for ours in (hnp.from_dlpack(theirs), hnp.asarray(theirs)):
        assert str(ours.device) == "cuda:0"
        assert ours.unsafe_buffer_pointer() == theirs.array.unsafe_buffer_pointer()
        np.testing.assert_array_equal(ours, normal(6, 7))
    np.testing.assert_array_equal(hl.jit(lambda v: v.max())(theirs), normal(6, 7).max())
    assert hnp.asarray(theirs, np.float64).dtype == np.float64
    for place, word in (((10, 0), "DLPack's device \\(10, 0\\)"), ((2, 5), "GPU 5, which hloom does not use")):
        with pytest.raises((DeviceError, hl.errors.CudaError), match=word):
            hnp.from_dlpack(Foreign(theirs.array, place))


def test_what_numpy_makes_of_an_array_on_a_gpu_lives_on_its_own(gpu):
    x = hl.device_put(np.arange(5000.0, dtype=np.float32), "cuda:0")
    views = [np.asarray(x) for _ in range(3)]
    del x
    others = [np.full(5000, -1.0, np.float32) for _ in range(20)]
    for view in views:
        np.testing.assert_array_equal(view, np.arange(5000.0))
    del others


def test_a_first_call_fetches_nothing_to_the_host(gpu):
    x = hl.device_put(normal(2000), "cuda:0")
    start = len(gpu.calls)
    hl.jit(lambda v: v * 2)(x)
    hl.jit(hl.grad(lambda v: (v * v).sum()))(x)
    assert "cuEventSynchronize" not in gpu.counts(start)


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


def test_whether_an_array_is_computed(gpu):
    x = hl.device_put(normal(50), "cuda:0")
    made = [hl.jit(lambda v: v * 2)(x) for _ in range(5)]
    start = len(gpu.calls)
    assert not made[-1].is_ready()  # the driver works as late as it may
    made[-1].copy_to_host_async()
    assert "cuEventSynchronize" not in gpu.counts(start)
    made[-1].block_until_ready()
    assert all(array.is_ready() for array in made)


def test_small_arguments_of_the_host_share_a_copy(gpu):
    function = hl.jit(lambda a, b, c, d: a + b * c - d, device="cuda:0")
    given = [normal(20, seed=seed) for seed in range(3)] + [hl.device_put(normal(20, seed=3), "cuda:0")]
    function(*given)
    start = len(gpu.calls)
    made = function(*given)
    assert gpu.counts(start)["cuMemcpyAsync"] == 1
    np.testing.assert_allclose(made, given[0] + given[1] * given[2] - normal(20, seed=3), rtol=1e-5)


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


def test_arrays_of_a_gpu_have_the_names_of_the_users_variables(gpu):
    weights = hl.device_put(normal(4000), "cuda:0")
    batch = [hl.device_put(normal(50), "cuda:0")]
    labels = [label for label, _ in weights._held().device.pool.largest(2)]
    assert labels[0] == "weights" and "test_cuda_devices.py" in labels[1] and len(batch) == 1


def test_out_of_memory_names_variables_and_the_line():
    with simulated_gpus(memory=1 << 20), pytest.raises(hl.errors.CudaError) as caught:
        weights = hl.device_put(normal(1 << 17), "cuda:0")
        images = hl.device_put(normal(1 << 18), "cuda:0")
        assert weights is images, "there is no room for both"
    error = caught.value
    assert isinstance(error, MemoryError) and error.largest[0] == ("weights", 1 << 19)
    assert "for images" in error.asked and error.source.function == "test_out_of_memory_names_variables_and_the_line"


def test_a_call_within_a_scope_brings_its_arguments():
    with simulated_gpus(2):
        x = hl.device_put(normal(8), "cuda:0")
        with hl.device("cuda:1"):
            assert str(hl.jit(lambda v: v * 2)(x).device) == "cuda:1"
        with hl.device("cpu:1"):
            made = hl.jit(lambda v: v * 2)(x)
        assert str(made.device) == "cpu:1"
        np.testing.assert_allclose(made, normal(8) * 2, rtol=1e-6)


def test_soft_placement_of_what_a_gpu_has_no_kernel_for(gpu):
    function = hl.jit(lambda x: hnp.sort(hnp.linalg.eigvals(hnp.tanh(x)).real) * 2)
    x = hl.device_put(normal(4, 4), "cuda:0")
    with pytest.raises(NotImplementedError, match="set hl.config.soft_placement"):
        function(x)
    with hl.config(soft_placement=True):
        np.testing.assert_allclose(function(x), np.sort(np.linalg.eigvals(np.tanh(normal(4, 4))).real) * 2, rtol=1e-4)
        text = function.lower(x).compile().as_text()
    assert "// cuda:0" in text and "// cpu:0" in text
