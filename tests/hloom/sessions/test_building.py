"""What TensorFlow's texts build programs with: filled constants, orders of arguments, assignments, variable scopes."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import errors, nn, optim, sessions
from hloom.sessions import (
    Program,
    Session,
    apply_gradients,
    constant,
    get_variable,
    get_variable_scope,
    gradients,
    placeholder,
    target,
    variable,
    variable_scope,
)

pytestmark = pytest.mark.quick


@pytest.fixture
def program():
    with Program("building") as program:
        yield program


def values(program, fetches, feeds=None):
    with Session(program) as session, hl.config(num_cpu_devices=2):
        session.run(program.initializer())
        return session.run(fetches, feed_dict=feeds)


@pytest.mark.parametrize(
    ("value", "dtype", "shape", "expected"),
    [
        (-1.0, None, [2, 3], np.full((2, 3), -1, np.float32)),
        (0, np.int64, (4,), np.zeros(4, np.int64)),
        ([1, 2, 3], "float32", [2, 3], np.array([[1, 2, 3], [3, 3, 3]], np.float32)),
        ([[1.0, 2.0], [3.0, 4.0]], None, [4], np.array([1, 2, 3, 4], np.float32)),
        (0.1, "float64", [2], np.full(2, 0.1)),
        (0.1, float, [], np.float32(0.1)),
        (True, None, 3, np.ones(3, bool)),
        (1 + 2j, "c64", None, np.complex64(1 + 2j)),
        (2.5, "bf16", [0, 2], np.zeros((0, 2), hnp.bfloat16)),
        ([7, 15], "uint4", None, np.array([7, 15], hnp.uint4)),
        (2**63, "uint64", [1], np.array([2**63], np.uint64)),
        (np.arange(3), "int8", None, np.arange(3, dtype=np.int8)),
    ],
)
def test_constants_fill_a_shape(program, value, dtype, shape, expected):
    made = constant(value, dtype, shape, "filled")
    found = np.asarray(values(program, "filled"))
    assert made.name == "filled" and found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


def test_constants_of_text_and_of_unknown_sizes(program):
    x = placeholder("x", [None])
    fetches = [
        constant("a", shape=[2], name="texts"), constant("b", "string"), constant("c", "called so"),
        constant(2.0, shape=[x.shape[0], 2]), constant(hnp.sum(x), "int32", [2]),
    ]  # fmt: skip
    texts, b, c, filled, computed = values(program, fetches, {x: np.zeros(3, np.float32)})
    assert texts.tolist() == ["a", "a"] and (b, c) == ("b", "c") and fetches[2].name == "called so"
    np.testing.assert_array_equal(filled, np.full((3, 2), 2, np.float32))
    np.testing.assert_array_equal(computed, np.zeros(2, np.int32))


@pytest.mark.parametrize(
    ("arguments", "kind", "found"),
    [
        (([1, 2, 3], None, [2]), errors.ShapeError, "3 values for 2 elements"),
        (([], "float32", [2]), errors.ShapeError, "0 values for 2 elements"),
        ((1.5, np.int32), errors.DTypeError, "the value is 1.5"),
        ((300, "int8"), errors.DTypeError, "300"),
        ((-1, "uint8", [3]), errors.DTypeError, "-1"),
        ((-7, "uint4"), errors.DTypeError, "-7"),
        (([2**63], "int64"), errors.DTypeError, str(2**63)),
        ((3, bool), errors.DTypeError, "3"),
        ((1e6, "float16"), errors.DTypeError, "1000000"),
        ((1j, "float32"), errors.DTypeError, "1j"),
        (("text", "float32"), errors.DTypeError, "text"),
        ((1.0, "flaot32", None, "name"), errors.ArgumentError, "flaot32"),
    ],
)
def test_constants_that_cannot_be(program, arguments, kind, found):
    with pytest.raises(kind, match=found):
        constant(*arguments)
    assert not program.names(), "a refused constant leaves nothing behind"


@pytest.mark.parametrize(
    ("arguments", "named", "name", "dtype", "dims"),
    [
        (("float32", [None, 784], "x"), {}, "x", "float32", (None, 784)),
        ((np.int32, [2]), {"name": "n"}, "n", "int32", (2,)),
        ((hnp.bfloat16,), {}, "found", "bfloat16", ()),  # the variable of the line
        (("x", [3], "int8"), {}, "x", "int8", (3,)),
        (("x", [3]), {"dtype": float}, "x", "float32", (3,)),
        (("b", ["rows"]), {}, "b", "float32", ("rows",)),  # NumPy's code of int8, but a name here
        (("pred", [2], "pred"), {}, "pred", "bool", (2,)),
        (("s2", [2]), {}, "s2", "float32", (2,)),
        (("s32", [2], "labels"), {}, "labels", "int32", (2,)),
        ((), {"shape": (1,), "dtype": "f64", "name": "z"}, "z", "float64", (1,)),
        ((), {"name": "alone"}, "alone", "float32", ()),
    ],
)
def test_placeholders_take_both_orders(program, arguments, named, name, dtype, dims):
    found = placeholder(*arguments, **named)
    assert (found.name, found.dtype.name, found.dims) == (name, dtype, dims)
    assert [placeholder("float32").name for _ in range(2)] == ["placeholder", "placeholder_1"]


@pytest.mark.parametrize(
    ("arguments", "named", "kind", "found"),
    [
        (("float32", [2], "int32"), {}, errors.ArgumentError, "both dtypes"),
        (("flaot32", [2], "x"), {}, errors.DTypeError, "neither 'flaot32' nor 'x'"),
        (("x", "float32"), {}, errors.ArgumentError, "'float32'"),
        (("x", 3), {}, errors.ArgumentError, "3"),
        (("x", [2]), {"name": "y"}, errors.ArgumentError, "name= twice"),
        (("x", [2], "f32", 1), {}, errors.ArgumentError, "4 arguments"),
    ],
)
def test_placeholders_that_cannot_be(program, arguments, named, kind, found):
    with pytest.raises(kind, match=found):
        placeholder(*arguments, **named)


def test_a_placeholder_without_a_shape_says_how_to_give_it_one(program):
    x = placeholder("float32", name="x")
    assert np.asarray(values(program, x * 2, {x: 3})) == 6
    with pytest.raises(errors.FeedError, match=r"placeholder\('x', \[None, None\]\)"):
        values(program, x * 2, {x: np.ones((2, 2), np.float32)})
    with Session(program) as session, pytest.raises(errors.FeedError, match="feed= and feed_dict="):
        session.run(x, {x: 1}, feed_dict={x: 1})


def test_programs_without_a_block_have_constants_of_unknown_sizes():
    sessions.reset_default_program()
    x = placeholder("float32", [None, 2], "x")
    fetches = {
        "relu": nn.relu(x), "relu6": nn.relu6(x), "zeros": x + hnp.zeros_like(x), "full": hnp.full_like(x, 3) * x,
        "ones": hnp.ones_like(x), "lax": hl.lax.full_like(x, 2),
    }  # fmt: skip
    with Session() as session:
        for rows in (2, 5):
            data = np.arange(2.0 * rows, dtype=np.float32).reshape(rows, 2) - 2
            found = session.run(fetches, feed_dict={x: data})
            expected = {"relu": data.clip(0), "relu6": data.clip(0, 6), "zeros": data, "full": 3 * data}
            expected |= {"ones": np.ones_like(data), "lax": np.full_like(data, 2)}
            for name, value in expected.items():
                np.testing.assert_array_equal(found[name], value, err_msg=name)
    sessions.reset_default_program()


def test_assignments_are_functions_too(program):
    w, rows = variable("w", hnp.zeros(3)), variable("rows", hnp.zeros((3, 2)))
    updates = [
        sessions.assign(w, [1, 2, 3]), sessions.assign_add(w, 1), sessions.assign_sub(w, hnp.ones(3), name="back"),
        sessions.scatter_update(rows, [0], hnp.ones((1, 2))), sessions.scatter_add(rows, [0, 0], hnp.ones((2, 2))),
        sessions.scatter_sub(rows, [2], hnp.ones((1, 2))),
    ]  # fmt: skip
    found = values(program, updates)
    assert updates[2].name == "w/back"
    assert [f.tolist() for f in found[:3]] == [[1, 2, 3], [2, 3, 4], [1, 2, 3]]
    assert found[5].tolist() == [[3, 3], [0, 0], [-1, -1]]
    for function in (sessions.assign, sessions.assign_add, sessions.assign_sub):
        with pytest.raises(errors.ArgumentError, match="is not a variable"):
            function(w + 1, 1)


def network(x):
    with variable_scope("hidden"):
        w = get_variable("weights", [4, 8], initializer=nn.initializers.truncated_normal(0.1))
        h = hnp.tanh(x @ w + get_variable("biases", [8], initializer=0.0))
    with variable_scope("out"):
        return h @ get_variable("weights", [8, 1])


def test_towers_share_variables_whose_names_are_of_variable_scopes(program):
    x = placeholder("x", [4, 4])
    towers = []
    with variable_scope(get_variable_scope()):
        for k in range(2):
            with hl.device(f"cpu:{k}"), hl.named_scope(f"GPU_{k}"):
                towers.append(hnp.mean((network(x[2 * k : 2 * k + 2]) - 1) ** 2))
                get_variable_scope().reuse_variables()
    assert not get_variable_scope().reuse
    names = ["hidden/weights", "hidden/biases", "out/weights"]
    assert list(program.variables) == names
    assert {"GPU_0/hidden/h", "GPU_1/hidden/h"} <= set(program.names())
    assert not [n for n in program.names() if n.startswith("GPU") and "weights" in n]
    w = [program[name] for name in names]
    means = [(a + b) / 2 for a, b in zip(*(gradients(loss, w) for loss in towers), strict=True)]
    apply_gradients(optim.sgd(0.1), list(zip(means, w, strict=True)), name="train")
    data = np.random.default_rng(0).random((4, 4), np.float32)
    with hl.config(num_cpu_devices=2), Session(program) as session:
        session.run(program.initializer())
        losses = [sum(np.asarray(v) for v in session.run([*towers, "train"], {x: data})[:2]) for _ in range(20)]
    assert losses[-1] < 0.5 * losses[0]


def test_scopes_give_names_reuse_and_initializers(program):
    with variable_scope("a", initializer=lambda shape, dtype: hnp.full(shape, 2, dtype)) as a:
        with variable_scope("b"):
            v = get_variable("v", [2])
        w = get_variable("w", [2], initializer=3)
    with variable_scope("c"), variable_scope(a, reuse=True):
        assert get_variable("b/v") is v
        with variable_scope("b"):
            assert get_variable("v", [2], "float32") is v
    assert [v.name, w.name] == ["a/b/v", "a/w"]
    made = {
        "zeros": get_variable("zeros", [2], "int32"),
        "array": get_variable("array", initializer=np.arange(3)),
        "function": get_variable("function", initializer=lambda: hnp.ones(2)),
        "number": get_variable("number", [2], initializer=5),
        "glorot": get_variable("glorot", [300]),
        "again": get_variable("again", [300]),
    }
    assert [v.dtype for v in made.values()][:4] == ["int32", np.arange(3).dtype, "float32", "float32"]
    found = {k: np.asarray(v) for k, v in values(program, made | {"v": v, "w": w}).items()}
    assert found["v"].tolist() == [2, 2] and found["w"].tolist() == [3, 3] and found["number"].tolist() == [5, 5]
    assert np.abs(found["glorot"]).max() <= 0.1 and found["glorot"].std() > 0.05
    assert not np.array_equal(found["glorot"], found["again"])


def test_collections_are_found_below_whole_names_of_scopes(program):
    for k in (1, 10):
        with hl.named_scope(f"GPU_{k}"):
            program.add_to_collection("losses", program.target("loss", constant(1.0)))
    assert [loss.name for loss in program.get_collection("losses", "GPU_1")] == ["GPU_1/loss"]
    assert program.get_collection("losses", "GPU_1/") == program.get_collection("losses", "GPU_1/loss")


def test_the_class_of_variables_is_not_called(program):
    for arguments in ((), (hnp.zeros(3),), (3, "w")):
        with pytest.raises(errors.ArgumentError, match=r"variable\('w', initial\)"):
            sessions.Variable(*arguments)


def test_variables_that_exist_or_do_not(program):
    with variable_scope("s"):
        w = get_variable("w", [2])
        with pytest.raises(errors.ArgumentError, match=r"(?s)'s/w'.*it exists.*variable_scope\('s', reuse=True\)"):
            get_variable("w", [2])
    with variable_scope("s", reuse=True):
        for arguments, kind, found in (
            (("w", [3]), errors.ShapeError, r"f32\[2\]"),
            (("w", [2], "int32"), errors.DTypeError, r"f32\[2\]"),
            (("x", [2]), errors.ArgumentError, "(?s)'s/x'.*'s/w'"),
        ):
            with pytest.raises(kind, match=found):
                get_variable(*arguments)
    for arguments, kind, found in (
        (("n",), errors.ArgumentError, "no shape"),
        (("n", [None, 2]), errors.ArgumentError, "None, 2"),
        ((3, [2]), errors.ArgumentError, "the name 3"),
        (("n", [3], None, np.ones(2)), errors.ShapeError, r"f64\[2\]"),
    ):
        with pytest.raises(kind, match=found):
            get_variable(*arguments)
    with pytest.raises(errors.ArgumentError, match="variable_scope"), variable_scope(""):
        pass
    assert list(program.variables) == ["s/w"] and w.shape == (2,)


def test_a_chosen_name_is_that_of_one_node_only(program, tmp_path):
    y = placeholder("x", [2]) + 1
    target("y", other := y * 2)
    filled = constant(2.0, shape=[2])  # two instructions: a number, and what fills the shape
    assert (y.name, other.name, filled.name) == ("y_1", "y", "constant")
    assert len(set(program.names())) == len(program.names()) == len(program.instructions)
    loaded = Program.from_text(program.to_text())
    assert [np.asarray(v).tolist() for v in values(loaded, ["y", "y_1", "constant"], {"x": [1, 2]})] == [
        [4, 6], [2, 3], [2, 2],
    ]  # fmt: skip


def test_a_loaded_program_finds_its_variables(program, tmp_path):
    with variable_scope("s"):
        get_variable("w", [2], initializer=1.0)
    sessions.save(tmp_path / "p.txt", program)
    with sessions.load(tmp_path / "p.txt").program as loaded, variable_scope("s", reuse=True):
        y = get_variable("w") * 3
    assert values(loaded, y).tolist() == [3, 3]
