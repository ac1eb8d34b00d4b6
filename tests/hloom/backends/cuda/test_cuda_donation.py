"""Donation on a GPU: the result's memory is the argument's, what others hold is copied, nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from silence import no_warnings
from simulated_gpus import simulated_gpus

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import DonatedArrayError, DonationWarning
from hloom.runtime.cuda.array import DeviceArray
from hloom.runtime.cuda.errors import CudaError
from hloom.runtime.cuda.interop import import_array


@pytest.fixture
def silent():
    with no_warnings(DonationWarning):
        yield


@pytest.fixture
def driver():
    with simulated_gpus() as (driver, (device,)):
        driver.device = device
        yield driver


def on_gpu(values):
    return hl.device_put(np.asarray(values, np.float32), "cuda:0")


def numbers(count: int = 1000, first: float = 0.0):
    return np.arange(first, first + count, dtype=np.float32)


def place_of(array) -> int:
    return array._data.buffer.address


def add_five():
    return hl.jit(lambda x: x + 5, donate_argnums=0)


def test_the_result_takes_the_memory_and_the_argument_is_gone(driver):
    function, x = add_five(), on_gpu(numbers())
    place = place_of(x)
    for turn in range(1, 4):
        given, x = x, function(x)
        assert place_of(x) == place
        assert given.is_deleted()
        uses = (lambda a: a + 1, function, lambda a: hl.device_put(a, "cuda:0"), np.asarray, hl.block_until_ready)
        for use in uses:
            with pytest.raises(DonatedArrayError, match="donated"):
                use(given)
        np.testing.assert_array_equal(x, numbers(first=5.0 * turn))


@pytest.mark.usefixtures("silent")
def test_a_training_step_that_donates_its_state_keeps_one_state(driver):
    """Peak memory is one state and a gradient; from the second step on nothing is allocated and no graph is built."""
    count = 1 << 12

    def loss(state, x):
        return hnp.sum((state["w"] * x + state["b"]) ** 2)

    def step(state, momentum, x):
        gradient = hl.grad(loss)(state, x)
        momentum = hl.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
        return hl.tree.map(lambda s, m: s - 0.01 * m, state, momentum), momentum

    def trained(**options):
        function = hl.jit(step, **options)
        state = {"w": on_gpu(np.ones(count)), "b": on_gpu(np.zeros(count))}
        momentum = {"w": on_gpu(np.zeros(count)), "b": on_gpu(np.zeros(count))}
        x = on_gpu(np.ones(count))
        state, momentum = function(state, momentum, x)
        hl.block_until_ready(state)
        memory, calls = driver.device.memory(), len(driver.calls)
        for _ in range(3):
            state, momentum = function(state, momentum, x)
        hl.block_until_ready(state)
        return state, momentum, memory, driver.device.memory(), driver.counts(calls)

    state, momentum, before, after, counts = trained(donate_argnums=(0, 1))
    assert after.peak == before.peak == after.bytes_in_use  # x, the state, and what the program keeps
    assert after.misses == before.misses
    assert counts["cuGraphLaunch"] == 3
    assert not any("GraphAdd" in name or "Alloc" in name or "SetParams" in name for name in counts)
    for leaf in (*hl.tree.leaves(state), *hl.tree.leaves(momentum)):
        assert leaf._data.buffer.address in {a for a, r in driver.device.pool._live.items() if r() is not None}
    without = trained()
    assert without[3].peak >= after.peak + 4 * 4 * count
    for a, b in zip(hl.tree.leaves((state, momentum)), hl.tree.leaves(without[:2]), strict=True):
        np.testing.assert_array_equal(a, b)


def held_elsewhere(driver):
    """Pairs of an array and what keeps its elements."""
    x = on_gpu(numbers())
    yield x, hl.device_put(x, "cuda:0")  # another array over the same memory
    x = on_gpu(numbers())
    yield x, x.__dlpack__(max_version=(1, 0))
    x = on_gpu(numbers())
    yield x, x.__cuda_array_interface__


def test_memory_that_others_hold_is_copied(driver):
    function = add_five()
    for x, holder in held_elsewhere(driver):
        place, kept = place_of(x), x._data
        result = function(x)
        assert x.is_deleted() and place_of(result) != place
        np.testing.assert_array_equal(result, numbers(first=5))
        np.testing.assert_array_equal(kept.numpy(), numbers())
        del holder


def test_memory_that_a_library_has_let_go_is_reused(driver):
    x = on_gpu(numbers())
    place, capsule = place_of(x), x.__dlpack__()
    del capsule
    assert place_of(add_five()(x)) == place


def test_memory_of_another_library_is_not_written(driver):
    theirs = DeviceArray.put(driver.device, numbers())
    x = on_gpu(numbers())
    x._data = import_array(driver.device, theirs)
    result = add_five()(x)
    assert x.is_deleted() and place_of(result) != theirs.buffer.address
    np.testing.assert_array_equal(theirs.numpy(), numbers())
    np.testing.assert_array_equal(result, numbers(first=5))


def test_a_copy_to_the_host_under_way_has_the_old_elements(driver):
    x = on_gpu(numbers())
    place, coming = place_of(x), x._data.copy_to_host()
    result = add_five()(x)
    assert place_of(result) == place
    np.testing.assert_array_equal(coming.result(), numbers())
    np.testing.assert_array_equal(result, numbers(first=5))


@pytest.mark.parametrize("version", [12020, 13000])
@pytest.mark.parametrize("stepwise", [False, True])
def test_loops_and_branches_over_donated_memory(version, stepwise):
    """In one graph, run by the host, and launch by launch; at addresses that come again and at new ones."""

    def function(x, steps):
        y = hl.lax.fori_loop(0, steps, lambda _, v: v * 0.5 + 1, x)
        return hl.lax.cond(steps > 2, lambda v: v + 100, lambda v: v, y)

    with simulated_gpus(version=version, stepwise=stepwise):
        donating = hl.jit(function, donate_argnums=0)
        kept = []
        for turn in range(12):
            x, want = on_gpu(numbers(600, turn)), numbers(600, turn)
            place = place_of(x)
            for steps in (turn % 4, 1):
                x = donating(x, np.int32(steps))
                for _ in range(steps):
                    want = want * np.float32(0.5) + 1
                want = want + 100 if steps > 2 else want
                assert place_of(x) == place
            np.testing.assert_allclose(x, want, rtol=1e-6)
            kept.append((x, want))
        for x, want in kept:
            np.testing.assert_allclose(x, want, rtol=1e-6)


def test_one_array_given_twice(driver):
    function = hl.jit(lambda x, y: x + y, donate_argnums=0)
    x = on_gpu(numbers())
    for other in (x, hl.device_put(x, "cuda:0")):
        with pytest.raises(DonatedArrayError, match="twice"):
            function(x, other)
    np.testing.assert_array_equal(x, numbers())


def test_arguments_of_the_host(driver):
    """What hloom's array holds is given away, what the caller holds is not."""
    function = hl.jit(lambda x: x + 5, donate_argnums=0, device="cuda:0")
    mine, own = numbers(), hl.jit(lambda x: x * 1)(numbers())
    for _ in range(2):
        np.testing.assert_array_equal(function(mine), numbers(first=5))
    np.testing.assert_array_equal(function(own), numbers(first=5))
    assert own.is_deleted() and (mine == numbers()).all()


