"""Sorts that may go by digits or by the network: on the fake driver, which way a device takes, and why."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from cuda_cases import finish
from cuda_simulated import compiled
from fake_cufft import FakeCuFft
from library_cases import Setup

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.backends.cuda import autotuner
from hloom.compiler.cache import Cache
from hloom.compiler.targets.cuda import scatter
from hloom.compiler.targets.cuda.sorting import bitonic, radix
from hloom.compiler.targets.cuda.sorting import choice as sort_ways
from hloom.runtime.cuda.errors import CudaOutOfMemoryError
from hloom.runtime.cuda.programs.program import Alternatives, Launch

RANDOM = np.random.default_rng(11)
DIGITS = ("sort_count", "sort_scan", "sort_scatter", "scatter_sort_count", "scatter_sort_scan", "scatter_sort_scatter")


@pytest.fixture
def setup(tmp_path, monkeypatch):
    """Small tiles and chunks; arithmetic prefers the network."""
    for name, size in (("digit", 4), ("threads", 32), ("kept", 256)):
        monkeypatch.setattr(radix.RadixSort, name, size)
    monkeypatch.setattr(bitonic, "CHUNK", 16)
    monkeypatch.setattr(scatter, "COMPARED", 4)
    monkeypatch.setattr(sort_ways, "estimates", lambda *_: (1.0, 2.0))
    made = Setup(FakeCuFft, (), tmp_path, monkeypatch)
    made.cost = cost(digits=1.0)
    return made


def cost(digits: float, network: float = 5.0):
    """Milliseconds by the name of what is launched."""
    return lambda what: digits if "count" in what or "scan" in what or "sort_scatter" in what else network


X = RANDOM.integers(-1000, 1000, (2, 40)).astype(np.int16)


def taken(setup, function, *arrays, **options) -> set[str]:
    """Which ways' kernels the loaded program has."""
    run, _ = compiled(function, *arrays, choose=setup.choose, **options)
    names = [step.kernel.name for step in run.program.steps if isinstance(step, Launch)]
    assert not any(isinstance(step, Alternatives) for step in run.program.steps)
    setup.finish(run)
    return {"digits" if "count" in name else "network" for name in names if "count" in name or "chunks" in name}


def test_the_faster_way_is_taken_and_kept(setup):
    setup.check(lambda x: hnp.sort(x, axis=1), X, turns=2)
    choice = setup.choice
    assert choice.taken == "digits" and choice.title == "sort of s16, 2 x 40" and choice.other_ms < choice.own_ms
    assert choice.why == f"measured: {choice.own_ms:.4f} ms by a bitonic network, {choice.other_ms:.4f} ms by digits"
    setup.cache, setup.cost = Cache(setup.folder), cost(digits=20.0)  # another process; digits would lose by now
    assert taken(setup, lambda x: hnp.sort(x, axis=1), X) == {"digits"} and setup.choice == choice


def test_the_way_that_arithmetic_prefers_stays_where_it_is_faster(setup, monkeypatch):
    setup.cost = cost(digits=20.0)
    assert taken(setup, lambda x: hnp.sort(x, axis=1), X) == {"network"}
    assert setup.choice.taken == "a bitonic network" and setup.choice.other_ms > setup.choice.own_ms
    monkeypatch.setattr(sort_ways, "estimates", lambda *_: (2.0, 1.0))
    assert taken(setup, lambda x: hnp.sort(x, axis=1), X) == {"network"}
    assert setup.choice.taken == "a bitonic network" and setup.choice.own_ms > setup.choice.other_ms


@pytest.mark.parametrize("digits", [1.0, 20.0])
def test_results_do_not_depend_on_the_choice(setup, digits):
    """Several operands, equal keys, and an order whose two arrays are read and written in turn."""
    setup.cost = cost(digits)
    keys = np.round(RANDOM.normal(size=50)).astype(ml_dtypes.bfloat16)
    setup.check(lambda k: hnp.argsort(k), keys)
    setup.check(lambda k, v: lax.sort((k, v), num_keys=1), keys, np.arange(50, dtype=np.float32))
    setup.check(lambda z: hnp.sort(z), (keys + 1j * keys[::-1]).astype(np.complex64))
    setup.check(lambda b: hnp.sort(b), keys > 0)
    assert setup.choice.taken == ("digits" if digits == 1.0 else "a bitonic network")


@pytest.mark.parametrize("digits", [1.0, 20.0])
def test_scatters_measure_the_order_of_their_places(setup, digits):
    """Between what computes the places and what follows the chains."""
    setup.cost = cost(digits)
    x, i, u = np.zeros(9, np.float32), RANDOM.integers(-2, 12, 60), RANDOM.normal(size=60).astype(np.float32)
    setup.check(lambda x, i, u: x.at[i].set(u), x, i, u)
    assert setup.choice.title == "sort of s32, 1 x 60" and setup.choice.own_ms and setup.choice.other_ms
    assert setup.choice.taken == ("digits" if digits == 1.0 else "a bitonic network")


def test_in_a_loop_and_twice(setup):
    def function(x):
        return lax.fori_loop(0, 2, lambda k, y: hnp.sort(y[::-1]), x), hnp.sort(-x)

    run, _ = compiled(function, X[0], choose=setup.choose)
    assert [choice.taken for choice in setup.chooser.choices] == ["digits"] * 2
    setup.finish(run)
    setup.check(function, X[0])


def test_what_the_settings_say(setup):
    for mode in ("never", "always"):
        with hl.config(cuda_libraries=mode):
            assert taken(setup, lambda x: hnp.sort(x, axis=1), X) == {"network"}
            assert setup.choice.why == f"hl.config.cuda_libraries is '{mode}'" and setup.choice.own_ms is None
    setup.cache = Cache(None)
    assert taken(setup, lambda x: hnp.sort(x, axis=1), X) == {"network"}
    assert "no folder" in setup.choice.why


def test_a_way_that_gives_other_results_is_not_taken(setup, monkeypatch):
    run, _ = compiled(lambda x: hnp.sort(x, axis=1), X)
    finish(run.device)
    real = autotuner.AlgorithmCandidate.results

    def results(candidate):
        found = real(candidate)
        if candidate.choose is not autotuner.own_kernels:
            found[0] = found[0][::-1].copy()
        return found

    monkeypatch.setattr(autotuner.AlgorithmCandidate, "results", results)
    assert taken(setup, lambda x: hnp.sort(x, axis=1), X) == {"network"}
    assert setup.choice.why == "results of digits differ from ours"


def test_no_memory_for_measuring(setup, monkeypatch):
    def results(candidate):
        raise CudaOutOfMemoryError("memory for a trial", "none is free", "use less")

    monkeypatch.setattr(autotuner.AlgorithmCandidate, "results", results)
    assert taken(setup, lambda x: hnp.sort(x, axis=1), X) == {"network"}
    assert "could not be measured" in setup.choice.why and "none is free" in setup.choice.why
