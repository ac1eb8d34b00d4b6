"""Numbers that are known when a program is called: operations as Python, and as native code evaluates them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hloom.backends.cpu.driver import number_functions
from hloom.compiler.kernels.launch import ByWork, grain_of
from hloom.compiler.schedule.buffer_assignment import Buffer, allocated_slots, shared_slots
from hloom.ir.sizes.evaluation import holds, number_of
from hloom.ir.sizes.expressions import Dim, greatest, least
from hloom.ir.sizes.numbers import (
    ADD,
    DIVIDE,
    EQUAL,
    GREATEST,
    LEAST,
    LESS_EQUAL,
    MULTIPLY,
    OPERATIONS,
    SUBTRACT,
    Nodes,
)
from hloom.runtime.open_program import Evaluator, NativeNumbers, NumberError


def native(nodes: Nodes) -> Evaluator:
    return Evaluator(nodes, NativeNumbers(number_functions()))


def test_native_operations_are_pythons():
    """Negative numbers, and numbers near the ends of 64 bits, included: what has no room is an error."""
    nodes = Nodes(["a", "b"])
    for operation in range(len(OPERATIONS)):
        nodes.made(operation, nodes.given("a"), nodes.given("b"))
    alone = {operation: Nodes(["a", "b"]) for operation in (ADD, SUBTRACT, MULTIPLY, DIVIDE)}
    evaluators = {}
    for operation, one in alone.items():
        one.made(operation, one.given("a"), one.given("b"))
        evaluators[operation] = native(one)
    random_numbers = random.Random(5)
    edges = [0, 1, -1, 2, -7, 1 << 31, -(1 << 31), (1 << 62) + 5, -(1 << 62), (1 << 63) - 1, 1 - (1 << 63)]
    pairs = [(a, b) for a in edges for b in edges]
    pairs += [
        tuple(random_numbers.randrange(-(1 << k), 1 << k) for _ in range(2)) for k in range(1, 63) for _ in range(8)
    ]
    for a, b in pairs:
        for operation, evaluator in evaluators.items():
            if operation == DIVIDE and b == 0:
                continue
            wanted = OPERATIONS[operation](a, b)
            if abs(wanted) < 1 << 63:
                assert evaluator.values([a, b])[-1] == wanted, (operation, a, b)
            else:
                with pytest.raises(NumberError, match="64 bits"):
                    evaluator.values([a, b])
        if abs(a) < 1 << 30 and abs(b) < 1 << 30 and b:
            wanted = [OPERATIONS[operation](a, b) for operation in range(len(OPERATIONS))]
            assert native(nodes).values([a, b])[2:].tolist() == wanted == nodes.evaluated({"a": a, "b": b})[2:]
    with pytest.raises(NumberError, match="divisor is 0"):
        evaluators[DIVIDE].values([3, 0])
    assert {ADD, SUBTRACT, MULTIPLY, DIVIDE, LEAST, GREATEST, LESS_EQUAL, EQUAL} == {*range(len(OPERATIONS))}


def test_sizes_as_numbers():
    n, m = Dim("n"), Dim("m", multiple_of=8)
    sizes = [n * m + 3, (n - m) // 5, least(n, m - 3), n % 7, (n * n - 3) // (m + 1), n // m, greatest(n, 2 * m, 40), 7]
    comparisons = [n < m, n >= m + 1, n * 2 == m, n != m, n <= 3 * m, n > 17]
    nodes = Nodes(["n", "m"])
    found = [nodes.node(number_of(nodes, size)).index for size in sizes]
    answers = [nodes.node(holds(nodes, comparison)).index for comparison in comparisons]
    evaluator, random_numbers = native(nodes), random.Random(0)
    for _ in range(300):
        given = {"n": random_numbers.randrange(1, 99), "m": 8 * random_numbers.randrange(1, 12)}
        values = evaluator.values([*given.values()])
        assert values[found].tolist() == [s if isinstance(s, int) else s.at(given) for s in sizes]
        assert values[answers].tolist() == [c.holds(given) for c in comparisons]
        assert values.tolist() == nodes.evaluated(given)


def test_equal_operations_are_one_and_numbers_are_computed():
    nodes = Nodes(["n"])
    n = nodes.given("n")
    assert n + 0 is n and n * 1 is n and n // 1 is n and n * 0 == 0
    assert n * 3 + 2 is n * 3 + 2 and len(nodes.rows) == 2
    with pytest.raises(TypeError, match="no truth value"):
        bool(n)


@pytest.mark.parametrize("work", [0.4, 1.0, 23.0, 1000.0, 5e7])
def test_chunks_of_nodes_are_those_of_numbers(work):
    nodes = Nodes(["items", "moved"])
    chunks = ByWork(work, least=3, multiple=4)
    places = [
        nodes.node(number).index
        for number in (
            grain_of(nodes.given("items"), work, nodes.given("moved")),
            chunks.grain(nodes.given("items"), nodes.given("moved")),
        )
    ]
    evaluator = native(nodes)
    for items in (0, 1, 2, 63, 64, 1000, 98_304, 98_305, 10**6, 10**9):
        for moved in (1, items + 1, 8 * items + 1, 5000 * items + 1):
            wanted = [grain_of(items, work, moved), chunks.grain(items, moved)]
            assert evaluator.values([items, moved])[places].tolist() == wanted


def test_buffers_of_a_slot_do_not_live_at_one_time():
    random_numbers = random.Random(1)
    for _ in range(50):
        buffers = []
        for _ in range(30):
            first = random_numbers.randrange(40)
            buffers.append(Buffer(random_numbers.randrange(500), None, first, first + random_numbers.randrange(9)))
        slots = shared_slots(buffers)
        total = allocated_slots(buffers, slots)
        assert sorted(k for slot in slots for k in slot) == [*range(30)]
        memory = np.zeros((50, total), bool)  # by time and byte
        for buffer in buffers:
            taken = memory[
                buffer.first : buffer.last + 1, buffer.assigned.number : buffer.assigned.number + buffer.bytes
            ]
            assert not taken.any()
            taken[...] = True
