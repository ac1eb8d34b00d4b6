"""Which device results are on, and settings that compiled functions notice."""

import subprocess
import sys

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import DeviceError, SettingError


@pytest.fixture
def two_devices():
    with hl.config(num_cpu_devices=2):
        yield hl.devices()


def test_results_are_where_their_operands_are(two_devices):
    first, second = two_devices
    x = hl.device_put(np.ones(3, np.float32), second)
    assert x.device is second
    assert (x + 1).device is second
    assert (x + hnp.ones(3)).device is second  # no device was chosen for the other one
    double = hl.jit(lambda v: v * 2)
    for _ in range(3):
        assert double(x).device is second
        assert double(hnp.ones(3)).device is first
    assert hl.jit(lambda v: v * 2, device=first)(x).device is first


def test_two_chosen_devices_are_an_error(two_devices):
    x, y = (hl.device_put(np.ones(3, np.float32), d) for d in two_devices)
    for function in (hl.jit(lambda a, b: a + b), hnp.add):
        with pytest.raises(DeviceError, match="cpu:0 and cpu:1"):
            function(x, y)


def test_a_scope_is_heeded_whatever_its_operands_are_on(two_devices):
    """As `jit(device=)`: a function that is called without jit works as it does with it."""
    x, y = (hl.device_put(np.ones(3, np.float32), d) for d in two_devices)
    double = hl.jit(lambda v: v * 2)

    def parts(a, b):
        with hl.device("cpu:1"):
            h = a + b
        with hl.device("cpu:0"):
            return h * a

    for device in two_devices:
        with hl.device(device):
            assert double(x).device is double(y).device is (x + 1).device is (x + y).device is device
            assert hl.jit(lambda a, b: a + b)(x, y).device is device
    for function in (parts, hl.jit(parts)):
        np.testing.assert_array_equal(function(x, y), 2.0)
        assert function(x, y).device is two_devices[0]


MAKERS = [
    lambda **o: hnp.zeros(3, **o),
    lambda **o: hnp.ones((2, 2), **o),
    lambda **o: hnp.empty(2, **o),
    lambda **o: hnp.full((2,), 7.0, **o),
    lambda **o: hnp.zeros_like(np.ones(2), **o),
    lambda **o: hnp.ones_like(np.ones(2), **o),
    lambda **o: hnp.full_like(np.ones(2), 3, **o),
    lambda **o: hnp.arange(1, 9, 2, **o),
    lambda **o: hnp.linspace(0.0, 1.0, 5, **o),
    lambda **o: hnp.eye(3, **o),
    lambda **o: hnp.asarray([1.0, 2.0], **o),
    lambda **o: hnp.array(np.arange(4), **o),
    lambda **o: hnp.from_dlpack(np.arange(4), **o),
    lambda **o: hnp.astype(np.arange(4), hnp.float32, **o),
    lambda **o: hl.device_put(np.arange(4), **o),
]


@pytest.mark.parametrize("make", MAKERS)
def test_arrays_are_made_on_a_device(make, two_devices):
    first, second = two_devices
    plain = make()
    assert plain.device is first
    for name in ("cpu:1", second):
        made = make(device=name)
        assert made.device is second and made.dtype == plain.dtype and made.weak == plain.weak
        np.testing.assert_array_equal(made, plain)
    with hl.device(second):
        assert make().device is second and make(device="cpu:0").device is first
    with pytest.raises(DeviceError, match="cpu:0, cpu:1"):
        make(device="cpu:9")
    assert hl.jit(lambda: make(device="cpu:1"))().device is second


def test_an_array_stays_where_it_is_until_it_is_put_elsewhere(two_devices):
    x = hl.device_put(np.ones(3, np.float32), two_devices[1])
    assert hl.device_put(x).device is hnp.asarray(x).device is two_devices[1]
    with hl.device("cpu:0"):
        assert hl.device_put(x).device is two_devices[0]
        assert hnp.asarray(x) is x


def test_a_traced_value_is_put_on_a_device(two_devices):
    def function(x):
        y = hl.device_put({"a": x * 2, "b": np.ones(3, np.float32)}, "cpu:1")
        return x + 1, y["a"].to_device("cpu:0"), y["a"], y["b"], hl.device_put(x)

    results = hl.jit(function, device="cpu:0")(np.ones(3, np.float32))
    assert [r.device.index for r in results] == [0, 0, 1, 1, 0]
    for result, value in zip(results, (2, 2, 2, 1, 1), strict=True):
        np.testing.assert_array_equal(result, float(value))
    slope = hl.jit(hl.grad(lambda x: (hl.device_put(x, "cpu:1") ** 2).sum()))(np.full(3, 3.0, np.float32))
    np.testing.assert_array_equal(slope, 6.0)


def test_devices_that_a_text_names(two_devices):
    def function(x):
        with hl.device("cpu:0"):
            y = hnp.tanh(x)
        with hl.device("cpu:1"):
            return lax.fori_loop(0, 3, lambda k, v: v * 2, y)

    x = np.ones((4, 4), np.float32)
    text = hl.jit(function).lower(x).as_text()
    np.testing.assert_array_equal(hl.from_hlo(text.replace("cpu:1", "/device:CPU:1"))(x), function(x))
    for name in ("cuda:7", "strange:0", "cpu:2", "/job:worker/task:1/cpu:0"):
        other = text.replace("cpu:1", name)
        with pytest.raises(DeviceError, match=f"^device {name}\n  found:  "):
            hl.from_hlo(other)(x)
        with hl.config(soft_placement=True):
            found = hl.from_hlo(other)(x)
        assert found.device is two_devices[0]
        np.testing.assert_array_equal(found, function(x))


def test_weakness_and_device_stay_apart(two_devices):
    x = hl.device_put(hnp.asarray(2.0), two_devices[1])
    assert (x * np.float16(1)).dtype == np.float16
    assert x.weak and not hl.device_put(np.float32(2), two_devices[1]).weak


def test_fusion_is_noticed_by_compiled_functions():
    function = hl.jit(lambda v: hnp.exp(v) * 2 + 1)
    x = hnp.ones(5)
    expected = np.asarray(function(x))
    kernels = lambda: function.lower(x).compile().cost_analysis()["kernels"]  # noqa: E731
    assert kernels() == 1
    with hl.config(fusion=False):
        np.testing.assert_allclose(np.asarray(function(x)), expected, rtol=1e-6)
        assert kernels() > 1
    assert kernels() == 1
    assert len(function._specializations) == 2


def test_a_dump_folder_that_cannot_be_made(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with hl.config(dump_to=str(blocked / "dumps")), pytest.raises(SettingError, match="HLOOM_DUMP_TO"):
        hl.jit(lambda v: v - 3)(hnp.ones(2))


def test_another_process_counts_its_devices():
    code = "import hloom as hl; print(hl.devices())"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"HLOOM_NUM_CPU_DEVICES": "3"}
    )
    assert found.stdout.strip() == "[Device(cpu:0), Device(cpu:1), Device(cpu:2)]"
