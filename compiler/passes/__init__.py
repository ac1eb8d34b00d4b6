"""The passes, one file each. `all_passes()` imports all of their modules, which registers them in `PASSES`.

A new pass is a new file; a line in `compiler/pipeline.py` makes it part of every compilation. Importing this package
imports the passes for one device. Those of `spmd` follow when one of them is asked for: no first call waits for them.
"""

from importlib import import_module
from pathlib import Path

from hloom.compiler.passes.registry import PASSES, Pass, module_pass

_FOLDER = Path(__file__).parent
_LATER = _FOLDER / "spmd"


def _load(later: bool) -> None:
    for file in sorted(_FOLDER.rglob("[!_]*.py")):  # pkgutil.walk_packages takes ten times as long
        if (_LATER in file.parents) is later:
            import_module(".".join([__name__, *file.relative_to(_FOLDER).with_suffix("").parts]))


def all_passes() -> dict[str, Pass]:
    """The passes by name, those for several devices among them."""
    _load(later=True)
    return PASSES


_load(later=False)

__all__ = ["PASSES", "Pass", "all_passes", "module_pass"]
