"""Rules for ops of other domains than ONNX's, declared by a program: `hl.onnx.rule`."""

from __future__ import annotations

import operator
from collections.abc import Callable

from hloom.errors import ArgumentError
from hloom.onnx.table import ONNX_DOMAINS, op


def rule(names: str, *, domain: str, since: int = 1, static: tuple[int, ...] = (), host: bool = False) -> Callable:
    """Declares the function under it as the rule of ops of a foreign domain, for all models that are loaded after it.

    names: of one op, or of several with spaces between them.
    domain: of the ops, such as "com.microsoft"; not one of ONNX's own.
    since: the version of the domain from which on the rule holds. A model uses the newest rule that its version
    includes.
    static: positions of inputs whose values determine shapes; the rule gets these as NumPy arrays.
    host: the rule gets all inputs as NumPy arrays and runs outside programs, as the shapes of its results depend on
    their values.

    The function gets the inputs by position, None for absent ones, and the attributes by keyword: those that it names
    after `*`, with its own defaults. It returns an array, or a tuple for several outputs. A model with other attributes
    is refused. A later rule of the same op and version replaces an earlier one. Raises ArgumentError.

        @hl.onnx.rule("Scaled", domain="mine")
        def scaled(x, *, by=1.0):
            return x * hnp.float32(by)
    """
    what = f"a rule for {names!r} of the domain {domain!r}"
    if domain in ONNX_DOMAINS:
        raise ArgumentError(what, "a domain of ONNX, whose ops hloom defines", "use your own domain for the op")
    if not isinstance(names, str) or not names.split():
        raise ArgumentError(what, "no name of an op", 'name it, as in hl.onnx.rule("Scaled", domain="mine")')
    try:
        version = operator.index(since)
    except TypeError:
        raise ArgumentError(what, f"since={since!r}", "pass the version of the domain, an integer") from None

    def declare(function: Callable) -> Callable:
        if not callable(function):
            raise ArgumentError(what, f"{type(function).__name__}, which is not a function", "decorate a function")
        return op(names, since=version, domain=domain, static=tuple(static), host=host)(function)

    return declare
