"""The errors of hloom: each states the request, what was found, the user's line, and one repair.

The base is `hloom.ir.base_error.HloomError`. The classes are documented for users in `hloom/errors.py`, which
re-exports them. Where JAX raises ValueError for some cases of an error and TypeError for others, the class derives from
both, so that handlers of either kind catch it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING

from hloom.ir.base_error import HloomError
from hloom.ir.source import warn_while_compiling

if TYPE_CHECKING:
    from hloom.ir.source import Source


class ShapeError(HloomError, ValueError, TypeError):
    """Sizes, ranks or axes do not fit together."""


class UndecidedSizeError(ShapeError):
    """A decision depends on a size that is known only when the program is called.

    State constraints: bounds (`hl.Dim("n", min=2)`), multiples (`hl.Dim("n", multiple_of=8)`), or compute with arrays.
    """


class DTypeError(HloomError, TypeError, ValueError):
    """Element types do not fit together, or an operation is not defined for one."""


class ArgumentError(HloomError, TypeError, ValueError):
    """An argument of a jitted function is not an array, number or tree of them, or a static one cannot be hashed."""


class AttributeValueError(HloomError, ValueError, TypeError):
    """An attribute of an operation has a value outside of its domain."""


class ParseError(HloomError, ValueError):
    """Text is not well formed. Says line and column and shows the line with a caret."""

    line: int
    column: int


class DifferentiationError(HloomError, TypeError, ValueError, AttributeError):
    """A derivative was asked for that does not exist, or of something that is not differentiable."""


class ParticipantsError(HloomError, RuntimeError, NameError):
    """A collective operation needs participants (devices, or elements of a named vmap axis) that do not exist."""


class BatchingError(HloomError, TypeError, ValueError):
    """An operation cannot be vectorized over a batch axis (vmap)."""


class UnsupportedError(HloomError, NotImplementedError):
    """An op or a type in StableHLO or HLO text that hloom does not have, or calls that make a program too large."""


class ShardingTypeError(HloomError, ValueError, TypeError):
    """Operands are laid out over explicit axes of a mesh so that no layout, or several layouts, of the result follow.

    Say how the result is laid out (`out_sharding=P(...)`), lay an operand out in another way (`hl.sharding.reshard`),
    or leave the axes to the compiler (`hl.sharding.auto_axes`, `AxisType.Auto`).
    """


class ReplicationWarning(UserWarning):
    """A sharded array is gathered on every device, because an operation does not say how it is computed in parts, or
    needs all of its dimensions: names the operation, its line and the bytes."""

    @staticmethod
    @contextlib.contextmanager
    def silenced(*, has_rule: bool | None = None) -> Iterator[None]:
        """A block of one thread without these warnings.

        has_rule: of operations that say (True) or do not say (False) how they are computed in parts; None: of both.
        """
        token = _SILENCED.set(_SILENCED.get() | ({True, False} if has_rule is None else {has_rule}))
        try:
            yield
        finally:
            _SILENCED.reset(token)

    @classmethod
    def warn(
        cls, what: str, why: str, gathered: int, repair: str, source: Source | None, *, has_rule: bool = False
    ) -> None:
        """Warns of an operation, once for each text and line."""
        if has_rule in _SILENCED.get():
            return
        text = (
            f"{what} is computed whole on every device\n"
            f"  found:  {why}; {gathered:,} bytes of sharded operands are gathered\n"
            f"  where:  {source or 'an unknown line'}\n"
            f"  repair: {repair}"
        )
        warn_while_compiling(text, cls, source)


_SILENCED: ContextVar[frozenset[bool]] = ContextVar("silenced", default=frozenset())
