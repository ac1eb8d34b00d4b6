"""One compiled version of a jitted function: the arguments that it is for, its devices, and the ways to call it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from hloom.arrays.array import Array, common_device
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.config import config
from hloom.errors import DonatedArrayError
from hloom.ir.module import Module
from hloom.ir.records import record
from hloom.platforms.device import Device, default_device, find_device, scoped_device
from hloom.runtime.buffer import is_exclusive
from hloom.runtime.program import Executable
from hloom.tracing.trace import Traced, Tracer, as_array
from hloom.tree import pytrees as tree

if TYPE_CHECKING:
    from hloom.dispatch.jit import JitFunction


class DonationWarning(UserWarning):
    """A donated argument's buffer could not be reused: no output of its size is computed after its last use."""


@record
class Call:
    """The arguments of a call, taken apart: flat dynamic leaves, their structure, static values, the cache's key."""

    leaves: list
    structure: Any
    statics: dict
    key: Any
    hints: Any
    donated: frozenset[int]


def values_of(leaves) -> list[np.ndarray] | None:
    """The arrays of a call; None where some argument is known by its shape only."""
    made = [leaf if isinstance(leaf, Array) else None if isinstance(leaf, ShapeDtypeStruct) else as_array(leaf)
            for leaf in leaves]  # fmt: skip
    return [a._value() for a in made] if all(isinstance(a, Array) for a in made) else None


def _is_ours(data) -> bool:
    """Whether the data of an array are hloom's to give away: on a GPU, or no NumPy array that many hold."""
    return not isinstance(data, np.ndarray) or data.flags.writeable


def _has_other_holders(inputs: list, k: int) -> bool:
    """Whether something else than the list leads to the memory of one of its arrays."""
    if isinstance(inputs[k], np.ndarray):
        return not is_exclusive(inputs[k], 1)
    from hloom.runtime.cuda.array import is_shared

    return is_shared(inputs, k, 1)


