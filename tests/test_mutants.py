"""Mutants are changes of one place that parse, in a sample that does not depend on the rest of the code."""

from __future__ import annotations

import ast
from collections import Counter

import pytest
from mutants import mutants, sample

pytestmark = pytest.mark.quick

TEXT = '''"""A module."""

__all__ = ["f"]
LIMIT = 3
Index = int | str


@function(float)
def kernel(x):
    return x * 2.0


def f(a: int = 1, *, deep=False):
    """Text with 1 < 2."""
    if a < LIMIT and not deep:
        raise ValueError(f"{a + 1}", 4)
    for i in range(a):
        a += i
        items[i] = a
    for i, j in zip(a, a, strict=True):
        warn("more than 7")
    return a - 1 if (
        deep
    ) else min(a, 5)
'''


def changes(text: str) -> list[tuple[str, str, str, str]]:
    return [(m.function, m.kind, m.old, m.new) for m in mutants("ir/x.py", text)]


def test_each_change_is_of_one_place_and_parses():
    original = ast.dump(ast.parse(TEXT))
    for mutant in mutants("ir/x.py", TEXT):
        changed = mutant.applied(TEXT)
        assert changed.count("\n") == TEXT.count("\n")  # lines of errors stay
        assert ast.dump(ast.parse(changed)) != original, mutant


def test_what_is_changed_and_what_is_not():
    found = changes(TEXT)
    assert ("", "constant", "3", "(4)") in found and ("", "constant", "3", "(2)") in found
    assert ("kernel", "operator", "x * 2.0", "(x + 2.0)") in found
    assert ("", "constant", "False", "(True)") in found  # of a default
    assert ("f", "comparison", "a < LIMIT", "(a <= LIMIT)") in found
    assert ("f", "comparison", "a < LIMIT", "(a >= LIMIT)") in found
    assert ("f", "and-or", "a < LIMIT and not deep", "(a < LIMIT or not deep)") in found
    assert ("f", "guard", "a < LIMIT and not deep", "(False)") in found
    assert ("f", "unary", "not deep", "(deep)") in found
    assert ("f", "dropped", 'raise ValueError(f"{a + 1}", 4)', "pass") in found
    assert ("f", "operator", "a += i", "a -= i") in found and ("f", "dropped", "a += i", "pass") in found
    assert ("f", "dropped", "items[i] = a", "pass") in found
    assert ("f", "call", "min(a, 5)", "(max(a, 5))") in found
    assert ("f", "branch", "a - 1 if (\n        deep\n    ) else min(a, 5)",
            "(min(a, 5) if deep else a - 1\n\n)") in found  # fmt: skip
    assert not [old for _, _, old, _ in found if old in ("4", "7", "1 < 2", "int | str", "True") or "warn" in old]
    assert {m.function for m in mutants("ir/x.py", TEXT) if m.compiled} == {"kernel"}


def test_a_mutant_is_known_by_its_text_not_by_its_line():
    ids = Counter(m.id for m in mutants("ir/x.py", TEXT))
    assert max(ids.values()) == 1
    moved = TEXT.replace("LIMIT = 3", "OTHER = 8\nLIMIT = 3")
    assert set(ids) < {m.id for m in mutants("ir/x.py", moved)}


def test_a_sample_keeps_the_mutants_of_lines_that_stay(tmp_path):
    (tmp_path / "ir").mkdir()
    for number in range(20):
        (tmp_path / "ir" / f"m{number}.py").write_text(TEXT)
    before = sample(tmp_path, ("ir",), 40)
    assert len({m.id for m in before}) == 40
    assert len({(m.path, m.line) for m in before}) == 40  # one mutant of a line
    (tmp_path / "ir" / "m3.py").write_text(TEXT.replace("min(a, 5)", "min(a, 6)"))
    after = sample(tmp_path, ("ir",), 40)
    assert [m.id for m in after if m.path != "ir/m3.py"][:30] == [m.id for m in before if m.path != "ir/m3.py"][:30]
