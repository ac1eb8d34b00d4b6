"""Sizes that a jitted function computes: results are those of NumPy, or an error says what is not known."""

from __future__ import annotations

import numpy as np
import pytest
from counted_programs import check_counted

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.compiler.transforms.counted import counted_program
from hloom.errors import (
    BatchingError,
    ConcretizationTypeError,
    HloomError,
    NonFiniteError,
    ShapeError,
    TracerError,
    UndecidedSizeError,
    UnsupportedError,
)
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.tree import pytrees as tree

X = np.array([3, -1, 0, 5, -2, 5, 4, -7, 1, 0, 2, -3], np.float32)
ARGUMENTS = {"some": X, "none": -np.abs(X), "all": np.abs(X) + 1, "one": np.where(X == 4, X, -1).astype(np.float32)}

RIGHT = {
    "mask": lambda x: x[x > 0],
    "mask of rows": lambda x: hnp.reshape(x, (4, 3))[x[:4] > 0],
    "mask of columns": lambda x: hnp.reshape(x, (4, 3))[:, x[:3] > 0],
    "mask of rank 2": lambda x: hnp.reshape(x, (4, 3))[hnp.reshape(x, (4, 3)) > 0],
    "mask and integer": lambda x: hnp.reshape(x, (4, 3))[x[:4] > 0, 1],
    "nonzero": lambda x: hnp.nonzero(hnp.reshape(x, (4, 3))),
    "flatnonzero": lambda x: hnp.flatnonzero(x > 1),
    "argwhere": lambda x: hnp.argwhere(hnp.reshape(x, (3, 4)) > 1),
    "where": lambda x: hnp.where(x > 1),
    "compress": lambda x: hnp.compress(x[:4] > 1, hnp.reshape(x, (4, 3)), axis=0),
    "extract": lambda x: hnp.extract(x > 1, x),
    "elementwise": lambda x: hnp.exp(x[x > 0] * 2 - 1) / (1 + x[x > 0] ** 2),
    "equal masks": lambda x: x[x > 0] * (2 * x)[x > 0] + hnp.arange(12.0)[x > 0],
    "sum": lambda x: x[x > 0].sum(),
    "sum of infinite": lambda x: (1 / hnp.where(x > 0, x, 0))[x > 0].sum(),
    "sum of s64": lambda x: hnp.astype(x[x > 0], "s32").sum(dtype="s64"),
    "prod": lambda x: x[x > 3].prod(),
    "mean": lambda x: x[x > 0].mean(),
    "std": lambda x: x[x > 0].std(),
    "any": lambda x: (x[x > 0] > 4).any(),
    "all": lambda x: (x[x > 0] > 0).all(),
    "count": lambda x: hnp.count_nonzero(x[x > -2]),
    "max of rows": lambda x: hnp.reshape(x, (4, 3))[x[:4] > 0].max(axis=1),
    "max with initial": lambda x: (x[x > 0].max(initial=-1), x[x > 0].min(initial=9)),
    "sum of an axis": lambda x: hnp.reshape(x, (4, 3))[x[:4] > 0].sum(axis=0),
    "dot": lambda x: hnp.dot(x[x > 0], x[x > 0]),
    "matmul": lambda x: hnp.reshape(x, (4, 3))[x[:4] > 0].T @ hnp.reshape(x, (4, 3))[x[:4] > 0],
    "matmul of rows": lambda x: hnp.reshape(x, (4, 3))[x[:4] > 0] @ hnp.reshape(x, (3, 4)),
    "value of the size": lambda x: x[x > 0].shape[0] * 1.5 + x[x > 0].size,
    "shape of a new array": lambda x: (hnp.ones(x[x > 0].shape), hnp.arange(x[x > 0].shape[0])),
    "an array like it": lambda x: (hnp.zeros_like(x[x > 0]), hnp.full_like(x[x > 0], 3)),
    "centred": lambda x: x[x > 0] - x[x > 0].mean(keepdims=True),
    "outer": lambda x: x[x > 0][:, None] * x[x < 3][None, :],
    "column": lambda x: x[x > 0][:, None] * hnp.ones(3),
    "flat": lambda x: hnp.ravel(hnp.reshape(x, (4, 3))[x[:4] > 0]),
    "stacked": lambda x: hnp.stack([x[x > 0], -x[x > 0]], axis=1),
    "tail": lambda x: x[x > 0][1:],
    "head": lambda x: x[x > 0][:-1],
    "every second": lambda x: x[x > 0][::2],
    "padded": lambda x: hnp.pad(x[x > 0], (1, 2), constant_values=9),
    "set": lambda x: x.at[x > 0].set(7.0),
    "set to selected": lambda x: x.at[x > 0].multiply(hnp.arange(12.0)[x > 0]),
    "scattered": lambda x: hnp.zeros(20).at[hnp.flatnonzero(x > 0)].add(x[x > 0]),
    "taken": lambda x: hnp.take(hnp.arange(12.0), hnp.flatnonzero(x > 0)),
    "columns taken": lambda x: hnp.reshape(x, (4, 3))[x[:4] > 0][:, hnp.asarray([2, 0])],
    "nested jit": lambda x: hl.jit(lambda y: y[y > 0].sum() + y[y > 2].sum())(x) * hl.jit(lambda y: y * 2)(x[x > 0]),
    "reversed": lambda x: x[x > 0][::-1],
    "tail after tail": lambda x: (x[x > 0][1:][2:], x[x > 0][3:-2], x[x > 0][::-1][:2]),
    "behind a computed place": lambda x: hnp.arange(20)[x[x > 0].shape[0] :],
    "joined": lambda x: hnp.concatenate([x[x > 0], x, x[x < 0], x[:2]]),
    "joined complements": lambda x: hnp.concatenate([x[x > 0], hnp.ones(12 - x[x > 0].shape[0]), x[x > 0]]),
    "sorted": lambda x: (hnp.sort(x[x > -2]), hnp.argsort(-x[x > -2])),
    "sorted rows": lambda x: hnp.sort(hnp.reshape(x, (4, 3))[x[:4] > 0], axis=0),
    "sorted with NaN": lambda x: hnp.sort(hnp.sqrt(x)[x > -4]),
    "partitioned": lambda x: hnp.flip(hnp.sort(x[x > 0])) * hnp.arange(x[x > 0].size),
    "unique": lambda x: hnp.unique(x, return_index=True, return_inverse=True, return_counts=True),
    "unique rows": lambda x: hnp.unique(hnp.reshape(hnp.sign(x), (6, 2)), axis=0),
    "unique of two": lambda x: hnp.union1d(x, x + 1).sum() + hnp.unique(x).max(),
    "beside others": lambda x: (x + 1, x[x > 0], x.sum()),
}  # fmt: skip