class Entry:
    """One compiled version of a function."""

    def __init__(self, owner: JitFunction, call: Call, traced: Traced):
        if traced.captures:
            traced.captures[0].trace_ended()
        self.traced = traced
        self.owner = owner
        self.donated = call.donated
        self.gpu: int | None = None  # number of the GPU on which it runs alone
        self.takes_gpu_arrays = False  # whether arguments that are on a GPU are given as they are
        module = Module(owner._name, traced.computation)
        self.compiled = self._compiled(module, call)
        unused = self.donated - set(self.compiled.donated.values())
        if unused:
            hints = call.hints()
            warnings.warn(
                f"donated arguments of '{owner._name}' that no result could reuse: "
                + ", ".join(f"{hints[k]} {traced.computation.parameters[k].shape!r}" for k in sorted(unused)),
                DonationWarning,
                stacklevel=6,
            )
        self.shapes = self.compiled.output_shapes

    def _choose_devices(self, call: Call) -> tuple[Device | None, dict[int, str], list[str]]:
        """(device of what nobody placed, devices of arguments, devices that the function names for its parts)."""
        from hloom.compiler.placement.user_devices import chosen_devices

        options, what = self.owner.options, f"'{self.owner._name}'"
        chosen = chosen_devices(self.traced.computation)
        arguments = {k: a._device for k, a in enumerate(call.leaves) if getattr(a, "_device", None) is not None}
        if chosen:
            # Arguments may lie on several devices: the function says itself what is done where.
            device = options.device or scoped_device() or next(iter(arguments.values()), None)
        else:
            device = options.device or scoped_device() or common_device(call.leaves, what)
        return device, {k: str(d) for k, d in arguments.items()}, chosen

    def _compiled(self, module: Module, call: Call):
        fusion = call.key[3][0]
        if self.owner.options.target is not None:
            from hloom.backends.cuda.compilation import compile_for_cuda, parse_target

            target = parse_target(self.owner.options.target)
            compiled = compile_for_cuda(module, target, fusion=fusion, donated=call.donated)
            self.devices = [None] * len(compiled.output_shapes)
            return compiled
        device, arguments, chosen = self._choose_devices(call)
        if len({*chosen, *(arguments.values() if chosen else ())}) == 1 and device is None:
            device = find_device(chosen[0])
        name = str(device or default_device())
        named = {name, *chosen, *(arguments.values() if chosen else ())}
        if len(named) == 1 and name.startswith("cuda:") and (compiled := self._compiled_for_gpu(module, call, name)):
            return compiled
        if len(named) > 1 or not name.startswith("cpu:"):
            from hloom.backends.multi_device import compile_placed

            self.takes_gpu_arrays = any(d.startswith("cuda:") for d in named)
            compiled = compile_placed(module, arguments, name, call.donated, fusion=fusion)
            self.devices = [find_device(d) for d in compiled.output_devices]
            return compiled
        if self.owner.options.autotune:
            from hloom.backends.cpu.autotune import tuned

            compiled = tuned(module, values_of(call.leaves), fusion=fusion, donated=call.donated)
        else:
            from hloom.backends.cpu.compilation import compile_module

            index = device.index if device is not None else default_device().index
            compiled = compile_module(module, fusion=fusion, donated=call.donated, device=index)
        self.devices = [device] * len(compiled.output_shapes)
        return compiled

    def _compiled_for_gpu(self, module: Module, call: Call, name: str):
        """The whole module for one GPU; None where soft placement has to find another device for some of it."""
        from hloom.backends.cuda.compilation import compile_for_cuda, cuda_device
        from hloom.compiler.targets.cuda.target import NoCudaKernelError

        device = find_device(name)
        arch = cuda_device(device.index).facts.arch
        try:
            compiled = compile_for_cuda(module, arch, fusion=call.key[3][0], donated=call.donated)
        except NoCudaKernelError:
            if config.soft_placement:
                return None
            raise
        self.gpu, self.labels, self.takes_gpu_arrays = device.index, call.hints(), True
        self.devices = [device] * len(compiled.output_shapes)
        return compiled

    def run(self, arrays: list[Array]):
        try:
            inputs = [a._held() for a in arrays] if self.takes_gpu_arrays else [a._value() for a in arrays]
        except AttributeError:
            next(a for a in arrays if isinstance(a, Tracer)).trace_ended()
            raise
        if len(self.donated) and len({id(x) for x in inputs}) != len(inputs):
            self._check_donated_twice(arrays, inputs)
        if self.gpu is not None:
            outputs = self._run_on_gpu(arrays, inputs)
        else:
            self._give_away(arrays, inputs)
            outputs = self.compiled.executable(inputs)
        return tree.unflatten(self.traced.out_tree, self._wrap(outputs))

    def _give_away(self, arrays: list[Array], inputs: list) -> None:
        """Takes the data of donated arguments from their arrays, or a copy where they are not ours to give: a caller's
        NumPy array, a constant that others hold too, memory with other views."""
        for k in self.donated:
            mine = _is_ours(inputs[k])
            if mine:
                arrays[k]._data = None
            if not mine or _has_other_holders(inputs, k):
                inputs[k] = inputs[k].copy()

    def _run_on_gpu(self, arrays: list[Array], inputs: list):
        def begun():
            for k in self.donated:
                if _is_ours(inputs[k]):
                    arrays[k]._data = None

        return self.compiled.executable.on_device(self.gpu, inputs, self.labels, begun)

    def _wrap(self, outputs) -> list[Array]:
        return [
            Array(data, weak, device, shape)
            for data, weak, device, shape in zip(outputs, self.traced.weak, self.devices, self.shapes, strict=True)
        ]

    def _check_donated_twice(self, arrays, inputs) -> None:
        for k in self.donated:
            if _is_ours(inputs[k]) and sum(data is inputs[k] for data in inputs) > 1:
                raise DonatedArrayError(
                    f"'{self.owner._name}' was given one array twice, once to be donated",
                    repr(arrays[k]._shape),
                    "pass a copy, or do not donate it",
                )

    def fast(self):
        """The call for arrays of the right shapes, with as little Python as it takes."""
        if self.donated or self.takes_gpu_arrays:
            return lambda args: self.run([*args])
        executable, unflatten, structure = self.compiled.executable, tree.unflatten, self.traced.out_tree
        weak, devices, shapes = self.traced.weak, self.devices, self.shapes
        run = executable.for_one_output()
        if run is not None and structure == tree.structure(0):
            (one_weak,), (device,), (one_shape,) = weak, devices, shapes

            def call_one(args):
                try:
                    data = run([a._data for a in args])
                except TypeError:  # a donated array has no data: say so
                    data = run([a._value() for a in args])
                return Array(data, one_weak, device, one_shape)

            return call_one

        def wrapped(outputs):
            made = [Array(x, w, d, s) for x, w, d, s in zip(outputs, weak, devices, shapes, strict=True)]
            return unflatten(structure, made)

        def call(args):
            return wrapped(executable([a._value() for a in args]))

        def call_native(args):
            try:
                return wrapped(executable([a._data for a in args]))
            except TypeError:
                return call(args)

        # What a Python function of a program raises may be a TypeError too, and it is not to run twice.
        native = isinstance(executable, Executable) and not executable.runs_python
        return call_native if native else call
