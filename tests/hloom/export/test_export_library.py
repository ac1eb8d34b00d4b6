"""Exported libraries against jitted calls: the same bits, one thread or several; state; trees; errors of calls."""

import shutil

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax, optim
from hloom.errors import ArgumentError, ExportError, MissingFileError

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
rng = np.random.default_rng(0)


def normal(*shape):
    return (0.1 * rng.standard_normal(shape)).astype(np.float32)


W1, W2 = normal(64, 256), normal(256, 10)


def network(x, labels):
    """A dictionary in, a dictionary out; captured weights, a reduction of rows."""
    z = hnp.tanh(x["pixels"] @ W1) @ W2
    z = z - hnp.max(z, 1, keepdims=True)
    p = hnp.exp(z) / hnp.sum(hnp.exp(z), 1, keepdims=True)
    return {"probabilities": p, "right": hnp.argmax(p, 1) == labels}


def control(x, n, which):
    """A loop with a bound that is known at run time, a scan, a switch, a scatter."""
    total = lax.fori_loop(0, n, lambda k, c: c * 0.5 + x[k % x.shape[0]], hnp.zeros(x.shape[1:], x.dtype))
    carry, rows = lax.scan(lambda c, row: (c + row, c * row), total, x)
    branch = lax.switch(which, [lambda v: v, lambda v: -v, lambda v: v * v], carry)
    return rows.at[hnp.array([0, 2])].add(branch), hnp.cumsum(rows, 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("export")


@pytest.fixture(scope="module")
def exported(folder):
    x, labels = {"pixels": normal(300, 64)}, rng.integers(0, 10, 300, np.int32)
    return hl.export(network, x, labels, folder=folder), (x, labels)


def same_bits(got, wanted):
    got, wanted = hl.tree.leaves(got), hl.tree.leaves(wanted)
    assert [g.dtype for g in got] == [w.dtype for w in wanted]
    assert all(g.tobytes() == np.asarray(w).tobytes() for g, w in zip(got, wanted, strict=True))


@pytest.mark.quick
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_library_computes_the_bits_of_the_jitted_call(exported, threads):
    library, (x, labels) = exported
    wanted = hl.jit(network)(x, labels)
    with library.load(num_threads=threads) as loaded:
        for _ in range(3):
            got = loaded.network(x, labels)
            assert set(got) == {"probabilities", "right"}
            same_bits(got, wanted)


def test_loops_branches_and_scatters(folder):
    x = normal(6, 40)
    library = hl.export(control, x, np.int32(1), np.int32(1), folder=folder).load(num_threads=2)
    for n, which in ((0, 0), (1, 1), (7, 2), (9, 3), (3, -1)):
        got = library.control(x, np.int32(n), np.int32(which))
        same_bits(got, hl.jit(control)(x, np.int32(n), np.int32(which)))


def test_what_a_library_says_of_itself(exported):
    library, (x, _) = exported
    text = library.header.read_text()
    assert "hloom_status network_network(hloom_program *program, const float *x_pixels, const int32_t *labels" in text
    with library.load() as loaded:
        (function,) = loaded.functions.values()
        assert [(v.name, v.dtype.name, v.shape) for v in function.inputs] == [
            ("x_pixels", "float32", (300, 64)),
            ("labels", "int32", (300,)),
        ]
        assert [v.name for v in function.outputs] == ["probabilities", "right"]
        assert loaded.target == "x86_64-linux" or loaded.target.endswith("-linux")
        by_name = function.by_name({"x_pixels": x["pixels"], "labels": np.zeros(300, np.int32)})
        assert by_name["right"].dtype == bool


def test_constants_in_a_file_beside_the_library(folder, exported):
    library, (x, labels) = exported
    apart = hl.export(network, x, labels, folder=folder, name="apart", weights="file")
    assert apart.weights == folder / "apart.safetensors"
    assert apart.path.stat().st_size < library.path.stat().st_size - W1.nbytes // 2
    same_bits(apart.load().network(x, labels), hl.jit(network)(x, labels))
    data = apart.weights.read_bytes()
    for damaged, message in (
        (data[: len(data) // 2], "truncated"),
        (b"\xff" * 8 + data[8:], "damaged"),
        (data[:5], "too short"),
        (data.replace(b'"data_offsets":[0,', b'"data_offsets":[9,'), "damaged"),
        (data.replace(b"F32", b"I32"), "another dtype"),
        (data[:8] + b"[" * 4000 + data[4008:], "not the JSON"),
    ):
        apart.weights.write_bytes(damaged)
        with pytest.raises(ExportError, match=message):
            apart.load()
    apart.weights.unlink()
    with pytest.raises(ExportError, match="cannot be opened"):
        apart.load()


def init():
    w = {"w": 0.1 * hl.random.normal(hl.random.key(0), (8, 3)), "b": hnp.zeros(3)}
    return w, optim.adam(0.01).init(w)


def cost(w, x, y):
    return hnp.mean((hnp.tanh(x @ w["w"] + w["b"]) - y) ** 2)


def step(w, moments, x, y):
    loss, gradient = hl.value_and_grad(cost)(w, x, y)
    updates, moments = optim.adam(0.01).update(gradient, moments, w)
    return optim.apply_updates(w, updates), moments, loss


@pytest.fixture(scope="module")
def trainer(folder):
    x, y = normal(50, 8), normal(50, 3)
    functions = {"init": init, "cost": cost, "step": step}
    library = hl.export(
        functions, name="trainer", folder=folder, state=("w", "moments"), updates=("init", "step"), x=x, y=y
    )
    return library, x, y


def test_functions_share_a_state(trainer, tmp_path):
    library, x, y = trainer
    with library.load() as loaded, library.load(num_threads=2) as other:
        with pytest.raises(ExportError, match="no values yet"):
            loaded.cost(x, y)
        assert loaded.init() is None
        w, moments = hl.jit(init)()
        for _ in range(5):
            loss = loaded.step(x, y)
            w, moments, wanted = hl.jit(step)(w, moments, x, y)
            same_bits(loss, wanted)
        same_bits(loaded.cost(x, y), hl.jit(cost)(w, x, y))
        state = loaded.read_state()
        assert list(state)[:2] == ["w_b", "w_w"]
        same_bits(list(state.values()), [w, moments])
        loaded.save_state(tmp_path / "s.safetensors")
        other.load_state(tmp_path / "s.safetensors")
        same_bits(other.step(x, y), loaded.step(x, y))
        other.write_state({"w_b": np.ones(3, np.float32)})
        assert other.read_state()["w_b"].tolist() == [1, 1, 1]
        with pytest.raises(ArgumentError, match="no 'w_c'"):
            other.write_state({"w_c": np.ones(3, np.float32)})
        (tmp_path / "bad.safetensors").write_bytes((tmp_path / "s.safetensors").read_bytes()[:-8])
        before = other.read_state()
        with pytest.raises(ExportError, match="truncated"):
            other.load_state(tmp_path / "bad.safetensors")
        same_bits(list(other.read_state().values()), list(before.values()))
        with pytest.raises(ExportError, match="cannot be written"):
            other.save_state(tmp_path / "absent" / "s.safetensors")
    with pytest.raises(ExportError, match="closed"):
        loaded.cost(x, y)


def test_calls_that_do_not_fit(exported):
    library, (x, labels) = exported
    with library.load() as loaded:
        for pixels, message in (
            (x["pixels"].astype(np.float64), "float64, it must be float32"),
            (x["pixels"][:7], "dimension 0 of input 'x_pixels' is 7; it must be 300"),
            (x["pixels"][0], "has 1 dimensions; it must have 2"),
        ):
            with pytest.raises(ArgumentError, match=message):
                loaded.network({"pixels": pixels}, labels)
        with pytest.raises(ArgumentError, match="has no 'pixels'"):
            loaded.network({"pixel": x["pixels"]}, labels)
        with pytest.raises(ArgumentError, match="'labels' is missing"):
            loaded.network(x)
        with pytest.raises(AttributeError, match="no function 'networks'"):
            _ = loaded.networks
        with pytest.raises(ArgumentError, match="'x' is unknown|'labels' is missing"):
            loaded["network"].by_name({"x": 1, "x_pixels": x["pixels"]})


def test_files_that_are_no_libraries(tmp_path):
    with pytest.raises(MissingFileError):
        hl.export.load(tmp_path / "absent.so")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(ExportError, match="load of"):
        hl.export.load(tmp_path / "text.so")


@pytest.mark.quick
def test_exports_that_are_refused(tmp_path):
    def host(x):
        y = hnp.linalg.eigvals(x)
        return hl.pure_callback(lambda v: v, hl.ShapeDtypeStruct((3, 3), "float32"), x), y

    with pytest.raises(ExportError) as error:
        hl.export(host, normal(3, 3), folder=tmp_path)
    assert "2 steps that only Python can run" in str(error.value)
    assert str(error.value).count("test_export_library.py") == 2
    for options, message in (
        ({"target": "aarch64-linus"}, "did you mean 'aarch64-linux'"),
        ({"kind": "dynamic"}, "shared, static, object"),
        ({"weights": "elsewhere"}, "'embedded' or 'file'"),
        ({"name": "int"}, "no word of the language"),
        ({"name": "a b"}, "C accepts letters"),
        ({"features": "avx9", "target": "x86_64-linux"}, "neither a switch"),
        ({"compiler": "absent-cc"}, "no command 'absent-cc'"),
        ({"state": ("x",)}, "pass the functions by name"),
    ):
        with pytest.raises(ExportError, match=message):
            hl.export(hnp.sin, normal(3), folder=tmp_path, **options)
    with pytest.raises(ArgumentError, match="no value for 'y'"):
        hl.export({"cost": cost}, folder=tmp_path, w=normal(3), x=normal(3))
    with pytest.raises(ExportError, match="begin with the one that makes it"):
        hl.export({"cost": cost, "init": init}, state=("w",), updates=("init",), x=1, y=1, folder=tmp_path)
    with pytest.raises(ExportError, match="another form"):
        hl.export(
            {"init": lambda: hnp.zeros(3), "step": lambda w: w[:2]},
            state=("w",), updates=("init", "step"), folder=tmp_path,
        )  # fmt: skip