def outcome(function, x):
    """The arrays of what a function returns, or ShapeError for an array that must not be empty."""
    try:
        return [np.asarray(hnp.asarray(leaf)) for leaf in tree.leaves(function(x))]
    except ShapeError as error:
        if isinstance(error, UndecidedSizeError):
            raise
        return ShapeError


def assert_equal(found, wanted):
    if ShapeError in (found, wanted):
        assert found is wanted
        return
    assert [f.shape for f in found] == [w.shape for w in wanted]
    for f, w in zip(found, wanted, strict=True):
        assert f.dtype == w.dtype
        np.testing.assert_allclose(f, w, rtol=2e-6)


@pytest.mark.parametrize("name", RIGHT)
def test_results_are_those_outside_of_jit(name):
    function, compiled = RIGHT[name], hl.jit(RIGHT[name])
    for x in map(hnp.asarray, ARGUMENTS.values()):
        assert_equal(outcome(compiled, x), outcome(function, x))


def test_one_program_serves_all_counts():
    traces = []

    @hl.jit
    def positive(x):
        traces.append(None)
        return x[x > 0]

    for x in ARGUMENTS.values():
        found = positive(x)
        assert np.asarray(found).tolist() == x[x > 0].tolist()
        assert np.asarray(found).base is None or np.asarray(found).base.nbytes <= found.nbytes
    assert len(traces) == 1
    assert positive.lower(X).compile()(X).shape == (6,)


@pytest.mark.parametrize("name, reduce", [("max", hnp.max), ("min", hnp.min), ("argmax", hnp.argmax), ("ptp", hnp.ptp)])
def test_what_needs_an_element_is_an_error_of_the_call(name, reduce):
    def function(x):
        return reduce(x[x > 0])  # the line

    compiled = hl.jit(function)
    assert compiled(X) == reduce(X[X > 0])
    with pytest.raises(ShapeError, match="nothing was selected") as error:
        compiled(ARGUMENTS["none"])
    assert error.value.source.line == function.__code__.co_firstlineno + 1 and error.value.repair
    assert compiled(X) == reduce(X[X > 0])


