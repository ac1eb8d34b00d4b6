"""Threads of BLAS libraries follow `num_threads` and the size, and are as before when no program is inside."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  its BLAS is another one than NumPy's
from threadpoolctl import ThreadpoolController

import hloom as hl
import hloom.numpy as hnp
from hloom.backends.cpu import blas_threads, host_callbacks
from hloom.backends.cpu.blas_threads import THREADED, limited


def _threads() -> list[int]:
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    return [library.get_num_threads() for library in libraries]


@pytest.fixture(autouse=True)
def three_threads():
    with ThreadpoolController().limit(limits=3, user_api="blas"):
        if not _threads() or set(_threads()) != {3}:
            pytest.skip("the BLAS here has no threads that can be set")
        yield
        assert set(_threads()) == {3}


def test_most_matrices_have_one_thread_and_large_ones_those_of_the_setting():
    with limited(1e6, 4):
        assert set(_threads()) == {1}
    with limited(THREADED, 2):
        assert set(_threads()) == {2}


def test_calls_at_the_same_time_leave_the_number_as_it_was():
    inside, leave = threading.Barrier(3), threading.Event()

    def call():
        with limited(1e6, 4):
            inside.wait()
            leave.wait()

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait()
    assert set(_threads()) == {1}
    leave.set()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    ("function", "size", "expected"),
    [
        (hnp.linalg.cholesky, 600, [1]),
        (lambda x: hnp.linalg.eigh(x)[0], 128, [1]),
        (lambda x: hnp.linalg.svd(x)[1], 64, [1]),
        (hnp.linalg.inv, 200, [1]),
        (lambda x: hnp.linalg.solve(x, x[0]), 200, [1]),
    ],
    ids=["cholesky", "eigh", "svd", "inv", "solve"],
)
def test_programs_call_lapack_with_one_thread(monkeypatch, function, size, expected):
    seen = []

    def observed(work, threads):
        seen.append(1 if work < THREADED else threads)
        return limited(work, threads)

    monkeypatch.setattr(host_callbacks, "limited", observed)
    matrix = np.eye(size, dtype=np.float32) * 3 + np.float32(0.01)
    result = np.asarray(hl.jit(function)(matrix))
    assert sorted(set(seen)) == expected
    np.testing.assert_allclose(result, np.asarray(function(hnp.asarray(matrix))), rtol=1e-4, atol=1e-5)


def test_an_error_leaves_the_number_as_it_was():
    with pytest.raises(ValueError, match="mine"), limited(1e6, 4):
        raise ValueError("mine")
    assert blas_threads._limit._inside == 0
