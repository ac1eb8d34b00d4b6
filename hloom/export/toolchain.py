"""The C compilers that link exported programs: the system's for this machine, `zig cc` (ziglang) for others."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from hloom.errors import ExportError, file_error
from hloom.export.elf_file import sealed
from hloom.export.targets import Target, host_target_name
from hloom.ir.process.files import temporary_folder, write_whole
from hloom.ir.records import record

__all__ = ["KINDS", "Toolchain", "toolchain"]

KINDS = ("shared", "static", "object")
_C = ("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wno-unused-function", "-Wno-psabi")
QUIET = 3.0  # seconds after which a slow step says what it waits for
AGAIN = 15.0


@record(frozen=True)
class Toolchain:
    """compiler: the command; archiver: of static libraries; for_target: whether it needs `-target`."""

    compiler: tuple[str, ...]
    archiver: tuple[str, ...]
    target: Target
    is_zig: bool

    @property
    def arguments(self) -> list[str]:
        return ["-target", self.target.zig] if self.is_zig else []

    def build(self, kind: str, name: str, source: str, objects: Sequence[tuple[str, bytes]], folder: Path) -> Path:
        """Compiles a library's source and joins it with the objects. Returns the file. Raises ExportError."""
        target = self.target
        file = {"shared": target.shared, "static": target.static, "object": "{}.o"}[kind].format(name)
        if kind == "shared" and target.arch == "wasm32":
            kind = "module"
        with temporary_folder("hloom-export-") as work:
            place = work
            (place / f"{name}.c").write_text(source)
            for header in ("hloom.h", f"{name}.h"):
                shutil.copyfile(folder / header, place / header)
            for object_name, data in objects:
                (place / object_name).write_bytes(data)
            names = [object_name for object_name, _ in objects]
            shared = ["-DHLOOM_SHARED"] if kind in ("shared", "module") else []
            self._run([*self.compiler, *self.arguments, *_C, *shared, "-c", f"{name}.c", "-o", f"{name}.main.o"], place)
            # Long lists of objects go through a file.
            (place / "objects.txt").write_text("\n".join([f"{name}.main.o", *names]))
            made = place / file
            if kind == "static":
                self._run([*self.archiver, "rcs", file, "@objects.txt"], place)
            elif kind == "object":
                self._run(self._partial_link(file), place)
            else:
                self._run(self._link(kind, file), place)
            data = made.read_bytes()
            if kind == "shared" and "linux" in target.zig:
                data = sealed(data)
            _written(folder / file, data, 0o777 if kind == "shared" else 0o666)
        return folder / file

    def shared(self, source: Path, include: Path, file: Path) -> None:
        """Compiles one C file as a shared library whose undefined symbols its loader has. Raises ExportError."""
        with temporary_folder("hloom-export-") as work:
            made = work / file.name
            loader = ["-Wl,-z,undefs"] if self.is_zig else []
            command = [*self.compiler, *self.arguments, *_C, *loader, "-shared", "-s", f"-I{include}", str(source)]
            self._run([*command, "-o", str(made), "-ldl", "-lpthread"], work)
            _written(file, made.read_bytes(), 0o777)

    def _link(self, kind: str, file: str) -> list[str]:
        command = [*self.compiler, *self.arguments]
        if kind == "module":
            return [*command, "-mexec-model=reactor", "-Wl,--export-dynamic", "@objects.txt", "-o", file]
        options = ["-shared", "-s"] if self.target.arch != "aarch64" or "macos" not in self.target.zig else ["-shared"]
        libraries = [] if "windows" in self.target.zig else ["-lm"]
        if "linux" in self.target.zig:
            libraries.append("-lpthread")
            options += [f"-Wl,-soname,{file}", "-Wl,--no-undefined"]
        return [*command, *options, "@objects.txt", "-o", file, *libraries]

    def _partial_link(self, file: str) -> list[str]:
        if "linux" not in self.target.zig:
            raise ExportError(
                f"export as one object for {self.target.zig}",
                "objects are joined for Linux only",
                "export a static library: kind='static'",
            )
        if self.is_zig:
            return [*self.compiler[:-1], "ld.lld", "-r", "@objects.txt", "-o", file]
        return [*self.compiler, "-r", "-nostdlib", "@objects.txt", "-o", file]

    def _run(self, command: list[str], folder: Path) -> None:
        """Runs a command of the toolchain, saying what it waits for where that takes long."""
        with tempfile.TemporaryFile() as output:
            try:
                process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
            except OSError as error:
                raise ExportError(
                    f"export runs {command[0]!r}",
                    error.strerror or str(error),
                    "install it, or pass compiler=",
                    source="",
                ) from None
            try:
                self._wait(process)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            if process.returncode:
                output.seek(0)
                said = output.read().decode(errors="replace").strip().splitlines()
                errors = [line for line in said if "error" in line.lower()] or said
                raise ExportError(
                    f"export runs {' '.join(command[:4])} ...",
                    f"exit status {process.returncode}: " + "\n          ".join(errors[:8]),
                    "pass another compiler (compiler='clang'), or install hloom's extra 'export'",
                    source="",
                )

    def _wait(self, process: subprocess.Popen) -> None:
        started = time.monotonic()
        after = QUIET
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.05, started + after - time.monotonic()))
                return
            waited = int(time.monotonic() - started)
            what = f"compiles the C library for {self.target.zig}, once" if self.is_zig else "compiles the program"
            print(
                f"hloom: {Path(self.compiler[0]).name if not self.is_zig else 'zig'} {what}: {waited} s",
                file=sys.stderr,
            )
            after += AGAIN


def _written(path: Path, data: bytes, mode: int) -> None:
    try:
        write_whole(path, data, mode)
    except OSError as error:
        raise file_error(f"export into {path}", error) from None


def toolchain(target_name: str, target: Target, compiler: str | None = None) -> Toolchain:
    """What links for a target. compiler: a command for it; None: for this machine the system's `cc`, else zig. Raises
    ExportError where there is none."""
    if compiler is not None:
        words = tuple(compiler.split())
        if not words or shutil.which(words[0]) is None:
            raise ExportError(
                f"export with compiler={compiler!r}",
                f"there is no command {words[0] if words else compiler!r}",
                "pass the name or path of a C compiler",
            )
        return Toolchain(words, ("ar",), target, False)
    system = shutil.which("cc")
    if target_name == host_target_name() and system and shutil.which("ar"):
        return Toolchain((system,), ("ar",), target, False)
    if importlib.util.find_spec("ziglang") is None:
        raise ExportError(
            f"export for {target_name}",
            "no C compiler for it: "
            + ("there is no 'cc'" if target_name == host_target_name() else "zig is not installed"),
            "pip install 'hloom[export]', which brings zig, or pass compiler=",
        )
    zig = (sys.executable, "-m", "ziglang")
    return Toolchain((*zig, "cc"), (*zig, "ar"), target, True)
