"""The table of what parts of a program on several devices send to each other."""

from __future__ import annotations

import numpy as np

import hloom as hl
import hloom.numpy as hnp


def test_values_that_go_from_device_to_device(capfd):
    def f(x):
        with hl.device("cpu:0"):
            y = hnp.tanh(x)

        def step(carry, _):
            with hl.device("cpu:1"):
                product = carry @ carry
            with hl.device("cpu:0"):
                return product + y, None

        return hl.lax.scan(step, y, None, length=5)[0]

    with hl.config(num_cpu_devices=2, debug=1):
        compiled = hl.jit(f).lower(np.ones((4, 4), np.float32)).compile()
    uses = compiled.collectives()
    assert {use.kind for use in uses} == {"send"} and {use.times for use in uses} == {5}
    assert sorted(use.among for use in uses) == ["cpu:0 -> cpu:1", "cpu:1 -> cpu:0"]
    assert uses.bytes == 2 * 5 * 64
    assert any("test_sends.py" in str(use.source) for use in uses) and "cpu:1 -> cpu:0" in str(uses)
    assert "which send 640 bytes to each other (2 values)" in capfd.readouterr().err
