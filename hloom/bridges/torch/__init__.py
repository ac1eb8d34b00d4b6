"""torch on hloom: `torch.compile(model, backend="hloom")`.

    hloom          the backend, as an object: torch.compile(model, backend=hloom.bridges.torch.hloom)

It needs torch (`pip install hloom[torch]`), which finds the backend by its entry point.
"""

from hloom.bridges.torch.backend import hloom
from hloom.bridges.torch.errors import UnsupportedOpsError

__all__ = ["UnsupportedOpsError", "hloom"]
