"""Recovers loops and branches from a list with jumps.

A plan is a list of steps in which loops and branches are jumps; graphs need them as steps with bodies. Each has one
form in the list (docs/guides/control_flow.md), which determines where it begins and ends:

    loop          top: condition..., branch(pred, out), body..., jump(top), out:
    two branches  branch(pred, second), first..., jump(out), second: ..., out:
    switch        switch(index, [b0, b1, ...]), b0: ..., jump(out), b1: ..., jump(out), ..., last: ..., out:
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.runtime.cuda.programs.program import Conditional, Ref, Step, While


class Jumps:
    """How a list represents its jumps. jump(step) -> index of the target step or None; branch(step) -> (pred, target)
    or None, taken where the pred is false; switch(step) -> (index, targets) or None."""

    def __init__(self, jump: Callable, branch: Callable, switch: Callable):
        self.jump, self.branch, self.switch = jump, branch, switch


def structured(
    steps: Sequence,
    jumps: Jumps,
    leaf: Callable[[object], Sequence[Step]],
    where: Callable[[object], str] = lambda step: "",
) -> tuple[Step, ...]:
    """The list with Whiles and Conditionals instead of jumps.

    leaf: converts a step without jumps. where: the user's line of a branch or switch. Raises ValueError for jumps
    of another form.
    """
    return tuple(_Reader(steps, jumps, leaf, where).stretch(0, len(steps)))


class _Reader:
    def __init__(self, steps: Sequence, jumps: Jumps, leaf, where):
        self.steps, self.jumps, self.leaf, self.where = steps, jumps, leaf, where
        self.back: dict[int, list[int]] = {}  # step -> the jumps back to it, in order
        for number, step in enumerate(steps):
            target = jumps.jump(step)
            if target is not None and target <= number:
                self.back.setdefault(target, []).append(number)

    def stretch(self, first: int, end: int, seen: int = -1) -> list[Step]:
        """The steps from `first` to before `end`. seen: the last step of a loop that begins at `first` and is known."""
        result: list[Step] = []
        at = first
        while at < end:
            limit = seen if at == first and seen >= 0 else end
            last = max((k for k in self.back.get(at, ()) if k < limit), default=None)
            step = self.steps[at]
            if last is not None:
                at = self._loop(at, last, result)
            elif self.jumps.jump(step) is not None:
                raise ValueError(f"step {at} jumps, and neither a loop nor a branch ends there")
            elif (found := self.jumps.branch(step)) is not None:
                at = self._branches(at, found[0], (at + 1, found[1]), False, result)
            elif (found := self.jumps.switch(step)) is not None:
                at = self._branches(at, found[0], tuple(found[1]), True, result)
            else:
                result += self.leaf(step)
                at += 1
        if at != end:
            raise ValueError(f"the construct that ends at step {at} extends beyond step {end}, which encloses it")
        return result

    def _loop(self, top: int, last: int, result: list[Step]) -> int:
        for at in range(top, last):
            found = self.jumps.branch(self.steps[at])
            if found is not None and found[1] == last + 1:
                condition = tuple(self.stretch(top, at, seen=last))
                body = tuple(self.stretch(at + 1, last))
                result.append(While(condition, found[0], body, self.where(self.steps[at])))
                return last + 1
        raise ValueError(f"the loop from step {top} to {last} has no condition that ends it")

    def _branches(self, at: int, selector: Ref, starts: tuple[int, ...], by_index: bool, result: list[Step]) -> int:
        if len(starts) == 1:
            return at + 1  # one branch: the code after it
        ends = [start - 1 for start in starts[1:]]
        out = self.jumps.jump(self.steps[ends[0]])
        if out is None or any(self.jumps.jump(self.steps[end]) != out for end in ends) or starts[0] != at + 1:
            raise ValueError(f"the branches of step {at} do not meet")
        branches = tuple(tuple(self.stretch(s, e)) for s, e in zip(starts, (*ends, out), strict=True))
        result.append(Conditional(selector, branches, by_index, self.where(self.steps[at])))
        return out
