"""The new op evaluates eagerly and compiled, differentiates, batches, fuses, and round-trips through text."""

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom.ir.text import parse_module, print_module
from hloom.ir.verify import verify

x = np.array([-3, -1, -0.5, 0.25, 2, 50], np.float32)
softsign, expected = hl.lax.softsign, x / (1 + np.abs(x))

np.testing.assert_allclose(softsign(hnp.asarray(x)), expected, rtol=1e-6)
np.testing.assert_allclose(hl.jit(softsign)(x), expected, rtol=1e-6)
np.testing.assert_allclose(hl.jit(softsign)(x.astype(np.float64)), x / (1 + np.abs(x.astype(np.float64))), rtol=1e-15)
np.testing.assert_allclose(hl.jit(hl.vmap(softsign))(x), expected, rtol=1e-6)

gradient = hl.jit(hl.grad(lambda x: hnp.sum(softsign(x))))(x)
np.testing.assert_allclose(gradient, 1 / (1 + np.abs(x)) ** 2, rtol=1e-5)

compiled = hl.jit(lambda x: hnp.exp(softsign(x * 2)) + 1).lower(x).compile()
assert compiled.cost_analysis()["kernels"] == 1 and "abs_f32" in compiled.source()

text = print_module(hl.make_module(softsign)(x))
assert 'custom_call_target="hloom.softsign"' in text and print_module(parse_module(text)) == text
verify(parse_module(text))

try:  # XLA's parser validates the text where jaxlib is installed
    from jaxlib import _hlo
except ImportError:
    pass
else:
    _hlo.hlo_module_from_text(text)
