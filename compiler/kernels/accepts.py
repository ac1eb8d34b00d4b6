"""What the kernel kinds of all targets accept from fusion: element-wise work, reductions, contractions, scatters.

Each function is a `KernelKind.accepts`: (group, instruction, users, output) -> (whether, why).
"""

from __future__ import annotations

import math

from hloom.compiler.fusibility import CONTRACTIONS, EXPENSIVE, has_expression
from hloom.compiler.normal_forms import is_in_words, is_normal_convolution, is_normal_dot
from hloom.compiler.reshapes import without_ones_groups
from hloom.compiler.targets.base import KernelGroup
from hloom.ir.module import Instruction
from hloom.ir.ops import OPS
from hloom.ir.sizes.guards import typical

ROW_BYTES = 256 * 1024  # a row that is swept several times has to stay in the second-level cache
CHEAP = ("broadcast", "constant", "iota")

Verdict = tuple[bool, str]


def accepts_element(group: KernelGroup, instruction: Instruction, users: list[Instruction], output: bool) -> Verdict:
    """Element-wise work and index maps in a loop or a reduction."""
    if reason := _refused(instruction):
        return False, reason
    if output and group.reduction is None and not group.is_at_own_index(users):
        return False, "it is not computed at the kernel's own index"
    return _pays(group, instruction, users)


def accepts_scatter(group: KernelGroup, instruction: Instruction, users: list[Instruction], output: bool) -> Verdict:
    """Element-wise work on the updates and indices of a scatter."""
    if output or not has_expression(instruction):
        return False, "a scatter kernel has one result, and accepts what has an expression for one element"
    return accepts_element(group, instruction, users, output)


def accepts_reduction(group: KernelGroup, reduce: Instruction, users: list[Instruction], output: bool) -> Verdict:
    """A reduction in a loop over its result or its rows, or beside another reduction of the same dimensions."""
    if reduce.opcode != "reduce":
        return accepts_element(group, reduce, users, output)
    dims, reduced = reduce.operands[0].dims, reduce["dimensions"]
    trailing = set(reduced) == set(range(len(dims) - len(reduced), len(dims)))
    if group.reduction is not None:
        if dims != group.reduction.operands[0].dims or set(reduced) != set(group.reduction["dimensions"]):
            return False, "it reduces other dimensions than the kernel"
        if group.by_rows and group.is_aligned(reduce, users):
            return True, "the same rows"
        if group.is_at_own_index(users):
            return True, "the same reduction"
        return False, "its result is needed before the kernel's reduction"
    if not group.is_loop:
        return False, f"a {group.kind.name} kernel accepts no reduction"
    if group.is_at_own_index(users) and reduce.dims == group.domain:
        return True, "what consumes the result runs at the end of the reduction"
    if not trailing:
        return False, "the reduced dimensions are not the trailing ones"
    if dims != group.domain:
        return False, "its operand has other dimensions than the kernel's domain"
    if not group.is_aligned(reduce, users):
        return False, "its result is needed at other rows than its own"
    length = math.prod(dims[k] for k in reduced) * reduce.dtype.itemsize
    if length > ROW_BYTES:
        return False, f"a row of {length} bytes does not stay in cache"
    if any(o.dims != group.domain for o in group.outputs):
        return False, "an output has other dimensions than the rows"
    return True, "rows stay in cache"


def accepts_contraction(
    group: KernelGroup, instruction: Instruction, users: list[Instruction], output: bool
) -> Verdict:
    """A contraction before element-wise work, and element-wise work around a contraction."""
    if instruction.opcode in CONTRACTIONS:
        return _accepts_epilogue(group, instruction, users)
    if reason := _refused(instruction):
        return False, reason
    role = group.role_of(instruction, users)
    if role == "mixed":
        return False, "it is needed both before and after the sums"
    if role in ("lhs", "rhs"):
        if reason := _refused_prologue(group, instruction, output):
            return False, reason
    elif output and instruction not in group.in_place and not group.is_at_own_index(users):
        return False, "it is not computed at the result's index"
    elif instruction.opcode not in CHEAP and not group.is_at_own_index(users):
        if OPS[instruction.opcode].flops >= EXPENSIVE:
            return False, "the epilogue would compute it again for each row"
    return _pays(group, instruction, users)


def _accepts_epilogue(group: KernelGroup, dot: Instruction, users: list[Instruction]) -> Verdict:
    """Whether a contraction can precede a group of element-wise work."""
    if not group.is_loop:
        return False, f"a {group.kind.name} kernel accepts no contraction"
    if not (is_normal_dot if dot.opcode == "dot" else is_normal_convolution)(dot):
        return False, "it is not in normal form"
    if dot.opcode == "convolution" and group.domain != dot.dims:
        return False, "the kernel's dimensions are not the convolution's"
    if not group.is_at_own_index(users):
        return False, "its result is not used at its own index"
    if any(o.dims != group.domain for o in group.outputs):
        return False, "an output has other dimensions than the result"
    if any(len(olds) != 1 for olds, _ in without_ones_groups(dot.dims, group.domain)):
        return False, "the dimensions of the output do not correspond to the result's"
    if any(m.opcode == "reshape" and m.dims != group.domain and m not in group.in_place for m in group.members):
        return False, "a reshape inside of the epilogue"
    return True, "epilogue of the contraction"


def _refused_prologue(group: KernelGroup, instruction: Instruction, output: bool) -> str:
    """Why the operand of a contraction is better computed by a kernel of its own; '' where it is not."""
    if output:
        return "an operand of the contraction is not stored"
    if group.head is not None and group.head.opcode == "convolution":
        return "a convolution reads its operands in place"
    if group.head is not None and group.target.supports_integer_words and is_in_words(group.head):
        return "words of several narrow integers are read from arrays"
    if group.is_behind_contraction(instruction):
        return "it belongs into the epilogue of the contraction before it"
    if instruction.opcode in ("transpose", "reshape", "slice", "gather") or OPS[instruction.opcode].flops >= 8:
        return "computed once and read in place is faster"
    if instruction.opcode != "broadcast" and any(o.opcode == "reduce" for o in instruction.operands):
        return "a reduction comes first"
    return ""


def _refused(instruction: Instruction) -> str:
    """Why no kernel can compute an instruction element by element; '' where one can."""
    if not has_expression(instruction):
        return "it has no expression for one element"
    if instruction.opcode == "reshape":
        groups = without_ones_groups(instruction.operands[0].dims, instruction.dims)
        if any(len(olds) != 1 for olds, _ in groups):
            return "its index map needs divisions"
    return ""


def _pays(group: KernelGroup, instruction: Instruction, users: list[Instruction]) -> Verdict:
    """Whether computing an instruction's elements as often as the group needs them costs less than storing them."""
    size, times = typical(instruction.shape.size), typical(group.evaluations_of(instruction, users))
    several = f"each element would be computed {times / max(size, 1):.0f} times"
    if times > 2 * size and OPS[instruction.opcode].flops >= EXPENSIVE:
        return False, several
    if times > 8 * size and instruction.opcode not in CHEAP and size > 1:
        if any(not group.is_materialized(o) for o in instruction.operands):
            return False, several
    return True, "element-wise"
