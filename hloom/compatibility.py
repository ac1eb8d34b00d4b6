"""Running programs written for JAX: `hl.as_jax()`, and JAX's names for settings, contexts and facts about the process.

`import jax` finds hloom after `hl.as_jax()` or after `sys.modules["jax"] = hloom`; its submodules follow by themselves.
What has no meaning on one machine's CPU (transfer guards, profiles of accelerators) is not here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.machinery
import importlib.util
import sys
import weakref

import numpy as np

from hloom import pytrees as tree
from hloom.array import Array
from hloom.config import config
from hloom.devices import choose_default_device, devices, find_device
from hloom.errors import ArgumentError, SettingError
from hloom.operators import ArrayMethods
from hloom.shapes import ShapeDtypeStruct
from hloom.tracing import TRACES, as_array

# --- import jax ---------------------------------------------------------------------------------------------------

# Where a module of JAX has another name here.
_RENAMED = {"jax.ad_checkpoint": "hloom.checkpoint", "jax._src": "hloom"}


_AS_JAX = ("narrow_numpy", "clamp_indexes")  # settings in which JAX's rules differ from hloom's own


class _Finder:
    """Finds hloom's module for the name of JAX's, while `sys.modules["jax"]` is hloom. Nothing is loaded twice.

    The first such import chooses the settings of `as_jax`.
    """

    settled = False

    def find_spec(self, fullname, path=None, target=None):
        if not fullname.startswith("jax.") or sys.modules.get("jax") is not sys.modules.get("hloom"):
            return None
        ours = _RENAMED.get(fullname, "hloom" + fullname.removeprefix("jax").removeprefix("._src"))
        if not self._is_module(ours) and self._attribute(ours) is None:
            return None
        if not self.settled:
            self.settled = True
            for name in _AS_JAX:
                setattr(config, name, True)
        return importlib.machinery.ModuleSpec(fullname, self, origin=ours)

    @staticmethod
    def _is_module(ours: str) -> bool:
        try:
            return importlib.util.find_spec(ours) is not None
        except ModuleNotFoundError:
            return False

    @staticmethod
    def _attribute(ours: str):
        """What stands under a name that is no module here, such as a distribution of `scipy.stats`; or None."""
        parent, _, name = ours.rpartition(".")
        try:
            return vars(importlib.import_module(parent)).get(name) if parent else None
        except ModuleNotFoundError:
            return None

    def create_module(self, spec):
        if self._is_module(spec.origin):
            module = importlib.import_module(spec.origin)
            module.__dict__.setdefault("_own_spec", module.__spec__)
            return module
        attribute = self._attribute(spec.origin)
        holder = type(sys)(spec.name, attribute.__doc__)
        holder.__dict__.update({n: getattr(attribute, n) for n in dir(attribute) if not n.startswith("_")})
        holder._own_spec = spec
        return holder

    def exec_module(self, module) -> None:
        module.__spec__ = module.__dict__["_own_spec"]  # the import system had put JAX's name there


class _Installed(contextlib.AbstractContextManager):
    """What `as_jax` returns: as a context manager it puts back what was there before."""

    def __init__(self, before: dict):
        self._before, self._settings = before, {name: getattr(config, name) for name in _AS_JAX}

    def __exit__(self, *exception) -> None:
        for name in [n for n in sys.modules if n == "jax" or n.startswith("jax.")]:
            del sys.modules[name]
        sys.modules.update(self._before)
        for name, value in self._settings.items():
            setattr(config, name, value)


def as_jax() -> _Installed:
    """From now on `import jax` and the imports of its submodules give hloom's. A JAX that was imported is set aside.

    As in JAX without 64 bits, NumPy's arrays of 64 bits are then taken over as 32 bits (`hl.config.narrow_numpy`)
    unless enable_x64 is set, and integers outside of an axis name its first or last element
    (`hl.config.clamp_indexes`). `with hl.as_jax():` does so for a while.

        import hloom
        hloom.as_jax()
        import jax.numpy as jnp  # hloom.numpy
    """
    names = [n for n in sys.modules if n == "jax" or n.startswith("jax.")]
    before = {name: sys.modules.pop(name) for name in names}
    sys.modules["jax"] = sys.modules["hloom"]
    installed = _Installed(before)
    for name in _AS_JAX:
        setattr(config, name, True)
    return installed


def install_finder() -> None:
    """Lets `sys.modules["jax"] = hloom` work for submodules too. Called when hloom is imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


# --- settings for a while -----------------------------------------------------------------------------------------


def _setting(name: str, text: str):
    @contextlib.contextmanager
    def context(new_val: bool = True):
        with config(**{name: new_val}):
            yield

    context.__name__ = context.__qualname__ = name
    context.__doc__ = f"`with {name}():` {text}; {name}(False) takes it back."
    return context


