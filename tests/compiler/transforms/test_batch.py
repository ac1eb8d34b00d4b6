"""Vectorization of every op against one problem after the other, on the interpreter."""

from __future__ import annotations

import numpy as np
import op_modules
import pytest
from derivative_cases import CASES, as_list, build
from indexed_cases import random_indices, random_windows, scatter_computation

from hloom.compiler.transforms.batch import batch
from hloom.compiler.transforms.vjp import gradient
from hloom.ir.build import Builder, scalar_computation, tuple_elements
from hloom.ir.errors import BatchingError, HloomError
from hloom.ir.interpret import evaluate
from hloom.ir.module import Computation, Module
from hloom.ir.ops import OPS
from hloom.ir.ops.indexing.gather import gather_attributes
from hloom.ir.ops.programs.structure import CUSTOM_CALLS
from hloom.ir.types import INEXACT, Shape, TupleShape
from hloom.ir.verify import verify

pytestmark = pytest.mark.quick

SIZE = 3


def problems(array: np.ndarray, size: int = SIZE) -> np.ndarray:
    """`size` arguments like this one, which differ and stay in its domain."""
    array = np.asarray(array)
    if array.ndim:
        return np.stack([np.roll(array.reshape(-1), k).reshape(array.shape) for k in range(size)])
    if array.dtype == bool:
        return np.array([bool(array) ^ bool(k % 2) for k in range(size)])
    step = 1 if array.dtype.kind in "iu" else 0.125
    return np.stack([(array + np.asarray(k * step).astype(array.dtype)).astype(array.dtype) for k in range(size)])


def choices(count: int) -> list[tuple[bool, ...]]:
    """All mapped; each alone; all but each: and every choice where there are few."""
    if count <= 3:
        return [tuple(bool(n >> k & 1) for k in range(count)) for n in range(1, 2**count)]
    found = {tuple([True] * count)}
    for k in range(count):
        found.add(tuple(j == k for j in range(count)))
        found.add(tuple(j != k for j in range(count)))
    return sorted(found)


def check(computation: Computation, arguments, mapped) -> None:
    """The batched computation gives what the problems give one after the other, and is valid."""
    with np.errstate(all="ignore"):
        given = [problems(a) if m else np.asarray(a) for a, m in zip(arguments, mapped, strict=True)]
        single = []
        for k in range(SIZE):
            one = [np.asarray(g[k]) if m else g for g, m in zip(given, mapped, strict=True)]
            single.append(as_list(evaluate(computation, one)))
        made, differs = batch(computation, mapped, SIZE)
        verify(Module("batched", made))
        found = as_list(evaluate(made, given))
    assert len(found) == len(differs)
    for k, (result, differing) in enumerate(zip(found, differs, strict=True)):
        expected = np.stack([s[k] for s in single])
        result = result if differing else np.broadcast_to(result, expected.shape)
        assert result.shape == expected.shape and result.dtype == expected.dtype
        if result.dtype.kind in "biu":
            np.testing.assert_array_equal(result, expected)
            continue
        wide = np.complex128 if result.dtype.kind == "c" else np.float64
        tolerance = {1: 0.1, 2: 1e-2, 4: 1e-5, 8: 1e-12, 16: 1e-12}[result.dtype.itemsize]
        if result.dtype == np.complex64:
            tolerance = 1e-5
        np.testing.assert_allclose(result.astype(wide), expected.astype(wide), rtol=tolerance, atol=tolerance)


def opcodes(computation: Computation) -> set[str]:
    return {i.opcode for i in computation.instructions}


def is_flat(computation: Computation) -> bool:
    """Whether all parameters and outputs are arrays: nested tuples come from texts only."""
    return all(isinstance(i.shape, Shape) for i in [*computation.parameters, *computation.outputs()])


MODULES = [
    c
    for c in op_modules.cases()
    if not opcodes(c.module.entry) & {"fusion", "custom-call"} and is_flat(c.module.entry) and c.module.entry.parameters
]


@pytest.mark.parametrize("given", CASES, ids=str)
def test_case(given):
    computation, arguments = given.computation(), given.arguments()
    for mapped in choices(len(arguments)):
        check(computation, arguments, mapped)


@pytest.mark.parametrize("given", MODULES, ids=lambda c: c.name)
def test_module(given):
    computation = given.module.entry
    count = len(computation.parameters)
    for mapped in choices(count) if count <= 6 else [tuple([True] * count)]:
        check(computation, given.arguments, mapped)


@pytest.mark.parametrize("seed", range(40))
def test_gathers_and_scatters_of_random_windows(seed):
    """The index vector dimension is left out where it is the rank of the indexes, which is its default."""
    rng = np.random.default_rng(seed)
    w = random_windows(rng)
    x, i = rng.normal(size=w.operand).astype(np.float32), random_indices(rng, w)
    attributes = gather_attributes(w)
    if w.vector == len(w.indices):
        del attributes["index_vector_dim"]
    builder = Builder("gathering")
    parameters = [builder.parameter(Shape(a.dtype, a.shape)) for a in (x, i)]
    gathering = builder.finish(builder.emit("gather", *parameters, **attributes))
    for mapped in choices(2):
        check(gathering, [x, i], mapped)
    updates = rng.normal(size=w.dims()).astype(np.float32)
    scattering = scatter_computation("f32", "s32", w, scalar_computation("add", "f32"))
    for mapped in choices(3):
        check(scattering, [x, i, updates], mapped)


