"""Sorts by digits for CUDA: in the lock-step simulator against the reference interpreter; texts and machine code."""

import functools
import re

import ml_dtypes
import numpy as np
import pytest
from cuda_plans import planned, simulate

import hloom.numpy as hnp
from hloom import lax
from hloom.compiler.cache import default_cache
from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.targets.cuda import scatter
from hloom.compiler.targets.cuda.codegen import compile as cuda_compile
from hloom.compiler.targets.cuda.codegen.cubins import cubins
from hloom.compiler.targets.cuda.codegen.source import CudaSource
from hloom.compiler.targets.cuda.simulator import simulator
from hloom.compiler.targets.cuda.simulator.memory import LockstepError
from hloom.compiler.targets.cuda.sorting import bitonic, choice, radix
from hloom.compiler.targets.cuda.sorting.radix import RadixSort
from hloom.compiler.targets.cuda.target import CudaTarget
from hloom.ir.build import Builder, Value
from hloom.ir.interpret import evaluate
from hloom.ir.module import Module
from hloom.ir.ops.indexing.sort import comparator, sort_keys
from hloom.ir.records import replace
from hloom.ir.types import HLO_NAME, Shape

needs_cuda = pytest.mark.skipif(
    not cuda_compile.available(), reason='compiling needs the extra: pip install "hloom[cuda]"'
)
RANDOM = np.random.default_rng(3)
TILE = 64  # elements of the small tiles


@pytest.fixture
def small(monkeypatch):
    """Digits of 4 bits, tiles of 64 elements for blocks of 32 threads, and no rows for the network."""
    sizes(monkeypatch, threads=32)


def sizes(monkeypatch, threads: int, digit: int = 4):
    monkeypatch.setattr(bitonic, "CHUNK", 16)
    monkeypatch.setattr(choice, "estimates", lambda *_: (1.0, 0.0))
    monkeypatch.setattr(RadixSort, "digit", digit)
    monkeypatch.setattr(RadixSort, "threads", threads)
    monkeypatch.setattr(RadixSort, "kept", 4 * TILE)


def kernels(plan) -> list[str]:
    return [step.launch.source.name.split("_")[1] for step in plan.kernels()]


def sorting(arrays, axis, to_apply):
    """(the plan of a sort of these operands along an axis, its results by the reference interpreter)."""
    builder = Builder("f")
    parameters = [builder.parameter(Shape(a.dtype, a.shape)) for a in arrays]
    root = builder.emit("sort", *parameters, dimensions=(axis,), is_stable=True, to_apply=to_apply)
    computation = builder.finish(root)
    wanted, target = evaluate(computation, arrays), CudaTarget("sm_90")
    plan = make_plan(run_passes(Module("sorting", computation), PIPELINE, target=target, verify=True), target)
    return plan, list(wanted) if isinstance(wanted, tuple) else [wanted]


