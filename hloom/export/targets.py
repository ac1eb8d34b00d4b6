"""The machines that programs are exported for: triples, processors, features, and how each is linked and checked."""

from __future__ import annotations

import difflib
import platform
import sys
from collections.abc import Mapping

from hloom.compiler.targets.cpu.cross import CrossMachine
from hloom.compiler.targets.cpu.machine import LEVELS, architecture, host, host_name
from hloom.errors import ExportError
from hloom.ir.records import record, replace

__all__ = ["TARGETS", "Target", "host_target_name", "target_of"]


@record(frozen=True)
class Target:
    """A system that programs are exported for.

    triple: LLVM's. zig: the name that `zig cc -target` takes. cpu, features: LLVM's names of the least processor.
    vector_bytes, vector_registers: of that one. fma: the feature with which a processor multiplies and adds in one
    instruction; "" if all of the architecture do, "-" where none does. shared, static: names of files, of a name.
    """

    triple: str
    zig: str
    arch: str
    cpu: str
    features: str
    vector_bytes: int
    vector_registers: int
    fma: str
    shared: str
    static: str = "lib{}.a"


_X86 = ("x86_64", "x86-64-v3", ",".join(f"+{name}" for name in LEVELS["x86-64-v3"]), 32, 16, "fma")
TARGETS = {
    "x86_64-linux": Target("x86_64-unknown-linux-gnu", "x86_64-linux-gnu", *_X86, "lib{}.so"),
    "aarch64-linux": Target(
        "aarch64-unknown-linux-gnu", "aarch64-linux-gnu", "aarch64", "generic", "+neon", 16, 32, "", "lib{}.so"
    ),
    "riscv64-linux": Target(
        "riscv64-unknown-linux-gnu", "riscv64-linux-gnu", "riscv64", "generic-rv64", "+m,+a,+f,+d,+c", 16, 32, "",
        "lib{}.so",
    ),
    "armv7-linux": Target(
        "armv7-unknown-linux-gnueabihf", "arm-linux-gnueabihf", "armv7", "generic", "+neon,+vfp3", 16, 16, "vfp4",
        "lib{}.so",
    ),
    "x86_64-windows": Target("x86_64-pc-windows-gnu", "x86_64-windows-gnu", *_X86, "{}.dll"),
    "aarch64-macos": Target(
        "aarch64-apple-macosx13.0.0", "aarch64-macos", "aarch64", "apple-m1", "", 16, 32, "", "lib{}.dylib"
    ),
    "wasm32-wasi": Target(
        "wasm32-unknown-wasi", "wasm32-wasi", "wasm32", "generic", "+simd128,+bulk-memory,+nontrapping-fptoint", 16, 32,
        "-", "{}.wasm",
    ),
}  # fmt: skip

# x86: CPUID leaf, subleaf, register (eax, ebx, ecx, edx), bit, and the register state that the system must save (XCR0).
_AVX, _AVX512, _TILES = 0x6, 0xE6, 0x60000
_X86_BITS = {
    "sse3": (1, 0, 2, 0, 0), "ssse3": (1, 0, 2, 9, 0), "fma": (1, 0, 2, 12, _AVX), "cx16": (1, 0, 2, 13, 0),
    "sse4.1": (1, 0, 2, 19, 0), "sse4.2": (1, 0, 2, 20, 0), "movbe": (1, 0, 2, 22, 0), "popcnt": (1, 0, 2, 23, 0),
    "avx": (1, 0, 2, 28, _AVX), "f16c": (1, 0, 2, 29, _AVX), "bmi": (7, 0, 1, 3, 0), "avx2": (7, 0, 1, 5, _AVX),
    "bmi2": (7, 0, 1, 8, 0), "avx512f": (7, 0, 1, 16, _AVX512), "avx512dq": (7, 0, 1, 17, _AVX512),
    "avx512ifma": (7, 0, 1, 21, _AVX512), "avx512cd": (7, 0, 1, 28, _AVX512), "avx512bw": (7, 0, 1, 30, _AVX512),
    "avx512vl": (7, 0, 1, 31, _AVX512), "avx512vbmi": (7, 0, 2, 1, _AVX512), "avx512vbmi2": (7, 0, 2, 6, _AVX512),
    "gfni": (7, 0, 2, 8, 0), "avx512vnni": (7, 0, 2, 11, _AVX512), "avx512bitalg": (7, 0, 2, 12, _AVX512),
    "avx512vpopcntdq": (7, 0, 2, 14, _AVX512), "amx-bf16": (7, 0, 3, 22, _TILES), "avx512fp16": (7, 0, 3, 23, _AVX512),
    "amx-tile": (7, 0, 3, 24, _TILES), "amx-int8": (7, 0, 3, 25, _TILES), "avxvnni": (7, 1, 0, 4, _AVX),
    "avx512bf16": (7, 1, 0, 5, _AVX512), "sahf": (0x80000001, 0, 2, 0, 0), "lzcnt": (0x80000001, 0, 2, 5, 0),
}  # fmt: skip
# Linux elsewhere: the entry of the auxiliary vector (AT_HWCAP 16, AT_HWCAP2 26) and its bit.
_AUXILIARY_BITS = {
    "aarch64": {
        "neon": (16, 1), "fullfp16": (16, 10), "dotprod": (16, 20), "sve": (16, 22), "i8mm": (26, 13), "bf16": (26, 14),
    },
    "armv7": {"neon": (16, 12), "vfp3": (16, 13), "vfp4": (16, 16)},
    "riscv64": {"v": (16, 21)},
}  # fmt: skip


