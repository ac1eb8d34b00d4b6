"""Whole functions on the fake driver, whose kernels are run thread by thread in the lock-step simulator."""

from __future__ import annotations

from types import SimpleNamespace

import cuda_cases as cases
import numpy as np
from cuda_cases import device
from fake_cuda_model import FakeKernel, writes

import hloom as hl
from hloom.backends.cuda.program import cuda_program
from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.targets.cuda.simulator import simulator
from hloom.compiler.targets.cuda.target import CudaTarget
from hloom.ir.types import DTYPES
from hloom.runtime.cuda.programs.executable import Executable

_simulated: dict[tuple, list[bytes]] = {}  # what a kernel leaves in its arrays, by the kernel and what it found there


def _simulate(source, arrays: dict, integers: dict, blocks: int, layout: tuple) -> None:
    """Runs a kernel thread by thread, once for the same contents: tests that let every call fail run it very often.

    layout: which arrays share a block of memory, and where they begin in it.
    """
    before = tuple(array.tobytes() for array in arrays.values())
    key = (source, blocks, tuple(integers.values()), layout, before)
    if key not in _simulated:
        simulator.run(source, arrays, integers, blocks, False)
        _simulated[key] = [array.tobytes() for array in arrays.values()]
        return
    for array, after in zip(arrays.values(), _simulated[key], strict=True):
        array.view(np.uint8)[:] = np.frombuffer(after, np.uint8)


def simulated(fake, name: str, source) -> FakeKernel:
    """A kernel that is run thread by thread."""
    pointers = [kind.endswith("*") for kind in source.params]
    # By address: bytes to the end of the block, and the block. Memory may be freed before a kernel that reads it runs.
    sizes: dict[int, int] = {}
    owners: dict[int, int] = {}

    def run(fake, blocks, *words):
        arrays, integers = {}, {}
        found = [word for word, is_pointer in zip(words, pointers, strict=True) if is_pointer]
        order = list(dict.fromkeys(owners[word] for word in found))
        layout = tuple((order.index(owners[word]), word - owners[word]) for word in found)
        for parameter, word, kind in zip(source.parameters, words, source.params, strict=True):
            if kind.endswith("*"):
                dtype = DTYPES[kind.removesuffix("*")]
                arrays[parameter] = fake.view(word, sizes[word] // dtype.itemsize * dtype.itemsize, dtype)
            else:
                integers[parameter] = word
        _simulate(source, arrays, integers, blocks, layout)

    def accesses(*words):
        """What it touches is not known here: all that lies behind its pointers."""
        found = [word for word, is_pointer in zip(words, pointers, strict=True) if is_pointer]
        for word in found:
            block = fake.memory.find(word, 0, name)
            sizes[word], owners[word] = block.address + block.nbytes - word, block.address
        return [writes(word, sizes[word]) for word in found]

    return FakeKernel(name, "".join("p" if p else "i" for p in pointers), run, accesses, with_grid=True)


def compiled(function, *arrays, donated=frozenset(), version: int = 13000, tf32: bool = False, choose=None):
    """(the executable of a function on a new fake device, the module as traced). choose(device): what decides the steps
    that a library could do."""
    module = hl.make_module(function)(*arrays)
    target = CudaTarget("sm_90", tf32=tf32)
    plan = make_plan(run_passes(module, PIPELINE, target=target), target, donated)
    dev = device(cases.driver(version=version))
    codes = {}
    for source in dict.fromkeys(step.launch.source for step in plan.kernels()):
        name = f"{source.name}_{len(codes)}"
        codes[source] = SimpleNamespace(cubin=f"cubin {name}".encode(), name=name)
        dev.fake.kernels[name] = simulated(dev.fake, name, source)
    chooser = (choose(dev),) if choose else ()
    return Executable(cuda_program(plan, codes, "whole"), dev, *chooser), module
