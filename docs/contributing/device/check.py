"""The device is found by its entry point, and computes the parts of a function that were placed on it."""

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
# What `pip install .` writes: the metadata that names the entry point.
metadata = Path.cwd() / "counting_device-1.0.dist-info"
metadata.mkdir()
(metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: counting-device\nVersion: 1.0\n")
(metadata / "entry_points.txt").write_text("[hloom.devices]\ncounting = counting_device:CountingKind\n")
sys.path.insert(0, str(Path.cwd()))

import hloom as hl  # noqa: E402
import hloom.numpy as hnp  # noqa: E402
from hloom.platforms.kinds import device_kind  # noqa: E402


@hl.jit
def step(x, w):
    with hl.device("cpu:0"):
        h = hnp.tanh(x @ w)
    with hl.device("counting:0"):
        return hnp.sum(h**2)


x, w = np.ones((3, 4), np.float32), np.full((4, 2), 0.1, np.float32)
np.testing.assert_allclose(step(x, w), 6 * np.tanh(0.4) ** 2, rtol=1e-6)
assert device_kind("counting").computed["reduce"] == 1 and device_kind("counting").computed["tanh"] == 0
gradient = hl.jit(hl.grad(step, argnums=1))(x, w)
np.testing.assert_allclose(gradient, hl.grad(lambda w: hnp.sum(hnp.tanh(x @ w) ** 2))(w), rtol=1e-5)
