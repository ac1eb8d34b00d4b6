"""What the starter of a process says of it: MPI's launchers name a process's number and how many there are."""

from __future__ import annotations

import os

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
