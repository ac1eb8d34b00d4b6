"""Groups of instructions that form kernels, and facts about instructions that determine membership."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from hloom.compiler.fusibility import (
    ALIASES,
    CONTRACTIONS,
    EXPENSIVE,
    IN_PLACE,
    earlier_version,
    has_expression,
    is_row_reduction,
)
from hloom.compiler.targets.base import KernelKind, Target
from hloom.ir.module import Instruction
from hloom.ir.ops import OPS
from hloom.ir.sizes.guards import typical
from hloom.ir.types import Shape

MEMBERS = 150  # maximum number of instructions in a kernel: compile time grows superlinearly beyond
WRITTEN = 300  # expressions in its text, where an instruction stands once for each index at which it is read
BRANCHES = {"pad": 4, "concatenate": 6, "dynamic-update-slice": 4}  # expressions that cost as much as their conditions
PIECES = 4  # operands of a concatenate to which its number in BRANCHES applies
STEPS = 3  # maximum number of cheap steps from an array in memory that are recomputed rather than written and read
# Index maps determined by one attribute and the operand's dimensions.
INDEX_MAPS = {
    "broadcast": "dimensions",
    "transpose": "dimensions",
    "reverse": "dimensions",
    "slice": "slice",
    "reshape": None,
    "reduce": "dimensions",
}
Indices = frozenset[int]
SCALAR: Indices = frozenset([0])
NEVER = {"parameter", "tuple", "get-tuple-element", "custom-call", "call", "fusion", "optimization-barrier"}


class Facts:
    """Facts about the instructions of a computation, collected in one walk.

    behind_contraction: element-wise results of a contraction of the same size. duplicable: recomputed by every
    consumer, which is cheaper than writing and reading. recomputed: as cheap to recompute as to read -> steps from an
    array in memory. versions: equal for an array and its successive updates. updated: versions of arrays that have
    updates.
    """

    def __init__(self, instructions: list[Instruction], users: dict[Instruction, list[Instruction]], target: Target):
        self.users, self.target = users, target
        self.behind_contraction: set[Instruction] = set()
        self.duplicable: set[Instruction] = set()
        self.recomputed: dict[Instruction, int] = {}
        self.indices: dict[tuple, int] = {}  # a number for each distinct index
        self.places: dict[Instruction, dict[Instruction, list[int]]] = {}  # for the operands of an instruction
        self.versions: dict[Instruction, Instruction] = {}
        self.updated: set[Instruction] = set()
        for instruction in instructions:
            self._note_version(instruction)
            if not isinstance(instruction.shape, Shape):
                continue
            if self._is_behind_contraction(instruction):
                self.behind_contraction.add(instruction)
            if self._is_duplicable(instruction):
                self.duplicable.add(instruction)
            self._note_recomputed(instruction)

    def _note_version(self, instruction: Instruction) -> None:
        before = earlier_version(instruction)
        if before is not None:
            self.versions[instruction] = version = self.versions.get(before, before)
            if instruction.opcode not in ALIASES:
                self.updated.add(version)

    def reads_version(self, instruction: Instruction, update: Instruction) -> bool:
        """Whether an instruction reads the array of an update, or an earlier version of it."""
        version = self.versions[update]
        return any(self.versions.get(operand, operand) is version for operand in instruction.operands)

    def reads_updated(self, instruction: Instruction) -> bool:
        """Whether an instruction reads a small part of an array that another one updates. Two updates that read each
        other's arrays would form a cycle."""
        return any(True for _ in self.states_read(instruction))

    def states_read(self, instruction: Instruction) -> Iterator[tuple[Instruction, Instruction]]:
        """(version, the array at that version) of the updated arrays of which an instruction reads a small part."""
        for operand in instruction.operands:
            version = self.versions.get(operand, operand)
            if version not in self.updated or not isinstance(operand.shape, Shape):
                continue
            if instruction.shape.bytes * 4 <= operand.shape.bytes:
                while operand.opcode in ALIASES:
                    operand = operand.operands[0]
                yield version, operand

    def own_index(self, dims: tuple[int, ...]) -> Indices:
        """The index of an output with these dimensions."""
        return frozenset([self.indices.setdefault(("own", dims), len(self.indices) + 1)]) if dims else SCALAR

    def indices_read(self, user: Instruction, operand: Instruction, at: Indices) -> Indices:
        """The indices at which a user computed at the indices `at` reads an operand.

        Equal numbers are equal indices; a kernel may find further equalities.
        """
        if not operand.dims:
            return SCALAR
        opcode = user.opcode
        if OPS[opcode].family == "elementwise":
            return at
        # Any other user may read it under a condition, which prevents sharing.
        how: tuple = (id(user),)
        if opcode in INDEX_MAPS:
            attribute = INDEX_MAPS[opcode]
            how = (opcode, user[attribute] if attribute else user.dims, operand.dims)
        places = self._places(user)[operand]
        keys = ((*how, k, index) for k in places for index in at)
        return frozenset([self.indices.setdefault(key, len(self.indices) + 1) for key in keys])

    def _places(self, instruction: Instruction) -> dict[Instruction, list[int]]:
        """The operand positions of each instruction."""
        found = self.places.get(instruction)
        if found is None:
            found = self.places[instruction] = {}
            for k, operand in enumerate(instruction.operands):
                found.setdefault(operand, []).append(k)
        return found

    def is_materialized(self, instruction: Instruction) -> bool:
        """Whether an instruction's value is in memory anyway, or is not an array."""
        if instruction.opcode in NEVER or OPS[instruction.opcode].family == "control":
            return True
        if instruction.opcode == "constant":
            return not has_expression(instruction)
        return not self.target.has_kernel(instruction)

    def _note_recomputed(self, instruction: Instruction) -> None:
        """`x - mean` for x in memory: separate consumers read x instead, and the difference is not written."""
        cheap = OPS[instruction.opcode].family == "elementwise" and OPS[instruction.opcode].flops < EXPENSIVE
        if not cheap or instruction.shape.size == 1:
            return
        large = {o for o in instruction.operands if o.opcode not in ("broadcast", "constant", "iota")}
        if len(large) != 1:
            return
        (operand,) = large
        steps = 0 if self.is_materialized(operand) else self.recomputed.get(operand, STEPS)
        if steps < STEPS and operand.dtype.itemsize <= instruction.dtype.itemsize and isinstance(operand.shape, Shape):
            self.recomputed[instruction] = steps + 1

    def _is_behind_contraction(self, instruction: Instruction) -> bool:
        if instruction.opcode in CONTRACTIONS:
            return True
        if OPS[instruction.opcode].family != "elementwise" and instruction.opcode != "reshape":
            return False
        size = instruction.shape.size
        return any(o in self.behind_contraction and o.shape.size == size for o in instruction.operands)

    def _is_duplicable(self, instruction: Instruction) -> bool:
        opcode, operands = instruction.opcode, instruction.operands
        if opcode in ("iota", "size") or (opcode == "constant" and has_expression(instruction)):
            return True
        if opcode == "broadcast":
            fewer = typical(operands[0].shape.size) * 4 <= typical(instruction.shape.size)
            return fewer or operands[0] in self.duplicable
        if opcode == "convert":
            return operands[0].dtype.itemsize <= instruction.dtype.itemsize
        if OPS[opcode].family != "elementwise":
            return False
        scalar = instruction.shape.size == 1 and OPS[opcode].flops < EXPENSIVE
        return all(o in self.duplicable or (scalar and self.is_materialized(o)) for o in operands)