def test_a_result_of_another_dtype_and_one_that_fits_nowhere(driver):
    x = on_gpu(np.ones(1000))
    place = place_of(x)
    with no_warnings(DonationWarning):
        made = hl.jit(lambda v: hnp.cumsum(v).astype("int32"), donate_argnums=0)(x)
    assert place_of(made) == place and made.dtype == np.int32
    np.testing.assert_array_equal(made, np.arange(1, 1001))
    with pytest.warns(DonationWarning, match="v f32"):
        hl.jit(lambda v: v.sum(), donate_argnums=0)(on_gpu(numbers()))


CALLS = ("cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiate", "cuGraphLaunch", "cuMemAllocFromPoolAsync")


@pytest.mark.parametrize("name", CALLS)
def test_an_error_before_the_launch_leaves_the_argument(driver, name):
    function, x = add_five(), on_gpu(numbers())
    for other in (np.ones(3), np.ones(4)):  # temporaries and what compiling needs
        function(on_gpu(other))
    real = getattr(driver, name)

    def refused(*arguments):
        return (driver.CUresult(1), *(None,) * real.outputs)

    refused.outputs = real.outputs
    setattr(driver, name, refused)
    driver.device.api._graph_launch = driver.cuGraphLaunch
    held = hl.device_put(x, "cuda:0")  # so that a copy is needed, which has to be allocated
    with pytest.raises(CudaError):
        function(x)
    delattr(driver, name)
    driver.device.api._graph_launch = driver.cuGraphLaunch
    assert not x.is_deleted()
    np.testing.assert_array_equal(x, numbers())
    np.testing.assert_array_equal(function(x), numbers(first=5))
    np.testing.assert_array_equal(held, numbers())


def test_an_error_between_launches_says_that_the_argument_is_gone():
    """A Python function raises after the donated memory was written: its elements are not the argument's any more."""

    def fails(value):
        raise KeyError("from the user's function")

    def function(x):
        y = x + 5
        z = hl.pure_callback(fails, hl.ShapeDtypeStruct((1000,), np.float32), y)
        return y, z

    with simulated_gpus():
        x = on_gpu(numbers())
        with pytest.raises(KeyError, match="the user's"):
            hl.jit(function, donate_argnums=0)(x)
        with pytest.raises(DonatedArrayError):
            np.asarray(x)
