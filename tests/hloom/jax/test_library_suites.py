"""What the suites of JAX's libraries (optax, flax, equinox, diffrax) rely on, and hloom once did otherwise."""

import pickle

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import errors, random
from hloom.jax import dtypes
from hloom.sharding import PartitionSpec
from hloom.tracing.custom_rules import SymbolicZero
from hloom.transforms.custom_derivatives import zero_from_primal


def test_random_keys_have_the_operations_of_arrays():
    keys = random.split(random.key(0), 3)
    assert hnp.result_type(keys) == hnp.result_type(keys, keys) == keys.dtype
    assert (hnp.astype(keys, keys.dtype) == keys).all()
    with pytest.raises(errors.DTypeError):
        keys.astype("f32")
    assert ((keys.at[1].set(keys[0]) == keys) == hnp.asarray([True, False, True])).all()
    assert (keys.at[1].get() == keys[1]).all()
    with pytest.raises(errors.ArgumentError):
        keys.at[0].set(1)
    looped = hl.jit(lambda k: hl.lax.fori_loop(0, 3, lambda i, k: k.at[i].set(k[0]), k))(keys)
    assert (looped == keys[0]).all()


@pytest.mark.parametrize("make", ["lecun_normal", "he_uniform", "xavier_normal"])
def test_initializers_of_complex_numbers_have_the_variance_of_real_ones(make):
    init = getattr(hl.nn.initializers, make)()
    drawn, real = init(random.key(0), (100, 200), "c64"), init(random.key(0), (100, 200), "f32")
    assert drawn.dtype == np.complex64
    assert np.var(np.asarray(drawn)) == pytest.approx(np.var(np.asarray(real)), rel=0.03)
    assert abs(np.mean(np.asarray(drawn))) < 0.01


def test_aux_may_hold_any_objects():
    thing = object()

    def function(x):
        return x * x, {"name": "hi", "thing": thing, "twice": 2 * x}

    for aux in (
        hl.value_and_grad(function, has_aux=True)(3.0)[0][1],
        hl.grad(function, has_aux=True)(3.0)[1],
        hl.vjp(function, 3.0, has_aux=True)[2],
        hl.jvp(function, (3.0,), (1.0,), has_aux=True)[2],
        hl.linearize(function, 3.0, has_aux=True)[2],
    ):
        assert aux["name"] == "hi" and aux["thing"] is thing and aux["twice"] == 6


def test_an_unconstrained_axis_is_no_name():
    unconstrained = PartitionSpec.UNCONSTRAINED
    assert not isinstance(unconstrained, str)
    spec = pickle.loads(pickle.dumps(PartitionSpec("data", unconstrained)))
    assert spec[1] is unconstrained and spec == PartitionSpec("data", unconstrained)


def test_equal_dtypes_hash_alike_and_are_one_object():
    for name in ("float32", "int32", "bfloat16", "bool_"):
        ours = getattr(hnp, name)
        assert ours == ours.dtype.type and hash(ours) == hash(ours.dtype.type)
        assert dtypes.canonicalize_dtype(ours) is np.dtype(ours)
        assert hnp.dtype(np.dtype(ours)) is np.dtype(ours)


def test_static_numbers_and_names_together_are_meant_as_they_are():
    def inner(scope, flag, b=None):
        return scope

    import functools

    @functools.wraps(inner)  # the signature that inspect tells is not that of the wrapper
    def outer(static, first, second, *rest, b=None):
        return first + second[0]

    jitted = hl.jit(outer, static_argnums=(0,), static_argnames=("b",))
    assert jitted("s", 1.0, [2.0], b="hi") == 3


def test_wrappers_of_instances_with_a_field_named_annotations():
    class Model:
        @property
        def __annotations__(self):
            return "no dict"

        def __call__(self, x):
            return 2 * x

    assert (hl.vmap(Model())(np.arange(3.0)) == np.asarray([0.0, 2.0, 4.0])).all()


