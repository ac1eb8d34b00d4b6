"""When one loop nest can do the work of a producer and its consumers: the cost model of fusion."""

from __future__ import annotations

import math

from hloom.compiler.kernels.codegen.affine import reshape_groups
from hloom.compiler.kernels.codegen.writer import can_write
from hloom.compiler.kernels.emit import is_row
from hloom.compiler.kernels.host import runs_on_host
from hloom.compiler.kernels.loops.update import UPDATES
from hloom.compiler.normal_forms import is_normal_convolution, is_normal_dot
from hloom.compiler.targets.cpu.fft.launches import is_constant, takes_epilogue, takes_reals
from hloom.ir.module import Instruction
from hloom.ir.ops import OPS
from hloom.ir.types import Shape

MEMBERS = 150  # instructions in a kernel: compile time grows faster than linearly beyond
EXPENSIVE = 4.0  # flops from which computing an element several times costs more than writing and reading it
STEPS = 3  # cheap steps from an array in memory that are computed again rather than written and read
ROW_BYTES = 256 * 1024  # a row that is swept several times has to stay in the second-level cache
PRODUCTS = ("dot", "convolution")
NEVER = {"parameter", "tuple", "get-tuple-element", "custom-call", "call", "fusion", "optimization-barrier"}


class Group:
    """Instructions that become one kernel. kind: 'loop', 'row', 'reduce', 'product', 'window' or 'fft'."""

    def __init__(self, number: int, root: Instruction):
        self.number = number
        self.outputs = [root]
        self.members: set[Instruction] = set()
        self.kind = "loop"
        self.domain = root.shape.dims if isinstance(root.shape, Shape) else root.operands[0].dims
        self.reduction: Instruction | None = None
        self.dot: Instruction | None = None
        self.fft: Instruction | None = None
        self.evaluations: dict[Instruction, float] = {}
        self.in_place: set[Instruction] = set()  # reached from the outputs at their own index
        self.aligned: set[Instruction] = set()  # computed at the first indexes of the domain only
        self.roles: dict[Instruction, str] = {}  # of a product: 'lhs', 'rhs' or 'epilogue'
        self.add(root, {root: []})

    def add(self, instruction: Instruction, users) -> None:
        self.members.add(instruction)
        own = self.users_inside(instruction, users[instruction])
        self.evaluations[instruction] = _evaluations(self, instruction, own)
        if _at_own_index(self, instruction, own):
            self.in_place.add(instruction)
        if _is_aligned(self, instruction, own):
            self.aligned.add(instruction)
        self.roles[instruction] = _role(self, instruction, own)
        if instruction.opcode == "reduce":
            if self.reduction is None:
                self.kind = "row" if is_row(instruction) or not _identity_use(self, instruction, own) else "reduce"
                self.domain = instruction.operands[0].dims
            self.reduction = instruction
        elif instruction.opcode in PRODUCTS:
            self.kind, self.dot = "product", instruction
        elif OPS[instruction.opcode].family == "window" or instruction.opcode == "topk":
            self.kind = "window"  # a kernel of its own
        elif instruction.opcode == "fft":
            self.kind, self.fft = "fft", instruction

    def join(self, other: Group) -> None:
        """Takes up the work of another group over the same domain."""
        mine, theirs = self.members - other.members, other.members - self.members
        self.members |= other.members
        self.outputs += other.outputs
        for instruction, times in other.evaluations.items():
            self.evaluations[instruction] = max(times, self.evaluations.get(instruction, 0.0))
        self.in_place = (self.in_place & other.in_place) | (self.in_place & mine) | (other.in_place & theirs)
        self.aligned = (self.aligned & other.aligned) | (self.aligned & mine) | (other.aligned & theirs)
        self.roles = {**other.roles, **self.roles}

    def users_inside(self, instruction: Instruction, users: list[Instruction]) -> list[Instruction]:
        """The members that use an instruction, once for each operand position. `users`: all that do."""
        if len(users) > 2 * len(self.members):  # a constant of a large program
            return [m for m in self.members for o in m.operands if o is instruction]
        return [u for u in users if u in self.members]

    def domain_size(self) -> int:
        return math.prod(self.domain)

    def sibling_key(self) -> tuple | None:
        """Groups with one key may be joined."""
        if self.kind in ("product", "window", "fft") or any(o.opcode in UPDATES for o in self.outputs):
            return None
        if self.kind == "loop":
            return ("loop", self.domain) if self.outputs[0].shape.size > 1 else None
        return ("reduce", self.kind, self.domain, self.reduction["dimensions"])


