"""Kernels, programs and devices for the tests of the CUDA runtime."""

from __future__ import annotations

import numpy as np
from fake_cuda import FakeDriver, FakeGpu
from fake_cuda_model import FakeKernel, Fault, reads, writes

from hloom.ir.types import Shape
from hloom.runtime.cuda.api import Api
from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.discovery import gpus
from hloom.runtime.cuda.programs.program import Conditional, Copy, CudaProgram, Host, Kernel, Launch, Ref, While

F32, S32 = np.float32, np.int32
N = 1000
VECTOR = Shape("f32", (N,))
SCALAR = Shape("s32", ())


def _binary(name: str, function) -> FakeKernel:
    """out = function(x, y) over n floats."""

    def run(fake, x, y, out, n):
        fake.view(out, 4 * n, F32)[...] = function(fake.view(x, 4 * n, F32), fake.view(y, 4 * n, F32))

    return FakeKernel(name, "pppi", run, lambda x, y, out, n: [reads(x, 4 * n), reads(y, 4 * n), writes(out, 4 * n)])


def _scale(fake, x, out, factor, n):
    fake.view(out, 4 * n, F32)[...] = fake.view(x, 4 * n, F32) * F32(factor)


def _count(fake, counter, step):
    fake.view(counter, 4, S32)[...] += S32(step)


def _less(fake, counter, limit, pred):
    fake.view(pred, 1)[0] = fake.view(counter, 4, S32)[0] < fake.view(limit, 4, S32)[0]


def _fails(fake, x):
    raise Fault(700)


KERNELS = (
    _binary("add", np.add),
    _binary("multiply", np.multiply),
    FakeKernel("scale", "ppii", _scale, lambda x, out, factor, n: [reads(x, 4 * n), writes(out, 4 * n)]),
    FakeKernel("count", "pi", _count, lambda counter, step: [writes(counter, 4)]),
    FakeKernel("less", "ppp", _less, lambda c, limit, pred: [reads(c, 4), reads(limit, 4), writes(pred, 1)]),
    FakeKernel("fails", "p", _fails, lambda x: [reads(x, 4)]),
)
CUBIN = b"cubin " + b" ".join(kernel.name.encode() for kernel in KERNELS)


def driver(**facts) -> FakeDriver:
    return FakeDriver(KERNELS, **facts)


def device(fake: FakeDriver | None = None, index: int = 0, needed: int = 12000, **options) -> Device:
    """An opened device of a fake driver, `device.fake`."""
    fake = fake or driver()
    api = Api(fake)
    result = Device(api, gpus(api, needed)[index], condition=lambda arch: b"cubin set_pred set_index", **options)
    result.fake = fake
    return result


def finish(dev: Device) -> None:
    """Closes a device; nothing may be left, nothing may have gone against the driver's rules."""
    dev.close()
    assert dev.fake.violations == []
    assert dev.fake.leaks() == []


def host(function, source, target, shape=VECTOR, name: str = "a Python function") -> Host:
    """A Python function of one array, which gives one."""

    def call(arrays, results):
        results[0][...] = function(*arrays)

    return Host(call, ((source, shape),), ((target, shape),), name)


def launch(name: str, *words, where: str = "", shared: int = 0) -> Launch:
    return Launch(Kernel(CUBIN, name), (4, 1, 1), (256, 1, 1), words, shared, where)


def place(kind: str, number: int = 0) -> Ref:
    return Ref(kind, number)


X, Y, OUT = place("input", 0), place("input", 1), place("output", 0)
TEMPORARY = place("arena", 0)


def straight() -> CudaProgram:
    """out = (x + y) * y, by way of a temporary."""
    steps = (
        launch("add", X, Y, TEMPORARY, N, where="model.py:3 in f"),
        launch("multiply", TEMPORARY, Y, OUT, N, where="model.py:4 in f"),
    )
    return CudaProgram("f", steps, [], 4 * N, [VECTOR, VECTOR], [VECTOR], labels=("product",))


def straight_result(x, y):
    return (x + y) * y


def powers() -> CudaProgram:
    """out = x * y ** steps in a loop over a counter; inputs x, y, steps."""
    counter, pred, state = place("arena", 0), place("arena", 256), place("arena", 512)
    steps = (
        Copy(counter, place("constant", 0), 4),
        Copy(state, X, 4 * N),
        While(
            (launch("less", counter, place("input", 2), pred, where="loop.py:1 in cond"),),
            pred,
            (
                launch("multiply", state, Y, state, N, where="loop.py:2 in body"),
                launch("count", counter, 1, where="loop.py:3 in body"),
            ),
            "loop.py:5 in g",
        ),
        Copy(OUT, state, 4 * N),
    )
    zero = np.zeros((), S32)
    return CudaProgram("powers", steps, [zero], 512 + 4 * N, [VECTOR, VECTOR, SCALAR], [VECTOR])


def chosen(by_index: bool, count: int) -> CudaProgram:
    """out = x scaled by 10, 20, ... as the second input says; a pred says 10 or 20."""
    branches = tuple((launch("scale", X, OUT, 10 * (k + 1), N),) for k in range(count))
    selector = Shape("s32", ()) if by_index else Shape("pred", ())
    step = Conditional(Y, branches, by_index, "choice.py:7 in h")
    return CudaProgram("chosen", (step,), [], 0, [VECTOR, selector], [VECTOR])


def vectors(count: int, seed: int = 0) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).normal(size=(count, N)).astype(F32))


def fetch(dev: Device, buffer, shape: Shape = VECTOR) -> np.ndarray:
    return dev.get(buffer, np.empty(shape.dims, shape.dtype)).result()


def gpu(**facts) -> FakeGpu:
    return FakeGpu(**facts)
