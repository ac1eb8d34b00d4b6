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

# The public packages, and how many of their names at least have an example.
PACKAGES = {
    "hloom": 64,
    "hloom.checkpoints": 6,
    "hloom.data": 15,
    "hloom.debug": 2,
    "hloom.export": 1,
    "hloom.image": 2,
    "hloom.lax": 189,
    "hloom.lax.linalg": 11,
    "hloom.metrics": 14,
    "hloom.nn": 67,
    "hloom.nn.initializers": 19,
    "hloom.nn.losses": 18,
    "hloom.nn.regularizers": 2,
    "hloom.numpy": 333,
    "hloom.numpy.fft": 18,
    "hloom.numpy.linalg": 31,
    "hloom.ops": 4,
    "hloom.optim": 73,
    "hloom.profiler": 2,
    "hloom.random": 48,
    "hloom.ref": 7,
    "hloom.scipy.fft": 3,
    "hloom.scipy.integrate": 1,
    "hloom.scipy.interpolate": 1,
    "hloom.scipy.linalg": 26,
    "hloom.scipy.ndimage": 1,
    "hloom.scipy.optimize": 1,
    "hloom.scipy.signal": 9,
    "hloom.scipy.special": 32,
    "hloom.scipy.stats": 11,
    "hloom.sessions": 1,
    "hloom.sharding": 6,
    "hloom.summary": 3,
    "hloom.training": 5,
    "hloom.training.distortions": 2,
    "hloom.tree": 17,
}
EXAMPLES = 970  # different ones: an alias, or a function of two packages, counts once
PREFACE = {"hl": hl, "hnp": hnp, "np": np}  # the names that docs/api/index.md says examples have
PARSER = doctest.DocTestParser()


def package_of(path: str):
    """A package by its name: `hloom.debug` and `hloom.ref` are modules of other names."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        return getattr(hl, path.removeprefix("hloom."))


def examples(package: str) -> dict[str, str]:
    """Public name -> its docstring, of the names whose docstrings have examples. A class has those of its methods."""
    module, found = package_of(package), {}
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
def test_examples_print_what_they_show(package, tmp_path, monkeypatch):
    found, wrong = examples(package), []
    for number, (name, text) in enumerate(found.items()):
        folder = tmp_path / str(number)  # of its own: examples write files
        folder.mkdir()
        monkeypatch.chdir(folder)
        if not has_been_run(text):
            wrong.append(name)
    assert not wrong, f"the output above differs from the docstrings of {package}: {', '.join(wrong)}"
    assert len(found) >= PACKAGES[package], f"{package} has {len(found)} names with an example"


def test_there_are_enough_examples():
    different = {text for package in PACKAGES for text in examples(package).values()}
    assert len(different) >= EXAMPLES, len(different)
