"""What the simulator catches in matrix products: each test plants one fault in a text that is right."""

import numpy as np
import pytest
from contraction_programs import TENSOR, THREADS, bias_gelu, launches, outputs, product
from cuda_programs import expected, inputs

from hloom.compiler.targets.cuda.contractions.tiles import Tile
from hloom.compiler.targets.cuda.simulator.memory import LockstepError
from hloom.ir.records import replace

BOTH_ORDERS = pytest.mark.parametrize("reverse", [False, True])
EXTENTS = {"i": 32, "j": 32, "p": 96}
TWO_WARPS = Tile("tensor", 32, 32, 16, 32, 32, 2)


def planted(dtype, tile, old: str, new: str, which: int = 0, reverse: bool = False, **options):
    """Runs a product whose text has `new` in place of the occurrence number `which` of `old`."""
    program = product(EXTENTS, dtype, **options)
    (launch,) = launches(program, tile=tile)
    pieces = launch.source.text.split(old)
    assert len(pieces) > which + 1, f"the fault has no place: {old!r} is not in the text so often"
    text = old.join(pieces[: which + 1]) + new + old.join(pieces[which + 1 :])
    launch.source = replace(launch.source, text=text)
    arrays = inputs(program)
    return outputs(program, arrays, made=[launch], reverse=reverse)[0], expected(program, arrays)[0]


@pytest.mark.parametrize("dtype, tile", [("bf16", TENSOR), ("f32", THREADS)])
def test_the_text_without_a_fault_passes(dtype, tile):
    got, want = planted(dtype, tile, "t_q = 0", "t_q = 0")
    np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=2**-7, atol=1e-2)


@BOTH_ORDERS
@pytest.mark.parametrize("which", [0, 1], ids=["before the first step", "between steps"])
@pytest.mark.parametrize("dtype, tile", [("bf16", TWO_WARPS), ("f32", THREADS)])
def test_a_missing_barrier_while_operands_are_staged(dtype, tile, which, reverse):
    with pytest.raises(LockstepError, match="race on shared array|before it was written"):
        planted(dtype, tile, "cuda.syncthreads()", "pass", which, reverse)


@BOTH_ORDERS
def test_a_missing_barrier_before_sums_are_read(reverse):
    with pytest.raises(LockstepError, match="race on shared array"):
        planted("bf16", TWO_WARPS, "cuda.syncthreads()", "pass", 2, reverse, after=lambda total: total * 2.0)


@BOTH_ORDERS
@pytest.mark.parametrize("dtype, tile", [("bf16", TENSOR), ("f32", THREADS)])
def test_a_missing_wait(dtype, tile, reverse):
    """Nothing waits for the copies at all; what is missing in the simulator is the arrival, not a value."""
    wait = f"wait_ahead({tile.stages - 2})"
    for which in (0, 1):
        with pytest.raises(LockstepError, match="on its way to: nothing has waited for it"):
            planted(dtype, tile, wait, "pass", which, reverse)


@pytest.mark.parametrize("dtype, tile", [("bf16", TENSOR), ("f32", THREADS)])
def test_a_wait_for_too_few_groups(dtype, tile):
    with pytest.raises(LockstepError, match="nothing has waited for it"):
        planted(dtype, tile, f"wait_ahead({tile.stages - 2})", f"wait_ahead({tile.stages - 1})", 1)


def test_groups_that_are_not_closed():
    with pytest.raises(LockstepError, match="nothing has waited for it"):
        planted("bf16", TENSOR, "close_ahead()", "pass", 1)


def test_a_barrier_in_front_of_the_wait():
    """The wait makes copies visible to the thread that asked; the others need a barrier after it."""
    with pytest.raises(LockstepError, match="race on shared array"):
        planted("bf16", TWO_WARPS, "wait_ahead(0)\n    cuda.syncthreads()", "cuda.syncthreads()\n    wait_ahead(0)")


@BOTH_ORDERS
def test_a_stage_that_is_still_read_is_written(reverse):
    """Copies go to the stage that is being multiplied: whoever comes first, they meet."""
    with pytest.raises(LockstepError, match="race on|nothing has waited"):
        planted("bf16", TENSOR, "t_read = 0", "t_read = t_write", 0, reverse)


def test_a_stage_too_few():
    with pytest.raises(LockstepError, match=r"has \d+ elements"):
        planted("f32", THREADS, "shared_f32(", "shared_f32(-16 + ")


def test_a_collective_that_part_of_a_warp_leaves_out():
    program = product(EXTENTS, "bf16")
    (launch,) = launches(program, tile=TWO_WARPS)
    lines = launch.source.text.splitlines()
    at = next(k for k, line in enumerate(lines) if "load_matrix4(" in line)
    indent = lines[at][: -len(lines[at].lstrip())]
    names = lines[at].split(" = ")[0].strip().replace(", ", " = ")
    guarded = [f"{indent}{names} = u32(0)", f"{indent}if t_lane < 16:", f"    {lines[at]}"]
    launch.source = replace(launch.source, text="\n".join([*lines[:at], *guarded, *lines[at + 1 :]]) + "\n")
    with pytest.raises(LockstepError, match="diverges"):
        outputs(program, inputs(program), made=[launch])


@pytest.mark.parametrize(
    "dtype, tile, old, new",
    [
        ("bf16", TENSOR, "t_lane >> 4) * 8", "t_lane >> 4) * 4"),
        ("bf16", TENSOR, "& 3) * 8", "& 3) * 6"),
        ("f32", THREADS, "t_c = 2304 + t_read", "t_c = 2305 + t_read"),
    ],
)
def test_addresses_that_are_not_aligned(dtype, tile, old, new):
    with pytest.raises(LockstepError, match="aligned|at 16 bytes"):
        if dtype == "f32":
            first = next(line for line in launches(product(EXTENTS, dtype), tile=tile)[0].source.text.splitlines()
                         if "t_c = " in line)  # fmt: skip
            old = first.strip()
            new = old.replace(" + t_read", " + 1 + t_read")
        planted(dtype, tile, old, new)


@pytest.mark.parametrize(
    "old, new", [("load_matrix4_turned(", "load_matrix4("), ("mma_bf16(a0, b0, 0, c0_0)", "mma_bf16(a0, b0, 1, c0_0)")]
)
def test_fragments_in_the_wrong_order_give_wrong_results(old, new):
    """No race and no bad address: the layout of fragments itself shows."""
    got, want = planted("bf16", TENSOR, old, new)
    assert np.abs(got.astype(float) - want.astype(float)).max() > 1


def test_a_bound_that_is_missing():
    """A tile that reaches beyond the operand reads what is not there."""
    program = product({"i": 19, "j": 32, "p": 32}, "f32", after=bias_gelu, more=[("f32", (32,))])
    (launch,) = launches(program, tile=THREADS)
    assert "t_i0 + t_slow < m and " in launch.source.text
    launch.source = replace(launch.source, text=launch.source.text.replace("t_i0 + t_slow < m and ", ""))
    with pytest.raises(LockstepError, match=r"in0\[\d+\], which has 608 elements"):
        outputs(program, inputs(program), made=[launch])
