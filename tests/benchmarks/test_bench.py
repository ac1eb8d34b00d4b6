"""The benchmark: every workload gives the reference's results in every library, and the reports hold together."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hloom.benchmarks import expressions, libraries
from hloom.benchmarks.measure import conditions, startup, timing
from hloom.benchmarks.report import goals, report
from hloom.benchmarks.workloads import FAMILIES, WORKLOADS, Workload
from hloom.commands import bench, main


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
        timing.check(workload, library.title, library.arrays(function(*prepared)), expected)
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
    timing.check(workload, "jax", results, workload.reference(arrays, libraries.Numpy()))


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
    with pytest.raises(timing.CheckError, match="wrong: hloom .* is off by"):
        timing.measure(workload, hlooms, 0.01)


def test_one_kernel_where_fusion_promises_one(hlooms):
    for name in ("chain_16m", "gelu_4m", "softmax", "layer_norm", "adam_4m"):
        workload = WORKLOADS[name]
        arrays = [hlooms[0].prepare(a) for a in workload.inputs(np.random.default_rng(0), divide=16)]
        costs = hlooms[0].compiled(workload).lower(*arrays).compile().cost_analysis()
        assert costs["kernels"] == 1, name


def test_a_training_step_allocates_nothing_after_the_first():
    assert timing.allocations(steps=20) == {"steps": 20, "bytes": 0, "blocks": 0}


@pytest.mark.slow
def test_the_command_writes_what_it_measured(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    files = [tmp_path / name for name in ("r.json", "r.png", "r.md")]
    arguments = ["bench", "--only", "tiny_add,digits_step", "--peers", "numpy,unfused", "--seconds", "0.01"]
    arguments += ["--no-startup", "--no-conditions"]
    assert main([*arguments, "--json", str(files[0]), "--png", str(files[1]), "--markdown", str(files[2])]) == 0
    result = json.loads(files[0].read_text())
    assert [row["name"] for row in result["rows"]] == ["tiny_add", "digits_step"]
    for row in result["rows"]:
        assert set(row["ratios"]) - {"numexpr"} == {"unfused", "numpy"} and min(row["seconds"].values()) > 0
        assert row["kernels"]["hloom"] <= row["kernels"]["unfused"]
        assert row["profile"] and row["why"] and row["operations"] > 0
    ratios = [row["ratios"]["numpy"] for row in result["rows"]]
    assert result["geometric_means"]["numpy"] == pytest.approx((ratios[0] * ratios[1]) ** 0.5)
    assert files[1].read_bytes().startswith(b"\x89PNG")
    text = files[2].read_text()
    assert "| tiny_add |" in text and "## Targets" in text and "## Training steps" in text
    assert "tiny_add" in capsys.readouterr().out and not list(tmp_path.glob("*.partial"))

    # Rows of before are kept where they are not measured anew.
    again = ["bench", "--only", "tiny_add", "--peers", "numpy", "--seconds", "0.01", "--no-startup", "--no-conditions"]
    assert main([*again, "--keep", str(files[0]), "--json", str(files[0])]) == 0
    kept = json.loads(files[0].read_text())["rows"]
    assert kept[1] == result["rows"][1] and set(kept[0]["ratios"]) - {"numexpr"} == {"numpy"}


def test_the_full_suite_goes_into_the_folder_of_benchmarks(tmp_path, monkeypatch):
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    monkeypatch.chdir(tmp_path)
    full = parser.parse_args(["--suite", "full"])
    assert bench._default_file(full, "markdown") is None
    (tmp_path / "benchmarks").mkdir()
    assert bench._default_file(full, "markdown") == str(Path("benchmarks") / "RESULTS.md")
    assert bench._default_file(parser.parse_args(["--suite", "full", "--only", "softmax"]), "json") is None
    assert bench._default_file(parser.parse_args(["--folder", "x"]), "json") == str(Path("x") / "results.json")


def test_names_that_stand_for_several():
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    chosen = bench.chosen_workloads(parser.parse_args(["--only", "loops,tiny_add"]))
    assert {w.name for w in chosen} == {"tiny_add"} | {w.name for w in WORKLOADS.values() if w.family == "loops"}
    assert set(libraries.GROUPS["torch"]) == {"torch", "torch.compile"} <= set(libraries.PEERS)
    assert [library.name for library in libraries.load(("numpy",), 2)] == ["hloom", "numpy"]


def test_a_peer_that_raises_is_left_out_with_the_reason(hlooms):
    class Without(libraries.Numpy):
        def __init__(self):
            super().__init__()
            self.name = "without"

        def compiled(self, workload):
            raise AttributeError("no such function")

    row = timing.measure(WORKLOADS["tiny_add"], [hlooms[0], Without()], 0.01, profiled=False)
    assert set(row.seconds) == {"hloom"}
    assert row.left_out == {"without": "AttributeError: no such function"} and not row.parts


EXPRESSIONS = ["chain_64k", "gelu_16k", "silu_4m", "sin_cos_4m", "logarithms_4m", "adam_4m", "outer_add", "double_8m",
               "broadcast_chain"]  # fmt: skip


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_numexpr_gets_the_same_expressions(name):
    pytest.importorskip("numexpr")
    workload, library = WORKLOADS[name], expressions.NumExpr(2)
    arrays = workload.inputs(np.random.default_rng(0), divide=16)
    results = library.arrays(library.compiled(workload)(*arrays))
    assert {r.dtype for r in results} == {arrays[0].dtype}  # constants do not make doubles of float32
    timing.check(workload, "numexpr", results, workload.reference(arrays, libraries.Numpy()))


@pytest.mark.parametrize(
    "name", ["softmax", "orbit_1m", "matmul_64", "dense_gelu", "black_scholes_4m", "transpose_add"]
)
def test_numexpr_refuses_what_is_no_expression(name):
    pytest.importorskip("numexpr")
    workload, library = WORKLOADS[name], expressions.NumExpr(2)
    arrays = workload.inputs(np.random.default_rng(0), divide=16)
    with pytest.raises(expressions.NotCovered):
        library.compiled(workload)(*arrays)
    if name == "matmul_64":  # that is no remark in the results
        row = timing.measure(workload, [libraries.Hloom(True), library], 0.01, profiled=False)
        assert set(row.seconds) == {"hloom"} and not row.left_out


def facts(name, ratios, share=None, family="f", bound_by="compute", seconds=1.0, **more):
    return {"name": name, "ratios": ratios, "share_of_triad": share, "bound_by": bound_by, "family": family,
            "memory_bound": bound_by == "memory", "seconds": {"hloom": seconds}} | more  # fmt: skip


def test_goals_know_their_direction_and_their_rows():
    rows = [
        facts("gelu_4m", {"jax": 0.5, "torch.compile": 2.0}, 0.5, bound_by="memory"),
        facts("tiny_add", {"jax": 4.0}, seconds=2e-6),
        facts("scan_10000", {"jax": 20.0}),
        facts("lenet_step", {"jax": 8.0}, seconds=0.01),
        facts("conv_3x3", {"torch": 1.1}),
        facts("matmul_2048", {"jax": 1.0}, share_of_peak=0.8),
    ]
    extras = {
        "startup": {"cold": 1.2, "warm": 0.3, "new shape": 0.05},
        "conditions": {"import": 0.3, "threads": {"a": {"speedup": 1.9}, "b": {"speedup": 1.7}},
                       "callers": {"ratio": 1.0, "correct": True}, "memory": {"s": {"jax": 20, "hloom": 10}}},
    }  # fmt: skip
    found = {goal["what"]: goal for goal in goals.goals(rows, extras)}
    reached = {what: goal["reached"] for what, goal in found.items()}
    assert found["worst workload: speedup over jax"]["found"] == 0.5
    assert found["worst workload: speedup over jax"]["remark"] == "gelu_4m; 4 of 5 reach it"
    assert reached["memory-bound workloads: lowest share of the triad"] is False
    assert reached["matmul 1024^3, 2048^3: speedup over jax"] is True
    assert reached["matmul 1024^3, 2048^3: share of the FMA peak"] is False
    assert reached["3 x 3, 5 x 5 convolutions: speedup over torch"] is True
    assert found["LeNet-5 training, images per second"]["found"] == 10_000
    assert reached["scan and while of small bodies: speedup over jax"] is True
    assert reached["smallest jitted call, microseconds"] is True
    assert reached["first call, cold: speedup over jax, geometric mean"] is True
    assert reached["first call, warm cache: time relative to jax's first call"] is False
    assert reached["import hloom, seconds"] is False
    assert found["two threads: speedup over one, compute-bound"]["remark"] == "b"
    assert reached["peak memory of training steps: jax relative to hloom"] is True
    assert reached["matmul in f64, bf16, s8: speedup over jax"] is None


def test_calls_apart_are_measured_and_shown():
    found = conditions.calls_apart(["numpy"], names=("tiny_add", "digits_step"), count=3)
    assert all(0 < row["hloom"] < 1 for row in found.values())
    assert found["tiny_add"]["numpy"] > 0
    (page,) = report._condition_pages({"apart": {"tiny_add": {"hloom": 1.5e-6, "jax": 9e-6}, "b": {"hloom": 2e-6}}})
    assert page.heads == ["workload", "hloom", "jax"]
    assert page.rows == [["tiny_add", "1.5", "9.0"], ["b", "2.0", ""]]


def test_rows_say_what_they_miss():
    assert goals.missed(facts("gelu_4m", {"jax": 0.5, "numpy": 9.0}, 0.5, bound_by="memory")) == [
        "2.00x the time of jax", "50% of the triad's bandwidth"
    ]  # fmt: skip
    assert goals.missed(facts("gelu_4m", {"jax": 1.5}, 0.9, bound_by="memory")) == []
    assert goals.missed(facts("matmul_2048", {"jax": 1.5}, share_of_peak=0.8)) == ["80% of the FMA peak"]
    assert goals.missed(facts("matmul_64", {"jax": 1.5}, share_of_peak=0.5)) == []
    assert goals.missed(facts("scan_10000", {"jax": 3.0})) == ["3.0x the speed of jax"]
    assert goals.missed(facts("softmax", {"unfused": 0.9}, None)) == []


def test_memory_bounds_what_has_little_arithmetic():
    limits = {"peaks": {"f32": 200e9}}
    row = facts("gelu_4m", {"jax": 1.5}, 0.5, bound_by="memory", dtype="f32", triad=40e9, ideal_bytes=1e6)
    assert report.judged(row | {"operations": 1e6}, limits)["missed"] == ["50% of the triad's bandwidth"]
    full = report.judged(row | {"operations": 2e6}, limits)
    assert full["missed"] == [] and full["memory_bound"] is False
    assert report.judged(row | {"operations": 0.0}, limits)["memory_bound"] is True


def test_a_plot_without_matplotlib_is_a_clear_message(monkeypatch, tmp_path, capsys):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "matplotlib" else find(name, *a))
    for command in ("bench", "roofline"):
        assert main([command, "--png", str(tmp_path / "r.png")]) == 2
        assert "pip install 'hloom[bench]'" in capsys.readouterr().err


def test_first_calls_of_before_are_kept(monkeypatch):
    def first(names, peers):
        return [startup.FirstCall(n, "f", 0.1, 0.02, {"jax": 0.2}, {}, {}) for n in names]

    monkeypatch.setattr(startup, "first_calls", first)
    monkeypatch.setattr(startup, "new_shapes", lambda names, peers: [])
    before = bench._startup(["softmax", "tiny_add"], ["jax"], {})
    assert [row["name"] for row in before["first"]] == ["tiny_add", "softmax"]
    assert before["cold"] == pytest.approx(2) and before["warm"] == pytest.approx(0.1) and before["new shape"] is None
    monkeypatch.setattr(
        startup, "first_calls", lambda names, peers: [replace(r, cold=0.05) for r in first(names, peers)]
    )
    after = bench._startup(["softmax"], ["jax"], before)
    assert [row["cold"] for row in after["first"]] == [0.1, 0.05]


def test_a_peer_that_takes_for_ever_is_left_out(hlooms, monkeypatch):
    class Endless(libraries.Numpy):
        def __init__(self):
            super().__init__()
            self.name = "endless"

        def compiled(self, workload):
            while True:
                pass

    monkeypatch.setattr(timing, "PATIENCE", 0.05)
    row = timing.measure(WORKLOADS["tiny_add"], [hlooms[0], Endless()], 0.01, profiled=False)
    assert row.left_out == {"endless": "TimeoutError: no result after 0.05 s"}
