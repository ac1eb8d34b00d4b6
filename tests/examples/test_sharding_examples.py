"""The examples on meshes of devices: the results of one device, and the collectives that one expects."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str):
    sys.path.insert(0, str(EXAMPLES))  # as for a script: examples may share a module
    specification = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    finally:
        sys.path.remove(str(EXAMPLES))
    return module


class Tables(list):
    """Collects the tables of collectives that an example reports."""

    def __call__(self, *values) -> None:
        self.extend(v for v in values if isinstance(v, list))

    def kinds(self, number: int = 0) -> set[str]:
        return {use.kind for use in self[number]}


def test_data_parallel_digits_by_towers_and_by_a_split_batch():
    pytest.importorskip("sklearn")
    tables = Tables()
    found, apart = example("sharded_digits").train(devices=4, epochs=10, report=tables)
    assert min(found.values()) >= 0.93 and apart < 1e-3
    assert tables.kinds(0) == {"all-reduce"} and "all-reduce" in tables.kinds(1)
    assert tables[1].bytes < 1.1 * tables[0].bytes


def test_weights_that_are_gathered_when_they_are_used():
    tables = Tables()
    apart, per_device = example("sharded_weights").run(report=tables)
    assert apart < 1e-6 and per_device == 3 * 64 * 64 * 4 // 4
    assert "all-gather" in tables.kinds()


def test_a_transformer_block_over_data_and_tensor():
    tables = Tables()
    apart, loss = example("tensor_parallel").run(tables)
    assert apart < 1e-5 and loss < 1e-5
    assert {use.axes for use in tables[0]} >= {("tensor",), ("data",)} and tables.kinds() == {"all-reduce"}


def test_attention_around_a_ring():
    tables = Tables()
    apart, gradient = example("ring_attention").run(report=tables)
    assert apart < 1e-5 and gradient < 1e-4
    assert tables.kinds() == {"collective-permute"} and {use.times for use in tables[0]} == {4}


def test_a_pipeline_of_four_stages():
    tables = Tables()
    loss, gradient = example("pipeline").compare(report=tables)
    assert loss < 1e-5 and gradient < 1e-5
    assert tables.kinds() == tables.kinds(1) == {"collective-permute", "all-reduce"}
    assert tables[1].bytes < tables[0].bytes  # 1F1B sums up a number, the other one all results


def test_experts_on_a_device_each():
    tables = Tables()
    apart, gradient = example("mixture_of_experts").run(report=tables)
    assert apart < 1e-5 and gradient < 1e-3
    assert [use.kind for use in tables[0]] == ["all-to-all"] * 2


def test_heat_in_blocks():
    tables = Tables()
    assert max(example("heat").run(tables)) < 1e-6
    assert tables.kinds() == {"collective-permute"} and {use.times for use in tables[0]} == {100}


def test_tables_split_by_rows():
    tables = Tables()
    assert max(example("sharded_tables").run(report=tables)) < 1e-5
    assert tables.kinds(0) == tables.kinds(1) == {"all-reduce"}
