"""The passes, one file each. Importing this package imports all of its modules, which registers them in `PASSES`.

A new pass is a new file; a line in `compiler/pipeline.py` makes it part of every compilation.
"""

from importlib import import_module
from pathlib import Path

from hloom.compiler.passes.registry import PASSES, Pass, module_pass

_folder = Path(__file__).parent
for _file in sorted(_folder.rglob("[!_]*.py")):  # pkgutil.walk_packages takes ten times as long
    import_module(".".join([__name__, *_file.relative_to(_folder).with_suffix("").parts]))

__all__ = ["PASSES", "Pass", "module_pass"]
