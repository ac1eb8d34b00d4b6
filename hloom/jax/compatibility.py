"""What exists for JAX's names only: scopes that name, `make_jaxpr`, arrays of parts, facts about the installation."""

from __future__ import annotations

import contextlib
import functools
import platform
import sys
from typing import Any

import numpy as np

from hloom._version import __version__
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.compiler.transforms.inline import inline_calls
from hloom.dispatch.jit import clear_all, jit
from hloom.dispatch.open_arguments import AbstractedAxes
from hloom.dispatch.signature import JitOptions, Signature
from hloom.errors import ArgumentError
from hloom.ir.module import Instruction
from hloom.ir.records import record
from hloom.ir.source import name_scope
from hloom.ir.types import Shape
from hloom.platforms.device import choose_default_device, program_devices
from hloom.sharding.shardings import device_of
from hloom.tracing.conversion import with_weakness
from hloom.tracing.eval_shape import eval_shape
from hloom.tracing.signatures import function_name, with_positions, wraps
from hloom.tracing.trace import apply_computation, as_array
from hloom.tree import pytrees as tree


@contextlib.contextmanager
def default_device(device):
    """`with default_device(d):` new arrays for which no device is chosen belong to it. Raises DeviceError."""
    before = choose_default_device(None if device is None else device_of(device))
    try:
        yield
    finally:
        choose_default_device(before)


@contextlib.contextmanager
def named_scope(name: str):
    """Names a part of a program: the metadata of its operations have the name before that of the function, as in
    `op_name="encoder/step/hidden"`. Scopes nest. Raises ArgumentError.

    >>> with hl.named_scope("attention"):
    ...     x = hnp.ones(2) + 1
    >>> x
    Array([2., 2.], dtype=float32)
    """
    if not isinstance(name, str):
        raise ArgumentError("named_scope takes a name", f"{name!r:.60}", "pass a string")
    with name_scope(name):
        yield name


def named_call(fun, *, name: str | None = None):
    """fun under a name of its own.

    >>> f = hl.named_call(lambda x: x + 1, name="increment")
    >>> f(hnp.array([1, 2]))
    Array([2, 3], dtype=int32)
    """

    @wraps(fun)
    def call(*args, **kwargs):
        with named_scope(name or function_name(fun)):
            return fun(*args, **kwargs)

    return call


# --- programs and arrays ------------------------------------------------------------------------------------------


@record(frozen=True, eq=False)
class Variable:
    """A value of a program: its instruction, and its shape and dtype."""

    instruction: Instruction
    aval: Any


@record(frozen=True, eq=False)
class Operation:
    """What an equation computes: an HLO opcode."""

    name: str

    def __str__(self) -> str:
        return self.name


@record(frozen=True, eq=False)
class Equation:
    """An instruction as JAX shows it: operation, the variables that it reads and sets, and its attributes."""

    primitive: Operation
    invars: list[Variable]
    outvars: list[Variable]
    params: dict[str, Any]


