"""Programs for ranges of sizes (`hl.Dim`): the bits of the jitted call at every size, errors out of range."""

import shutil

import numpy as np
import pytest
from exported_programs import check_exported

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, ExportError, ShapeError, UndecidedSizeError
from hloom.export import cover, emit
from hloom.export.nodes import CONSTANT, DIMENSION, Nodes, intervals
from hloom.export.tables import USE_ROW
from hloom.ir.sizes.expressions import Comparison, Scope, greatest, least, size_at
from hloom.ir.sizes.numbers import OPERATIONS
from hloom.runtime.driver_source import KERNEL, STEP_WORDS

rng = np.random.default_rng(0)
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")


def normal(*shape):
    return (0.1 * rng.standard_normal(shape)).astype(np.float32)


def struct(*dims, dtype="float32"):
    return hl.ShapeDtypeStruct(dims, dtype)


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
        (("a b", 1, 3), "not an identifier"),
    ):
        with pytest.raises(ArgumentError, match=message):
            hl.Dim(*arguments)
    batch = hl.Dim("batch", 1, 64)
    x = hl.ShapeDtypeStruct((batch, 4), "float32")
    with pytest.raises(UndecidedSizeError, match=r"(?s)n == 17.*test_export_ranges.py"):
        hl.export(lambda x: x if x.shape[0] == 17 else -x, struct(hl.Dim("n", 1, 40)), folder=tmp_path, name="uneven")
    with pytest.raises(UndecidedSizeError, match=r"(?s)n > 2.*test_export_ranges.py"):
        hl.export(lambda x: x + x[2], struct(hl.Dim("n", 1, 9)), folder=tmp_path, name="third")
    with pytest.raises(ExportError, match="same name has another range"):
        y = hl.ShapeDtypeStruct((hl.Dim("batch", 1, 9),), "float32")
        hl.export({"f": lambda x, y: (x, y)}, x=x, y=y, folder=tmp_path)
    with pytest.raises(ArgumentError, match="first dimension of an argument that is passed by position"):
        hl.export({"f": lambda x: x}, x=batch, folder=tmp_path)
    with pytest.raises(ArgumentError):
        hl.jit(hnp.sin)(x)  # a shape without sizes is for hl.export alone


@needs_compiler
def test_values_of_sizes_and_their_bounds(tmp_path):
    def powers(x):
        return x * x.shape[0] ** 3 / 7, x.shape[0] * x.shape[0]

    with hl.export(powers, struct(hl.Dim("n", 0, 40)), folder=tmp_path).load() as loaded:
        for n in range(41):
            found, square = loaded.powers(np.ones(n, "f4"))
            np.testing.assert_array_equal(found, np.asarray(hl.jit(powers)(np.ones(n, "f4"))[0]))
            assert square == n * n
    with pytest.raises(ShapeError, match=r"(?s)n = .*at most has room.*test_export_ranges.py"):
        hl.export(lambda x: x + x.shape[0], struct(hl.Dim("n", 1, 200), dtype="int8"), folder=tmp_path, name="narrow")


@needs_compiler
def test_multiples_and_what_is_known_of_two_sizes(tmp_path):
    scope = Scope()
    n, m = hl.Dim("n", 8, 64, multiple_of=8, scope=scope), hl.Dim("m", 1, 64, scope=scope)
    scope.add("m <= n", m <= n)

    def blocks(x, y):
        return x.reshape(-1, 8).sum(1), x[: y.shape[0]] + y

    library = hl.export(blocks, struct(n), struct(m), folder=tmp_path)
    assert "/* n: 8 to 64, a multiple of 8 */" in library.header.read_text()
    with library.load() as loaded:
        for first, second in ((8, 1), (8, 8), (64, 3), (40, 40), (16, 2)):
            x, y = normal(first), normal(second)
            sums, joined = loaded.blocks(x, y)
            np.testing.assert_allclose(sums, x.reshape(-1, 8).sum(1), rtol=1e-5)
            np.testing.assert_array_equal(joined, x[:second] + y)
        for first, second, message in (
            (7, 1, "'n' is 7; it may be 8 to 64"), (12, 1, "'n' is 12; it has to be a multiple of 8"),
            (8, 9, "m <= n does not hold"), (72, 1, "'n' is 72"),
        ):  # fmt: skip
            with pytest.raises(ArgumentError, match=message):
                loaded.blocks(normal(first), normal(second))


