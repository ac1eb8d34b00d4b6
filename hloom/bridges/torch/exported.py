"""Programs of `torch.export` as functions: `from_exported(program)(*inputs)`."""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree

from hloom.bridges.torch import decompositions
from hloom.bridges.torch.open_sizes.graphs import callable_of
from hloom.errors import ArgumentError

__all__ = ["ExportedFunction", "from_exported"]


class ExportedFunction:
    """A program of `torch.export`, compiled by hloom. It is called with the arguments of the exported model and returns
    tensors in the same structure.

    The program's parameters and buffers are read in place; buffers that it changes are changed. There are no
    gradients: use `torch.compile(model, backend="hloom")` to train.
    """

    def __init__(self, program):
        self.program = program.run_decompositions(decompositions.table())
        graph_module = self.program.graph_module
        signature = self.program.graph_signature
        state = {**self.program.state_dict, **self.program.constants}
        held = {**signature.inputs_to_parameters, **signature.inputs_to_buffers,
                **signature.inputs_to_lifted_tensor_constants}  # fmt: skip
        nodes = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
        self._held = [state[held[node.name]].detach() if node.name in held else None for node in nodes]
        # Tensors that the program returns as new values of buffers or inputs, before its results.
        self._changed = [
            (kind.name, spec.target)
            for spec in signature.output_specs
            if (kind := spec.kind).name in ("BUFFER_MUTATION", "USER_INPUT_MUTATION")
        ]
        self._state = state
        self._user = [node.name for node in nodes if node.name not in held]
        self._shapes = [node.meta.get("val") for node in nodes if node.name not in held]
        self._call = callable_of(graph_module, [node.meta.get("val") for node in nodes], "torch_exported", tracked=True)

    def __call__(self, *args, **kwargs):
        """The results for these arguments. Raises ArgumentError if they are not those that were exported."""
        flat, structure = pytree.tree_flatten((args, kwargs))
        if structure != self.program.call_spec.in_spec:
            raise ArgumentError(
                "a call of an exported program", f"arguments {structure}", f"pass {self.program.call_spec.in_spec}"
            )
        for name, declared, found in zip(self._user, self._shapes, flat, strict=True):
            _check(name, declared, found)
        given = iter(flat)
        results = self._call([next(given) if held is None else held for held in self._held])
        by_name = dict(zip(self._user, flat, strict=True))
        with torch.no_grad():
            for (kind, target), value in zip(self._changed, results, strict=False):
                (self._state[target] if kind == "BUFFER_MUTATION" else by_name[target]).copy_(value)
        return pytree.tree_unflatten(results[len(self._changed) :], self.program.call_spec.out_spec)


def _check(name: str, declared, found) -> None:
    """Raises ArgumentError for an argument of another kind, dtype or number of dimensions, or another known size."""
    if not isinstance(declared, torch.Tensor):
        return
    fits = isinstance(found, torch.Tensor) and found.dtype == declared.dtype and found.ndim == declared.ndim
    if fits:
        fits = all(isinstance(d, torch.SymInt) or d == f for d, f in zip(declared.shape, found.shape, strict=True))
    if not fits:
        what = f"{found.dtype} {tuple(found.shape)}" if isinstance(found, torch.Tensor) else type(found).__name__
        raise ArgumentError(
            f"the argument {name} of an exported program is {declared.dtype} {tuple(declared.shape)}",
            what,
            "convert it, or export the model for such arguments",
        )


def from_exported(program) -> ExportedFunction:
    """The function of a `torch.export.ExportedProgram`. Ops without a rule are computed by torch, with a
    FallbackWarning for each."""
    return ExportedFunction(program)