class Program:
    """A traced function to look at: prints as HLO text. `module` is hloom's, `in_avals` and `out_avals` its shapes,
    `consts` the values from traces around it: the module's last parameters."""

    def __init__(self, module, in_avals, out_avals, out_shape, consts=(), weak=()):
        self.module, self.in_avals, self.out_avals, self.out_shape = module, in_avals, out_avals, out_shape
        self.weak = weak  # which results are weak for arguments like those that it was traced for
        self.consts = list(consts)
        self._variables: dict[Instruction, Variable] = {}

    @property
    def jaxpr(self) -> Program:
        return self

    def _variable(self, instruction: Instruction) -> Variable:
        if instruction not in self._variables:
            shape = instruction.shape
            aval = ShapeDtypeStruct(shape.dims, shape.dtype) if isinstance(shape, Shape) else shape
            self._variables[instruction] = Variable(instruction, aval)
        return self._variables[instruction]

    @functools.cached_property
    def eqns(self) -> list[Equation]:
        """The instructions as equations; without parameters and the tuple of several results."""
        entry = self.module.entry
        return [
            Equation(Operation(i.opcode), [*map(self._variable, i.operands)], [self._variable(i)], dict(i.attributes))
            for i in entry.instructions
            if i.opcode != "parameter" and not (i is entry.root and i.opcode == "tuple")
        ]

    @property
    def invars(self) -> list[Variable]:
        """The variables of the arguments."""
        return [*map(self._variable, self.module.entry.parameters[: len(self.in_avals)])]

    @property
    def constvars(self) -> list[Variable]:
        """The variables of `consts`."""
        return [*map(self._variable, self.module.entry.parameters[len(self.in_avals) :])]

    @property
    def outvars(self) -> list[Variable]:
        """The variables of the results."""
        return [*map(self._variable, self.module.entry.outputs())]

    def evaluate(self, arguments, consts) -> list:
        """The results for flat arguments; weak as in the trace, where the arguments are as weak as in the trace."""
        arguments = [*map(as_array, arguments)]
        results = apply_computation(inline_calls(self.module.entry), [*arguments, *consts])
        if any(self.weak) and all(a.weak or not t.weak_type for a, t in zip(arguments, self.in_avals, strict=False)):
            return [*map(with_weakness, results, self.weak)]
        return results

    effects: frozenset = frozenset()  # calls with effects are kept in their order

    def __str__(self) -> str:
        from hloom.ir.text import print_module  # saves start-up time: 5 ms for the printer and the parser

        return print_module(self.module)

    __repr__ = __str__

    def pretty_print(self, **options) -> str:
        return str(self)


def make_jaxpr(fun, static_argnums=(), axis_env=None, return_shape: bool = False, abstracted_axes=None):
    """A function that traces fun on its arguments and returns the `Program`; prints as HLO text instead of a jaxpr.
    abstracted_axes: as of `hl.jit`.

    >>> program = hl.make_jaxpr(lambda x: x * 2)(hnp.zeros(3))
    >>> type(program).__name__
    'Program'
    """
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)

    @wraps(fun)
    def make(*args, **kwargs):
        if abstracted_axes is not None:
            options = JitOptions(static_argnums=static, abstracted_axes=abstracted_axes)
            axes = AbstractedAxes(Signature(fun, function_name(fun), options), abstracted_axes)
            args = tuple(axes.shapes(args, kwargs)[0])
        kept = [k for k in range(len(args)) if k not in {s % len(args) for s in static}]

        def traced(*dynamic, **named):
            return fun(*with_positions(args, kept, dynamic), **named)

        dynamic = [args[k] for k in kept]
        shape = eval_shape(traced, *dynamic, **kwargs)
        lowered = jit(traced).lower(*dynamic, **kwargs)
        inputs = [_aval(leaf) for leaf in tree.leaves((dynamic, kwargs))]
        trace = lowered._traced
        program = Program(lowered.module, inputs, tree.leaves(shape), shape, trace.captures, trace.weak)
        return (program, shape) if return_shape else program

    return make


def _aval(leaf):
    return leaf if isinstance(leaf, ShapeDtypeStruct) else as_array(leaf).aval


def typeof(x):
    """The shape and dtype of an array or number; of random keys their type, `key<fry>[2]`.

    >>> hl.typeof(hnp.zeros((2, 3)))
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """
    if hasattr(x, "key_type"):
        return x.key_type
    return _aval(x)


def clear_caches() -> None:
    """Forgets every compiled function of this process; code stays in the cache on disk."""
    clear_all()


def effects_barrier() -> None:
    """Nothing: effects have happened when a call returns."""


def print_environment_info(return_string: bool = False) -> str | None:
    """The versions and devices that a report of a fault should tell."""
    text = "\n".join(
        (
            f"hloom:    {__version__}",
            f"numpy:    {np.__version__}",
            f"python:   {sys.version}",
            f"devices:  {', '.join(map(str, program_devices()))}",
            f"platform: {platform.platform()}",
        )
    )
    if return_string:
        return text
    print(text)
    return None


__all__ = [
    "Program", "clear_caches", "default_device", "effects_barrier", "make_jaxpr", "named_call", "named_scope",
    "print_environment_info", "typeof",
]  # fmt: skip
