"""`jit(autotune=True)`: same bits, a bounded time, a choice that later processes find, nothing tried with effects."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.backends import autotuner
from hloom.backends.cpu import autotune
from hloom.compiler import cache
from hloom.compiler.targets.cpu.machine import host
from hloom.ir.records import replace


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache of its own, in which no choice stands yet."""
    own = cache.Cache(tmp_path)
    monkeypatch.setattr(autotuner, "default_cache", lambda: own)
    return own


def layer(x, w):
    return hnp.tanh(x @ w) + 1.0


def arrays(m=200, k=300, n=170):
    random = np.random.default_rng(0)
    return [hl.device_put(random.standard_normal(s, dtype=np.float32)) for s in ((m, k), (k, n))]


def choices(folder) -> list[dict]:
    return [json.loads(folder.get(p.name.removesuffix(".bin"))) for p in folder.folder.glob("tuned-*.bin")]


def test_the_bits_are_those_of_the_description_as_it_is(folder):
    given = arrays()
    with hl.config(autotune_seconds=0.2):
        tuned = hl.jit(layer, autotune=True)(*given)
    np.testing.assert_array_equal(np.asarray(tuned), np.asarray(hl.jit(layer)(*given)))
    (choice,) = choices(folder)
    assert "{}" in choice["seconds"] and all(value > 0 for value in choice["seconds"].values())


def test_a_stored_choice_is_used_and_nothing_is_timed(folder, monkeypatch):
    given = arrays()
    with hl.config(autotune_seconds=0.1):
        hl.jit(layer, autotune=True)(*given)
    monkeypatch.setattr(autotune, "compare", lambda *_, **__: pytest.fail("timed again"))
    targets = []
    compile_module = autotune.compile_module
    monkeypatch.setattr(
        autotune, "compile_module", lambda *a, **k: targets.append(k.get("target")) or compile_module(*a, **k)
    )
    key = next(p.name.removesuffix(".bin") for p in folder.folder.glob("tuned-*.bin"))
    folder.put(key, json.dumps({"sizes": {"l2_bytes": 1 << 16}, "seconds": {}}).encode())
    result = hl.jit(layer, autotune=True)(*given)
    assert [target.machine.l2_bytes for target in targets] == [1 << 16]
    np.testing.assert_array_equal(np.asarray(result), np.asarray(hl.jit(layer)(*given)))


@pytest.mark.parametrize("half, kept", [(0.5, {"l2_bytes": 1 << 14}), (0.99, {})])
def test_the_quickest_is_kept_where_it_gains(folder, monkeypatch, half, kept):
    """With a clock of our own: a program for a small cache takes part of the time of the others."""
    monkeypatch.setattr(autotune, "changed_sizes", lambda machine: [{"l2_bytes": 1 << 14}])
    now, compile_module = [0.0], autotune.compile_module
    monkeypatch.setattr(autotune.time, "perf_counter", lambda: now[0])

    def compiled(module, target=None, **options):
        made = compile_module(module, target=target, **options)
        run = made.runner

        class Timed:
            program = run.program

            def __call__(self, inputs):
                now[0] += 0.01 * (half if target else 1.0)
                return run(inputs)

        made.runner = Timed()
        return made

    monkeypatch.setattr(autotune, "compile_module", compiled)
    given = [np.asarray(a) for a in arrays(512, 512, 512)]
    module = hl.jit(layer).lower(*given).module
    autotune.autotuned(module, given)
    (choice,) = choices(folder)
    assert choice["sizes"] == kept and len(choice["seconds"]) == 2


def test_the_time_is_bounded(folder):
    given = arrays(700, 700, 700)
    hl.jit(layer)(*given)
    started = time.perf_counter()
    with hl.config(autotune_seconds=0.0):
        hl.jit(layer, autotune=True)(*given)
    assert time.perf_counter() - started < 5
    (choice,) = choices(folder)
    assert choice["sizes"] == {}


def test_donated_arguments_are_tried_on_copies(folder):
    def step(x, g):
        return x - 0.1 * (g @ g)

    x, g = arrays(64, 64, 64)
    expected = np.asarray(hl.jit(step)(x, g))
    with hl.config(autotune_seconds=0.1):
        result = hl.jit(step, donate_argnums=0, autotune=True)(x, g)
    np.testing.assert_array_equal(np.asarray(result), expected)


def test_functions_of_the_user_are_not_called_to_try(folder):
    calls = []

    def seen(x):
        calls.append(1)
        return x

    def f(x, w):
        return hl.pure_callback(seen, hl.ShapeDtypeStruct(x.shape, x.dtype), x @ w)

    hl.jit(f, autotune=True)(*arrays(8, 8, 8))
    assert len(calls) == 1 and not choices(folder)


def test_shapes_alone_time_nothing(folder):
    shape = hl.ShapeDtypeStruct((8, 8), np.float32)
    hl.jit(layer, autotune=True).lower(shape, shape).compile()
    assert not choices(folder)


def test_candidates_differ_in_one_size():
    machine = host()
    others = autotune.changed_sizes(machine)
    assert len({repr(sizes) for sizes in others}) == len(others)
    for sizes in others:
        ((name, size),) = sizes.items()
        assert name in dict(autotune.FACTORS) and size != getattr(machine, name)
    assert all("l3_bytes" not in sizes for sizes in autotune.changed_sizes(replace(machine, l3_bytes=0)))
