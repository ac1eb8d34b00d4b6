"""Loops and branches in the plan.

The state of a loop lives in buffers that all iterations share. The next value of an element is computed in place if the
old one is no longer read (`Control.take_over`). Otherwise, large elements have two buffers that are swapped after each
iteration (the driver exchanges the addresses in the arguments of all kernels), along with elements that take another's
old value; small ones are copied. Invariant elements are the operand itself. The results of a branch are computed in the
conditional's result, or copied to it.
"""

from __future__ import annotations

from collections import Counter, deque

from hloom.compiler.fusibility import FREE, is_control
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.schedule.buffer_assignment import Buffer
from hloom.ir.module import Computation, Instruction
from hloom.ir.records import field, record
from hloom.ir.types import result_shapes

COPIED_BYTES = 256  # bytes up to which copying is no more expensive than exchanging addresses


@record(eq=False)
class Label:
    """A position in the list of steps."""


@record
class To:
    """A jump to a label."""

    label: Label


@record
class OnFalse:
    """A jump to a label if `pred` is false."""

    pred: Buffer
    label: Label


@record
class OnIndex:
    """A jump to one of the labels, chosen by an integer."""

    index: Buffer
    labels: list[Label]


@record
class Swap:
    """Two buffers exchange their addresses."""

    first: Buffer
    second: Buffer


@record
class LoopItem:
    """A loop in the planned list: `before` runs once, then `body` as long as `condition` makes `pred` true.

    span: its first and last time.
    """

    instruction: Instruction
    span: tuple[int, int]
    before: list
    condition: list
    pred: Buffer
    body: list


@record
class ChoiceItem:
    """Branches in the planned list: `selector` (a pred or s32) chooses the one that runs."""

    instruction: Instruction
    selector: Buffer
    branches: list[list]


def with_jumps(planned: list) -> list:
    """The list with jumps instead of loops and branches."""
    result = []
    for item in planned:
        if isinstance(item, LoopItem):
            top, out = Label(), Label()
            result += [*with_jumps(item.before), top, *with_jumps(item.condition), OnFalse(item.pred, out)]
            result += [*with_jumps(item.body), To(top), out]
        elif isinstance(item, ChoiceItem):
            labels, out = [Label() for _ in item.branches], Label()
            result.append(
                OnFalse(item.selector, labels[1]) if item.selector.bytes == 1 else OnIndex(item.selector, labels)
            )
            for label, branch in zip(labels, item.branches, strict=True):
                result += [label, *with_jumps(branch)]
                if label is not labels[-1]:
                    result.append(To(out))
            result.append(out)
        else:
            result.append(item)
    return result


@record
class _Loop:
    """A while instruction: operand, state and next state by element, and when its parts run."""

    instruction: Instruction
    given: list[Buffer]
    state: list[Buffer]
    kept: list[bool]  # invariant
    swaps: list[Swap] = field(default_factory=list)
    moved: set[int] = field(default_factory=set)  # elements whose next value arrives by swaps

    @property
    def body(self) -> Computation:
        return self.instruction["body"]