def test_gradients_pass_through_masks():
    def loss(x, w):
        return ((x[x > 0] * w[x > 0]) ** 2).sum() + x[x > 0].mean() + hnp.exp(-x[x > 1]).sum() + x[1:][x[1:] > 0].max()

    w = np.linspace(0.5, 2, 12, dtype=np.float32)
    for x in (X, ARGUMENTS["all"]):
        found = hl.jit(hl.grad(loss, argnums=(0, 1)))(x, w)
        for f, wanted in zip(found, hl.grad(loss, argnums=(0, 1))(x, w), strict=True):
            np.testing.assert_allclose(f, wanted, rtol=2e-6)
        ordered = lambda x: ((x[x > 0] ** 2)[::-1] * hnp.concatenate([x[x > 1], x[x > 1]]).sum()).sum()  # noqa: E731
        np.testing.assert_allclose(hl.jit(hl.grad(ordered))(x), hl.grad(ordered)(x), rtol=2e-6)
        tangent = hl.jit(lambda x: hl.jvp(lambda x: x[x > 0] ** 2, (x,), (hnp.ones(12),)))(x)
        assert np.asarray(tangent[1]).tolist() == (2 * x[x > 0]).tolist()


def test_other_transforms_pass_through_masks():
    def loss(x):
        return (hnp.sin(x[x > 0]) ** 2).sum() * x[x < 0].mean()

    def fixed(x):
        return hnp.where(x > 0, hnp.sin(x) ** 2, 0).sum() * hnp.where(x < 0, x, 0).sum() / 4

    for transform in (hl.jacfwd, hl.jacrev, hl.hessian, lambda f: hl.grad(hl.checkpoint(f))):
        wanted = transform(fixed)(hnp.asarray(X))
        np.testing.assert_allclose(hl.jit(transform(loss))(X), wanted, rtol=1e-5, atol=1e-6)
    sums = hl.jit(lambda x: hl.vmap(lambda k: (x[x > 0] * k).sum())(hnp.arange(4.0)))
    assert np.asarray(sums(X)).tolist() == [0, 20, 40, 60]


def test_a_size_is_known_where_nobody_reads_the_array():
    key = hl.random.key(0)
    sample = hl.jit(lambda x: hl.random.normal(key, x[x > 0].shape))
    for x in ARGUMENTS.values():
        assert_equal([np.asarray(sample(x))], [np.asarray(hl.random.normal(key, x[x > 0].shape))])
    assert hl.jit(lambda x: hl.jit(lambda y: hnp.ones(y[y > 0].shape))(x).sum())(X) == 6


def test_loops_and_branches_compute_sizes_of_their_own():
    def looped(x):
        return lax.scan(lambda total, k: (total + (x + k)[x + k > 0].sum(), (x > k).sum()), 0.0, hnp.arange(-3.0, 3.0))

    def branched(x):
        return lax.cond(x[0] > 0, lambda x: x[x > 0].sum(), lambda x: x[x < 0].prod(), x)

    def repeated(x):
        return lax.while_loop(lambda x: x[x > 0].sum() > 1, lambda x: x - x[x > 0].mean(), x)

    for x in ARGUMENTS.values():
        shifted = [x + k for k in np.arange(-3, 3)]
        found, each = hl.jit(looped)(x)
        assert found == sum(y[y > 0].sum() for y in shifted)
        assert np.asarray(each).tolist() == [(x > k).sum() for k in range(-3, 3)]
        assert hl.jit(branched)(x) == (x[x > 0].sum() if x[0] > 0 else x[x < 0].prod())
        wanted = x
        while wanted[wanted > 0].sum() > 1:
            wanted = wanted - wanted[wanted > 0].mean(dtype=np.float32)
        np.testing.assert_allclose(hl.jit(repeated)(x), wanted, rtol=1e-5)


def _captured(x, outer):
    return lax.scan(lambda total, k: (total + hnp.sum(k * outer), k), 0.0, x)


