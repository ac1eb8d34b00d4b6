"""Programs for ranges of sizes (`hl.Dim`): the bits of the jitted call at every size, errors out of range."""

import shutil

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, ExportError
from hloom.export import symbolic
from hloom.export.extents import candidates, difference, fitted
from hloom.export.nodes import Nodes, value_of

rng = np.random.default_rng(0)
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")


def normal(*shape):
    return (0.1 * rng.standard_normal(shape)).astype(np.float32)


W = normal(48, 24)


def model(x, bias):
    """A product with the batch as rows, a mean over the batch, a result whose size is twice the batch."""
    h = hnp.tanh(x @ W + bias)
    return {"mean": hnp.mean(h), "rows": hnp.concatenate([h, -h]), "centred": h - hnp.mean(h, 0)}


@needs_compiler
def test_one_program_for_all_batch_sizes(tmp_path):
    batch = hl.Dim("batch", 1, 40)
    x = hl.ShapeDtypeStruct((batch, 48), "float32")
    library = hl.export(model, x, normal(24), folder=tmp_path, check="all")
    assert (
        "hloom_status model_model(hloom_program *program, int64_t batch, const float *x" in library.header.read_text()
    )
    with library.load(num_threads=2) as loaded:
        assert loaded.dimensions == {"batch": (1, 40)}
        assert [v.shape for v in loaded.model.outputs] == [("batch", 24), (), ("2*batch", 24)]
        for size in (1, 2, 3, 7, 16, 33, 40, 2):
            given, bias = normal(size, 48), normal(24)
            got, wanted = loaded.model(given, bias), hl.jit(model)(given, bias)
            assert all(got[k].tobytes() == np.asarray(wanted[k]).tobytes() for k in wanted), size
        for size, message in ((41, "'batch' is 41; it may be 1 to 40"), (0, "'batch' is 0")):
            with pytest.raises(ArgumentError, match=message):
                loaded.model(normal(size, 48), normal(24))
        with pytest.raises(ArgumentError, match="dimension 1 of input 'x' is 47; it must be 48"):
            loaded.model(normal(3, 47), normal(24))


@needs_compiler
def test_two_dimensions_and_a_dim_by_the_name_of_an_argument(tmp_path):
    def outer(x, y):
        return x[:, None] * y[None, :] + 1

    rows, columns = hl.Dim("rows", 2, 9), hl.Dim("columns", 3, 30)
    library = hl.export(outer, normal(4), normal(5), x=rows, y=columns, folder=tmp_path)
    with library.load() as loaded:
        for m, n in ((2, 3), (9, 30), (5, 7), (2, 30), (9, 3), (8, 29)):
            x, y = normal(m), normal(n)
            assert loaded.outer(x, y).tobytes() == np.asarray(hl.jit(outer)(x, y)).tobytes()


def test_ranges_that_are_refused(tmp_path):
    for arguments, message in (
        (("batch", -1, 3), "0 <= min <= max"),
        (("batch", 5, 3), "0 <= min <= max"),
        (("a b", 1, 3), "no identifier"),
    ):
        with pytest.raises(ArgumentError, match=message):
            hl.Dim(*arguments)
    batch = hl.Dim("batch", 1, 64)
    x = hl.ShapeDtypeStruct((batch, 4), "float32")
    with pytest.raises(ExportError, match=r"depends on the size in a way that is not known"):
        hl.export(lambda x: x * x.shape[0] ** 3 / 7, x, folder=tmp_path, name="cube")
    for refused in (hl.Dim("batch", 0, 4), hl.Dim("batch", 4, 64, multiple_of=4)):
        with pytest.raises(ExportError, match="at least 1"):
            hl.export(lambda x: x, hl.ShapeDtypeStruct((refused,), "float32"), folder=tmp_path)
    with pytest.raises(ExportError, match="same name has another range"):
        y = hl.ShapeDtypeStruct((hl.Dim("batch", 1, 9),), "float32")
        hl.export({"f": lambda x, y: (x, y)}, x=x, y=y, folder=tmp_path)
    with pytest.raises(ArgumentError, match="first dimension of an argument that is passed by position"):
        hl.export({"f": lambda x: x}, x=batch, folder=tmp_path)
    with pytest.raises(ArgumentError):
        hl.jit(hnp.sin)(x)  # a shape without sizes is for hl.export alone


