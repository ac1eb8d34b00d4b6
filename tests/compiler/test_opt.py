"""`hloom opt`: passes from outside, and how the command lists what there is."""

import pytest

from hloom.commands import main
from hloom.compiler.passes import PASSES, all_passes
from hloom.compiler.pipeline import PIPELINE

TEXT = """HloModule main

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  ROOT %y = f32[4]{0} negate(%x)
}
"""
PASS = """from hloom.compiler.passes import module_pass
from hloom.ir.module import Module


@module_pass("rename-main", "negate")
def rename_main(module: Module) -> Module:
    \"\"\"Names the module after the pass.\"\"\"
    return Module("renamed", module.entry, module.aliases)
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "layer.hlo").write_text(TEXT)
    (tmp_path / "my_pass.py").write_text(PASS)
    before = dict(all_passes())
    yield tmp_path
    for name in set(PASSES) - set(before):
        del PASSES[name]


def opt(*arguments) -> int:
    return main(["opt", *(str(argument) for argument in arguments)])


@pytest.mark.parametrize("passes", [(), ("--passes", "dce,rename-main")])
def test_a_pass_from_outside_runs(files, capsys, passes):
    assert opt(files / "layer.hlo", "--load", files / "my_pass.py", *passes) == 0
    assert "HloModule renamed" in capsys.readouterr().out


def test_a_loaded_pass_does_not_run_where_others_are_named(files, capsys):
    assert opt(files / "layer.hlo", "--load", files / "my_pass.py", "--passes", "dce") == 0
    assert "HloModule main" in capsys.readouterr().out


@pytest.mark.parametrize("name, text, found", [
    ("missing.py", None, "FileNotFoundError"),
    ("layer.py", "HloModule main\n", "SyntaxError"),
    ("raises.py", "x = 1\ny = undefined\n", "NameError, line 2: name 'undefined' is not defined"),
    ("empty.py", "x = 1\n", "the file registers none"),
    ("again.py", PASS.replace("rename-main", "dce"), "ValueError, line 5: pass dce is registered twice"),
])  # fmt: skip
def test_files_without_a_pass_are_errors(files, capsys, name, text, found):
    if text is not None:
        (files / name).write_text(text)
    assert opt(files / "layer.hlo", "--load", files / name) == 2
    error = capsys.readouterr().err
    assert found in error and f"the passes of '{files / name}'" in error


def test_help_lists_the_passes_one_per_line(capsys):
    with pytest.raises(SystemExit):
        main(["opt", "--help"])
    lines = capsys.readouterr().out.splitlines()
    for name in PIPELINE:
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert PASSES[name].summary in line
    assert any("--load FILE" in line for line in lines)
