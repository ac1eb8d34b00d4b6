"""`python -m hloom`: what the commands print and save, and one clear message with status 2 for each mistake."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import types

import ml_dtypes
import numpy as np
import pytest

import hloom as hl
from hloom.commands import main
from hloom.config import SETTINGS
from hloom.ir.text import parse_module

TEXT = """HloModule layer

ENTRY main {
  x = f32[2,3]{1,0} parameter(0)
  w = f32[3,4]{1,0} parameter(1)
  p = f32[2,4]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT y = f32[2,4]{1,0} tanh(p)
}
"""


@pytest.fixture
def files(tmp_path):
    random = np.random.default_rng(0)
    (tmp_path / "layer.hlo").write_text(TEXT)
    arrays = [random.standard_normal(s).astype(np.float32) for s in ((2, 3), (3, 4))]
    for name, array in zip("xw", arrays, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path, np.tanh(arrays[0] @ arrays[1])


def mistake(capsys, *arguments) -> str:
    assert main([str(a) for a in arguments]) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err and captured.out == ""
    return captured.err


# --- run ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["--unfused"]])
def test_run_saves_the_result(files, more):
    folder, expected = files
    inputs = [str(folder / "x.npy"), str(folder / "w.npy")]
    out = folder / "y.npy"
    assert main(["run", str(folder / "layer.hlo"), "--inputs", *inputs, "--output", str(out), *more]) == 0
    np.testing.assert_allclose(np.load(out), expected, rtol=1e-6)
    assert not list(folder.glob(".*"))


def test_run_prints_results_source_and_time(files, capsys):
    folder, expected = files
    inputs = [str(folder / "x.npy"), str(folder / "w.npy")]
    assert main(["run", str(folder / "layer.hlo"), "--inputs", *inputs, "--source", "--time"]) == 0
    captured = capsys.readouterr()
    assert "# result 0: f32[2,4]" in captured.out and "def " in captured.out and "tanh_f32" in captured.out
    assert f"{expected[0, 0]:.4f}"[:5] in captured.out and "kernels" in captured.err


def test_run_reads_and_prints_bfloat16_and_several_results(tmp_path, capsys):
    (tmp_path / "m.hlo").write_text(
        "HloModule m\nENTRY main {\n  x = bf16[3] parameter(0)\n  n = bf16[3] negate(x)\n"
        "  s = f32[3] convert(x)\n  ROOT t = (bf16[3], f32[3]) tuple(n, s)\n}\n"
    )
    np.save(tmp_path / "x.npy", np.array([1, 2, 3.5], ml_dtypes.bfloat16))
    arguments = ["run", str(tmp_path / "m.hlo"), "--inputs", str(tmp_path / "x.npy")]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "# result 0: bf16[3]" in out and "-3.5" in out and "# result 1: f32[3]" in out
    assert main([*arguments, "--output", str(tmp_path / "r.npz")]) == 0
    assert np.load(tmp_path / "r.npz")["out1"].tolist() == [1, 2, 3.5]


def test_run_draws_inputs_from_a_seed(files, capsys):
    folder, _ = files
    outs = []
    for seed in ("1", "1", "2"):
        assert main(["run", str(folder / "layer.hlo"), "--random", seed]) == 0
        outs.append(capsys.readouterr().out)
    assert outs[0] == outs[1] != outs[2]


def test_mistakes_of_run(files, capsys):
    folder, _ = files
    file = folder / "layer.hlo"
    assert "No such file" in mistake(capsys, "run", folder / "none.hlo")
    assert "x f32[2,3], w f32[3,4]" in mistake(capsys, "run", file)
    text = mistake(capsys, "run", file, "--inputs", folder / "w.npy", folder / "w.npy")
    assert "input x is f32[2,3]" in text and "f32[3,4]" in text and "repair:" in text
    np.save(folder / "d.npy", np.zeros((2, 3)))
    assert "f64[2,3]" in mistake(capsys, "run", file, "--inputs", folder / "d.npy", folder / "w.npy")
    assert "not a file in the .npy format" in mistake(capsys, "run", file, "--inputs", file, folder / "w.npy")
    assert "use .npy or .npz" in mistake(capsys, "run", file, "--random", 0, "--output", folder / "y.txt")
    assert not (folder / "y.txt").exists()


def test_malformed_text_shows_line_column_and_caret(files, capsys):
    folder, _ = files
    (folder / "bad.hlo").write_text(TEXT.replace("tanh(p)", "tanh(q)"))
    for command in ("run", "opt"):
        text = mistake(capsys, command, folder / "bad.hlo")
        assert "line 7" in text and "^" in text and "bad.hlo:7" in text


def test_a_module_that_does_not_verify_is_not_run(files, capsys):
    folder, _ = files
    (folder / "bad.hlo").write_text(TEXT.replace("ROOT y = f32[2,4]", "ROOT y = f32[2,5]"))
    assert "f32[2,5]" in mistake(capsys, "run", folder / "bad.hlo", "--random", 0)


# --- opt, info ----------------------------------------------------------------------------------------------------


def test_opt_runs_passes(files, capsys):
    folder, _ = files
    arguments = ["opt", str(folder / "layer.hlo"), "--passes", "cse,fuse", "--print-after-all", "--time-passes"]
    assert main([*arguments, "--verify"]) == 0
    out = capsys.readouterr().out
    assert "// 1: unchanged by cse" in out and "// 2: after fuse" in out and "calls=%fused_" in out and "// " in out
    assert main(["opt", str(folder / "layer.hlo"), "--no-verify"]) == 0
    assert parse_module(capsys.readouterr().out).name == "layer"


def test_opt_names_the_nearest_pass(files, capsys):
    assert "did you mean 'simplify'?" in mistake(capsys, "opt", files[0] / "layer.hlo", "--passes", "simplfy")


def test_info_knows_versions_machine_and_settings(capsys):
    assert main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["versions"]["hloom"] == hl.__version__ and facts["runtime"]["threads"] >= 1
    assert set(facts["settings"]) == {s.variable for s in SETTINGS.values()}
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert "HLOOM_DEBUG" in out and "cache folder" in out


# --- the whole ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [[], ["run"], ["opt"], ["bench"], ["info"]])
def test_help_everywhere(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    out = capsys.readouterr().out
    assert stop.value.code == 0 and out.startswith("usage: hloom") and "-h, --help" in out


@pytest.mark.parametrize(
    "arguments", [[], ["frobnicate"], ["run"], ["opt", "x", "--frobnicate"], ["bench", "--suite", "x"]]
)
def test_usage_mistakes_have_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2 and "usage: hloom" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments,says",
    [
        (["servee", "x.so"], "'servee', and there are run, opt, .*; did you mean 'serve'?"),
        (["zzz"], "'zzz', and there are run, opt, bench, export, launch, cluster, serve, roofline, info\n"),
        (["cluster", "submti"], "'submti', and there are submit, status, .*; did you mean 'submit'?"),
        (["serve", "--prot", "3", "x.so"], "unknown argument '--prot'; did you mean '--port'?"),
        (["cluster", "submit", "--wrokers=2", "x.py"], "unknown argument '--wrokers=2'; did you mean '--workers'?"),
        (["serve", "--server", "trition", "x.so"], "'trition', and there are mlserver, triton; did you mean 'triton'?"),
        (["info", "extra"], "unknown argument 'extra'\n"),
    ],
)
def test_commands_and_options_that_there_are_not_name_the_nearest(arguments, says, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert re.search(says.replace("?", r"\?"), capsys.readouterr().err)


def test_bench_names_the_nearest_workload(capsys):
    assert main(["bench", "--only", "softmx"]) == 2
    assert "did you mean 'softmax'?" in capsys.readouterr().err


def test_python_m_hloom(files):
    folder, expected = files
    command = [sys.executable, "-m", "hloom", "run", "-", "--random", "3"]
    done = subprocess.run(command, input=TEXT, capture_output=True, text=True)
    assert done.returncode == 0 and "# result 0: f32[2,4]" in done.stdout, done.stderr
    done = subprocess.run([sys.executable, "-m", "hloom", "run", "none.hlo"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("hloom run:") and "Traceback" not in done.stderr


def _hidden(name: str) -> None:
    """As in an installed wheel, which has no benchmarks."""
    if name == "hloom.benchmarks":
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize("command", ["bench", "roofline"])
def test_commands_that_measure_want_a_checkout(command, monkeypatch, capsys):
    for name in [n for n in sys.modules if n.startswith(("hloom.benchmarks", f"hloom.commands.{command}"))]:
        monkeypatch.delitem(sys.modules, name)
    hidden = types.SimpleNamespace(find_spec=lambda name, path=None, target=None: _hidden(name))
    monkeypatch.setattr(sys, "meta_path", [hidden, *sys.meta_path])
    assert main([command]) == 2
    error = capsys.readouterr().err
    assert f"hloom {command}" in error and "not in this installation" in error and "run it from a checkout" in error
