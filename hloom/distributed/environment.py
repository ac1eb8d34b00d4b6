"""What the starter of a process says of it (MPI's launchers name a process's number and how many there are), and where
the MPI library is installed."""

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
    """The number of this process among those that were started together; 0 where nobody says."""
    return _first(_NUMBERS, 0)


def started_processes() -> int:
    """How many processes were started together; 1 where nobody says."""
    return _first(_COUNTS, 1)


_PACKAGES = ("mpich", "openmpi", "impi-rt")


def installed_file(name: str) -> Path | None:
    """A file of the MPI library's package, by its name; None where no such package is installed.

    The packages put their files beside Python's own folders, where an environment that sees the packages of another one
    does not look for them.
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
