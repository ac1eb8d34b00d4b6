"""Source locations in the user's program: file, line, function, variable name, and the device chosen there."""

from __future__ import annotations

import dis
import linecache
import os
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from functools import lru_cache
from types import FrameType
from typing import NamedTuple

_ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
# In a checkout the packages are siblings (linked into hloom), in an installation they are inside of it.
_INSTALLED = os.path.exists(os.path.join(_ROOT, "dispatch"))
_ROOMS = ("ir", "compiler", "runtime", "hloom")
_OURS = (_ROOT + os.sep,) if _INSTALLED else tuple(os.path.join(_ROOT, room) + os.sep for room in _ROOMS)
_LIBRARIES = (
    f"{os.sep}optree{os.sep}", f"{os.sep}functools.py", f"{os.sep}contextlib.py", "<frozen ",
    # Entry points of threads, and modules that are imported by name.
    *(os.path.join(os.path.dirname(os.__file__), *p) for p in (
        ("threading.py",), ("concurrent", "futures", "thread.py"), ("importlib", "__init__.py"))),
)  # fmt: skip
# Packages whose functions call methods and protocols of arbitrary arrays: the user's line is their caller.
_TAKE_ARRAYS = (
    "numpy", "scipy", "ml_dtypes", "opt_einsum", "einops", "array_api_compat", "array_api_extra", "sklearn", "pandas",
    "xarray", "matplotlib",
)  # fmt: skip
_PYTHON = os.path.dirname(os.__file__) + os.sep
_INSTALLED_BELOW = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class Source(NamedTuple):
    """A location in the user's program.

    variable: the name that the result is assigned to, or ''. device: the name of the device chosen for this location
    (`device_scope`), or ''. Instructions that passes and derivatives create from another one have its source, and thus
    its device.
    """

    file: str
    line: int
    function: str
    variable: str = ""
    device: str = ""

    def code(self) -> str:
        """The line's text, stripped; '' if the file cannot be read."""
        return linecache.getline(self.file, self.line).strip() if self.file else ""

    def __str__(self) -> str:
        if not self.file:
            return "an unknown line"
        return f"{self.file}:{self.line}" + (f" in {self.function}" if self.function else "")


_internal: dict[str, bool] = {}


def is_internal(filename: str) -> bool:
    """Whether a file belongs to hloom, or to a library between the user's code and hloom's."""
    known = _internal.get(filename)
    if known is None:
        path = os.path.realpath(filename) if os.path.exists(filename) else filename
        known = path.startswith(_OURS) or any(part in filename for part in _LIBRARIES)
        _internal[filename] = known
    return known


_not_the_users: dict[str, bool] = {}


def is_not_the_users(filename: str) -> bool:
    """Whether a file belongs to hloom, Python, or a library for arbitrary arrays, and thus contains no user code."""
    known = _not_the_users.get(filename)
    if known is None:
        known = is_internal(filename) or _is_of_python(filename) or _takes_arrays(filename)
        _not_the_users[filename] = known
    return known


def _is_of_python(filename: str) -> bool:
    return filename.startswith(_PYTHON) and not any(part in filename for part in _INSTALLED_BELOW)


def _takes_arrays(filename: str) -> bool:
    modules = [sys.modules.get(name) for name in _TAKE_ARRAYS]  # a module with a frame on the stack has been imported
    folders = [folder for module in modules for folder in getattr(module, "__path__", ())]
    return any(filename.startswith(folder + os.sep) for folder in folders)


def count_as_internal(path: str) -> None:
    """Registers a file, or the files in a folder, as library code."""
    global _OURS
    _OURS = (*_OURS, path + os.sep if os.path.isdir(path) else path)
    _internal.clear()
    _not_the_users.clear()


@lru_cache(maxsize=4096)
def _assigned_name(code, last: int) -> str:
    """The variable that the value made by the instruction at byte offset `last` is stored in directly, or ''."""
    number = 0
    # (`dis.get_instructions` starts at the first instruction: half a millisecond for a long function.)
    for at in range(last + 2, len(code.co_code), 2):
        name, number = dis.opname[code.co_code[at]], number << 8 | code.co_code[at + 1]
        if name in ("STORE_FAST", "STORE_DEREF"):
            return code._varname_from_oparg(number)
        if name in ("STORE_NAME", "STORE_GLOBAL"):
            return code.co_names[number]
        if name not in ("CACHE", "NOP", "COPY", "EXTENDED_ARG"):
            return ""
        if name != "EXTENDED_ARG":
            number = 0
    return ""


