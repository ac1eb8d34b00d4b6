"""Calls of translated graphs: the memory of torch's tensors is read and written in place.

A call passes the tensors' addresses to the compiled program. Results are tensors of torch, allocated by torch;
arguments that the graph changes are changed in place. `hloom.bridges.torch.open_sizes` has graphs with open sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from hloom.backends.cpu.compilation import CpuExecutable
from hloom.bridges.torch.conditions import Flag
from hloom.bridges.torch.errors import RefusedOps, warn_of_calls
from hloom.bridges.torch.graphs import is_op
from hloom.bridges.torch.memory import View, order_of
from hloom.bridges.torch.open_sizes.symbols import Sizes
from hloom.bridges.torch.parts import Parts, left_to_torch
from hloom.bridges.torch.saved import report, with_own_layouts
from hloom.bridges.torch.translate import translate
from hloom.bridges.torch.translation import Given, New, Number, Part, Translation
from hloom.ir.module import Module
from hloom.ir.records import replace
from hloom.ir.types import INEXACT
from hloom.platforms.backend import CompileOptions
from hloom.platforms.device import find_device

__all__ = ["Program", "compiled", "in_place"]

Runs = tuple[Callable[[Sequence[int]], None], Mapping[int, int]]

_empty: Callable[..., torch.Tensor] = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", torch.empty_strided)


class Program:
    """A graph compiled for one set of sizes.

    options: whether candidates are timed, and ops fused. tracked: whether results that are views of others are also
    views for autograd. If torch has derived a gradient it tracks views itself. runs: for a module with open sizes, the
    program for these (`OpenExecutable.program`); None: it is compiled here, unless the graph computes nothing.
    """

    def __init__(
        self, translation: Translation, options: CompileOptions, *, tracked: bool = False, runs: Runs | None = None
    ):
        self.translation, self.tracked = translation, tracked
        arguments, updates = translation.arguments, translation.updates
        self._new = [(n.sizes, n.strides, n.dtype) for n in translation.new]
        self._spread = [(n.number, n.sizes, n.spread) for n in translation.new if n.spread is not None]
        if runs is None and translation.module is not None:
            runs = _compile(translation.module, options, in_place(translation))
        self._computes = runs is not None
        self._run_at, donated = runs or (_run_nothing, {})
        parameters = _parameters(translation)
        # An update is computed in the argument's memory, or in separate memory and then copied.
        self._updates = [
            (u, len(self._new) + k in donated or (u.as_it_lies and u.position not in parameters))
            for k, u in enumerate(updates)
        ]
        self._positions = [a.position for a in arguments if a.position is not None]
        self._plain = not updates and all(a.position is not None and a.order is not None for a in arguments)
        numbers = [r.number if isinstance(r, New) else -1 for r in translation.results]
        self._only_new = numbers == list(range(len(self._new)))
        self._strides = [(position, strides) for position, (_, strides) in translation.layouts.items()]
        self._conditions = translation.conditions
        self._flags: list[Flag] = []  # those that no call writes to now
        self._whole = frozenset(a.position for a in arguments if a.whole)

    def __call__(self, given: list) -> list:
        arguments = given
        if self.translation.lazy:
            arguments = list(given)
            for position in self.translation.lazy:
                arguments[position] = arguments[position].resolve_conj().resolve_neg()
        for position, strides in self._strides:
            if arguments[position].stride() != strides:
                if arguments is given:
                    arguments = list(given)
                arguments[position] = self._arranged(position, arguments[position])
        new = [_empty(sizes, strides, dtype) for sizes, strides, dtype in self._new]
        if self._conditions:
            self._run_with_flag(given, arguments, new)
        elif self._computes:
            if self._plain:
                addresses = [arguments[k].data_ptr() for k in self._positions]
                self._run_at(addresses + [tensor.data_ptr() for tensor in new])
            else:
                self._run_with_care(given, arguments, new)
        for check in self.translation.checks:
            torch.ops.aten._linalg_check_errors(new[check.number], check.name, is_matrix=check.is_matrix)
        for number, sizes, strides in self._spread:
            new[number] = _empty(sizes, strides, new[number].dtype).copy_(new[number])
        if self._only_new:
            return new
        return [self._result(r, given, arguments, new) for r in self.translation.results]

    def _run_with_flag(self, given: list, arguments: list, new: list) -> None:
        """A call whose program writes which of the graph's conditions does not hold. Raises torch's error of it."""
        try:
            flag = self._flags.pop()
        except IndexError:
            flag = Flag()
        if self._plain:
            addresses = [arguments[k].data_ptr() for k in self._positions]
            addresses += [tensor.data_ptr() for tensor in new]
            addresses.append(flag.address)
            self._run_at(addresses)
        else:
            self._run_with_care(given, arguments, new, [flag.address])
        number, value = flag.values
        self._flags.append(flag)
        if number:
            raise self._conditions[number - 1].error(value)

    def _arranged(self, position: int, tensor: torch.Tensor) -> torch.Tensor:
        """An argument in the layout that the program was compiled for."""
        dims, strides = self.translation.layouts[position]
        order = order_of(dims, strides)
        if (order is None and position not in self._whole) or (
            order is not None and order == order_of(dims, tensor.stride())
        ):
            return tensor
        return _empty(dims, strides, tensor.dtype).copy_(tensor.detach())

    def _run_with_care(self, given: list, arguments: list, new: list, flag: Sequence[int] = ()) -> None:
        """A call with copies of arguments that have gaps, constants, a seed, or arguments that are changed."""
        tensors, beside = [], []
        for argument in self.translation.arguments:
            if argument.position is None:
                tensor = argument.tensor if argument.tensor is not None else _seed()
            else:
                tensor = arguments[argument.position]
                if argument.order is None:
                    tensor = tensor.detach().contiguous()
            tensors.append(tensor)
        tensors += new
        for update, in_place in self._updates:
            target = given[update.position]
            if in_place:
                tensors.append(arguments[update.position])
            else:
                tensors.append(_empty(update.sizes, update.strides, update.dtype))
            if tensors[-1] is not target:
                beside.append((target, tensors[-1]))
        self._run_at([*[tensor.data_ptr() for tensor in tensors], *flag])
        if beside:
            with torch.no_grad():
                for target, tensor in beside:
                    target.copy_(tensor)

    def _result(self, result, given: list, arguments: list, new: list):
        if isinstance(result, New):
            return new[result.number]
        if isinstance(result, Given):
            return given[result.position]
        if isinstance(result, Part):
            if isinstance(result.base, New):
                return self._view(result.view, new[result.base.number])
            base = _with_bits(given[result.base.position], arguments[result.base.position], result.base.lazy)
            found = result.view.of(base.detach())
            # torch replays views by autograd's record of them, which there is not for integers read in floats.
            return found if found.is_floating_point() or found.is_complex() else found.detach()
        assert isinstance(result, Number)
        return result.value

    def _view(self, view: View, base: torch.Tensor) -> torch.Tensor:
        if not self.tracked:
            return view.of(base).detach()
        if torch.is_grad_enabled():
            return view.of(base)
        with torch.enable_grad():  # torch calls graphs without gradients in no_grad mode, which views would remember
            return view.of(base)


def _compile(module: Module, options: CompileOptions, places: dict[int, int]) -> Runs:
    """places: outputs that may be computed in the memory of a parameter."""
    asked = replace(options, updates=places, arguments=lambda: _any_arguments(module))
    executable = find_device(options.device).kind_object.backend.compile(module, asked)
    assert isinstance(executable, CpuExecutable)
    return executable.runner.run_at, executable.donated


def _any_arguments(module: Module) -> list[np.ndarray]:
    """Arguments to time a program on: torch compiles before it has those of a call. Integers, which may be indices,
    are 0."""
    draws = np.random.default_rng(0)
    shapes = [parameter.shape for parameter in module.entry.parameters]
    return [(draws.random(s.dims) if s.dtype in INEXACT else np.zeros(s.dims)).astype(s.dtype) for s in shapes]


def _run_nothing(addresses: Sequence[int]) -> None:
    """The program of a graph that computes nothing."""


def _parameters(translation: Translation) -> dict[int, int]:
    """The parameter of the module that has an argument's memory, by the argument's position."""
    return {a.position: k for k, a in enumerate(translation.arguments) if a.position is not None and not a.whole}


def in_place(translation: Translation) -> dict[int, int]:
    """Outputs that may be computed in the memory of a parameter, which they replace: output -> parameter."""
    parameters = _parameters(translation)
    return {
        len(translation.new) + k: parameters[u.position]
        for k, u in enumerate(translation.updates)
        if u.as_it_lies and u.position in parameters
    }


def _with_bits(given: torch.Tensor, resolved: torch.Tensor, bits: tuple[bool, bool]) -> torch.Tensor:
    """An argument conjugated, or negated, lazily as a graph declares it."""
    if (given.is_conj(), given.is_neg()) == bits:
        return given
    conjugated, negated = bits
    if conjugated:
        resolved = torch._conj(torch.conj_physical(resolved))
    return torch._neg_view(torch.neg(resolved)) if negated else resolved


def _seed() -> torch.Tensor:
    """One number of torch's generator."""
    return torch.empty((), dtype=torch.int64).random_()


def compiled(
    graph_module, sizes: Sizes, name: str, options: CompileOptions, lying=None, saved=(), wanted=None, *,
    tracked: bool = False,
) -> Callable[[list], list]:  # fmt: skip
    """The caller of a graph for these sizes: a program, or parts of one if torch has to compute some of its nodes.

    lying, saved, wanted: as in `translate`. options, tracked: as in Program.
    """
    by_torch = left_to_torch(graph_module)
    if not by_torch:
        try:
            translation = translate(graph_module, sizes, name, lying, saved, wanted)
        except RefusedOps as error:
            by_torch = left_to_torch(graph_module, error.reasons)
        else:
            if saved:
                translation = with_own_layouts(translation)
                report(translation)
            return Program(translation, options, tracked=tracked)
    warn_of_calls({n: why for n, why in by_torch.items() if is_op(n)}, name)

    def part(segment, its_name: str) -> Callable[[list], list]:
        return compiled(segment, sizes, its_name, options)

    return Parts(graph_module, by_torch, name, part)
