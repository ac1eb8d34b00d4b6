"""Uncaught errors are printed without hloom's own frames, unless asked for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import hloom as hl, hloom.numpy as hnp

def inner(x):
    return x @ x

@hl.jit
def outer(x):
    return hl.vmap(inner)(x)

{call}
"""


def printed(tmp_path, call: str, **environment) -> str:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(call=call))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 1
    return done.stderr


def test_only_the_users_frames_are_shown(tmp_path):
    text = printed(tmp_path, "outer(hnp.ones((4, 2, 3)))")
    files = [line for line in text.splitlines() if line.startswith("  File ")]
    assert len(files) == 3 and all("program.py" in line for line in files), text
    assert "return x @ x" in text and "frames of hloom's own are left out; HLOOM_FULL_TRACEBACKS=1" in text


def test_all_frames_where_asked(tmp_path):
    text = printed(tmp_path, "outer(hnp.ones((4, 2, 3)))", HLOOM_FULL_TRACEBACKS="1")
    assert text.count("  File ") > 8 and "left out" not in text


@pytest.mark.parametrize("call", ["1 / 0", "hl.jit(lambda x: 1 / 0)(1.0)"])
def test_other_errors(tmp_path, call):
    text = printed(tmp_path, call)
    assert "ZeroDivisionError" in text and all("program.py" in n for n in text.splitlines() if n.startswith("  File "))
