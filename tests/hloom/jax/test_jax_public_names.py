"""Arguments, attributes and modules that programs for JAX use, with JAX's meaning."""

from __future__ import annotations

import typing
import weakref

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import DeviceError


def test_options_of_jit():
    function = hl.jit(
        lambda x: x + 1, backend="cpu", in_shardings=None, out_shardings=None, keep_unused=True, static_argnums=None,
        donate_argnums=None, compiler_options={"xla_cpu_enable_fast_math": False},
    )  # fmt: skip
    assert float(function(1.0)) == 2
    on_one = hl.sharding.SingleDeviceSharding(hl.devices()[0])
    assert hl.jit(lambda x: x, in_shardings=on_one, out_shardings=(on_one,))(hnp.ones(2)).device == hl.devices()[0]
    with hl.config(num_cpu_devices=2), pytest.raises(DeviceError, match="one device"):
        hl.jit(lambda x: x, device="cpu:0", in_shardings=hl.sharding.SingleDeviceSharding(hl.devices()[1]))


def test_stages():
    lowered = hl.jit(lambda x, y: {"sum": x + y["a"]}, donate_argnums=0).lower(hnp.ones(2), {"a": hnp.ones(2)})
    assert "HloModule" in lowered.compiler_ir("hlo").as_hlo_text() and "module" in str(lowered.compiler_ir())
    (x, y), named = lowered.in_avals
    assert x.shape == y["a"].shape == (2,) and named == {} and lowered.in_tree.num_leaves == 2
    (x, y), _ = lowered.args_info
    assert x.donated and not y["a"].donated and x.dtype == np.float32
    assert lowered.out_info["sum"].shape == (2,)
    compiled = lowered.compile(compiler_options={"xla_embed_ir_in_executable": True})
    assert compiled.in_tree == lowered.in_tree and compiled.out_tree == lowered.out_tree
    assert hl.jit(lambda x: x.sum()).eval_shape(hnp.ones(3)).shape == ()
    assert hl.pmap(lambda x: x + 1).lower(hnp.ones((1, 2))).compile()(hnp.ones((1, 2))).tolist() == [[2, 2]]


def test_flags_from_the_command_line(monkeypatch):
    monkeypatch.setattr("sys.argv", ["program", "--jax_enable_x64=true", "--other=1", "--jax_nonsense=1"])
    try:
        hl.config.parse_flags_with_absl()
        assert hl.config.enable_x64
    finally:
        hl.config.enable_x64 = False


def test_shapes_from_arrays_and_shapes_of_what_is_no_array():
    assert (
        hnp.reshape(hnp.arange(6), hnp.array([2, 3])).shape == hnp.arange(6).reshape(np.array([2, 3])).shape == (2, 3)
    )
    keys, shape = hl.random.split(hl.random.key(0), 3), hl.ShapeDtypeStruct((2, 3), "f32")
    assert (hnp.shape(keys), hnp.ndim(keys), hnp.size(keys)) == ((3,), 1, 3)
    assert (hnp.shape(shape), hnp.ndim(shape), hnp.size(shape)) == ((2, 3), 2, 6)
    assert (hnp.shape(None), hnp.ndim(None), hnp.size(None)) == ((), 0, 1)
    assert hnp.asarray(keys).dtype == keys.dtype and hnp.array(keys, ndmin=2).shape == (1, 3)


def test_values():
    assert hnp.polyval(hnp.ones((3, 2)), hnp.array([1.0, 2.0])).tolist() == [3, 7]
    assert hnp.polyval(hnp.ones((3, 2, 1)), hnp.ones((2, 4))).shape == (2, 4)
    taken = hl.vmap(lambda x, i: lax.dynamic_index_in_dim(x, i, keepdims=False))(hnp.ones((0, 4, 2)), hnp.ones(0, int))
    assert taken.shape == (0, 2)
    assert lax.select(hnp.array([1, 0]), hnp.ones(2), hnp.zeros(2)).tolist() == [1, 0]
    assert lax.select(1, hnp.ones(2), hnp.zeros(2)).tolist() == [1, 1]
    assert hnp.finfo(hnp.float8_e4m3fn).max == 448 and type(hnp.finfo("float32").eps) is float
    assert hl.jit(lambda x: weakref.ref(x)() is x)(1.0)
    assert str in typing.get_args(hl.typing.DTypeLike) and np.ndarray in typing.get_args(hl.typing.ArrayLike)


def test_functions_without_a_name():
    class Twice:
        __name__ = None

        def __call__(self, x):
            return x * 2

    twice = Twice()
    for transformed in (hl.jit, hl.vmap, hl.checkpoint):
        assert transformed(twice)(hnp.ones(1)).tolist() == [2]
    assert float(hl.grad(twice)(1.0)) == 2 and hl.eval_shape(twice, 1.0).shape == ()


def test_modules_of_profiles_and_versions():
    import hloom.lib

    import hloom.profiler
    from hloom.profiler import StepTraceAnnotation, TraceAnnotation, annotate_function

    with TraceAnnotation("load"), StepTraceAnnotation("train", step_num=1):
        assert annotate_function(lambda x: x + 1)(1) == TraceAnnotation("part")(lambda: 2)()
    assert hl.lib is hloom.lib and hl.lib.__version__.count(".") == 2 and hl.profiler is hloom.profiler


def test_equations_of_a_program():
    program = hl.make_jaxpr(lambda x, y: (hnp.sin(x) * y, x))(hnp.ones(2), 2.0).jaxpr
    x, y = program.invars
    first, last = program.eqns[0], program.eqns[-1]
    assert (x.aval.shape, y.aval.shape) == ((2,), ()) and program.constvars == [] and not program.effects
    assert first.primitive.name == "sine" and first.invars[0] is x and isinstance(first.params, dict)
    assert last.outvars[0] is program.outvars[0] and last.primitive.name == "multiply" and program.outvars[1] is x
