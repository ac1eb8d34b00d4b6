"""Prints versions, the machine as the compiler sees it, devices, threads, the cache folder and its size, and settings.

Examples:
    hloom info
    hloom info --json > info.json

"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import sys

from rich.console import Console
from rich.table import Table

import hloom
from hloom.backends.cpu.driver import driver
from hloom.compiler.cache import default_folder
from hloom.compiler.targets.cpu.machine import host
from hloom.config import SETTINGS, config

PACKAGES = ("numba", "llvmlite", "numpy", "ml_dtypes", "optree", "rich")
OPTIONAL = ("numba-cuda", "matplotlib", "scikit-learn", "jax", "torch")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def facts() -> dict:
    """What `info` prints, as nested dicts: section, name, value."""
    machine = host()
    folder = default_folder()
    files = list(folder.glob("*.bin")) if folder is not None and folder.is_dir() else []
    return {
        "versions": {"hloom": hloom.__version__, "python": platform.python_version()}
        | {name: _version(name) for name in PACKAGES + OPTIONAL},
        "machine": {
            "system": platform.platform(),
            "processor": f"{machine.arch} {machine.cpu}",
            "vector registers": f"{machine.vector_registers} of {machine.vector_bytes * 8} bits",
            "caches (KiB)": f"{machine.l1_bytes >> 10}, {machine.l2_bytes >> 10}, {machine.l3_bytes >> 10}",
            "cores": machine.cores,
        },
        "runtime": {
            "devices": ", ".join(map(str, hloom.devices())),
            "threads": driver().num_threads,
            "cache folder": str(folder) if folder is not None else "none",
            "cached kernels": f"{len(files)} files, {sum(_size(f) for f in files) / 2**20:.1f} MiB",
        },
        "settings": {
            s.variable: {"name": s.name, "value": getattr(config, s.name), "default": s.default, "meaning": s.help}
            for s in SETTINGS.values()
        },
    }


def _size(file) -> int:
    try:
        return file.stat().st_size
    except OSError:  # another process removed it
        return 0


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def run(options: argparse.Namespace) -> int:
    found = facts()
    if options.json:
        json.dump(found, sys.stdout, indent=2)
        print()
        return 0
    console = Console()
    for section in ("versions", "machine", "runtime"):
        table = Table(title=section, show_header=False, title_justify="left")
        for name, value in found[section].items():
            table.add_row(name, str(value))
        console.print(table)
    table = Table("variable", "hl.config", "value", "meaning", title="settings", title_justify="left")
    for variable, setting in found["settings"].items():
        table.add_row(variable, setting["name"], repr(setting["value"]), setting["meaning"])
    console.print(table)
    return 0