class Rules:
    """Facts about the instructions of a computation that decisions need, found in one walk."""

    def __init__(self, instructions: list[Instruction], users: dict[Instruction, list[Instruction]]):
        self.users = users
        self.behind_dot: set[Instruction] = set()  # element-wise work leads from a dot of the same size to here
        self.duplicable: set[Instruction] = set()  # every consumer computes its own: cheaper than to write and read it
        self.recomputed: dict[Instruction, int] = {}  # as cheap to compute again as to read -> steps from memory
        for instruction in instructions:
            if not isinstance(instruction.shape, Shape):
                continue
            if self._is_behind_dot(instruction):
                self.behind_dot.add(instruction)
            if self._is_duplicable(instruction):
                self.duplicable.add(instruction)
            self._note_recomputed(instruction)

    def _note_recomputed(self, instruction: Instruction) -> None:
        """`x - mean` of an x in memory: consumers apart from each other read x in its place, and nobody writes it."""
        cheap = OPS[instruction.opcode].family == "elementwise" and OPS[instruction.opcode].flops < EXPENSIVE
        if not cheap or instruction.shape.size == 1:
            return
        large = {o for o in instruction.operands if o.opcode not in ("broadcast", "constant", "iota")}
        if len(large) != 1:
            return
        (operand,) = large
        steps = 0 if is_materialized(operand) else self.recomputed.get(operand, STEPS)
        if steps < STEPS and operand.dtype.itemsize <= instruction.dtype.itemsize and isinstance(operand.shape, Shape):
            self.recomputed[instruction] = steps + 1

    def _is_behind_dot(self, instruction: Instruction) -> bool:
        if instruction.opcode in PRODUCTS:
            return True
        if OPS[instruction.opcode].family != "elementwise" and instruction.opcode != "reshape":
            return False
        size = instruction.shape.size
        return any(o in self.behind_dot and o.shape.size == size for o in instruction.operands)

    def _is_duplicable(self, instruction: Instruction) -> bool:
        opcode, operands = instruction.opcode, instruction.operands
        if opcode == "iota" or (opcode == "constant" and can_write(instruction)):
            return True
        if opcode == "broadcast":
            return operands[0].shape.size * 4 <= instruction.shape.size or operands[0] in self.duplicable
        if opcode == "convert":
            return operands[0].dtype.itemsize <= instruction.dtype.itemsize
        if OPS[opcode].family != "elementwise":
            return False
        scalar = instruction.shape.size == 1 and OPS[opcode].flops < EXPENSIVE
        return all(o in self.duplicable or (scalar and is_materialized(o)) for o in operands)


def is_materialized(instruction: Instruction) -> bool:
    """Whether an instruction's value is in memory anyway, or is no array."""
    if instruction.opcode in NEVER or OPS[instruction.opcode].family == "control" or runs_on_host(instruction):
        return True
    return instruction.opcode == "constant" and not can_write(instruction)


def _evaluations(group: Group, instruction: Instruction, own) -> float:
    """How often an element of the instruction is computed in the group, in all."""
    size = instruction.shape.size if isinstance(instruction.shape, Shape) else 1
    if not own:
        return float(size)
    elsewhere = here = 0.0  # read at other indexes by each such user, at one index by all others together
    for user in own:
        times = group.evaluations[user]
        if user.opcode == "broadcast" and user["dimensions"] == tuple(range(len(instruction.dims))):
            # Outer dimensions: computed outside of the inner loop.
            times = min(times, float(size) * max(1.0, times / max(user.shape.size, 1)))
        elif user.opcode in ("reduce", "scatter", *PRODUCTS):
            times = float(size)
        moved = OPS[user.opcode].family == "index" and user.opcode not in ("broadcast", "reshape", "transpose")
        if moved:
            elsewhere += times
        else:
            here = max(here, times)
    return elsewhere + here


def _at_own_index(group: Group, instruction: Instruction, own) -> bool:
    """Whether all uses in the group read it at the index of the output."""
    if not own:
        return True
    return all(u in group.in_place and (OPS[u.opcode].family == "elementwise" or u.opcode == "reshape") for u in own)


