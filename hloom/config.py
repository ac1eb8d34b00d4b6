"""`hl.config`: all settings in one table, each with its environment variable, parser, default and meaning.

`hl.config.num_threads = 1` changes one; `with hl.config(fusion=False):` changes some temporarily. An unknown name or an
invalid value raises SettingError, which names the nearest valid one. An unknown environment variable `HLOOM_*` is
ignored with a warning, as it may belong to another version or to the user.
"""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Callable
from contextlib import contextmanager

from hloom.errors import SettingError
from hloom.ir.records import record


def _flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("1 or 0")


def _count(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError("an integer of at least 1")
    return int(text)


def _bytes(text: str) -> int:
    units = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
    number = text.strip().lower().removesuffix("b").removesuffix("i")
    unit = number[-1:] if number[-1:] in ("k", "m", "g") else ""
    number = number.removesuffix(unit)
    if not number.isdecimal():
        raise ValueError("a number of bytes, such as 2000000000, 512M or 2G")
    return int(number) * units[unit]


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise ValueError("a number of seconds")
    return value


def _level(text: str) -> int:
    if text.strip() not in ("0", "1", "2", "3", "4"):
        raise ValueError("a level from 0 to 4")
    return int(text)


def _folder(text: str) -> str:
    """An absolute path, so that a program that changes its working directory keeps its folder; empty stays empty."""
    return os.path.abspath(os.path.expanduser(text)) if text.strip() else ""


def _one_of(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"{', '.join(map(repr, names[:-1]))} or {names[-1]!r}")
        return text

    return parse


def _cpu(text: str) -> str:
    # Asks LLVM for the processor, 30 ms that only who sets this pays.
    from hloom.compiler.targets.cpu.machine import machine_of, valid_choices

    try:
        machine_of(text)
    except ValueError:
        raise ValueError(f"one that this machine can run: {', '.join(map(repr, valid_choices()))}") from None
    return text


@record(frozen=True)
class Setting:
    """name, environment variable, parser of its text (ValueError says what is valid), default, meaning."""

    name: str
    variable: str
    parse: Callable
    default: object
    help: str


SETTINGS = {
    s.name: s
    for s in (
        Setting("num_threads", "HLOOM_NUM_THREADS", _count, None, "threads per kernel; default: the number of cores"),
        Setting("cache_dir", "HLOOM_CACHE_DIR", _folder, None, "folder for compiled kernels; empty: no disk cache"),
        Setting("dump_to", "HLOOM_DUMP_TO", _folder, "", "folder for the module after every pass and every kernel"),
        Setting("fusion", "HLOOM_FUSION", _flag, True, "fuse operations into kernels (0: one kernel per operation)"),
        Setting(
            "library_calls",
            "HLOOM_LIBRARY_CALLS",
            _flag,
            True,
            "programs call NumPy and LAPACK where they are faster than kernels (0: the bits of exported programs)",
        ),
        Setting(
            "autotune_seconds",
            "HLOOM_AUTOTUNE_SECONDS",
            _seconds,
            2.0,
            "time limit of `jit(autotune=True)` per program",
        ),
        Setting(
            "background_compilation",
            "HLOOM_BACKGROUND_COMPILATION",
            _flag,
            True,
            "run a fallback kernel while the kernel is compiled",
        ),
        Setting("verify", "HLOOM_VERIFY", _flag, False, "verify the module after every pass"),
        Setting(
            "enable_x64", "HLOOM_ENABLE_X64", _flag, False, "Python numbers without arrays have 64 bits instead of 32"
        ),
        Setting(
            "item_assignment",
            "HLOOM_ITEM_ASSIGNMENT",
            _flag,
            False,
            "x[i] = y changes x, for libraries written for NumPy",
        ),
        Setting(
            "narrow_numpy",
            "HLOOM_NARROW_NUMPY",
            _flag,
            False,
            "64-bit NumPy arrays become 32-bit, as in JAX (`as_jax`)",
        ),
        Setting(
            "clamp_indexes",
            "HLOOM_CLAMP_INDEXES",
            _flag,
            False,
            "indices out of bounds are clamped, as in JAX (`as_jax`)",
        ),
        Setting(
            "callback_arrays",
            "HLOOM_CALLBACK_ARRAYS",
            _flag,
            False,
            "Python functions in programs get hloom's arrays instead of NumPy's, as in JAX (`as_jax`)",
        ),
        Setting(
            "numpy_dtype_promotion",
            "HLOOM_NUMPY_DTYPE_PROMOTION",
            _one_of("standard", "strict"),
            "standard",
            "'strict': arrays of different dtypes raise DTypeError instead of being promoted",
        ),
        Setting(
            "numpy_rank_promotion",
            "HLOOM_NUMPY_RANK_PROMOTION",
            _one_of("allow", "warn", "raise"),
            "allow",
            "whether arrays of different ranks are broadcast, with a warning, or raise ShapeError",
        ),
        Setting(
            "check_tracer_leaks",
            "HLOOM_CHECK_TRACER_LEAKS",
            _flag,
            False,
            "a traced value that outlives its trace raises LeakedTracerError when the trace ends",
        ),
        Setting("debug_nans", "HLOOM_DEBUG_NANS", _flag, False, "a NaN in a result raises NonFiniteError"),
        Setting("debug_infs", "HLOOM_DEBUG_INFS", _flag, False, "an infinity in a result raises NonFiniteError"),
        Setting(
            "debug_checks",
            "HLOOM_DEBUG_CHECKS",
            _flag,
            False,
            "labels and ids of embeddings out of range raise IndexOutOfBoundsError in compiled programs too",
        ),
        Setting("debug_key_reuse", "HLOOM_DEBUG_KEY_REUSE", _flag, False, "a second use of a random key is an error"),
        Setting(
            "full_tracebacks",
            "HLOOM_FULL_TRACEBACKS",
            _flag,
            False,
            "tracebacks of uncaught errors show hloom's own frames too",
        ),
        Setting("disable_jit", "HLOOM_DISABLE_JIT", _flag, False, "run functions under jit step by step, on values"),
        Setting("num_cpu_devices", "HLOOM_NUM_CPU_DEVICES", _count, 1, "number of CPU devices; they share the threads"),
        Setting(
            "distributed_timeout",
            "HLOOM_DISTRIBUTED_TIMEOUT",
            _seconds,
            300.0,
            "seconds that a process waits for others before it raises DistributedError",
        ),
        Setting(
            "cluster_key_file",
            "HLOOM_CLUSTER_KEY_FILE",
            _folder,
            "~/.hloom/cluster_key",
            "file with the key of clusters that are not given one; the default is created by its first use, others by "
            "`hloom cluster key`",
        ),
        Setting(
            "cluster_task",
            "HLOOM_CLUSTER_TASK",
            _folder,
            "",
            "file that tells a process which task of a job it is; `hloom cluster submit` sets it",
        ),
        Setting("cpu", "HLOOM_CPU", _cpu, "native", "target of CPU kernels: x86-64-v2, -v3, -v4 or native"),
        Setting(
            "codegen",
            "HLOOM_CODEGEN",
            _one_of("llvm", "numba"),
            "llvm",
            "what compiles CPU kernels: hloom's LLVM emitter, or Numba's front end, as a second opinion",
        ),
        Setting(
            "check_bounds",
            "HLOOM_CHECK_BOUNDS",
            _one_of("0", "1", "all"),
            "0",
            "check accesses of CPU kernels: '1' those that are not proved to be within their arrays, 'all' all of them",
        ),
        Setting(
            "guard_scratch",
            "HLOOM_GUARD_SCRATCH",
            _flag,
            False,
            "guard pages behind the temporary memory of CPU programs, for tests: an access behind it ends the process",
        ),
        Setting(
            "cpu_memory", "HLOOM_CPU_MEMORY", _bytes, 0, "memory limit of a program on a CPU device, in bytes; 0: none"
        ),
        Setting(
            "tape_bytes",
            "HLOOM_TAPE_BYTES",
            _bytes,
            2 << 30,
            "memory limit of what the gradient of a kernel keeps, in bytes; loops of unknown length reserve it",
        ),
        Setting(
            "program_memory",
            "HLOOM_PROGRAM_MEMORY",
            _bytes,
            64 << 20,
            "bytes of compiled programs, roughly, beyond which the least recently used are freed; 0: no limit",
        ),
        Setting(
            "soft_placement",
            "HLOOM_SOFT_PLACEMENT",
            _flag,
            False,
            "operations that their device cannot run are placed on cpu:0",
        ),
        Setting(
            "log_device_placement", "HLOOM_LOG_DEVICE_PLACEMENT", _flag, False, "print the device of each operation"
        ),
        Setting(
            "cuda_stepwise",
            "HLOOM_CUDA_STEPWISE",
            _flag,
            False,
            "wait for each GPU launch, so that errors name the kernel",
        ),
        Setting(
            "cuda_libraries",
            "HLOOM_CUDA_LIBRARIES",
            _one_of("measured", "never", "always"),
            "measured",
            "NVIDIA's libraries on GPUs: 'measured' (where they are faster), 'never' or 'always'",
        ),
        Setting(
            "cuda_tf32",
            "HLOOM_CUDA_TF32",
            _flag,
            False,
            "round the operands of float32 products on GPUs to TF32 (11 bits)",
        ),
        Setting(
            "debug",
            "HLOOM_DEBUG",
            _level,
            0,
            "0: quiet; 1: log compilations and reasons; 2: and times; 3: and fusion decisions; 4: and kernel sources",
        ),
    )
}
_VARIABLES = {s.variable: s for s in SETTINGS.values()}


def _nearest(name: str, valid) -> str:
    found = difflib.get_close_matches(name, list(valid), 1, 0.0)
    return found[0]


def _parse(setting: Setting, text: str, what: str):
    try:
        return setting.parse(text)
    except ValueError as error:
        raise SettingError(
            f"{what} was set to {text!r}", setting.help, f"set it to {error}" if str(error) else "correct the value"
        ) from None


class Config:
    """The settings as attributes. See the module's docstring; `hl.config.describe()` lists them."""

    def __init__(self):
        values = {name: s.default for name, s in SETTINGS.items()}
        for variable, text in os.environ.items():
            if variable.startswith("HLOOM_"):
                if variable not in _VARIABLES:
                    warnings.warn(
                        f"hloom does not know the environment variable {variable} and ignores it; did you mean "
                        f"{_nearest(variable, _VARIABLES)}?",
                        stacklevel=2,
                    )
                    continue
                setting = _VARIABLES[variable]
                values[setting.name] = _parse(setting, text, variable)
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_listeners", {})
        object.__setattr__(self, "_registered", {})

    def __getattr__(self, name: str):
        try:
            return self._values[name]
        except KeyError:
            return self._handler(name)[0](name)

    def __setattr__(self, name: str, value) -> None:
        if name not in SETTINGS:
            return self._handler(name)[1](name, value)
        setting = SETTINGS[name]
        if value is not None:
            value = _parse(setting, str(int(value)) if isinstance(value, bool) else str(value), f"hl.config.{name}")
        self._values[name] = value
        for listener in self._listeners.get(name, ()):
            listener(value)

    def _handler(self, name: str) -> tuple[Callable, Callable]:
        """What was registered for a name that is none of SETTINGS. Raises SettingError."""
        for prefix, functions in self._registered.items():
            if name.startswith(prefix):
                return functions
        raise SettingError(
            f"setting {name!r}",
            f"hloom knows {', '.join(SETTINGS)}",
            f"did you mean {_nearest(name, SETTINGS)}?",
        )

    def register(self, prefix: str, read: Callable, update: Callable) -> None:
        """Other names, which start with `prefix`: `read(name)` returns their value, `update(name, value)` sets it."""
        self._registered[prefix] = read, update

    @contextmanager
    def __call__(self, **changes):
        before = {name: getattr(self, name) for name in changes}
        for name, value in changes.items():
            setattr(self, name, value)
        try:
            yield self
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    def describe(self) -> str:
        """A table of all settings: name, variable, value, meaning."""
        rows = [(s.name, s.variable, repr(self._values[s.name]), s.help) for s in SETTINGS.values()]
        widths = [max(len(r[k]) for r in rows) for k in range(3)]
        return "\n".join("  ".join([r[k].ljust(widths[k]) for k in range(3)] + [r[3]]) for r in rows)

    def update(self, name: str, value) -> None:
        """Changes a setting by its name, hloom's or JAX's: update("jax_enable_x64", True). Raises SettingError."""
        setattr(self, name, value)

    def read(self, name: str):
        """The value of a setting by its name, hloom's or JAX's. Raises SettingError."""
        return getattr(self, name)

    def on_change(self, name: str, listener: Callable) -> None:
        """Calls `listener(value)` when the setting changes."""
        self._listeners.setdefault(name, []).append(listener)


config = Config()
