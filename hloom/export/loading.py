"""`hl.export.load(path)`: an exported library in this process, called with NumPy arrays. It needs no compiler."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from hloom.errors import ArgumentError, ExportError, MissingFileError
from hloom.export.toolchain import check_library
from hloom.ir.records import record

__all__ = ["Function", "Library", "Value", "load"]

ABI = 1  # HLOOM_ABI of native/hloom.h
_DTYPES = [np.dtype(np.void)] + [
    np.dtype(kind)
    for kind in (
        np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float16,
        ml_dtypes.bfloat16, np.float32, np.float64, np.complex64, np.complex128,
    )
]  # fmt: skip


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
    ]


class _Value(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("extents", ctypes.POINTER(ctypes.c_char_p)),
        ("bytes", ctypes.c_int64),
    ]


class _Dimension(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("least", ctypes.c_int64), ("most", ctypes.c_int64)]


class _Function(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("inputs", ctypes.POINTER(_Value)),
        ("outputs", ctypes.POINTER(_Value)),
        ("input_count", ctypes.c_int32),
        ("output_count", ctypes.c_int32),
        ("reads_state", ctypes.c_int32),
        ("updates_state", ctypes.c_int32),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_int32),
        ("num_threads", ctypes.c_int32),
        ("allocate", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("weights", ctypes.c_char_p),
    ]


_P, _I, _N = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t
_TENSORS, _SIZES = ctypes.POINTER(_Tensor), ctypes.POINTER(ctypes.c_int64)


class _Library(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_int32),
        ("name", ctypes.c_char_p),
        ("version", ctypes.c_char_p),
        ("target", ctypes.c_char_p),
        ("processor", ctypes.c_char_p),
        ("functions", ctypes.POINTER(_Function)),
        ("function_count", ctypes.c_int32),
        ("state", ctypes.POINTER(_Value)),
        ("state_count", ctypes.c_int32),
        ("dimensions", ctypes.POINTER(_Dimension)),
        ("dimension_count", ctypes.c_int32),
        ("weights", ctypes.c_char_p),
        ("trees", ctypes.c_char_p),
        ("create", ctypes.CFUNCTYPE(_I, ctypes.POINTER(_Options), ctypes.POINTER(_P))),
        ("destroy", ctypes.CFUNCTYPE(None, _P)),
        ("run", ctypes.CFUNCTYPE(_I, _P, _I, _TENSORS, _N, _TENSORS, _N)),
        ("output_shape", ctypes.CFUNCTYPE(_I, _P, _I, _TENSORS, _N, _I, _SIZES)),
        ("read_state", ctypes.CFUNCTYPE(_I, _P, _I, _P, _N)),
        ("write_state", ctypes.CFUNCTYPE(_I, _P, _I, _P, _N)),
        ("save_state", ctypes.CFUNCTYPE(_I, _P, ctypes.c_char_p)),
        ("load_state", ctypes.CFUNCTYPE(_I, _P, ctypes.c_char_p)),
        ("error", ctypes.CFUNCTYPE(ctypes.c_char_p)),
    ]


@record(frozen=True)
class Value:
    """An input, an output or a part of the state. shape: sizes, or text such as "batch" for those that vary."""

    name: str
    dtype: np.dtype
    shape: tuple[int | str, ...]


def _values(found: Any, count: int) -> tuple[Value, ...]:
    made = []
    for k in range(count):
        one = found[k]
        sizes = [one.shape[axis] if one.shape[axis] >= 0 else one.extents[axis].decode() for axis in range(one.rank)]
        made.append(Value(one.name.decode(), _DTYPES[one.dtype], tuple(sizes)))
    return tuple(made)


class Function:
    """A function of a loaded library: call it as the Python function it was exported from, without the state.

    inputs, outputs: `Value`s. `by_name({"x": x})` takes and returns arrays by the names of these.
    """

    def __init__(self, library: Library, number: int, found: _Function, trees: Mapping[str, Any]):
        self.name = found.name.decode()
        self.inputs = _values(found.inputs, found.input_count)
        self.outputs = _values(found.outputs, found.output_count)
        self.reads_state, self.updates_state = bool(found.reads_state), bool(found.updates_state)
        self._library, self._number, self._trees = library, number, trees

    def __repr__(self) -> str:
        shown = ", ".join(f"{v.name}: {_shown(v)}" for v in self.inputs)
        return f"{self.name}({shown}) -> {', '.join(_shown(v) for v in self.outputs)}"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The result for these arguments. Raises ArgumentError for arguments that do not fit."""
        names = list(self._trees["arguments"])
        if len(arguments) > len(names):
            raise ArgumentError(
                f"a call of '{self.name}'", f"{len(arguments)} arguments", f"it takes {', '.join(names)}"
            )
        given = dict(zip(names, arguments, strict=False)) | named
        if set(given) != set(names):
            wrong = sorted(set(given) ^ set(names))
            raise ArgumentError(
                f"a call of '{self.name}'", f"{wrong[0]!r} is missing or unknown", f"it takes {', '.join(names)}"
            )
        leaves: list[Any] = [None] * len(self.inputs)
        for name in names:
            self._fill(leaves, self._trees["arguments"][name], given[name], name)
        return _built(self._trees["result"], self.run(leaves))

    def _fill(self, leaves: list, structure: Any, value: Any, path: str) -> None:
        if isinstance(structure, int):
            leaves[structure] = value
        elif structure is not None:
            ((kind, children),) = structure.items()
            pairs = children.items() if kind == "dict" else enumerate(children)
            for key, child in pairs:
                try:
                    part = value[key] if kind != "dict" or isinstance(value, Mapping) else getattr(value, str(key))
                except (KeyError, IndexError, AttributeError, TypeError):
                    raise ArgumentError(
                        f"a call of '{self.name}'", f"{path} has no {key!r}", "pass a tree like that of the export"
                    ) from None
                self._fill(leaves, child, part, f"{path}[{key!r}]")

    def by_name(self, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Outputs by name, for inputs by name. Raises ArgumentError, ExportError."""
        missing = [value.name for value in self.inputs if value.name not in arrays]
        unknown = [name for name in arrays if name not in {value.name for value in self.inputs}]
        if missing or unknown:
            raise ArgumentError(
                f"inputs of '{self.name}'",
                f"{(missing or unknown)[0]!r} is {'missing' if missing else 'unknown'}",
                f"it has {', '.join(v.name for v in self.inputs) or 'none'}",
            )
        results = self.run([arrays[value.name] for value in self.inputs])
        return dict(zip([value.name for value in self.outputs], results, strict=True))

    def run(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        """Outputs in order, for inputs in order. Raises ArgumentError, ExportError."""
        if len(arrays) != len(self.inputs):
            raise ArgumentError(
                f"a call of '{self.name}'", f"{len(arrays)} arrays", f"it has {len(self.inputs)} inputs"
            )
        given = [self._array(array, value) for array, value in zip(arrays, self.inputs, strict=True)]
        return self._library._run(self, given)

    def _array(self, array: Any, value: Value) -> np.ndarray:
        made = np.asarray(array)
        if made.dtype != value.dtype:
            if isinstance(array, (bool, int, float, complex)) and np.can_cast(made.dtype, value.dtype, "same_kind"):
                made = made.astype(value.dtype)
            else:
                raise ArgumentError(
                    f"input {value.name!r} of '{self.name}'",
                    f"dtype {made.dtype}, it must be {value.dtype}",
                    f"convert it: {value.name}.astype('{value.dtype}')",
                )
        return np.ascontiguousarray(made) if made.ndim else made


def _shown(value: Value) -> str:
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"


def _built(structure: Any, leaves: Sequence[Any]) -> Any:
    if structure is None or isinstance(structure, int):
        return None if structure is None else leaves[structure]
    ((kind, children),) = structure.items()
    if kind == "dict":
        return {key: _built(child, leaves) for key, child in children.items()}
    parts = [_built(child, leaves) for child in children]
    return tuple(parts) if kind == "tuple" else parts


class Library:
    """An exported library in this process. functions: by name; each is also an attribute: `library.predict(x)`.

    Calls release the GIL, and any number of threads may call at once. state: the `Value`s that calls keep;
    `read_state`, `write_state`, `save_state` and `load_state` copy them. dimensions: {name: (least, most)}.
    """

    def __init__(self, path: str | os.PathLike, num_threads: int = 1, weights: str | os.PathLike | None = None):
        self.path = Path(path)
        self._running, self._changed, self._process = 0, threading.Condition(), os.getpid()
        if not self.path.is_file():
            raise MissingFileError(f"load of {self.path}", "there is no such file", "check the path")
        check_library(self.path)
        try:
            self._code = ctypes.CDLL(str(self.path.resolve()))
            entry = self._code.hloom_get_library
        except OSError as error:
            raise ExportError(
                f"load of {self.path}", f"{error}", f"load it on the system it was exported for; this is "
                f"{platform.machine()} {platform.system()}",
            ) from None  # fmt: skip
        except AttributeError:
            raise ExportError(
                f"load of {self.path}", "it is not an hloom library", "export it with hl.export"
            ) from None
        entry.restype = ctypes.POINTER(_Library)
        self._library = entry().contents
        if self._library.abi != ABI:
            raise ExportError(
                f"load of {self.path}", f"interface version {self._library.abi}; this hloom has {ABI}", "export it anew"
            )
        found = self._library
        self.name, self.version = found.name.decode(), found.version.decode()
        self.target, self.processor = found.target.decode(), found.processor.decode()
        self.dimensions = {
            found.dimensions[k].name.decode(): (found.dimensions[k].least, found.dimensions[k].most)
            for k in range(found.dimension_count)
        }
        self.state = _values(found.state, found.state_count)
        trees = json.loads(found.trees)
        self.functions = {}
        for k in range(found.function_count):
            made = Function(self, k, found.functions[k], trees[found.functions[k].name.decode()])
            self.functions[made.name] = made
        if found.weights is not None and weights is None:
            weights = self.path.resolve().parent / found.weights.decode()
        self._program = _P()
        options = _Options(ABI, num_threads, None, None, None, os.fsencode(weights) if weights is not None else None)
        self._check(found.create(ctypes.byref(options), ctypes.byref(self._program)), f"load of {self.path}")

    def __getattr__(self, name: str) -> Function:
        functions = self.__dict__.get("functions", {})
        if name in functions:
            return functions[name]
        raise AttributeError(f"the library has no function {name!r}; it has {', '.join(functions)}")

    def __getitem__(self, name: str) -> Function:
        return self.functions[name]

    def __repr__(self) -> str:
        return f"Library({self.name!r}, {self.target}: {'; '.join(map(repr, self.functions.values()))})"

    def close(self) -> None:
        """Frees the program's memory and ends its threads, after the calls that run. Calls afterwards raise
        ExportError."""
        with self._changed:
            program, self._program = getattr(self, "_program", None), _P()
            while self._running and os.getpid() == self._process:  # a forked child has no thread that could end
                self._changed.wait()
        if program:
            self._library.destroy(program)

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self, status: int, asked: str, inputs: bool = False) -> None:
        if not status:
            return
        found = self._library.error().decode(errors="replace")
        kind = ArgumentError if status in (1, 2, 3, 4) else ExportError
        raise kind(asked, found, "see the header of the library" if inputs else "")

    @contextlib.contextmanager
    def _open(self, asked: str) -> Iterator[Any]:
        """The program, which is not freed within the block."""
        with self._changed:
            if not self._program:
                raise ExportError(asked, "the library was closed", "load it again")
            program, self._running = self._program, self._running + 1
        try:
            yield program
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _run(self, function: Function, arrays: list[np.ndarray]) -> list[np.ndarray]:
        asked = f"a call of '{function.name}'"
        number, library = function._number, self._library
        with self._open(asked) as program:
            inputs, kept = _tensors(arrays)
            outputs = []
            for k, value in enumerate(function.outputs):
                shape: tuple[int, ...] = tuple(s for s in value.shape if isinstance(s, int))
                if len(shape) < len(value.shape):
                    sizes = (ctypes.c_int64 * len(value.shape))()
                    self._check(library.output_shape(program, number, inputs, len(arrays), k, sizes), asked)
                    shape = tuple(sizes)
                outputs.append(np.empty(shape, value.dtype))
            results, more = _tensors(outputs)
            self._check(library.run(program, number, inputs, len(arrays), results, len(outputs)), asked)
            del kept, more
        return outputs

    def read_state(self) -> dict[str, np.ndarray]:
        """Copies of the parts of the state by name."""
        found = {}
        with self._open("reading the state") as program:
            for k, value in enumerate(self.state):
                array = np.empty([size for size in value.shape if isinstance(size, int)], value.dtype)
                self._check(self._library.read_state(program, k, array.ctypes.data, array.nbytes), "reading the state")
                found[value.name] = array
        return found

    def write_state(self, arrays: Mapping[str, Any]) -> None:
        """Sets parts of the state by name. Raises ArgumentError, and nothing changes, where one does not fit."""
        numbers = {value.name: k for k, value in enumerate(self.state)}
        for name, array in arrays.items():
            if name not in numbers:
                raise ArgumentError("writing the state", f"there is no {name!r}", f"it has {', '.join(numbers)}")
            value, given = self.state[numbers[name]], np.asarray(array)
            if (given.dtype, given.shape) != (value.dtype, value.shape):
                raise ArgumentError(
                    f"writing the state {name!r}", f"{given.dtype}{list(given.shape)}", f"pass {_shown(value)}"
                )
        with self._open("writing the state") as program:
            for name, array in arrays.items():
                given = np.ascontiguousarray(array)
                status = self._library.write_state(program, numbers[name], given.ctypes.data, given.nbytes)
                self._check(status, "writing the state")

    def save_state(self, path: str | os.PathLike) -> None:
        """Writes the state as a safetensors file, which appears complete or not at all."""
        with self._open("saving the state") as program:
            self._check(self._library.save_state(program, os.fsencode(path)), "saving the state")

    def load_state(self, path: str | os.PathLike) -> None:
        """Reads the state from a safetensors file. Nothing changes where that fails."""
        with self._open("loading the state") as program:
            self._check(self._library.load_state(program, os.fsencode(path)), "loading the state")


def _tensors(arrays: Sequence[np.ndarray]) -> tuple[Any, list]:
    """The arrays as C structs, and the memory that they point to."""
    made = (_Tensor * max(1, len(arrays)))()
    kept: list = [arrays]
    for k, array in enumerate(arrays):
        shape = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
        kept.append(shape)
        made[k] = _Tensor(array.ctypes.data, _DTYPES.index(array.dtype), array.ndim, shape)
    return made, kept


def load(path: str | os.PathLike, *, num_threads: int = 1, weights: str | os.PathLike | None = None) -> Library:
    """Loads a shared library that hl.export wrote for this system.

    num_threads: threads that share a call's work; 0: one per processor. weights: the safetensors file of its constants,
    by default next to it. Raises MissingFileError, ExportError for a library of another system, processor or interface
    version, a truncated or damaged library, or a damaged file of constants.
    """
    return Library(path, num_threads, weights)
