"""Plans for CUDA in the tests: made from functions, and run launch by launch in the lock-step simulator."""

from __future__ import annotations

import numpy as np
from plan_simulator import Simulation

import hloom as hl
from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.compiler.schedule.scheduler import Plan, make_plan
from hloom.compiler.targets.cuda.simulator import simulator
from hloom.compiler.targets.cuda.target import CudaTarget
from hloom.ir import interpret
from hloom.ir.types import DTYPES


def planned(function, *arrays, arch: str = "sm_90", donated=frozenset()) -> tuple[Plan, list[np.ndarray]]:
    """(the plan of a function of arrays, the results of the module as traced by the reference interpreter)."""
    module = hl.make_module(function)(*arrays)
    target = CudaTarget(arch)
    with np.errstate(all="ignore"):
        wanted = interpret.evaluate(module.entry, list(arrays))
    plan = make_plan(run_passes(module, PIPELINE, target=target, verify=True), target, donated)
    return plan, list(wanted) if isinstance(wanted, tuple) else [wanted]


class CudaSimulation(Simulation):
    """The memory of one run on a GPU."""

    has_products = False  # they are texts as all others

    def launch(self, step) -> None:
        launch = step.launch
        source = launch.source
        arrays, integers = {}, {}
        for name, argument, kind in zip(source.parameters, launch.arguments, source.params, strict=True):
            if not isinstance(argument, str):
                integers[name] = argument
                continue
            dtype = DTYPES[kind.removesuffix("*")]
            memory, offset = self.memory(step.pointers[argument])
            size = self.size(step, argument)
            assert offset % max(source.alignment, dtype.itemsize) == 0, f"{name} is not aligned"
            arrays[name] = memory[offset : offset + size].view(dtype)
        assert launch.threads == source.threads
        simulator.run(source, arrays, integers, launch.blocks, self.reverse)


def simulate(plan: Plan, arrays, reverse: bool = False) -> list[np.ndarray]:
    """The outputs of a plan for CUDA. reverse: blocks and threads from the last to the first."""
    return CudaSimulation(plan, arrays, reverse).run()


def check(function, *arrays, tolerance: float = 2e-5, orders=(False, True), arch: str = "sm_90") -> Plan:
    """A function planned for CUDA and simulated, against the reference interpreter; both orders have the same bits."""
    arrays = [np.asarray(a) for a in arrays]
    plan, wanted = planned(function, *arrays, arch=arch)
    runs = [simulate(plan, arrays, reverse) for reverse in orders]
    for got, want in zip(runs[0], wanted, strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        if want.dtype.kind in "biu":
            np.testing.assert_array_equal(got, want)
        else:
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            bound = {"bfloat16": 2**-6, "float16": 2**-9}.get(want.dtype.name, tolerance)
            np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=bound, atol=bound)
    for other in runs[1:]:
        assert [a.tobytes() for a in runs[0]] == [a.tobytes() for a in other], "the order of the threads shows"
    return plan
