"""Attention as one kernel: what it fires on, by structure, what it leaves alone, and its numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloom as hl
import hloom.numpy as hnp
from hloom.backends.cpu.driver import driver
from hloom.backends.cpu.program import Layout, program_of
from hloom.compiler.kernels.attention.structure import attention_of
from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.targets.cpu.machine import host
from hloom.compiler.targets.cpu.target import CpuTarget, host_target
from hloom.ir.interpret import run
from hloom.ir.records import replace
from hloom.runtime.program import Executable

BATCH, HEADS, QUERIES, KEYS, FEATURES = 2, 3, 37, 41, 12


def bodies(function, *arrays) -> list:
    """The computations of the kernels of a compiled function that are attention."""
    module = run_passes(hl.make_module(function)(*arrays), PIPELINE, verify=True)
    fused = [i["calls"] for i in module.entry.instructions if i.opcode == "fusion"]
    return [c for c in fused if attention_of(c) is not None]


def results(function, arrays) -> tuple[list, list]:
    """(what the compiled function gives, what the reference interpreter gives for it as traced)."""
    module = hl.make_module(function)(*arrays)
    with np.errstate(all="ignore"):
        want = run(module, list(arrays))
    want = list(want) if isinstance(want, list | tuple) else [want]
    got = hl.jit(function)(*arrays)
    got = list(got) if isinstance(got, list | tuple) else [got]
    return [np.asarray(g) for g in got], [np.asarray(w) for w in want]


def check(function, arrays, kernels: int = 1, tolerance: float = 5e-6) -> None:
    assert len(bodies(function, *arrays)) == kernels
    for got, want in zip(*results(function, arrays), strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        got, want = (x.astype(np.float64) for x in (got, want))
        assert np.array_equal(np.isnan(got), np.isnan(want))
        scale = np.max(np.abs(want[np.isfinite(want)]), initial=1.0)
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * scale)


def normal(*dims, dtype="f4", seed=0, scale=1.0):
    return (np.random.default_rng([seed, *dims]).standard_normal(dims) * scale).astype(dtype)


def bhtd(dtype="f4", batch=BATCH, heads=HEADS, queries=QUERIES, keys=KEYS, features=FEATURES):
    return tuple(normal(batch, heads, t, features, dtype=dtype, seed=k) for k, t in enumerate((queries, keys, keys)))


def bthd(dtype="f4"):
    return tuple(np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in bhtd(dtype))


# --- spellings of one meaning -------------------------------------------------------------------------------------


def by_hand(q, k, v):
    scores = hnp.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
    power = hnp.exp(scores - hnp.max(scores, axis=-1, keepdims=True))
    return hnp.einsum("bhqk,bhkd->bhqd", power / hnp.sum(power, axis=-1, keepdims=True), v)


def by_softmax(q, k, v):
    return hnp.matmul(hl.nn.softmax(hnp.matmul(q, hnp.swapaxes(k, -1, -2)) * q.shape[-1] ** -0.5), v)


def by_log_sum_exp(q, k, v):
    scores = hnp.matmul(q * q.shape[-1] ** -0.5, hnp.swapaxes(k, -1, -2))
    return hnp.matmul(hnp.exp(scores - hl.nn.logsumexp(scores, axis=-1, keepdims=True)), v)


def divided_afterwards(q, k, v):
    scores = hnp.matmul(q, hnp.swapaxes(k, -1, -2)) * q.shape[-1] ** -0.5
    power = hnp.exp(scores - hnp.max(scores, axis=-1, keepdims=True))
    return hnp.matmul(power, v) / hnp.sum(power, axis=-1, keepdims=True)


def of_single_heads(q, k, v):
    def head(q, k, v):
        return hl.nn.softmax(q @ k.T * q.shape[-1] ** -0.5) @ v

    return hl.vmap(hl.vmap(head))(q, k, v)


def operands_the_other_way_round(q, k, v):
    weights = hl.nn.softmax(hnp.einsum("bhkd,bhqd->bhqk", k, q) * q.shape[-1] ** -0.5)
    return hnp.einsum("bhkd,bhqk->bhqd", v, weights)


SPELLINGS = [
    by_hand, by_softmax, by_log_sum_exp, divided_afterwards, of_single_heads, operands_the_other_way_round,
]  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings(spelling):
    check(spelling, bhtd())
    want = results(by_hand, bhtd())[1][0]
    np.testing.assert_allclose(np.asarray(hl.jit(spelling)(*bhtd())), want, rtol=0, atol=2e-6)


def time_first(q, k, v):
    weights = hl.nn.softmax(hnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5)
    return hnp.einsum("bhqk,bkhd->bqhd", weights, v)


def library(q, k, v):
    return hl.nn.dot_product_attention(q, k, v)


def heads_in_the_middle(q, k, v):
    def head(q, k, v):
        return hl.nn.softmax(q @ k.T * q.shape[-1] ** -0.5) @ v

    return hl.vmap(hl.vmap(head, 1, 1))(q, k, v)


@pytest.mark.parametrize("spelling", [time_first, library, heads_in_the_middle])
def test_time_before_heads(spelling):
    """Nothing is transposed in memory: queries, keys and values are read, and the result is written, as they lie."""
    check(spelling, bthd())
    module = run_passes(hl.make_module(spelling)(*bthd()), PIPELINE)
    assert [i.opcode for i in module.entry.instructions if i.opcode != "parameter"] == ["fusion"]


# --- masks, biases ------------------------------------------------------------------------------------------------


def causal(value):
    def function(q, k, v):
        scores = hnp.matmul(q, hnp.swapaxes(k, -1, -2)) * 0.3
        earlier = hnp.arange(q.shape[-2])[:, None] >= hnp.arange(k.shape[-2])
        return hnp.matmul(hl.nn.softmax(hnp.where(earlier, scores, value)), v)

    return function


@pytest.mark.parametrize("value", [-np.inf, -1e9, -5.0])
@pytest.mark.parametrize("keys", [KEYS, QUERIES, 20, 300])
def test_causal(value, keys):
    check(causal(value), bhtd(keys=keys))


def masked(condition, value=-np.inf):
    """condition(row's index, index in the row, another mask) -> what is seen."""

    def function(q, k, v, other):
        scores = hnp.matmul(q, hnp.swapaxes(k, -1, -2)) * 0.3
        seen = condition(hnp.arange(q.shape[-2])[:, None], hnp.arange(k.shape[-2]), other)
        return hnp.matmul(hl.nn.softmax(hnp.where(seen, scores, value)), v)

    return function


def skips(function, *arrays) -> bool:
    """Whether the kernel leaves out what a mask hides."""
    plan = make_plan(run_passes(hl.make_module(function)(*arrays), PIPELINE), host_target())
    return any("t_limit" in step.launch.source.text for step in plan.kernels())


CONDITIONS = {
    "later": (lambda i, j, other: i >= j, True),
    "later, negated": (lambda i, j, other: ~(j > i), True),
    "the same too": (lambda i, j, other: i > j, True),
    "some ahead": (lambda i, j, other: j <= i + 7, True),
    "behind the end": (lambda i, j, other: j - i < 1000, True),
    "nothing": (lambda i, j, other: j < i - 1000, True),
    "and another": (lambda i, j, other: (i >= j) & other, True),
    "a length": (lambda i, j, other: (j < 30) & (i >= 0), True),
    "earlier": (lambda i, j, other: i <= j, False),
    "or another": (lambda i, j, other: (i >= j) | other, False),
    "equal": (lambda i, j, other: i != j, False),
    "double": (lambda i, j, other: 2 * j <= i, False),
}


@pytest.mark.parametrize("value", [-np.inf, -1e9, -3.0])
@pytest.mark.parametrize("name", CONDITIONS)
def test_masks_of_indexes(name, value):
    condition, found = CONDITIONS[name]
    other = normal(QUERIES, KEYS, seed=7) > -1
    arrays = (*bhtd(), other)
    check(masked(condition, value), arrays)
    assert skips(masked(condition, value), *arrays) == found


@pytest.mark.parametrize("keys,queries", [(700, 700), (530, 100), (64, 300)])
@pytest.mark.parametrize("value", [-np.inf, -3.0])
def test_causal_in_several_steps(keys, queries, value):
    arrays = bhtd(batch=1, heads=2, queries=queries, keys=keys, features=37)
    assert skips(causal(value), *arrays)
    check(causal(value), arrays)


def test_hidden_values_that_are_not_finite():
    """A weight of zero makes NaN of infinity, behind a mask too; hidden queries' products never count."""
    q, k, v = bhtd(queries=300, keys=300)
    v[0, 1, 250, 3], v[1, 2, 100, 0] = np.inf, np.nan
    k[1, 1, 200] = np.nan
    check(causal(-np.inf), (q, k, v))
    got = np.asarray(hl.jit(causal(-np.inf))(q, k, v))
    assert np.isnan(got[0, 1, :, 3]).sum() == 250 and np.isnan(got[1, 2, :, 0]).all()
    assert not np.isnan(got[1, 1, :200]).any() and np.isnan(got[1, 1, 200:]).all()


def test_weights_behind_a_mask_that_are_returned():
    def function(q, k, v):
        scores = hnp.matmul(q, hnp.swapaxes(k, -1, -2)) * 0.3
        hidden = hnp.arange(k.shape[-2]) > hnp.arange(q.shape[-2])[:, None]
        weights = hl.nn.softmax(hnp.where(hidden, -5.0, scores))
        return hnp.matmul(weights, v), weights

    assert skips(function, *bhtd())
    check(function, bhtd())


def test_a_bias_behind_the_mask_is_read():
    def function(q, k, v, bias):
        scores = hnp.matmul(q, hnp.swapaxes(k, -1, -2)) * 0.3
        seen = hnp.arange(k.shape[-2]) <= hnp.arange(q.shape[-2])[:, None]
        return hnp.matmul(hl.nn.softmax(hnp.where(seen, scores, -5.0) + bias), v)

    arrays = (*bhtd(), normal(QUERIES, KEYS, seed=4))
    assert not skips(function, *arrays)
    check(function, arrays)


def test_causal_of_the_library():
    check(lambda q, k, v: hl.nn.dot_product_attention(q, k, v, is_causal=True), bthd())


@pytest.mark.parametrize(
    "dims", [(BATCH, 1, QUERIES, KEYS), (HEADS, QUERIES, KEYS), (KEYS,), (BATCH, 1, 1, KEYS)], ids=str
)
def test_masks_and_biases_in_memory(dims):
    bias, mask = normal(*dims, seed=9), normal(*dims, seed=8) > -0.5

    def function(q, k, v, bias, mask):
        scores = hnp.matmul(q, hnp.swapaxes(k, -1, -2)) * 0.3 + bias
        return hnp.matmul(hl.nn.softmax(hnp.where(mask, scores, -1e30)), v)

    check(function, (*bhtd(), bias, mask))


def test_keys_of_several_heads():
    """Grouped queries: a key head serves several."""
    q, k, v = bthd()
    check(lambda q, k, v: hl.nn.dot_product_attention(q, k, v), (q, k[:, :, :1], v[:, :, :1]))


def test_one_array_of_keys_for_all():
    def function(q, k, v):
        return hnp.einsum("bhqk,kd->bhqd", hl.nn.softmax(hnp.einsum("bhqd,kd->bhqk", q, k)), v)

    q, k, v = bhtd()
    for got, want in zip(*results(function, (q, k[0, 0], v[0, 0])), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=4e-6)


def test_what_follows_is_in_the_kernel():
    def function(q, k, v, x):
        return hnp.tanh(by_softmax(q, k, v)) + x * 0.5

    check(function, (*bhtd(), normal(BATCH, HEADS, QUERIES, FEATURES, seed=5)))


# --- what it leaves alone, and what is read elsewhere too ------------------------------------------------------------


def test_constants_of_queries_and_of_scores():
    """Both are arguments of the kernel, since they may follow a size: those of queries that are computed for a block
    differ from those that all of its rows read."""

    def scaled(q, k, v):
        scores = (hnp.exp(q) / 48.0 + 96.0) @ hnp.swapaxes(k, -1, -2) / 80.0 + 20.0
        return hl.nn.softmax(scores) @ v / 33.0

    check(scaled, (normal(2, 96, 48), normal(2, 80, 48, seed=1), normal(2, 80, 48, seed=2)))


def test_scores_that_are_returned():
    def function(q, k, v):
        scores = hnp.matmul(q, hnp.swapaxes(k, -1, -2))
        return hnp.matmul(hl.nn.softmax(scores), v), scores

    check(function, bhtd(), kernels=0)


def test_another_axis():
    def columns(q, k, v):
        return hnp.matmul(hl.nn.softmax(hnp.matmul(q, hnp.swapaxes(k, -1, -2)), axis=-2), v)

    def turned(q, k, v):
        return hnp.matmul(hnp.swapaxes(hl.nn.softmax(hnp.matmul(q, hnp.swapaxes(k, -1, -2))), -1, -2), v)

    def other_places(q, k, v):
        return hnp.matmul(hl.nn.softmax(hnp.matmul(q, hnp.swapaxes(k, -1, -2))[..., ::-1]), v)

    same = bhtd(queries=QUERIES, keys=QUERIES)
    for function in (columns, turned, other_places):
        check(function, same, kernels=0, tolerance=4e-6)


def test_blocks_that_would_be_too_small():
    """Few rows, few blocks, or long panels for few rows: products of their own use their panels more often."""
    for shape in ((2, 3, 20, 64, 16), (1, 1, 64, 64, 64), (1, 2, 128, 1024, 1024)):
        batch, heads, queries, keys, features = shape
        assert not bodies(by_softmax, *bhtd("f4", batch, heads, queries, keys, features))


def test_no_rows_between():
    check(lambda q, k, v: hnp.matmul(hnp.tanh(hnp.matmul(q, hnp.swapaxes(k, -1, -2))), v), bhtd(), kernels=0)


def test_weights_that_are_returned():
    """The row nest writes what others read; the scores themselves stay in the cache."""

    def function(q, k, v):
        weights = hl.nn.softmax(hnp.matmul(q, hnp.swapaxes(k, -1, -2)) * 0.3)
        return hnp.matmul(weights, v), weights

    check(function, bhtd())

    def further(q, k, v):
        scores = hnp.matmul(q, hnp.swapaxes(k, -1, -2)) * 0.3
        weights = hl.nn.softmax(scores)
        return hnp.matmul(weights, v) * 2, hnp.sum(weights * weights, -1), hnp.max(scores, -1)

    check(further, bhtd())


@pytest.mark.parametrize("spelling", [by_hand, by_softmax, by_log_sum_exp, causal(-1e9)])
def test_gradients(spelling):
    def loss(q, k, v):
        return hnp.sum(hnp.sin(spelling(q, k, v)))

    def function(q, k, v):
        value, gradients = hl.value_and_grad(loss, argnums=(0, 1, 2))(q, k, v)
        return value, *gradients

    for got, want in zip(*results(function, bhtd()), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * max(1, np.abs(want).max()))


def test_a_target_without_the_kernel():
    class Other(CpuTarget):
        kinds = tuple(kind for kind in CpuTarget.kinds if kind.name != "attention")

    module = hl.make_module(by_softmax)(*bhtd())
    plans = {t: make_plan(run_passes(module, PIPELINE, target=t), t).kernels() for t in (Other(host()), host_target())}
    first, second = ([s.launch.source.name.split("_")[0] for s in steps] for steps in plans.values())
    assert "attention" not in first and first.count("row") == 1 and second.count("attention") == 1


# --- numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype,tolerance", [("f8", 1e-14), (ml_dtypes.bfloat16, 2e-2), ("f2", 3e-3)], ids=["f64", "bf16", "f16"]
)
@pytest.mark.parametrize("spelling", [by_softmax, divided_afterwards])
def test_dtypes(dtype, tolerance, spelling):
    check(spelling, bhtd(dtype), tolerance=tolerance)


