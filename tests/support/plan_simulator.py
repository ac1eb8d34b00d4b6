"""Runs a plan in Python: every kernel's own text, one element after the other, with bounds checked at every access.

Nothing is compiled, so that a thousand programs take seconds; and what native code would do silently (a read outside of
an array, a value overwritten while it is needed, a temporary read before it was written) fails or shows in the result.
Contractions, whose kernels are made of machine instructions, are computed by the reference interpreter.
"""

from __future__ import annotations

import functools
import math
import re

import numpy as np

from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.schedule.steps import BranchStep, CopyStep, HostStep, JumpStep, KernelStep, SwapStep, SwitchStep
from hloom.compiler.targets.cuda.simulator import dialect
from hloom.ir.interpret import evaluate_instruction
from hloom.ir.types import DTYPES, TupleShape

POISON = 0xFF  # NaN in every float dtype


class Ambiguous(Exception):
    """A contraction overwrites one of several operands, and the plan does not say which."""


class Pointer:
    """A typed pointer to `size` elements."""

    def __init__(self, memory: np.ndarray, offset: int, dtype: np.dtype, size: int, name: str):
        assert offset % 64 == 0, f"{name} is not aligned"
        self.array = memory[offset : offset + size * dtype.itemsize].view(dtype)
        assert self.array.size == size, f"{name} leaves its memory"
        self.name = name

    def _check(self, index):
        assert 0 <= index < self.array.size, f"{self.name}[{index}] of {self.array.size} elements"

    def __getitem__(self, index):
        self._check(index)
        return self.array[index]

    def __setitem__(self, index, value):
        self._check(index)
        with np.errstate(all="ignore"):
            self.array[index] = value


class Address:
    """A place inside of an array, moved by bytes."""

    def __init__(self, array, offset: int = 0):
        self.array, self.offset = array, offset

    def __add__(self, distance):
        return Address(self.array, self.offset + int(distance))

    def element(self, row: int, stride: int, column: int, size: int) -> int:
        place = self.offset + row * int(stride)
        assert place % size == 0, "not the address of an element"
        return place // size + column


def _transposed(name: str):
    """The block that `transpose_f32_8x8` and its like move."""
    _, dtype, shape = name.split("_")
    lanes, size = int(shape.split("x")[0]), DTYPES[dtype].itemsize

    def transpose(source, source_row, target, target_row):
        for i in range(lanes):
            for j in range(lanes):
                value = source.array[source.element(i, source_row, j, size)]
                target.array[target.element(j, target_row, i, size)] = value

    return transpose


def _select(condition, x, y):
    return x if condition else y


@functools.cache
def _function(name: str):
    if name == "select":
        return _select
    if name == "address":
        return Address
    if name.startswith("transpose_"):
        return _transposed(name)
    if name.startswith("scratch_"):
        return lambda size: np.full(size, np.nan).astype(dialect.register_dtype(name.removeprefix("scratch_")))
    return dialect.function(name)


_NAMES = re.compile(r"\b([a-z_][a-z0-9_]*)\(")
_PYTHON = {"range", "min", "max", "def", "abs", "int"}


@functools.cache
def _compiled(source):
    title = source.text.split("(", 1)[0].split()[-1]
    scope: dict = {"nan": math.nan, "inf": math.inf, **{called: _compiled(part) for called, part in source.parts}}
    for name in set(_NAMES.findall(source.text)) - _PYTHON - {title, *scope}:
        scope[name] = _function(name)
    exec(compile(source.text, title, "exec"), scope)  # the compiler's own kernel texts
    return scope[title]


def bytes_of(array: np.ndarray) -> np.ndarray:
    return np.array(array, order="C").reshape(-1).view(np.uint8).copy()


