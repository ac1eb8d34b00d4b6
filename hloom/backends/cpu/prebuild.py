"""`python -m hloom.backends.cpu.prebuild [FILE]`: compiles the code that is the same in every process into one file:
the math library, the kernels shared by products and transforms, the driver, the functions that read records and
evaluate sizes, and the C functions of the plugin for jax.

FILE: by default where hloom finds it, next to the package's modules. Takes some 30 s.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hloom.compiler.targets.cpu.prebuilt import archive, build
from hloom.runtime import driver_source, numbers_source, records_source, team_source
from hloom.runtime.pjrt import table

__all__ = ["prebuild"]


def prebuild(target: Path | None = None) -> Path:
    """Writes the file of prebuilt code. target: None is where hloom finds it."""
    sources = driver_source, team_source, records_source, numbers_source, table
    return build.build([source.FUNCTIONS for source in sources], target)


if __name__ == "__main__":
    print(prebuild(Path(sys.argv[1]) if sys.argv[1:] else archive.path()))
