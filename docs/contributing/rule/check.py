"""The new rule applies, and its example agrees with the reference interpreter."""

import subprocess
import sys

import numpy as np

import hloom as hl
from hloom.compiler.pipeline import run_passes

module = hl.make_module(lambda x, y: (x ^ y) ^ y)(np.arange(4), np.arange(4))
after = run_passes(module, ["simplify", "dce"], verify=True)
assert [i.opcode for i in after.entry.instructions] == ["parameter", "parameter"]

tests = ["tests/compiler/passes/test_simplify.py", "-k", "xor-twice or every_rule"]
subprocess.run([sys.executable, "-m", "pytest", "-q", *tests], check=True)
