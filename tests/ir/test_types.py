"""Element types, shapes, promotion (against JAX's own lattice)."""

from __future__ import annotations

import itertools
import pickle

import ml_dtypes
import numpy as np
import pytest

from hloom.ir.errors import DTypeError
from hloom.ir.types import (
    COMPLEX,
    DTYPES,
    FLOATS,
    HLO_NAME,
    HOST_DTYPES,
    INTEGERS,
    PRED,
    Shape,
    TupleShape,
    as_dtype,
    compute_dtype,
    kind,
    promote,
    real_dtype,
    scalar_dtype,
)

pytestmark = pytest.mark.quick

LATTICE = [n for n, d in DTYPES.items() if d not in HOST_DTYPES]
# A dtype whose kind is that of a Python scalar, for JAX's weak types.
SCALARS = {"s32": 1, "f32": 1.0, "c64": 1j}


@pytest.fixture(scope="module")
def jnp():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield jax.numpy
    jax.config.update("jax_enable_x64", before)


@pytest.mark.parametrize("a, b", list(itertools.product(LATTICE, LATTICE)))
def test_promotion_of_arrays_is_that_of_jax(jnp, a, b):
    wanted = jnp.promote_types(DTYPES[a], DTYPES[b])
    assert promote((DTYPES[a], False), (DTYPES[b], False)) == (wanted, False)


@pytest.mark.parametrize("a, scalar", list(itertools.product(LATTICE, SCALARS)))
def test_promotion_with_python_scalars_is_that_of_jax(jnp, a, scalar):
    found, weak = promote((DTYPES[a], False), (DTYPES[scalar], True))
    result = jnp.zeros((), DTYPES[a]) + SCALARS[scalar]
    if result.weak_type:
        # JAX with 64 bits makes these its widest dtype of the kind; hloom only where a 64-bit integer takes part.
        assert found == (result.dtype if a in ("s64", "u64") else DTYPES[scalar])
        assert kind(found) == kind(np.dtype(result.dtype))
    else:
        assert (found, weak) == (result.dtype, False)


@pytest.mark.parametrize("a, b", list(itertools.product(SCALARS, SCALARS)))
def test_promotion_of_python_scalars_is_weak(a, b):
    order = list(SCALARS)
    widest = max(a, b, key=order.index)
    assert promote((DTYPES[a], True), (DTYPES[b], True)) == (DTYPES[widest], True)


def test_promotion_is_commutative_associative_and_idempotent():
    nodes = [(DTYPES[n], False) for n in LATTICE] + [(DTYPES[n], True) for n in SCALARS]
    for a in nodes:
        assert promote(a, a) == a
        for b in nodes:
            assert promote(a, b) == promote(b, a)
            for c in nodes[::3]:
                assert promote(a, b, c) == promote(c, b, a)
    three = [(DTYPES[n], False) for n in ("u8", "s8", "bf16")]
    assert promote(*three) == promote(promote(*three[:2]), three[2]) == (DTYPES["bf16"], False)


@pytest.mark.parametrize("name", ["s4", "u4", "f4e2m1fn", "f8e4m3fn", "f8e5m2", "f8e8m0fnu"])
def test_storage_dtypes_take_no_part_in_promotion(name):
    assert promote((DTYPES[name], False), (DTYPES[name], False)) == (DTYPES[name], False)
    with pytest.raises(DTypeError, match=f"{name}, which takes no part in promotion"):
        promote((DTYPES[name], False), (DTYPES["f32"], False))


@pytest.mark.parametrize(
    "given, name",
    [
        ("f32", "f32"),
        ("float32", "f32"),
        (np.float16, "f16"),
        (np.dtype(">f8"), "f64"),
        (ml_dtypes.bfloat16, "bf16"),
        ("bfloat16", "bf16"),
        (bool, "pred"),
        (int, "s32"),
        (float, "f32"),
        (complex, "c64"),
        ("int64", "s64"),
    ],
)
def test_as_dtype(given, name):
    assert as_dtype(given) == DTYPES[name] and as_dtype(given).isnative


