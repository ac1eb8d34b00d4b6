"""Which device results are on, and settings that compiled functions notice."""

import subprocess
import sys

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
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
    assert len(function._entries) == 2


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