def check(arrays, axis, to_apply):
    """A sort with a further operand, the places, so that it shows in which order equal elements come: the same bits as
    the reference, in both orders of threads and blocks."""
    plan, wanted = sorting(arrays, axis, to_apply)
    assert {"count", "scatter"} <= set(kernels(plan)), kernels(plan)
    for reverse in (False, True):
        for got, want in zip(simulate(plan, arrays, reverse), wanted, strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape
            assert got.tobytes() == want.tobytes(), f"{got.reshape(-1)[:40]} is not {want.reshape(-1)[:40]}"
    return plan


def places(dims, axis) -> np.ndarray:
    shape = [-1 if k == axis else 1 for k in range(len(dims))]
    return np.array(np.broadcast_to(np.arange(dims[axis], dtype=np.int32).reshape(shape), dims))


def values(dtype, dims) -> np.ndarray:
    """Elements of which many are equal; NaNs of both signs, infinities and zeros of both signs among floats."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return RANDOM.random(dims) < 0.5
    if dtype.kind == "c":
        x = np.empty(dims, dtype)
        x.real, x.imag = (values(f"f{dtype.itemsize // 2}", dims) for _ in range(2))
        return x
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        x = RANDOM.integers(limits.min, limits.max, dims, dtype, endpoint=True)
        few = RANDOM.integers(0 if dtype.kind == "u" else -3, 4, dims).astype(dtype)
        return np.where(RANDOM.random(dims) < 0.5, few, x)
    x = (RANDOM.standard_normal(dims) * 10.0 ** RANDOM.integers(-2, 3, dims)).astype(dtype)
    x = np.where(RANDOM.random(dims) < 0.3, np.round(RANDOM.standard_normal(dims)).astype(dtype), x)
    for special in (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0):
        x = np.where(RANDOM.random(dims) < 0.05, np.asarray(special, dtype), x)
    return x


def total_order(dtype, descending: bool):
    """-NaN < -inf < ... < -0.0 < 0.0 < ... < NaN, of the first of two operands."""
    builder = Builder("total")
    a, b = (Value(builder, builder.parameter(Shape(dtype))) for _ in range(2))
    for _ in range(2):
        builder.parameter(Shape("s32"))
    return builder.finish(builder.emit(
        "compare", a.instruction, b.instruction, direction="GT" if descending else "LT", type="TOTALORDER"
    ))  # fmt: skip


def by_size():
    """abs(a) < abs(b), which is no key."""
    builder = Builder("size")
    a, b = (Value(builder, builder.parameter(Shape("f32"))) for _ in range(2))
    return builder.finish(a.op("abs").compare("LT", b.op("abs")).instruction)


# --- results ------------------------------------------------------------------------------------------------------

INTEGERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
DTYPES = [np.bool_, *INTEGERS, *FLOATS, np.complex64]
by_name = functools.partial(pytest.mark.parametrize, ids=lambda d: HLO_NAME[np.dtype(d)])


@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
@by_name("dtype", DTYPES)
def test_every_dtype_of_keys(dtype, descending, small):
    x = values(dtype, (100,))
    check([x, places(x.shape, 0)], 0, comparator([dtype, np.int32], 1, descending))


@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
@by_name("dtype", FLOATS)
def test_the_total_order_of_floats(dtype, descending, small):
    x, to_apply = values(dtype, (90,)), total_order(dtype, descending)
    assert sort_keys(to_apply)[0].total
    check([x, places(x.shape, 0)], 0, to_apply)


def test_several_keys_of_different_widths(small):
    a, b, c = values(np.int8, (2, 70)), values(np.float64, (2, 70)), values(np.bool_, (2, 70))
    arrays = [c, a // 64, b, places(a.shape, 1)]
    check(arrays, 1, comparator([x.dtype for x in arrays], 3))
    check(arrays, 1, comparator([x.dtype for x in arrays], 2, True))


@pytest.mark.parametrize("dims, axis", [((3, 70), 1), ((70, 3), 0), ((2, 130, 3), 1), ((2, 3, 33), 2), ((40, 2, 2), 0)])
def test_rows_and_axes(dims, axis, small):
    x = values(np.float16, dims)
    check([x, places(dims, axis)], axis, comparator([x.dtype, np.int32]))


@pytest.mark.parametrize("threads", [32, 64])
@pytest.mark.parametrize("count", [17, 31, 32, 33, TILE - 1, TILE, TILE + 1, 2 * TILE, 2 * TILE + 1, 5 * TILE - 1])
def test_lengths_round_the_edges_of_tiles(count, threads, monkeypatch):
    sizes(monkeypatch, threads)
    x = values(np.uint8, (count,))
    plan = check([x, places(x.shape, 0)], 0, comparator([x.dtype, np.int32]))
    assert kernels(plan) == [*(["count", "scan", "scatter"] if count > TILE else ["count", "scatter"]) * 2, "move"]


@pytest.mark.parametrize("tiles", [2, 129, 300])
def test_counts_are_added_up_by_a_warp_or_a_block(tiles, monkeypatch):
    """129: two steps of a warp. 300: by a block, whose step is 256 tiles."""
    sizes(monkeypatch, threads=64, digit=2)
    monkeypatch.setattr(radix, "WARP_SCAN", 200)
    plan, _ = sorting([values(np.bool_, (tiles * TILE - 5,))], 0, comparator([np.bool_]))
    (scan,) = [step.launch for step in plan.kernels() if "scan" in step.launch.source.name]
    assert scan.source.grain == ("block" if tiles == 300 else "warp")
    counts = RANDOM.integers(0, TILE, (4, tiles)).astype(np.int32)
    for reverse in (False, True):
        arrays = {"table": counts.copy(), "totals": np.zeros(4, np.int32)}
        integers = dict(zip(scan.source.arguments, scan.arguments[2:], strict=True))
        simulator.run(scan.source, arrays, integers, scan.blocks, reverse)
        np.testing.assert_array_equal(arrays["table"], np.cumsum(counts, 1) - counts)
        np.testing.assert_array_equal(arrays["totals"], counts.sum(1))


def test_digits_of_eight_bits(monkeypatch):
    """The sizes of every program: one pass over a whole tile and a part of one."""
    monkeypatch.setattr(choice, "estimates", lambda *_: (1.0, 0.0))
    monkeypatch.setattr(RadixSort, "kept", 4096)
    x = values(np.int8, (2100,))
    plan = check([x, places(x.shape, 0)], 0, comparator([x.dtype, np.int32]))
    assert kernels(plan) == ["count", "scan", "scatter", "move"]


def test_scatters_find_their_chains_by_digits_of_the_places(small, monkeypatch):
    """Places below 18 are 5 bits: two passes."""
    monkeypatch.setattr(scatter, "COMPARED", 4)
    x, i, u = values(np.int32, (9, 2)), RANDOM.integers(-2, 12, 70), values(np.int32, (70, 2))
    arrays = [x, i, u]
    plan, wanted = planned(lambda x, i, u: x.at[i].add(u), *arrays)
    assert kernels(plan)[-8:] == [*["count", "scan", "scatter"] * 2, "links", "chain"]
    for reverse in (False, True):
        (got,) = simulate(plan, arrays, reverse)
        np.testing.assert_array_equal(got, wanted[0])


# --- which network ------------------------------------------------------------------------------------------------


def test_other_comparators_and_short_rows_stay_with_the_network():
    plan, _ = sorting([values(np.float32, (70000,))], 0, by_size())
    assert "count" not in kernels(plan) and "exchange" in kernels(plan)
    plan, _ = sorting([values(np.float32, (5, 2048))], 1, comparator([np.float32]))
    assert kernels(plan) == ["sort"]


@pytest.mark.parametrize("dims, dtype, passes", [
    ((1, 4096), "f32", 0), ((1, 2**14), "f32", 0), ((1, 2**14 + 1), "f32", 4), ((1, 2**20), "f32", 4),
    ((1, 2**15), "f64", 0), ((1, 2**15 + 1), "f64", 8), ((1000, 2049), "f32", 4), ((1000, 4097), "f64", 8),
    ((1, 2**20), "s16", 2), ((1, 2**20), "pred", 1), ((1, 2**20), "c64", 8),
    ((10**5, 4096), "pred", 1), ((10**5, 4096), "u8", 1), ((10**5, 4097), "f64", 8),
])  # fmt: skip
def test_which_rows_go_by_digits(dims, dtype, passes, certain):
    """Of many rows, which bytes decide and not launches, all."""
    builder = Builder("f")
    x = builder.parameter(Shape(dtype, dims))
    root = builder.emit("sort", x, dimensions=(1,), is_stable=True, to_apply=comparator([Shape(dtype).dtype]))
    target = CudaTarget("sm_90")
    plan = make_plan(run_passes(Module("f", builder.finish(root)), PIPELINE, target=target), target)
    found = kernels(plan)
    assert (found.count("count"), found.count("scatter")) == (passes, passes)
    assert found[-1] == "move" and len(found) == (1 + passes * (2 if dims[1] <= 4096 else 3) if passes else len(found))


def test_the_launches_of_the_network_are_counted_right():
    for count in (2049, 4097, 40000):
        plan, _ = sorting([values(np.float32, (count,))], 0, by_size())
        (instruction,) = [step.instruction for step in plan.kernels()][:1]
        assert bitonic.Sort(None, instruction, 132).network_launches() + 1 == len(plan.kernels())


@pytest.mark.parametrize("dims, ways", [((1, 2**14), 2), ((1, 2**15), 2), ((1, 2**22), 1), ((1000, 4096), 2)])
def test_where_arithmetic_is_close_a_program_has_both_ways(dims, ways):
    plan, _ = planned(lambda x: lax.sort(x), np.zeros(dims, np.float32))
    launches = [step.launch for step in plan.kernels()]
    assert {launch.way for launch in launches} == set(range(ways))
    choices = {launch.choice for launch in launches}
    assert len(choices) == 1 and (ways == 2) == isinstance(*choices, choice.SortChoice)
    if ways == 2:
        names = [kernels(plan)[k] for k, launch in enumerate(launches) if launch.way == (dims == (1, 2**14))]
        assert {"count", "scatter"} <= set(names), "of the two, digits are the second one for 2**14 elements"


# --- texts and machine code ---------------------------------------------------------------------------------------


@pytest.fixture
def certain(monkeypatch):
    """One way for each sort."""
    monkeypatch.setattr(choice, "DOUBT", 1.0)


def test_text(golden, certain):
    plan, _ = planned(lambda x: lax.sort(x, 1), values(np.int16, (300, 5000)))
    assert kernels(plan) == [*["count", "scan", "scatter"] * 2, "move"]
    texts = {step.launch.source: f"# {step.launch.grid()}\n{step.launch.source.text}" for step in plan.kernels()}
    golden("cuda/radix_sort.txt", "\n".join(texts.values()))


def test_passes_share_their_texts(certain):
    """Between the first and the last digit of a key passes differ in numbers only, and so do lengths of one row."""
    found = []
    for count in (70000, 100000):
        plan, _ = planned(lambda x: lax.sort(x), np.zeros(count, np.float32))
        assert len(plan.kernels()) == 13
        found.append({step.launch.source.text for step in plan.kernels()[:-1]})
    assert len(found[0]) == 6 and found[0] == found[1]


PROGRAMS = {
    "f32": lambda: (lambda x: lax.sort(x), np.zeros(70000, np.float32)),
    "columns of f64": lambda: (lambda x: lax.sort(x, 0), np.zeros((9000, 100))),
    "two keys": lambda: (
        lambda a, b: lax.sort((a, b), num_keys=2), np.zeros((60, 9000), np.complex64), np.zeros((60, 9000), np.int8)
    ),
    "rows of one tile": lambda: (lambda x: hnp.argsort(x, axis=1), np.zeros((6000, 3000), np.float16)),
    "scatter": lambda: (lambda x, i: x.at[i].set(i), np.zeros(1 << 20, np.int32), np.zeros(1 << 19, np.int32)),
}  # fmt: skip


@needs_cuda
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_compile_without_spills(name, arch, certain):
    """48 registers let five blocks share a multiprocessor; ballots are one instruction, and nothing is atomic."""
    plan, _ = planned(*PROGRAMS[name](), arch=arch)
    sources = list(dict.fromkeys(s.launch.source for s in plan.kernels() if "_iota" not in s.launch.source.name))
    assert any("sort_count" in source.name for source in sources)
    for code in cubins(sources, arch, default_cache()):
        assert code.spills == 0 and code.stack == 0 and code.shared <= 48 << 10, code.name
        assert not re.search(r"\batom\.|\bred\.", code.ptx)
        if code.name.startswith(("sort_count", "sort_scatter")):
            assert code.registers <= 48
            assert "vote.sync.ballot.b32" in code.ptx and "bar.sync" in code.ptx and "bar.warp.sync" in code.ptx


# --- ballots ------------------------------------------------------------------------------------------------------


def voting(lines) -> np.ndarray:
    text = "def vote(out0):\n    lane = cuda.threadIdx.x\n" + "".join(f"    {line}\n" for line in lines)
    source = CudaSource("vote", text, ("u32*",), (), ("out0",), (), "block", 64, 1, 1)
    out = np.zeros(64, np.uint32)
    simulator.run(source, {"out0": out}, {})
    return out


def test_a_ballot_has_a_bit_for_each_lane_of_the_warp():
    out = voting(["out0[lane] = ballot(lane % 3 == 0 or lane >= 62)"])
    for warp in range(2):
        word = sum(1 << k for k in range(32) if (32 * warp + k) % 3 == 0 or 32 * warp + k >= 62)
        np.testing.assert_array_equal(out[32 * warp : 32 * warp + 32], word)


def test_a_ballot_that_half_a_warp_takes():
    with pytest.raises(LockstepError, match="diverges"):
        voting(["if lane < 16:", "    out0[lane] = ballot(lane > 3)"])


# --- faults -------------------------------------------------------------------------------------------------------


def faulty(monkeypatch, change):
    """A sort whose kernels' texts `change(name, text)` gives anew; one block goes through all tiles."""
    sizes(monkeypatch, threads=64, digit=3)
    monkeypatch.setattr(RadixSort, "kept", 8 * TILE)
    monkeypatch.setattr(radix, "WARP_SCAN", 1)
    x = values(np.uint8, (5 * TILE + 9,))
    plan, wanted = sorting([x], 0, comparator([x.dtype]))
    for step in plan.kernels():
        source = step.launch.source
        step.launch.source = replace(source, text=change(source.name, source.text))
        step.launch.blocks = 1 if source.grain == "block" else step.launch.blocks
    return plan, [x], wanted


def without(kernel: str, barrier: str, which: int):
    def change(name, text):
        if not name.startswith(f"sort_{kernel}"):
            return text
        pieces = text.split(barrier)
        assert len(pieces) > which + 1, f"{kernel} has {len(pieces) - 1} times {barrier}"
        return barrier.join(pieces[: which + 1]) + "pass" + barrier.join(pieces[which + 1 :])

    return change


def test_the_texts_are_right_before_a_fault_is_planted(monkeypatch):
    plan, arrays, wanted = faulty(monkeypatch, lambda name, text: text)
    np.testing.assert_array_equal(simulate(plan, arrays)[0], wanted[0])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kernel, barrier, which", [
    ("count", "cuda.syncthreads()", 0),  # counts are zeros
    ("count", "cuda.syncwarp()", 0),  # a count is seen by the next lane that adds to it
    ("count", "cuda.syncthreads()", 1),  # all warps have counted
    ("count", "cuda.syncthreads()", 2),  # the counts are read before the next tile's
    ("scan", "cuda.syncthreads()", 0),  # sums of warps are there
    ("scatter", "cuda.syncthreads()", 0),  # sums of warps are there
    ("scatter", "cuda.syncthreads()", 2),  # where digits begin
    ("scatter", "cuda.syncwarp()", 0),  # all lanes have read where their digit goes on
    ("scatter", "cuda.syncwarp()", 1),  # before it moves on
    ("scatter", "cuda.syncthreads()", 3),  # the tile is in order
])  # fmt: skip
def test_a_missing_barrier(kernel, barrier, which, reverse, monkeypatch):
    plan, arrays, _ = faulty(monkeypatch, without(kernel, barrier, which))
    with pytest.raises(LockstepError, match="race on shared array|before it was written"):
        simulate(plan, arrays, reverse)


def test_a_missing_barrier_between_steps_of_the_scan(monkeypatch):
    """The second barrier of the scan keeps its sums until all have read them: it matters from the second step on."""
    sizes(monkeypatch, threads=64, digit=2)
    monkeypatch.setattr(radix, "WARP_SCAN", 1)
    plan, _ = sorting([values(np.bool_, (300 * TILE,))], 0, comparator([np.bool_]))
    (scan,) = [step.launch for step in plan.kernels() if "scan" in step.launch.source.name]
    source = replace(scan.source, text=without("scan", "cuda.syncthreads()", 1)(scan.source.name, scan.source.text))
    integers = dict(zip(source.arguments, scan.arguments[2:], strict=True))
    with pytest.raises(LockstepError, match="race on shared array"):
        simulator.run(source, {"table": np.zeros((4, 300), np.int32), "totals": np.zeros(4, np.int32)}, integers, 4)
