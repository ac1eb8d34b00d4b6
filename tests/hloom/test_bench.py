"""The benchmark: every workload gives the reference's results in every library, and the reports hold together."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hloom.bench import libraries, report, timing
from hloom.bench.workloads import FAMILIES, WORKLOADS, Workload
from hloom.commands import main


@pytest.fixture(scope="module")
def hlooms():
    return [libraries.Hloom(True), libraries.Hloom(False)]


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_agree_with_the_reference(name, hlooms):
    workload = WORKLOADS[name]
    arrays = workload.inputs(np.random.default_rng(0), divide=16)
    numpy = libraries.Numpy()
    expected = workload.reference(arrays, numpy)
    kernels = {}
    # Unfused, the large ones are a thousand kernels.
    chosen = [*hlooms, numpy] if workload.suite == "core" else [hlooms[0], numpy]
    for library in chosen:
        if not workload.runs_on(library):
            assert library is numpy
            continue
        prepared = [library.prepare(a) for a in arrays]
        function = library.compiled(workload)
        timing._check(workload, library.title, library.arrays(function(*prepared)), expected)
        if workload.suite == "core" and library is not numpy:
            kernels[library.name] = function.lower(*prepared).compile().cost_analysis()["kernels"]
    assert not kernels or kernels["hloom"] <= kernels["unfused"]


def test_a_peer_with_a_wrong_result_is_left_out(hlooms):
    class Wrong(libraries.Numpy):
        name, title = "wrong", "wrong"

        def __init__(self):
            super().__init__()
            self.name, self.title = "wrong", "wrong"

        def arrays(self, result):
            return [a + 1 for a in super().arrays(result)]

    row = timing.measure(WORKLOADS["tiny_add"], [*hlooms, Wrong()], 0.01)
    assert set(row.seconds) == {"hloom", "unfused"} == set(row.errors)


def test_families_are_those_that_the_suite_promises():
    assert len(WORKLOADS) >= 40 and len({w.family for w in WORKLOADS.values()}) == len(FAMILIES)
    for workload in WORKLOADS.values():
        assert workload.bound_by in ("memory", "compute", "overhead") and workload.what, workload.name


@pytest.mark.parametrize("name", ["gelu_4m", "softmax", "mlp_step", "black_scholes_4m", "conv_dilated", "scan_product"])
def test_jax_agrees_with_the_reference(name):
    pytest.importorskip("jax")
    workload, library = WORKLOADS[name], libraries.Jax()
    arrays = workload.inputs(np.random.default_rng(0), divide=16)
    results = library.arrays(library.compiled(workload)(*map(library.prepare, arrays)))
    timing._check(workload, "jax", results, workload.reference(arrays, libraries.Numpy()))


@pytest.mark.parametrize("name", ["matmul_f64", "double_8m"])
def test_jax_computes_in_double_what_the_others_do(name):
    pytest.importorskip("jax")
    library, workload = libraries.Jax(), WORKLOADS[name]
    arrays = workload.inputs(np.random.default_rng(0), divide=16)
    (result,) = library.arrays(library.compiled(workload)(*map(library.prepare, arrays)))
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, workload.function(libraries.Numpy(), *arrays), rtol=1e-11, atol=1e-11)


def test_a_wrong_result_is_never_timed(hlooms):
    def function(lib, x):
        return x + 1 if lib.name == "numpy" else x + 1.01

    workload = Workload("wrong", "", lambda random: [np.ones(8, np.float32)], function, "none")
    with pytest.raises(timing.CheckError, match="wrong: hloom fused is off by"):
        timing.measure(workload, hlooms, 0.01)


def test_one_kernel_where_fusion_promises_one(hlooms):
    for name in ("chain_16m", "gelu_4m", "softmax", "layer_norm", "adam_4m"):
        workload = WORKLOADS[name]
        arrays = [hlooms[0].prepare(a) for a in workload.inputs(np.random.default_rng(0), divide=16)]
        costs = hlooms[0].compiled(workload).lower(*arrays).compile().cost_analysis()
        assert costs["kernels"] == 1, name


def test_a_training_step_allocates_nothing_after_the_first():
    assert timing.allocations(steps=20) == {"steps": 20, "bytes": 0, "blocks": 0}


def test_the_command_writes_what_it_measured(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    files = [tmp_path / name for name in ("r.json", "r.png", "r.md")]
    arguments = ["bench", "--only", "tiny_add,digits_step", "--peers", "numpy", "--seconds", "0.01", "--no-startup"]
    assert main([*arguments, "--json", str(files[0]), "--png", str(files[1]), "--markdown", str(files[2])]) == 0
    result = json.loads(files[0].read_text())
    assert [row["name"] for row in result["rows"]] == ["tiny_add", "digits_step"]
    for row in result["rows"]:
        assert set(row["ratios"]) == {"unfused", "numpy"} and min(row["seconds"].values()) > 0
        assert row["kernels"]["hloom"] <= row["kernels"]["unfused"]
    ratios = [row["ratios"]["numpy"] for row in result["rows"]]
    assert result["geometric_means"]["numpy"] == pytest.approx((ratios[0] * ratios[1]) ** 0.5)
    assert files[1].read_bytes().startswith(b"\x89PNG")
    assert "| tiny_add |" in files[2].read_text()
    assert "tiny_add" in capsys.readouterr().out and not list(tmp_path.glob("*.partial"))


def test_goals_know_their_direction():
    rows = [{"name": "softmax", "seconds": {"hloom": 1.0}, "ratios": {"jax": 0.5}, "share_of_triad": None},
            {"name": "tiny_add", "seconds": {"hloom": 4e-6}, "ratios": {}, "share_of_triad": None}]  # fmt: skip
    reached = {goal["what"]: goal["reached"] for goal in report.goals(rows, {"warm start": 0.8})}
    assert reached["softmax: times as fast as jax"] is False
    assert reached["smallest jitted call, microseconds"] is True
    assert reached["process start to first result, warm cache, s"] is False
    assert reached["chain, 16M: times as fast as NumPy"] is None


def test_a_plot_without_matplotlib_is_a_clear_message(monkeypatch, tmp_path, capsys):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "matplotlib" else find(name, *a))
    assert main(["bench", "--png", str(tmp_path / "r.png")]) == 2
    assert "pip install 'hloom[bench]'" in capsys.readouterr().err
