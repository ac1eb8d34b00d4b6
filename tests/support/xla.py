"""XLA as the judge: parses HLO text, and compiles and runs it on its CPU. Needs jaxlib, a development dependency."""

from __future__ import annotations

import numpy as np
import pytest


def parse(text: str):
    """XLA's module of HLO text. Raises RuntimeError with XLA's message where the syntax is wrong."""
    hlo = pytest.importorskip("jaxlib._hlo", reason="jaxlib is not installed")
    return hlo.hlo_module_from_text(text)


def run(text: str, arguments) -> list[np.ndarray]:
    """The outputs (a tuple's leaves in order) of HLO text compiled by XLA, which verifies shapes first."""
    jax = pytest.importorskip("jax", reason="jax is not installed")
    from jax._src.lib import xla_client
    from jaxlib import _hlo

    computation = _hlo.XlaComputation(parse(text).as_serialized_hlo_module_proto())
    mlir = xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
    device = jax.devices("cpu")[0]
    program = device.client.compile_and_load(mlir, xla_client.DeviceList((device,)), xla_client.CompileOptions())
    with jax.enable_x64(True):  # or 64-bit arguments are narrowed
        return [np.asarray(x) for x in program.execute([jax.device_put(a, device) for a in arguments])]


def run_stablehlo(text: str, arguments) -> list[np.ndarray]:
    """The results of a StableHLO program compiled by XLA, which verifies it first."""
    jax = pytest.importorskip("jax", reason="jax is not installed")
    from jax._src.lib import xla_client

    device = jax.devices("cpu")[0]
    program = device.client.compile_and_load(text, xla_client.DeviceList((device,)), xla_client.CompileOptions())
    with jax.enable_x64(True):  # or 64-bit arguments are narrowed
        return [np.asarray(x) for x in program.execute([jax.device_put(a, device) for a in arguments])]