class Group:
    """Instructions that form one kernel.

    head: the instruction that determines the kernel's kind, if any; never a reduction. reduction: one of its
    reductions. by_rows: whether reductions are row by row. domain: the dimensions that the kernel loops over.
    evaluations: the total number of evaluations of an element of a member. indices: at which the kernel's source
    computes a member; written: their total number for all members. states: the updated arrays of which members read a
    small part, by version. in_place: members reached from the outputs at their own index. aligned: members computed
    only at the leading indices of the domain. roles: 'lhs', 'rhs' or 'epilogue' of members around a contraction.
    """

    def __init__(self, number: int, root: Instruction, facts: Facts):
        self.number, self.facts = number, facts
        self.outputs = [root]
        self.members: set[Instruction] = set()
        self.kind: KernelKind = facts.target.kinds[-1]
        shape = root.shape if isinstance(root.shape, Shape) or not root.operands else root.operands[0].shape
        self.domain = shape.dims if isinstance(shape, Shape) else ()
        self.head: Instruction | None = None
        self.reduction: Instruction | None = None
        self.by_rows = False
        self.evaluations: dict[Instruction, float] = {}
        self.indices: dict[Instruction, Indices] = {}
        self.written = 0
        self.states: dict[Instruction, Instruction] = {}
        self.in_place: set[Instruction] = set()
        self.aligned: set[Instruction] = set()
        self.roles: dict[Instruction, str] = {}
        self._add(root, [])

    def add(self, instruction: Instruction) -> None:
        """Adds a producer of members."""
        self._add(instruction, self.users_inside(instruction))

    def _add(self, instruction: Instruction, users: list[Instruction]) -> None:
        self.members.add(instruction)
        self.states.update(self.facts.states_read(instruction))
        self.evaluations[instruction] = self.evaluations_of(instruction, users)
        self.indices[instruction] = self.indices_of(instruction, users)
        self.written += len(self.indices[instruction]) * _branches(instruction)
        at_own_index = self.is_at_own_index(users)
        if at_own_index:
            self.in_place.add(instruction)
        if self.is_aligned(instruction, users):
            self.aligned.add(instruction)
        self.roles[instruction] = self.role_of(instruction, users)
        kind = self.facts.target.kind_of_instruction(instruction)
        if kind is None:
            return
        if instruction.opcode != "reduce":
            self.kind, self.head = kind, instruction
            return
        if self.reduction is None:
            self.by_rows = is_row_reduction(instruction) or not at_own_index
            self.kind, self.domain = kind, instruction.operands[0].dims
        self.reduction = instruction

    def join(self, other: Group) -> None:
        """Adds the work of another group over the same domain."""
        mine, theirs = self.members - other.members, other.members - self.members
        self.members |= other.members
        self.states |= other.states
        self.outputs += other.outputs
        for instruction, times in other.evaluations.items():
            self.evaluations[instruction] = max(times, self.evaluations.get(instruction, 0.0))
        for instruction, indices in other.indices.items():
            known = self.indices.get(instruction, frozenset())
            self.indices[instruction] = indices | known
            self.written += len(indices - known) * _branches(instruction)
        self.in_place = (self.in_place & other.in_place) | (self.in_place & mine) | (other.in_place & theirs)
        self.aligned = (self.aligned & other.aligned) | (self.aligned & mine) | (other.aligned & theirs)
        self.roles = {**other.roles, **self.roles}

    @property
    def is_loop(self) -> bool:
        """Whether the group consists of element-wise work only."""
        return self.head is None and self.reduction is None

    # --- facts about the whole computation, for the `accepts` of kinds (`KernelGroup`) ---

    @property
    def target(self) -> Target:
        return self.facts.target

    def is_behind_contraction(self, instruction: Instruction) -> bool:
        return instruction in self.facts.behind_contraction

    def is_materialized(self, instruction: Instruction) -> bool:
        return self.facts.is_materialized(instruction)

    def can_fuse(self, instruction: Instruction, output: bool) -> tuple[bool, str]:
        """(whether the group's kernel can also compute the instruction, the reason). output: as a further output."""
        if len(self.members) >= MEMBERS:
            return False, f"the kernel has {MEMBERS} instructions"
        if not isinstance(instruction.shape, Shape):
            return False, "it has several results"
        users = self.users_inside(instruction)
        written = len(self.indices_of(instruction, users)) * _branches(instruction)
        if self.written + written > WRITTEN:
            return False, f"the kernel's text has {WRITTEN} expressions"
        if any(o.opcode in IN_PLACE and o.operands[0] is instruction for o in self.outputs):
            return False, "the updated array stays where it is"
        if any(o.opcode in IN_PLACE and self.facts.reads_version(instruction, o) for o in self.outputs):
            return False, "it reads the array that is updated in place"
        if any(o.opcode in IN_PLACE for o in self.outputs) and self.facts.reads_updated(instruction):
            return False, "it reads an array that another kernel updates in place"
        if not self.reads_with(self.facts.states_read(instruction)):
            return False, "it reads an array before an update, and the kernel reads it afterwards"
        if instruction.opcode in IN_PLACE:
            return False, "the update is made in place by a separate kernel"
        if output and instruction.opcode != "reduce" and not self._fits_output(instruction):
            return False, "its dimensions are not the kernel's domain"
        kind = self.facts.target.kind_of_instruction(instruction) or self.kind
        return kind.accepts(self, instruction, users, output)

    def reads_with(self, states: Iterable[tuple[Instruction, Instruction]]) -> bool:
        """Whether no kernel reads an array both before and after an update, which would require keeping the old
        version."""
        return all(self.states.get(version, state) is state for version, state in states)

    def _fits_output(self, instruction: Instruction) -> bool:
        if self.by_rows and self.reduction is not None:
            kept = len(self.domain) - len(self.reduction["dimensions"])
            return instruction.dims in (self.domain, self.domain[:kept])
        return instruction.dims == self.domain

    def sibling_key(self) -> tuple | None:
        """Groups with equal keys may be joined."""
        if self.head is not None or any(o.opcode in IN_PLACE for o in self.outputs):
            return None
        if self.reduction is None:
            return ("loop", self.domain) if self.outputs[0].shape.size > 1 else None
        return ("reduce", self.by_rows, self.domain, self.reduction["dimensions"])

    def domain_size(self) -> int:
        return math.prod(self.domain)

    def users_inside(self, instruction: Instruction) -> list[Instruction]:
        """The members that use an instruction, once per operand position."""
        users = self.facts.users[instruction]
        if len(users) > 2 * len(self.members):  # a constant of a large program
            return [m for m in self.members for o in m.operands if o is instruction]
        return [u for u in users if u in self.members]

    # --- how members read an instruction; `users`: those that do ---

    def indices_of(self, instruction: Instruction, users: list[Instruction]) -> Indices:
        """The indices at which the kernel's source computes an instruction."""
        if not users:
            return self.facts.own_index(self.domain)
        found = {self.facts.indices_read(user, instruction, self.indices[user]) for user in users}
        return found.pop() if len(found) == 1 else frozenset().union(*found)

    def evaluations_of(self, instruction: Instruction, users: list[Instruction]) -> float:
        """The total number of evaluations of an element of the instruction in the group."""
        size = typical(instruction.shape.size) if isinstance(instruction.shape, Shape) else 1
        if not users:
            return float(size)
        elsewhere = here = 0.0  # each such user reads at a separate index, all others at a common one
        for user in users:
            times = self.evaluations[user]
            if user.opcode == "broadcast" and user["dimensions"] == tuple(range(len(instruction.dims))):
                # Outer dimensions: computed outside of the inner loop.
                times = min(times, float(size) * max(1.0, times / max(typical(user.shape.size), 1)))
            elif user.opcode in ("reduce", "scatter", *CONTRACTIONS):
                times = float(size)
            moved = OPS[user.opcode].family == "index" and user.opcode not in ("broadcast", "reshape", "transpose")
            if moved:
                elsewhere += times
            else:
                here = max(here, times)
        return elsewhere + here

    def is_at_own_index(self, users: list[Instruction]) -> bool:
        """Whether all users read the instruction at the index of the output."""
        return all(
            u in self.in_place and (OPS[u.opcode].family == "elementwise" or u.opcode == "reshape") for u in users
        )

    def is_aligned(self, instruction: Instruction, users: list[Instruction]) -> bool:
        """Whether all users read the instruction at the index of the row (and position in it) that they compute."""
        return all(u in self.aligned and _keeps_alignment(u, instruction) for u in users)

    def role_of(self, instruction: Instruction, users: list[Instruction]) -> str:
        """The role of the instruction in a contraction: 'lhs', 'rhs', 'epilogue', or 'mixed' if users differ."""
        roles = set()
        for user in users:
            if user is self.head:
                roles |= {name for name, o in zip(("lhs", "rhs"), user.operands, strict=False) if o is instruction}
            else:
                roles.add(self.roles[user])
        return roles.pop() if len(roles) == 1 else "mixed" if roles else "epilogue"


def _branches(instruction: Instruction) -> int:
    """The cost of an instruction in expressions."""
    found = BRANCHES.get(instruction.opcode, 1)
    return found + max(0, len(instruction.operands) - PIECES) if instruction.opcode == "concatenate" else found


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
