"""JAX's names for facts about the process, of which hloom has one, and derivatives in two steps."""

from __future__ import annotations

import gc

from hloom.arrays.array import Array
from hloom.platforms.device import process_count, process_index
from hloom.tracing.signatures import with_positions
from hloom.transforms.gradient import vjp


def host_count(backend=None) -> int:
    """`hl.process_count` under its old name."""
    return process_count(backend)


def host_id(backend=None) -> int:
    """`hl.process_index` under its old name."""
    return process_index()


def host_ids(backend=None) -> list[int]:
    """`hl.process_indices` under its old name."""
    return process_indices(backend)


def process_indices(backend=None) -> list[int]:
    """The numbers of all processes."""
    return list(range(process_count(backend)))


def live_arrays(platform=None) -> list[Array]:
    """The arrays that exist and hold data, in no order; a search through all of Python's objects.

    >>> x = hnp.ones(3)
    >>> any(array is x for array in hl.live_arrays())
    True
    """
    # isinstance would ask dead weak proxies for their class.
    return [x for x in gc.get_objects() if issubclass(type(x), Array) and not x.is_deleted()]


# --- derivatives in two steps -------------------------------------------------------------------------------------


def fwd_and_bwd(fun, argnums, has_aux: bool = False, jitted: bool = True):
    """(forward, backward): forward(*args) -> (result, residuals), or with aux as a third; and
    backward(residuals, cotangent) -> cotangents.

    The cotangents are of the arguments argnums, a tuple where it names several.
    """
    several = not isinstance(argnums, int)
    positions = tuple(argnums) if several else (argnums,)

    def forward(*args):
        chosen = [p % len(args) for p in positions]

        def of_chosen(*given):
            return fun(*with_positions(args, chosen, given))

        return vjp(of_chosen, *[args[p] for p in chosen], has_aux=has_aux)

    def backward(residuals, cotangent):
        found = residuals(cotangent)
        return found if several else found[0]

    return forward, backward


__all__ = [
    "fwd_and_bwd", "host_count", "host_id", "host_ids", "live_arrays",
    "process_indices",
]  # fmt: skip
