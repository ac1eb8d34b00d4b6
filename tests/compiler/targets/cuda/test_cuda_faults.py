"""What the lock-step simulator catches: each test plants one fault in a text that is right."""

import numpy as np
import pytest
from cuda_programs import computation, expected, inputs, request, softmax, transposed
from kernel_nests import nests

from hloom.compiler.targets.cuda.codegen.render import render
from hloom.compiler.targets.cuda.simulator.memory import LockstepError
from hloom.compiler.targets.cuda.simulator.simulator import run
from hloom.ir.records import replace

BOTH_ORDERS = pytest.mark.parametrize("reverse", [False, True])


class Kernel:
    """The one kernel of a program, its text open to changes."""

    def __init__(self, program, threads=64):
        self.program = program
        (self.nest,) = nests(request(program))
        self.source = render(self.nest, threads)

    def change(self, old: str, new: str, count: int = 1):
        assert old in self.source.text, f"the fault has no place: {old!r} is not in the text"
        self.source = replace(self.source, text=self.source.text.replace(old, new, count))
        return self

    def run(self, **options) -> np.ndarray:
        arrays = inputs(self.program)
        memory = {f"in{k}": array for k, array in enumerate(arrays)}
        memory["out0"] = np.zeros(self.program.outputs()[0].dims, self.program.outputs()[0].dtype)
        run(self.source, memory, self.nest.integers, **options)
        return memory["out0"]


def long_softmax():
    return Kernel(softmax(3, 1100))


def row_sums():
    return Kernel(computation([("f32", (20, 1100))], lambda x: x.sum([1])))


@BOTH_ORDERS
@pytest.mark.parametrize("kernel", [long_softmax, row_sums, lambda: Kernel(transposed(2, 37, 45))])
def test_the_texts_are_right_before_a_fault_is_planted(kernel, reverse):
    kernel = kernel()
    (want,) = expected(kernel.program, inputs(kernel.program))
    np.testing.assert_allclose(kernel.run(reverse=reverse, blocks=2), want, rtol=1e-4, atol=1e-5)


@BOTH_ORDERS
@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_barrier_around_the_exchange_of_warps(which, reverse):
    kernel = long_softmax()
    pieces = kernel.source.text.split("cuda.syncthreads()")
    text = "cuda.syncthreads()".join(pieces[: which + 1]) + "pass" + "cuda.syncthreads()".join(pieces[which + 1 :])
    kernel.source = replace(kernel.source, text=text)
    with pytest.raises(LockstepError, match="race on shared array 0|before it was written"):
        kernel.run(reverse=reverse)


@BOTH_ORDERS
def test_a_tile_that_is_filled_again_while_it_is_read(reverse):
    kernel = Kernel(transposed(2, 37, 45))
    head, barrier, tail = kernel.source.text.rpartition("cuda.syncthreads()")
    kernel.source = replace(kernel.source, text=head + "pass" + tail)
    with pytest.raises(LockstepError, match="race on shared array 0"):
        kernel.run(reverse=reverse, blocks=1)


def test_a_tile_that_is_read_before_it_is_filled():
    kernel = Kernel(transposed(2, 37, 45)).change("cuda.syncthreads()", "pass")
    with pytest.raises(LockstepError, match="before it was written|race"):
        kernel.run()


def test_a_shuffle_that_half_a_warp_takes():
    kernel = long_softmax()
    line = next(line for line in kernel.source.text.splitlines() if "shuffle_xor(a0, 16)" in line)
    indent = line[: len(line) - len(line.lstrip())]
    kernel.change(line, f"{indent}if lane < 16:\n    {line}")
    with pytest.raises(LockstepError, match=r"warp 0 of block 0 diverges: 16 threads from 0 on at .*shuffle_xor"):
        kernel.run()


def test_a_shuffle_that_half_a_warp_takes_once_more():
    kernel = long_softmax().change("i1 = s64(lane)\n", "i1 = s64(lane)\n        shuffle_xor(1, 1 + (lane & 1))\n")
    with pytest.raises(LockstepError, match="diverges"):
        kernel.run()


def test_a_barrier_that_one_warp_skips():
    kernel = long_softmax().change(
        "        cuda.syncthreads()", "        if lane < 32:\n            cuda.syncthreads()"
    )
    # Nothing of the exchange is read, so that no race comes first.
    kernel.change("a0 = box_f32[0]", "a0 = f32(1.0)").change("while warp < 2", "while warp < 1")
    with pytest.raises(LockstepError, match="32 threads from 0 on at 'cuda.syncthreads\\(\\)'"):
        kernel.run()


def test_a_barrier_after_the_end_of_some_threads():
    kernel = long_softmax().change("    while i0 < total:", "    while i0 < total - lane // 32:")
    with pytest.raises(LockstepError, match="wait at different places.*the end"):
        kernel.run()


@BOTH_ORDERS
def test_all_lanes_storing_one_result(reverse):
    kernel = row_sums().change("if lane == 0:", "if lane >= 0:")
    with pytest.raises(LockstepError, match=r"race on out0\[\d+\]"):
        kernel.run(reverse=reverse)


@BOTH_ORDERS
def test_two_blocks_doing_one_item(reverse):
    kernel = long_softmax().change("s64(cuda.blockIdx.x)", "s64(0)")
    with pytest.raises(LockstepError, match="race on out0.*of block [01] touches"):
        kernel.run(reverse=reverse, blocks=2)


@BOTH_ORDERS
def test_lanes_that_read_what_other_lanes_wrote(reverse):
    """The last sweep starts one lane further, so it reads its neighbour's exponentials with no barrier between."""
    kernel = long_softmax()
    head, sweep, tail = kernel.source.text.rpartition("i1 = s64(lane)")
    kernel.source = replace(kernel.source, text=f"{head}i1 = s64(lane ^ 1){tail}".replace("cuda.syncthreads()", "pass"))
    with pytest.raises(LockstepError, match="race|before it was written"):
        kernel.run(reverse=reverse)


@pytest.mark.parametrize("old, new", [("i1 < n1", "i1 <= n1"), ("i1 = s64(lane)", "i1 = s64(lane) - 1")])
def test_an_index_past_either_end(old, new):
    kernel = row_sums().change(old, new)
    with pytest.raises(LockstepError, match=r"reads in0\[(22000|-1)\], which has 22000 elements"):
        kernel.run()


def test_too_few_blocks_for_a_kernel_without_a_loop():
    kernel = Kernel(computation([("f32", (1100,))], lambda x: x + 1.0))
    with pytest.raises(ValueError, match="needs 5 blocks for 275 items, not 4"):
        kernel.run(blocks=4)
