"""Where in the user's program something came from: file, line, function, variable name, and the device chosen there."""

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
# In a checkout the rooms lie side by side (the package reaches them through links), installed inside of the package.
_INSTALLED = os.path.exists(os.path.join(_ROOT, "dispatch"))
_ROOMS = ("ir", "compiler", "runtime", "hloom")
_OURS = (_ROOT + os.sep,) if _INSTALLED else tuple(os.path.join(_ROOT, room) + os.sep for room in _ROOMS)
_LIBRARIES = (
    f"{os.sep}optree{os.sep}", f"{os.sep}functools.py", f"{os.sep}contextlib.py", "<frozen ",
    # Where threads begin, and modules that are imported by name.
    *(os.path.join(os.path.dirname(os.__file__), *p) for p in (
        ("threading.py",), ("concurrent", "futures", "thread.py"), ("importlib", "__init__.py"))),
)  # fmt: skip
# Packages whose functions call methods and protocols of any array: the user's line is the one that calls them.
_TAKE_ARRAYS = (
    "numpy", "scipy", "ml_dtypes", "opt_einsum", "einops", "array_api_compat", "array_api_extra", "sklearn", "pandas",
    "xarray", "matplotlib",
)  # fmt: skip
_PYTHON = os.path.dirname(os.__file__) + os.sep
_INSTALLED_BELOW = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class Source(NamedTuple):
    """A place in the user's program.

    variable: the name that the result is assigned to, or ''. device: the name of the device that was chosen for what
    stands there (`device_scope`), or ''. What a pass or a derivative makes of an instruction has its source, and so its
    device.
    """

    file: str
    line: int
    function: str
    variable: str = ""
    device: str = ""

    def code(self) -> str:
        """The line's text, without the space around it; '' where the file cannot be read."""
        return linecache.getline(self.file, self.line).strip() if self.file else ""

    def __str__(self) -> str:
        if not self.file:
            return "an unknown line"
        return f"{self.file}:{self.line}" + (f" in {self.function}" if self.function else "")


_internal: dict[str, bool] = {}


def is_internal(filename: str) -> bool:
    """Whether a file is hloom's, or of a library that stands between the user's code and hloom's."""
    known = _internal.get(filename)
    if known is None:
        path = os.path.realpath(filename) if os.path.exists(filename) else filename
        known = path.startswith(_OURS) or any(part in filename for part in _LIBRARIES)
        _internal[filename] = known
    return known


_not_the_users: dict[str, bool] = {}


def is_not_the_users(filename: str) -> bool:
    """Whether a file is hloom's, Python's, or of a library that takes any arrays: no line of it is the user's."""
    known = _not_the_users.get(filename)
    if known is None:
        known = is_internal(filename) or _is_of_python(filename) or _takes_arrays(filename)
        _not_the_users[filename] = known
    return known


def _is_of_python(filename: str) -> bool:
    return filename.startswith(_PYTHON) and not any(part in filename for part in _INSTALLED_BELOW)


def _takes_arrays(filename: str) -> bool:
    modules = [sys.modules.get(name) for name in _TAKE_ARRAYS]  # one with a frame on the stack was imported
    folders = [folder for module in modules for folder in getattr(module, "__path__", ())]
    return any(filename.startswith(folder + os.sep) for folder in folders)


def count_as_internal(path: str) -> None:
    """From now on a file, or the files in a folder, count as a library's."""
    global _OURS
    _OURS = (*_OURS, path + os.sep if os.path.isdir(path) else path)
    _internal.clear()
    _not_the_users.clear()


@lru_cache(maxsize=4096)
def _assigned_name(code, last: int) -> str:
    """The variable that the value made by the instruction at byte offset `last` is stored in directly, or ''."""
    number = 0
    # (`dis.get_instructions` begins with the first: half a millisecond for a function of some length.)
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
    anywhere = False  # whether devices may be named that this process does not know (yet)
    names = ""  # of the `named_scope`s, separated by slashes
    place: Source | None = None  # where the program stands that is translated, in place of the frames' lines


device_scopes = _Scope()  # of each thread: `device` is that of the innermost scope, or ''


@contextmanager
def device_scope(device: str, rule: Callable[[str, str], str] | None = None):
    """Within it, sources of this thread name this device ('': none), or the one that a rule says for each operation."""
    before = device_scopes.device, device_scopes.rule
    device_scopes.device, device_scopes.rule = device, rule
    try:
        yield
    finally:
        device_scopes.device, device_scopes.rule = before


@contextmanager
def source_scope():
    """Within it, this thread's sources are those that the yielded function was last called with, not its frames': for
    programs of other frameworks, which note their lines themselves. None: frames again."""
    before = device_scopes.place

    def at(place: Source | None) -> None:
        device_scopes.place = place

    try:
        yield at
    finally:
        device_scopes.place = before


@contextmanager
def name_scope(name: str, outermost: bool = False):
    """Within it, the functions of sources of this thread have this name and a slash in front."""
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
    """A source with a device instead of its own."""
    return (source or Source("", 0, ""))._replace(device=device)


def placement_line(name: str, opcode: str, device: str, source: Source | None) -> str:
    """A line of the log of placements (`hl.config.log_device_placement`)."""
    return f"{name}: ({opcode}) {device}" + (f" at {source}" if source is not None and source.file else "")


def warn_user(message: str, category: type[Warning]) -> None:
    """Warns at the line of the innermost frame that is the user's, once for each line by Python's default."""
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


_SHOWN: dict = {}  # registry of the warnings of compilations


def warn_while_compiling(text: str, category: type[Warning], source: Source | None = None) -> None:
    """Warns of a line of the user's, once for each text and line. Never raises.

    With warnings as errors (`python -W error`, pytest's and jax's own settings) Python raises a warning where it is
    issued. In the middle of a compilation, on a thread of hloom's or below another library's frames, that would end a
    program that is right, some only on a busy machine: there the text is printed to stderr instead.
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
    """The innermost frame of the call stack that is the user's, with the chosen device; None where neither is.

    opcode: of the operation that is asked for, for rules that choose devices."""
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