class Simulation:
    """The memory of one run."""

    has_products = True  # contractions are computed by the reference interpreter

    def __init__(self, plan: Plan, arrays, reverse: bool = False):
        self.plan = plan
        self.reverse = reverse
        self.inputs = [bytes_of(a) for a in arrays]
        self.given = [m.copy() for m in self.inputs]
        self.constants = [bytes_of(c) for c in plan.constants]
        self.outputs = [
            self.inputs[plan.donated[k]] if k in plan.donated else np.full(s.bytes, POISON, np.uint8)
            for k, s in enumerate(plan.output_shapes)
        ]
        self.arena = np.full(plan.arena_bytes, POISON, np.uint8)
        self.swapped: dict[int, object] = {}  # the place that stands for one with this swap number

    def memory(self, place) -> tuple[np.ndarray, int]:
        place = self.swapped.get(place.swap, place) if place.swap is not None else place
        if place.kind == "arena":
            return self.arena, place.number
        return {"input": self.inputs, "output": self.outputs, "constant": self.constants}[place.kind][place.number], 0

    def view(self, place, shape) -> np.ndarray:
        memory, offset = self.memory(place)
        return memory[offset : offset + shape.bytes].view(shape.dtype).reshape(shape.dims)

    def run(self) -> list[np.ndarray]:
        done = set()
        number = 0
        while number < len(self.plan.steps):
            step = self.plan.steps[number]
            number += 1
            if isinstance(step, JumpStep):
                number = step.target
                done = set()
            elif isinstance(step, BranchStep):
                memory, offset = self.memory(step.pred)
                number = number if memory[offset] else step.target
            elif isinstance(step, SwitchStep):
                memory, offset = self.memory(step.index)
                chosen = int(memory[offset : offset + 4].view(np.int32)[0])
                number = step.targets[chosen if 0 <= chosen < len(step.targets) else -1]
            elif isinstance(step, SwapStep):
                first, second = (self.swapped.get(p.swap, p) for p in (step.first, step.second))
                self.swapped |= {step.first.swap: second, step.second.swap: first}
            elif isinstance(step, CopyStep):
                target, source = self.memory(step.target), self.memory(step.source)
                target[0][target[1] : target[1] + step.bytes] = source[0][source[1] : source[1] + step.bytes]
            elif isinstance(step, HostStep):
                self.evaluate(step.instruction, step.inputs, step.outputs)
            elif self.has_products and _is_product(step.instruction):
                if step.instruction not in done:
                    done.add(step.instruction)
                    self.product(step.instruction)
            else:
                self.launch(step)
        for k, (now, given) in enumerate(zip(self.inputs, self.given, strict=True)):
            if k not in self.plan.donated.values():
                assert np.array_equal(now, given), f"input {k} was written"
        return [m.view(s.dtype).reshape(s.dims) for m, s in zip(self.outputs, self.plan.output_shapes, strict=True)]

    def evaluate(self, instruction, inputs, outputs) -> None:
        operands = dict.fromkeys(instruction.operands)
        values = {o: self.view(p, o.shape).copy() for o, p in zip(operands, inputs, strict=True)}
        with np.errstate(all="ignore"):
            result = evaluate_instruction(instruction, [values[o] for o in instruction.operands])
        shapes = _shapes(instruction)
        results = result if isinstance(result, tuple) else (result,)
        for place, shape, value in zip(outputs, shapes, results, strict=True):
            self.view(place, shape)[...] = value

    def product(self, instruction) -> None:
        places: dict[str, object] = {}
        for step in self.plan.kernels():
            if step.instruction is instruction:
                places |= step.pointers
        outputs = _shapes(instruction)
        written = [places.get(f"out{k}") or places[f"io{k}"] for k in range(len(outputs))]
        values = {}
        for k, operand in enumerate(_operands(instruction)):
            if f"in{k}" in places:
                values[operand] = self.view(places[f"in{k}"], operand.shape).copy()
            elif operand.opcode == "constant":
                values[operand] = operand["value"]
            else:
                values[operand] = self._overwritten(operand, places, written, outputs)
        with np.errstate(all="ignore"):
            result = evaluate_instruction(instruction, [values[o] for o in instruction.operands])
        for k, value in enumerate(result if isinstance(result, tuple) else (result,)):
            self.view(written[k], outputs[k])[...] = value

    def _overwritten(self, operand, pointers, written, outputs) -> np.ndarray:
        """The value of an operand that an output of a contraction takes the place of; zeros where it is not read."""
        if operand.opcode == "parameter" and operand["index"] in self.plan.donated.values():
            return self.inputs[operand["index"]].view(operand.dtype).reshape(operand.dims).copy()
        numbers = [int(p[2:]) for p in pointers if p.startswith("io")]
        fitting = [k for k in numbers if outputs[k] is operand.shape and written[k].number not in self.plan.donated]
        if len(fitting) > 1:
            raise Ambiguous(f"{operand!r} may be under any of {fitting}")
        if not fitting:
            return np.zeros(operand.dims, operand.dtype)
        return self.view(written[fitting[0]], operand.shape).copy()

    def size(self, step: KernelStep, argument: str) -> int:
        """The bytes behind a pointer argument of a launch."""
        if argument in step.launch.temporaries:
            return step.launch.temporaries[argument]
        if argument in step.launch.tables:
            return step.launch.tables[argument].nbytes
        number = int(re.search(r"\d+$", argument)[0])
        if argument.startswith("in"):
            return _operands(step.instruction)[number].shape.bytes
        return _shapes(step.instruction)[number].bytes

    def launch(self, step: KernelStep) -> None:
        launch = step.launch
        function = _compiled(launch.source)
        arguments = []
        for argument, kind in zip(launch.arguments, launch.source.params, strict=False):
            if not isinstance(argument, str):
                arguments.append(argument)
                continue
            dtype = DTYPES[kind.removesuffix("*")]
            memory, offset = self.memory(step.pointers[argument])
            name = f"{launch.source.name}: {argument}"
            arguments.append(Pointer(memory, offset, dtype, self.size(step, argument) // dtype.itemsize, name))
        pieces = [(lo, min(lo + launch.grain, launch.items)) for lo in range(0, launch.items, max(launch.grain, 1))]
        with np.errstate(all="ignore"):
            for lo, hi in reversed(pieces) if self.reverse else pieces:
                function(*arguments, lo, hi)


def _places(step) -> list:
    """The places that a step names."""
    if isinstance(step, KernelStep):
        return list(step.pointers.values())
    if isinstance(step, CopyStep):
        return [step.target, step.source]
    if isinstance(step, HostStep):
        return [*step.inputs, *step.outputs]
    return [step.pred] if isinstance(step, BranchStep) else [step.index] if isinstance(step, SwitchStep) else []


def _operands(instruction) -> list:
    """What in0, in1, ... of its kernels are."""
    if instruction.opcode == "fusion":
        return list(instruction.operands)
    return list(dict.fromkeys(instruction.operands))


def _shapes(instruction) -> tuple:
    return instruction.shape.elements if isinstance(instruction.shape, TupleShape) else (instruction.shape,)


def _is_product(instruction) -> bool:
    if instruction.opcode == "fusion":
        return any(i.opcode in ("dot", "convolution") for i in instruction["calls"].instructions)
    return instruction.opcode in ("dot", "convolution")


def simulate(plan: Plan, arrays, reverse: bool = False) -> list[np.ndarray]:
    """The outputs of a plan. reverse: a launch's chunks in the opposite order, as threads might do them."""
    return Simulation(plan, arrays, reverse).run()


SMALL_CUTS = {
    "hloom.compiler.fusibility": {"ROWS": 3, "SHORT_ROW": 10},
    "hloom.compiler.kernels.kinds": {"LONG_ROW": 5},
    "hloom.compiler.kernels.launch": {"WORK": 40},
    "hloom.compiler.kernels.loops.reduce": {
        "CHUNK": 6,
        "CHUNKS": 5,
        "COLUMNS": 4,
        "EACH": 2,
        "LANES": 1,
        "SHARED": 3,
        "WHOLE": 1,
    },
    "hloom.compiler.kernels.loops.elementwise": {"ACROSS_BYTES": 64, "ALONG": 8},
}


def small_cuts(monkeypatch) -> None:
    """Thresholds so low that arrays of a few elements are cut into chunks, blocks and tiles as large ones are."""
    import importlib

    for module, values in SMALL_CUTS.items():
        for name, value in values.items():
            monkeypatch.setattr(importlib.import_module(module), name, value)
