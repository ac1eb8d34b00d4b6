"""The examples of docstrings print what they show: `>>>` lines of public names, run by doctest."""

from __future__ import annotations

import doctest
import functools
import importlib
import inspect

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp

# The public packages, and how many of their names at least have an example of their own.
PACKAGES = {
    "hloom.lax": 67,
    "hloom.numpy": 250,
    "hloom.numpy.fft": 3,
    "hloom.numpy.linalg": 19,
}
EXAMPLES = 295  # different ones: an alias, or a function of two packages, counts once
PREFACE = {"hl": hl, "hnp": hnp, "np": np}  # the names that docs/api/index.md says examples have
PARSER = doctest.DocTestParser()


def examples(package: str) -> dict[str, str]:
    """Public name -> its docstring, of the names whose docstrings have examples. A class has those of its methods."""
    module, found = importlib.import_module(package), {}
    for name in module.__all__:
        value = getattr(module, name)
        if (getattr(value, "__module__", None) or "").partition(".")[0] == "numpy":  # a name that is NumPy's own
            continue
        members = vars(value) if inspect.isclass(value) and value.__module__.startswith("hloom") else {}
        texts = [inspect.getdoc(v) or "" for v in (value, *members.values()) if callable(v)]
        if any(">>>" in text for text in texts):
            found[name] = "\n\n".join(text for text in texts if ">>>" in text)
    return found


@functools.cache
def has_been_run(text: str) -> bool:
    """Runs the examples of a docstring, once for all its names; prints what differs."""
    test = PARSER.get_doctest(text, dict(PREFACE), text.partition("\n")[0], None, None)
    return doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize("package", PACKAGES)
def test_examples_print_what_they_show(package):
    found = examples(package)
    wrong = [name for name, text in found.items() if not has_been_run(text)]
    assert not wrong, f"the output above differs from the docstrings of {package}: {', '.join(wrong)}"
    assert len(found) >= PACKAGES[package], f"{package} has {len(found)} names with an example"


def test_there_are_enough_examples():
    different = {text for package in PACKAGES for text in examples(package).values()}
    assert len(different) >= EXAMPLES