@pytest.mark.quick
@pytest.mark.parametrize(
    "number",
    [lambda b: 7, lambda b: 3 * b + 2, lambda b: -(-b // 16) * 128 + 5, lambda b: 24 * b - 24, lambda b: b],
    ids=["constant", "affine", "tiles", "difference", "itself"],
)
def test_numbers_of_plans_as_expressions(number):
    values = {(b,): number(b) for b in (3, 4, 17, 50, 99, 100)}
    while len(found := candidates(values, (3,), (100,), ["batch"])) > 1:
        points = [difference(found[0], other, (3,), (100,)) for other in found[1:]]
        if not any(points):
            break
        values |= {point: number(*point) for point in points if point}
    made = found[0]
    if isinstance(made, int):
        assert set(values.values()) == {made}
        return
    assert all(value_of(made.expression, (b,)) == number(b) for b in range(3, 101))
    nodes = Nodes()
    assert nodes.number(made.expression) == nodes.number(made.expression) == len(nodes.rows) - 1


@pytest.mark.quick
def test_numbers_of_no_known_form():
    assert fitted({(b,): b * b for b in (1, 2, 5, 9)}, (1,), (9,), ["batch"]) is None
    product = {(a, b): 2 * a * b + a for a in (1, 4, 9) for b in (2, 7)}
    made = fitted(product, (1, 2), (9, 7), ["a", "b"])
    assert str(made) == "2*a*b + a" and value_of(made.expression, (5, 6)) == 65


@needs_compiler
def test_a_size_whose_plan_differs_gets_a_plan_of_its_own(monkeypatch, tmp_path):
    """Only the ends are sampled: the comparison of all sizes finds the one between."""
    monkeypatch.setattr(symbolic._Search, "points", few_points)

    def uneven(x):  # what is computed depends on the size in no way that two samples show
        return hnp.sin(x) if x.shape[0] == 17 else hnp.cos(x)

    x = hl.ShapeDtypeStruct((hl.Dim("n", 3, 40),), "float32")
    library = hl.export(uneven, x, folder=tmp_path).load()
    for n in (3, 16, 17, 18, 40):
        given = np.arange(n, dtype=np.float32)
        assert np.array_equal(library.uneven(given), np.asarray(hl.jit(uneven)(given)))


def few_points(self, low, high):
    return list(dict.fromkeys([low, high, *[s for s in self.differing if low <= s <= high]]))


def test_ranges_with_too_many_sizes_to_compare(tmp_path):
    x = hl.ShapeDtypeStruct((hl.Dim("rows", 1, 1000), hl.Dim("columns", 1, 1000)), "float32")
    with pytest.raises(ExportError, match="1,000,000 sizes"):
        hl.export(lambda x: x + 1, x, folder=tmp_path, name="large")


@pytest.mark.parametrize(("least", "most"), [(1, 1), (1, 2), (1, 3), (2, 3), (3, 4)])
def test_ranges_of_few_sizes(least, most, tmp_path):
    """Not those of its largest size only."""
    sizes = hl.ShapeDtypeStruct((hl.Dim("batch", least, most), 3), "float32")
    library = hl.export(lambda a, b: a + b, np.ones(3, "f4"), sizes, folder=tmp_path, name="few", check="samples")
    with library.load() as loaded:
        for size in range(least, most + 1):
            got = loaded["call"](np.ones(3, "f4"), np.ones((size, 3), "f4"))
            np.testing.assert_array_equal(got, np.full((size, 3), 2.0))