@pytest.mark.parametrize("dtype,tolerance", [(ml_dtypes.bfloat16, 2e-2), ("f2", 3e-3)], ids=["bf16", "f16"])
def test_narrow_operands_of_the_library(dtype, tolerance):
    check(library, bthd(dtype), tolerance=tolerance)


@given(
    batch=st.sampled_from([1, 3, 9]), queries=st.integers(1, 150), keys=st.integers(1, 600), depth=st.integers(1, 70),
    features=st.integers(1, 70), spelling=st.sampled_from([by_softmax, divided_afterwards, causal(-np.inf)]),
)  # fmt: skip
@settings(max_examples=25)
def test_eval_shape(batch, queries, keys, depth, features, spelling):
    q, k, v = normal(batch, queries, depth), normal(batch, keys, depth, seed=1), normal(batch, keys, features, seed=2)
    for got, want in zip(*results(spelling, (q, k, v)), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


def test_long_rows():
    """Blocks of few rows, partial sums over several steps."""
    check(by_softmax, bhtd(batch=1, heads=2, queries=130, keys=3001, features=40), tolerance=4e-6)


def plain_softmax(q, k, v):
    """Without the maximum subtracted: sums may be tiny, or more than there is."""
    power = hnp.exp(hnp.matmul(q, hnp.swapaxes(k, -1, -2)))
    return hnp.matmul(power / hnp.sum(power, axis=-1, keepdims=True), v)


@pytest.mark.parametrize("shift", [-95.0, -80.0, 0.0, 80.0, 86.0])
def test_sums_far_from_one(shift):
    """Where a row's divisor is below 1, or a sum of undivided weights would not be finite, the weights are divided."""
    q, k, v = bhtd()
    q, k = np.concatenate([q, np.ones_like(q[..., :1])], -1), np.concatenate([k, np.full_like(k[..., :1], shift)], -1)
    q[0, 0, 3] *= 0.1
    check(plain_softmax, (q * 0.4, k, v * 1e3), tolerance=1e-4 if shift < -90 else 4e-6)


def test_values_near_the_largest():
    q, k, v = bhtd()
    v[:, :, :, 2] = 3e38
    v[0, 1, 5, 3] = np.inf
    check(by_softmax, (q, k, v))


def test_rows_that_hide_everything():
    """-inf everywhere gives NaN, as written; the other rows keep their values."""

    def function(q, k, v, mask):
        scores = hnp.matmul(q, hnp.swapaxes(k, -1, -2))
        return hnp.matmul(hl.nn.softmax(hnp.where(mask, scores, -np.inf)), v)

    mask = np.ones((QUERIES, KEYS), bool)
    mask[5] = mask[20] = False
    check(function, (*bhtd(), mask))


@pytest.mark.parametrize("spelling", [by_softmax, causal(-1e9), plain_softmax])
def test_bits_do_not_depend_on_blocks_and_tiles(spelling):
    """Nor on how many cores there are, which decides the rows of a block."""
    arrays = bhtd(queries=170, keys=130)
    module = run_passes(hl.make_module(spelling)(*arrays), PIPELINE)
    machines = [
        host(), replace(host(), cores=64), replace(host(), cores=1, l1_bytes=64 << 10),
        replace(host(), vector_bytes=16, vector_registers=32, l2_bytes=256 << 10),
    ]  # fmt: skip
    found = []
    for machine in machines:
        plan = make_plan(module, CpuTarget(machine))
        assert any(step.launch.source.name.startswith("attention") for step in plan.kernels())
        found.append(np.asarray(Executable(program_of(plan, Layout()), driver())(arrays)[0]))
    for other in found[1:]:
        assert np.array_equal(other, found[0])


@pytest.mark.parametrize("spelling", [by_softmax, causal(-1e9), plain_softmax])
def test_bits_do_not_depend_on_threads(spelling):
    arrays = bhtd(queries=300, keys=200)
    function = hl.jit(spelling)
    machine = driver()
    before = machine.num_threads
    try:
        found = []
        for threads in (1, 2, 3):
            machine.set_num_threads(threads)
            found.append(np.asarray(function(*arrays)).tobytes())
    finally:
        machine.set_num_threads(before)
    assert len(set(found)) == 1
    # Nor on which rows share a block.
    part = np.asarray(function(arrays[0][:, :, :100].copy(), *arrays[1:]))
    assert np.array_equal(part, np.asarray(function(*arrays))[:, :, :100])


def test_the_transposed_result_goes_into_another_kernel_of_rows():
    """Heads go together again, into a projection, a norm and a product: two kernels, each with its own transpose."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((32, 64, 64)).astype(np.float32)
    w = rng.standard_normal((5, 64, 64)).astype(np.float32) / 8

    def block(x, w):
        q, k, v = ((x @ w[n]).reshape(32, 64, 4, 16).transpose(0, 2, 1, 3) for n in range(3))
        scores = hnp.where(hnp.tril(hnp.ones((64, 64), bool)), q @ k.swapaxes(-1, -2) / 4, -1e9)
        mixed = (hl.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(32, 64, 64)
        x = x + mixed @ w[3]
        return (x - x.mean(-1, keepdims=True)) / hnp.sqrt(x.var(-1, keepdims=True) + 1e-5) @ w[4]

    got, want = hl.jit(block)(x, w), hl.jit(block, fusion=False)(x, w)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=0, atol=2e-5)
