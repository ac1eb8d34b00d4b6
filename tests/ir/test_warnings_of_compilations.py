"""Warnings of compilations never raise."""

from __future__ import annotations

import ast
import threading
import warnings
from pathlib import Path

import pytest

from hloom.ir import source
from hloom.ir.errors import ReplicationWarning
from hloom.ir.source import Source, warn_while_compiling

ROOT = Path(__file__).parents[2]
SOURCE = Source("train.py", 12, "step")
# What compiles, or is called by another library's compilation.
COMPILES = ("ir", "compiler", "runtime", "hloom/backends", "hloom/bridges", "hloom/dispatch", "hloom/onnx")


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(source, "_SHOWN", {})


def test_a_warning_is_of_the_users_line_and_shown_once():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(3):
            warn_while_compiling("slow", UserWarning, SOURCE)
        warn_while_compiling("slow", UserWarning)
    assert [(w.filename, w.lineno) for w in found] == [("train.py", 12), ("hloom", 0)]


def test_a_warning_that_is_an_error_is_printed_once(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            warn_while_compiling("slow", ReplicationWarning, SOURCE)
        thread = threading.Thread(target=warn_while_compiling, args=("far", RuntimeWarning))
        thread.start()
        thread.join()
    shown = capsys.readouterr().err
    assert shown.count("train.py:12: ReplicationWarning: slow") == 1 and "RuntimeWarning: far" in shown


def test_an_ignored_warning_is_silent(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warn_while_compiling("slow", UserWarning, SOURCE)
    assert not capsys.readouterr().err


def test_what_compiles_warns_only_so():
    wrong = []
    for package in COMPILES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path == ROOT / "ir" / "source.py":
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and ast.unparse(node) in ("warnings.warn", "warnings.warn_explicit"):
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not wrong
