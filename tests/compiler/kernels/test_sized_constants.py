"""Constants that follow a size are arguments of kernels: another shape is the same kernel."""

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as jnp
from hloom.compiler.kernel_ir.nodes import Var
from hloom.compiler.kernels.codegen.constants import argument, shown_arguments, sized
from hloom.ir.build import Builder
from hloom.ir.types import DTYPES, HLO_NAME, Shape, compute_dtype


def layer_norm(x, scale, bias):
    mean = jnp.mean(x, axis=1, keepdims=True)
    variance = jnp.mean((x - mean) ** 2, axis=1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-5) * scale + bias


def attention(q, k, v):
    scores = q @ k.T * q.shape[1] ** -0.5
    return hl.nn.softmax(scores, axis=1) @ v


def scan(x):
    return hl.lax.scan(lambda state, row: (0.9 * state + row, jnp.sum(state)), jnp.zeros(4), x)


CASES = {
    "a long scan, a kernel of its own": (scan, lambda n: [(n, 4)], (10_000, 5_000, 7_777)),
    "layer norm": (layer_norm, lambda n: [(40, n), (n,), (n,)], (512, 100, 333)),
    "argmax": (lambda x: jnp.argmax(x, axis=1), lambda n: [(50, n)], (128, 100, 77)),
    "a mean of squares and its gradient": (
        hl.value_and_grad(lambda x: jnp.mean(x * x)), lambda n: [(n, 24)], (64, 100, 50)
    ),
    # Numbers of features that have one tile on all processors.
    "attention": (attention, lambda n: [(70, n), (90, n), (90, n)], (64, 256, 128)),
    "rows from the end": (lambda x: x[jnp.arange(20) - 25], lambda n: [(n, 6)], (128, 100, 77)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_other_shapes_compile_nothing(name):
    function, shapes, sizes = CASES[name]
    jitted = hl.jit(function)
    rng = np.random.default_rng(0)
    kernels = []
    for size in sizes:
        arrays = [rng.standard_normal(dims).astype(np.float32) for dims in shapes(size)]
        compiled = jitted.lower(*arrays).compile()
        kernels.append([line for line in compiled.source().splitlines() if not line.startswith("#")])
        got, expected = jitted(*arrays), hl.jit(function, fusion=False)(*arrays)
        for a, b in zip(hl.tree.leaves(got), hl.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    assert all(texts == kernels[0] for texts in kernels), "the kernels' texts follow the shape"


def constants(*values, dtype="f32", opcode="multiply"):
    """Which constants of x `opcode` c, for each of the values, are arguments."""
    builder = Builder("made")
    total = builder.parameter(Shape(DTYPES[dtype], (8,)))
    for value in values:
        total = builder.emit(opcode, total, builder.splat(value, total.shape))
    return sorted(float(c["value"]) for c in sized(builder.finish(total)))


def test_which_floats():
    assert constants(0.5, 2.0, 3.0, 0.044715, 0.7978846, np.inf, 0.0, 1.0, 8.0) == []
    assert constants(1024.0, 1 / 1000, 2 / 75, 64**-0.5, -1 / 256, 48**0.5) == sorted(
        float(np.float32(v)) for v in (1024.0, 1 / 1000, 2 / 75, 64**-0.5, -1 / 256, 48**0.5)
    )
    assert constants(1 / 1000, 1.5, dtype="bf16") == [float(np.asarray(1 / 1000).astype(DTYPES["bf16"]))]


def test_numbers_at_the_ends():
    tiny = np.finfo(np.float64).tiny
    assert constants(tiny, 5e-324, 1.7e308, -np.inf, np.nan, dtype="f64") == []


def test_which_integers():
    assert constants(1024, 8, dtype="s32", opcode="add") == [1024]
    assert constants(1024, dtype="s32", opcode="and") == []  # a mask that LLVM knows makes shorter code
    assert constants(1000, dtype="s32", opcode="divide") == []
    assert constants(1024, dtype="u32", opcode="add") == []


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "s32", "s64"])
def test_the_argument_is_the_constant(dtype):
    value = np.asarray(100).astype(DTYPES[dtype])[()]
    role, number, make = argument(value, DTYPES[dtype])
    given = Var("s64", role)
    made = make(given)
    assert isinstance(number, int) and [part for part in made.walk() if isinstance(part, Var)] == [given]
    assert made.type == HLO_NAME[compute_dtype(DTYPES[dtype])]
    shown = shown_arguments(("in0", role, "lo", "hi"), ["in0", number])
    assert shown.startswith(f"{role} = 100")


def test_the_listing_shows_the_value():
    source = hl.jit(lambda x: x / 1000).lower(np.ones(5, np.float32)).compile().source()
    assert "#   constant_f32 = 1000.0" in source