enable_x64 = _setting("enable_x64", "Python numbers alone are of 64 bits")
debug_nans = _setting("debug_nans", "a NaN in a result raises FloatingPointError")
debug_infs = _setting("debug_infs", "an infinity in a result raises FloatingPointError")


def disable_jit(disable: bool = True):
    """`with disable_jit():` functions under `hl.jit` run step by step on values, so that they can be debugged."""
    return config(disable_jit=disable)


@contextlib.contextmanager
def default_matmul_precision(precision):
    """Takes the names of JAX's precisions. Products are of the full precision of their dtype, but for those of float32
    on GPUs with `hl.config.cuda_tf32`."""
    names = ("default", "high", "highest", "bfloat16", "bfloat16_3x", "tensorfloat32", "float32", None)
    if precision not in names and not hasattr(precision, "name"):
        raise ArgumentError("default_matmul_precision", f"{precision!r}", f"one of {', '.join(map(str, names))}")
    yield


@contextlib.contextmanager
def numpy_dtype_promotion(new_val: str):
    """Takes 'standard', the only promotion that hloom has. Raises ArgumentError."""
    if new_val != "standard":
        raise ArgumentError("numpy_dtype_promotion", f"{new_val!r}", "hloom promotes as JAX's 'standard' does")
    yield


@contextlib.contextmanager
def default_device(device):
    """`with default_device(d):` new arrays for which no device is chosen belong to it. Raises DeviceError."""
    before = choose_default_device(None if device is None else find_device(device))
    try:
        yield
    finally:
        choose_default_device(before)


@contextlib.contextmanager
def ensure_compile_time_eval():
    """Inside of a trace: what is computed on known values is computed at once, instead of being recorded."""
    TRACES.active.append(None)
    try:
        yield
    finally:
        TRACES.active.pop()


@contextlib.contextmanager
def check_tracer_leaks(new_val: bool = True):
    """Changes nothing: a traced value that is used after its trace always raises LeakedTracerError."""
    yield


checking_leaks = check_tracer_leaks


@contextlib.contextmanager
def named_scope(name: str):
    """Names a part of a program for its reader. Instructions already know their line and variable."""
    if not isinstance(name, str):
        raise ArgumentError("named_scope takes a name", f"{name!r:.60}", "pass a string")
    yield name


def named_call(fun, *, name: str | None = None):
    """fun under a name of its own."""

    @functools.wraps(fun)
    def call(*args, **kwargs):
        with named_scope(name or getattr(fun, "__name__", "function")):
            return fun(*args, **kwargs)

    return call


# --- programs and arrays ------------------------------------------------------------------------------------------


class Program:
    """A traced function to look at: prints as HLO text. `module` is hloom's, `in_avals` and `out_avals` its shapes,
    `consts` the values from traces around it: the module's last parameters."""

    def __init__(self, module, in_avals, out_avals, out_shape, consts=()):
        self.module, self.in_avals, self.out_avals, self.out_shape = module, in_avals, out_avals, out_shape
        self.consts = list(consts)

    @property
    def jaxpr(self) -> Program:
        return self

    @property
    def eqns(self) -> list:
        """The instructions, parameters left out."""
        return [i for i in self.module.entry.instructions if i.opcode != "parameter"]

    def __str__(self) -> str:
        from hloom.ir.text import print_module

        return print_module(self.module)

    __repr__ = __str__

    def pretty_print(self, **options) -> str:
        return str(self)


def make_jaxpr(fun, static_argnums=(), axis_env=None, return_shape: bool = False, abstracted_axes=None):
    """A function that traces fun on its arguments and returns the `Program`; prints as HLO text instead of a jaxpr."""
    from hloom.jit import jit
    from hloom.shapes import eval_shape

    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)

    @functools.wraps(fun)
    def make(*args, **kwargs):
        kept = [k for k in range(len(args)) if k not in {s % len(args) for s in static}]

        def traced(*dynamic, **named):
            given = list(args)
            for place, value in zip(kept, dynamic, strict=True):
                given[place] = value
            return fun(*given, **named)

        dynamic = [args[k] for k in kept]
        shape = eval_shape(traced, *dynamic, **kwargs)
        lowered = jit(traced).lower(*dynamic, **kwargs)
        inputs = [_aval(leaf) for leaf in tree.leaves((dynamic, kwargs))]
        program = Program(lowered.module, inputs, tree.leaves(shape), shape, lowered._traced.captures)
        return (program, shape) if return_shape else program

    return make


def _aval(leaf):
    return leaf if isinstance(leaf, ShapeDtypeStruct) else as_array(leaf).aval


