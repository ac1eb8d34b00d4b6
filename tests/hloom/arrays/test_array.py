"""Arrays as users meet them: how they print, and their attributes and methods."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, DeviceError, ImmutableArrayError

pytestmark = pytest.mark.quick

PRINTED = [
    (lambda: hnp.array([1.0, 2.0]), "Array([1., 2.], dtype=float32)"),
    (lambda: hnp.array(1), "Array(1, dtype=int32, weak_type=True)"),
    (lambda: hnp.array([True, False]), "Array([ True, False], dtype=bool)"),
    (lambda: hnp.array([1 + 2j]), "Array([1.+2.j], dtype=complex64)"),
    (lambda: hnp.zeros((0, 3)), "Array([], shape=(0, 3), dtype=float32)"),
    (lambda: hnp.array(1.5, "bf16"), "Array(1.5, dtype=bfloat16)"),
    (lambda: hnp.arange(2000), "Array([   0,    1,    2, ..., 1997, 1998, 1999], dtype=int32)"),
    (lambda: hnp.array([[1, 2], [3, 4]], "s64"), "Array([[1, 2],\n       [3, 4]], dtype=int64)"),
    # The dtype goes below where the last line is full.
    (
        lambda: hnp.array([0.125] * 9),
        "Array([0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125],\n      dtype=float32)",
    ),
]


@pytest.mark.parametrize(("make", "text"), PRINTED, ids=[t[:30] for _, t in PRINTED])
def test_repr(make, text):
    assert repr(make()) == text


def test_repr_is_that_of_jax():
    jnp = pytest.importorskip("jax.numpy")
    for dims in [(), (1,), (7,), (13,), (14,), (15,), (40,), (3, 5), (2, 2, 2), (0,), (2, 0)]:
        for dtype in ("float32", "int32", "bool", "complex64", "bfloat16", "uint8"):
            values = np.arange(np.prod(dims, dtype=int)).reshape(dims) / 3
            ours, theirs = (np_like.asarray(values).astype(dtype) for np_like in (hnp, jnp))
            assert repr(ours).split() == repr(theirs).split()
            assert str(ours) == str(theirs)


def test_shape_methods_take_extents_one_by_one():
    x = hnp.arange(6.0)
    assert x.reshape(2, 3).shape == x.reshape((2, 3)).shape == x.reshape(2, -1).shape == (2, 3)
    np.testing.assert_array_equal(x.reshape(2, 3, order="F"), np.arange(6.0).reshape(2, 3, order="F"))
    y = hnp.zeros((2, 3, 4))
    assert y.transpose(1, 0, 2).shape == y.transpose((1, 0, 2)).shape == (3, 2, 4)
    assert y.transpose().shape == y.transpose(None).shape == y.T.shape == (4, 3, 2)
    np.testing.assert_array_equal(x.reshape(2, 3).flatten("F"), [0, 3, 1, 4, 2, 5])


def test_attributes_of_one_device():
    x = hnp.arange(3.0)
    assert not x.committed and hl.device_put(x, "cpu:0").committed
    assert x.sharding.device_set == x.devices() == {hl.devices()[0]}
    assert x.is_fully_addressable and x.is_ready() and x.on_device_size_in_bytes() == 12
    assert list(x.addressable_data(0)) == [0, 1, 2] and x.tobytes() == np.arange(3, dtype=np.float32).tobytes()
    assert (x.nbytes, x.itemsize, x.weak_type, x.aval.dtype.name) == (12, 4, False, "float32")
    assert x.unsafe_buffer_pointer() == np.asarray(x).ctypes.data
    x.delete()
    assert x.is_deleted()


def test_round_of_python():
    assert round(hnp.array(2.6)) == 3 and round(hnp.array([1.26]), 1).shape == (1,)


def test_shardings_over_one_device_and_over_several():
    from hloom.sharding import Mesh, NamedSharding, PartitionSpec, make_mesh

    mesh = make_mesh((1,), ("x",))
    sharding = NamedSharding(mesh, PartitionSpec("x", None))
    assert sharding.shard_shape((4, 2)) == (4, 2) and sharding.is_fully_replicated
    assert hl.device_put(np.ones(3), sharding).devices() == set(hl.devices())
    with pytest.raises(ArgumentError, match="axis 'y'"):
        NamedSharding(mesh, PartitionSpec("y"))
    with pytest.raises(DeviceError, match="mesh of 64 devices"):
        make_mesh((64,), ("x",))
    with hl.config(num_cpu_devices=2):
        wide = NamedSharding(Mesh(hl.devices(), "x"), PartitionSpec("x"))
        assert wide.shard_shape((4,)) == (2,) and not wide.is_fully_replicated
        assert hl.device_put(np.ones(4), wide).sharding == wide
        with pytest.raises(DeviceError, match="one device"):
            hl.jit(lambda x: x, device=wide)


def test_device_get_gives_numpy_arrays():
    from hloom.lax.transfer import device_get

    found = device_get({"a": hnp.ones(2), "b": 3})
    assert type(found["a"]) is np.ndarray and found["b"] == 3


def test_item_assignment_where_it_is_asked_for():
    x = hnp.arange(4.0)
    with pytest.raises(ImmutableArrayError, match="x.at"):
        x[0] = 5
    with hl.config(item_assignment=True):
        y, part, view = x, x[:2], np.asarray(x)
        copies = [x.copy(), hnp.array(x), hnp.asarray(x, copy=True), x.astype("f32")]
        zero, other = hnp.asarray(0.0), hnp.zeros(())
        x[x > 1] = 7
        x[0] += 1
        zero[()] = 3
        assert x is y and x.tolist() == [1, 1, 7, 7]
        assert part.tolist() == [1, 1] and view.tolist() == [0, 1, 2, 3]
        assert all(c.tolist() == [0, 1, 2, 3] for c in copies) and float(other) == float(hnp.zeros(())) == 0
        with pytest.raises(ImmutableArrayError):
            hl.jit(lambda v: v.__setitem__(0, 1))(x)
    assert x.copy() is not x


def test_scalar_types_equal_dtypes_only():
    assert hnp.float64 == np.float64 == hnp.float64 and hnp.float64 == "float64" and hnp.float64 != hnp.float32
    assert hnp.float64 != None  # noqa: E711  (NumPy's dtypes take None for float64)


def test_numpys_functions_that_change_an_argument():
    x = hnp.arange(4.0)
    with pytest.raises(ArgumentError, match="cannot change its argument"):
        hnp.put_along_axis(x, np.array([0]), 9.0, 0)
    assert hnp.put_along_axis(x, np.array([0]), 9.0, 0, False).tolist() == [9, 1, 2, 3]
    part = x[1:]
    with hl.config(item_assignment=True):
        assert hnp.put_along_axis(x, np.array([0]), 9.0, 0) is None
        hnp.put(x, [1], 5.0)
        hnp.place(x, x < 3, [7.0])
    assert x.tolist() == [9, 5, 7, 3] and part.tolist() == [1, 2, 3]


def test_views_as_pythons_types_are_as_wide_as_the_elements():
    assert hnp.ones(2, "f64").view(float).dtype == np.float64 and hnp.ones(2).view(float).dtype == np.float32
    assert hnp.ones(2, "c128").view(float).shape == (4,) and hnp.ones(2).view(int).dtype == np.int32


def test_the_type_of_arrays_makes_none():
    with pytest.raises(ArgumentError, match=r"hnp.empty\(shape, dtype\)"):
        hnp.ndarray((3,))
