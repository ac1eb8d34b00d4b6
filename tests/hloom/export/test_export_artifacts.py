"""StableHLO artifacts and `jax.export`'s names: written, read, called, and refused where damaged."""

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
    assert five == 5 and hl.export.is_symbolic_dim(batch) and (batch.least, batch.most) == (2, 9)
    exported = hl.export.export(hl.jit(layer))(hl.ShapeDtypeStruct((batch, 5), "float32"), W)
    same(exported.call(X, W), hl.jit(layer)(X, W))
    same(exported.call(X[:2], W), hl.jit(layer)(X[:2], W))
    with pytest.raises(ShapeError, match=r"float32\[batch, 5\]"):
        exported.call(X[:1], W)
    with pytest.raises(ExportError, match="symbolic shapes"):
        exported.serialize()
    with pytest.raises(ArgumentError, match="no number and no name"):
        hl.export.symbolic_shape("2*b")
    with pytest.raises(ArgumentError, match="no limit of a dimension"):
        hl.export.symbolic_shape("b", constraints=["b is large"])
    (spec,) = hl.export.symbolic_args_specs([X], "b, _")
    assert spec.shape[1] == 5 and spec.shape[0].name == "b"


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
