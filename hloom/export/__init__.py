"""Programs that run without Python: `hl.export(f, *examples)` writes a library with a C header.

This package is callable: `hl.export(...)` is `hloom.export.build.export`. `hl.export.export` is that of JAX.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, cast

from hloom.ir.process import lazy as _lazy

# The last ones are JAX's names, as `jax.export` is this package while hloom replaces JAX (`hloom.as_jax`).
_HOMES = {
    "hloom.export.artifacts": "from_artifact stablehlo_artifact",
    "hloom.export.build": "ExportedLibrary",
    "hloom.export.loading": "Library load",
    "hloom.export.targets": "TARGETS",
    "hloom.jax.export": (
        "Exported SymbolicScope deserialize export is_symbolic_dim maximum_supported_calling_convention_version "
        "minimum_supported_calling_convention_version symbolic_args_specs symbolic_shape"
    ),
}
__getattr__ = _lazy.lazy_names(globals(), _HOMES)
__all__ = sorted(" ".join(_HOMES.values()).split())
__dir__ = __all__.copy


_build = _lazy.LazyModule("hloom.export.build")  # with LLVM, which programs that only load do without


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        return _build.export(*args, **options)


sys.modules[__name__].__class__ = _Callable
callable_module = cast(_Callable, sys.modules[__name__])  # as type checkers should see `hl.export`
