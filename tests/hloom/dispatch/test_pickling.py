"""Jitted and compiled functions cross processes: pickle by name, cloudpickle by value."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp


@hl.jit
def doubled(x):
    return x * 2


def tripled(x, n):
    return x * 3 + n


jitted = hl.jit(tripled, static_argnames="n", donate_argnums=0)


def test_a_decorated_function_is_pickled_by_name():
    assert pickle.loads(pickle.dumps(doubled)) is doubled


def test_a_function_beside_its_jitted_form_keeps_the_options():
    other = pickle.loads(pickle.dumps(jitted))
    assert other.function is tripled and other.options == jitted.options
    assert other(hnp.ones(2), n=1)[0] == 4


def test_compiled_and_lowered_functions():
    x = hnp.arange(3.0)
    for stage in (jitted.lower(x, n=2), jitted.lower(x, n=2).compile()):
        other = pickle.loads(pickle.dumps(stage))
        assert type(other) is type(stage)
    np.testing.assert_array_equal(other(hnp.arange(3.0), n=2), [2, 5, 8])


def test_cloudpickle_takes_lambdas_and_closures():
    cloudpickle = pytest.importorskip("cloudpickle")
    factor = hnp.asarray(5.0)
    other = pickle.loads(cloudpickle.dumps(hl.jit(lambda x: x * factor)))
    assert other(2.0) == 10


def test_cloudpickle_takes_functions_of_main_by_value(tmp_path):
    pytest.importorskip("cloudpickle")
    script, data = tmp_path / "program.py", tmp_path / "f.pickle"
    script.write_text(
        "import cloudpickle, hloom as hl\n@hl.jit\ndef f(x):\n    return x + 1\n"
        f"assert f(1.0) == 2\nopen({str(data)!r}, 'wb').write(cloudpickle.dumps(f))\n"
    )
    subprocess.run([sys.executable, str(script)], check=True)
    assert pickle.loads(data.read_bytes())(1.0) == 2


def test_programs_from_text_take_names():
    text = "HloModule m\nENTRY %main (x: f32[], w: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n"
    text += "  %w = f32[] parameter(1)\n  ROOT %y = f32[] subtract(%x, %w)\n}\n"
    f = hl.from_hlo(text)
    assert f(5.0, 3.0) == f(w=3.0, x=5.0) == f(5.0, w=3.0) == 2
    assert "x: f32[], w: f32[]" in f.lower(5.0, 3.0).as_text()
    with pytest.raises(hl.errors.ArgumentError, match="takes x, w(.|\n)*check v"):
        f(5.0, v=3.0)
    mlir = "func.func @main(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {\n"
    mlir += "  %0 = stablehlo.subtract %a, %b : tensor<f32>\n  return %0 : tensor<f32>\n}"
    assert hl.from_stablehlo(mlir)(b=1.0, a=3.0) == 2


def test_the_log_of_placements_shows_every_program(capsys):
    function = hl.jit(lambda x: hnp.sin(x))
    function(1.0)
    assert not capsys.readouterr().err
    with hl.config(log_device_placement=True):
        function(1.0)
        lines = capsys.readouterr().err.splitlines()
    assert any("(sine) cpu:0 at" in line and "test_pickling.py" in line for line in lines)


@pytest.mark.parametrize("dtype", ["bf16", "f8e4m3fn", "f8e5m2", "f32", "s4"])
def test_files_keep_dtypes(tmp_path, dtype):
    x = hnp.asarray([1, 2, 3], dtype)
    hnp.savez(tmp_path / "a.npz", x, weights=x)
    hnp.save(tmp_path / "a.npy", x)
    with hnp.load(tmp_path / "a.npz") as found:
        assert sorted(found.files) == ["arr_0", "weights"]
        for back in (found["weights"], dict(found)["arr_0"], hnp.load(tmp_path / "a.npy")):
            assert back.dtype == x.dtype and (np.asarray(back) == np.asarray(x)).all()