@pytest.mark.parametrize("given", ["U3", object, "datetime64[s]", np.longdouble, "no such dtype"])
def test_as_dtype_of_what_hloom_has_not(given):
    with pytest.raises(DTypeError, match="is not an element type of hloom"):
        as_dtype(given)


@pytest.mark.parametrize(
    "given, repair",
    [
        ("float8", "name one of float8_e3m4, float8_e4m3, float8_e4m3fn, float8_e4m3b11fnuz, float8_e4m3fnuz, "),
        ("fp8", "name one of float8_e3m4"),
        ("e4m3", "name one of float8_e4m3, float8_e4m3fn, float8_e4m3b11fnuz, float8_e4m3fnuz"),
        ("float4", "did you mean 'float4_e2m1fn'"),
        ("bfloat", "did you mean 'bfloat16'"),
        ("fp32", "did you mean 'float32'"),
        ("floot32", "did you mean 'float32'"),
        (3, "pass a shape as one tuple"),
    ],
)
def test_names_that_are_part_of_a_dtype_s_name_them(given, repair):
    with pytest.raises(DTypeError) as caught:
        as_dtype(given)
    assert caught.value.repair.startswith(repair)


@pytest.mark.parametrize(
    "value, wanted",
    [
        (True, ("pred", False)),
        (3, ("s32", True)),
        (-(2**31), ("s32", True)),
        (2**31, ("s64", True)),
        (2**63, ("u64", True)),
        (0.5, ("f32", True)),
        (1j, ("c64", True)),
        (np.int8(3), ("s8", False)),
        (np.float64(3), ("f64", False)),
        (np.bool_(1), ("pred", False)),
    ],
)
def test_scalar_dtype(value, wanted):
    assert scalar_dtype(value) == (DTYPES[wanted[0]], wanted[1])


def test_scalar_dtype_of_a_string():
    with pytest.raises(DTypeError, match="a scalar was asked for"):
        scalar_dtype("3")


def test_kinds_partition_the_dtypes():
    kinds = {name: kind(dtype) for name, dtype in DTYPES.items()}
    assert {n for n, k in kinds.items() if k == "pred"} == {"pred"}
    for dtype in DTYPES.values():
        assert sum((dtype == PRED, dtype in INTEGERS, dtype in FLOATS, dtype in COMPLEX)) == 1
        assert HLO_NAME[dtype] in DTYPES
    assert kinds["s4"] == "signed" and kinds["u4"] == "unsigned" and kinds["f8e5m2"] == "float"


def test_real_and_compute_dtypes():
    assert real_dtype(DTYPES["c64"]) == np.float32 and real_dtype(DTYPES["c128"]) == np.float64
    assert real_dtype(DTYPES["s8"]) == np.int8
    assert compute_dtype(DTYPES["bf16"]) == np.float32 and compute_dtype(DTYPES["f64"]) == np.float64


def test_shapes_are_interned_and_immutable():
    shape = Shape("f32", (2, 3))
    assert shape is Shape(np.float32, (2, 3)) is Shape(DTYPES["f32"], (np.int64(2), 3))
    assert shape is pickle.loads(pickle.dumps(shape))
    pair = TupleShape([shape, TupleShape([])])
    assert pair is TupleShape((shape, TupleShape(()))) is pickle.loads(pickle.dumps(pair))
    assert repr(pair) == "(f32[2,3], ())"
    for frozen in (shape, pair):
        with pytest.raises(AttributeError):
            frozen.dims = ()


def test_sizes():
    assert (Shape("f64", (2, 3)).size, Shape("f64", (2, 3)).bytes, Shape("f64").size) == (6, 48, 1)
    assert Shape("f32", (0, 4)).bytes == 0 and TupleShape([Shape("s8"), Shape("f32", (2,))]).bytes == 9
    assert Shape("f32", (2,)).with_dtype("s8") is Shape("s8", (2,))
    assert Shape("f32", (2,)).with_dims([4, 5]) is Shape("f32", (4, 5))
