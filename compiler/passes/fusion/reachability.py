"""Transitive dependences between groups, so that joining two of them never creates a cycle.

Each group stores the set of all groups that depend on it, directly or indirectly, as the bits of one integer: a query
is one `&`, and joining two groups is one `|` for each group before them. The bits would take quadratic memory, so a
long program is divided into segments: all outputs of a group are in one segment. Groups between two groups of a segment
are in it too, since a group's outputs follow its inputs.
"""

from __future__ import annotations

from collections.abc import Iterable

from hloom.compiler.passes.fusion.group import Group
from hloom.ir.module import Instruction

SEGMENT = 8192  # instructions


class Reachability:
    """The dependents of each group, computed while the groups grow from the last instruction to the first.

    order: the index of each instruction. groups_of: the groups that compute each instruction so far.
    """

    def __init__(
        self,
        order: dict[Instruction, int],
        users: dict[Instruction, list[Instruction]],
        groups_of: dict[Instruction, set[Group]],
    ):
        self.order, self.users, self.groups_of = order, users, groups_of
        self._bits: dict[Group, int] = {}
        self._made: dict[int, int] = {}  # groups so far, by segment
        # By segment: the dependents of each group, or of each instruction that no group computes.
        self._after: dict[int, dict[Group | Instruction, int]] = {}

    def segment(self, instruction: Instruction) -> int:
        return self.order[instruction] // SEGMENT

    def together(self, groups: Iterable[Group]) -> bool:
        """Whether the groups are in one segment: others are never joined."""
        return len({self.segment(g.outputs[0]) for g in groups}) == 1

    def add(self, group: Group) -> None:
        """Records a new group of one output, whose users have all been processed."""
        (output,) = group.outputs
        segment = self.segment(output)
        number = self._made[segment] = self._made.get(segment, -1) + 1
        self._bits[group] = 1 << number
        after = self._after.setdefault(segment, {})
        after[group] = self._needing(output, None)

    def pass_through(self, instruction: Instruction) -> None:
        """Records an instruction that no group computes."""
        needing = self._needing(instruction, None)
        if needing:
            self._after[self.segment(instruction)][instruction] = needing

    def _needing(self, instruction: Instruction, own: Group | None) -> int:
        """The groups of its segment that depend on an instruction, except `own`, which reads it directly."""
        segment = self.segment(instruction)
        after = self._after.get(segment, {})
        found = 0
        for user in self.users[instruction]:
            groups = self.groups_of[user]
            for group in groups:
                if group is not own and self.segment(group.outputs[0]) == segment:
                    found |= self._bits[group] | after[group]
            if not groups:
                found |= after.get(user, 0)
        return found

    def add_output(self, group: Group, instruction: Instruction) -> bool:
        """Adds a further output to a group, unless the group would then depend on itself. Returns whether it was
        added."""
        segment = self.segment(instruction)
        if segment != self.segment(group.outputs[0]):
            return False
        needing, bit = self._needing(instruction, group), self._bits[group]
        if needing & bit:
            return False
        after = self._after[segment]
        if needing & ~after[group]:
            self._spread(after, bit, needing)
            after[group] |= needing
        return True

    def independent(self, a: Group, b: Group) -> bool:
        """Whether two groups of one segment are independent."""
        after = self._after[self.segment(a.outputs[0])]
        return not (after[a] & self._bits[b] or after[b] & self._bits[a])

    def join(self, into: Group, other: Group) -> None:
        """Records that a group absorbs another one of its segment."""
        after = self._after[self.segment(into.outputs[0])]
        both = self._bits[into] | self._bits.pop(other)
        needing = after[into] | after.pop(other)
        self._spread(after, both, both | needing)
        self._bits[into] = both
        after[into] = needing

    @staticmethod
    def _spread(after: dict[Group | Instruction, int], bits: int, needing: int) -> None:
        """Adds `needing` to the dependents of everything before the groups of `bits`."""
        for key, found in after.items():
            if found & bits:
                after[key] = found | needing
