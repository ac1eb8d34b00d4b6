"""The C compilers that link exported programs: the system's for this machine, `zig cc` (ziglang) for others; and
whether a library that they linked is still whole, before the system's loader maps it.

The loader maps the segments that a file's headers name without comparing them with the file's length: the first access
beyond its end is a bus error, which ends the process. So the headers are compared with the file first, and its
bytes with the checksum that `hl.export` appends. Tools that rewrite the file, such as strip, leave the checksum out.

Source: refspecs.linuxfoundation.org/elf/gabi4+/contents.html.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from hloom.compiler.targets.cpu.machine import architecture
from hloom.errors import ExportError, file_error
from hloom.export.targets import Target, host_target_name
from hloom.ir.process.files import temporary_folder, write_whole
from hloom.ir.records import record

__all__ = ["KINDS", "Toolchain", "check_library", "sealed", "toolchain"]

KINDS = ("shared", "static", "object")
_C = ("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wno-unused-function", "-Wno-psabi")
QUIET = 3.0  # seconds after which a slow step reports what it waits for
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
        """Runs a command of the toolchain, and reports what it waits for if that takes long."""
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
    """The linker for a target. compiler: a command for it; None: for this machine the system's `cc`, else zig. Raises
    ExportError if there is none."""
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


# --- whether a library is whole ---

_SHARED, _LOAD, _NO_BITS = 3, 1, 8  # kinds of a file, a segment, a section
_MACHINES = {3: "x86", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_SEAL = struct.Struct("<8sQI")  # magic, bytes before it, their CRC-32
_MAGIC = b"HLOOMSUM"
_CHUNK = 1 << 20
_MOST_HEADERS = 1 << 16


@record(frozen=True)
class _Layout:
    """For a class of ELF: the formats of file header, segment and section, and the positions of offset and size in the
    latter two."""

    file: str
    segment: str
    segment_offset: int
    segment_size: int
    section: str


# file: type, machine, version, entry, segments, sections, flags, its size, then sizes and counts of both tables, names.
_LAYOUTS = {
    1: _Layout("HHIIIIIHHHHHH", "IIIIIIII", 1, 4, "IIIIIIIIII"),
    2: _Layout("HHIQQQIHHHHHH", "IIQQQQQQ", 2, 5, "IIQQQQIIQQ"),
}


class _DamageError(Exception):
    """What is wrong with a file."""

    repair = "copy the library again, or export it anew with hl.export"


class _ForeignError(_DamageError):
    """It is of another system."""

    repair = f"load it on the system it was exported for; this is {platform.machine()} {platform.system()}"


def sealed(data: bytes) -> bytes:
    """A library with its checksum."""
    return data + _SEAL.pack(_MAGIC, len(data), zlib.crc32(data))


def check_library(path: Path) -> None:
    """Raises ExportError for a file that is not a complete shared library for this machine, FileError for one that
    cannot be read. Libraries of systems without ELF are left to their loader."""
    if not sys.platform.startswith("linux"):
        return
    try:
        with open(path, "rb") as file:
            _check(file, os.fstat(file.fileno()).st_size)
    except _DamageError as error:
        raise ExportError(f"load of {path}", str(error), error.repair) from None
    except OSError as error:
        raise file_error(f"load of {path}", error) from None


def _check(file: BinaryIO, size: int) -> None:
    begin = file.read(16)
    if begin[:4] != b"\x7fELF"[: len(begin)] or not begin:
        raise _ForeignError(f"it is not a Linux shared library: it begins with {begin[:4]!r}")
    kinds = {1: "<", 2: ">"}
    if len(begin) < 16 or begin[4] not in _LAYOUTS or begin[5] not in kinds:
        raise _DamageError(f"its header is damaged or cut off, in a file of {size} bytes")
    layout, order = _LAYOUTS[begin[4]], kinds[begin[5]]
    found = _unpacked(file, order + layout.file, 16, size, "header")
    kind, machine = found[0], _MACHINES.get(found[1], f"machine {found[1]}")
    segments, sections, (segment_size, segment_count, section_size, section_count) = found[4], found[5], found[8:12]
    if kind != _SHARED:
        raise _DamageError(f"it is an ELF file of type {kind}, and no shared library")
    own = _own_header()
    if own is not None and (begin[4:6], found[1]) != own:
        here = f"{architecture()}, {8 * struct.calcsize('P')}-bit {sys.byteorder}-endian"
        kinds_of_it = f"{32 * begin[4]}-bit {'little' if order == '<' else 'big'}-endian"
        raise _ForeignError(f"it is for {machine}, {kinds_of_it}, and this process is for {here}")
    end = max(
        _table(file, order + layout.segment, segments, segment_size, segment_count, size, "segment", layout),
        _table(file, order + layout.section, sections, section_size, section_count, size, "section", layout),
    )
    _check_seal(file, end, size)


@functools.cache
def _own_header() -> tuple[bytes, int] | None:
    """Class and byte order, and the number of the machine, of this process's program; None if it is not known."""
    try:
        with open("/proc/self/exe", "rb") as file:
            begin = file.read(20)
    except OSError:
        return None
    form = {1: "<", 2: ">"}.get(begin[5] if len(begin) == 20 else 0)
    return (begin[4:6], struct.unpack_from(form + "H", begin, 18)[0]) if form else None


def _unpacked(file: BinaryIO, form: str, at: int, size: int, what: str) -> tuple[int, ...]:
    length = struct.calcsize(form)
    if at + length > size:
        raise _DamageError(f"it is cut off: its {what} ends at byte {at + length}, the file has {size}")
    file.seek(at)
    return struct.unpack(form, file.read(length))


def _table(
    file: BinaryIO, form: str, at: int, entry: int, count: int, size: int, what: str, layout: _Layout
) -> int:  # fmt: skip
    """Where the last of a table's segments or sections, or the table itself, ends in the file."""
    if not count and what == "section":
        return 0  # it may have none
    if entry != struct.calcsize(form) or not 0 < count < _MOST_HEADERS:
        raise _DamageError(f"its header is damaged: {count} {what}s of {entry} bytes")
    end, loads = at + count * entry, 0
    if end > size:
        raise _DamageError(f"it is cut off: its table of {what}s ends at byte {end}, the file has {size}")
    for number in range(count):
        row = _unpacked(file, form, at + number * entry, size, f"{what} {number}")
        if what == "segment":
            start, length = row[layout.segment_offset], row[layout.segment_size]
            loads += row[0] == _LOAD
        else:
            start, length = row[4], 0 if row[1] == _NO_BITS else row[5]
        if length and start + length > size:
            raise _DamageError(f"it is cut off: its {what} {number} ends at byte {start + length}, the file has {size}")
        end = max(end, start + length if length else 0)
    if what == "segment" and not loads:
        raise _DamageError("its header is damaged: it has no segment that is loaded")
    return end


def _check_seal(file: BinaryIO, end: int, size: int) -> None:
    """Compares the file with its checksum, where it has one."""
    if size == end:
        return
    found = None
    if size - end == _SEAL.size:
        file.seek(end)
        found = _SEAL.unpack(file.read(_SEAL.size))
    if found is None or found[:2] != (_MAGIC, end):
        raise _DamageError(f"{size - end} bytes follow its last section, and are not a checksum of hloom")
    file.seek(0)
    total, left = 0, end
    while left and (chunk := file.read(min(left, _CHUNK))):
        total, left = zlib.crc32(chunk, total), left - len(chunk)
    if left or total != found[2]:
        raise _DamageError(f"it is damaged: its checksum is {total:08x}, and it was written with {found[2]:08x}")