def test_integer_results_accept_cotangents_of_their_dtype():
    result, pull = hl.vjp(lambda x: (x * 2, hnp.argmax(x)), hnp.ones(3))
    assert (pull((hnp.ones(3), hnp.int32(1)))[0] == 2).all()


def test_checkpoint_passes_arrays_also_outside_of_traces():
    seen = []
    checkpointed = hl.checkpoint(lambda x, flag: seen.append((x, flag)) or x, static_argnums=(1,))
    checkpointed(1.0, True)
    assert isinstance(seen[0][0], hl.Array) and seen[0][1] is True


def test_symbolic_zeros_reach_the_backward_rule():
    seen = []

    @hl.custom_vjp
    def function(x, y):
        return x * y, x + y, 1

    def backward(residuals, cotangents):
        seen.append([isinstance(c, SymbolicZero) for c in cotangents])
        y, tag = residuals
        assert tag == "tag"  # a residual that is no array
        return None if isinstance(cotangents[0], SymbolicZero) else cotangents[0] * y, None

    function.defvjp(lambda x, y: (function(x.value, y.value), (y.value, "tag")), backward, symbolic_zeros=True)
    assert hl.grad(lambda x: function(x, 2.0)[0])(3.0) == 2
    assert (hl.vmap(hl.grad(lambda x: function(x, 2.0)[0]))(hnp.ones(2)) == 2).all()
    assert hl.grad(lambda x: function(x, 2.0)[1])(3.0) == 0
    assert seen == [[False, True, True], [False, True, True], [True, False, True]]


def test_strict_promotion_allows_booleans_of_python_numbers_with_booleans():
    def body(state):
        keep, k = state
        return keep & (k < 3.0), k + 1.0

    with hl.numpy_dtype_promotion("strict"):
        keep, k = hl.jit(lambda: hl.lax.while_loop(lambda s: s[0], body, (hnp.array(True), 0.0)))()
        assert not keep and k == 4
        compared = hl.jit(lambda k: (k < 3) & hnp.array([True, False]))(1.0)
        assert (compared == np.array([True, False])).all()


def test_shapes_of_scalars_go_through_eval_shape():
    scalar = hl.ShapeDtypeStruct((), np.float32)
    assert hl.eval_shape(lambda: scalar).shape == ()


def test_weak_types_stay_weak_through_barriers_and_branches():
    def direction(a, b):
        return hnp.where(a < b, 1, -1)

    assert hl.jit(lambda a, b: hl.lax.optimization_barrier(direction(a, b)))(0.0, 1.0).weak_type
    strong = hnp.int32(1)
    for function, weak in (  # as in JAX, where the dtypes are equal
        (lambda a, b: hl.lax.cond(a < b, lambda: strong, lambda: direction(a, b)), True),
        (lambda a, b: hl.lax.cond(a < b, lambda: direction(a, b), lambda: strong), False),
        (lambda a, b: hl.lax.switch(hnp.int32(a), [lambda: direction(a, b), lambda: strong]), True),
        (lambda a, b: hl.lax.switch(hnp.int32(b), [lambda: strong, lambda: direction(a, b)]), False),
    ):
        assert hl.jit(function)(0.0, 1.0).weak_type is weak


def test_compiled_functions_are_called_without_static_arguments():
    compiled = hl.jit(lambda x, power, y: x**power + y, static_argnums=1).lower(2.0, 3, 1.0).compile()
    assert compiled(2.0, 1.0) == compiled(2.0, 3, 1.0) == 9
    with pytest.raises(errors.ArgumentError):
        compiled(2.0, 2, 1.0)


def test_zero_from_primal_of_trees():
    zeros = zero_from_primal({"a": hnp.ones(2), "b": (hnp.ones(()), 1)})
    assert (zeros["a"] == 0).all() and zeros["b"][0] == 0 and not zeros["b"][1]
    assert isinstance(zero_from_primal((1.0, 2.0), symbolic_zeros=True)[1], SymbolicZero)
