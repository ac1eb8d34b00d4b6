"""Every error that hloom raises for a mistake of the user. All derive from `HloomError` and have four parts: what was
asked, what was found, the user's line (file, line, function), and one repair to try.

Errors of GPUs are CudaError and its subclasses (`hloom.runtime.cuda.errors`), imported by their first use.

From the IR (defined in `hloom.ir.errors`):

    ShapeError              sizes, ranks or axes do not fit:              hnp.ones(3) + hnp.ones(4)
    DTypeError              element types do not fit or have no meaning:  hnp.asarray("text")
    AttributeValueError     an attribute outside of its domain:           lax.slice(hnp.ones(3), (0,), (5,))
    VerifyError             a module breaks a rule of the IR (a pass or a hand-written text is wrong)
    ParseError              HLO or StableHLO text is malformed: line, column, caret
    UnsupportedError        a program's text has an op or a type that hloom lacks, or a program is too large
    DifferentiationError    no derivative exists, or the function's result is not a float scalar for grad
    ParticipantsError       lax.psum over an axis that no vmap around it names
    ShardingTypeError       explicit mesh axes leave the layout of a result open: a @ b over a split dimension
    BatchingError           vmap of an operation that has no batched form
    OutOfMemoryError        an array larger than memory:                  hnp.ones(1 << 60)

The others are defined here.
"""

from __future__ import annotations

import errno
import importlib
from typing import TYPE_CHECKING, Any

