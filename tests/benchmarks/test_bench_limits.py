"""The machine's limits, the profile of a program, the reasons made from both, the roof, and circumstances of calls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.benchmarks.measure import conditions, limits
from hloom.benchmarks.report import diagnosis, roofline
from hloom.commands import main
from hloom.compiler.targets.cpu.machine import host
from hloom.ir.records import replace
from hloom.profiler import Part, profile


@pytest.mark.parametrize("dtype", limits.PEAK_DTYPES)
def test_the_peak_is_multiply_adds_of_whole_vectors(dtype):
    text, flops = limits.peak_ir(dtype, host())
    size = limits.PEAK_DTYPES[dtype][1]
    assert text.count(f"call <{host().vector_bytes // size} x") == limits.CHAINS
    assert flops == 2 * limits.CHAINS * host().vector_bytes // size
    wide = replace(host(), vector_bytes=64)
    assert limits.peak_ir(dtype, wide)[1] == 2 * limits.CHAINS * 64 // size
    call, operations = limits.peak_call(dtype, threads=1)
    call()
    assert operations == flops * limits.ROUNDS * 4


def test_sweeps_pass_every_element():
    threads, n = 2, 64
    from hloom.backends.cpu.driver import load_kernels

    triad, total = load_kernels([limits.TRIAD, limits.SUM])
    a, b = np.arange(threads * n, dtype=np.float32), np.ones(threads * n, np.float32)
    o = np.zeros(threads * n, np.float32)
    limits._bound(triad, (a, b, o, n, 4), threads)()
    np.testing.assert_array_equal(o, a + 3)
    sums = np.zeros(16 * threads, np.float32)
    limits._bound(total, (b, sums, n, 1), threads)()
    np.testing.assert_array_equal(sums[::16], [n, n])


def test_levels_are_those_of_the_machine():
    machine = replace(host(), l1_bytes=32 << 10, l2_bytes=512 << 10, l3_bytes=32 << 20)
    assert limits.cache_sizes(machine, 2) == {"L1": 32 << 10, "L2": 512 << 10, "L3": 16 << 20, "DRAM": 256 << 20}
    assert list(limits.cache_sizes(replace(machine, l3_bytes=0), 2)) == ["L1", "L2", "DRAM"]


def test_the_profile_has_each_instruction_with_its_launches():
    def loop(x):
        return hl.lax.fori_loop(0, 5, lambda k, v: hnp.cumsum(v * 0.5), x) @ hnp.ones((64, 8))

    x = hl.device_put(np.ones((3, 64), np.float32)[0])
    jitted = hl.jit(loop)
    expected = np.asarray(jitted(x))
    compiled = jitted.lower(x).compile()
    parts = profile(compiled, (x,), 0.01)
    assert all(isinstance(part, Part) and part.seconds >= 0 and part.launches >= 1 for part in parts)
    assert [p.seconds for p in parts] == sorted((p.seconds for p in parts), reverse=True)
    np.testing.assert_array_equal(np.asarray(jitted(x)), expected)
    with pytest.raises(ValueError, match="takes 1 arrays, 2 were given"):
        profile(compiled, (x, x))


def test_the_profile_follows_jumps_and_calls_of_python():
    def program(x, n):
        y = hl.lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, hnp.sort(s[1]) * 0.5), (0, x))[1]
        return hl.lax.cond(n > 3, lambda v: v * 2, lambda v: v - 1, y)

    x, n = hl.device_put(np.ones(1 << 16, np.float32)), hl.device_put(np.int32(7))
    parts = profile(hl.jit(program).lower(x, n).compile(), (x, n), 0.01)
    sorts = [part for part in parts if part.name == "Python"]
    assert [part.launches for part in sorts] == [7] and sorts[0].bytes == 7 * 2 * x.nbytes


def test_donated_arguments_of_a_profile_stay_as_they_are():
    x = np.ones(1000, np.float32)
    jitted = hl.jit(lambda x: x + 1, donate_argnums=0)
    profile(jitted.lower(x).compile(), (x,), 0.001)
    assert x[0] == 1


SWEEP = [[1e4, 200e9, 100e9], [1e6, 100e9, 100e9], [1e8, 30e9, 30e9]]
LIMITS = {"threads": 2, "triad": 30e9, "sweep": SWEEP, "peaks": {"f32": 200e9}, "caches": {"L1": 200e9, "DRAM": 30e9}}


def row(seconds, ideal, **more):
    return {"name": "w", "family": "f", "seconds": {"hloom": seconds}, "ideal_bytes": ideal, "dtype": "f32",
            "triad": None, "bound_by": "memory"} | more  # fmt: skip


def test_reasons():
    def why(parts, *arguments, **more):
        return diagnosis.diagnosis(parts, row(*arguments, **more), LIMITS)

    bound = why([Part("loop", "add", 1e-2, 1, 3e8, 1e8, True)], 1e-2, 3e8, triad=30e9)
    assert "memory-bound" in bound and "100% of bandwidth" in bound
    assert "compute-bound" in why([Part("product", "dot", 1e-2, 1, 1e6, 1.9e9, True)], 1e-2, 1e6)
    assert "bound by the instructions of its loop" in why([Part("loop", "tanh", 2e-2, 1, 3e8, 1e8, True)], 2e-2, 3e8)
    assert "one thread" in why([Part("loop", "tanh", 2e-2, 1, 3e8, 1e8, False)], 2e-2, 3e8)
    assert "Python" in why([Part("Python", "sort", 2e-2, 1, 3e8, 1e8, False)], 2e-2, 3e8)
    assert "3.0 times the bytes" in why([Part("loop", "tanh", 2e-2, 1, 3e8, 1e8, True)], 2e-2, 1e8)
    assert "90% of 2.0 us is call overhead outside of kernels" in why(
        [Part("loop", "add", 2e-7, 1, 32, 4, False)], 2e-6, 32
    )
    assert "20 launches of 5.0 us" in why([Part("loop", "add", 1e-4, 20, 32, 4, False)], 1e-4, 32)


def test_bandwidth_lies_between_the_measured_sizes():
    assert diagnosis.bandwidth_at(SWEEP, 1) == 200e9 and diagnosis.bandwidth_at(SWEEP, 1e9) == 30e9
    assert diagnosis.bandwidth_at(SWEEP, 505_000) == pytest.approx(150e9)


def test_points_stand_under_their_roof():
    rows = [
        row(1e-2, 3e8, operations=3e7, triad=40e9),
        row(1e-2, 1e7, operations=1e9),
        row(1e-3, 1e6, operations=1e7),
        row(1e-3, 1e6, operations=0),
        row(1e-6, 16, operations=4, bound_by="overhead"),
    ]
    memory, compute, cache = roofline.points(rows, LIMITS)
    assert memory["under"] == "bandwidth" and memory["share"] == pytest.approx(0.75)
    assert compute["under"] == "multiply-adds" and compute["share"] == pytest.approx(0.5)
    assert cache["roof"] == pytest.approx(200) and cache["gflops"] == pytest.approx(10)


def test_the_roofline_command(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(limits, "cache_sizes", lambda *_: {"L1": 1 << 15, "L2": 1 << 18, "DRAM": 1 << 22})
    files = [str(tmp_path / name) for name in ("r.json", "r.png")]
    arguments = ["roofline", "--only", "chain_64k", "--seconds", "0.002", "--json", files[0], "--png", files[1]]
    assert main(arguments) == 0
    found = json.loads((tmp_path / "r.json").read_text())
    assert set(found["limits"]["peaks"]) == {"f32", "f64"} and min(found["limits"]["caches"].values()) > 0
    assert [p["name"] for p in found["points"]] == ["chain_64k"]
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    assert "multiply-adds, f32" in capsys.readouterr().out


def test_products_are_held_against_the_peak():
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "contraction_peak.py"
    options = ["--small", "--threads", "1", "--dtype", "f32", "--operands", "NT", "--seconds", "0.01"]
    done = subprocess.run([sys.executable, script, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if " NT " in line]
    assert len(rows) == 9 and all("%" in row for row in rows)


def test_callers_at_once_get_the_same_bits():
    found = conditions.callers(3, 0.05, ("matmul_64", "gelu_16k"))
    assert found["correct"] and found["threads"] == 3 and found["ratio"] > 0


def test_the_number_of_threads_is_as_before():
    from hloom.backends.cpu.driver import driver

    before = driver().num_threads
    found = conditions.threads_against_one(["gelu_16k"], 0.02)["gelu_16k"]
    assert driver().num_threads == before and found["speedup"] == found["one"] / found["all"]


@pytest.mark.slow
def test_peak_memory_counts_the_steps():
    found = conditions.peak_memory(["mlp_step"], ())
    assert 1 << 20 < found["mlp_step"]["hloom"] < 100 << 20
