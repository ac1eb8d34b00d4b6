"""Arrays from and for NumPy and PyTorch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, DTypeError

X = np.arange(6, dtype=np.float64).reshape(2, 3)


def test_numpys_arrays_keep_their_dtype():
    x = hl.from_numpy(X)
    assert x.dtype == np.float64 and isinstance(x, hl.Array)
    back = hl.to_numpy(x)
    back[0, 0] = 9
    assert float(x[0, 0]) == 0 and float(np.asarray(x)[0, 0]) == 0
    with hl.config(narrow_numpy=True):
        assert hl.from_numpy(X).dtype == np.float64


def test_memory_is_shared_where_it_is_asked_for():
    memory = X.copy()
    shared, copied = hl.from_numpy(memory, copy=False), hl.from_numpy(memory)
    memory[0, 0] = 7
    assert float(shared[0, 0]) == 7 and float(copied[0, 0]) == 0
    assert np.shares_memory(np.asarray(shared), memory) and memory.flags.writeable
    np.testing.assert_array_equal(hl.jit(lambda x: x + 1)(shared), memory + 1)
    # Memory in another order is copied.
    np.testing.assert_array_equal(hl.from_numpy(memory.T, copy=False), memory.T)


def test_what_is_no_array():
    with pytest.raises(ArgumentError, match="takes a NumPy array"):
        hl.from_numpy([1, 2])
    with pytest.raises(ArgumentError, match="a tensor of PyTorch"):
        hl.from_torch(X)
    with pytest.raises(DTypeError, match="not an element type"):
        hl.from_numpy(np.array(["text"]), copy=False)


DTYPES = ["bool", "int8", "uint8", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "float8_e5m2"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_both_ways(dtype):
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([[0, 1], [2, 3]]).to(getattr(torch, dtype))
    expected = np.array([[0, 1], [2, 3]]).astype(getattr(ml_dtypes, dtype, dtype))
    for x in (hl.from_torch(tensor), hl.from_torch(tensor, copy=False), hnp.asarray(tensor), hnp.from_dlpack(tensor)):
        assert x.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(x), expected)
    for back in (hl.to_torch(x), hl.to_torch(x, copy=False)):
        assert back.dtype == tensor.dtype and back.to(torch.float32).equal(tensor.to(torch.float32))


def test_tensors_of_other_kinds():
    torch = pytest.importorskip("torch")
    weights = torch.ones(3, requires_grad=True)
    assert hl.from_torch(weights).tolist() == [1, 1, 1] and hnp.sum(weights) == 3
    turned = torch.arange(6.0).reshape(2, 3).T
    np.testing.assert_array_equal(hl.from_torch(turned), turned.numpy())
    np.testing.assert_array_equal(hl.from_torch(torch.tensor([1 + 2j]).conj()), np.array([1 - 2j], np.complex64))
    with pytest.raises(ArgumentError, match="dense tensors"):
        hl.from_torch(torch.eye(3).to_sparse())
    tensor = hl.to_torch(hnp.zeros(3))
    tensor[0] = 5  # its own memory
    with pytest.raises(DTypeError, match="PyTorch has no s4"):
        hl.to_torch(hnp.zeros(3, "s4"))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "bfloat16", "float32", "complex64"])
def test_arrays_of_jax_keep_their_dtype(dtype):
    jnp = pytest.importorskip("jax.numpy")
    theirs = jnp.ones((2, 3), dtype)
    for x in (hnp.asarray(theirs), hnp.from_dlpack(theirs), hl.jit(lambda x: x)(theirs)):
        assert str(x.dtype) == dtype and x.shape == (2, 3)
    np.testing.assert_array_equal(np.asarray(jnp.asarray(hnp.ones(3, dtype))), np.ones(3))


def test_numbers_of_python_take_the_default_dtype():
    assert hnp.asarray([1, 2]).dtype == hnp.asarray(range(3)).dtype == np.int32
    assert hnp.asarray(((1.5,),)).dtype == np.float32 and hnp.asarray([1j]).dtype == np.complex64
