"""Models whose sizes have names: one program for all sizes, which computes what a program for each computes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx_open_models as models
from onnx import helper
from onnx_open_models import BOOL, END, FLOAT, INT64, made

import hloom as hl
import hloom.numpy as hnp


class Pair:
    """A model, and the same one compiled for each shape by itself."""

    def __init__(self, proto):
        self.open, self.fixed = hl.onnx.load(proto), hl.onnx.load(proto)
        self.fixed._program.open.reason = "it is compared with"

    def check(self, *arrays) -> list[np.ndarray]:
        found, wanted = (_outputs(one(*arrays)) for one in (self.open, self.fixed))
        for one, other in zip(found, wanted, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        return found

    @property
    def programs(self) -> int:
        """Those with dimensions."""
        return self.open._program.open.count

    @property
    def compiled(self) -> int:
        """All programs."""
        return len({id(plan) for plan in self.open._program.plans.values()})


def _outputs(values) -> list[np.ndarray]:
    return [np.asarray(v) for v in (values if isinstance(values, tuple) else (values,))]


@pytest.fixture
def draws() -> Iterator[np.random.Generator]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield np.random.default_rng(0)


def floats(draws, *shape):
    return draws.standard_normal(shape).astype(np.float32)


# --- the families -----------------------------------------------------------------------------------------------------


def test_an_encoder_has_one_program_for_batches_and_lengths(draws):
    pair = Pair(models.encoder())
    for batch, length in ((2, 5), (3, 7), (7, 3), (2, 2), (5, 5), (4, 64)):
        ids, mask = draws.integers(0, 50, (batch, length)), draws.integers(0, 2, (batch, length))
        mask[:, 0] = 1
        pair.check(ids, mask)
    assert (pair.compiled, pair.programs) == (2, 1)  # the first shapes have a program of their own
    for batch, length in ((1, 5), (3, 1), (1, 1), (0, 4), (1, 9), (3, 0)):
        pair.check(draws.integers(0, 50, (batch, length)), np.ones((batch, length), np.int64))
    assert pair.programs <= 5  # sizes of 0 and 1 are numbers


def test_a_decoder_has_one_program_for_a_growing_past(draws):
    pair = Pair(models.decoder())
    past = [np.zeros((1, 2, 0, 8), np.float32)] * 4
    ids = draws.integers(0, 50, (1, 6))
    for _ in range(12):
        logits, *past = pair.check(ids, *past)
        ids = logits[:, -1:].argmax(-1)
    assert (pair.compiled, pair.programs) == (2, 1)
    for batch, length, before in ((2, 3, 4), (3, 3, 3), (4, 2, 9), (2, 5, 0), (2, 5, 1)):
        pair.check(draws.integers(0, 50, (batch, length)), *[floats(draws, batch, 2, before, 8) for _ in range(4)])


def test_a_network_of_images_has_one_program_for_batches(draws):
    pair = Pair(models.images())
    for batch in (2, 3, 8, 5, 1, 17):
        pair.check(floats(draws, batch, 3, 8, 8))
    assert pair.programs == 1


def test_a_recurrent_network_has_one_program_for_batches_and_lengths(draws):
    pair = Pair(models.recurrent())
    for batch, length in ((2, 5), (3, 4), (6, 9), (2, 2), (4, 3)):
        pair.check(draws.integers(0, 20, (batch, length)))
    assert (pair.compiled, pair.programs) == (2, 1)
    for batch, length in ((1, 4), (2, 1), (1, 1)):
        pair.check(draws.integers(0, 20, (batch, length)))


# --- sizes as values --------------------------------------------------------------------------------------------------

RANDOM_OPS = ("Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Concat", "Gather", "Slice", "Neg", "Abs", "Where",
              "Reshape", "Split", "ReduceProd", "ReduceSum", "Cast", "Transpose", "Expand", "Clip")  # fmt: skip


def random_sizes(n: models.Maker, draws: np.random.Generator) -> str:
    """A vector of integers that is computed from the sizes of "x" and "y" by random nodes."""
    vectors = [n("Shape", "x"), n("Shape", "y"), n.constant([2, 3]), n("Shape", "x", start=1), n("Size", "y")]
    vectors[-1] = n("Reshape", vectors[-1], n.constant([1]))

    def one() -> str:
        return vectors[draws.integers(len(vectors))]

    def single(value: str) -> str:
        return n("Slice", value, n.constant([-1]), n.constant([END]), n.constant([0]))

    for _ in range(8):
        op = str(draws.choice(RANDOM_OPS))
        if op in ("Add", "Sub", "Mul", "Min", "Max"):
            vectors.append(n(op, one(), single(one())))
        elif op in ("Div", "Mod"):
            vectors.append(n(op, one(), n.constant([int(draws.choice([2, 3, -2, 5]))])))
        elif op == "Concat":
            vectors.append(n(op, one(), one(), axis=0))
        elif op == "Gather":
            vectors.append(n(op, one(), n.constant([0, -1])))
        elif op == "Slice":
            vectors.append(n(op, one(), n.constant([0]), n.constant([END]), n.constant([0])))
        elif op in ("Neg", "Abs"):
            vectors.append(n(op, one()))
        elif op == "Where":
            a = one()
            vectors.append(
                n(op, n(str(draws.choice(["Less", "Equal", "GreaterOrEqual"])), a, n.constant([3])), a, single(one()))
            )
        elif op == "Reshape":
            vectors.append(n(op, n("Unsqueeze", one(), n.constant([1])), n.constant([-1])))
        elif op == "Split":
            vectors.append(n(op, n("Concat", one(), n.constant([7]), axis=0), num_outputs=2, outputs=2)[0])
        elif op.startswith("Reduce"):
            axes = [n.constant([0])] if op == "ReduceSum" or draws.integers(2) else []
            vectors.append(n("Reshape", n(op, one(), *axes, keepdims=1), n.constant([-1])))
        elif op == "Cast":
            vectors.append(n(op, n(op, one(), to=models.TensorProto.INT32), to=INT64))
        elif op == "Transpose":
            vectors.append(n("Squeeze", n(op, n("Unsqueeze", one(), n.constant([0])), perm=[1, 0]), n.constant([1])))
        elif op == "Expand":
            vectors.append(n(op, single(one()), n.constant([2])))
        else:
            vectors.append(n(op, one(), n.constant(0), n.constant(6)))
    return n("Concat", *vectors, axis=0)


@pytest.mark.parametrize("seed", range(12))
def test_random_computations_of_sizes(seed, draws):
    proto = made(
        lambda n: random_sizes(n, np.random.default_rng(seed)), ("x", FLOAT, ["a", "b"]), ("y", FLOAT, ["b", 3])
    )
    pair = Pair(proto)
    for a, b in ((2, 3), (3, 4), (5, 2), (9, 9), (1, 4), (0, 2), (4, 1), (2, 40)):
        pair.check(np.zeros((a, b), np.float32), np.zeros((b, 3), np.float32))


def test_sizes_are_values_of_programs(draws):
    def function(n):
        count = n("Cast", n.size("x", 0), to=FLOAT)
        ramp = n("Range", n.constant(0), n("Squeeze", n.size("x", 0), n.constant([0])), n.constant(2))
        return [n("Div", n("ReduceSum", "x", n.constant([0])), count), ramp, n("Shape", "x"),
                n("ConstantOfShape", n("Shape", "x"))]  # fmt: skip

    pair = Pair(made(function, ("x", FLOAT, ["n", 2])))
    for rows in (2, 3, 8, 5, 1):
        mean, ramp, shape, zeros = pair.check(floats(draws, rows, 2))
        assert ramp.tolist() == [*range(0, rows, 2)] and shape.tolist() == [rows, 2] and zeros.shape == (rows, 2)
    assert pair.programs == 1


@pytest.mark.parametrize("names", [("n", "m"), (None, None), ("?", "?")])
def test_axes_broadcast_by_their_sizes(names, draws):
    pair = Pair(made(lambda n: n("Add", "a", "b"), ("a", FLOAT, [names[0]]), ("b", FLOAT, [names[1]])))
    for a, b in ((3, 3), (4, 4), (5, 1), (1, 6), (1, 1), (7, 7), (0, 1), (9, 1)):
        assert pair.check(floats(draws, a), floats(draws, b))[0].shape == (a if b == 1 else b,)
    assert pair.programs == 3
    with pytest.raises(hl.errors.ShapeError, match="broadcast"):
        pair.open(floats(draws, 4), floats(draws, 5))
    pair.check(floats(draws, 1), floats(draws, 0))  # of numbers alone
    pair.check(floats(draws, 6), floats(draws, 6))
    assert pair.programs == 3 and pair.open._program.open.reason is None  # the mistake of a call decides nothing


def test_sizes_of_one_name_are_equal(draws):
    loaded = hl.onnx.load(made(lambda n: n("Concat", "a", "b", axis=0), ("a", FLOAT, ["n"]), ("b", FLOAT, ["n"])))
    for size in (2, 3, 4):
        assert loaded(floats(draws, size), floats(draws, size)).shape == (2 * size,)
    with pytest.raises(hl.errors.ShapeError, match="n = 2 in 'a'"):
        loaded(floats(draws, 2), floats(draws, 3))


def test_inputs_of_unknown_rank(draws):
    pair = Pair(made(lambda n: n("Softmax", "x", axis=-1), ("x", FLOAT, None)))
    for shape in ((2, 3), (4, 5), (3,), (7,), (2, 3, 4), (5, 4, 3), (8, 2), (9,)):
        pair.check(floats(draws, *shape))
    assert pair.programs == 3


def test_targets_of_reshape_and_slices(draws):
    def function(n):
        flat = n("Reshape", "x", n.constant([0, -1]))
        tail = n("Slice", "x", n.constant([1, -2]), n.constant([END, END]), n.constant([1, 2]), n.constant([1, 1]))
        half = n("Slice", "x", n.constant([0]), n("Div", n.size("x", 1), n.constant([2])), n.constant([1]))
        turned = n("Slice", "x", n.constant([-1]), n.constant([-END]), n.constant([1]), n.constant([-1]))
        pairs = n("Reshape", "x", n.shape(n.size("x", 1), n.size("x", 0), -1))
        return [flat, tail, half, turned, pairs, n("Flatten", "x", axis=2)]

    pair = Pair(made(function, ("x", FLOAT, ["n", "m", 4])))
    for n, m in ((2, 3), (3, 4), (5, 2), (4, 9), (2, 8)):
        pair.check(floats(draws, n, m, 4))
    assert pair.programs == 1


# --- decisions --------------------------------------------------------------------------------------------------------


def test_a_branch_by_a_size_is_a_guard(draws):
    def function(n):
        sizes = n("Squeeze", n.size("x", 0), n.constant([0]))
        condition = n("Greater", sizes, n.constant(4))
        branches = [
            helper.make_graph(
                [helper.make_node(op, ["x"], [f"{op}_y"])],
                op,
                [],
                [helper.make_tensor_value_info(f"{op}_y", FLOAT, None)],
            )
            for op in ("Exp", "Neg")
        ]
        return n("If", condition, then_branch=branches[0], else_branch=branches[1])

    pair = Pair(made(function, ("x", FLOAT, ["n"])))
    for size in (2, 3, 5, 9, 4, 6, 1):
        x = floats(draws, size)
        np.testing.assert_allclose(pair.check(x)[0], np.exp(x) if size > 4 else -x, rtol=1e-5)
    assert pair.programs == 2


def test_the_steps_of_a_loop_may_be_a_size(draws):
    def function(n):
        body = helper.make_graph(
            [helper.make_node("Identity", ["c"], ["c1"]), helper.make_node("Add", ["s", "s"], ["s1"])], "body",
            [helper.make_tensor_value_info(*v) for v in (("k", INT64, []), ("c", BOOL, []), ("s", FLOAT, None))],
            [helper.make_tensor_value_info(*v) for v in (("c1", BOOL, []), ("s1", FLOAT, None))],
        )  # fmt: skip
        return n("Loop", n("Squeeze", n.size("x", 0), n.constant([0])), "", "x", body=body)

    pair = Pair(made(function, ("x", FLOAT, ["n", "m"])))
    for n, m in ((2, 3), (3, 4), (3, 5), (6, 2), (6, 9), (0, 3)):
        x = floats(draws, n, m)
        np.testing.assert_allclose(pair.check(x)[0], x * 2**n, rtol=1e-5)


def test_a_node_that_needs_a_number_leaves_the_other_sizes_open(draws):
    pair = Pair(made(lambda n: n("Resize", "x", "", n.constant([1, 1, 2], np.float32), mode="linear", antialias=1),
                     ("x", FLOAT, ["n", 2, "width"])))  # fmt: skip
    for batch, width in ((2, 3), (3, 4), (5, 4), (7, 4), (4, 6)):
        pair.check(floats(draws, batch, 2, width))
    assert pair.programs == 2 and "needs the number of 'width'" in pair.open._program.open.why


def test_shapes_that_are_compiled_each_by_itself_warn_with_the_node(draws):
    function = lambda n: n("Resize", "x", "", n.constant([1, 1, 2], np.float32), mode="linear", antialias=1)  # noqa: E731
    loaded = hl.onnx.load(made(function, ("x", FLOAT, [1, 1, "w"])))
    with pytest.warns(hl.errors.DataDependentWarning, match=r"32 shapes .* as Resize 'node_0' needs the number of 'w'"):
        for width in range(1, 40):
            loaded(floats(draws, 1, 1, width))


TRANSFORMATIONS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn")


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("how", [[1, 1, 2, 3], [1, 1, 1.5, 0.6], "sizes"], ids=str)
def test_images_are_resized_at_any_size(mode, how, draws):
    attributes = {"mode": mode, "coordinate_transformation_mode": str(draws.choice(TRANSFORMATIONS))}
    if mode == "nearest":
        attributes["nearest_mode"] = str(draws.choice(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]))

    def function(n):
        if how != "sizes":
            return n("Resize", "x", "", n.constant(how, np.float32), **attributes)
        larger = n("Add", n("Shape", "x", start=2), n.constant([5, -1]))
        return n("Resize", "x", "", "", n("Concat", n("Shape", "x", end=2), larger, axis=0), **attributes)

    pair = Pair(made(function, ("x", FLOAT, ["n", 2, "h", "w"])))
    for n, h, w in ((2, 8, 9), (3, 7, 12), (2, 12, 7), (4, 30, 11), (2, 9, 9), (3, 5, 20)):
        pair.check(floats(draws, n, 2, h, w))
    assert pair.programs == 1
    for n, h, w in ((1, 6, 5), (3, 2, 3)):
        pair.check(floats(draws, n, 2, h, w))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "Conv", "ConvTranspose"])
def test_windows_at_any_size(op, draws):
    weights = {"Conv": (3, 2, 3, 3), "ConvTranspose": (2, 3, 3, 3)}.get(op)
    options = {"count_include_pad": 1, "kernel_shape": [3, 3]} if op == "AveragePool" else {"kernel_shape": [3, 3]}
    pair = Pair(made(lambda n: n(op, "x", *([n.weight(*weights)] if weights else []), strides=[2, 1], pads=[1, 0, 1, 1],
                                 **options), ("x", FLOAT, ["n", 2, "h", "w"])))  # fmt: skip
    for n, h, w in ((2, 8, 9), (3, 7, 12), (2, 12, 7), (4, 30, 11)):
        pair.check(floats(draws, n, 2, h, w))
    assert pair.programs == 1


def test_many_shapes_are_silent(draws):
    loaded = hl.onnx.load(models.images())
    for batch in range(1, 40):
        loaded(floats(draws, batch, 3, 8, 8))


def test_nodes_that_run_by_themselves_are_as_before(draws):
    loaded = hl.onnx.load(made(lambda n: n("NonZero", n("Relu", "x")), ("x", FLOAT, ["n", 3])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hl.errors.DataDependentWarning)
        for rows in (2, 3, 4, 5):
            x = floats(draws, rows, 3)
            np.testing.assert_array_equal(loaded(x), np.nonzero(x > 0))
    assert loaded._program.open.count == 0


def test_numbers_of_inputs_that_decide_shapes(draws):
    loaded = hl.onnx.load(made(lambda n: n("Reshape", "x", "t"), ("x", FLOAT, ["n", 4]), ("t", INT64, [2])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hl.errors.DataDependentWarning)
        for rows in (2, 3, 4, 5):
            x = floats(draws, rows, 4)
            np.testing.assert_array_equal(loaded(x, np.array([4, -1])), x.reshape(4, -1))


# --- calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed", [{"fusion": False}, {"disable_jit": True}, {"debug_nans": True}, {"debug_checks": True}]
)
def test_settings_that_change_make_programs_anew(changed, draws):
    pair = Pair(models.images())
    several = [floats(draws, batch, 3, 8, 8) for batch in (2, 3, 4)]
    for x in several:
        pair.check(x)
    with hl.config(**changed):
        for x in (several[2], floats(draws, 6, 3, 8, 8), several[1]):
            pair.check(x)
    for x in (*several, floats(draws, 5, 3, 8, 8)):
        pair.check(x)
    assert pair.open._program.open.reason is None


def test_programs_that_were_forgotten_are_made_anew(draws):
    pair = Pair(models.images())
    several = [floats(draws, batch, 3, 8, 8) for batch in (2, 3, 4)]
    for _ in range(2):
        for x in several:
            pair.check(x)
        hl.clear_caches()


def test_calls_in_traces_and_with_dims(draws):
    loaded = hl.onnx.load(models.encoder(layers=1))
    ids, mask = draws.integers(0, 50, (3, 4)), np.ones((3, 4), np.int64)
    wanted = np.asarray(loaded(ids, mask))
    np.testing.assert_allclose(hl.jit(loaded)(ids, mask), wanted, rtol=1e-4, atol=1e-5)

    @hl.jit(dims={"ids": ("n", 4), "mask": ("n", 4)})
    def twice(ids, mask):
        return 2 * loaded(ids, mask)

    np.testing.assert_allclose(twice(ids, mask), 2 * wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(twice(ids[:2], mask[:2]), 2 * wanted[:2], rtol=1e-4, atol=1e-5)


def test_weights_may_change(draws):
    pair = Pair(models.images())
    for batch in (2, 3, 4):
        pair.check(floats(draws, batch, 3, 8, 8))
    name = next(iter(pair.open.params))
    for one in (pair.open, pair.fixed):
        one.params[name] = hnp.asarray(one.params[name]) * 2
    for batch in (5, 3, 5):
        pair.check(floats(draws, batch, 3, 8, 8))
    assert pair.programs == 1
