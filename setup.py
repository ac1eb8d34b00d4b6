"""Adds the file of prebuilt code (`hloom.backends.cpu.prebuild`) to a wheel, and by `pip install -e .` to the checkout.

All else is in pyproject.toml. Where the file cannot be built, the installation goes on without it: hloom then compiles
what it needs at first use. HLOOM_PURE_WHEEL=1 leaves it out: the wheel is then one for any platform.
"""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel, get_platform
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
PACKAGE = Path("hloom/compiler/targets/cpu/prebuilt")
# hloom's own __init__ is left out, as it imports libraries that the build does not have.
PROGRAM = """
import shutil, sys, types
from pathlib import Path
package = types.ModuleType("hloom")
package.__path__ = [sys.argv[1]]
sys.modules["hloom"] = package
from hloom.backends.cpu.prebuild import prebuild
from hloom.compiler.targets.cpu.prebuilt import archive
target = Path(sys.argv[2], archive.file_name()).resolve()
if not archive.is_current():
    prebuild(target)
elif target != archive.path().resolve():
    shutil.copyfile(archive.path(), target)
"""


def pure_wheel() -> bool:
    asked = os.environ.get("HLOOM_PURE_WHEEL", "0")
    if asked not in ("0", "1"):
        raise SystemExit(f"HLOOM_PURE_WHEEL is {asked!r}: 1 leaves prebuilt code out of the wheel, 0 does not")
    return asked == "1"


class BuildWithPrebuiltCode(build_py):
    """setuptools' command, and then the file of prebuilt code."""

    @property
    def folder(self) -> Path:
        """Where the file is built."""
        return (ROOT if self.editable_mode else Path(self.build_lib)) / PACKAGE

    def run(self) -> None:
        super().run()
        if pure_wheel() and not self.editable_mode:
            for left in self.folder.glob("*.bin"):  # of an earlier build in the same folder
                left.unlink()
            return
        command = [sys.executable, "-c", PROGRAM, str(ROOT / "hloom"), str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            self.warn(f"no code was prebuilt, so hloom compiles it at first use: {reason}")


class TaggedWheel(bdist_wheel):
    """setuptools' command. A wheel with machine code is one for this platform; without, for any."""

    def get_tag(self) -> tuple[str, str, str]:
        if not list(self.get_finalized_command("build_py").folder.glob("*.bin")):
            return super().get_tag()
        self.root_is_pure = False  # of what WHEEL says, which is written after this
        return "py3", "none", get_platform(self.bdist_dir).lower().translate({ord(c): "_" for c in ".- "})


setup(cmdclass={"build_py": BuildWithPrebuiltCode, "bdist_wheel": TaggedWheel})
