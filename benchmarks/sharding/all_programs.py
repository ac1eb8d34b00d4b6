"""All programs that are compared with JAX."""

from __future__ import annotations

from benchmarks.sharding import more_programs  # noqa: F401  (it adds to them)
from benchmarks.sharding.programs import PROGRAMS

__all__ = ["PROGRAMS"]
