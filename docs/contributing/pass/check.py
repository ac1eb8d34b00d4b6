"""The new pass runs in every compilation, and its example agrees with the interpreter."""

import subprocess
import sys

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.ir.interpret import run

x = np.linspace(-2, 2, 9, dtype=np.float32)
function = hl.jit(lambda x: hnp.sin(-x))
module = hl.make_module(function)(x)

assert "pull-out-negations" in PIPELINE
after = run_passes(module, ["inline-calls", "pull-out-negations", "dce"], verify=True)
assert [i.opcode for i in after.entry.instructions] == ["parameter", "sine", "negate"]
np.testing.assert_array_equal(run(after, [x]), run(module, [x]))
unchanged = hl.make_module(hnp.sin)(x)
assert run_passes(unchanged, ["pull-out-negations"]) is unchanged
np.testing.assert_allclose(function(x), np.sin(-x), rtol=1e-6)

tests = ["tests/compiler/passes/test_passes_golden.py", "-k", "pull-out"]
subprocess.run([sys.executable, "-m", "pytest", "-q", *tests], check=True)
