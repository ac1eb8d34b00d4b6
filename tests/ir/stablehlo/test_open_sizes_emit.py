"""Modules with sizes that are known later as StableHLO text: read back they compute what the function does."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import UnsupportedError
from hloom.ir.stablehlo import parse_program, print_program, stablehlo_text, to_module

N, M = hl.Dim("n", 1, 64), hl.Dim("m", 2)


def drawn(*dims) -> np.ndarray:
    return np.random.default_rng(sum(dims)).standard_normal(dims).astype(np.float32)


def text_of(function, *dims) -> str:
    return hl.jit(function).lower(hl.ShapeDtypeStruct(dims, "float32")).as_text("stablehlo")


def plus_rows(a):
    return 2 * a + a.shape[0]


FUNCTIONS = {
    "softmax": lambda x: hnp.exp(x - x.max(1, keepdims=True)) / hnp.exp(x - x.max(1, keepdims=True)).sum(1)[:, None],
    "iota": lambda x: x + hnp.arange(x.shape[0])[:, None] * x.shape[0],
    "parts of a size": lambda x: (x[: x.shape[0] // 2].sum(0), x[x.shape[0] // 3 :] * (x.shape[0] % 3)),
    "reversed": lambda x: x[::-1] @ x.T,
    "padding": lambda x: hnp.pad(x, ((1, x.shape[0]), (0, 2))),
    "rows by a sort": lambda x: x[hnp.argsort(x[:, 0])],
    "scan": lambda x: lax.scan(lambda c, r: (c + r, c * r.sum()), hnp.zeros(4, "float32"), x),
    "calls": lambda x: hl.jit(plus_rows)(x) + hl.jit(plus_rows)(x + 1),
    "loop": lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i] * x.shape[0], hnp.zeros(4, "float32")),
    "sizes of results": lambda x: hnp.zeros((x.shape[0] % 3 + 1, 2)) + x.sum(),
    "at most three rows": lambda x: x[:3],
    "selected": lambda x: (lax.top_k(x, 2), hnp.sort(x, 0), x.argmax(0)),
    "windows": lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 2), (1, 1), "SAME"),
    "derivative": lambda x: hl.grad(lambda a: (hnp.tanh(a) ** 2).mean())(x),
    "branch": lambda x: lax.cond(x.sum() > 0, lambda t: t * t.shape[0], lambda t: t - 1, x),
    "repeated": lambda x: (hnp.repeat(x, 2, axis=0), hnp.tile(x, (2, 1)), hnp.concatenate([x, x[:1]])),
    "random": lambda x: x + hl.random.normal(hl.random.key(1), x.shape),
    "singular values": lambda x: hnp.linalg.svd(x, compute_uv=False),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_read_back_it_computes_the_same(name):
    function, text = FUNCTIONS[name], text_of(FUNCTIONS[name], N, 4)
    assert print_program(parse_program(text)) == text
    read = hl.from_stablehlo(text)
    for n in (5, 2, 9, 1, 64):
        x = hnp.asarray(drawn(n, 4))
        pairs = zip(hl.tree.leaves(read(x)), hl.tree.leaves(function(x)), strict=True)
        for a, b in pairs:
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)
    assert len(read._open._programs) <= 4 and not read._open._closed


def test_two_dimensions_and_multiples():
    even = hl.Dim("n", 2, 64, multiple_of=2)
    text = text_of(lambda x: (x.reshape(2, -1), x.reshape(-1, 2, x.shape[1])), even, M)
    assert "tensor<?x?xf32, #stablehlo.bounds<64, ?>>" in text
    read = hl.from_stablehlo(text)
    for n, m in ((2, 3), (8, 2), (64, 5)):
        for a, b in zip(read(drawn(n, m)), (drawn(n, m).reshape(2, -1), drawn(n, m).reshape(-1, 2, m)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_read_with_its_dimension_it_has_the_shapes_of_the_function():
    text = text_of(FUNCTIONS["parts of a size"], N, 4)
    module = to_module(parse_program(text), input_shapes=[(N, 4)])
    assert str(module.entry.parameters[0].shape) == "f32[n,4]"
    traced = hl.jit(FUNCTIONS["parts of a size"]).lower(hl.ShapeDtypeStruct((N, 4), "float32")).module
    assert module.entry.shape == traced.entry.shape
    again = to_module(parse_program(stablehlo_text(module)), input_shapes=[(N, 4)])
    assert again.entry.shape == module.entry.shape


def test_what_takes_no_sizes_is_refused_at_its_line():
    with pytest.raises(UnsupportedError, match="occurs in an attribute") as error:
        text_of(lambda x: hnp.cumsum(x, 0), N, 4)
    assert "test_open_sizes_emit.py" in str(error.value.source)
    with pytest.raises(UnsupportedError, match="the size n is not itself a size of any argument") as error:
        text_of(lambda x: x[: x.shape[0] // 2], 2 * N, 4)
