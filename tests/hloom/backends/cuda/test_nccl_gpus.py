"""Programs over real GPUs and the real NCCL; skipped where NCCL is not installed or there are fewer than two GPUs."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.platforms.kinds import device_kind


def gpus() -> list:
    kind = device_kind("cuda")
    count = 0 if kind is None else kind.count()
    if count < 2:
        pytest.skip(f"this needs two GPUs; this machine has {count}")
    if importlib.util.find_spec("nccl") is None:
        pytest.skip("pip install 'hloom[nccl]'")
    return hl.devices("cuda")[:2]


def test_a_training_step_over_two_gpus():
    mesh = hl.make_mesh((2,), ("data",), axis_types=(hl.sharding.AxisType.Auto,), devices=gpus())
    random = np.random.default_rng(0)
    x, w = random.standard_normal((64, 32)).astype(np.float32), random.standard_normal((32, 8)).astype(np.float32)
    step = hl.value_and_grad(lambda w, x: hnp.mean(hnp.tanh(x @ w) ** 2))
    want, gradient = hl.jit(step)(w, x)
    whole, rows = hl.NamedSharding(mesh, hl.P()), hl.NamedSharding(mesh, hl.P("data"))
    found, slope = hl.jit(step)(hl.device_put(w, whole), hl.device_put(x, rows))
    np.testing.assert_allclose(found, want, rtol=1e-4)
    np.testing.assert_allclose(slope, gradient, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["psum", "pmax", "all_gather", "psum_scatter", "all_to_all", "ppermute"])
def test_collectives_of_two_gpus(name):
    devices = gpus()
    calls = {
        "psum": lambda v: hl.lax.psum(v, "x"),
        "pmax": lambda v: hl.lax.pmax(v, "x"),
        "all_gather": lambda v: hl.lax.all_gather(v, "x", tiled=True),
        "psum_scatter": lambda v: hl.lax.psum_scatter(v, "x", tiled=True),
        "all_to_all": lambda v: hl.lax.all_to_all(v, "x", 0, 0, tiled=True),
        "ppermute": lambda v: hl.lax.ppermute(v, "x", [(0, 1), (1, 0)]),
    }
    x = np.random.default_rng(1).integers(-9, 9, (8, 6)).astype(np.float32)
    with hl.config(num_cpu_devices=2):
        results = []
        for places in (hl.devices("cpu")[:2], devices):
            mesh = hl.make_mesh((2,), ("x",), devices=places)
            call = hl.shard_map(calls[name], mesh=mesh, in_specs=hl.P("x"), out_specs=hl.P("x"), check_vma=False)
            results.append(np.asarray(hl.jit(call)(x)))
    np.testing.assert_array_equal(*results)
