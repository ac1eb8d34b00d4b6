"""Programs in JAX's spelling, run with hloom in its place; JAX's settings, contexts and facts about the process."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, SettingError


def run(program: str, first: str = "import hloom; hloom.as_jax()") -> str:
    """What a program prints, run by itself with hloom as jax."""
    done = subprocess.run(
        [sys.executable, "-c", first + "\n" + textwrap.dedent(program)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LINEAR_REGRESSION = """
    import jax
    import jax.numpy as jnp
    from jax import grad, jit, random, vmap

    key = random.PRNGKey(0)
    key, one, two = random.split(key, 3)
    x = random.normal(one, (64, 3))
    true = jnp.array([1.0, -2.0, 0.5])
    y = x @ true + 0.3

    def predict(params, x):
        w, b = params
        return jnp.dot(w, x) + b

    def loss(params, x, y):
        return jnp.mean((vmap(predict, in_axes=(None, 0))(params, x) - y) ** 2)

    @jit
    def update(params, x, y):
        grads = grad(loss)(params, x, y)
        return jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, params, grads)

    params = [jnp.zeros(3), jnp.float32(0)]
    for _ in range(300):
        params = update(params, x, y)
    print([round(float(v), 2) for v in params[0]], round(float(params[1]), 2))
"""
NETWORK = """
    import functools
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    from jax.scipy.special import logsumexp

    one, two = jax.random.split(jax.random.PRNGKey(1))
    params = [(jax.random.normal(one, (2, 16)), jnp.zeros(16)), (0.25 * jax.random.normal(two, (16, 2)), jnp.zeros(2))]

    def apply(params, x):
        (w, b), (v, c) = params
        return jax.nn.relu(x @ w + b) @ v + c

    inputs = jnp.asarray(np.random.RandomState(0).randn(128, 2))
    assert inputs.dtype == jnp.float32  # as in JAX, NumPy's 64 bits become 32
    targets = jnp.asarray(inputs[:, 0] * inputs[:, 1] > 0, jnp.int32)

    def loss(params):
        logits = apply(params, inputs)
        return jnp.mean(logsumexp(logits, axis=1) - logits[jnp.arange(128), targets])

    def update(k, grads, state):
        params, mean, square = state
        tree_map = jax.tree_util.tree_map
        mean = tree_map(lambda m, g: 0.9 * m + 0.1 * g, mean, grads)
        square = tree_map(lambda s, g: 0.999 * s + 0.001 * g * g, square, grads)
        rate = 0.02 * jnp.sqrt(1 - 0.999 ** (k + 1)) / (1 - 0.9 ** (k + 1))
        return tree_map(lambda p, m, s: p - rate * m / (jnp.sqrt(s) + 1e-8), params, mean, square), mean, square

    @functools.partial(jax.jit, static_argnums=1)
    def train(state, steps):
        def step(state, k):
            value, grads = jax.value_and_grad(loss)(state[0])
            return update(k, grads, state), value
        return lax.scan(step, state, jnp.arange(steps))

    zeros = jax.tree_util.tree_map(jnp.zeros_like, params)
    state, losses = train((params, zeros, zeros), 300)
    accuracy = jnp.mean(jnp.argmax(apply(state[0], inputs), 1) == targets)
    print(losses[-1] < 0.5 * losses[0], accuracy > 0.9)
"""
TREES = """
    import dataclasses
    import jax, jax.numpy as jnp
    from jax.flatten_util import ravel_pytree
    from jax.tree_util import register_pytree_node_class, tree_map

    @register_pytree_node_class
    class Point:
        def __init__(self, x, y):
            self.x, self.y = x, y
        def tree_flatten(self):
            return (self.x, self.y), None
        @classmethod
        def tree_unflatten(cls, aux, children):
            return cls(*children)

    p = jax.jit(lambda p: tree_map(lambda v: v + 1, p))(Point(1.0, jnp.arange(2.0)))
    flat, unravel = ravel_pytree({"a": p.x, "b": p.y})
    print(flat.tolist(), unravel(flat)["b"].shape, jax.tree.structure(p).num_leaves)
    print([jax.tree_util.keystr(k) for k, _ in jax.tree.leaves_with_path({"a": [1, 2]})])
"""
LOOPS = """
    import jax, jax.numpy as jnp
    from jax import lax

    print(lax.fori_loop(0, 10, lambda k, s: s + k, 0), lax.while_loop(lambda v: v < 100, lambda v: v * 2, 1))
    print(lax.cond(True, lambda x: x + 1, lambda x: x - 1, 1.0), jax.vmap(lambda x: lax.select(x > 0, x, -x))(
        jnp.array([-1.0, 2.0])))