def host_target_name() -> str:
    """The entry of `TARGETS` of this process, or "" if it has none."""
    system = {"linux": "linux", "win32": "windows", "darwin": "macos"}.get(sys.platform, sys.platform)
    name = f"{architecture()}-{system}"
    return name if name in TARGETS else ""


def target_of(name: str | None, features: str | None = None) -> tuple[str, Target, CrossMachine]:
    """A target by its name, and its machine with the features of a processor.

    name: None is this machine, and then the processor is this one, or that of `hl.config.cpu`. features: a level of
    x86-64 ("x86-64-v4"), or LLVM's switches ("+avx512f,+avx512vl"), which are added to those of the target.
    Raises ExportError.
    """
    chosen = name or host_target_name()
    if chosen not in TARGETS:
        nearest = difflib.get_close_matches(chosen, TARGETS, 1)
        raise ExportError(
            f"export for the target {chosen or platform.platform()!r}",
            f"the targets are {', '.join(TARGETS)}",
            f"did you mean {nearest[0]!r}?" if nearest else "name one of them (target=)",
        )
    target, here = TARGETS[chosen], host()
    if features is None and name is None:
        return chosen, target, _machine(target, here.cpu, here.features, here.vector_bytes, here.vector_registers)
    cpu, switches = target.cpu, target.features
    if features in LEVELS and target.arch == "x86_64":
        cpu, switches = str(features), ",".join(f"+{one}" for one in LEVELS[str(features)])
    elif features:
        switches = _added(chosen, target, features)
    on = {one[1:] for one in switches.split(",") if one.startswith("+")}
    vector_bytes, registers = target.vector_bytes, target.vector_registers
    if target.arch == "x86_64":
        vector_bytes, registers = (64, 32) if "avx512f" in on else (32, 16) if "avx" in on else (16, 16)
        switches += ",-prefer-256-bit"
    return chosen, target, _machine(target, cpu, switches, vector_bytes, registers)


def _machine(target: Target, cpu: str, switches: str, vector_bytes: int, registers: int) -> CrossMachine:
    here = host()
    on = {one[1:] for one in switches.split(",") if one.startswith("+")}
    same = target.arch == here.arch
    # Elsewhere: caches of a small processor, which cost a large one little.
    caches = (here.l1_bytes, here.l2_bytes, here.l3_bytes) if same else (32 << 10, 512 << 10, 4 << 20)
    return CrossMachine(
        target.arch, cpu, switches, vector_bytes, registers, *caches, here.cores,
        target.triple, target.fma == "" or target.fma in on,
    )  # fmt: skip


def _added(name: str, target: Target, features: str) -> str:
    given = [one.strip() for one in features.split(",") if one.strip()]
    bad = [one for one in given if one[0] not in "+-"]
    if bad:
        known = list(LEVELS) if target.arch == "x86_64" else []
        raise ExportError(
            f"features {features!r} for the target {name!r}",
            f"{bad[0]!r} is neither a switch such as '+{next(iter(_bits(target)), 'feature')}' nor "
            f"{'one of ' + ', '.join(known) if known else 'a processor'}",
            "separate switches by commas, each with + or -",
        )
    kept = [one for one in target.features.split(",") if one and one[1:] not in {g[1:] for g in given}]
    return ",".join([*kept, *given])


def _bits(target: Target) -> Mapping[str, tuple[int, ...]]:
    if target.arch == "x86_64":
        return _X86_BITS
    return (
        _AUXILIARY_BITS.get(target.arch, {}) if target.zig.endswith(("gnu", "gnueabihf", "musl", "musleabihf")) else {}
    )


def checked_features(target: Target, machine: CrossMachine) -> list[tuple[str, tuple[int, ...]]]:
    """The check of a library for the machine before it runs: features, and where the processor reports them."""
    return [(name, where) for name, where in _bits(target).items() if machine.has(name)]


def processor_name(machine: CrossMachine) -> str:
    """The processor for people: LLVM's name, and the setting by which it was chosen if it was."""
    return machine.cpu if host_name() == "native" or machine.cpu == host_name() else f"{machine.cpu} ({host_name()})"


def _with_musl() -> None:
    """Linux with the C library musl, for programs that are linked statically."""
    for name, target in list(TARGETS.items()):
        if name.endswith("-linux"):
            triple, zig = (text.replace("-gnu", "-musl") for text in (target.triple, target.zig))
            TARGETS[f"{name}-musl"] = replace(target, triple=triple, zig=zig)


_with_musl()
