"""The pipeline: what runs, what is reported, errors, time; and passes on HLO text."""

from __future__ import annotations

import time

import numpy as np
import pytest
from passes_support import GOLDEN

from hloom.commands import main
from hloom.compiler.opt import optimize_text
from hloom.compiler.passes import all_passes, registry
from hloom.compiler.passes.dce import eliminate_dead_code
from hloom.compiler.passes.registry import PASSES, Pass, module_pass
from hloom.compiler.pipeline import PIPELINE, UNFUSED, check_names, pass_names, run_passes
from hloom.ir.build import Builder, Value
from hloom.ir.errors import AttributeValueError
from hloom.ir.interpret import run
from hloom.ir.module import Computation, Module
from hloom.ir.text import parse_module
from hloom.ir.types import Shape
from hloom.ir.verify import VerifyError

pytestmark = pytest.mark.quick

TEXT = """
HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  unused = f32[4] exponential(x)
  one = f32[] constant(1)
  ones = f32[4] broadcast(one), dimensions={}
  ROOT y = f32[4] multiply(x, ones)
}
"""


def normalized(rows: int = 8, columns: int = 16) -> Module:
    """About twenty instructions: a layer norm."""
    builder = Builder("main")
    x, w = (Value(builder, builder.parameter(Shape("f32", d))) for d in ((rows, columns), (columns,)))
    centred = x - (x.sum([1]) / columns).broadcast(x.dims, (0,))
    variance = (centred * centred).sum([1]) / columns
    y = centred * (variance + 1e-5).op("rsqrt").broadcast(x.dims, (0,)) * w.broadcast(x.dims, (1,))
    return Module("norm", builder.finish(y.instruction))


def test_every_name_of_the_pipeline_is_a_pass_with_a_summary():
    check_names(PIPELINE)
    assert all(p.summary and p.name == name for name, p in all_passes().items())


def test_records_say_what_each_pass_did():
    records = []
    module = parse_module(TEXT)
    result = run_passes(module, ["cse", "simplify", "dce"], on_pass=records.append)
    assert [r.name for r in records] == ["cse", "simplify", "dce"]
    assert [r.changed for r in records] == [False, True, False]
    assert records[0].before is module and records[-1].after is result
    assert all(r.seconds > 0 for r in records)
    assert len(result.entry.instructions) == 1 and len(module.entry.instructions) == 5


def test_an_unknown_pass_is_an_error_with_the_nearest_name():
    with pytest.raises(AttributeValueError, match="did you mean 'simplify'"):
        pass_names("cse,simplfy")
    with pytest.raises(AttributeValueError, match="the passes are .*cse.*dce"):
        run_passes(parse_module(TEXT), ["xyz"])


def test_verify_names_the_pass_that_broke_the_module(monkeypatch):
    def broken(module, target, team):
        entry = module.entry
        return module.with_entry(Computation(entry.name, entry.parameters, entry.instructions[:-1], entry.root))

    monkeypatch.setitem(PASSES, "dce", Pass("dce", "breaks", broken))
    with pytest.raises(VerifyError) as caught:
        run_passes(parse_module(TEXT), ["cse", "dce"], verify=True)
    assert caught.value.__notes__ == ["  made by: pass dce"]
    assert run_passes(parse_module(TEXT), ["dce"]) is not None


@pytest.mark.parametrize("result", [None, (), "text"])
def test_a_pass_that_returns_no_module_is_named(monkeypatch, result):
    monkeypatch.setattr(registry, "PASSES", made := {})

    @module_pass("forgets-return")
    def forgets(module):
        return result

    monkeypatch.setitem(PASSES, "forgets-return", made["forgets-return"])
    with pytest.raises(VerifyError) as caught:
        run_passes(parse_module(TEXT), ["cse", "forgets-return", "dce"])
    error = caught.value
    assert "pass forgets-return" in error.asked and repr(result) in error.found and "return" in error.repair
    assert error.source.file == __file__ and error.source.function == "forgets"


