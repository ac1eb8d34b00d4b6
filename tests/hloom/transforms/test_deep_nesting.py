"""Functions nested a hundred and more deep, and one that never ends."""

import numpy as np
import pytest

import hloom as hl
from hloom.errors import TracerError

WRAPS = {
    "jit": lambda f: hl.jit(lambda x: f(x) + 1),
    "jit_of_jit": hl.jit,
    "loop": lambda f: lambda x: hl.lax.fori_loop(0, 1, lambda i, s: f(s), x),
    "checkpoint": lambda f: hl.checkpoint(lambda x: f(x)),
}


@pytest.mark.parametrize("name", WRAPS)
def test_nested_functions(name):
    f, depth = lambda x: x * 2, 150
    for _ in range(depth):
        f = WRAPS[name](f)
    expected = 2 + depth * (name == "jit")
    assert np.asarray(hl.jit(f)(np.ones(2, np.float32))).tolist() == [expected] * 2


def test_nested_branches():
    def branching(f):
        return lambda x: hl.lax.cond(x[0] > 0, lambda: f(x), lambda: x)

    f = branching(lambda x: x * 2)
    for _ in range(99):
        f = branching(f)
    assert hl.jit(f).lower(np.ones(2, np.float32)).as_text().count("conditional(") == 100


def test_a_function_that_calls_itself():
    @hl.jit
    def endless(x):
        return endless(x + 1)

    with pytest.raises(TracerError, match="within 1000 other functions") as found:
        endless(np.ones(2, np.float32))
    assert "test_deep_nesting.py" in str(found.value)
