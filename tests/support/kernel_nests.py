"""The nests of fused computations, as the kernel kinds that all targets share write them."""

from types import SimpleNamespace

from hloom.compiler.kernels.kinds import LOOP, REDUCE, ROW, SCATTER
from hloom.compiler.kernels.request import KernelRequest

_NESTS = SimpleNamespace(launch_of=lambda nest: nest)


def nests(request: KernelRequest) -> list:
    """The target-neutral nests of a computation that is no contraction."""
    kind = next(kind for kind in (SCATTER, ROW, REDUCE, LOOP) if kind.matches(request.computation))
    return kind.launches(request, _NESTS)
