"""The interface of a target: what passes, the scheduler and backends ask of it, and its table of kernel kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hloom.compiler.compile_timings import stage
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops import OPS
from hloom.ir.records import record
from hloom.ir.types import HOST_DTYPES, Shape

if TYPE_CHECKING:
    from hloom.compiler.kernels.launch import Launch
    from hloom.compiler.kernels.request import KernelRequest
    from hloom.compiler.passes.fusion.group import Group

# Families whose ops compute with elements.
_COMPUTING = ("elementwise", "index", "reduce", "contraction", "window")


def has_host_dtype(instruction: Instruction) -> bool:
    """Whether an operand or the result has a dtype that no kernel loads."""
    shapes = [i.shape for i in (instruction, *instruction.operands)]
    return any(isinstance(shape, Shape) and shape.dtype in HOST_DTYPES for shape in shapes)


def loads_dtypes(instruction: Instruction) -> bool:
    """The `supports` of a kind with a kernel for every instruction of dtypes that kernels load."""
    return not has_host_dtype(instruction)


def accepts_nothing(group: Group, instruction: Instruction, users: list[Instruction], output: bool) -> tuple[bool, str]:
    """The `accepts` of a kind whose kernels compute a single instruction."""
    return False, f"a {group.kind.name} kernel computes nothing else"


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
    accepts: Callable[[Group, Instruction, list[Instruction], bool], tuple[bool, str]] = accepts_nothing
    fusion_kind: str = "kCustom"
    takes: Callable[[Instruction], bool] = lambda instruction: True


class Target:
    """A kind of device that programs are compiled for.

    kinds: its kernel kinds, in the order in which they are matched; the last one computes element-wise work.
    supports_loop_splitting: a work item runs its innermost loop alone, so that the loop may have several bodies.
    supports_loop_fusion: a loop of small kernels may become one kernel.
    supports_pointer_swap: two buffers of a loop may be exchanged by address, without a copy.
    supports_integer_words: narrow integers are multiplied in words of several, as dots of arrays.
    guards_memory: every temporary has a page behind it that nobody may touch, for tests.
    """

    kinds: tuple[KernelKind, ...] = ()
    supports_loop_splitting: bool = False
    supports_loop_fusion: bool = False
    supports_pointer_swap: bool = False
    supports_integer_words: bool = False
    guards_memory: bool = False
    _by_opcode: dict[str, KernelKind] = {}

    @property
    def nontemporal_threshold(self) -> int:
        """Bytes read and written from which on a kernel's stores are non-temporal; 0: never."""
        return 0

    @property
    def nontemporal_result_threshold(self) -> int:
        """The same for results that nothing in the program reads again."""
        return 0

    @property
    def nontemporal_bytes(self) -> int:
        """Size of a non-temporal store, whose address is a multiple of it."""
        return 0

    @property
    def cores(self) -> int:
        """Cores among which a kernel's work items may be divided."""
        return 1

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
