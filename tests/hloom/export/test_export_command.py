"""`hloom export`: functions of Python files, text, mistakes on the command line."""

import shutil

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import commands

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")


def layer(x, w):
    return hnp.tanh(x @ w)


def test_text_and_functions_of_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    x, w = np.ones((4, 5), np.float32), np.full((5, 6), 0.1, np.float32)
    (tmp_path / "layer.mlir").write_text(hl.jit(layer).lower(x, w).as_text("stablehlo"))
    assert commands.main(["export", "layer.mlir", "--folder", "out"]) == 0
    assert "liblayer.so" in capsys.readouterr().out
    (function,) = hl.export.load("out/liblayer.so").functions.values()
    assert np.asarray(function(x, w)).tobytes() == np.asarray(hl.jit(layer)(x, w)).tobytes()
    (tmp_path / "model.py").write_text(
        "import hloom.numpy as hnp\ndef predict(x):\n    return {'y': hnp.tanh(x) * 2}\n"
    )
    assert commands.main(["export", "model.py:predict", "f32[batch:1:8,4]", "--name", "small", "--folder", "out"]) == 0
    loaded = hl.export.load("out/libsmall.so")
    assert loaded.predict(x[:, :4])["y"].shape == (4, 4) and loaded.dimensions == {"batch": (1, 8)}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.hlo"], "No such file"),
        (["absent.py:f", "f32[3]"], "no file absent.py"),
        (["model.py:predic", "f32[3]"], "has no function 'predic'"),
        (["model.py:predict", "f33[3]"], "no dtype with sizes"),
        (["model.py:predict", "f32[batch:1]"], "no NAME:LEAST:MOST"),
        (["model.py:predict", "f32[3]", "--compiler", "absent-cc"], "no command 'absent-cc'"),
        (["model.py:predict", "f32[3]", "--target", "x86_64-linux", "--features", "fast"], "neither a switch"),
    ],
)
def test_mistakes(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("def predict(x):\n    return x\n")
    assert commands.main(["export", *arguments]) == 2
    assert message in capsys.readouterr().err
