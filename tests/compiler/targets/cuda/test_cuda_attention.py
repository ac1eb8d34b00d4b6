"""Attention as one kernel on CUDA: simulated against the reference interpreter, and as machine code."""

import numpy as np
import pytest
from contraction_programs import MACHINE, dot, outputs
from cuda_plans import check as check_plan
from cuda_programs import computation, expected, inputs, request

import hloom.numpy as hnp
from hloom.compiler.cache import default_cache
from hloom.compiler.kernels.attention import structure
from hloom.compiler.kernels.attention.structure import attention_of
from hloom.compiler.targets.cuda.attention import attention_sources, has_attention_kernel
from hloom.compiler.targets.cuda.codegen.compile import available
from hloom.compiler.targets.cuda.codegen.cubins import cubins
from hloom.compiler.targets.cuda.machine import MACHINES
from hloom.compiler.targets.cuda.simulator.memory import LockstepError
from hloom.ir.records import replace
from hloom.ir.types import DTYPES, Shape


@pytest.fixture(autouse=True)
def _one_block_is_enough(monkeypatch):
    monkeypatch.setattr(structure, "BLOCKS", 1)


def attention(batch=1, queries=26, keys=40, depth=24, width=16, dtype="f32", mask=False, after=None, more=()):
    """softmax(queries keys^T / 4) values, with what is to be hidden."""

    def build(q, k, v, *rest):
        scores = dot(q, k, "bip", "bjp").convert("f32") * 0.25
        if mask:
            shape = Shape(DTYPES["s32"], scores.dims)
            rows, columns = (q.builder.emit("iota", shape=shape, iota_dimension=d) for d in (1, 2))
            open_ = q.builder.emit("compare", rows, columns, direction="GE")
            low = q.builder.constant(np.float32(-1e9))
            low = q.builder.emit("broadcast", low, shape=Shape(DTYPES["f32"], scores.dims), dimensions=())
            scores = type(q)(q.builder, q.builder.emit("select", open_, scores.instruction, low))
        top = scores.reduce("maximum", -np.inf, [2]).broadcast(scores.dims, (0, 1))
        power = (scores - top).op("exponential")
        weights = power / power.sum([2]).broadcast(scores.dims, (0, 1))
        made = dot(weights.convert(dtype), v, "bip", "bpj")
        return after(made, weights, *rest) if after else made

    shapes = [(dtype, (batch, queries, depth)), (dtype, (batch, keys, depth)), (dtype, (batch, keys, width))]
    return computation([*shapes, *more], build, "attention")


def launch_of(program, rows=None, machine=MACHINE, **options):
    found = attention_of(program)
    assert found is not None and has_attention_kernel(found, machine)
    (launch,) = attention_sources(request(program), found, machine, rows, **options)
    return launch


def check(program, rows=None, reverse=False, tolerance=2e-5, **options):
    arrays = inputs(program)
    made = [launch_of(program, rows, **options)]
    for got, want in zip(outputs(program, arrays, made=made, reverse=reverse), expected(program, arrays), strict=True):
        bound = 2**-6 if want.dtype.itemsize == 2 else tolerance
        largest = max(1.0, np.abs(want.astype(float)).max())
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=0, atol=bound * largest)


@pytest.mark.parametrize("rows", [16, 32, 64])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_blocks_of_rows(rows, dtype):
    check(attention(dtype=dtype), rows, reverse=rows == 32)


@pytest.mark.parametrize("dtype, batch, rows", [("f32", 1, 64), ("f16", 2, 16)])
def test_a_mask_of_indexes(dtype, batch, rows):
    check(attention(batch, dtype=dtype, mask=True), rows)


@pytest.mark.parametrize("keys, depth, width", [(137, 8, 8), (33, 7, 70), (65, 33, 129)])
def test_extents_that_fill_no_tile(keys, depth, width):
    check(attention(keys=keys, depth=depth, width=width, dtype="bf16"), 16)


def test_what_follows_and_what_others_read():
    def after(made, weights, x):
        return made * 2.0 + x, weights

    check(attention(after=after, more=[("f32", (1, 26, 16))]), 16)


