"""NumPy programs by kind, as people write them: nothing in their functions knows of a compiler."""

from hloom.benchmarks.numpy_programs.programs import (
    dynamic_programming,
    elementwise,
    finance,
    graphs,
    images,
    linear_algebra,
    particles,
    physics,
    recurrences,
    signals,
    statistics,
    stencils,
)

__all__ = [
    "dynamic_programming",
    "elementwise",
    "finance",
    "graphs",
    "images",
    "linear_algebra",
    "particles",
    "physics",
    "recurrences",
    "signals",
    "statistics",
    "stencils",
]