REFUSED = {
    "a Python integer": (lambda x: int(x[x > 0].shape[0]), UndecidedSizeError),
    "a branch": (lambda x: x if x[x > 0].shape[0] > 3 else -x, UndecidedSizeError),
    "a loop": (lambda x: sum(x[x > 0]), UndecidedSizeError),
    "two masks": (lambda x: x[x > 0] + x[x < 0], UndecidedSizeError),
    "a fixed size": (lambda x: x[x > 0] + hnp.ones(5), UndecidedSizeError),
    "an element": (lambda x: x[x > 0][0], UndecidedSizeError),
    "places": (lambda x: x[x > 0][hnp.asarray([0, 1])], UndecidedSizeError),
    "a mask of it": (lambda x: x[x > 0][x[x > 0] > 1], TracerError),
    "a Fourier transform": (lambda x: hnp.fft.fft(x[x > 0]), (UndecidedSizeError, UnsupportedError)),
    "a carried value": (lambda x: lax.fori_loop(0, 3, lambda k, y: y * 2, x[x > 0]), UnsupportedError),
    "a captured value": (lambda x: _captured(x, x[x > 0]), UnsupportedError),
    "a captured size": (lambda x: _captured(x, x[x > 0].shape[0]), UnsupportedError),
    "the largest of a loop": (lambda x: lax.map(lambda k: (x + k)[x + k > 0].max(), x), UnsupportedError),
    "a batch": (lambda x: hl.vmap(lambda y: y[y > 0].sum())(hnp.reshape(x, (4, 3))), BatchingError),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_the_number_says_so(name):
    function, kind = REFUSED[name]
    with pytest.raises(kind) as error:
        hl.jit(function)(X)
    assert str(error.value.source).split(":")[0].endswith("test_computed_sizes.py")
    assert "size=" in str(error.value) or "initial=" in str(error.value)


def test_transforms_without_jit_refuse_as_before():
    with pytest.raises(TracerError, match="boolean index"):
        hl.vmap(lambda y: y[y > 0].sum())(X.reshape(4, 3))
    inner = hl.jit(lambda y: y[y > 0].sum())
    assert inner(X) == X[X > 0].sum()
    with pytest.raises(ConcretizationTypeError, match="outside of hl.jit"):
        hl.vmap(inner, in_axes=None, axis_size=2)(X)
    with pytest.raises(UnsupportedError, match="open sizes"):
        hl.jit(lambda x, m: (x.sum(), m[m > 0]), dims={"x": ("n",)})(X, X)


def test_a_nested_function_computes_sizes_for_each_call():
    positive = hl.jit(lambda y: (y[y > 0], y[y > 0].max(initial=0)))

    def function(x):
        (a, most), (b, least) = positive(x), positive(-x)
        return a * most, b * least, a.shape[0] - b.shape[0]

    for x in ARGUMENTS.values():
        assert_equal(outcome(hl.jit(function), x), outcome(function, hnp.asarray(x)))
    with pytest.raises(UndecidedSizeError):
        hl.jit(lambda x: positive(x)[0] + positive(-x)[0])(X)


def test_other_doors_refuse_and_checks_see_what_is_selected():
    function = hl.jit(lambda x: x[x > 0])
    with pytest.raises(HloomError, match="in an exported library"):
        hl.export(function, X)
    with hl.config(debug_nans=True):
        assert np.asarray(hl.jit(lambda x: hnp.log(x[x > 0]))(X)).shape == (6,)
        with pytest.raises(NonFiniteError):
            hl.jit(lambda x: hnp.log(x[x < 0]))(X)
    with hl.checking_leaks():
        assert hl.jit(lambda x: x[x > 0].max())(X) == 5


@pytest.mark.parametrize("seed", range(12))
def test_random_functions_against_numpy(seed):
    assert check_counted(seed)["calls"] >= 1


def test_undecided_sizes_are_not_taken_for_an_answer():
    with pytest.raises(UndecidedSizeError):
        hl.jit(lambda x: hnp.array_equiv(x[x > 0], x[x < 0]))(X)
    with pytest.raises(ShapeError):
        hl.jit(lambda x: hnp.array_equiv(x[:3][x[:3] > 0], x))(X)
    assert hl.jit(lambda x: x if hnp.iterable(x[x > 0]) else -x)(X)[0] == 3


def test_text_and_analyses_of_a_program():
    lowered = hl.jit(lambda x: x[x > 0] * 2).lower(X)
    assert "f32[count_0]" in lowered.as_text() and lowered.out_info.shape[0].most == 12
    compiled = lowered.compile()
    assert "f32[12]" in compiled.as_text() and compiled.source() and compiled.cost_analysis()["kernels"] > 0
    assert compiled.memory_analysis()


def test_parameters_keep_their_shardings_in_the_program_of_fixed_shapes():
    """So that a program over several devices is seen to be one, and refused."""
    module = hl.jit(hnp.flatnonzero).lower(hl.ShapeDtypeStruct((8,), "f4")).module
    (parameter,) = module.entry.parameters
    parameter.sharding = sharding = Sharding(DeviceMesh(("data",), (2,)), (("data",),))
    assert [p.sharding for p in counted_program(module.entry).computation.parameters] == [sharding]