@pytest.mark.parametrize("given", [c for c in CASES if c.smooth][::5], ids=str)
def test_gradient_of_case(given):
    computation, arguments = given.computation(), given.arguments()
    wrt = [k for k, a in enumerate(arguments) if a.dtype in INEXACT]
    made = gradient(computation, wrt)
    cotangents = [np.full(p.dims, 0.5, p.dtype) for p in made.parameters[len(arguments) :]]
    given = [*arguments, *cotangents]
    check(made, given, [True] * len(given))
    check(made, given, [True] * len(arguments) + [False] * len(cotangents))


@pytest.mark.parametrize("given", CASES[::7], ids=str)
def test_twice(given):
    """A batch of batches is one dimension after the other."""
    computation, arguments = given.computation(), given.arguments()
    mapped = [True] * len(arguments)
    once, differs = batch(computation, mapped, 2, [True] * len(computation.outputs()))
    twice, _ = batch(once, mapped, SIZE, differs)
    inner = [problems(a, 2) for a in arguments]
    outer = [problems(a) for a in inner]
    found = as_list(evaluate(twice, outer))
    for k in range(SIZE):
        for j in range(2):
            single = as_list(evaluate(computation, [np.asarray(a[k, j]) for a in outer]))
            for result, expected in zip(found, single, strict=True):
                np.testing.assert_allclose(result[k, j], expected, rtol=1e-12, atol=1e-12)


def test_every_op_has_a_rule_or_says_why_not():
    for name, entry in OPS.items():
        if not entry.batch:
            assert entry.batch.reason not in ("", "not declared yet"), f"'{name}' has no batch part"


def test_every_rule_is_used():
    used = set().union(*(opcodes(c.computation()) for c in CASES), *(opcodes(c.module.entry) for c in MODULES))
    used |= {"custom-call", "call", "while", "conditional", "scan"}  # below, and in the tests of their transforms
    used |= {"kernel", "kernel-map"}  # tests/hloom/kernels
    missing = {name for name, entry in OPS.items() if entry.batch} - used
    assert not missing, f"no case batches {sorted(missing)}: add a module to tests/support/op_modules.py"


def test_what_is_the_same_for_all_problems_stays():
    x, y = np.arange(3.0), np.arange(4.0)
    computation = build(lambda a, b: [a * 2.0, b.op("sine")], [x, y])
    made, differs = batch(computation, [True, False], SIZE)
    assert differs == [True, False]
    (sine,) = (i for i in made.instructions if i.opcode == "sine")
    assert sine in computation.instructions
    wanted, differs = batch(computation, [True, False], SIZE, [True, True])
    assert differs == [True, True]
    result = evaluate(wanted, [problems(x), y])[1]
    np.testing.assert_array_equal(result, np.tile(np.sin(y), (SIZE, 1)))


def test_no_problems():
    computation = build(
        lambda a, b: a.op("dot", b, lhs_contracting_dims=(0,), rhs_contracting_dims=(0,)), [np.ones(3)] * 2
    )
    made, _ = batch(computation, [True, False], 0)
    assert evaluate(made, [np.ones((0, 3)), np.ones(3)]).shape == (0,)


def test_an_op_without_a_rule_is_named(monkeypatch):
    from hloom.ir.op_table import No
    from hloom.ir.records import replace

    monkeypatch.setitem(OPS, "sine", replace(OPS["sine"], batch=No("it is only a test")))
    computation = build(lambda a: a.op("sine"), [np.ones(3)])
    with pytest.raises(BatchingError) as caught:
        batch(computation, [True], 2)
    assert "vmap of 'sine'" in caught.value.asked and "it is only a test" in caught.value.found
    assert "lax.map" in caught.value.repair and isinstance(caught.value, HloomError)


def test_custom_calls_run_once_a_problem():
    seen = []

    def function(x, y):
        seen.append(x.shape)
        return x * 2, x.sum() + y

    CUSTOM_CALLS["test_batch"] = function
    try:
        builder = Builder("f")
        x, y = builder.parameter(Shape("f64", (4,))), builder.parameter(Shape("f64"))
        shape = TupleShape([x.shape, y.shape])
        both = builder.emit("custom-call", x, y, shape=shape, custom_call_target="test_batch")
        computation = builder.finish(builder.tuple(tuple_elements(builder, both)))
        for mapped in choices(2):
            seen.clear()
            check(computation, [np.arange(4.0), np.float64(2)], mapped)
            assert seen == [(4,)] * 2 * SIZE
        made, _ = batch(computation, [True, False], 0)
        assert [r.shape for r in evaluate(made, [np.ones((0, 4)), np.float64(1)])] == [(0, 4), (0,)]
    finally:
        del CUSTOM_CALLS["test_batch"]


def test_merge_and_split():
    from hloom.compiler.transforms.batch import Batching
    from hloom.ir.build import Value

    array = np.arange(24.0).reshape(2, 3, 4)
    for dimension in (0, 1):
        builder = Builder("f")
        value = Value(builder, builder.parameter(Shape(array.dtype, array.shape)))
        build_ = Batching(builder, 2)
        merged = build_.merge(value, dimension)
        back = build_.split(merged, dimension)
        made = builder.finish(builder.tuple([merged.instruction, back.instruction]))
        one, two = evaluate(made, [array])
        expected = array.reshape(6, 4) if dimension == 0 else np.concatenate(list(array), 1).reshape(3, 2, 4)
        np.testing.assert_array_equal(one, expected.reshape(one.shape))
        np.testing.assert_array_equal(two, array)
