"""Functions of arrays whose first size is unknown compute what jit computes for each size."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import errors, lax, nn
from hloom.sessions import Program, Session, placeholder
from hloom.sessions.sizes import PROBES, Sizes, Substitution

pytestmark = pytest.mark.quick
KEY = hl.random.key(0)

FUNCTIONS = {
    "mean": lambda x: hnp.mean(x) + hnp.mean(x, axis=0),
    "std": lambda x: hnp.std(x, axis=0),
    "var_of_a_sample": lambda x: hnp.var(x, axis=0, ddof=1),
    "normalized": lambda x: (x - x.mean(0)) / hnp.sqrt(x.var(0) + 1e-5),
    "softmax": lambda x: nn.softmax(x) + nn.softmax(x, axis=0),
    "logsumexp": lambda x: hl.scipy.special.logsumexp(x, axis=0),
    "sort": lambda x: hnp.sort(x, axis=0),
    "argsort": lambda x: hnp.argsort(x, axis=0),
    "argmax": lambda x: hnp.argmax(x, axis=0) + hnp.argmax(x),
    "cumsum": lambda x: hnp.cumsum(x, axis=0),
    "cumprod": lambda x: hnp.cumprod(x, axis=0),
    "median": lambda x: hnp.median(x, axis=0),
    "percentile": lambda x: hnp.percentile(x, 30, axis=0),
    "quantiles": lambda x: hnp.quantile(x, hnp.asarray([0.1, 0.5, 0.9]), axis=0),
    "gram": lambda x: x @ x.T,
    "covariance": lambda x: hnp.cov(x, rowvar=False),
    "einsum": lambda x: hnp.einsum("ij,kj->ik", x, x),
    "flat": lambda x: x.reshape(-1),
    "rolled": lambda x: hnp.roll(x, 1, axis=0),
    "reversed": lambda x: x[::-1],
    "every_second": lambda x: x[::2] * 2,
    "halves_added": lambda x: hnp.sum(x[::2], 0) + x[1:].sum(0),
    "without_ends": lambda x: x[1:] - x[:-1],
    "padded": lambda x: hnp.pad(x, ((2, 1), (0, 0))),
    "tiled": lambda x: hnp.tile(x, (3, 1)),
    "repeated": lambda x: hnp.repeat(x, 2, axis=0),
    "stacked": lambda x: hnp.concatenate([x, x * 2, hnp.zeros_like(x)]),
    "outer": lambda x: x[:, None, :] - x[None],
    "range": lambda x: hnp.arange(x.shape[0]) + x[:, 0],
    "linspace": lambda x: hnp.linspace(0.0, 1.0, x.shape[0]) * x[:, 0],
    "identity": lambda x: hnp.eye(x.shape[0]) @ x,
    "lower": lambda x: hnp.tril(x @ x.T),
    "diagonal": lambda x: hnp.diagonal(x @ x.T),
    "one_hot": lambda x: nn.one_hot((x[:, 0] > 0.5).astype("int32"), 3),
    "taken": lambda x: hnp.take_along_axis(x, hnp.argsort(x, axis=1), axis=1),
    "gathered": lambda x: x[hnp.argsort(x[:, 0])],
    "last_row": lambda x: x[-1],
    "updated": lambda x: x.at[-1].set(0.0).at[:, 1].add(1.0),
    "scanned": lambda x: hl.scan(lambda c, row: (c * 0.5 + row, c), hnp.zeros(4), x)[1],
    "loop": lambda x: lax.fori_loop(0, x.shape[0], lambda k, s: s + x[k] * k, hnp.zeros(4)),
    "vmap": lambda x: hl.vmap(lambda row: hnp.outer(row, row).sum(0))(x),
    "gradient": lambda x: hl.grad(lambda v: hnp.mean(hnp.tanh(v) ** 2))(x),
    "loss": lambda x: hl.value_and_grad(lambda v: hnp.mean(
        nn.losses.softmax_cross_entropy_with_integer_labels(v, hnp.zeros(v.shape[0], "int32"))))(x)[1],
    "weighted": lambda x: x.sum() * (0.25 / x.shape[0]) + x.sum() / x.shape[0] ** 0.5 + x.shape[0] * 0.1,
    "window": lambda x: lax.reduce_window(x, -hnp.inf, lax.max, (2, 1), (2, 1), "SAME"),
    "convolved": lambda x: nn.Conv(4, 2, (3,), key=KEY)(x[None]),
    "norm": lambda x: hnp.linalg.norm(x) + hnp.linalg.norm(x, axis=0),
    "half": lambda x: hnp.mean(x.astype("float16"), axis=0),
    "random": lambda x: hl.random.normal(KEY, x.shape) + x,
    "split": lambda x: hnp.split(hnp.concatenate([x, x]), [x.shape[0]])[1],
    "count": lambda x: hnp.sum(x > 0.5) / x.size,
}  # fmt: skip


def test_each_function_at_each_size():
    program = Program("functions")
    refused: dict[str, Exception] = {}
    with program:
        x = placeholder("x", [None, 4])
        for name, function in FUNCTIONS.items():
            try:
                program.target(f"f/{name}", function(x))
            except errors.HloomError as error:
                refused[name] = error
    assert not refused, {name: str(error) for name, error in refused.items()}
    wrong = {}
    with Session(program) as session:
        for rows in (5, 8):
            value = np.random.default_rng(rows).random((rows, 4), np.float32)
            results = session.run({name: f"f/{name}" for name in FUNCTIONS}, {"x": value})
            for name, function in FUNCTIONS.items():
                try:
                    found = np.asarray(results[name])
                    expected = np.asarray(function(hnp.asarray(value)))
                    np.testing.assert_allclose(found, expected, rtol=2e-3 if name == "half" else 3e-5, atol=1e-5)
                except (errors.HloomError, AssertionError) as error:
                    wrong[name, rows] = str(error)[:300]
    assert not wrong, wrong


def test_numbers_are_recognized_exactly():
    sizes = Sizes({"n": PROBES[0], "m": PROBES[1]})
    to = Substitution(sizes, {"n": 7, "m": 3})
    n, m = PROBES[:2]
    for value, expected in (
        (n, 7), (n - 1, 6), (2 * n + 3, 17), (n * m, 21), (n * m * 4 + 1, 85), (n + m, 10), (3 * n + m, 24), (12, 12),
        (n * (n + 1) // 2, n * (n + 1) // 2),
        (100_000 * n, 700_000), (250_000, 250_000), (1_000_000, 1_000_000), (-n, -7), (n * n, 49),
    ):  # fmt: skip
        assert to.integer(value) == expected, value
    f32 = np.float32
    for made, expected in (
        (n, 7), (n - 1, 6), (1 / n, 1 / 7), (1 / (n - 1), 1 / 6), (0.25 / n, 0.25 / 7), (0.1 * n, 0.7),
        (0.1 * (n - 1), 0.6), (0.25 * (n - 1), 1.5), (n**0.5, 7**0.5), (2 * n**-0.5, 2 * 7**-0.5), (n * m, 21),
        (1 / (16 * n), 1 / 112), (2.0 / (n * m), 2 / 21),
    ):  # fmt: skip
        for dtype in (f32, np.float64):
            found = to.scalar(np.asarray(made, dtype))
            np.testing.assert_allclose(found, dtype(expected), rtol=1e-6, err_msg=f"{made} {dtype}")
    others = [
        1e-3,
        1e-5,
        1e-6,
        1e-7,
        1e-8,
        1e-12,
        1.1920929e-07,
        2**-24,
        1e9,
        65504.0,
        1e6,
        2e6,
        3.4e38,
        1e-38,
        1e5,
        3e-4,
    ]
    for value in others:
        assert to.scalar(np.asarray(value, f32)) == f32(value) and to.scalar(np.asarray(value)) == value
    seeds = np.asarray([0x1BD11BDA, 0xFFFFFFFF, 466688986, 2**31 - 1], np.uint32)
    assert np.array_equal(to.scalar(seeds), seeds)


def test_what_cannot_have_these_sizes_is_an_error_at_the_users_line():
    program = Program("two_sizes")
    with program:
        x, y = placeholder("x", [None]), placeholder("y", ["others"])
        with pytest.raises(errors.ShapeError):
            x + y
        pair = hnp.concatenate([x, y])
        program.target("same", pair[: x.shape[0]] + 1)
    with Session(program) as session:
        ones = np.ones(3, np.float32)
        assert session.run("same", {"x": ones, "y": np.ones(5, np.float32)}).shape == (3,)
        with pytest.raises(errors.FeedError, match="of this rank"):
            session.run("same", {"x": ones[None], "y": ones})
    with pytest.raises(errors.UnsupportedError, match="8 already"):
        for k in range(9):
            program.placeholder(f"p{k}", [f"size{k}"])
