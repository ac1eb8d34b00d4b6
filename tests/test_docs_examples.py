"""The Python blocks of the pages run from top to bottom, and compute what the pages say."""

from __future__ import annotations

import linecache
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[1] / "docs"
# Control flow, networks and devices have tests of their own beside the features.
PAGES = [
    *sorted((DOCS / "start").glob("*.md")),
    *[DOCS / "guides" / f"{name}.md" for name in ("transforms", "sizes", "kernels", "numpy_programs")],
]


def run_blocks(page: Path) -> dict:
    scope: dict = {}
    for k, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)):
        name = f"{page.stem}_{k}.py"
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)  # kernels have sources
        exec(compile(code, name, "exec"), scope)
    return scope


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_the_blocks_run(page):
    run_blocks(page)


def test_transforms():
    scope = run_blocks(DOCS / "guides" / "transforms.md")
    assert scope["per_example"].shape == (3, 4, 4)
    np.testing.assert_allclose(scope["y"], np.zeros((3, 4)), atol=1e-6)
    np.testing.assert_allclose(scope["curvature"], np.diag(6.0 * np.arange(3)))


def test_kernels():
    scope = run_blocks(DOCS / "guides" / "kernels.md")
    x = scope["x"]
    np.testing.assert_allclose(scope["z"], 3 * x, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(scope["p"]).sum(1), np.ones(10), rtol=1e-5)
    np.testing.assert_array_equal(scope["counts"], np.histogram(x, 8, (0, 1))[0])
    np.testing.assert_allclose(scope["values"], np.sort(x.reshape(10, 100), 1)[:, :-4:-1])
    np.testing.assert_allclose(scope["slope"], 12 * x, rtol=1e-5)
    np.testing.assert_allclose(scope["bent"], np.minimum(x, 0.7), rtol=1e-5)
    for name in ("smoothed", "gated"):
        given = [np.random.default_rng(0).normal(size=(9, 12)).astype(np.float32)] * (1 if name == "smoothed" else 2)
        np.testing.assert_allclose(scope[name](*given), scope[name].python(*given), rtol=1e-5, atol=1e-6)


def test_getting_started():
    scope = run_blocks(DOCS / "start" / "getting_started.md")
    np.testing.assert_allclose(np.asarray(scope["y"]).sum(axis=1), np.ones(1000), rtol=1e-5)
    assert scope["value"] < 1 and scope["lowered"].compile().cost_analysis()["kernels"] == 1


def test_the_programs_for_numpy_users_compute_the_same_as_numpy():
    scope = run_blocks(DOCS / "start" / "numpy_users.md")
    given = np.random.default_rng(1).random((12, 9))
    for name, arguments in {
        "smooth": (given[0], 5),
        "wave": (given, given * 0.5, 0.5, 7),
        "ema": (given[:, 0].copy(), 0.3),
    }.items():
        own, found = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments], scope[name]
        wanted = found.written(*arguments)
        result = found(*own)
        np.testing.assert_allclose(own[0], arguments[0], rtol=1e-12)
        if wanted is not None:
            np.testing.assert_allclose(result, wanted, rtol=1e-12)
    weight, step = 0.1, 1e-6
    value = lambda w: ((scope["ema"](scope["prices"], w) - scope["prices"]) ** 2).mean()  # noqa: E731
    np.testing.assert_allclose(scope["slope"], (value(weight + step) - value(weight - step)) / (2 * step), rtol=1e-5)
    assert scope["sensitivity"].shape == (50, 60) and scope["field"].any()


def test_the_compiler_pages_stages_agree():
    scope = run_blocks(DOCS / "start" / "compiler_engineers.md")
    np.testing.assert_allclose(np.asarray(scope["f"](scope["x"])), scope["expected"], rtol=1e-6)
    assert len(scope["plan"].kernels()) == 1


def test_numpy_programs():
    scope = run_blocks(DOCS / "guides" / "numpy_programs.md")
    n = scope["n"]
    matrix = np.diag(np.full(n, 4.0)) + np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1)
    np.testing.assert_allclose(matrix @ scope["x"], scope["right"], atol=1e-9)
    assert scope["slope"].shape == (20,)


# SciPy reads its switch when it is imported: the page runs in a process of its own.
SCIPY_PROGRAM = """
import numpy as np
assert all(isinstance(value, hl.Array) for value in (skew, area, smooth))
given = np.exp(np.linspace(-3.0, 3.0, 200))
np.testing.assert_allclose(skew, scipy.stats.skew(given), rtol=1e-12)
np.testing.assert_allclose(area, np.sqrt(np.pi), rtol=1e-12)
np.testing.assert_allclose(smooth, np.convolve(np.linspace(-3.0, 3.0, 200), np.ones(9) / 9, "same"), atol=1e-12)
"""


def test_scipy():
    page = (DOCS / "guides" / "scipy.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    root = str(DOCS.parent)
    program = f"import sys; sys.path.insert(0, {root!r})\n{code}\n{SCIPY_PROGRAM}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
