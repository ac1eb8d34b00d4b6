"""Where the time of a compiled program goes.

for part in hl.profiler.profile(hl.jit(f).lower(*args).compile(), args):
    print(part)        # seconds, launches, GB/s and GFLOP/s of each kernel, the longest first
"""

from __future__ import annotations

from hloom.profiler.annotations import StepTraceAnnotation, TraceAnnotation, annotate_function
from hloom.profiler.steps import Part, add_reader, profile

__all__ = ["Part", "StepTraceAnnotation", "TraceAnnotation", "add_reader", "annotate_function", "profile"]
__dir__ = __all__.copy
