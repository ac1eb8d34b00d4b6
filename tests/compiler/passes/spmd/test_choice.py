"""The choice of axes: what each candidate says of an op's arrays is what devices have of its factors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spmd_modules import MESHES, check, random_sharding

from hloom.compiler.passes.spmd.choice import Chooser
from hloom.compiler.passes.spmd.resharding import costs
from hloom.compiler.passes.spmd.resharding.layouts import Layouts
from hloom.ir.build import Builder, Value
from hloom.ir.module import Module
from hloom.ir.spmd.factors import FactorRule
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.types import DTYPES, Shape

pytestmark = pytest.mark.quick
F32 = DTYPES["f32"]


@pytest.fixture(params=[0.0, costs.LATENCY], ids=["by_bytes", "by_time"])
def latency(request, monkeypatch):
    """What a message costs: without it small arrays go the ways of large ones."""
    monkeypatch.setattr(costs, "LATENCY", request.param)


def laid_out(b: Builder, mesh: DeviceMesh, dims, *axes: str, dtype: str = "f32") -> Value:
    """A parameter that has for each dimension an axis, or "" for none."""
    value = b.parameter(Shape(DTYPES[dtype], dims))
    value.sharding = Sharding(mesh, tuple((a,) if a else () for a in axes))
    return Value(b, value)


def finished(b: Builder, value: Value, mesh: DeviceMesh, *axes: str) -> Module:
    value.instruction.sharding = Sharding(mesh, tuple((a,) if a else () for a in axes))
    return Module("m", b.finish(value.instruction), partitions=mesh.size)


@pytest.mark.parametrize(
    ("dims", "axes", "result", "result_axes"),
    [((2, 1, 3), ("", "x", ""), (6,), ("x",)), ((5, 3, 2, 3), ("", "x", "", ""), (3, 5, 6), ("", "", "x"))],
)
def test_a_reshape_whose_split_dimension_has_to_be_whole(dims, axes, result, result_axes, latency):
    """Its axis cannot go on with the last dimension, which is a minor part of one of the result."""
    b, mesh = Builder("main"), DeviceMesh(("x",), (3,))
    x = laid_out(b, mesh, dims, *axes)
    check(finished(b, x.reshape(result), mesh, *result_axes), [np.arange(math.prod(dims), dtype="f").reshape(dims)])


def test_a_gather_of_partial_sums_by_split_indexes(latency):
    """The axis of the sums cannot split the indexes as well."""
    b, mesh = Builder("main"), DeviceMesh(("x",), (2,))
    x = laid_out(b, mesh, (256, 6), "x", "")
    indexes = laid_out(b, mesh, (36, 2), "", "x", dtype="s64")
    product = x.op("dot", x, lhs_contracting_dims=(0,), rhs_contracting_dims=(0,))
    product.instruction.sharding = Sharding(mesh, ((), ()))
    found = product.op(
        "gather", indexes, offset_dims=(), collapsed_slice_dims=(0, 1), start_index_map=(0, 1), index_vector_dim=1,
        slice_sizes=(1, 1),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    check(finished(b, found, mesh, ""), [rng.standard_normal((256, 6)).astype("f"), rng.integers(0, 6, (36, 2))])


# --- all rules and layouts ----------------------------------------------------------------------------------------


@st.composite
def rules(draw) -> FactorRule:
    """Arrays whose dimensions consist of up to two factors each, in any order."""
    sizes = draw(st.lists(st.sampled_from((1, 2, 3, 4, 6)), min_size=1, max_size=5))

    def array():
        rest, dims = draw(st.permutations(range(len(sizes)))), []
        rest = rest[: draw(st.integers(0, len(rest)))]
        while rest:
            count = draw(st.sampled_from((0, 1, 1, 2)))
            dims.append(tuple(rest[:count]))
            rest = rest[count:]
        return tuple(dims)

    operands = tuple(array() for _ in range(draw(st.integers(1, 3))))
    results = tuple(array() for _ in range(draw(st.integers(1, 2))))
    kept = {f for dims in results for factors in dims for f in factors}
    factors = range(len(sizes))
    whole = frozenset(f for f in factors if draw(st.booleans()) and draw(st.booleans()))
    return FactorRule(operands, results, tuple(sizes), frozenset(factors) - kept - whole, "add", whole)


@given(rules(), st.sampled_from(MESHES), st.randoms(use_true_random=False))
def test_candidates_split_arrays_as_their_factors(rule, mesh, random):
    layouts = Layouts(mesh.atomic())
    arrays = (*rule.operands, *rule.results)
    sizes = [tuple(math.prod(rule.sizes[f] for f in factors) for factors in dims) for dims in arrays]
    reserved = tuple(a for a in layouts.mesh.names if random.random() < 0.2)
    some = [layouts.of_sharding(random_sharding(random, mesh, Shape(F32, dims))) for dims in sizes]
    given_layouts, wanted = some[: len(rule.operands)], some[len(rule.operands) :]
    chooser = Chooser(layouts, lambda *given: 0.0)
    weights = [random.randrange(3) for _ in given_layouts]
    for axes in chooser.candidates(rule, rule.splittable, given_layouts, wanted, reserved, weights):
        used = [a for each in axes for a in each]
        assert len(set(used)) == len(used) and not set(used).intersection(reserved)
        assert not any(each for f, each in enumerate(axes) if f not in rule.splittable)
        choice = chooser.choice(rule, axes, (), reserved)
        every = zip(arrays, (*choice.operands, *choice.results), sizes, strict=True)
        for dims, layout, whole in every:
            for factors, own, size in zip(dims, layout.dims, whole, strict=True):
                for device in range(mesh.size):
                    assert places(layouts.mesh, (own,), (size,), device) == places(
                        layouts.mesh, [axes[f] for f in factors], [rule.sizes[f] for f in factors], device
                    ), (axes, rule)


def places(mesh: DeviceMesh, axes, sizes, device: int) -> list[int]:
    """The places that a device has of a dimension of factors of these sizes, each split along axes of its own: -1 for
    padding."""
    found = []
    for each, size in zip(axes, sizes, strict=True):
        sharding = Sharding(mesh, (each,))
        (region,), (local,) = sharding.region(device, (size,)), sharding.local_dims((size,))
        own = list(range(region.start, region.stop))
        found.append(own + [-1] * (local - len(own)))
    strides = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
    return [
        -1 if -1 in each else sum(place * stride for place, stride in zip(each, strides, strict=True))
        for each in itertools.product(*found)
    ]


@given(st.data(), st.sampled_from(MESHES), st.randoms(use_true_random=False), st.sampled_from([0.0, costs.LATENCY]))
def test_reshapes_in_random_layouts(data, mesh, random, price):
    primes = data.draw(st.lists(st.sampled_from((1, 2, 2, 3, 5)), min_size=1, max_size=5))

    def grouped(factors):
        """Neighbours multiplied, at random."""
        dims: list[int] = []
        for f in factors:
            if dims and data.draw(st.booleans()):
                dims[-1] *= f
            else:
                dims.append(f)
        return tuple(dims)

    b, mesh = Builder("main"), mesh.atomic()
    x = Value(b, b.parameter(Shape(F32, grouped(primes))))
    x.instruction.sharding = random_sharding(random, mesh, x.shape)
    y = x.reshape(grouped(data.draw(st.permutations(primes))))
    y.instruction.sharding = random_sharding(random, mesh, y.shape)
    array = np.arange(x.shape.size, dtype="f").reshape(x.dims)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "LATENCY", price)
        check(Module("m", b.finish(y.instruction), partitions=mesh.size), [array])
