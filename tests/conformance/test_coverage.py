"""docs/reference/coverage.md says what there is: it is what its script writes, and every name that it gives exists."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "coverage.md"


@pytest.fixture(scope="module")
def coverage():
    place = Path(__file__).with_name("coverage_page.py")
    specification = importlib.util.spec_from_file_location("coverage_page", place)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_name_on_the_page_exists(coverage):
    text, checked, ours = PAGE.read_text(encoding="utf-8"), 0, ""
    for line in text.splitlines():
        if line.startswith("### "):
            title = line[4:].strip("`")
            ours = "hloom" + title[3:] if title.startswith("jax") else "hloom.numpy"
        for mark, wanted in (("Has: ", True), ("Has not: ", False)):
            if line.startswith(mark):
                for name in re.findall(r"`(\S+?)`", line):
                    found = name == "newaxis" or coverage.resolve(f"{ours}.{name}") is not None
                    assert found is wanted, f"{ours}.{name}: run the script of the page"
                    checked += 1
    assert checked > 1250


def test_the_page_names_all_of_jax(coverage):
    jax = pytest.importorskip("jax")
    text = PAGE.read_text(encoding="utf-8")
    if f"## JAX {jax.__version__}\n" not in text:
        pytest.skip(f"the page was written with another version of JAX than {jax.__version__}")
    assert text == coverage.page()


def test_a_missing_name_is_seen(coverage):
    assert coverage.resolve("hloom.numpy.linalg.nonsense") is None and coverage.resolve("hloom.nonsense.x") is None
    assert coverage.section("T", ["add", "nonsense"], "hloom.numpy")[4:] == [
        "Has: `add`.",
        "",
        "Has not: `nonsense`.",
        "",
    ]
