"""What programs written on JAX use besides arrays: meshes, keys, events, shapes, programs as values."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ConcretizationTypeError, ShapeError, TracerBoolError
from hloom.jax import monitoring
from hloom.jax.experimental.layout import Format, Layout


def test_events_reach_their_listeners():
    events = []
    monitoring.register_event_listener(lambda event, **more: events.append((event, more)))
    monitoring.register_event_duration_secs_listener(lambda event, seconds, **more: events.append((event, seconds)))
    try:
        monitoring.record_event("/mine", size=3)
        monitoring.record_event_duration_secs("/took", 0.5)
    finally:
        monitoring.clear_event_listeners()
    monitoring.record_event("/unheard")
    assert events == [("/mine", {"size": 3}), ("/took", 0.5)]


def test_the_current_mesh():
    mesh = hl.make_mesh((1, 1), ("x", "y"))
    assert hl.get_mesh().empty
    with mesh:
        assert hl.get_mesh() is mesh and hl.sharding.get_abstract_mesh().axis_names == ("x", "y")
        with hl.set_mesh(hl.make_mesh((1,), ("z",))):
            assert hl.get_mesh().axis_names == ("z",)
        assert hl.get_mesh() is mesh
    assert hl.get_mesh().empty and mesh.abstract_mesh.shape == {"x": 1, "y": 1} and mesh.abstract_mesh.size == 1
    assert Format(Layout((0, 1))).layout.major_to_minor == (0, 1)


@pytest.mark.parametrize("make", [hl.random.key, lambda s: hl.random.key(s, impl="rbg")], ids=["threefry", "rbg"])
def test_arrays_of_keys_are_moved_as_others(make):
    one, two = make(1), make(2)
    data = hl.random.key_data
    both = hnp.stack([one, two])
    assert both.shape == (2,) and repr(hl.typeof(both)) == f"{one.dtype.name}[2]"
    np.testing.assert_array_equal(data(both), np.stack([data(one), data(two)]))
    np.testing.assert_array_equal(data(hnp.concatenate([both, both])), np.tile(data(both), (2, 1)))
    np.testing.assert_array_equal(data(hnp.where(hnp.array([True, False]), one, two)), data(both))
    np.testing.assert_array_equal(data(hl.jit(lambda k: hnp.flip(k))(both)), np.asarray(data(both))[::-1])
    assert hnp.broadcast_to(one, (2, 3)).shape == (2, 3) and hnp.expand_dims(both, 0).shape == (1, 2)
    assert data(hnp.take(both, 1)).tolist() == data(two).tolist()
    with pytest.raises(ShapeError):
        hnp.concatenate([both, both.reshape(2, 1)])
    assert hnp.issubdtype(one.dtype, hl.dtypes.prng_key) and hnp.issubdtype(one.dtype, hl.dtypes.extended)
    assert not hnp.issubdtype(one.dtype, hnp.number) and not hnp.issubdtype(hnp.float32, hl.dtypes.prng_key)


def test_small_things_that_libraries_ask():
    assert hnp.float32 == np.float32 and hnp.float32 != np.float64 and hnp.int8 == "int8"
    assert hl.version.__version_info__ == hl.__version_info__ and isinstance(hl.__version_info__, tuple)
    shape = hl.ShapeDtypeStruct((2, 3), "s32")
    assert hnp.zeros_like(shape).shape == (2, 3) and hnp.ones_like(shape).dtype == np.int32
    calls = []

    def dot_general(*args, **options):
        calls.append(options["preferred_element_type"])
        return hl.lax.dot_general(*args, **options)

    a = hnp.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(hnp.einsum("ij,kj->ki", a, a, _dot_general=dot_general), a @ a.T)
    assert calls == [None]
    seen = []
    hl.jit(lambda x: (seen.append(isinstance(x, hnp.ndarray)), x)[1])(1.0)
    assert seen == [True]
    with pytest.raises(ConcretizationTypeError):
        hl.jit(lambda x: 1 if x else 2)(1.0)
    assert issubclass(TracerBoolError, ConcretizationTypeError)
    with hl.config(clamp_indexes=True):
        assert int(hnp.arange(10)[11]) == 9 and int(hnp.arange(10)[-20]) == 0
    with pytest.raises(IndexError):
        hnp.arange(10)[11]
    with pytest.raises(ShapeError, match="broadcast to the part"):
        hnp.ones(3).at[0].set(hnp.ones(3))


def test_select_of_a_reshaped_predicate():
    """The reshape of the scalar has other extents than the arrays beside it."""

    def f(p, x):
        return hl.lax.select((p * p > 1).reshape(()), hnp.zeros(2), (x * 2).reshape(2))

    for p, expected in ((2.0, [0, 0]), (0.5, [2, 4])):
        np.testing.assert_array_equal(hl.jit(f)(hnp.array([p]), hnp.array([[1.0, 2.0]])), expected)


def test_breakpoint_shows_the_values_of_the_traced_frame():
    import io

    commands, printed = io.StringIO("p y\nx + 1\nl\nbt\nmissing\nc\n"), io.StringIO()

    @hl.jit
    def f(x):
        y = x * 2
        hl.debug.breakpoint(stdin=commands, stdout=printed)
        return y + 1

    assert float(f(3.0)) == 7.0
    text = printed.getvalue()
    assert "6." in text and "4." in text and "->         hl.debug.breakpoint" in text and "NameError" in text
    quits = io.StringIO("q\n")
    with pytest.raises(BaseException, match="stopped"):
        hl.jit(lambda x: (hl.debug.breakpoint(stdin=quits, stdout=printed), x)[1])(1.0)


def test_keys_are_leaves_of_users_trees():
    key = hl.random.key(3)
    tree = {"key": key, "w": hnp.ones(2)}
    leaves, structure = hl.tree.flatten(tree)
    assert leaves[0] is key and structure.num_leaves == 2 and hl.tree.unflatten(structure, leaves)["key"] is key
    assert hl.tree.map(lambda x: x.shape, tree) == {"key": (), "w": (2,)}
    keys = list(hl.random.split(key, 2))
    drawn = hl.tree.map(lambda k, p: hl.random.normal(k, p.shape), keys, [hnp.ones(2), hnp.ones(3)])
    np.testing.assert_array_equal(drawn[1], hl.random.normal(keys[1], (3,)))
    assert hl.tree_util.tree_leaves([key, None], is_leaf=lambda x: x is None)[1] is None
    assert [p for p, _ in hl.tree_util.tree_flatten_with_path(tree)[0]] == [(hl.tree_util.DictKey("key"),),
                                                                           (hl.tree_util.DictKey("w"),)]  # fmt: skip
    step = hl.jit(lambda t: {"key": hl.random.split(t["key"])[0], "w": 2 * t["w"]})
    assert hl.tree.structure(step(step(tree))) == structure
    moved = hl.device_put(tree)
    np.testing.assert_array_equal(hl.random.key_data(moved["key"]), hl.random.key_data(key))


def test_programs_are_run_again():
    program = hl.make_jaxpr(lambda x, y: (hnp.sin(x) * y, x + 1))(1.0, 2.0)
    found = hl.core.eval_jaxpr(program, program.consts, 0.5, 4.0)
    np.testing.assert_allclose([float(v) for v in found], [4 * np.sin(0.5), 1.5], rtol=1e-6)

    @hl.jit
    def outer(x):
        inner = hl.make_jaxpr(lambda y: x * y)(2.0)
        return hl.core.eval_jaxpr(inner, inner.consts, 5.0)[0]

    assert float(outer(3.0)) == 15.0


def test_shapes_as_values_and_known_values_in_traces():
    struct = hl.ShapeDtypeStruct((2,), "f32")
    assert hl.eval_shape(lambda x: {"s": struct, "x": x.sum()}, struct)["s"] == struct
    assert hnp.result_type(struct, "f16") == np.float32 and hnp.isrealobj(struct)

    @hl.jit
    def f(x):
        with hl.ensure_compile_time_eval():
            known = hnp.sin(2.0)
            assert float(known) > 0
            return known + x, hnp.any(x > 0)  # what is not known is recorded all the same

    value, positive = f(1.0)
    assert float(value) == pytest.approx(np.sin(2.0) + 1) and bool(positive)


def test_linearize_with_aux():
    value, push, aux = hl.linearize(lambda x: (hnp.sin(x), {"n": 3, "y": 2 * x}), 0.5, has_aux=True)
    assert float(value) == pytest.approx(np.sin(0.5)) and float(push(2.0)) == pytest.approx(2 * np.cos(0.5))
    assert float(aux["y"]) == 1.0 and int(aux["n"]) == 3