def test_the_same_bits_for_every_number_of_rows():
    program = attention(dtype="bf16")
    arrays = inputs(program)
    assert len({outputs(program, arrays, made=[launch_of(program, rows)])[0].tobytes() for rows in (16, 32, 64)}) == 1


def test_scores_stay_in_shared_memory():
    launch = launch_of(attention(dtype="bf16"), 16)
    text = launch.source.text
    assert text.count("mma_bf16") == 4 and text.count("exp_f32") == 1 and not launch.temporaries
    assert set(launch.arguments) >= {"in0", "in1", "in2", "out0"} and launch.shared_bytes == launch.source.shared
    assert "copy_ahead(t_shared" in text and "copy_ahead" not in launch_of(
        attention(dtype="bf16"), 16, vectors=False
    ).source.text.replace("close_ahead", "")


def test_rows_that_have_no_room_are_left_to_three_kernels():
    for arch, longest in (("sm_80", 1900), ("sm_90", 2800)):
        long, fits = (attention_of(attention(queries=64, keys=n, depth=64, width=64)) for n in (longest + 400, 1024))
        assert not has_attention_kernel(long, MACHINES[arch]) and has_attention_kernel(fits, MACHINES[arch])
    double = attention_of(attention(dtype="f64"))
    assert double is None or not has_attention_kernel(double, MACHINE)


def test_rows_of_a_block_leave_every_multiprocessor_some():
    assert launch_of(attention(batch=64, queries=512, keys=512, depth=64, width=64, dtype="bf16")).blocks == 512
    assert launch_of(attention(batch=1, queries=512, keys=512, depth=64, width=64, dtype="bf16")).blocks == 32


@pytest.mark.parametrize("which", [0, 1, 2, 4, 5, 6])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_missing_barrier(which, reverse):
    """Each barrier but the one after the row nest: in tiles of these sizes a thread stages the weights it computed."""
    program = attention(queries=40, keys=140, depth=40, dtype="bf16")
    launch = launch_of(program, 16)
    pieces = launch.source.text.split("cuda.syncthreads()")
    assert len(pieces) == 8
    text = "cuda.syncthreads()".join(pieces[: which + 1]) + "pass" + "cuda.syncthreads()".join(pieces[which + 1 :])
    launch.source = replace(launch.source, text=text)
    with pytest.raises(LockstepError, match="race|before it was written|nothing has waited"):
        outputs(program, inputs(program), made=[launch], reverse=reverse)


def test_constants_of_queries_and_of_scores():
    def scaled(q, k, v):
        scores = (hnp.exp(q) / 48.0 + 96.0) @ hnp.swapaxes(k, -1, -2) / 80.0 + 20.0
        power = hnp.exp(scores - scores.max(-1, keepdims=True))
        return power / power.sum(-1, keepdims=True) @ v / 33.0

    random = np.random.default_rng(4)
    check_plan(scaled, *(random.standard_normal((2, t, 24)).astype("f4") for t in (26, 40, 40)))


def test_a_function_is_planned_as_one_kernel():
    def function(q, k, v):
        scores = hnp.einsum("bhqd,bhkd->bhqk", q, k) * 0.3
        weights = hnp.exp(scores - scores.max(-1, keepdims=True))
        return hnp.einsum("bhqk,bhkd->bhqd", weights / weights.sum(-1, keepdims=True), v)

    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, n, 8)).astype("f4") for n in (24, 20, 20))
    plan = check_plan(function, q, k, v)
    assert [step.launch.source.name.split("_")[0] for step in plan.kernels()] == ["attention"]


@pytest.mark.skipif(not available(), reason='the extra is missing: pip install "hloom[cuda]"')
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype, mask, keys", [("bf16", False, 512), ("bf16", True, 1024), ("f32", False, 512)])
def test_no_attention_spills(dtype, mask, keys, arch):
    program = attention(64, keys, keys, 64, 64, dtype, mask)
    launch = launch_of(program, machine=MACHINES[arch])
    (code,) = cubins([launch.source], arch, default_cache())
    assert code.spills == 0 and code.stack == 0 and code.registers <= 128
    assert ("mma.sync" in code.ptx) == (dtype == "bf16") and "cp.async.cg" in code.ptx
