"""`benchmarks/gpu.py` on a simulated GPU: what it measures runs there, and its page says what was found."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest
from simulated_gpus import simulated_gpus

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"


@pytest.fixture
def script():
    with simulated_gpus() as (_, devices):
        spec = importlib.util.spec_from_file_location("gpu_benchmark", SCRIPT)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.COPIED, module.LAUNCHES = 1 << 16, 2
        yield module, devices[0]


def test_everything_but_the_large_product_is_measured(script):
    module, device = script
    row = module.row(module.WORKLOADS["tiny_add"], module.OnGpu(), None, 0.01)
    assert row["seconds"]["hloom"] > 0 and row["first"]["hloom"] > 0
    copy, launched = module.copy_bandwidth(device), module.launches(device)
    assert copy > 0 and min(launched) > 0
    rows = [row | {"bound by": "memory", "seconds": {"hloom": 2.0, "jax": 3.0}, "first": {"hloom": 1.0, "jax": 4.0}}]
    page = module.page(device, SimpleNamespace(title="jax 1"), rows, ["other: why"], 32.0, (3e12, 4e12), (6.0, 5.0))
    for found in (
        "Fake GPU, sm_90", "jax 1", "mean of 1 | 1.3 | 1.50 |", "| 0.9 | 1.50 tiny_add |", "mean | 1 | 4.00 |",
        "| 0.92 | 0.50 tiny_add |", "| 0.95 | 0.75 (3 Tflop/s) |", "| 1.2 | 1.20 |", "- other: why",
    ):  # fmt: skip
        assert found in page


def test_results_that_are_off_are_not_timed(script):
    module, _ = script
    workload = module.WORKLOADS["tiny_add"]
    wrong = SimpleNamespace(
        **{name: getattr(workload, name) for name in ("name", "inputs", "reference", "runs_on", "tolerance")},
        bound=lambda lib: lambda x: x * 7,
    )
    with pytest.raises(AssertionError, match="off by"):
        module.row(wrong, module.OnGpu(), None, 0.01)


def test_without_a_gpu_nothing_is_written(capsys, monkeypatch):
    spec = importlib.util.spec_from_file_location("gpu_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "available", lambda: "there is no GPU")
    monkeypatch.setattr("sys.argv", ["gpu.py"])
    assert module.main() == 2 and "nothing was measured: there is no GPU" in capsys.readouterr().err
