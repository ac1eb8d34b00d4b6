"""checkpoint (remat): values recomputed in the backward pass instead of stored.

A checkpointed function is a `call` with a rule (`hloom.compiler.transforms.custom.Checkpoint`). Its backward pass
starts from the arguments and the values kept by the policy, after an optimization barrier: without it, common
subexpression elimination would merge both runs and keep the values of the first.
"""

from __future__ import annotations

import functools

from hloom.compiler.transforms.custom import Checkpoint
from hloom.compiler.transforms.inline import inline_calls
from hloom.compiler.transforms.vjp import vjp
from hloom.errors import ArgumentError
from hloom.ir.module import Instruction
from hloom.ir.types import INEXACT
from hloom.tracing.active import brings_twins
from hloom.tracing.conversion import argument_array
from hloom.tracing.exact import exact_arguments
from hloom.tracing.signatures import argument_hints, function_name, with_positions, wraps
from hloom.tracing.trace import as_array, bind, call_computation, current_trace, trace_function
from hloom.tree import pytrees as tree


def checkpoint(fun=None, *, concrete: bool = False, prevent_cse: bool = True, static_argnums=(), policy=None):
    """The function, whose intermediate values are recomputed for its gradient.

    policy: the values to keep nevertheless, one of `hl.checkpoint_policies` or a function from an instruction (it has
        `opcode`, `shape`, `operands`, `attributes`) to a bool; None keeps only the arguments.
    prevent_cse: False lets the compiler merge the two runs where they are equal; useful inside `scan`, where they are
        in different loops anyway. static_argnums: positions of arguments that are Python values.
    concrete: no effect, as in JAX.

    Works as a decorator, under jit, vmap and derivatives of any order. `remat` is the same function.
    Raises ArgumentError for anything but a function.

    >>> @hl.checkpoint
    ... def block(x):
    ...     return hnp.sin(hnp.sin(x))
    >>> hl.grad(block)(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    if fun is None:
        return functools.partial(checkpoint, prevent_cse=prevent_cse, static_argnums=static_argnums, policy=policy)
    if not callable(fun):
        raise ArgumentError("checkpoint takes a function", f"{type(fun).__name__}", "pass a function")
    if policy is not None and not callable(policy):
        raise ArgumentError(
            "checkpoint requires a policy", f"{policy!r}", "pass one of hl.checkpoint_policies, or a function"
        )
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    name = function_name(fun)
    rule = Checkpoint(policy, prevent_cse)

    @wraps(fun)
    def checkpointed(*args, **kwargs):
        outer = current_trace()
        static = {k % len(args) for k in numbers} if args else set()
        positions = [k for k in range(len(args)) if k not in static]
        chosen = tuple(args[k] for k in positions)
        leaves, structure = tree.flatten((chosen, kwargs))
        hints = argument_hints(fun, chosen, kwargs, positions)
        leaves = [argument_array(v, h, f"checkpoint of '{name}'") for v, h in zip(leaves, hints, strict=True)]
        if outer is None:
            given, named = tree.unflatten(structure, leaves)
            return fun(*with_positions(args, positions, given), **named)

        def run(*given, **named):
            return fun(*with_positions(args, positions, given), **named)

        traced = trace_function(
            run, leaves, structure, name, outer.carries_values, hints, weak=True, twins=brings_twins()
        )
        operands = [*leaves, *exact_arguments(leaves, traced.wide), *traced.captures]
        return traced.unflatten(call_computation(traced.computation, operands, rule=rule))

    return checkpointed


def checkpoint_name(x, name: str):
    """x (an array or a tree of them), under a name that policies can refer to.

    >>> def block(x):
    ...     return hnp.sin(hl.checkpoint_name(hnp.sin(x), "inner"))
    >>> policy = hl.checkpoint_policies.save_only_these_names("inner")
    >>> hl.grad(hl.checkpoint(block, policy=policy))(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    if not isinstance(name, str):
        raise ArgumentError("checkpoint_name takes a name", f"{name!r}", "pass a string")

    def mark(leaf):
        leaf = as_array(leaf, "an argument of checkpoint_name")
        return leaf if current_trace() is None else bind("copy", leaf, weak=leaf.weak, checkpoint_name=name)

    return tree.map(mark, x)


class SaveOnlyTheseNames:
    """The policy of `save_only_these_names`. saveable_names: the names."""

    def __init__(self, names):
        self.saveable_names = frozenset(names)

    def __call__(self, instruction: Instruction) -> bool:
        return instruction.attributes.get("checkpoint_name") in self.saveable_names


class checkpoint_policies:
    """Policies for the values that a checkpointed function keeps for its backward pass: `checkpoint(f,
    policy=checkpoint_policies.NAME)`."""

    SaveOnlyTheseNames = SaveOnlyTheseNames

    @staticmethod
    def everything_saveable(instruction: Instruction) -> bool:
        """Every value, as without a checkpoint."""
        return True

    @staticmethod
    def nothing_saveable(instruction: Instruction) -> bool:
        """Nothing but the arguments."""
        return False

    @staticmethod
    def dots_saveable(instruction: Instruction) -> bool:
        """The results of matrix products."""
        return instruction.opcode == "dot"

    checkpoint_dots = dots_saveable

    @staticmethod
    def dots_with_no_batch_dims_saveable(instruction: Instruction) -> bool:
        """The results of matrix products without batch dimensions."""
        return instruction.opcode == "dot" and not instruction.attributes.get("lhs_batch_dims")

    checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable

    @staticmethod
    def save_only_these_names(*names: str):
        """The values that `checkpoint_name` gave one of these names."""
        return SaveOnlyTheseNames(names)

    @staticmethod
    def save_any_names_but_these(*names: str):
        """The values that `checkpoint_name` gave a name that is none of these."""
        return lambda instruction: instruction.attributes.get("checkpoint_name") not in (None, *names)

    @staticmethod
    def save_anything_except_these_names(*names: str):
        """Every value but those that `checkpoint_name` gave one of these names."""
        return lambda instruction: instruction.attributes.get("checkpoint_name") not in names

    @staticmethod
    def save_and_offload_only_these_names(
        *, names_which_can_be_saved, names_which_can_be_offloaded, offload_src: str = "device", offload_dst: str = ""
    ):
        """The values with one of these names; nothing is offloaded, since hloom runs on the host."""
        names = (*names_which_can_be_saved, *names_which_can_be_offloaded)
        return lambda instruction: instruction.attributes.get("checkpoint_name") in names

    @staticmethod
    def offload_dot_with_no_batch_dims(offload_src: str = "device", offload_dst: str = ""):
        """As `dots_with_no_batch_dims_saveable`: hloom runs on the host."""
        return checkpoint_policies.dots_with_no_batch_dims_saveable

    @staticmethod
    def save_from_both_policies(first, second):
        """The union of two policies."""
        return lambda instruction: first(instruction) or second(instruction)


remat = checkpoint


def saved_residuals(f, *args, **kwargs) -> list[tuple]:
    """The values that the forward pass of f at these arguments keeps for the backward pass: a list of (shape, where
    from)."""
    leaves, structure = tree.flatten((args, kwargs))
    leaves = [as_array(leaf, "an argument of saved_residuals") for leaf in leaves]
    hints = argument_hints(f, args, kwargs)
    traced = trace_function(f, leaves, structure, function_name(f), hints=hints)
    computation = inline_calls(traced.computation)
    wrt = [k for k, leaf in enumerate(leaves) if leaf.dtype in INEXACT]
    forward, _ = vjp(computation, wrt)
    found = []
    for kept in forward.outputs()[len(computation.outputs()) :]:
        while kept.opcode == "get-tuple-element" and kept.operands[0].opcode == "call":
            kept = kept.operands[0]["to_apply"].outputs()[kept["index"]]
        if kept.opcode == "parameter":
            number = kept["index"]
            name = f"the argument {hints[number]}" if number < len(hints) else "a value from outside"
        elif kept.attributes.get("checkpoint_name"):
            name = f"the value named '{kept['checkpoint_name']}' at {kept.source}"
        else:
            name = f"{kept.opcode} at {kept.source}"
        found.append((kept.shape, name))
    return found


def print_saved_residuals(f, *args, **kwargs) -> None:
    """Prints what the forward pass of f at these arguments keeps for the backward pass, a line for each value."""
    for shape, name in saved_residuals(f, *args, **kwargs):
        print(f"{shape!r} from {name}")


__all__ = [
    "SaveOnlyTheseNames", "checkpoint", "checkpoint_name", "checkpoint_policies", "print_saved_residuals", "remat",
    "saved_residuals",
]  # fmt: skip
__dir__ = __all__.copy
