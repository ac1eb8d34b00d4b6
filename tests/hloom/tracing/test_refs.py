"""Refs: reading and writing in and out of traces, and what functions around them make of it."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import ArgumentError, BatchingError, HloomError, IndexOutOfBoundsError, UnsupportedError

pytestmark = pytest.mark.quick


def test_every_form_of_index():
    ref, plain = hl.new_ref(hnp.arange(12.0).reshape(3, 4)), np.arange(12.0).reshape(3, 4)
    for where in (1, (2, 3), (slice(None), 1), (0, slice(3)), (np.array([1, 2]), np.array([0, 1])), ...):
        np.testing.assert_array_equal(ref[where], plain[where])
        ref[where] = ref[where] * 2 + 1
        plain[where] = plain[where] * 2 + 1
        np.testing.assert_array_equal(ref[...], plain)
    assert ref.shape == (3, 4) and ref.dtype == np.float32 and ref.ndim == 2 and len(ref) == 3


def test_functions_of_refs():
    ref = hl.new_ref(hnp.zeros(3))
    hl.ref.set(ref, 0, 5.0)
    assert float(hl.ref.swap(ref, 0, 7.0)) == 5.0 and float(hl.ref.get(ref, 0)) == 7.0
    hl.ref.addupdate(ref, np.array([1, 1]), 1.0)
    np.testing.assert_array_equal(ref[...], [7, 2, 0])
    assert repr(ref) == "Ref([7., 2., 0.], dtype=float32)"


def test_jit_reads_and_writes_what_it_closes_over():
    count = hl.new_ref(hnp.zeros(2))

    @hl.jit
    def step(x):
        count[1] += x
        return count[...].sum()

    assert [float(step(2.0)), float(step(3.0))] == [2.0, 5.0]
    count[0] = 10.0
    assert float(step(1.0)) == 16.0


def test_jit_takes_refs_as_arguments_each_time_others():
    @hl.jit
    def add(ref, x):
        ref[0] += x
        return ref[0] * 2

    first, second = hl.new_ref(hnp.zeros(2)), hl.new_ref(hnp.ones(2))
    assert float(add(first, 1.0)) == 2.0 and float(add(second, 1.0)) == 4.0 and float(add(first, 1.0)) == 4.0
    np.testing.assert_array_equal(first[...], [2, 0])
    np.testing.assert_array_equal(second[...], [2, 1])


def test_jit_inside_of_jit():
    total = hl.new_ref(0.0)

    @hl.jit
    def inner():
        total[...] += 1.0

    @hl.jit
    def outer():
        inner()
        inner()

    outer()
    outer()
    assert float(total[...]) == 4.0


def product(xs):
    found = hl.new_ref(1.0)

    def step(carry, x):
        found[...] *= x
        return carry, found[...]

    _, partial = lax.scan(step, 0, xs)
    return found[...] + partial.sum()


@pytest.mark.parametrize("wrap", [lambda f: f, hl.jit], ids=["eager", "jit"])
def test_gradients_through_refs_in_loops(wrap):
    xs = hnp.array([2.0, 3.0, 5.0])
    assert float(wrap(product)(xs)) == 30 + 2 + 6 + 30
    np.testing.assert_allclose(wrap(hl.grad(product))(xs), [30 / 2 * 2 + 1 + 3, 30 / 3 * 2 + 2, 30 / 5 * 2])


def test_loops_and_branches():
    ref = hl.new_ref(0)

    def body(i):
        ref[...] += i
        return i + 1

    def run(n):
        return lax.while_loop(lambda i: i < n, body, 0)

    assert int(run(5)) == 5 and int(ref[...]) == 10
    assert int(hl.jit(run)(3)) == 3 and int(ref[...]) == 13
    lax.fori_loop(0, 4, lambda i, _: ref.set(ref[...] + 1), None)
    assert int(ref[...]) == 17
    choose = hl.jit(lambda p: lax.cond(p, lambda: ref.set(-1), lambda: ref.addupdate(1)))
    choose(False)
    assert int(ref[...]) == 18
    choose(True)
    assert int(ref[...]) == -1
    lax.switch(1, [lambda: ref.set(0), lambda: ref.set(7)])
    assert int(ref[...]) == 7


def test_gradient_of_a_function_that_keeps_records():
    log = hl.new_ref(hnp.zeros(2))

    def loss(w):
        log[0] = 2 * w
        log[1] += 1
        return w**2

    assert float(hl.grad(loss)(3.0)) == 6.0
    np.testing.assert_array_equal(log[...], [6, 1])
    value, gradient = hl.jit(hl.value_and_grad(loss))(4.0)
    assert (float(value), float(gradient)) == (16.0, 8.0)
    np.testing.assert_array_equal(log[...], [8, 2])


def test_vmap_gives_each_problem_its_entry():
    def write(x, out):
        out[...] = 2 * x

    out = hl.new_ref(hnp.zeros(3))
    hl.vmap(write)(hnp.arange(3.0), out)
    np.testing.assert_array_equal(out[...], [0, 2, 4])
    columns = hl.new_ref(hnp.zeros((2, 3)))
    hl.vmap(write, in_axes=(0, 1))(hnp.arange(3.0), columns)
    np.testing.assert_array_equal(columns[...], [[0, 2, 4]] * 2)
    scale = hl.new_ref(10.0)
    np.testing.assert_array_equal(hl.vmap(lambda x: x * scale[...])(hnp.arange(3.0)), [0, 10, 20])
    with pytest.raises(BatchingError):
        hl.vmap(lambda x: scale.set(x))(hnp.arange(3.0))
    assert float(scale[...]) == 10.0


def test_refs_inside_are_no_effect_outside():
    def normalized(x):
        total = hl.new_ref(0.0)
        total[...] = x.sum()
        return x / total[...]

    x = hnp.arange(1.0, 4.0)
    np.testing.assert_allclose(hl.grad(lambda x: normalized(x)[0])(x), [5 / 36, -1 / 36, -1 / 36], rtol=1e-6)
    np.testing.assert_allclose(hl.vmap(normalized)(hnp.stack([x, x]))[1], x / 6, rtol=1e-6)


def test_mistakes():
    ref = hl.new_ref(hnp.zeros(3))
    with pytest.raises(ArgumentError, match="ref\\[...\\]"):
        hnp.sin(ref)
    with pytest.raises(IndexOutOfBoundsError):
        ref[3] = 1.0
    with pytest.raises(UnsupportedError, match="Ref of f32\\[3\\]"):
        hl.jvp(lambda x: x * ref[0], (1.0,), (1.0,))
    with pytest.raises(ArgumentError, match="twice"):
        hl.jit(lambda a, b: a[0] + b[0])(ref, ref)
    leaked = []
    hl.jit(lambda: leaked.append(hl.new_ref(1.0)))()
    with pytest.raises(HloomError, match="trace ended"):
        leaked[0][...]
    array = hl.freeze(ref)
    np.testing.assert_array_equal(array, [0, 0, 0])
    with pytest.raises(ArgumentError, match="frozen"):
        ref[0]


def test_cotangents_are_added_to_refs():
    x, w = hnp.arange(3.0), hnp.ones(3)
    total = hl.new_ref(hnp.zeros(3))
    for k in (0, 2, 0):
        _, pull = hl.vjp(lambda x, w, k=k: x[k] * w.sum(), x, w)
        by_x, by_w = pull.with_refs(total, hl.ad.DontWant())(1.0)
        assert by_x is None and by_w == hl.ad.DidntWant()
    np.testing.assert_array_equal(total[...], [6, 0, 3])

    def mean_gradient(batches):
        found = hl.new_ref(hnp.zeros(3))

        def step(_, batch):
            value, pull = hl.vjp(lambda w: (batch * w).sum(), w)
            pull.with_refs(found)(hnp.ones_like(value))
            return None, value

        lax.scan(step, None, batches)
        return hl.freeze(found)

    np.testing.assert_array_equal(hl.jit(mean_gradient)(hnp.arange(6.0).reshape(2, 3)), [3, 5, 7])
    trees = {"a": hl.new_ref(hnp.zeros(())), "b": hl.new_ref(hnp.zeros(()))}
    _, pull = hl.vjp(lambda t: t["a"] * t["b"], {"a": 2.0, "b": 5.0})
    pull.with_refs(trees)(1.0)
    assert (float(trees["a"][...]), float(trees["b"][...])) == (5.0, 2.0)
    assert float(pull.with_refs(hl.ad.GradValue())(1.0)[0]["a"]) == 5.0
    with pytest.raises(ArgumentError, match="with_refs"):
        pull.with_refs(None, None)(1.0)
