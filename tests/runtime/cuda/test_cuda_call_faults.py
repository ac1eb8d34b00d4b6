"""Every driver call of a whole scenario fails once: the error is typed, nothing leaks, the device works after."""

from __future__ import annotations

import cuda_cases as cases
import numpy as np
import pytest
from cuda_cases import OUT, VECTOR, N, X, Y, device, driver, fetch, gpu, host, launch, place, vectors

from hloom.runtime.cuda.array import DeviceArray
from hloom.runtime.cuda.errors import STICKY, CudaDeviceLostError, CudaError, CudaOutOfMemoryError
from hloom.runtime.cuda.programs import executable
from hloom.runtime.cuda.programs.executable import Executable
from hloom.runtime.cuda.programs.program import Copy, CudaProgram, Enqueue, Fill

# What fails without an error: destroying, which is tried again, and the words of an error.
QUIET = {"cuGraphDestroy", "cuGraphExecDestroy", "cuMemFreeAsync", "cuGetErrorString"}


def mixed(dev) -> CudaProgram:
    """out = 2 * (x + y), by a library, a Python function, a copy and a fill."""
    first, second = place("arena", 0), place("arena", 4096)

    def library(stream, source, target):
        dev.api.copy(target, source, 4 * N, stream, "a library copied")

    steps = (
        launch("add", X, Y, first, N),
        Enqueue(library, (first, second), "a copying library"),
        host(lambda a: a * 2, second, first),
        Fill(second, 0, 4 * N),
        Copy(OUT, first, 4 * N),
    )
    return CudaProgram("mixed", steps, [np.ones(3, np.float32)], 8192, [VECTOR, VECTOR], [VECTOR])


@pytest.fixture(autouse=True, scope="module")
def few_captures():
    """Two graphs of a stretch are kept, so that the third call changes one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executable, "CAPTURES", 2)
        yield


class Scenario:
    """Two GPUs and some programs; `run` may be called again after it failed."""

    def __init__(self):
        self.fake = driver(gpus=[gpu(memory=1 << 24), gpu()])
        self.device = device(self.fake)
        self.second = device(self.fake, 1)
        self.programs = None

    def run(self) -> None:
        dev = self.device
        if self.programs is None:
            made = [cases.straight(), cases.powers(), mixed(dev), cases.chosen(True, 3)]
            self.programs = [Executable(program, dev) for program in made]
        straight, powers, mixed_up, chosen = self.programs
        kept = []
        for turn in range(3):
            x, y = vectors(2, turn)
            inputs = [dev.put(x, "x"), dev.put(y, "y")]
            (out,) = straight(inputs)
            coming = dev.get(out, np.empty(N, np.float32))
            assert (coming.result() == cases.straight_result(x, y)).all()
            kept += [inputs, out]
        (out,) = powers([*inputs, dev.put(np.int32(2), "steps")])
        assert np.allclose(fetch(dev, out), x * y * y)
        (out,) = mixed_up(inputs)
        assert (fetch(dev, out) == (x + y) * 2).all()
        (out,) = chosen(dev.put_all([x, np.int32(1)], ["x", "index"]))
        there = DeviceArray(dev, out, VECTOR).to(self.second)
        assert (there.numpy() == x * 20).all()
        there.block_until_ready()
        del kept, out, inputs, there
        big = dev.put(np.zeros(5 << 20, np.uint8), "big")
        dev.wait(big.ready, "big was waited for")
        del big
        dev.pool.trim()
        dev.memory()
        dev.synchronize()

    def close(self) -> None:
        self.programs = None
        errors = []
        for dev in (self.second, self.device):
            try:
                dev.close()
            except CudaError as error:
                errors.append(error)
        if errors:
            raise errors[0]


@pytest.fixture(scope="module")
def calls(few_captures) -> list[str]:
    """The calls of a scenario that goes well, closing included."""
    scenario = Scenario()
    start = len(scenario.fake.calls)
    scenario.run()
    scenario.close()
    assert scenario.fake.leaks() == [] and scenario.fake.violations == []
    return [name for name, _ in scenario.fake.calls[start:]]


def test_the_scenario_makes_all_kinds_of_calls(calls):
    assert len(set(calls)) >= 41 and len(calls) > 200, sorted(set(calls))


MAKING = ("Alloc", "Create", "Load", "Instantiate", "Add", "Retain")  # calls that memory may be missing for


# Every call, or every ninth.
STEPS = pytest.mark.parametrize(
    "step", [pytest.param(1, marks=pytest.mark.slow), pytest.param(9, marks=pytest.mark.sample)]
)


@STEPS
@pytest.mark.parametrize("code", [999, 2])
def test_any_call_may_fail_once(calls, code, step):
    untold = []
    for number, name in list(enumerate(calls))[::step]:
        if code == 2 and not any(word in name for word in MAKING):
            continue
        scenario = Scenario()
        scenario.fake.inject(number, code)
        asked = len(scenario.fake.calls)
        try:
            scenario.run()
            scenario.close()
        except CudaError as error:
            assert error.asked and error.found and error.repair, (number, name)
            assert isinstance(error, CudaOutOfMemoryError) == (code == 2), (number, name, error)
        else:
            untold.append(name)
        assert scenario.fake.calls[asked + number][0] == name
        try:
            scenario.run()  # the process stays usable, and so does the device
        finally:
            scenario.close()
        assert scenario.fake.leaks() == [], (number, name)
        assert scenario.fake.violations == [], (number, name)
    again = {n for n in calls if "Graph" in n} | {"cuMemAllocFromPoolAsync", "cuModuleLoadData"}  # with memory freed
    allowed = QUIET | (again if code == 2 else set())
    assert set(untold) <= allowed | CLOSING, sorted(set(untold) - allowed)


# Calls of `close` are made once more before they count as failed.
CLOSING = {
    "cuStreamSynchronize", "cuStreamDestroy", "cuEventDestroy", "cuMemPoolDestroy", "cuMemFreeHost", "cuModuleUnload",
    "cuDevicePrimaryCtxRelease", "cuCtxSetCurrent",
}  # fmt: skip


@STEPS
def test_any_call_may_lose_the_device(calls, step):
    """From then on the driver answers nothing else; every use says so, and at once."""
    code = 719
    assert code in STICKY
    for number, name in list(enumerate(calls))[::step]:
        scenario = Scenario()
        fake = scenario.fake
        fake.lose_at(number, code)
        with pytest.raises(CudaDeviceLostError) as caught:
            scenario.run()
            scenario.close()
        assert caught.value.code == code and "restart" in caught.value.repair, (number, name)
        with pytest.raises(CudaDeviceLostError):
            scenario.run()
        assert fake.violations == [], (number, name)


def test_what_is_owed_is_paid_later():
    """A graph that the driver refuses to destroy is destroyed when the device is closed."""
    scenario = Scenario()
    scenario.run()
    count = scenario.fake.counts().get("cuGraphDestroy", 0)
    scenario.programs[0].release()
    assert scenario.fake.counts()["cuGraphDestroy"] == count + 2
    scenario.run()
    scenario.fake.inject(0, 999)
    scenario.fake.inject(1, 999)
    scenario.programs[0].release()
    scenario.run()
    scenario.close()
    assert scenario.fake.leaks() == [] and scenario.fake.violations == []