@lru_cache(maxsize=65536)
def _source_at(code, last: int, line: int) -> Source:
    return Source(code.co_filename, line, code.co_name, _assigned_name(code, last))


class _Scope(threading.local):
    device = ""
    rule: Callable[[str, str], str] | None = None  # (opcode, variable) -> the device of an operation
    anywhere = False  # whether devices may be named that this process does not (yet) know
    names = ""  # names of the `named_scope`s, separated by slashes
    place: Source | None = None  # the location in a program being translated, instead of the frames' lines


device_scopes = _Scope()  # per thread: `device` is that of the innermost scope, or ''


@contextmanager
def device_scope(device: str, rule: Callable[[str, str], str] | None = None):
    """Within it, sources of this thread name this device ('': none), or the one that a rule returns for each
    operation."""
    before = device_scopes.device, device_scopes.rule
    device_scopes.device, device_scopes.rule = device, rule
    try:
        yield
    finally:
        device_scopes.device, device_scopes.rule = before


@contextmanager
def source_scope():
    """Within it, this thread's source is the last argument of the yielded function instead of its frames', for programs
    of other frameworks, which record their lines themselves. None: frames again."""
    before = device_scopes.place

    def at(place: Source | None) -> None:
        device_scopes.place = place

    try:
        yield at
    finally:
        device_scopes.place = before


@contextmanager
def name_scope(name: str, outermost: bool = False):
    """Within it, function names in this thread's sources are prefixed with this name and a slash."""
    before = device_scopes.names
    device_scopes.names = name if outermost or not before else f"{before}/{name}"
    try:
        yield
    finally:
        device_scopes.names = before


@lru_cache(maxsize=65536)
def _in_scopes(source: Source | None, device: str, names: str) -> Source:
    source = source or Source("", 0, "")
    return source._replace(device=device, function=f"{names}/{source.function}".strip("/"))


@lru_cache(maxsize=65536)
def on_device(source: Source | None, device: str) -> Source:
    """A source with another device."""
    return (source or Source("", 0, ""))._replace(device=device)


def placement_line(name: str, opcode: str, device: str, source: Source | None) -> str:
    """A line of the placement log (`hl.config.log_device_placement`)."""
    return f"{name}: ({opcode}) {device}" + (f" at {source}" if source is not None and source.file else "")


def warn_user(message: str, category: type[Warning]) -> None:
    """Warns at the line of the innermost user frame, by default once per line."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_back is not None and is_not_the_users(frame.f_code.co_filename):
        frame = frame.f_back
    assert frame is not None  # the first frame of a thread has no `f_back`
    names = frame.f_globals
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        names.get("__name__", "<unknown>"),
        names.setdefault("__warningregistry__", {}),
    )


_SHOWN: dict = {}  # registry of compilation warnings


def warn_while_compiling(text: str, category: type[Warning], source: Source | None = None) -> None:
    """Warns about a user's line, once per message and line. Never raises.

    With warnings as errors (`python -W error`, the settings of pytest and jax) Python raises a warning where it is
    issued. During compilation, on an hloom thread or below another library's frames, that would abort a correct
    program, sometimes only on a busy machine: the message is then printed to stderr instead.
    """
    file, line = (source.file, source.line) if source is not None else ("hloom", 0)
    try:
        warnings.warn_explicit(text, category, file, line, registry=_SHOWN)
    except category:
        key = (text, category, line)
        if key not in _SHOWN:
            _SHOWN[key] = 1
            print(warnings.formatwarning(text, category, file, line), end="", file=sys.stderr)


def current_source(opcode: str = "") -> Source | None:
    """The innermost user frame of the call stack, with the chosen device; None if there is neither.

    opcode: of the requested operation, for rules that choose devices."""
    if device_scopes.place is not None:
        return device_scopes.place
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not is_not_the_users(frame.f_code.co_filename):
            source = _source_at(frame.f_code, frame.f_lasti, frame.f_lineno)
            break
        frame = frame.f_back
    else:
        source = None
    device, names = device_scopes.device, device_scopes.names
    if device_scopes.rule is not None and opcode:
        device = device_scopes.rule(opcode, source.variable if source is not None else "") or device
    return _in_scopes(source, device, names) if device or names else source
