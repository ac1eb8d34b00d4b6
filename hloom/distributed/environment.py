"""The information that a launcher passes to a process (MPI's launchers pass its rank and the number of processes), and
the location of the MPI library."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

# MPICH and Intel MPI; Open MPI; Slurm's srun.
_NUMBERS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
_COUNTS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")


def _first(names: tuple[str, ...], otherwise: int) -> int:
    return next((int(os.environ[name]) for name in names if name in os.environ), otherwise)


def process_number() -> int:
    """The rank of this process among those that were started together; 0 if unknown."""
    return _first(_NUMBERS, 0)


def started_processes() -> int:
    """How many processes were started together; 1 if unknown."""
    return _first(_COUNTS, 1)


_PACKAGES = ("mpich", "openmpi", "impi-rt")


def installed_file(name: str) -> Path | None:
    """A file of the MPI library's package, by its name; None if no such package is installed.

    The packages install their files next to Python's own folders, where an environment that inherits the packages of
    another one does not look for them.
    """
    for package in _PACKAGES:
        try:
            files = metadata.files(package) or []
        except metadata.PackageNotFoundError:
            continue
        found = next((Path(str(file.locate())).resolve() for file in files if file.name == name), None)
        if found is not None and found.exists():
            return found
    return None
