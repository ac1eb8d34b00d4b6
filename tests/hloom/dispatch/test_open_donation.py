"""Donated arguments of programs of open sizes: as in those of fixed ones, which are compiled beside them."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
from silence import no_warnings

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import DonatedArrayError, DonationWarning, ShapeError
from hloom.runtime.buffer import address

SIZES = (5, 64, 1, 33, 2, 0, 5, 200)


def own(value):
    """An array of hloom's own memory that nothing else refers to."""
    return hl.jit(lambda: hnp.asarray(value) * 1)()


def place_of(array) -> int:
    return address(array._value())


def jitted(function, count, donated, **options):
    return hl.jit(function, donate_argnums=donated, **options), hl.jit(
        function, donate_argnums=donated, abstracted_axes=({0: hl.Dim("n", min=0)},) * count, **options
    )


def outcome(function, values):
    """(results, which arguments are deleted, results -> the argument in whose memory they are)."""
    arrays = [own(value) for value in values]
    places = {place_of(array): k for k, array in enumerate(arrays) if array.size}
    results = hl.tree.leaves(function(*arrays))
    reused = {k: places.get(place_of(result)) for k, result in enumerate(results) if result.size}
    return [np.asarray(r) for r in results], [a.is_deleted() for a in arrays], reused


# Each takes arrays of (n, 3), (n,), (n, 3) and (n,).
PROGRAMS = {
    "element-wise": lambda a, b, c, d: (a * 2 + c, b - d),
    "one result": lambda a, b, c, d: a * b[:, None],
    "crossed": lambda a, b, c, d: (d + 1, c + 1, b + 1, a + 1),
    "read later": lambda a, b, c, d: (a + 1, a.sum() + b, c[::-1], hnp.cumsum(d)),
    "passed on": lambda a, b, c, d: (c, a, d * 2, b),
    "other dtypes": lambda a, b, c, d: (lax.bitcast_convert_type(a, "int32") + 1, b > d, c.astype("float64")),
    "reshaped": lambda a, b, c, d: (a.reshape(3, -1) + 1, c.T * 2, hnp.concatenate([b, d])),
    "loop": lambda a, b, c, d: lax.fori_loop(0, 3, lambda i, s: (s[0] * 0.5 + s[1], s[1] + i), (a, c)),
    "update": lambda a, b, c, d: (a.at[0].set(7.0), b.at[::2].add(1.0), d),
    "scan": lambda a, b, c, d: lax.scan(lambda s, row: (s + row, s * row), hnp.zeros(3), a),
    "branch": lambda a, b, c, d: lax.cond(b.sum() > 0, lambda: (a * 2, d), lambda: (c - 1, b)),
    "sort": lambda a, b, c, d: (hnp.sort(a, axis=0), hnp.argsort(b), hnp.flip(c)),
}
LEAST = {"update": 2, "read later": 1}  # sizes that the program takes


@pytest.mark.filterwarnings("ignore::hloom.errors.DonationWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_what_fixed_sizes_do(name):
    function, generator = PROGRAMS[name], random.Random(name)
    for donated in ((0,), (0, 1, 2, 3), tuple(k for k in range(4) if generator.random() < 0.5)):
        fixed, opened = jitted(function, 4, donated)
        for size in SIZES:
            if size < LEAST.get(name, 0):
                continue
            drawn = np.random.default_rng(size).standard_normal
            values = [drawn(dims).astype(np.float32) for dims in ((size, 3), size, (size, 3), size)]
            (wanted, gone, where), (found, gone_too, where_too) = outcome(fixed, values), outcome(opened, values)
            for one, other in zip(found, wanted, strict=True):
                assert one.dtype == other.dtype
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=f"{name} at {size}")
            assert gone_too == gone == [k in donated for k in range(4)]
            if size > 2:  # of small sizes more is known
                assert where_too == where, (name, size, donated)


def test_a_state_of_a_fixed_size_is_updated_in_place():
    def step(w, x):
        return w - 0.1 * hl.grad(lambda w: (hnp.tanh(x @ w) ** 2).mean())(w)

    compiled = hl.jit(step, donate_argnums=0, abstracted_axes=(None, {0: "n"}))
    w = own(np.ones((24, 8), np.float32))
    wanted = np.asarray(w).copy()
    w = own(wanted)
    for size in (7, 30, 1, 64, 7):
        x = np.random.default_rng(size).standard_normal((size, 24)).astype(np.float32)
        place, before = place_of(w), w
        w, wanted = compiled(w, x), np.asarray(step(hnp.asarray(wanted), x))
        assert place_of(w) == place and before.is_deleted()
        np.testing.assert_allclose(w._value(), wanted, rtol=1e-4, atol=1e-5)


