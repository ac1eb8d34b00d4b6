"""Examples run as scripts in the tests' process, for what does not need a process of its own."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest


def help_of(script: Path, monkeypatch, capsys) -> str:
    """What `python SCRIPT --help` prints; its exit status is 0."""
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    monkeypatch.syspath_prepend(str(script.parent))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 0
    return capsys.readouterr().out
