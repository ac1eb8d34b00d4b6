"""Functions of arrays whose first size is unknown compute what they do eagerly at each size."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import errors, lax, nn
from hloom.ir.sizes.expressions import SizeExpression
from hloom.sessions import Program, Session, placeholder
from hloom.summary.graph import definition

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
    "half_of_all": lambda x: hnp.mean(x.astype("float16")) + hnp.var(x.astype("float16"), axis=0),
    "bfloat": lambda x: hnp.mean(x.astype("bfloat16"), axis=0) + hnp.std(x.astype("bfloat16")),
    "half_gradient": lambda x: hl.grad(lambda v: hnp.mean(v * v))(x.astype("float16")),
    "half_weighted": lambda x: x.astype("float16").sum() * (0.5 / x.shape[0]) + x.astype("float16") * x.shape[0],
    "bfloat_weighted": lambda x: x.astype("bfloat16").sum() * (3 / x.shape[0]),
    "half_softmax": lambda x: nn.softmax(x.astype("float16"), axis=0),
    "half_linspace": lambda x: hnp.linspace(0.0, 1.0, x.shape[0], dtype="float16"),
    "half_range": lambda x: hnp.arange(x.shape[0], dtype="bfloat16"),
    "square_root": lambda x: x / x.shape[0] ** 0.5 + x.shape[0] ** -0.5,
    "inverse_square": lambda x: x * (1 / (x.shape[0] * x.shape[0])) + x / x.shape[0] ** 2,
    "mean_of_every_second": lambda x: hnp.mean(x[::2], axis=0) + x[1::2].mean(0),
    "one_hot_of_size": lambda x: nn.one_hot(hnp.argsort(x[:, 0]), x.shape[0]),
    "batch_norm": lambda x: nn.BatchNorm(4)(x),
    "layer_norm_over_size": lambda x: nn.standardize(x, axis=0),
    "dropout": lambda x: nn.apply(nn.Dropout(0.25), x, key=KEY)[0],
    "padded_by_size": lambda x: hnp.pad(x, ((x.shape[0], 0), (0, 0))),
    "gathered_last": lambda x: hnp.take(x, hnp.asarray([0, x.shape[0] - 1]), axis=0),
    "sliced": lambda x: x[: x.shape[0] - 1] + x[x.shape[0] - 1],
    "reshaped": lambda x: x.reshape(x.shape[0] * 2, -1) + hnp.zeros((2 * x.shape[0], 2)),
    "jitted": lambda x: hl.jit(lambda v: v / v.shape[0])(x),
    "every_second_from_1": lambda x: x[1::2].sum(0) + x[::3].mean(0) + x[::-1][::2].sum(0),
    "sizes": lambda x: x * hnp.size(x) + hnp.shape(x)[0] + np.shape(x)[0] + np.prod(x.shape),
    "real_size": lambda x: hnp.full((x.shape[0],), x.shape[0] * 1.0) + hnp.asarray(x.shape[0], "float32"),
    "wide": lambda x: x.astype("float64") * (1 / x.shape[0]),
    "logarithm_of_numpy": lambda x: x * np.log(x.shape[0]),
    "in_a_longer_expression": lambda x: x * (1 - 1 / np.log(x.shape[0])),
    "power": lambda x: x * x.shape[0] ** 1.3,
    "long_factor": lambda x: x * (1 / 3 / x.shape[0]),
    "power_of_sum": lambda x: x * (x.shape[0] + 0.37) ** 0.3,
    "half_of_size": lambda x: x / (x.shape[0] // 2),
    "part_of_odd_sizes": lambda x: x * (2 / (x.shape[0] + 1)) + x[::2].mean(0),
    "remainder": lambda x: x * (x.shape[0] % 7),
    "power_of_size": lambda x: hnp.size(x) ** 1.2 * x,
    "in_grad": lambda x: hl.grad(lambda v: (v * np.log(v.shape[0])).sum())(x),
    "in_a_list": lambda x: hnp.asarray([1.0, x.shape[0] ** 0.3, 2, 3]) * x,
    "filled": lambda x: x + hnp.full((4,), np.log(x.shape[0])),
    "pseudo_inverse": lambda x: hnp.linalg.pinv(x * hnp.asarray([1.0, 1.0, 1.0, 0.03])) * 0.01,
    "rank": lambda x: hnp.linalg.matrix_rank(x * hnp.asarray([1.0, 1.0, 1.0, 0.03])),
    "least_squares": lambda x: hnp.linalg.lstsq(x * hnp.asarray([1.0, 1.0, 1.0, 0.03]), x[:, 0] + x[:, 3])[0],
    "polynomial": lambda x: hnp.polyfit(x[:, 0], x[:, 1], 2),
    "half_of_less": lambda x: x * ((x.shape[0] - 1) / 2) + x * (x.shape[0] + 1000),
    "root_in_vmap": lambda x: hl.vmap(lambda row: row * np.sqrt(x.shape[0] + 5))(x),
    "numpy_array": lambda x: np.ones(4, "float32") * x.shape[0] * x,
    "part_as_shape": lambda x: hnp.zeros((x.shape[0] // 3,)),
    "part_as_index": lambda x: x[x.shape[0] // 2 :],
    "every_second_from_the_end": lambda x: x[::-2],
    "every_second_updated": lambda x: x.at[::2].set(0.0),
    "same_padding": lambda x: lax.reduce_window(x, -hnp.inf, lax.max, (3, 1), (2, 1), "SAME"),
    "log_in_loop": lambda x: lax.fori_loop(0, 3, lambda k, s: s * (x.shape[0] + 0.5) ** 0.1, x),
}  # fmt: skip


def _tolerance(name: str) -> float:
    # Compiled functions round to 16 bits less often than eager ones.
    return next((t for kind, t in (("half", 2e-3), ("bfloat", 1e-2)) if name.startswith(kind)), 3e-5)


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
        for rows in (5, 8, 33):  # 5 and 8 have programs of their own
            value = np.random.default_rng(rows).random((rows, 4), np.float32)
            results = session.run({name: f"f/{name}" for name in FUNCTIONS}, {"x": value})
            for name, function in FUNCTIONS.items():
                try:
                    found = np.asarray(results[name])
                    expected = np.asarray(function(hnp.asarray(value)))
                    np.testing.assert_allclose(found, expected, rtol=_tolerance(name), atol=1e-5)
                    assert found.dtype == expected.dtype
                except (errors.HloomError, AssertionError) as error:
                    wrong[name, rows] = str(error)[:300]
    assert not wrong, wrong


REFUSED = {
    "logarithm": lambda x: x * math.log(x.shape[0]),
    "square_root_of_math": lambda x: x / math.sqrt(x.shape[0]),
    "float": lambda x: x / float(x.shape[0]),
    "int": lambda x: x / int(x.shape[0]),
    "integer_root": lambda x: x * math.isqrt(x.shape[0]),
    "rounded": lambda x: x * round(x.shape[0] / 3),
    "length": lambda x: x / len(x),
    "python_loop": lambda x: sum(x[i] for i in range(x.shape[0])),
    "numpy_scalar": lambda x: x * np.float32(x.shape[0]),
    "numpy_half": lambda x: x * np.float16(1 / x.shape[0]),
    "array_of_objects": lambda x: x * np.full(4, x.shape[0]),
    "numpy_zeros": lambda x: x + np.zeros(x.shape, "float32"),
    "branch": lambda x: x if x.shape[0] > 100 else x * 2,
    "smaller": lambda x: x[: min(x.shape[0], 3)],
    "structure": lambda x: x * math.log(hl.eval_shape(lambda v: v, x).shape[0]),
    "in_jit": lambda x: hl.jit(lambda v: v * math.log(v.shape[0]))(x),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_number_of_an_unknown_size_is_an_error_where_it_is_asked_for(name):
    program = Program("refused")
    with program:
        x = placeholder("x", [None, 4])
        with pytest.raises(errors.HloomError) as caught:
            REFUSED[name](x)
    message = str(caught.value)
    assert "test_unknown_sizes.py" in message and "repair:" in message


def test_sizes_of_the_users_code_compute_as_integers():
    program = Program("sizes")
    with program:
        n = placeholder("x", [None, 4]).shape[0]
        assert n > 0 and n >= 1 and n == n and n - n == 0 and bool(n)
        with pytest.raises(errors.UndecidedSizeError, match="axis0 != 5"):
            bool(n != 5)
        assert f"{n} {2 * n!r} {n:>6}" == "axis0 2*axis0  axis0"
        assert isinstance(n * 2 + 1, SizeExpression) and not isinstance(n, int)


def test_graphs_of_tensorboard_have_open_sizes(tmp_path):
    pytest.importorskip("tensorboard")
    program = Program("shown")
    with program:
        program.target("y", placeholder("x", [None, 4]) + 1)
    nodes = definition(program.module())
    assert any(d.size == -1 for node in nodes.node for s in node.attr["_output_shapes"].list.shape for d in s.dim)


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


def test_large_numbers_are_themselves():
    """The sizes of a program were large primes once, and numbers near their multiples were taken for sizes."""
    program = Program("large")
    with program:
        x = placeholder("x", [None, 4])
        program.target("sum", x.sum() + hnp.ones(1_300_000).sum())
        for k, n in enumerate((1_299_709, 1_523_891, 1_743_397, 2 * 1_299_709 + 5, 100_000, 2_000_000)):
            program.target(f"n{k}", hnp.arange(n)[-1])
        program.target("many", hnp.zeros((len(program.targets), 3)) + x[0, 0])
        for k in range(20):
            program.placeholder(f"p{k}", [f"size{k}"])
    with Session(program) as session:
        found = session.run(["sum", *[f"n{k}" for k in range(6)]], {"x": np.ones((3, 4), np.float32)})
    wanted = [1_300_012, 1_299_708, 1_523_890, 1_743_396, 2 * 1_299_709 + 4, 99_999, 1_999_999]
    assert [int(np.asarray(value)) for value in found] == wanted


def test_one_program_runs_for_all_sizes_from_one():
    program = Program("ones")
    with program:
        x, y = placeholder("x", [None, 4]), placeholder("y", ["m", 4])
        functions = {
            "last": lambda x, y: x[-1] + y[0], "joined": lambda x, y: hnp.concatenate([x, y])[1:],
            "product": lambda x, y: x @ y.T, "mean": lambda x, y: x.mean(0) - y.std(0),
            "outer": lambda x, y: hnp.outer(x[:, 0], y[:, 0]), "rolled": lambda x, y: hnp.roll(x, 2, 0),
            "sliced": lambda x, y: x[:3].sum(0) + y[1:].sum(0) + y[::-1][-1],
        }  # fmt: skip
        for name, function in functions.items():
            program.target(f"f/{name}", function(x, y))
    with Session(program) as session:
        for rows, others in ((1, 1), (1, 3), (2, 1), (7, 2), (33, 64)):
            given = [np.random.default_rng(n).random((n, 4), np.float32) for n in (rows, others)]
            found = session.run({name: f"f/{name}" for name in functions}, dict(zip("xy", given, strict=True)))
            for name, function in functions.items():
                wanted = np.asarray(function(*map(hnp.asarray, given)))
                np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-5, err_msg=f"{name} {rows} {others}")


def test_sizes_within_declared_bounds():
    program = Program("bounds")
    rows = hl.Dim("rows", 0, 16, multiple_of=4)
    with program:
        x, y = placeholder("x", [rows, 2]), placeholder("y", [2 * rows + 1])
        program.target("quarters", x.reshape(-1, 4, 2).sum(1))
        program.target("both", hnp.concatenate([x[:, 0], y]) * x.shape[0])
        program.target("middle", (x * 2)[1:])
        with pytest.raises(errors.ArgumentError, match=r"Dim\('rows', min=0, max=16, multiple_of=4\)"):
            placeholder("z", [hl.Dim("rows", 1, 3)])
    with Session(program) as session:
        assert session.run("quarters", {"x": np.ones((8, 2))}).shape == (2, 2)
        assert session.run("quarters", {"x": np.ones((0, 2))}).shape == (0, 2)
        assert session.run("both", {"x": np.ones((4, 2)), "y": np.ones(9)}).shape == (13,)
        assert session.run("both", {"x": np.ones((4, 2)), "y": np.ones(9)})[0] == 4
        for fed, found in (
            ({"x": np.ones((20, 2))}, "multiple_of=4"), ({"x": np.ones((6, 2))}, "multiple_of=4"),
            ({"x": np.ones((4, 2)), "y": np.ones(8)}, "do not go together"),
        ):  # fmt: skip
            with pytest.raises(errors.FeedError, match=found):
                session.run("both" if "y" in fed else "quarters", fed)
        assert session.run("quarters", {"x": np.ones((16, 2))}).shape == (4, 2)
    program = Program("empty")
    with program:
        program.target("s", placeholder("x", [None]).sum())
    with Session(program) as session, pytest.raises(errors.FeedError, match="not empty"):
        session.run("s", {"x": np.ones(0, np.float32)})


def test_names_of_sizes_that_are_no_names_of_dimensions():
    program = Program("names")
    with program:
        parts = [placeholder(f"x{k}", [size]) for k, size in enumerate(["class", "a b", "a-b", "7", None])]
        program.target("all", hnp.concatenate(parts))
    again = Program.from_text(program.to_text())
    feeds = {f"x{k}": np.full(k + 1, k, np.float32) for k in range(5)}
    with Session(program) as session, Session(again) as other:
        np.testing.assert_array_equal(session.run("all", feeds), other.run("all", feeds))