from hloom.ir.base_error import OutOfMemoryError
from hloom.ir.errors import (
    ArgumentError,
    AttributeValueError,
    BatchingError,
    DifferentiationError,
    DTypeError,
    HloomError,
    ParseError,
    ParticipantsError,
    ReplicationWarning,
    ShapeError,
    ShardingTypeError,
    UndecidedSizeError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from hloom.ir.verify import VerifyError


class TracerError(HloomError, TypeError):
    """Base: a traced value was used where its number is needed, which is unknown inside `jit`."""


class ConcretizationTypeError(TracerError):
    """A number was needed inside `jit` that is not known while tracing, such as the size of a result: hnp.unique(x),
    hnp.nonzero(x).

    Pass the argument that determines the size, mostly `size`, or mark the deciding argument as static
    (`static_argnums`).
    """


class TracerBoolError(ConcretizationTypeError):
    """Python control flow (`if`, `while`, `and`, `assert`) on a traced value inside `jit`.

        @hl.jit
        def f(x):
            return x if x > 0 else -x          # wrong: the branch would be chosen once, while tracing

    Use `hnp.where(x > 0, x, -x)`, or `static_argnums` for an argument whose value may decide. Outside of `jit`, `grad`
    carries the values along and such code works.
    """


class TracerConversionError(ConcretizationTypeError):
    """float(), int(), numpy.asarray() or indexing a Python list with a traced value inside `jit`."""


class KeyReuseError(HloomError, RuntimeError):
    """A random key was used a second time under `hl.config.debug_key_reuse`: it gives the same numbers again."""


class LeakedTracerError(HloomError):
    """A traced value outlived its trace (stored in a global, a list or an attribute) and was used later.

    Return the value from the function instead.
    """


class DonatedArrayError(HloomError, RuntimeError):
    """An array was used after it was donated to a function (`donate_argnums`)."""


class TreeError(HloomError, ValueError, TypeError):
    """Two trees (of arguments, cotangents, results) do not have the same structure."""


class TreeDepthError(TreeError, RecursionError):
    """A tree is nested more deeply than trees can be flattened, some 1,000 containers: a linked list of tuples, or a
    container that contains itself."""


class FileError(HloomError, OSError):
    """A file cannot be read or written, or it is no text where text is expected."""

    def __init__(self, asked: str, found: str = "", repair: str = "", source=None):
        OSError.__init__(self)
        super().__init__(asked, found, repair, source)
        self.args = asked, found, repair


class MissingFileError(FileError, FileNotFoundError):
    """A file or folder does not exist: hnp.load("absent.npy")."""


def file_error(asked: str, error: OSError | UnicodeDecodeError) -> FileError:
    """What the system or the decoder says of a file, as an error of hloom."""
    if isinstance(error, UnicodeDecodeError):
        byte = error.object[error.start]
        return FileError(asked, f"byte {byte:#04x} at {error.start}: not text in UTF-8", "pass a text file")
    kind, repair = FileError, "check the path and its permissions"
    if isinstance(error, FileNotFoundError):
        kind, repair = MissingFileError, "check the path; relative ones start at the working directory"
    elif error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        repair = "free space on the disk, or choose a folder on another one"
    found = f"{error.strerror or error}" + (f": {error.filename!r}" if error.filename else "")
    made = kind(asked, found, repair)
    made.errno, made.filename = error.errno, error.filename
    return made


def import_extra(asked: str, extra: str, module: str) -> Any:
    """A module of a package that one of hloom's extras installs. asked: what it is needed for.

    It is imported where it is used, so that programs that do without it start fast. Raises UnsupportedError, which
    names the extra, where it is missing.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnsupportedError(asked, str(error), f"pip install 'hloom[{extra}]'") from None


class CheckpointError(HloomError, ValueError):
    """A checkpoint that is damaged, differs from what it is to be restored like, or exists already."""


class ExportError(HloomError, ValueError):
    """A program cannot be exported, or an exported library refuses a call: steps that exist only in Python, an unknown
    target, a missing compiler, a library of another version or processor."""


class DataError(HloomError, ValueError):
    """Input data that is not what was asked for: a corrupt or truncated record, missing features or features of another
    type, elements that do not fit together in a batch, a state of another dataset."""


class WorkerError(HloomError, RuntimeError):
    """A function of a dataset raised (`__cause__` is its error), or a worker of a dataset ended: names the record."""


class ImmutableArrayError(HloomError, TypeError):
    """Assignment to elements: `x[i] = y`. Arrays are immutable: use `x.at[i].set(y)` or `hnp.where`."""


class ForeignAttributeError(HloomError, AttributeError):
    """An attribute that arrays, layers or optimizers of another library have: hnp.ones(3).numpy(). Says what takes its
    place."""


class UnsupportedIndexError(HloomError, TypeError):
    """An index other than integers, booleans, arrays of these, slices, None and Ellipsis: hnp.ones(3)[1.5]."""


class NonConcreteBooleanIndexError(TracerError, IndexError):
    """A traced boolean mask as an index where its true elements cannot be counted: x[x > 0] in `vmap` without `jit`.

    Use `hnp.where(mask, x, y)`, or `hnp.nonzero(mask, size=n)` for a fixed number of elements.
    """


class IndexOutOfBoundsError(ShapeError, IndexError):
    """A static index out of bounds for its axis, or too many indices: hnp.ones(3)[5]."""


class DistributedError(HloomError, RuntimeError):
    """Processes that do not find each other, do not answer, or run different programs."""


class SessionError(HloomError, RuntimeError):
    """A run of a program that is not possible: the session is closed, or its server is."""


class FetchError(SessionError, KeyError):
    """A fetch that the program does not have. Names the nearest one."""

    __str__ = HloomError.__str__


class FeedError(SessionError, ValueError, TypeError):
    """A feed that the program does not have, or of another shape or dtype; a placeholder that is needed and not fed."""


class UninitializedError(SessionError):
    """A run that reads variables which have no value yet. Names them."""


class OutOfRangeError(SessionError):
    """A queue is closed and empty, or the data of an epoch are used up."""


class DeviceError(HloomError, RuntimeError):
    """A device that does not exist here, or operands on different devices."""


class InternalError(HloomError, RuntimeError):
    """hloom itself is wrong: a kernel that it has generated accesses memory outside of its arrays
    (`hl.config.check_bounds`)."""


class NonFiniteError(HloomError, FloatingPointError):
    """A NaN under `hl.debug_nans()`, or an infinity under `hl.debug_infs()`: names the operation that made the first
    one, its line, and its operands there."""


class SettingError(HloomError, ValueError, AttributeError):
    """An unknown setting, or an invalid value of a setting or environment variable. Names the nearest valid one."""


class DonationWarning(UserWarning):
    """A donated argument's buffer could not be reused: no output of its size is computed after its last use."""


class PrecisionWarning(UserWarning):
    """Single and double precision were mixed: an array without a dtype beside float64, or a float64 input of a layer.

    A float64 input of a layer with parameters of fewer bits makes everything after it compute in float64.
    """


class DataDependentWarning(UserWarning):
    """A shape in an ONNX model depends on numbers that exist only at run time: names the node, which runs by itself, or
    the value that programs are compiled for."""


class FallbackWarning(UserWarning):
    """A slower way is taken. An op without a rule in hloom is computed by the library that the program comes from, as a
    call out of the compiled program: names the op, its line and the cost. A program of open sizes with a kernel that
    takes numbers is compiled for each size, as is a step of `fit` that decides by the size of a batch. A function of
    `hl.njit(fallback=True)` that cannot be compiled runs in Python."""


class CompileTimeWarning(UserWarning):
    """A program took seconds to compile, and a Python loop that was unrolled made most of it: names the loop's line."""


class NonFiniteWarning(UserWarning):
    """`hl.training.fit(on_nan="skip")` left a step out whose loss was NaN or infinite: names the operation."""


class PlacementWarning(UserWarning):
    """`hl.config.soft_placement` puts work on cpu:0 that was meant for a device of another process."""


# JAX's names, for programs that catch them.
TracerArrayConversionError = TracerIntegerConversionError = TracerConversionError
TracerBoolConversionError = TracerBoolError
UnexpectedTracerError = LeakedTracerError
JaxRuntimeError, JAXTypeError, JAXIndexError = HloomError, TracerError, IndexOutOfBoundsError


# Errors of rooms that `import hloom` does not load: GPUs, and the verifier with the printer of HLO text.
_LATE = {"CudaError": "hloom.runtime.cuda.errors", "VerifyError": "hloom.ir.verify"}


def __getattr__(name: str):
    if (module := _LATE.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


__all__ = [
    "ArgumentError",
    "AttributeValueError",
    "BatchingError",
    "CheckpointError",
    "CompileTimeWarning",
    "ConcretizationTypeError",
    "DTypeError",
    "DataDependentWarning",
    "DataError",
    "DeviceError",
    "DifferentiationError",
    "DistributedError",
    "DonatedArrayError",
    "DonationWarning",
    "ExportError",
    "FallbackWarning",
    "FeedError",
    "FetchError",
    "FileError",
    "ForeignAttributeError",
    "HloomError",
    "ImmutableArrayError",
    "IndexOutOfBoundsError",
    "KeyReuseError",
    "LeakedTracerError",
    "MissingFileError",
    "NonConcreteBooleanIndexError",
    "NonFiniteError",
    "NonFiniteWarning",
    "OutOfMemoryError",
    "OutOfRangeError",
    "ParseError",
    "ParticipantsError",
    "PlacementWarning",
    "PrecisionWarning",
    "ReplicationWarning",
    "SessionError",
    "SettingError",
    "ShapeError",
    "ShardingTypeError",
    "TracerBoolError",
    "TracerConversionError",
    "TracerError",
    "TreeDepthError",
    "TreeError",
    "UninitializedError",
    "UndecidedSizeError",
    "UnsupportedError",
    "UnsupportedIndexError",
    "VerifyError",
    "WorkerError",
]
__dir__ = __all__.copy
