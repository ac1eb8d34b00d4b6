"""Steady inputs: what depends on them alone is computed when they change, and only then."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from steady_programs import check

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.backends.cpu import open_sizes
from hloom.backends.cpu.compilation import compile_module
from hloom.compiler.schedule.steps import KernelStep
from hloom.dispatch.jit import JitFunction
from hloom.dispatch.signature import JitOptions
from hloom.platforms.backend import CompileOptions

pytestmark = pytest.mark.quick


def compiled(function, *arguments, steady):
    return compile_module(hl.make_module(function)(*arguments), steady=frozenset(steady))


def names(steps) -> list[str]:
    return [s.launch.source.name for s in steps if isinstance(s, KernelStep)]


@pytest.mark.parametrize("seed", range(15))
def test_random_programs_with_steady_inputs(seed):
    check(seed)


def test_a_matrix_of_weights_is_turned_and_packed_once():
    x, w = np.ones((16, 48), np.float32), np.arange(48 * 40, dtype=np.float32).reshape(40, 48) / 1000
    program = compiled(lambda x, w: hnp.tanh(x @ (w * 2).T), x, w, steady=[1])
    assert len(names(program.plan.prepared)) == 1 and len(names(program.plan.steps)) == 1
    for scale in (1, 3):  # other weights
        w = np.array(w * scale)
        for rows in (x, x / 7):
            np.testing.assert_allclose(program([rows, w])[0], np.tanh(rows @ (w * 2).T), rtol=1e-5)


def test_the_filters_of_a_convolution_are_packed_once_also_in_a_loop():
    x, w = np.ones((1, 8, 9, 9), np.float32), np.arange(8 * 8 * 9, dtype=np.float32).reshape(8, 8, 3, 3) / 1e4

    def seen(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME")

    program = compiled(seen, x, w, steady=[1])
    assert [n for n in names(program.plan.prepared) if "pack" in n] and "pack" not in "".join(names(program.plan.steps))
    np.testing.assert_allclose(program([x, w])[0], np.asarray(hl.jit(seen)(x, w)), rtol=1e-5)
    looped = hl.jit(lambda x, w: lax.fori_loop(0, 3, lambda _, x: seen(x, w), x))
    np.testing.assert_allclose(looped(x, w), seen(seen(seen(x, w), w), w), rtol=1e-4)


def test_nothing_is_kept_of_memory_that_others_may_write():
    x, w = np.ones((4, 8), np.float32), np.ones((8, 64), np.float32)
    function = JitFunction(lambda w, x: x @ w[::-1], JitOptions(steady=1))
    for value in (1, 2, 5):
        w[...] = value
        np.testing.assert_array_equal(function(w, x), np.full((4, 64), 8 * value))
    array = hnp.asarray(w)  # a copy
    assert float(function(array, x)[0, 0]) == float(function(array, x)[0, 0]) == 40
    with hl.config(item_assignment=True):
        array[...] = 7
    assert float(function(array, x)[0, 0]) == 56


def test_a_result_that_is_prepared_is_the_callers_own():
    x = np.ones(3, np.float32)
    program = compiled(lambda w, x: (w[::-1] + 1, x + 1), x, x, steady=[0])
    first = program([x, x])[0]
    first[...] = -1
    np.testing.assert_array_equal(program([x, x])[0], [2, 2, 2])


def test_a_call_by_addresses_prepares_anew():
    x, w, out = np.ones((16, 48), np.float32), np.ones((40, 48), np.float32), np.empty((16, 40), np.float32)
    program = compiled(lambda x, w: x @ (w * 2).T, x, w, steady=[1])
    for value in (1, 2):
        w[...] = value
        program.runner.run_at([a.ctypes.data for a in (x, w, out)])
        np.testing.assert_array_equal(out, np.full((16, 40), 96 * value))


def test_values_that_grow_are_computed_in_each_call():
    program = compiled(lambda w, x: hnp.cumsum(hnp.broadcast_to(w, (1000, 3)), 0) @ x, *[np.ones(3, np.float32)] * 2,
                       steady=[0])  # fmt: skip
    assert program.plan.kept_bytes < 1000 and program.memory_analysis()["constant bytes"] >= program.plan.kept_bytes


def test_threads_call_with_weights_of_their_own():
    function = JitFunction(lambda w, x: x @ w.T, JitOptions(steady=1))
    x = hnp.ones((5, 64), np.float32)
    weights = [hnp.full((48, 64), k, np.float32) for k in range(4)]
    wrong: list[int] = []

    def run(k: int) -> None:
        wrong.extend(k for _ in range(50) if not np.array_equal(function(weights[k], x), np.full((5, 48), 64 * k)))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_profiler_times_what_each_call_does():
    function = JitFunction(lambda w, x: hnp.tanh(x @ (w * 2).T), JitOptions(steady=1))
    arguments = hnp.ones((40, 48), np.float32), hnp.ones((16, 48), np.float32)
    parts = hl.profiler.profile(function.lower(*arguments).compile(), arguments, seconds=0.01)
    assert [part.launches for part in parts] == [1]


# --- programs of open sizes -------------------------------------------------------------------------------------------

ROWS = {"x": ("n", 24)}


@pytest.mark.parametrize("seed", range(6))
def test_random_layers_of_open_sizes_with_steady_weights(seed):
    draws = np.random.default_rng(seed)
    depth, columns = 24, int(draws.choice([1, 5, 16, 70]))
    scaled, turned, kept = draws.integers(0, 2, 3)

    def network(w, v, b, x):
        part = (w[:columns] if scaled else w[columns:] * 2).T
        other = hnp.tanh(x @ (v + b if turned else v)) * x.shape[0]
        result = x @ part + b + other
        return (
            (result, part + 1, w, lax.fori_loop(0, 3, lambda _, h: hnp.tanh(h @ part) @ part.T, x)) if kept else result
        )

    weights = [
        hnp.asarray(draws.standard_normal(s).astype(np.float32))
        for s in ((2 * columns, depth), (depth, columns), (columns,))
    ]
    opened = JitFunction(network, JitOptions(steady=3, dims=ROWS))
    for scale in (1, 2):
        weights = [w * scale for w in weights]
        for rows in (16, 5, 40, 41, 1, 300, 16):
            x = draws.standard_normal((rows, depth)).astype(np.float32)
            for _ in range(2):
                found, wanted = (hl.tree.leaves(f(*weights, x)) for f in (opened, hl.jit(network)))
                for one, other in zip(found, wanted, strict=True):
                    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)


def test_what_reads_the_value_of_a_size_is_not_prepared():
    """It has one shape for all sizes, and another value for each."""

    def chosen(c, x):
        nothing = hnp.zeros((x.shape[0], 1), np.float32)
        first = hnp.where(nothing > c, nothing, x.shape[0])
        return first, hnp.where(first > c, first, 1.0), x * hnp.sin(c * x.shape[0])

    function = JitFunction(chosen, JitOptions(steady=1, dims=ROWS))
    for c in map(hnp.asarray, np.float32([0.3, 0.3, 9])):
        for rows in (5, 7, 40, 6, 5, 1):
            x = hnp.ones((rows, 24), np.float32)
            for found, wanted in zip(function(c, x), chosen(c, x), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_variants_keep_what_has_room(monkeypatch):
    """Each variant prepares its weights; beyond a number of bytes only the last one keeps them."""
    function = JitFunction(lambda w, x: hnp.tanh(x @ (w * 2).T), JitOptions(steady=1, dims={"x": ("n", 48)}))
    w, rows = hnp.asarray(np.arange(48 * 64, dtype=np.float32).reshape(64, 48) / 1000), (5, 40, 300)
    for bytes_, kept in ((1 << 28, 3), (1 << 14, 1)):
        monkeypatch.setattr(open_sizes, "PREPARED", bytes_)
        w = w + 1
        for n in rows:
            x = np.ones((n, 48), np.float32)
            np.testing.assert_allclose(function(w, x), np.tanh(x @ (np.asarray(w) * 2).T), rtol=1e-5)
        (specialization,) = function._specializations.values()
        executable = specialization.executable
        assert len(executable.variants) == 3 and all(variant.plan.prepared for variant in executable.variants)
        assert len([one for one in executable._prepared_by if one._last is not None]) == kept


def test_a_call_of_open_sizes_by_addresses_prepares_anew():
    """What is at an address nobody knows."""
    n = hl.Dim("n")
    module = (
        hl.jit(lambda w, x: x @ (w * 2).T)
        .lower(hl.ShapeDtypeStruct((40, 48), "float32"), hl.ShapeDtypeStruct((n, 48), "float32"))
        .module
    )
    executable = open_sizes.OpenExecutable(module, CompileOptions(steady=frozenset([0])))
    w, x, out = np.ones((40, 48), np.float32), np.ones((16, 48), np.float32), np.empty((16, 40), np.float32)
    run, _ = executable.program({"n": 16})
    for value in (1, 3):
        w[...] = value
        run([w.ctypes.data, x.ctypes.data, out.ctypes.data])
        np.testing.assert_array_equal(out, np.full((16, 40), 96 * value))
