"""Rules of JAX that hold under `as_jax()`: widths of dtypes, promotion, positions out of bounds, leaks of tracers."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import DTypeError, LeakedTracerError, SettingError, ShapeError


def run(program: str) -> str:
    """What a program prints, run by itself with hloom as jax."""
    text = "import hloom; hloom.as_jax()\nimport numpy as np, jax, jax.numpy as jnp\n" + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_widths():
    out = run(
        """
        same = jax.jit(lambda x: x)
        print(*[same(np.ones(2, d)).dtype for d in ("f8", "i8", "u8", "c16")], same({"a": np.ones(2)})["a"].dtype)
        print(same.lower(np.ones(2)).compile()(np.ones(2)).dtype)
        print((jnp.ones(2, "uint32") * jnp.ones(2, "int16")).dtype, jnp.promote_types("uint32", "int32"))
        print(jnp.heaviside(jnp.ones(2), jnp.ones(2)).dtype, jnp.heaviside(1, 2).dtype)
        import io
        file = io.BytesIO()
        jnp.save(file, np.full(2, 0.1))
        file.seek(0)
        print(np.load(file).dtype)
        """
    )
    assert out.splitlines() == [
        "float32 int32 uint32 complex64 float32",
        "float32",
        "int32 int32",
        "float32 float32",
        "float64",
    ]


def test_random_integers_with_x64():
    key = hl.random.key(0)
    with hl.enable_x64():
        found = [
            hl.random.randint(key, (3,), 0, 5),
            hl.random.permutation(key, 6),
            hl.random.choice(key, 6, (3,)),
            hl.random.choice(key, 6, (3,), replace=False),
            hl.random.choice(key, 6, (3,), p=hnp.arange(6) / 15),
        ]
        assert [x.dtype for x in found] == [np.int64] * 5
        assert hl.random.bits(key, (2,)).dtype == np.uint64 and hl.random.rademacher(key, (2,)).dtype == np.int64
    # JAX's numbers with jax_enable_x64
    assert [x.tolist() for x in found] == [[0, 1, 0], [0, 1, 5, 4, 3, 2], [3, 5, 5], [0, 1, 5], [4, 5, 1]]
    assert hl.random.randint(key, (3,), 0, 5).dtype == np.int32


def test_strict_promotion():
    whole, real = hnp.ones(2, "s32"), hnp.ones(2, "f32")
    add = hl.jit(lambda a, b: a + b)
    assert add(whole, real).dtype == np.float32
    with hl.numpy_dtype_promotion("strict"):
        for function in (
            lambda: whole + real,
            lambda: whole + 1.5,
            lambda: hnp.concatenate([whole, real]),
            lambda: hnp.where(True, whole, real),
            lambda: hnp.ones(2, bool) * real,
            lambda: add(whole, real),
        ):
            with pytest.raises(DTypeError, match="strict"):
                function()
        assert (real + 1).dtype == (real * 2.0).dtype == np.float32 and (whole * 2).dtype == np.int32
        hl.nn.softmax(real), hnp.mean(real), hnp.var(real), hnp.quantile(real, 0.5), hl.random.normal(hl.random.key(0))
    assert add(whole, real).dtype == np.float32
    with pytest.raises(SettingError, match="strict"), hl.numpy_dtype_promotion("nonsense"):
        pass


def test_rank_promotion():
    row, matrix = hnp.ones(2), hnp.ones((3, 2))
    with hl.numpy_rank_promotion("raise"):
        with pytest.raises(ShapeError, match="rank"):
            row + matrix
        with pytest.raises(ShapeError, match="rank"):
            hl.jit(lambda a, b: a + b)(row, matrix)
        assert (matrix + 1).shape == (row[None] + matrix).shape == (matrix * hnp.float32(2)).shape == (3, 2)
        hnp.var(matrix, 0), hl.nn.softmax(matrix), hnp.cov(matrix), matrix @ row
    with hl.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match="rank"):
        assert (row + matrix).shape == (3, 2)
    hl.config.update("jax_numpy_rank_promotion", "raise")
    try:
        with pytest.raises(ShapeError, match="rank"):
            row + matrix
    finally:
        hl.config.update("jax_numpy_rank_promotion", "allow")
    assert (row + matrix).shape == (3, 2)


def test_gathers_out_of_bounds():
    out = run(
        """
        x = jnp.arange(3.0)
        positions = jnp.array([0, 5, -1, -7])
        print(x[positions].tolist(), jax.jit(lambda x: x[positions])(x).tolist())
        print(jax.grad(lambda x: x[positions].sum())(x).tolist())
        print(jax.vmap(jax.grad(lambda x, i: x[i].sum()), (None, 0))(x, positions[None]).tolist())
        print(jax.jvp(lambda x: x[positions], (x,), (x,))[1].tolist())
        print(jax.grad(lambda x: x.at[positions].get(mode="clip").sum())(x).tolist())
        """
    )
    assert out.splitlines() == [
        "[0.0, 2.0, 2.0, 0.0] [0.0, 2.0, 2.0, 0.0]",
        "[1.0, 0.0, 1.0]",
        "[[1.0, 0.0, 1.0]]",
        "[0.0, 2.0, 2.0, 0.0]",
        "[2.0, 0.0, 2.0]",
    ]


@pytest.fixture
def few_objects():
    """What the tests before left is not looked through: each trace below ends with a collection of garbage."""
    gc.collect()
    gc.freeze()


@pytest.mark.parametrize(
    "transform", [hl.jit, hl.grad, lambda f: lambda x: hl.lax.scan(lambda c, _: (f(c), c), x, None, 2)]
)
def test_leaks_are_found(transform, few_objects):
    kept = []

    def leaking(x):
        kept.append(x * 2)
        return x

    with hl.checking_leaks():
        with pytest.raises(LeakedTracerError, match="leaking"):
            transform(leaking)(1.0)
        kept.clear()
        transform(lambda x: hnp.sin(x) * hl.lax.cond(x > 0, lambda: x, lambda: -x))(1.0)
        hl.jit(lambda x: hl.lax.while_loop(lambda c: c < x, lambda c: c + x, 0.0))(1.0)
        hl.vmap(hl.jit(hl.grad(lambda x: hl.nn.softmax(x).max())))(hnp.ones((2, 3)))
