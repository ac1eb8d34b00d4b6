"""Row reversals have a kernel of the new kind; what is fused with other work still has one kernel."""

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom.compiler.targets.cpu.target import KINDS

assert [kind.name for kind in KINDS].index("reversal") < [kind.name for kind in KINDS].index("loop")

for dtype in ("float32", "float64", "int32", "bool", "bfloat16"):
    x = hnp.asarray(np.arange(700 * 33).reshape(700, 33) % 251).astype(dtype)
    compiled = hl.jit(lambda x: hnp.flip(x, 1)).lower(x).compile()
    assert "def reversal" in compiled.source(), compiled.source()
    np.testing.assert_array_equal(hl.jit(lambda x: hnp.flip(x, 1))(x), np.asarray(x)[:, ::-1])

x = np.linspace(-1, 1, 66, dtype=np.float32).reshape(6, 11)
for fused in (lambda x: hnp.flip(hnp.exp(x), 1), lambda x: hnp.exp(hnp.flip(x, 1)), lambda x: hnp.flip(x, 0)):
    compiled = hl.jit(fused).lower(x).compile()
    assert compiled.cost_analysis()["kernels"] == 1 and "def reversal" not in compiled.source()
np.testing.assert_allclose(hl.jit(lambda x: hnp.exp(hnp.flip(x, 1)))(x), np.exp(x[:, ::-1]), rtol=1e-6)
assert hl.jit(lambda x: hnp.flip(x, 1))(np.zeros((0, 3))).shape == (0, 3)
