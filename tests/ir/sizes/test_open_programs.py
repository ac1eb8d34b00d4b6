"""Programs whose sizes are expressions of dimensions: shapes, text, programs for given sizes, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax, nn
from hloom.errors import ArgumentError, AttributeValueError, HloomError, ParseError, ShapeError, UndecidedSizeError
from hloom.ir.build import Builder
from hloom.ir.interpret import evaluate
from hloom.ir.module import Module
from hloom.ir.ops.specialize import Specialization
from hloom.ir.sizes.expressions import Dim
from hloom.ir.text import parse_module, print_module
from hloom.ir.types import Shape
from hloom.ir.verify import verify
from hloom.tracing.trace import trace_function
from hloom.tree import pytrees as tree

N, M = Dim("n"), Dim("m")
SIZES = [{"n": 2, "m": 3}, {"n": 5, "m": 2}, {"n": 1, "m": 4}, {"n": 4, "m": 1}, {"n": 1, "m": 1}, {"n": 33, "m": 17}]


def struct(*dims, dtype="float32"):
    return hl.ShapeDtypeStruct(dims, dtype)


# name: (function, arguments, the shape of the result as text)
PROGRAMS = {
    "broadcast": (lambda x, y: x * y + 1, [struct(N, 4), struct(4)], "f32[n,4]"),
    "stretched": (lambda x, y: x * y, [struct(N, 1), struct(N, M)], "f32[n,m]"),
    "reshaped": (lambda x: x.reshape(x.shape[0], 2, -1), [struct(N, 4)], "f32[n,2,2]"),
    "flat": (lambda x: x.reshape(-1), [struct(N, M)], "f32[m*n]"),
    "halves": (lambda x: x.reshape(-1, 8), [struct(2 * N, 4)], "f32[n,8]"),
    "product": (lambda x, y: x @ y, [struct(N, M), struct(M, N)], "f32[n,n]"),
    "contraction": (lambda x, y: hnp.einsum("bij,bjk->bik", x, y), [struct(N, 3, M), struct(N, M, 2)], "f32[n,3,2]"),
    "shifted": (lambda x: x[1:] - x[:-1], [struct(N, 4)], "f32[n - 1,4]"),
    "every_third": (lambda x: x[1::3], [struct(N, 4)], None),
    "some": (lambda x: x[:3], [struct(N, 4)], "f32[min(n, 3),4]"),
    "last": (lambda x: x[-1] + x[0], [struct(N, 4)], "f32[4]"),
    "joined": (lambda x, y: hnp.concatenate([x, y, x]), [struct(N), struct(M)], "f32[m + 2*n]"),
    "softmax": (lambda x: nn.softmax(x) + nn.logsumexp(x, 1, keepdims=True), [struct(N, M)], "f32[n,m]"),
    "statistics": (lambda x: x.mean(0) + x.std(0) + x.max(0) + hnp.median(x, 0), [struct(N, 4)], "f32[4]"),
    "positions": (lambda x: x.argmax(0) + hnp.argsort(x, 0).sum(0), [struct(N, 4)], "s32[4]"),
    "running": (lambda x: x.cumsum(0), [struct(N, 4)], "f32[n,4]"),
    "range": (lambda x: hnp.arange(1, 2 * x.shape[0], 3), [struct(N)], None),
    "numbers": (lambda x: x / x.shape[0] + x.size ** 0.5 + 2 / (x.shape[0] + 1), [struct(N, 4)], "f32[n,4]"),
    "wide_numbers": (lambda x: x / x.shape[0] + 0.1 * x.shape[0], [struct(N, dtype="float64")], "f64[n]"),
    "filled": (lambda x: hnp.full((2 * x.shape[0], 3), x.shape[0]), [struct(N)], "s32[2*n,3]"),
    "lower": (lambda x: hnp.tril(x) + hnp.eye(x.shape[0]), [struct(N, N)], "f32[n,n]"),
    "padded": (lambda x: hnp.pad(x, ((1, x.shape[1]), (0, 0))), [struct(N, M)], "f32[m + n + 1,m]"),
    "gathered": (lambda x, i: x[i % 2 * 0], [struct(N, 4), struct(M, dtype="int32")], "f32[m,4]"),
    "updated": (lambda x: x.at[0].set(1.0).at[:, 1].add(2.0).at[::2].mul(3.0), [struct(N, 4)], "f32[n,4]"),
    "rolled": (lambda x: hnp.roll(x, 1, 0) + hnp.roll(x, -2, 0) + x[::-1], [struct(N, 4)], "f32[n,4]"),
    "repeated": (lambda x: hnp.repeat(x, 3, 0) + hnp.tile(x, (3, 1)), [struct(N, 4)], "f32[3*n,4]"),
    "image": (lambda x, k: lax.conv(x, k, (1, 1), "SAME"), [struct(N, 3, 8, 8), struct(6, 3, 3, 3)], "f32[n,6,8,8]"),
    "open_image": (lambda x, k: lax.conv(x, k, (2, 2), "SAME"), [struct(2, 3, N, M), struct(6, 3, 3, 3)], None),
    "windows": (
        lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 1), (2, 1), "SAME"), [struct(N, 4)], None,
    ),
    "gradient": (lambda x: hl.grad(lambda v: hnp.tanh(v[1:]).mean() + (v**2).sum())(x), [struct(N + 1, 4)], None),
    "mapped": (lambda x: hl.vmap(lambda row: row @ row)(x), [struct(N, 4)], "f32[n]"),
    "scanned": (lambda x: lax.scan(lambda c, r: (c + r, c), hnp.zeros(4), x)[1], [struct(N, 4)], "f32[n,4]"),
    "loop": (lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i], hnp.zeros(4)), [struct(N, 4)], "f32[4]"),
    "attention": (
        lambda q, k: nn.softmax(q @ k.swapaxes(-1, -2) + hnp.where(
            hnp.arange(q.shape[1])[:, None] >= hnp.arange(k.shape[1]), 0, -1e9)) @ k,
        [struct(2, N, 8), struct(2, M, 8)], "f32[2,n,8]",
    ),
    "spectrum": (lambda x: hnp.abs(hnp.fft.fft(x)), [struct(N, 8)], "f32[n,8]"),
    "jitted": (lambda x: hl.jit(lambda v: v / v.shape[0])(x[1:] if False else x), [struct(N, 4)], "f32[n,4]"),
}  # fmt: skip


def traced(function, arguments, name="f"):
    return trace_function(lambda *given: function(*given), *tree.flatten((tuple(arguments), {})), name).computation


def at(size, sizes):
    return size if isinstance(size, int) else size.at(sizes)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_for_all_sizes_what_the_function_does(name):
    function, arguments, result = PROGRAMS[name]
    computation = traced(function, arguments)
    if result is not None:
        assert repr(computation.outputs()[0].shape) == result
    text = print_module(Module(name, computation))
    read = parse_module(text, dims={"n": N, "m": M})
    verify(read)
    assert print_module(read) == text
    generator = np.random.default_rng(0)
    for sizes in SIZES:
        given = [
            (generator.random(tuple(at(n, sizes) for n in one.shape)) * 4).astype(one.dtype) for one in arguments
        ]  # fmt: skip
        wanted = np.asarray(function(*map(hnp.asarray, given)))
        for program in (computation, read.entry):
            known = Specialization(sizes).computation(program)
            assert not any(i.shape.is_open for i in known.instructions if isinstance(i.shape, Shape))
            found = evaluate(known, given)
            assert found.dtype == wanted.dtype and found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
    compiled = Specialization(SIZES[0]).computation(computation)
    assert Specialization(SIZES[0]).computation(compiled) is compiled


def test_shapes_of_functions():
    found = hl.eval_shape(lambda x, y: {"both": hnp.concatenate([x, y]), "one": x[:, 0]}, struct(N, 4), struct(M, 4))
    assert found["both"].shape == (N + M, 4) and found["one"].shape == (N,)
    assert str(found["both"]) == "ShapeDtypeStruct(shape=(m + n, 4), dtype=float32)"
    assert hl.jit(lambda x: x + 1).lower(struct(N)).out_info.shape == (N,)


@pytest.mark.parametrize(
    ("function", "arguments", "lacks"),
    [
        (lambda x, y: x + y, [struct(N), struct(M)], "n == m|m == n"),
        (lambda x, y: x + y, [struct(N, 4), struct(3, 4)], "n == 3"),
        (lambda x: x[5], [struct(N)], "5 < n|n > 5"),
        (lambda x: x if x.shape[0] > 7 else -x, [struct(N)], "n > 7"),
        (lambda x: x.reshape(-1, 3), [struct(N)], "n % 3"),
        (lambda x: hnp.split(x, 2), [struct(N)], "n % 2"),
        (lambda x: [x[i] for i in range(x.shape[0])], [struct(N)], "a Python integer of the size n"),
        (lambda x: np.zeros(x.shape), [struct(N)], "a Python integer of the size n"),
    ],
)
def test_what_is_not_decided_is_an_error_at_the_users_line(function, arguments, lacks):
    with pytest.raises(UndecidedSizeError, match=lacks) as error:
        hl.eval_shape(function, *arguments)
    assert "test_open_programs.py" in str(error.value) and error.value.repair


def test_bounds_decide():
    rows = Dim("rows", 8, multiple_of=4)
    found = hl.eval_shape(lambda x: (x[5], x.reshape(-1, 4), hnp.split(x, 2)[0]), struct(rows))
    assert [one.shape for one in found] == [(), (rows // 4, 4), (rows // 2,)]


def test_sizes_that_do_not_fit():
    shifted = traced(lambda x: x[3:] - x[:-3], [struct(Dim("k", 4))])
    with pytest.raises(ShapeError, match=r"slice for k = 2(.|\n)*test_open_programs.py"):
        Specialization({"k": 2}).computation(shifted)
    value = traced(lambda x: x * x.shape[0], [struct(Dim("k"))])
    with pytest.raises(ShapeError, match=r"2,147,483,647 at most(.|\n)*test_open_programs.py"):
        Specialization({"k": 1 << 33}).computation(value)


def test_refused():
    x = struct(N, 4)
    for use in (lambda: hl.jit(hnp.sin)(x), lambda: hl.jit(hnp.sin).lower(x).compile()(x), lambda: hnp.sin(x)):
        with pytest.raises(ArgumentError):
            use()
    builder = Builder("main")
    for shape, value in ((Shape("s32", (2,)), N), (Shape("f32", ()), N), (Shape("s32", ()), "n"), (None, N)):
        with pytest.raises(HloomError) as error:
            builder.emit("size", shape=shape, value=value)
        assert error.value.asked and error.value.found and error.value.repair
    with pytest.raises(AttributeValueError, match="the value of the size n"):
        evaluate(traced(lambda x: x * x.shape[0], [x]), [np.ones((2, 4), np.float32)])
    text = print_module(Module("f", traced(lambda x: x * x.shape[0], [x])))
    with pytest.raises(ParseError, match="integers"):
        parse_module(text)
    with pytest.raises(ParseError, match="no dimension 'n'"):
        parse_module(text, dims={"m": M})
