"""JAX's settings (`jax.config.update("jax_enable_x64", True)`): which of them mean something here."""

from __future__ import annotations

import sys

from hloom.config import config
from hloom.errors import SettingError

# JAX's settings that mean something here, and those that are accepted because nothing depends on them.
_OURS = {
    "jax_enable_x64": "enable_x64",
    "jax_debug_nans": "debug_nans",
    "jax_debug_infs": "debug_infs",
    "jax_debug_key_reuse": "debug_key_reuse",
    "jax_disable_jit": "disable_jit",
    "jax_num_cpu_devices": "num_cpu_devices",
    "jax_compilation_cache_dir": "cache_dir",
    "jax_numpy_dtype_promotion": "numpy_dtype_promotion",
    "jax_numpy_rank_promotion": "numpy_rank_promotion",
    "jax_check_tracer_leaks": "check_tracer_leaks",
}
_ACCEPTED = {
    "jax_platforms": "cpu",
    "jax_platform_name": "cpu",
    "jax_default_matmul_precision": None,
    "jax_threefry_partitionable": True,
    "jax_default_prng_impl": "threefry2x32",
    "jax_enable_custom_prng": True,
    "jax_log_compiles": False,
    "jax_remat3": False,
    "jax_explain_cache_misses": False,
    "jax_traceback_filtering": "auto",
    "jax_dynamic_shapes": False,
    "jax_legacy_prng_key": "allow",
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


def parse_flags_with_absl() -> None:
    """Settings from arguments of the command line such as --jax_enable_x64=true or --jax_enable_x64."""
    for argument in sys.argv[1:]:
        name, _, value = argument.removeprefix("--").partition("=")
        if argument.startswith("--jax_") and (name in _OURS or name in _ACCEPTED):
            update_setting(name, value or True)


config.register("jax_", read_setting, update_setting)
for _name in ("parse_flags_with_absl", "config_with_absl"):
    config.register(_name, lambda _: parse_flags_with_absl, update_setting)
