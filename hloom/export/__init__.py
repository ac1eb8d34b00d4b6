"""Programs that run without Python: `hl.export(f, *examples)` writes a library with a C header.

This package is callable: `hl.export(...)` is `hloom.export.build.export`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from hloom.ir.process import lazy as _lazy

_HOMES = {
    "hloom.export.build": "Exported export",
    "hloom.export.loading": "Library load",
    "hloom.export.targets": "TARGETS",
}
__getattr__ = _lazy.lazy_names(globals(), _HOMES)
__all__ = sorted(" ".join(_HOMES.values()).split())
__dir__ = __all__.copy


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.export(*args, **options)


sys.modules[__name__].__class__ = _Callable
