"""Transformed loops compute what they computed before: random nests against the interpreter of the language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from hloom.compiler.kernel_ir.affine.dependences import Nest
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.nodes import Kernel, Stmt
from hloom.compiler.kernel_ir.printer import printed
from hloom.compiler.kernel_ir.reader import read
from hloom.compiler.kernel_ir.rewrite import mapped
from hloom.compiler.kernel_ir.scopes import settle
from hloom.compiler.kernel_ir.transforms.interchange import can_be_interchanged, interchanged
from hloom.compiler.kernel_ir.transforms.jam import can_be_jammed, jammed
from hloom.compiler.kernel_ir.transforms.nests import Around, Path, innermost
from hloom.compiler.kernel_ir.transforms.optimize import transformed
from hloom.compiler.kernel_ir.transforms.registers import in_registers
from hloom.compiler.kernel_ir.verify import verify
from tests.support.loop_nests import check_compiled, interpreted, nest_of

Changes = dict[int, list[Stmt]]
SEEDS = 300


def interchange(around: Around, nest: Nest, path: Path) -> Changes:
    if not can_be_interchanged(around, nest, path):
        return {}
    return {id(path[-2]): [interchanged(*path[-2:])]}


def jam(around: Around, nest: Nest, path: Path) -> Changes:
    factor = 2 + sum(map(ord, path[-1].var.name)) % 3
    if len(path) < 2 or not can_be_jammed(around, nest, path[:-1], factor):
        return {}
    return {id(path[-2]): jammed(around, path[-2], factor)}


def registers(around: Around, nest: Nest, path: Path) -> Changes:
    made = in_registers(around, nest, path)
    return {} if made is None else {id(path[-1]): made}


def changed(kernel: Kernel, ranges, change: Callable[[Around, Nest, Path], Changes]) -> Kernel:
    """A kernel with a change of all loops that it may be made of."""
    around = Around(kernel, ranges)
    found: Changes = {}
    nest = around.nest(kernel.body)
    for path in innermost(kernel.body):
        found |= change(around, nest, path)
    return Kernel(kernel.name, kernel.params, mapped(kernel.body, lambda s: found.get(id(s)))) if found else kernel


def assert_same(kernel: Kernel, other: Kernel, given: list) -> None:
    settle(other)
    verify(other, by_name)
    kinds = [f"{v.type[1:]}*" if v.type[0] == "*" else v.type for v in other.params]
    assert printed(read(printed(other), kinds, by_name)) == printed(other)
    for wanted, found in zip(interpreted(kernel, given), interpreted(other, given), strict=True):
        assert wanted.tobytes() == found.tobytes(), f"\n{printed(kernel)}\n{printed(other)}"


@pytest.mark.parametrize("change", [interchange, jam, registers], ids=lambda f: f.__name__)
def test_one_transformation(change):
    counts = Counter()
    for seed in range(SEEDS):
        made, kernel, ranges = nest_of(seed)
        other = changed(kernel, ranges, change)
        counts[other is not kernel] += 1
        if other is not kernel:
            assert_same(kernel, other, made.arguments())
    print(change.__name__, dict(counts))
    assert counts[True] >= SEEDS // 30


def test_several_after_each_other():
    for seed in range(SEEDS):
        made, kernel, ranges = nest_of(seed)
        other = kernel
        for change in (interchange, jam, registers):
            other = changed(other, ranges, change)
        if other is not kernel:
            assert_same(kernel, other, made.arguments())
        assert_same(kernel, transformed(kernel, ranges), made.arguments())


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_compiled(first):
    for seed in range(first, first + 10):
        check_compiled(seed)