def _is_aligned(group: Group, instruction: Instruction, own) -> bool:
    """Whether all uses in the group read it at the index of the row (and place in the row) that is being computed."""
    return all(u in group.aligned and _keeps_alignment(u, instruction) for u in own)


def _keeps_alignment(user: Instruction, operand: Instruction) -> bool:
    rank = len(operand.dims)
    if user.opcode == "broadcast":
        return user["dimensions"] == tuple(range(rank))
    if user.opcode == "reshape":
        return [d for d in user.dims if d != 1] == [d for d in operand.dims if d != 1]
    if user.opcode == "reduce":
        kept = rank - len(user["dimensions"])
        return set(user["dimensions"]) == set(range(kept, rank))
    return OPS[user.opcode].family == "elementwise"


def _role(group: Group, instruction: Instruction, own) -> str:
    roles = set()
    for user in own:
        if user is group.dot:
            roles |= {name for name, o in zip(("lhs", "rhs"), user.operands, strict=True) if o is instruction}
        else:
            roles.add(group.roles[user])
    return roles.pop() if len(roles) == 1 else "mixed" if roles else "epilogue"


def _identity_use(group: Group, reduce: Instruction, own) -> bool:
    """Whether a reduction's result is used at its own index only (not broadcast back)."""
    return _at_own_index(group, reduce, own)


def can_fuse(rules: Rules, group: Group, instruction: Instruction, output: bool) -> tuple[bool, str]:
    """(whether the group's nest can compute the instruction too, why)."""
    if len(group.members) >= MEMBERS:
        return False, f"the kernel has {MEMBERS} instructions"
    if not isinstance(instruction.shape, Shape):
        return False, "it has several results"
    if any(o.opcode in UPDATES and o.operands[0] is instruction for o in group.outputs):
        return False, "the updated array stays where it is"
    if any(o.opcode in UPDATES and o.operands[0] in instruction.operands for o in group.outputs):
        return False, "it reads the array that is updated in place"
    if instruction.opcode in UPDATES:
        return False, "the update is made in place by a kernel of its own"
    if group.outputs[0].opcode == "scatter" and (output or not can_write(instruction)):
        return False, "a scatter kernel has one result, and takes what has an expression for one element"
    own = group.users_inside(instruction, rules.users[instruction])
    if output and instruction.opcode != "reduce" and not _output_fits(group, instruction):
        return False, "its extents are not the kernel's domain"
    if instruction.opcode == "reduce":
        return _can_fuse_reduce(group, instruction, own)
    if instruction.opcode in PRODUCTS:
        return _can_fuse_dot(group, instruction, own)
    if instruction.opcode == "fft":
        return _can_fuse_fft(group, instruction, own, output)
    if group.kind == "fft":
        return _can_join_fft(group, instruction, own, output)
    if group.kind == "window":
        return False, "a kernel of windows or of the best takes no other work"
    if not can_write(instruction):
        return False, "it has no expression for one element"
    return _can_fuse_element(rules, group, instruction, own, output)


def _output_fits(group: Group, instruction: Instruction) -> bool:
    if group.kind == "product":
        return instruction.dims == group.outputs[0].dims
    if group.kind == "row":
        kept = len(group.domain) - len(group.reduction["dimensions"])
        return instruction.dims in (group.domain, group.domain[:kept])
    return instruction.dims == group.domain


def _can_fuse_element(rules, group, instruction, own, output) -> tuple[bool, str]:
    size = instruction.shape.size
    if instruction.opcode == "reshape" and not _reshape_is_affine(instruction):
        return False, "its index map needs divisions"
    if group.kind == "product":
        role = _role(group, instruction, own)
        if role == "mixed":
            return False, "it is needed both before and after the sums"
        if role in ("lhs", "rhs"):
            if output:
                return False, "an operand of the contraction is not stored"
            if group.dot.opcode == "convolution":
                return False, "a convolution reads its operands in place"
            if instruction in rules.behind_dot:
                return False, "it belongs into the epilogue of the contraction before it"
            if instruction.opcode in ("transpose", "reshape", "slice", "gather") or OPS[instruction.opcode].flops >= 8:
                return False, "computed once and read in place is faster"
            if instruction.opcode != "broadcast" and any(o.opcode == "reduce" for o in instruction.operands):
                return False, "a reduction comes first"
        elif output and instruction not in group.in_place and not _at_own_index(group, instruction, own):
            return False, "it is not computed at the result's index"
        elif instruction.opcode not in ("broadcast", "constant", "iota") and not _at_own_index(group, instruction, own):
            if OPS[instruction.opcode].flops >= EXPENSIVE:
                return False, "the epilogue would compute it again for each row"
    elif output and group.reduction is None and not _at_own_index(group, instruction, own):
        return False, "it is not computed at the kernel's own index"
    times = _evaluations(group, instruction, own)
    if times > 2 * size and OPS[instruction.opcode].flops >= EXPENSIVE:
        return False, f"each element would be computed {times / max(size, 1):.0f} times"
    if times > 8 * size and instruction.opcode not in ("broadcast", "constant", "iota") and size > 1:
        if any(not is_materialized(o) for o in instruction.operands):
            return False, f"each element would be computed {times / max(size, 1):.0f} times"
    return True, "element-wise"