class Control:
    """The part of a Planner for loops and branches."""

    def __init__(self, planner):
        self.planner = planner
        self.spans: dict[Instruction, tuple[int, int]] = {}  # first and last time of a loop or conditional
        self.windows: dict[int, tuple[int, int]] = {}  # by id: the times before and at the end of a computation
        self.loops: dict[Instruction, _Loop] = {}
        self.order: list[Instruction] = []  # loops and conditionals, the outer before the inner
        self.swaps = 0
        self.sends: list[Instruction] = []
        # For each send and receive the times of the enclosing computation run by a loop, and whether that is its body.
        self.windows_of: dict[Instruction, tuple[tuple[int, int] | None, bool]] = {}
        self.around: tuple[Computation | None, bool] = None, False  # likewise for what is being stored
        self.loop: _Loop | None = None  # loops whose bodies are being emitted, entirely each time
        self.prepared: dict[tuple[int, str], tuple[int, int]] = {}  # temporary -> times of its loop

    # --- times ---

    def number(self, computation: Computation, time: int) -> int:
        """Assigns times after `time` to the work of a computation and nested ones; returns the last."""
        for instruction in computation.instructions:
            if instruction.opcode in FREE:
                continue
            time += 1
            self.planner.time[instruction] = time
            if is_control(instruction):
                start = time
                for callee in instruction.called():
                    before = time
                    time = self.number(callee, time) + 1  # its result is read at its end
                    self.windows[id(callee)] = before, time
                time += 1
                self.spans[instruction] = start, time
        return time

    # --- storage ---

    def store(self, instruction: Instruction) -> None:
        self.order.append(instruction)
        if instruction.opcode == "while":
            self._store_while(instruction)
        else:
            self._store_conditional(instruction)

    def _store_while(self, instruction: Instruction) -> None:
        planner = self.planner
        start, end = self.spans[instruction]
        given = list(planner.buffers[instruction.operands[0]])
        condition, body = instruction["condition"], instruction["body"]
        kept = _kept(body, len(given))
        state = []
        for buffer, same in zip(given, kept, strict=True):
            if same:
                buffer.read(end)
                state.append(buffer)
            else:
                buffer.read(start)
                made = planner.new(buffer.bytes, start, instruction)
                made.last = end
                state.append(made)
        planner.hold(instruction, state)
        for callee in (condition, body):
            planner.hold(callee.parameters[0], list(state))
            self._store_callee(callee, callee is body)
        planner.buffers[condition.root][0].read(self.windows[id(condition)][1])
        self.loops[instruction] = _Loop(instruction, planner.held(given), state, kept)
        for k, buffer in enumerate(planner.buffers[body.root]):
            if not kept[k]:
                buffer.read(self.windows[id(body)][1], (body, k))

    def _store_conditional(self, instruction: Instruction) -> None:
        planner = self.planner
        start, _ = self.spans[instruction]
        planner.buffers[instruction.operands[0]][0].read(start)
        shapes = result_shapes(instruction.shape)
        planner.hold(instruction, [planner.new(s.bytes, start, instruction) for s in shapes])
        for branch, argument in zip(instruction["branch_computations"], instruction.operands[1:], strict=True):
            planner.hold(branch.parameters[0], list(planner.buffers[argument]))
            self._store_callee(branch, None)
            for k, buffer in enumerate(planner.buffers[branch.root]):
                buffer.read(self.windows[id(branch)][1], (branch, k))

    def _store_callee(self, computation: Computation, in_body: bool | None) -> None:
        """in_body: whether it is the body of a loop; None for a branch."""
        around = self.around
        if in_body is not None or around[0] is not None:
            self.around = computation, bool(in_body)
        for instruction in computation.instructions:
            self.planner.store(instruction)
        self.around = around

    def note_send(self, instruction: Instruction) -> None:
        self.sends.append(instruction)
        self._note(instruction)
        if self.around[0] is None:
            # Its receivers read it in place at any time.
            (buffer,) = self.planner.buffers[instruction.operands[0]]
            buffer.read(self.planner.end)

    def received(self, instruction: Instruction) -> Buffer:
        """The buffer of a received value."""
        self._note(instruction)
        return self.planner.channels.received(instruction, self.around[1])

    def _note(self, instruction: Instruction) -> None:
        computation, in_body = self.around
        self.windows_of[instruction] = None if computation is None else self.windows[id(computation)], in_body

    # --- in place ---

    def take_over(self) -> None:
        """Decides which values are computed in place in loop state or a conditional's result."""
        for instruction in self.order:
            if instruction.opcode == "while":
                self._take_over_loop(self.loops[instruction])
            else:
                self._take_over_branches(instruction)

    def _take_over_loop(self, loop: _Loop) -> None:
        planner = self.planner
        start, _ = self.spans[loop.instruction]
        window = self.windows[id(loop.body)]
        for k, same in enumerate(loop.kept):
            state, given = loop.state[k], loop.given[k]
            if same or state is given or not _free(state):
                continue  # (a value sent after the loop is computed in its channel's buffer)
            if _free(given) and given.last == start and given in planner.all and given.bytes == state.bytes:
                if self._is_unread(state, given, start):
                    planner.join(state, given)
        results = planner.buffers[loop.body.root]
        for k, same in enumerate(loop.kept):
            state, value = loop.state[k], results[k]
            if same or value is state or not self._made_within(value, window):
                continue
            if self._join_updates(value, state, window, (loop.body, k)):
                continue
            if self._fits(value, state, window, (loop.body, k)):
                planner.join(value, state)
            elif self._may_exchange(value) and _free(state) and self._alone(value, loop.body, k):
                self._exchange(loop, k, state, value)
        self._move_on(loop, results)

    def _is_unread(self, state: Buffer, given: Buffer, start: int) -> bool:
        """Whether the initial value of a state may be computed in its buffer, possibly that of an array outside of the
        loop."""
        times = [time for time, _ in state.reads if given.first <= time < start]
        if not times or given.maker is None:
            return not times
        return set(times) == {given.first} and self._updates(given.maker, given, state)

    def _may_exchange(self, value: Buffer) -> bool:
        return self.planner.target.supports_pointer_swap and value.bytes > COPIED_BYTES

    def _exchange(self, loop: _Loop, k: int, state: Buffer, value: Buffer) -> None:
        """Swaps the buffers of element `k` and its next value after each step.

        Their locations after the loop depend on the number of steps, so both are live as long as either is read;
        likewise for all elements swapped with the same buffer.
        """
        for buffer in (state, value):
            if buffer.swap is None:
                self.swaps += 1
                buffer.swap = self.swaps
        loop.swaps.append(Swap(state, value))
        loop.moved.add(k)
        circle = {value, *(swap.first for swap in loop.swaps if swap.second is value)}
        first, last = min(b.first for b in circle), max(b.last for b in circle)
        for buffer in circle:
            buffer.first, buffer.last = first, last

    def _move_on(self, loop: _Loop, results: list[Buffer]) -> None:
        """Elements whose next value is another element's old value (the previous iterate): after a swap that value is
        in the buffer of the new one, so the buffers rotate, and nothing is copied."""
        for swap in list(loop.swaps):
            last = swap.first
            while True:
                candidates = (k for k, value in enumerate(results) if value is last)
                k = next((k for k in candidates if k not in loop.moved and not loop.kept[k]), None)
                if k is None:
                    break
                state = loop.state[k]
                if not _free(state) or state not in self.planner.all or state.bytes != last.bytes:
                    break
                self._exchange(loop, k, state, swap.second)
                last = state

    def _take_over_branches(self, instruction: Instruction) -> None:
        planner = self.planner
        start, end = self.spans[instruction]
        # The whole result in place of an operand that dies here, such as an array updated by one branch.
        for k, result in enumerate(list(planner.buffers[instruction])):
            if not _free(result) or result.first != start:
                continue
            for argument in instruction.operands[1:]:
                for other in planner.buffers[argument]:
                    if other is result or not _free(other) or other not in planner.all or other.last > end:
                        continue
                    if any(other is taken for taken in planner.buffers[instruction]):
                        continue  # another result is there
                    if other.first < start and self._fits(result, other, (start - 1, end), None):
                        planner.join(result, other)
                        break
                if planner.buffers[instruction][k] is not result:
                    break
        for branch in instruction["branch_computations"]:
            window = self.windows[id(branch)]
            for k, result in enumerate(planner.buffers[instruction]):
                value = planner.buffers[branch.root][k]
                if value is not result and self._made_within(value, window):
                    if self._join_updates(value, result, window, (branch, k)):
                        continue
                    if self._fits(value, result, window, (branch, k)):
                        planner.join(value, result)

    def _join_updates(self, value: Buffer, state: Buffer, window: tuple[int, int], own) -> bool:
        """Joins a value computed from the old one by a chain of updates with the old one's buffer, along with
        intermediate values; False if impossible, and then nothing is joined."""
        made: dict[Buffer, Buffer | None] = {value: None}  # -> its in-place update
        stack = [value]
        while stack:
            buffer = stack.pop()
            maker = buffer.maker
            if maker is None or not buffer.bytes:
                continue
            for other in self._read_by(maker):
                if other in made or not self._updates(maker, buffer, other):
                    continue
                if other is state:
                    if buffer is value or not self._fits(buffer, state, window, own):
                        continue  # a single update: like any other value
                    link: Buffer | None = buffer
                    while link is not None:
                        following = made[link]
                        self.planner.join(link, state)
                        link = following
                    return True
                last = self.spans[maker][1] if maker.opcode == "conditional" else self.planner.time[maker]
                if self._made_within(other, window) and other.last <= last:
                    made[other] = buffer
                    stack.append(other)
        return False

    def _updates(self, maker: Instruction, buffer: Buffer, other: Buffer) -> bool:
        """Whether a value may be computed in place of an operand of its maker, if nothing needs that later."""
        if maker.opcode == "conditional":
            start, end = self.spans[maker]
            return self._fits(buffer, other, (start - 1, end), None)
        return self.planner.shared_operand(maker, buffer, other) is not None

    def _read_by(self, instruction: Instruction) -> list[Buffer]:
        """The distinct buffers of an instruction's operands."""
        return list(dict.fromkeys(b for o in instruction.operands for b in self.planner.buffers[o]))

    def _made_within(self, value: Buffer, window: tuple[int, int]) -> bool:
        return _free(value) and value in self.planner.all and window[0] < value.first <= value.last <= window[1]

    def _alone(self, value: Buffer, body: Computation, number: int) -> bool:
        """Whether a value is this result of the body only."""
        return all(result in (None, (body, number)) for _, result in value.reads)

    def _fits(self, value: Buffer, other: Buffer, window: tuple[int, int], own) -> bool:
        """Whether a value computed in the window may overwrite another, whose old content is then not needed in the
        window. `own`: the read of `other` that represents the value itself."""
        maker = value.maker
        if maker is None or value.bytes != other.bytes or not value.bytes:
            return False
        reads = [
            time for time, result in other.reads if window[0] < time <= window[1] and (own is None or result != own)
        ]
        if maker.opcode == "conditional":
            return self._fits_branches(maker, value, other, reads)
        start = self.planner.time[maker]
        if any(time > start for time in reads):
            return False
        return start not in reads or self.planner.shared_operand(maker, value, other) is not None

    def _fits_branches(self, maker: Instruction, value: Buffer, other: Buffer, reads: list[int]) -> bool:
        start, end = self.spans[maker]
        if any(time > end for time in reads):
            return False
        number = next((k for k, b in enumerate(self.planner.buffers[maker]) if b is value), None)
        if number is None:
            return False
        for branch in maker["branch_computations"]:
            results = self.planner.buffers[branch.root]
            window = self.windows[id(branch)]
            made = results[number]
            if made is other:
                continue
            if self._made_within(made, window) and self._fits(made, other, window, (branch, number)):
                continue
            # Copied at the end of the branch, when the overwritten value is no longer needed.
            if any(b is other for k, b in enumerate(results) if k != number):
                return False
        # A result that passes the old content through, copied after this overwrite, would read the new one.
        return not any(
            b is other
            for branch in maker["branch_computations"]
            for k, b in enumerate(self.planner.buffers[branch.root])
            if k != number
        )

    def shared_operand(self, instruction: Instruction, buffer: Buffer, other: Buffer) -> int | None:
        """For a loop: the element whose initial value is in `other`, if its state may also be there."""
        if instruction.opcode != "while" or buffer.bytes != other.bytes:
            return None
        loop = self.loops[instruction]
        places = [k for k, b in enumerate(loop.given) if b is other]
        if len(places) != 1 or loop.kept[places[0]] or loop.state[places[0]] is not buffer:
            return None
        return places[0]

    # --- steps ---

    def emit(self, instruction: Instruction, planned: list) -> None:
        if instruction.opcode == "while":
            self._emit_while(self.loops[instruction], planned)
        else:
            self._emit_conditional(instruction, planned)

    def _emit_while(self, loop: _Loop, planned: list) -> None:
        planner = self.planner
        instruction, condition, body = loop.instruction, loop.instruction["condition"], loop.body
        first = [(s, g) for s, g, same in zip(loop.state, loop.given, loop.kept, strict=True) if not same]
        before: list = []
        self._copy(first, instruction, before)
        steps = self._emitted(condition, None)
        inside = self._emitted(body, loop)
        before += self._taken_out(inside, loop)
        pairs = []
        for k, value in enumerate(planner.buffers[body.root]):
            if not loop.kept[k] and k not in loop.moved:
                pairs.append((loop.state[k], value))
        self._copy(pairs, instruction, inside)
        inside += loop.swaps
        pred = planner.buffers[condition.root][0]
        if pred.place is not None and pred.place.kind == "channel":
            # The sender may write the next one before this one is read.
            received, pred = pred, planner.new(pred.bytes, self.windows[id(condition)][1], instruction)
            steps.append((pred, received, pred.bytes, instruction))
        planner.channels.around(condition, steps, False)
        planner.channels.around(body, inside, True)
        planned.append(LoopItem(instruction, self.spans[instruction], before, steps, pred, inside))

    def _emit_conditional(self, instruction: Instruction, planned: list) -> None:
        planner = self.planner
        branches = []
        for branch in instruction["branch_computations"]:
            steps = self._emitted(branch, None)
            pairs = list(zip(planner.buffers[instruction], planner.buffers[branch.root], strict=True))
            self._copy(pairs, instruction, steps)
            if self.windows_of and any(i in self.windows_of and self.windows_of[i][0] for i in branch.instructions):
                planner.channels.around(branch, steps, False)
            branches.append(steps)
        planned.append(ChoiceItem(instruction, planner.buffers[instruction.operands[0]][0], branches))

    def _emitted(self, computation: Computation, loop: _Loop | None) -> list:
        """The steps of a computation; `loop`: the loop of which it is the body."""
        around, self.loop = self.loop, loop
        planned: list = []
        self.planner.emit_all(computation, planned)
        self.loop = around
        return planned

    def stays(self, buffer: Buffer, loop: _Loop | None = None) -> bool:
        """Whether a value is invariant in the loop whose body is being emitted."""
        loop = loop or self.loop
        if loop is None or buffer.swap is not None or buffer.first >= self.spans[loop.instruction][0]:
            return False
        return not any(buffer is state and not same for state, same in zip(loop.state, loop.kept, strict=True))

    def _taken_out(self, items: list, loop: _Loop) -> list:
        """Hoists launches that prepare loop invariants out of the steps of a loop, and out of those before inner loops:
        their results are kept while the loop runs."""
        taken: list = []
        left: list = []
        for item in items:
            left.append(item)
            if isinstance(item, LoopItem):
                taken += self._taken_out(item.before, loop)
            elif isinstance(item, tuple) and isinstance(item[0], Launch) and item[0].prepares:
                launch, pointers, instruction = item
                read = [pointers[a] for a in launch.arguments if isinstance(a, str) and a in pointers]
                if all(self.stays(buffer, loop) for buffer in read):
                    taken.append(left.pop())
                    for name in launch.temporaries:
                        self.prepared[id(instruction), name] = self.spans[loop.instruction]
        items[:] = left
        return taken

    def _copy(self, pairs: list[tuple[Buffer, Buffer]], instruction: Instruction, planned: list) -> None:
        """Copies (target, source) pairs as a parallel copy: none overwrites a source that is still to be read."""
        waiting = {t: s for t, s in pairs if t is not s and t.bytes and not self._reuses(t, s)}
        unread = Counter(waiting.values())  # pending copies that read a buffer
        ready = deque(t for t in waiting if not unread[t])
        while waiting:
            if not ready:
                # A cycle: one buffer is saved to a temporary.
                target = next(iter(waiting))
                start, end = self.spans[instruction]
                aside = self.planner.new(target.bytes, start, instruction)
                aside.last = end
                planned.append((aside, target, target.bytes, instruction))
                for other, source in waiting.items():
                    if source is target:
                        waiting[other] = aside
                unread[aside] = unread.pop(target)
                ready.append(target)
            target = ready.popleft()
            source = waiting.pop(target)
            planned.append((target, source, target.bytes, instruction))
            unread[source] -= 1
            if not unread[source] and source in waiting:
                ready.append(source)

    def _reuses(self, target: Buffer, source: Buffer) -> bool:
        """Whether the two are the same, because an output is computed in a donated input."""
        place, given = target.place, source.place
        if place is None or given is None or place.kind != "output" or given.kind != "input":
            return False
        return self.planner.reused.get(place.number) == given.number


def _free(buffer: Buffer) -> bool:
    return buffer.place is None and buffer.swap is None


def _kept(body: Computation, count: int) -> list[bool]:
    """For each element of the state whether it is invariant."""
    root, (parameter,) = body.root, body.parameters
    if root is parameter:
        return [True] * count
    if root.opcode != "tuple":
        return [False] * count
    return [
        o.opcode == "get-tuple-element" and o.operands[0] is parameter and o["index"] == k
        for k, o in enumerate(root.operands)
    ]