@needs_compiler
def test_a_long_range_and_kernels_that_take_numbers(tmp_path):
    """No size is looked at by itself where guards say that all are served."""
    library = hl.export(lambda x: (x * 2).sum(), struct(hl.Dim("n", 0, 2**33)), folder=tmp_path, name="line")
    with library.load(num_threads=2) as loaded:
        for n in (0, 1, 2, 3, 1000, 2_000_001):
            assert loaded["call"](np.ones(n, "f4")) == 2 * n
    with hl.export(hnp.fft.fft, struct(hl.Dim("n", 2, 6)), folder=tmp_path, name="dft").load() as loaded:
        for n in range(2, 7):
            x = normal(n)
            np.testing.assert_allclose(loaded["fft"](x), np.fft.fft(x), rtol=1e-5, atol=1e-5)
    with pytest.raises(ExportError, match=r"each of 4,095 sizes is a separate variant"):
        hl.export(hnp.fft.fft, struct(hl.Dim("n", 2, 4096)), folder=tmp_path, name="fourier")


def test_more_variants_than_there_may_be(monkeypatch, tmp_path):
    monkeypatch.setattr(cover, "MOST_VARIANTS", 2)
    with pytest.raises(ExportError, match=r"(?s)Dim\('n', min=1, max=4096\).*more than 2 variants.*multiple_of"):
        hl.export(lambda x: x @ x.T, struct(hl.Dim("n", 1, 4096), 24), folder=tmp_path, name="products")


@pytest.mark.quick
def test_intervals_hold_every_value():
    n, m = hl.Dim("n", 0, 40, multiple_of=2), hl.Dim("m", 1, 9)
    sizes = [n * m - 7, (3 * n + 5) // 4, n // m, least(n, 3 * m), greatest(n - m, 0), n % 3, (n - 20) * (m - 4)]
    nodes = Nodes({"n": 0, "m": 1})
    numbers = [nodes.number(size) for size in sizes]
    guards = [nodes.guard(Comparison(n, how, 4 * m)) for how in ("==", "!=", ">=", ">", "<=", "<")]
    for low, high in (((0, 1), (40, 9)), ((10, 3), (14, 3)), ((6, 5), (6, 5)), ((0, 9), (0, 9))):
        lows, highs = intervals(nodes.table, *[np.array(end, float)[:, None] for end in (low, high)])
        for first in range(low[0], high[0] + 1, 2):
            for second in range(low[1], high[1] + 1):
                at = {"n": first, "m": second}
                values = [size_at(size, at) for size in sizes]
                values += [Comparison(n, how, 4 * m).holds(at) for how in ("==", "!=", ">=", ">", "<=", "<")]
                for node, value in zip([*numbers, *guards], values, strict=True):
                    assert lows[node][0] <= value <= highs[node][0]
                    assert low != high or lows[node][0] == value == highs[node][0]


@needs_compiler
@pytest.mark.parametrize("seed", [0, 4, 7, 10, 12])
def test_random_programs(seed):
    check_exported(seed)


@pytest.mark.parametrize(("least", "most"), [(1, 1), (1, 2), (1, 3), (2, 3), (3, 4)])
def test_ranges_of_few_sizes(least, most, tmp_path):
    """Not those of its largest size only."""
    sizes = hl.ShapeDtypeStruct((hl.Dim("batch", least, most), 3), "float32")
    library = hl.export(lambda a, b: a + b, np.ones(3, "f4"), sizes, folder=tmp_path, name="few", check="samples")
    with library.load() as loaded:
        for size in range(least, most + 1):
            got = loaded["call"](np.ones(3, "f4"), np.ones((size, 3), "f4"))
            np.testing.assert_array_equal(got, np.full((size, 3), 2.0))


@needs_compiler
def test_chunks_of_open_sizes_are_those_of_fixed_ones(monkeypatch, tmp_path):
    """What the exported driver computes when a call begins, against the rows of an export for that size."""
    libraries, source = [], emit.source
    monkeypatch.setattr(emit, "source", lambda library: libraries.append(library) or source(library))

    def function(x):
        return hnp.exp(x) * 2, hnp.sort(x)

    def rows(size):
        """The kernel rows of the plan for a size, as the driver fills them in."""
        tables = libraries[-1].bodies[0].plans[-1]
        values = []
        for operation, first, second in tables.nodes.table:
            one = {CONSTANT: first, DIMENSION: size}.get(operation)
            values.append(OPERATIONS[operation](values[first], values[second]) if one is None else one)
        made = [list(row) for row in tables.rows]
        for kind, index, node in tables.uses:
            if kind == USE_ROW:
                made[index // STEP_WORDS][index % STEP_WORDS] = values[node]
        return [row[3:6] for row in made if row[0] == KERNEL], [row[6] for row in made if row[0] == KERNEL]

    dim = hl.Dim("n", 4096, 1 << 22)
    hl.export(function, struct(dim), folder=tmp_path, name="open")
    sizes = (4096, 100_000, 1 << 20, 4_000_001)
    found = [rows(size) for size in sizes]
    for size, (chunks, times) in zip(sizes, found, strict=True):
        hl.export(function, struct(size), folder=tmp_path, name="fixed")
        wanted, wanted_times = rows(size)
        assert chunks == wanted
        np.testing.assert_allclose(times, wanted_times, rtol=0.01, atol=2)