def typeof(x):
    """The shape and dtype of an array or number; of random keys their type, `key<fry>[2]`."""
    if hasattr(x, "key_type"):
        return x.key_type
    return _aval(x)


_live: weakref.WeakSet = weakref.WeakSet()


def make_array_from_callback(shape, sharding, data_callback, dtype=None):
    """An array of what data_callback returns for the index of each device's part; here of the whole array.

    Raises DeviceError for a sharding over several devices.
    """
    device = find_device(sharding)
    data = data_callback(tuple(slice(None) for _ in shape))
    value = as_array(np.asarray(data, dtype))
    if value.shape != tuple(shape):
        raise ArgumentError(f"the callback makes an array {tuple(shape)}", f"{value._shape!r}", "match the shapes")
    return Array(value._value(), False, device)


def make_array_from_single_device_arrays(shape, sharding, arrays, *, dtype=None):
    """The one array of a sharding over one device. Raises ArgumentError for several."""
    (array,) = arrays if len(arrays) == 1 else (None,)
    if array is None or array.shape != tuple(shape):
        raise ArgumentError(
            "an array of the parts on each device", f"{len(arrays)} parts for {shape}", "pass the one whole array"
        )
    return Array(array._value(), array.weak, find_device(sharding))


def clear_caches() -> None:
    """Forgets every compiled function of this process; code stays in the cache on disk."""
    from hloom.jit import clear_all

    clear_all()


def effects_barrier() -> None:
    """Nothing: effects have happened when a call returns."""


def print_environment_info(return_string: bool = False) -> str | None:
    """The versions and devices that a report of a fault should tell."""
    import platform

    import hloom

    text = "\n".join(
        (
            f"hloom:    {hloom.__version__}",
            f"numpy:    {np.__version__}",
            f"python:   {sys.version}",
            f"devices:  {', '.join(map(str, devices()))}",
            f"platform: {platform.platform()}",
        )
    )
    if return_string:
        return text
    print(text)
    return None


# --- jax.config ---------------------------------------------------------------------------------------------------

# JAX's settings that mean something here, and those that are accepted because nothing depends on them.
_OURS = {
    "jax_enable_x64": "enable_x64",
    "jax_debug_nans": "debug_nans",
    "jax_debug_infs": "debug_infs",
    "jax_disable_jit": "disable_jit",
    "jax_num_cpu_devices": "num_cpu_devices",
    "jax_compilation_cache_dir": "cache_dir",
}
_ACCEPTED = {
    "jax_platforms": "cpu",
    "jax_platform_name": "cpu",
    "jax_default_matmul_precision": None,
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
    "jax_threefry_partitionable": True,
    "jax_default_prng_impl": "threefry2x32",
    "jax_enable_custom_prng": True,
    "jax_check_tracer_leaks": False,
    "jax_log_compiles": False,
    "jax_remat3": False,
    "jax_explain_cache_misses": False,
    "jax_traceback_filtering": "auto",
    "jax_dynamic_shapes": False,
    "jax_legacy_prng_key": "allow",
    "jax_debug_key_reuse": False,
    "jax_persistent_cache_min_compile_time_secs": 1.0,
    "jax_persistent_cache_min_entry_size_bytes": 0,
}
_given: dict[str, object] = {}


def update_setting(name: str, value) -> None:
    """`jax.config.update(name, value)`. Raises SettingError for a name that hloom does not know."""
    if name in _OURS:
        setattr(config, _OURS[name], value)
    elif name in _ACCEPTED:
        _given[name] = value
    else:
        raise SettingError(f"setting {name!r} of JAX", f"hloom knows {', '.join([*_OURS, *_ACCEPTED])}", "leave it out")


def read_setting(name: str):
    """The value of one of JAX's settings. Raises SettingError."""
    if name in _OURS:
        return getattr(config, _OURS[name])
    if name in _ACCEPTED:
        return _given.get(name, _ACCEPTED[name])
    raise SettingError(f"setting {name!r} of JAX", "unknown here", f"hloom knows {', '.join([*_OURS, *_ACCEPTED])}")


def check_result(value) -> None:
    """Raises FloatingPointError where an array of a result has a NaN (debug_nans) or infinity (debug_infs)."""
    for leaf in tree.leaves(value):
        data = leaf._data if isinstance(leaf, Array) else leaf
        if isinstance(leaf, ArrayMethods) and not isinstance(leaf, Array):
            continue
        if not isinstance(data, np.ndarray) or data.dtype.kind not in "fcV":
            continue
        if config.debug_nans and np.isnan(data).any():
            raise FloatingPointError(f"invalid value (nan) encountered in a result {leaf!r:.200}")
        if config.debug_infs and np.isinf(data).any():
            raise FloatingPointError(f"invalid value (inf) encountered in a result {leaf!r:.200}")