def test_a_pass_does_not_run_again_on_what_it_made(monkeypatch):
    """What it returns is a fixed point of it; it runs again where another pass has changed the module since."""
    seen = []

    def watched(module, target, team):
        seen.append(len(module.entry.instructions))
        return eliminate_dead_code(module)

    monkeypatch.setitem(PASSES, "dce", Pass("dce", "watched", watched))
    monkeypatch.setitem(PASSES, "absent", Pass("absent", "needs an op", watched, frozenset({"sort"})))
    records = []
    run_passes(parse_module(TEXT), ["dce", "dce", "cse", "dce", "simplify", "dce", "absent"], on_pass=records.append)
    assert seen == [5, 1]  # first and after simplify
    assert [r.name for r in records if r.changed] == ["dce", "simplify"]


def test_donated_inputs_stay_donated():
    module = parse_module(TEXT)
    donated = Module(module.name, module.entry, {0: 0})
    assert run_passes(donated, UNFUSED).aliases == {0: 0}


def test_calls_are_entered_and_combiners_are_not():
    """dce goes into what runs as a program of its own; the combiner of a reduction keeps even what it does not need."""
    scalar = Shape("f32")
    inner = Builder("combine")
    a, b = inner.parameter(scalar), inner.parameter(scalar)
    inner.emit("tanh", a)
    combine = inner.finish(inner.emit("add", a, b))
    middle = Builder("middle")
    x = middle.parameter(Shape("f32", (4,)))
    middle.emit("tanh", x)
    total = middle.emit("reduce", x, middle.constant(0, "f32"), dimensions=(0,), to_apply=combine)
    outer = Builder("main")
    root = outer.emit("call", outer.parameter(Shape("f32", (4,))), to_apply=middle.finish(total))
    result = eliminate_dead_code(Module("m", outer.finish(root)))
    called = result.entry.root["to_apply"]
    assert [i.opcode for i in called.instructions] == ["parameter", "constant", "reduce"]
    assert called.root["to_apply"] is combine


def test_passes_take_milliseconds():
    """Under 3 ms for a graph of twenty instructions on an idle core; the bound leaves room for a shared machine."""
    module = normalized()
    assert 20 <= len(module.entry.instructions) <= 32
    times = []
    for _ in range(10):
        start = time.process_time()
        run_passes(module, UNFUSED)
        times.append(time.process_time() - start)
    assert min(times) < 6e-3


def test_the_pipeline_keeps_the_numbers():
    module = normalized()
    random = np.random.default_rng(0)
    values = [random.standard_normal(p.dims).astype("f") for p in module.entry.parameters]
    np.testing.assert_allclose(run(module, values), run(run_passes(module, UNFUSED), values), rtol=2e-6)


# --- text -----------------------------------------------------------------------------------------------------------


def test_optimize_text():
    result = optimize_text(TEXT, ["simplify"])
    assert "multiply" not in result and "exponential" not in result
    assert optimize_text(result, ["simplify"]) == result


def test_print_after_all_and_times():
    result = optimize_text(TEXT, ["cse", "simplify"], print_after_all=True, time_passes=True)
    lines = result.splitlines()
    assert lines[0] == "// 1: unchanged by cse" and "// 2: after simplify" in lines
    assert result.count("HloModule") == 1
    table = lines[lines.index("//       ms  before   after  pass") + 1 :]
    assert [line.split()[-1] for line in table] == ["cse", "simplify", "all"]
    assert table[1].split()[2:4] == ["5", "1"]


def test_main_reads_a_file_and_prints(tmp_path, capsys):
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    assert main(["opt", str(path), "--passes", "simplify"]) == 0
    assert capsys.readouterr().out == optimize_text(TEXT, ["simplify"])


def test_main_says_what_is_wrong(tmp_path, capsys):
    path = tmp_path / "m.hlo"
    path.write_text(TEXT.replace("exponential", "exponentiel"))
    assert main(["opt", str(path)]) == 2
    assert "exponentiel" in capsys.readouterr().err
    assert main(["opt", str(tmp_path / "missing.hlo")]) == 2
    assert "missing.hlo" in capsys.readouterr().err
    assert main(["opt", str(GOLDEN / "passes" / "fold-constants.hlo"), "--passes", "fold-constant"]) == 2
    assert "did you mean" in capsys.readouterr().err
