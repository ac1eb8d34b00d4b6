"""The interface of a target: what passes, the scheduler and backends ask of it, and its table of kernel kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from hloom.compiler.compile_timings import stage
from hloom.compiler.targets.capabilities import Capabilities
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops import OPS
from hloom.ir.records import record
from hloom.ir.types import HOST_DTYPES, Shape

if TYPE_CHECKING:
    from hloom.compiler.kernels.launch import Launch
    from hloom.compiler.kernels.request import KernelRequest

# Families whose ops compute with elements.
_COMPUTING = ("elementwise", "index", "reduce", "contraction", "window")


def has_host_dtype(instruction: Instruction) -> bool:
    """Whether an operand or the result has a dtype that no kernel loads."""
    shapes = [i.shape for i in (instruction, *instruction.operands)]
    return any(isinstance(shape, Shape) and shape.dtype in HOST_DTYPES for shape in shapes)


def loads_dtypes(instruction: Instruction) -> bool:
    """The `supports` of a kind with a kernel for every instruction of dtypes that kernels load."""
    return not has_host_dtype(instruction)


def accepts_nothing(
    group: KernelGroup, instruction: Instruction, users: list[Instruction], output: bool
) -> tuple[bool, str]:
    """The `accepts` of a kind whose kernels compute a single instruction."""
    return False, f"a {group.kind.name} kernel computes nothing else"


class KernelGroup(Protocol):
    """Instructions that fusion joins to one kernel, as the `accepts` of kinds sees them (`passes/fusion/group`).

    kind: of the kernel. members, outputs: its instructions. domain: the dimensions that it loops over. head: the
    instruction that decides the kind, if any; no reduction is one. reduction: one of its reductions. by_rows: whether
    they are done row by row. in_place: members that outputs reach at their own index.
    """

    kind: KernelKind
    members: set[Instruction]
    outputs: list[Instruction]
    domain: tuple[int, ...]
    head: Instruction | None
    reduction: Instruction | None
    by_rows: bool
    in_place: set[Instruction]

    @property
    def is_loop(self) -> bool:
        """Whether the kernel is a loop over element-wise work."""

    @property
    def target(self) -> Target: ...

    def is_at_own_index(self, users: list[Instruction]) -> bool:
        """Whether these users read what they share at the index of the output."""

    def is_aligned(self, instruction: Instruction, users: list[Instruction]) -> bool:
        """Whether all users read the instruction at the index of the row (and position in it) that they compute."""

    def evaluations_of(self, instruction: Instruction, users: list[Instruction]) -> float:
        """How often an element of the instruction would be computed, in all."""

    def role_of(self, instruction: Instruction, users: list[Instruction]) -> str:
        """What the instruction is to a contraction: 'lhs', 'rhs', 'epilogue' or 'mixed'."""

    def is_behind_contraction(self, instruction: Instruction) -> bool: ...

    def is_materialized(self, instruction: Instruction) -> bool: ...


@record(frozen=True)
class KernelKind:
    """One kind of kernel of one target.

    name: the first word of its kernels' names.
    matches(computation): whether such a kernel computes a fused computation that no earlier kind in the table matches.
    launches(request, target): the launches of that computation, of the target's own class; target: of the class whose
        table has the kind.
    opcodes: instructions that only kernels of this kind compute; none for kinds of element-wise work.
    takes(instruction): which instructions of these opcodes, where others are element-wise work.
    supports(instruction): whether there is a kernel for an instruction with one of these opcodes.
    accepts(group, instruction, users, output): (whether fusion may add an instruction to a group, why). It decides on
        instructions with one of `opcodes`, and on all others that would join a group of this kind. `users`: members of
        the group that read the instruction, once per operand; `output`: whether it would be an output of the group.
    fusion_kind: of the fusion instruction, as XLA names it.
    """

    name: str
    matches: Callable[[Computation], bool]
    launches: Callable[[KernelRequest, Any], list[Any]]
    opcodes: frozenset[str] = frozenset()
    supports: Callable[[Instruction], bool] = loads_dtypes
    accepts: Callable[[KernelGroup, Instruction, list[Instruction], bool], tuple[bool, str]] = accepts_nothing
    fusion_kind: str = "kCustom"
    takes: Callable[[Instruction], bool] = lambda instruction: True


class Target(Capabilities):
    """A kind of device that programs are compiled for.

    kinds: its kernel kinds, in the order in which they are matched; the last one computes element-wise work.
    supports_loop_fusion: a loop of small kernels may become one kernel.
    supports_pointer_swap: two buffers of a loop may be exchanged by address, without a copy.
    supports_integer_words: narrow integers are multiplied in words of several, as dots of arrays.
    guards_memory: every temporary has a page behind it that nobody may touch, for tests.
    """

    kinds: tuple[KernelKind, ...] = ()
    supports_loop_fusion: bool = False
    supports_pointer_swap: bool = False
    supports_integer_words: bool = False
    guards_memory: bool = False
    _by_opcode: dict[str, KernelKind] = {}

    def __init_subclass__(cls):
        cls._by_opcode = {opcode: kind for kind in reversed(cls.kinds) for opcode in kind.opcodes}

    @classmethod
    def kind_of_opcode(cls, opcode: str) -> KernelKind | None:
        """The kind of the kernels that compute an opcode; None where those of element-wise work do."""
        return cls._by_opcode.get(opcode)

    @classmethod
    def kind_of_instruction(cls, instruction: Instruction) -> KernelKind | None:
        """The kind of the kernels that compute an instruction; None where those of element-wise work do."""
        kind = cls._by_opcode.get(instruction.opcode)
        return kind if kind is not None and kind.takes(instruction) else None

    def kind_of(self, computation: Computation) -> KernelKind | None:
        """The kind of the kernel that computes a fused computation; None where no single kernel does."""
        return next((kind for kind in self.kinds if kind.matches(computation)), None)

    def can_fuse(self, computation: Computation) -> bool:
        """Whether one kernel computes all of a computation."""
        return self.kind_of(computation) is not None

    def has_kernel(self, instruction: Instruction) -> bool:
        """Whether a kernel computes an instruction; True for those that compute nothing (tuples, parameters, loops)."""
        kind = self.kind_of_instruction(instruction)
        if kind is not None:
            return kind.supports(instruction)
        family = OPS[instruction.opcode].family
        if instruction.opcode == "custom-call" or family == "library":
            return False
        return family not in _COMPUTING or not has_host_dtype(instruction)

    def runs_on_host(self, instruction: Instruction) -> bool:
        """Whether an instruction is a Python function that runs between kernels. Raises an HloomError for one that the
        target cannot run at all."""
        return not self.has_kernel(instruction)

    def expand(self, module: Module) -> Module:
        """The module with ops that have no kernel here replaced by ops that have one; itself where there is none."""
        return module

    @stage("source")
    def launches(self, request: KernelRequest) -> list[Launch]:
        """The launches of a fused computation, or of a computation of one instruction."""
        kind = self.kind_of(request.computation)
        if kind is None:
            raise ValueError(f"{request.computation.name}: no kind of kernel computes it")
        return kind.launches(request, self)