def _reshape_is_affine(instruction: Instruction) -> bool:
    return all(len(olds) == 1 for olds, _ in reshape_groups(instruction.operands[0].dims, instruction.dims))


def _can_fuse_reduce(group: Group, reduce: Instruction, own) -> tuple[bool, str]:
    dims, reduced = reduce.operands[0].dims, reduce["dimensions"]
    trailing = set(reduced) == set(range(len(dims) - len(reduced), len(dims)))
    if group.reduction is not None:
        if dims != group.reduction.operands[0].dims or set(reduced) != set(group.reduction["dimensions"]):
            return False, "it reduces other dimensions than the kernel"
        if group.kind == "row" and _is_aligned(group, reduce, own):
            return True, "the same rows"
        if _at_own_index(group, reduce, own):
            return True, "the same reduction"
        return False, "its result is needed before the kernel's reduction"
    if group.kind != "loop":
        return False, f"a {group.kind} kernel takes no reduction"
    if _at_own_index(group, reduce, own) and reduce.dims == group.domain:
        return True, "what consumes the result runs at the end of the reduction"
    if not trailing:
        return False, "the reduced dimensions are not the trailing ones"
    if dims != group.domain:
        return False, "its operand has other extents than the kernel's domain"
    if not _is_aligned(group, reduce, own):
        return False, "its result is needed at other rows than its own"
    length = math.prod(dims[k] for k in reduced) * reduce.dtype.itemsize
    if length > ROW_BYTES:
        return False, f"a row of {length} bytes does not stay in cache"
    if not _full_domain(group):
        return False, "an output has other extents than the rows"
    return True, "rows stay in cache"


def _full_domain(group: Group) -> bool:
    return all(o.dims == group.domain for o in group.outputs)


def _can_fuse_fft(group: Group, fft: Instruction, own, output: bool) -> tuple[bool, str]:
    if group.kind != "loop" or output or len(group.outputs) > 1:
        return False, "a Fourier transform has one result, or what is computed from it alone"
    if not takes_epilogue(fft, group.members, group.outputs[0]):
        return False, "what is computed from the transform needs more than its elements"
    return True, "epilogue of the Fourier transform"


def _can_join_fft(group: Group, instruction: Instruction, own, output: bool) -> tuple[bool, str]:
    if not output and is_constant(instruction) and group.fft not in own:
        return True, "a constant"
    if not output and own == [group.fft] and takes_reals(group.fft, instruction):
        return True, "numbers are converted as the transform reads them"
    return False, "a Fourier transform reads its operand from memory"


def _can_fuse_dot(group: Group, dot: Instruction, own) -> tuple[bool, str]:
    if group.kind != "loop":
        return False, f"a {group.kind} kernel takes no contraction"
    if not (is_normal_dot if dot.opcode == "dot" else is_normal_convolution)(dot):
        return False, "it is not in normal form"
    if dot.opcode == "convolution" and group.domain != dot.dims:
        return False, "the kernel's extents are not the convolution's"
    if not _at_own_index(group, dot, own):
        return False, "its result is not used at its own index"
    if any(o.dims != group.domain for o in group.outputs):
        return False, "an output has other extents than the result"
    if any(len(olds) != 1 for olds, _ in reshape_groups(dot.dims, group.domain)):
        return False, "the extents of the output do not correspond to the result's"
    if any(m.opcode == "reshape" and m.dims != group.domain and m not in group.in_place for m in group.members):
        return False, "a reshape inside of the epilogue"
    return True, "epilogue of the contraction"
