"""`jit(f).trace(...)` as JAX's `Traced`, options of compilation, and trees when Python ends."""

import subprocess
import sys

import numpy as np
import pytest

import hloom as hl
from hloom.errors import ArgumentError, HloomError
from hloom.jax import stages


def test_trace_is_what_jax_returns():
    traced = hl.jit(lambda x, y: (x + y, {"a": y}), donate_argnums=0).trace(np.ones(3, np.float32), 2.0)
    assert isinstance(traced, stages.Traced)
    shape, named = traced.out_info
    assert (shape.shape, shape.dtype, named["a"].weak_type) == ((3,), np.float32, True)
    assert traced.out_avals == traced.out_info
    assert traced.in_avals[0][0].shape == traced.args_info[0][0].shape == (3,)
    assert traced.donate_argnums == (0,)
    assert traced.fun_name == "<lambda>"
    assert "add" in str([equation.opcode for equation in traced.jaxpr.eqns])
    result = traced.lower(lowering_platforms=("cpu",)).compile()(np.ones(3, np.float32), 2.0)
    np.testing.assert_array_equal(result[0], [3, 3, 3])


def test_unknown_options_of_the_compiler_are_refused():
    lowered = hl.jit(lambda x: x + 1).lower(1.0)
    lowered.compile(compiler_options={"xla_gpu_autotune_level": "0"})
    with pytest.raises(ArgumentError, match="an option that does not make sense") as caught:
        lowered.compile(compiler_options={"an option that does not make sense": "bad value"})
    assert isinstance(caught.value, HloomError)


PROGRAM = """
import atexit

@atexit.register
def late():
    print(jax.tree_util.tree_map(lambda a: a + 1, Box(1)).x)
    print(jax.random.split(key).shape, float(jax.jit(lambda box: box)(Box(2.0)).x))

import hloom
hloom.as_jax()
import jax

@jax.tree_util.register_pytree_node_class
class Box:
    def __init__(self, x):
        self.x = x

    def tree_flatten(self):
        return (self.x,), None

    @classmethod
    def tree_unflatten(cls, data, children):
        return cls(*children)

key = jax.random.key(0)
"""


def test_trees_when_python_ends():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert run.stdout.split() == ["2", "(2,)", "2.0"], run.stderr
