"""StableHLO artifacts and `jax.export`'s names: written, read, called, and refused where damaged."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, ExportError, ParseError, ShapeError

rng = np.random.default_rng(0)


def layer(x, w):
    return {"y": hnp.tanh(x @ w["a"]), "norm": hnp.sum(x * x)}


X, W = rng.random((4, 5), np.float32), {"a": rng.random((5, 6), np.float32)}


def same(got, wanted):
    for a, b in zip(hl.tree.leaves(got), hl.tree.leaves(wanted), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.quick
def test_export_serialize_deserialize_call():
    exported = hl.export.export(hl.jit(layer))(hl.ShapeDtypeStruct((4, 5), "float32"), W)
    assert exported.fun_name == "layer" and [a.shape for a in exported.in_avals] == [(4, 5), (5, 6)]
    assert "stablehlo.tanh" in exported.mlir_module()
    again = hl.export.deserialize(exported.serialize())
    for one in (exported, again):
        same(one.call(X, W), hl.jit(layer)(X, W))
        with pytest.raises(ShapeError, match=r"argument 0 is float32\[3, 5\]"):
            one.call(X[:3], W)
        with pytest.raises(ArgumentError, match="call of the exported"):
            one.call(X)
    data = bytes(exported.serialize())
    for damaged in (b"", b"other", data[:30], data[:17] + b"\xff" * 8 + data[25:], data.replace(b'"in"', b'"on"', 1)):
        with pytest.raises(ParseError):
            hl.export.deserialize(damaged)
    with pytest.raises(ExportError, match="export jax.grad"):
        exported.serialize(vjp_order=1)
    with pytest.raises(ExportError, match="cpu"):
        hl.export.export(hl.jit(layer), platforms=["tpu"])
    with pytest.raises(ArgumentError, match="not jitted"):
        hl.export.export(layer)


def test_symbolic_shapes():
    batch, five = hl.export.symbolic_shape("batch, 5", constraints=["batch >= 2", "batch <= 9"])
    assert five == 5 and hl.export.is_symbolic_dim(batch) and (batch.min, batch.max) == (2, 9)
    exported = hl.export.export(hl.jit(layer))(hl.ShapeDtypeStruct((batch, 5), "float32"), W)
    same(exported.call(X, W), hl.jit(layer)(X, W))
    same(exported.call(X[:2], W), hl.jit(layer)(X[:2], W))
    with pytest.raises(ShapeError, match=r"float32\[batch, 5\]"):
        exported.call(X[:1], W)
    (spec,) = hl.export.symbolic_args_specs([X], "b, _")
    assert spec.shape[1] == 5 and spec.shape[0].name == "b"
    (spec,) = hl.export.symbolic_args_specs([X], "b, ...")
    both = hl.export.symbolic_args_specs((np.ones((2, 3)), np.ones(2)), ("b, 3", "b"), constraints=["b >= 2"])
    assert hl.eval_shape(lambda x, y: x + y[:, None], *both).shape == both[0].shape
    assert hl.export.symbolic_shape("b")[0] == hl.export.symbolic_shape("b")[0]
    assert spec.shape[1] == 5


def test_one_program_for_all_symbolic_sizes():
    """Also as bytes, which have no bound."""
    traces = []

    def layer(x, *, w):
        traces.append(x.shape)
        return {"y": hnp.tanh(x @ w), "rows": x.shape[0] * x.sum(0)}

    (b,) = hl.export.symbolic_shape("b", constraints=["b >= 2"])
    w = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    shapes = hl.ShapeDtypeStruct((b, 5), "float32"), hl.ShapeDtypeStruct((5, 3), "float32")
    exported = hl.export.export(hl.jit(layer))(shapes[0], w=shapes[1])
    assert "tensor<?x5xf32>" in exported.mlir_module()
    read = hl.export.deserialize(exported.serialize())
    for size in (2, 7, 3, 500):
        x = np.random.default_rng(size).standard_normal((size, 5)).astype(np.float32)
        for one in (exported, read):
            found = one.call(x, w=w)
            np.testing.assert_allclose(found["y"], np.tanh(x @ w), rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(found["rows"], size * x.sum(0), rtol=1e-3, atol=1e-3)
    assert len(traces) == 1
    again = hl.export.deserialize(read.serialize())
    np.testing.assert_allclose(again.call(x, w=w)["y"], np.tanh(x @ w), rtol=1e-4, atol=1e-5)
    with pytest.raises(ShapeError):
        read.call(x[:1], w=w)


def test_symbolic_shapes_with_expressions_and_constraints():
    b, twice = hl.export.symbolic_shape("b, 2*b + 1", constraints=["b % 2 == 0", "b <= 8"])
    assert str(twice) == "2*b + 1" and twice == b + b + 1 and b - b == 0 and hl.export.is_symbolic_dim(twice)

    def joined(x, y):
        return hnp.concatenate([x, y]), hnp.outer(x, y)

    shapes = [hl.ShapeDtypeStruct((size,), "float32") for size in (b, twice)]
    exported = hl.export.export(hl.jit(joined))(*shapes)
    assert [str(size) for size in exported.out_avals[0].shape] == ["3*b + 1"]
    assert exported.out_avals[1].shape == (b, twice)
    again = hl.export.deserialize(exported.serialize())
    assert [str(n) for n in again.out_avals[1].shape] == ["b", "2*b + 1"] and len(again.texts) == 4
    x, y = rng.random(4, np.float32), rng.random(9, np.float32)
    for one in (exported, again):
        same(one.call(x, y), hl.jit(joined)(x, y))
        same(hl.jit(one.call)(x, y), hl.jit(joined)(x, y))
        with pytest.raises(ShapeError, match=r"no sizes of b give the shapes \[4\], \[8\]"):
            one.call(x, y[:8])
        with pytest.raises(ShapeError, match=r"with b = 3 the constraint 'b % 2 == 0' does not hold"):
            one.call(x[:3], y[:7])
        with pytest.raises(ShapeError, match=r"float32\[b\]"):
            one.call(np.ones(10, np.float32), np.ones(21, np.float32))


def test_sizes_of_several_dimensions():
    rows, columns = hl.export.symbolic_shape("r, c", constraints=["r >= c"])
    struct = hl.ShapeDtypeStruct((rows, columns), "float32")
    program = hl.export.export(hl.jit(lambda x: (x.T @ x, x.reshape(-1))))(struct)
    assert [str(s.name if hasattr(s, "name") else s) for a in program.out_avals for s in a.shape] == ["c", "c", "c*r"]
    same(program.call(np.ones((3, 2), np.float32)), (np.full((2, 2), 3, np.float32), np.ones(6, np.float32)))
    with pytest.raises(ShapeError, match="'r >= c' does not hold"):
        program.call(np.ones((2, 3), np.float32))
    with pytest.raises(ExportError, match=r"bound them: symbolic_shape\(..., constraints=\['r <= 64'\]\)"):
        program.serialize()
    with pytest.raises(ExportError, match="do not tell the sizes of c, r"):
        hl.export.export(hl.jit(hnp.sin))(hl.ShapeDtypeStruct((rows * columns,), "float32"))


@pytest.mark.parametrize(
    ("text", "constraints", "found"),
    [
        ("b,, 2", [], "cannot be read"),
        ("b / 2", [], "'b / 2' is no size"),
        ("__import__('os')", [], "is no size"),
        ("_, b", [], "need a shape"),
        ("b", ["b is large"], "compares no two sizes"),
        ("b", ["b >= 5", "b <= 4"], "no size of 'b' is possible"),
    ],
)
def test_texts_of_shapes_that_are_none(text, constraints, found):
    with pytest.raises(ArgumentError, match=found):
        hl.export.symbolic_shape(text, constraints=constraints)


@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("zig")), reason="no C compiler")
def test_a_library_whose_arguments_have_sizes_that_depend_on_others(tmp_path):
    b = hl.Dim("b", 1, 6)
    shapes = [hl.ShapeDtypeStruct((b, 3), "float32"), hl.ShapeDtypeStruct((2 * b,), "float32")]
    library = hl.export(lambda x, y: x.sum() + y[::2] * x[:, 0], *shapes, folder=tmp_path, name="two").load()
    x, y = rng.random((4, 3), np.float32), rng.random(8, np.float32)
    found = next(iter(library.functions.values())).run([x, y])[0]
    assert np.allclose(found, x.sum() + y[::2] * x[:, 0], rtol=1e-5)
    with pytest.raises(ArgumentError, match=r"must be 8 \(2\*b\)"):
        next(iter(library.functions.values())).run([x, y[:6]])
    with pytest.raises(ExportError, match="that is b alone"):
        hl.export(hnp.sin, hl.ShapeDtypeStruct((2 * b,), "float32"), folder=tmp_path, name="sine")


def test_portable_artifacts():
    pytest.importorskip("jaxlib", reason="jaxlib writes and reads portable artifacts")
    data = hl.export.stablehlo_artifact(layer, X, W)
    assert data.startswith(b"ML\xefR") and b"StableHLO" in data[:64]
    same(hl.tree.leaves(hl.export.from_artifact(data)(X, W["a"])), hl.tree.leaves(hl.jit(layer)(X, W)))
    for damaged in (b"", b"text", data[:60]):
        with pytest.raises(ParseError, match="portable artifact"):
            hl.export.from_artifact(damaged)
    with pytest.raises(ExportError):
        hl.export.stablehlo_artifact(layer, X, W, version="900.1.0")


def test_iree_compiles_what_hloom_writes():
    compiler = pytest.importorskip("iree.compiler", reason="iree-base-compiler is an outside check")
    text = hl.jit(layer).lower(X, W).as_text("stablehlo")
    assert compiler.compile_str(text, target_backends=["llvm-cpu"], input_type="stablehlo")


def test_programs_of_jax_export_run_unchanged(tmp_path):
    """`from jax import export`, as JAX's documentation has it."""
    program = tmp_path / "program.py"
    program.write_text(
        "import hloom; hloom.as_jax()\n"
        "import jax, jax.numpy as jnp, numpy as np\n"
        "from jax import export\n"
        "exported = export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct((3,), np.float32))\n"
        "blob = exported.serialize()\n"
        "print(export.deserialize(blob).call(np.ones(3, np.float32)))\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "0.84147" in done.stdout, done.stderr
