"""Collectives in two steps, within processes and between them, against the reference interpreter."""

import numpy as np
import pytest

from hloom.compiler.communication import collective_uses
from hloom.compiler.passes.registry import Team
from hloom.compiler.passes.spmd import processes
from hloom.ir.build import Builder, scalar_computation
from hloom.ir.module import Module
from hloom.ir.ops.programs.collective import COLLECTIVES
from hloom.ir.spmd.interpret import run_spmd
from hloom.ir.types import DTYPES, Shape
from hloom.ir.verify import verify

F32 = DTYPES["f32"]
EVERYWHERE = {"use_global_device_ids": True, "channel_id": 1}


def program(opcode: str, dims, devices: int, groups, operands: int = 1, **attributes) -> Module:
    b = Builder("main")
    given = [b.parameter(Shape(F32, dims)) for _ in range(operands)]
    if opcode in ("all-reduce", "reduce-scatter"):
        attributes["to_apply"] = scalar_computation("add", F32)
    made = b.emit(opcode, *given, replica_groups=groups, **attributes, **EVERYWHERE)
    return Module("m", b.finish(made), None, 1, devices)


def split(module: Module, owners) -> Module:
    return processes.split_by_process(module, team=Team(processes=owners))


def same(module: Module, owners) -> list[str]:
    """Checks that the split program has the same bits; the collectives in it."""
    made = split(module, owners)
    verify(made)
    rng = np.random.default_rng(0)
    shapes = [p.shape for p in module.entry.parameters]
    data = [[rng.standard_normal(s.dims).astype(s.dtype) for s in shapes] for _ in owners]
    for one, other in zip(run_spmd(module, data), run_spmd(made, data), strict=True):
        for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (one, other)), strict=True):
            np.testing.assert_array_equal(a, b)
    return [i.opcode for i in made.instructions() if i.opcode in COLLECTIVES]


EIGHT = (tuple(range(8)),)
TWO_BY_FOUR, FOUR_BY_TWO = (0,) * 4 + (1,) * 4, (0, 0, 1, 1, 2, 2, 3, 3)


@pytest.fixture(autouse=True)
def all_sizes(monkeypatch):
    monkeypatch.setattr(processes, "SMALL", 0)


@pytest.mark.parametrize("owners", [TWO_BY_FOUR, FOUR_BY_TWO])
@pytest.mark.parametrize("dims", [(16,), (7,), (3, 5), ()])
def test_sums_have_the_same_bits(owners, dims):
    found = same(program("all-reduce", dims, 8, EIGHT), owners)
    assert found == ["reduce-scatter", "all-reduce", "all-gather"]
    assert len(same(program("all-reduce", dims, 8, EIGHT, 2), owners)) == 6


@pytest.mark.parametrize("owners", [TWO_BY_FOUR, FOUR_BY_TWO])
@pytest.mark.parametrize("dimension", [0, 1, 2])
@pytest.mark.parametrize("opcode", ["all-gather", "reduce-scatter", "all-to-all"])
def test_parts_come_to_their_places(owners, dimension, opcode):
    assert same(program(opcode, (8, 16, 8), 8, EIGHT, dimensions=(dimension,)), owners) == [opcode] * 2


def test_less_is_sent_between_processes():
    def between(module: Module) -> int:
        uses = collective_uses(module)
        return sum(u.bytes for u in uses if any(len({TWO_BY_FOUR[d] for d in g}) > 1 for g in u.groups))

    module = program("all-reduce", (4096,), 8, EIGHT)
    assert between(split(module, TWO_BY_FOUR)) * 7 <= between(module)


@pytest.mark.parametrize(
    ("groups", "owners"),
    [
        (((0, 1, 2, 3), (4, 5, 6, 7)), TWO_BY_FOUR),  # within processes
        (((0, 4), (1, 5), (2, 6), (3, 7)), TWO_BY_FOUR),  # one device of each
        ((0, 4, 1, 5, 2, 6, 3, 7), TWO_BY_FOUR),  # not process by process
        ((0, 1, 2, 3, 4, 5), (0, 0, 0, 1, 1, 1)),  # three devices: the order of the sum would change
        ((0, 1, 2), (0, 0, 1)),
    ],
)
def test_other_groups_stay(groups, owners):
    groups = groups if isinstance(groups[0], tuple) else (groups,)
    module = program("all-reduce", (12,), len(owners), groups)
    assert split(module, owners) is module


def test_small_values_stay(monkeypatch):
    monkeypatch.setattr(processes, "SMALL", 1024)
    module = program("all-reduce", (12,), 8, EIGHT)
    assert split(module, TWO_BY_FOUR) is module