def test_lowered_for_structs():
    n = hl.Dim("n")
    compiled = hl.jit(lambda x: x + 5, donate_argnums=0).lower(hl.ShapeDtypeStruct((n,), "float32")).compile()
    for size in (9, 1, 40):
        x = own(np.ones(size, np.float32))
        place = place_of(x)
        result = compiled(x)
        assert place_of(result) == place and x.is_deleted() and (np.asarray(result) == 6).all()


def add_five():
    return hl.jit(lambda x: x + 5, donate_argnums=0, dims={"x": ("n",)})


@pytest.mark.parametrize("view", [
    lambda x: x.reshape(2, 5), lambda x: x[2:4], lambda x: x[None], np.asarray, np.from_dlpack, hl.device_put,
    lambda x: hl.tree.map(lambda leaf: leaf, [x]),
])  # fmt: skip
def test_memory_that_something_else_looks_at_keeps_its_values(view):
    function = add_five()
    for _ in range(2):
        x = own(np.ones(10, np.float32))
        seen = view(x)
        assert np.asarray(function(x)).tolist() == [6] * 10
        assert x.is_deleted()
        if not isinstance(seen, list):
            assert (np.asarray(seen) == 1).all()


@pytest.mark.parametrize("writeable", [True, False])
def test_a_callers_numpy_array_keeps_its_values(writeable):
    function = add_five()
    memory = np.ones(41, np.uint8).repeat(4)[1:161].view(np.float32)  # at an odd address
    for x in (np.ones(4, np.float32), memory):
        before = x.copy()
        x.flags.writeable = writeable
        for _ in range(3):
            assert np.asarray(function(x)).tolist() == (before + 5).tolist()
        np.testing.assert_array_equal(x, before)


def test_errors_leave_the_arguments_alone():
    n = hl.Dim("n", 2, 64, multiple_of=2)
    function = hl.jit(lambda x, y: (x + y, x - y), donate_argnums=(0, 1), dims={"x": (n,), "y": (n,)})
    for sizes in ((5, 5), (66, 66), (4, 6)):
        x, y = (own(np.ones(size, np.float32)) for size in sizes)
        with pytest.raises(ShapeError, match=r"(?s)n.*test_open_donation.py"):
            function(x, y)
        assert float((x * 1).sum()) == sizes[0] and float(y.sum()) == sizes[1]
    x = own(np.ones(4, np.float32))
    with pytest.raises(DonatedArrayError, match=r"(?s)one array twice.*test_open_donation.py"):
        function(x, x)
    assert float(x.sum()) == 4
    function(x, own(np.ones(4, np.float32)))
    with pytest.raises(DonatedArrayError):
        function(x, own(np.ones(4, np.float32)))


def test_a_number_without_room_leaves_the_arguments_alone():
    function = hl.jit(lambda x: x + x.shape[0] ** 3, donate_argnums=0, dims={"x": ("n",)})
    assert int(function(own(np.zeros(9, np.int32)))[0]) == 729
    x = own(np.zeros(1291, np.int32))
    with pytest.raises(ShapeError, match=r"(?s)at most has room.*test_open_donation.py"):
        function(x)
    assert not x.is_deleted() and int(x.sum()) == 0


def test_variants_reuse_what_they_can():
    """Arrays of (1, 3) and (n, 3) are of one size in the variant for n == 1 alone."""
    function = hl.jit(lambda x, y: x * 2 + y, donate_argnums=1, dims={"x": ("n", 3)})
    for size, reused in ((4, False), (1, True), (9, False), (1, True)):
        x, y = own(np.full((size, 3), 2.0, np.float32)), own(np.ones((1, 3), np.float32))
        place = place_of(y)
        if size == 4:
            with pytest.warns(DonationWarning, match=r"arguments of .* no result could reuse: y f32\[1,3\]") as caught:
                result = function(x, y)
            assert caught[0].filename == __file__
        else:
            with no_warnings(DonationWarning):  # each argument is named once
                result = function(x, y)
        assert (place_of(result) == place) is reused and y.is_deleted() and (np.asarray(result) == 5).all()


def test_arguments_that_are_reused_cause_no_warning():
    with no_warnings(DonationWarning):
        function = add_five()
        for size in SIZES[:5]:
            function(own(np.ones(size, np.float32)))


def test_programs_with_steps_in_python():
    def double(x):
        return hl.pure_callback(lambda v: np.asarray(v) * 2, hl.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

    function = hl.jit(double, donate_argnums=0, dims={"x": ("n",)})
    for size in (6, 1, 20, 6):
        x = own(np.ones(size, np.float32))
        assert np.asarray(function(x)).tolist() == [3] * size and x.is_deleted()


def test_threads_that_donate():
    function = hl.jit(lambda x, k: x * 2 + k, donate_argnums=0, dims={"x": ("n",)})
    wrong = []

    def work(k):
        x = own(np.zeros(1000 + k % 3, np.float32))
        for _ in range(50):
            x = function(x * 0 + 1, np.float32(k))
        if not (np.asarray(x) == 2 + k).all():
            wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
