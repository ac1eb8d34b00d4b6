"""`hl.debug`: print and callback, which see values inside of compiled programs (`jax.debug`)."""

from hloom.callback import debug_callback as callback
from hloom.callback import debug_print as print  # noqa: A004  (JAX's name)

__all__ = ["callback", "print"]
