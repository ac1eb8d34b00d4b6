"""A part of onnx's backend suite: a case of each op, and the networks that come with onnx.

`python tests/onnx_suite.py` runs all of it.
"""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx")

import onnx_cases

BATCHES = 24  # dealt out in batches: onnx takes ten seconds to make its cases, which collecting tests must not wait for


@functools.cache
def representative() -> list[onnx_cases.Case]:
    """One case of each op that a case is about; later ones of an op only where another attribute is set."""
    found, seen = [], set()
    for case in onnx_cases.cases():
        if case.kind == "simple":
            found.append(case)
        elif case.kind == "node" and "_expanded" not in case.name:
            node = case.test.model.graph.node[-1]
            key = (node.domain, node.op_type, case.test.model.opset_import[0].version >= 13)
            if key not in seen:
                seen.add(key)
                found.append(case)
    return [case for case in found if onnx_cases.cause(case.name) is None]


@pytest.mark.parametrize("batch", range(BATCHES))
def test_cases(batch):
    wrong = []
    for case in representative()[batch::BATCHES]:
        try:
            onnx_cases.run(case)
        except Exception as error:
            wrong.append(f"{case.name}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def test_the_part_has_a_case_of_every_op_of_the_suite():
    cases = representative()
    ops = {n.op_type for case in cases if case.test.model is not None for n in case.test.model.graph.node}
    assert len(cases) > 180 and len(ops) > 170


def test_causes_of_failures_name_cases():
    names = [case.name for case in onnx_cases.cases()]
    assert all(any(re.match(pattern, name) for name in names) for pattern in onnx_cases.FAILING)


@pytest.mark.parametrize("model", [m for m in onnx_cases.real_models() if re.search("squeezenet|shufflenet", m[0])],
                         ids=lambda m: m[0])  # fmt: skip
def test_network(model):
    onnx_cases.run_real(*model[1:])


def test_the_script_counts(capsys, monkeypatch):
    import onnx_suite

    monkeypatch.setattr(sys, "argv", ["onnx_suite.py", "node/test_abs$|real/none"])
    assert onnx_suite.main() == 0
    assert "all: 1 of 1" in capsys.readouterr().out


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
