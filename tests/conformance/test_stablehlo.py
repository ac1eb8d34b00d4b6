"""The development set of StableHLO's own test programs, and the files of it that do not pass, each with its reason.

`stablehlo_failures.tsv` has a line for each: file, reason. A file that fails and is not in it fails the test, and so
does one that is in it and passes. The files are dealt out in batches, so that processes share the work evenly.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import stablehlo

DATA = Path(__file__).parents[2].parent / "shared" / "conformance" / "stablehlo" / "testdata"
LIST = Path(__file__).with_name("stablehlo_failures.tsv")
BATCHES = 48
FILES = sorted(DATA.rglob("*.mlir")) if DATA.exists() else []

pytestmark = pytest.mark.skipif(not FILES, reason=f"the conformance data {DATA} is absent")


def known_failures() -> dict[str, str]:
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines if line and not line.startswith("#"))


def test_the_whole_set_is_here():
    folders = [str(p.relative_to(DATA).parent) for p in FILES]
    assert {f: folders.count(f) for f in set(folders)} == {".": 1355, "quantized": 74, "dynamic": 227}


def test_the_list_names_files_and_reasons():
    names = {str(p.relative_to(DATA)) for p in FILES}
    for name, reason in known_failures().items():
        assert name in names, f"{name} is not in the set"
        assert len(reason.split()) >= 4, f"{name}: the reason is missing"


@pytest.mark.parametrize("batch", range(BATCHES))
def test_files(batch, record_property):
    known, unexpected, counts = known_failures(), [], dict.fromkeys(("pass", "fail", "unsupported", "parsed"), 0)
    for path in FILES[batch::BATCHES]:
        outcome = stablehlo.check_file(path, DATA)
        counts[outcome.status] += 1
        if outcome.status in ("fail", "unsupported") and outcome.file not in known:
            unexpected.append(outcome.line())
        if outcome.status in ("pass", "parsed") and outcome.file in known:
            unexpected.append(f"{outcome.line()}  is in {LIST.name}: take it out")
        if outcome.status == "parsed" and "static, ran" not in outcome.detail and outcome.file not in known:
            unexpected.append(outcome.line())
        modules = re.search(r"open, modules (\d+) of", outcome.detail)  # 2: a size of 2, say, is not like the others
        if outcome.status == "parsed" and outcome.file not in known and (modules is None or int(modules[1]) > 2):
            unexpected.append(f"{outcome.line()}: it is read for each size")
        if outcome.status == "parsed" and not outcome.file.startswith("dynamic/"):
            unexpected.append(f"{outcome.line()}: no check of it ran")
    record_property("stablehlo", counts)
    assert not unexpected, "\n".join(unexpected)


# --- the checks themselves ----------------------------------------------------------------------------------------


def test_ulp_distance():
    one = np.float32(1)
    assert stablehlo.ulp_distance(np.nextafter(one, np.float32(2)), one) == 1
    assert stablehlo.ulp_distance(np.float64(-0.0), np.float64(0.0)) == 0
    assert stablehlo.ulp_distance(np.float64(-5e-324), np.float64(5e-324)) == 2
    assert stablehlo.ulp_distance(np.float32(np.nan), np.float32(np.nan)) == 0
    assert stablehlo.ulp_distance(np.float32(np.nan), one) == np.inf
    assert stablehlo.ulp_distance(np.float32(np.inf), np.finfo(np.float32).max) == np.inf
    pair = np.complex64(1 + 1j)
    assert stablehlo.ulp_distance(np.complex64(1 + np.nextafter(one, np.float32(2)) * 1j), pair) == 1


@pytest.mark.parametrize(
    ("name", "actual", "expected", "holds"),
    [
        ("check.expect_close", [1.0, 2.0], [1.0, np.nextafter(np.float32(2), np.float32(3))], True),
        ("check.expect_close", [2.0], [2.0000005], False),
        ("check.expect_close", [np.nan, np.inf], [np.nan, np.inf], True),
        ("check.expect_close", [-np.inf], [np.inf], False),
        ("check.expect_eq", [0.0, np.nan], [-0.0, np.nan], True),
        ("check.expect_eq", [1.0], [np.nextafter(np.float32(1), np.float32(2))], False),
        ("check.expect_almost_eq", [1.0], [1.00009], True),
        ("check.expect_almost_eq", [1.0], [1.0002], False),
        ("check.expect_almost_eq", [np.nan], [1.0], False),
        ("check.unheard_of", [1.0], [1.0], False),
    ],
)
def test_compare(name, actual, expected, holds):
    actual, expected = np.array(actual, np.float32), np.array(expected, np.float32)
    if holds:
        stablehlo.compare(name, actual, expected, {})
    else:
        with pytest.raises(stablehlo.CheckFailed):
            stablehlo.compare(name, actual, expected, {})


WRONG = """
func.func @main() -> tensor<2xf32> {
  %0 = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %1 = stablehlo.constant dense<[1.0, 4.0]> : tensor<2xf32>
  %2 = OP : tensor<2xf32>
  stablehlo.custom_call @check.expect_eq(%2, %1) : (tensor<2xf32>, tensor<2xf32>) -> ()
  return %2 : tensor<2xf32>
}
"""


@pytest.mark.parametrize(
    ("op", "status", "detail"),
    [
        ("stablehlo.multiply %0, %0", "pass", ""),
        ("stablehlo.add %0, %0", "fail", "check.expect_eq: 1 of 2 elements"),
        ("chlo.no_such_thing %0, %0", "fail", "ParseError"),
        (
            '"stablehlo.no_such_thing"(%0) : (tensor<2xf32>) -> tensor<2xf32> //',
            "unsupported",
            "stablehlo.no_such_thing",
        ),
        ("stablehlo.add %0, %9", "fail", "'%9' is not defined above"),
    ],
)
def test_outcomes(tmp_path, op, status, detail):
    file = tmp_path / "program.mlir"
    text = WRONG.replace("OP : tensor<2xf32>", op + " : tensor<2xf32>")
    file.write_text(text if "//" not in op else WRONG.replace("OP", op), encoding="utf-8")
    outcome = stablehlo.check_file(file)
    assert outcome.status == status and detail in outcome.detail, outcome


def test_command(tmp_path, capsys):
    (tmp_path / "good.mlir").write_text(WRONG.replace("OP", "stablehlo.multiply %0, %0"), encoding="utf-8")
    assert stablehlo.main([str(tmp_path), "-j", "1"]) == 0
    (tmp_path / "wrong.mlir").write_text(WRONG.replace("OP", "stablehlo.add %0, %0"), encoding="utf-8")
    assert stablehlo.main([str(tmp_path), "-j", "1"]) == 1
    printed = capsys.readouterr().out
    assert "pass        good.mlir  0 ulp" in printed and "fail        wrong.mlir" in printed
    assert "2 files: 1 pass, 1 fail, 0 unsupported, 0 parsed" in printed
