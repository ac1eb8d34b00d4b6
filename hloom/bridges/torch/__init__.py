"""torch on hloom: `torch.compile(model, backend="hloom")`.

    hloom                   the backend, as an object: torch.compile(model, backend=hloom.bridges.torch.hloom)
    from_exported(program)  a program of torch.export as a function

It needs torch (`pip install hloom[torch]`), which finds the backend by its entry point.
"""

from hloom.bridges.torch.backend import hloom
from hloom.bridges.torch.exported import from_exported

__all__ = ["from_exported", "hloom"]
