"""Passes on the modules of tests/golden/passes: the text that comes out, and the same numbers as before."""

from __future__ import annotations

import pytest
from passes_support import GOLDEN, arguments, assert_same, check_golden, parsed, read_golden, results

from hloom.compiler.pipeline import pass_names, run_passes
from hloom.ir.text import parse_module, print_module

FILES = {path.stem: path for path in sorted((GOLDEN / "passes").glob("*.hlo"))}


@pytest.mark.parametrize("name", sorted(FILES))
def test_golden(name, request):
    path = FILES[name]
    passes, head, expected = read_golden(path, "RUN")
    before = parsed(head, path)
    text = print_module(before)
    after = run_passes(before, pass_names(passes), verify=True)
    assert print_module(before) == text, "a pass changed the module it was given"
    check_golden(path, head, expected, after, request.config.getoption("--bless"))
    assert print_module(parse_module(print_module(after))) == print_module(after)
    for seed in range(3):
        values = arguments(before, seed, special=False)
        for a, b in zip(results(before, values), results(after, values), strict=True):
            assert_same(a, b, "inexact")
