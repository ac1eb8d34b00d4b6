"""The recipes of CONTRIBUTING.md work as they stand: an op, a rule, a pass and a target in the lines given there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.compiler.passes.registry import PASSES
from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.targets.cpu.machine import host
from hloom.ir.interpret import run
from hloom.ir.ops import OPS
from hloom.ir.text import parse_module, print_module
from hloom.ir.verify import verify
from hloom.tracing.trace import bind

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- code: (\w+) -->\n```python\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def recipes():
    """The names that the blocks define, run one after the other as a reader would."""
    scope: dict = {}
    blocks = dict(BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    assert set(blocks) == {"op", "rule", "pass", "target"}
    for name, code in blocks.items():
        exec(compile(code, f"CONTRIBUTING.md ({name})", "exec"), scope)
    yield scope
    OPS.pop("softsign", None)
    PASSES.pop("pull-out-negations", None)


X = np.array([-3, -1, -0.5, 0.25, 2, 50], np.float32)


def softsign(x):
    return bind("softsign", x)


def test_the_new_op_computes_at_once_and_compiled(recipes):
    expected = X / (1 + np.abs(X))
    np.testing.assert_allclose(np.asarray(softsign(hnp.asarray(X))), expected, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(hl.jit(softsign)(X)), expected, rtol=1e-6)
    wide = hl.jit(softsign)(X.astype(np.float64))
    np.testing.assert_allclose(np.asarray(wide), X.astype(np.float64) / (1 + np.abs(X.astype(np.float64))), rtol=1e-15)


def test_the_new_op_differentiates(recipes):
    gradient = hl.jit(hl.grad(lambda x: hnp.sum(softsign(x))))
    np.testing.assert_allclose(np.asarray(gradient(X)), 1 / (1 + np.abs(X)) ** 2, rtol=1e-5)


def test_the_new_op_fuses_with_its_neighbours(recipes):
    lowered = hl.jit(lambda x: hnp.exp(softsign(x * 2)) + 1).lower(X)
    compiled = lowered.compile()
    assert compiled.cost_analysis()["kernels"] == 1 and "abs_f32" in compiled.source()


def test_the_new_op_is_text(recipes):
    text = print_module(hl.make_module(softsign)(X))
    assert "softsign(" in text
    module = parse_module(text)
    verify(module)
    assert print_module(module) == text


def test_the_new_pass_applies_the_new_rule(recipes):
    module = hl.make_module(lambda x: softsign(-x))(X)
    after = run_passes(module, ["pull-out-negations", "dce"], verify=True)
    assert [i.opcode for i in after.entry.instructions] == ["parameter", "softsign", "negate"]
    np.testing.assert_array_equal(run(after, [X]), run(module, [X]))
    unchanged = hl.make_module(softsign)(X)
    assert run_passes(unchanged, ["pull-out-negations"]) is unchanged


def test_the_new_target_renders_kernels(recipes):
    target = recipes["CountingTarget"](host(), [])
    module = run_passes(
        hl.make_module(lambda x: hnp.sum(softsign(x) * 2, axis=1))(np.ones((64, 80), np.float32)), PIPELINE
    )
    plan = make_plan(module, target)
    assert target.seen == [("row", 64)] and len(plan.kernels()) == 1