"""
DOUBLE = """
    import jax
    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    import numpy as np
    from jax.typing import ArrayLike

    def second(x: ArrayLike) -> jax.Array:
        return jax.grad(jax.grad(jnp.sin))(x)

    x = jnp.linspace(0, 1, 5)
    print(x.dtype, jnp.arange(3).dtype, jnp.asarray(np.ones(2)).dtype, jnp.array(1).dtype, jax.config.jax_enable_x64)
    print(bool(jnp.allclose(jax.vmap(second)(x), -jnp.sin(x), rtol=1e-14)))
    print(jax.jit(lambda v: isinstance(v, jax.Array))(x), isinstance(x, jnp.ndarray))
"""
PROGRAMS = [
    (LINEAR_REGRESSION, "[1.0, -2.0, 0.5] 0.3\n"),
    (NETWORK, "True True\n"),
    (TREES, "[2.0, 1.0, 2.0] (2,) 2\n[\"['a'][0]\", \"['a'][1]\"]\n"),
    (LOOPS, "45 128\n2.0 [1. 2.]\n"),
    (DOUBLE, "float64 int64 float64 int64 True\nTrue\nTrue True\n"),
]
NAMES = ["regression", "network", "trees", "loops", "double"]


@pytest.mark.parametrize(("program", "printed"), PROGRAMS, ids=NAMES)
def test_program(program, printed):
    assert run(program) == printed


@pytest.mark.parametrize("which", [0, 2])
def test_program_with_the_module_put_in_place(which):
    program, printed = PROGRAMS[which]
    assert run(program, "import sys, hloom; sys.modules['jax'] = hloom") == printed


def test_nothing_is_loaded_twice():
    program = """
        import jax.numpy as jnp, jax.numpy.linalg as la, jax.lax, hloom.numpy, jax
        import jax.experimental.checkify
        from jax import tree_util
        print(jnp is hloom.numpy, la is hloom.numpy.linalg, jax.lax is hloom.lax, jnp.__name__, jnp.__spec__.name)
        try:
            import jax.nonsense
        except ModuleNotFoundError as error:
            print(error)
    """
    assert run(program) == "True True True hloom.numpy hloom.numpy\nNo module named 'jax.nonsense'\n"


def test_as_jax_for_a_while():
    real = pytest.importorskip("jax")
    with hl.as_jax():
        import jax
        import jax.numpy as jnp

        assert jax is hl and jnp is hnp
        assert jnp.asarray(np.ones(2)).dtype == np.float32
        assert jnp.asarray(np.ones(2), jnp.float64).dtype == np.float64
    import jax

    assert jax is real and hnp.asarray(np.ones(2)).dtype == np.float64


# --- settings -----------------------------------------------------------------------------------------------------


def test_settings_of_jax():
    before = hl.config.read("jax_enable_x64")
    with hl.enable_x64():
        assert hl.config.jax_enable_x64 is True and hnp.ones(1).dtype == np.float64
        assert hl.jit(lambda x: x + hnp.zeros(2))(1.0).dtype == np.float64
        with hl.enable_x64(False):
            assert hnp.ones(1).dtype == np.float32
    assert hl.config.jax_enable_x64 == before
    hl.config.update("jax_platform_name", "cpu")
    assert hl.config.read("jax_platform_name") == "cpu"
    with pytest.raises(SettingError, match="jax_nonsense"):
        hl.config.update("jax_nonsense", 1)
    with pytest.raises(SettingError, match="jax_nonsense"):
        hl.config.jax_nonsense  # noqa: B018


def test_enable_x64_compiles_anew():
    function = hl.jit(lambda x: x * hnp.arange(2))
    x = hnp.ones((), "f32")
    assert function(1.0).dtype == np.float32
    with hl.enable_x64():
        assert function(1.0).dtype == np.float64
    assert function(1.0).dtype == np.float32 and function(x).dtype == np.float32


@pytest.mark.parametrize("function", [hnp.log, hl.jit(lambda x: hnp.log(x))])
def test_debug_nans(function):
    x = hnp.array([-1.0])
    assert np.isnan(function(x)[0])
    with hl.debug_nans(), pytest.raises(FloatingPointError, match="nan"):
        function(x)
    with hl.debug_infs(), pytest.raises(FloatingPointError, match="inf"):
        function(hnp.array([0.0]))
    assert np.isnan(function(x)[0])


def test_disable_jit_runs_on_values():
    seen = []

    @hl.jit
    def function(x):
        seen.append(type(x).__name__)
        return x + 1 if x > 0 else x

    with hl.disable_jit():
        assert float(function(hnp.array(1.0))) == 2.0
    assert seen == ["Array"]
    with pytest.raises(hl.errors.TracerBoolError):
        function(hnp.array(1.0))


# --- contexts and facts -------------------------------------------------------------------------------------------


def test_contexts():
    with hl.default_matmul_precision("highest"), hl.named_scope("layer"), hl.numpy_dtype_promotion("standard"):
        assert float(hl.named_call(lambda x: x + 1, name="plus")(1.0)) == 2.0
    with pytest.raises(ArgumentError, match="lowest"), hl.default_matmul_precision("lowest"):
        pass


def test_default_device():
    with hl.config(num_cpu_devices=2):
        with hl.default_device(hl.devices()[1]):
            assert hnp.ones(1).devices() == {hl.devices()[1]}
        assert hnp.ones(1).devices() == {hl.devices()[0]}


def test_values_in_a_trace():
    @hl.jit
    def function(x):
        with hl.ensure_compile_time_eval():
            count = int(hnp.sum(hnp.arange(4)))
        return x * count

    assert float(function(2.0)) == 12.0


def test_make_jaxpr_prints_and_counts():
    program, shape = hl.make_jaxpr(lambda x, n: hnp.tanh(x) * n, static_argnums=1, return_shape=True)(hnp.ones(3), 2)
    assert "tanh" in str(program) and len(program.jaxpr.eqns) >= 2
    assert shape == program.out_avals[0] and [a.shape for a in program.in_avals] == [(3,)]


def test_facts():
    assert hl.default_backend() == "cpu" and hl.device_count() == len(hl.local_devices()) == hl.local_device_count()
    assert (hl.process_index(), hl.process_count()) == (0, 1)
    assert hl.typeof(hnp.ones((2, 3))).str_short() == "float32[2,3]"
    assert hl.__version__ in hl.print_environment_info(return_string=True)


def test_arrays_from_callbacks():
    sharding = hl.devices()[0]
    made = hl.make_array_from_callback((4,), sharding, lambda index: np.arange(4.0)[index])
    assert made.tolist() == [0, 1, 2, 3] and made.committed
    with pytest.raises(ArgumentError, match=r"\(3,\)"):
        hl.make_array_from_callback((3,), sharding, lambda index: np.arange(4.0))
    assert hl.make_array_from_single_device_arrays((4,), sharding, [made]).shape == (4,)
    with pytest.raises(ArgumentError, match="2 parts"):
        hl.make_array_from_single_device_arrays((4,), sharding, [made, made])


def test_clear_caches_forgets_compiled_functions():
    seen = []
    function = hl.jit(lambda x: seen.append(1) or x + 1)
    function(1.0)
    function(2.0)
    hl.clear_caches()
    function(3.0)
    assert len(seen) == 2


def test_ravel_pytree():
    from hloom.jax.flatten_util import ravel_pytree

    vector, unravel = ravel_pytree({"a": hnp.ones((2, 2)), "b": 3})
    assert vector.tolist() == [1, 1, 1, 1, 3] and unravel(vector)["b"].dtype == np.int32
    with pytest.raises(hl.errors.ShapeError, match="5 elements"):
        unravel(hnp.ones(4))
    assert ravel_pytree([])[0].shape == (0,)


def test_numbers_of_numpy_do_not_widen():
    program = """
        import numpy as np
        import jax, jax.numpy as jnp

        x = jnp.ones(2)
        found = [np.float64(3) * x, x / np.sqrt(2.0), jnp.arange(3) * np.int64(3), jnp.where(x > 0, x, np.float64(1)),
                 jax.jit(lambda x: x * np.sqrt(2.0))(x), jax.lax.fori_loop(0, 3, lambda i, c: c * np.float64(2.0), x),
                 jnp.zeros_like(np.ones(2)), np.ones(2) @ x, jnp.asarray(np.float64(3)), jnp.ones(2, "float64")]
        print(*[v.dtype for v in found])
        with jax.enable_x64(True):
            print((x * np.float64(2)).dtype)
    """
    expected = "float32 float32 int32" + " float32" * 6 + " float64\nfloat64\n"
    assert run(program) == expected
    assert run(program, "import sys, hloom; sys.modules['jax'] = hloom") == expected
    assert (hnp.ones(2) * np.float64(2)).dtype == np.float64


# --- modules under JAX's names ------------------------------------------------------------------------------------


def test_every_module_of_jax_is_a_module_of_hloom():
    from hloom.jax.import_hook import MODULES

    for name, home in MODULES.items():
        module = importlib.import_module(f"hloom.{name}")
        assert module is sys.modules[home] is getattr(hl, name) and module.__spec__.name == home


def test_modules_are_imported_by_hlooms_and_by_jaxs_names_and_loaded_once():
    out = run(
        """
        import sys
        import hloom.experimental
        import hloom.tree_util as tree_util
        from hloom.experimental import checkify

        assert hloom.experimental.checkify is checkify and checkify is sys.modules["hloom.jax.experimental.checkify"]
        assert checkify.__name__ == "hloom.jax.experimental.checkify"
        assert tree_util is hloom.tree_util

        hloom.as_jax()
        import jax.experimental.checkify
        import jax.tree_util

        assert jax.experimental.checkify is checkify and jax.tree_util is tree_util
        files = [m.__file__ for m in {id(m): m for m in sys.modules.values()}.values()
                 if getattr(m, "__name__", "").startswith("hloom") and getattr(m, "__file__", None)]
        assert len(files) == len(set(files))
        try:
            import hloom.no_such_module
        except ModuleNotFoundError as error:
            print(error)
        """,
        first="import hloom",
    )
    assert out == "No module named 'hloom.no_such_module'\n"
