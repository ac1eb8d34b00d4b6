"""The Python blocks of the pages run from top to bottom, and compute what the pages say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[1] / "docs"
# Control flow, networks and devices have tests of their own beside the features.
PAGES = [*sorted((DOCS / "start").glob("*.md")), *[DOCS / "guides" / f"{name}.md" for name in ("transforms", "sizes")]]


def run_blocks(page: Path) -> dict:
    scope: dict = {}
    for code in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(code, page.name, "exec"), scope)
    return scope


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_the_blocks_run(page):
    run_blocks(page)


def test_transforms():
    scope = run_blocks(DOCS / "guides" / "transforms.md")
    assert scope["per_example"].shape == (3, 4, 4)
    np.testing.assert_allclose(scope["y"], np.zeros((3, 4)), atol=1e-6)
    np.testing.assert_allclose(scope["curvature"], np.diag(6.0 * np.arange(3)))


def test_getting_started():
    scope = run_blocks(DOCS / "start" / "getting_started.md")
    np.testing.assert_allclose(np.asarray(scope["y"]).sum(axis=1), np.ones(1000), rtol=1e-5)
    assert scope["value"] < 1 and scope["lowered"].compile().cost_analysis()["kernels"] == 1


def test_the_example_for_numpy_users_computes_the_same_as_numpy():
    numpy_code, hloom_code = re.findall(
        r"```python\n(.*?)```", (DOCS / "start" / "numpy_users.md").read_text(encoding="utf-8"), re.DOTALL
    )
    expected, found = {}, {}
    exec(numpy_code, expected)
    exec(hloom_code, found)
    x = np.random.default_rng(0).random(20)
    np.testing.assert_allclose(np.asarray(found["smooth"](x, 5)), expected["smooth"](x, 5), rtol=1e-12)


def test_the_compiler_pages_stages_agree():
    scope = run_blocks(DOCS / "start" / "compiler_engineers.md")
    np.testing.assert_allclose(np.asarray(scope["f"](scope["x"])), scope["expected"], rtol=1e-6)
    assert len(scope["plan"].kernels()) == 1
