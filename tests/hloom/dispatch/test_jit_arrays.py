"""Arrays in and out of compiled functions: other libraries' memory, immutability, threads, forks."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import threading

import ml_dtypes
import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ImmutableArrayError

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@hl.jit
def double(x):
    return x * 2


# --- NumPy in -----------------------------------------------------------------------------------------------------

READ_ONLY = X.copy()
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize("array", [
    X.T, X[::2, ::-1], X[:, 1], X[1], np.broadcast_to(X[0], (5, 4)), np.asfortranarray(X), X.astype(">f4"),
    X.astype(">i8"), READ_ONLY, X[:0], X[:, :0], np.float32(3), np.array(3.0), np.arange(3) > 1, X.astype("f2"),
    X.astype(ml_dtypes.bfloat16), X.astype("c8"), X.astype(np.uint64) << 60,
    np.frombuffer(b"x" + X.tobytes(), np.float32, 12, 1),
], ids=lambda a: f"{a.dtype}{list(a.shape)}")  # fmt: skip
def test_any_numpy_array_goes_in(array):
    f = hl.jit(lambda x: x | x if x.dtype == bool else x + x)
    expected = array | array if array.dtype == bool else array + array
    for _ in range(2):
        result = f(array)
        assert result.shape == array.shape and result.dtype == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(np.asarray(result), expected)


def test_an_argument_is_read_when_the_function_is_called():
    x = X.copy()
    first = double(x)
    x[:] = 0
    second = double(x)
    np.testing.assert_array_equal(first, 2 * X)
    np.testing.assert_array_equal(second, 0 * X)


def test_an_array_made_of_a_numpy_array_does_not_change_with_it():
    x = X.copy()
    view = x[:]
    view.flags.writeable = False
    arrays = [hnp.asarray(x), hnp.asarray(view), hnp.array(x), hl.device_put(x)]
    x[:] = 0
    for array in arrays:
        np.testing.assert_array_equal(array, X)


# --- out ----------------------------------------------------------------------------------------------------------


def test_arrays_cannot_be_written():
    y = double(X)
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(y)[0, 0] = 1
    with pytest.raises(ImmutableArrayError):
        y[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(y).reshape(-1)[0] = 1
    with pytest.raises(TypeError):
        memoryview(np.asarray(y))[0, 0] = 1.0
    with pytest.raises(ValueError):
        np.from_dlpack(y)[0, 0] = 1
    np.testing.assert_array_equal(y, 2 * X)
    own = np.array(y)
    own[0, 0] = 1
    np.testing.assert_array_equal(y, 2 * X)


def test_views_outlive_their_array():
    views = [np.asarray(double(X + k)) for k in range(10)]
    others = [np.from_dlpack(double(X - k)) for k in range(10)]
    for k in range(10):
        np.testing.assert_array_equal(views[k], 2 * (X + k))
        np.testing.assert_array_equal(others[k], 2 * (X - k))


@pytest.mark.parametrize("dtype", ["pred", "s8", "u64", "f16", "bf16", "f32", "f64", "c64", "c128"])
def test_pickle_and_copy(dtype):
    x = hl.jit(lambda x: x)(hnp.asarray(X).astype(dtype))
    for other in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
        assert other.dtype == x.dtype and isinstance(other, hl.Array)
        np.testing.assert_array_equal(np.asarray(other), np.asarray(x))
    assert pickle.loads(pickle.dumps(hl.jit(lambda s: s + 1)(2))).weak


@pytest.mark.parametrize("name", ["numpy", "torch", "jax.numpy"])
def test_dlpack_both_ways(name):
    library = pytest.importorskip(name)
    out = library.from_dlpack(double(X))
    np.testing.assert_array_equal(np.asarray(out), 2 * X)
    given = (library.tensor if name == "torch" else library.asarray)(X)
    back = hnp.from_dlpack(given) if hasattr(hnp, "from_dlpack") else hnp.asarray(given)
    np.testing.assert_array_equal(double(back), 2 * X)


def test_the_buffer_protocol():
    assert bytes(memoryview(np.asarray(double(X)))) == (2 * X).tobytes()
    assert np.asarray(double(X), dtype=np.float64).dtype == np.float64


# --- threads and processes ----------------------------------------------------------------------------------------


def in_threads(count, work):
    errors = []
    barrier = threading.Barrier(count)

    def run(k):
        try:
            barrier.wait()
            work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]


def test_many_threads_call_at_once():
    """Programs with temporaries: each running call needs an arena of its own."""
    functions = [
        hl.jit(lambda x: hnp.sum(hnp.exp(x - hnp.max(x, 1, keepdims=True)) @ hnp.ones((4, 5), "f32"), axis=0)),
        hl.jit(lambda x: hnp.sin(x)[::-1] + hnp.cumsum(x, 1) if hasattr(hnp, "cumsum") else hnp.sin(x)[::-1]),
        hl.jit(lambda x: (x.T @ x) * 2, fusion=False),
    ]
    large = np.tile(X, (500, 1)) / 10
    inputs = [large * (k + 1) / 8 for k in range(8)]
    expected = [[np.array(f(x)) for f in functions] for x in inputs]

    def work(k):
        for turn in range(60):
            f = functions[(k + turn) % 3]
            assert np.array(f(inputs[k])).tobytes() == expected[k][(k + turn) % 3].tobytes()

    in_threads(8, work)


def test_many_threads_compile_at_once():
    traces = []
    shared = hl.jit(lambda x: traces.append(1) or hnp.tanh(x) * 3 + x[::-1])

    def work(k):
        np.testing.assert_allclose(shared(X), np.tanh(X) * 3 + X[::-1], rtol=1e-5)
        own = hl.jit(lambda x: x * (k + 0.5) + hnp.sin(x))
        part = X[:, : k % 4 + 1]
        np.testing.assert_allclose(own(part), part * (k + 0.5) + np.sin(part), rtol=1e-5)

    in_threads(8, work)
    assert len(traces) == 1


def test_traces_of_threads_do_not_mix():
    def work(k):
        @hl.jit
        def f(x):
            total = x
            for _ in range(50):
                total = total + hnp.asarray(X) * 0 + k
            return total

        np.testing.assert_allclose(f(X), X + 50 * k)

    in_threads(4, work)


def _in_child(queue):
    queue.put((np.array(double(X)).tolist(), np.array(hl.jit(lambda x: hnp.cos(x) + 1)(X)).tolist()))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_computes_too():
    big = np.ones((400, 400), np.float32)
    hl.jit(lambda x: x @ x)(big)  # the thread pool is there before the fork
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    doubled, cosine = queue.get(timeout=60)
    child.join(20)
    assert child.exitcode == 0
    np.testing.assert_array_equal(doubled, 2 * X)
    np.testing.assert_allclose(cosine, np.cos(X) + 1, rtol=1e-5)
    assert float(hl.jit(lambda x: x @ x)(big)[0, 0]) == 400
