"""Sends and receives in the plan of one device's program.

In straight-line code a value is computed in its channel's buffer, where its receivers read it: nothing is copied, and
only receivers wait. (A value that is also an output is computed and read in the output's buffer.) A loop sends once per
step. Its channel has two buffers, which sender and receivers swap after each step: a step may write one while the
previous step's value in the other is still being read. In the branches of a conditional within a loop there is one
buffer, which is overwritten once all have read it.
"""

from __future__ import annotations

from hloom.compiler.schedule.buffer_assignment import Buffer
from hloom.compiler.schedule.control_flow import Swap
from hloom.compiler.schedule.steps import FreeStep, Place, ReceiveStep, RenewStep, SendStep
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops.programs.transfer import TRANSFERS


class Channels:
    """The part of a Planner for sends and receives."""

    def __init__(self, planner):
        self.planner = planner
        self.places: dict[int, tuple[Buffer, Buffer]] = {}  # the two buffers of a channel in a loop

    def received(self, instruction: Instruction, in_body: bool) -> Buffer:
        """The buffer of a received value. in_body: whether it is in a loop body."""
        number, bytes = instruction["channel_id"], instruction.shape.bytes
        return self._pair(number, bytes)[0] if in_body else Buffer(bytes, Place("channel", 2 * number))

    def _pair(self, number: int, bytes: int) -> tuple[Buffer, Buffer]:
        found = self.places.get(number)
        if found is None:
            found = self.places[number] = self._place(2 * number, bytes), self._place(2 * number + 1, bytes)
        return found

    def _place(self, number: int, bytes: int) -> Buffer:
        swap = self.planner.control.swaps = self.planner.control.swaps + 1
        return Buffer(bytes, Place("channel", number, swap), swap=swap)

    def take_place(self, instruction: Instruction, window: tuple[int, int] | None, in_body: bool) -> None:
        """Places a sent value in the channel's buffer, if its location is otherwise unconstrained. window: the times of
        the enclosing loop body or branch, None in straight-line code."""
        (buffer,) = self.planner.buffers[instruction.operands[0]]
        if buffer.place is not None or buffer.swap is not None or buffer not in self.planner.all:
            return
        number = instruction["channel_id"]
        if window is None:
            buffer.place = Place("channel", 2 * number)
        elif window[0] < buffer.first and buffer.last <= window[1]:
            if in_body:
                place = self._pair(number, buffer.bytes)[0]
                buffer.place, buffer.swap = place.place, place.swap
            else:
                buffer.place = Place("channel", 2 * number)

    def emit(self, instruction: Instruction, planned: list, window: tuple[int, int] | None, in_body: bool) -> None:
        number, repeated = instruction["channel_id"], window is not None
        if instruction.opcode == "recv":
            planned.append(ReceiveStep(number, self.received(instruction, in_body).assigned))
            return
        (source,) = self.planner.buffers[instruction.operands[0]]
        own = self._pair(number, source.bytes)[0].place if in_body else Place("channel", 2 * number)
        place = source.place
        if place is None or (place != own and (repeated or place.kind not in ("input", "output", "channel"))):
            planned.append((own, source, source.bytes, instruction))
            place = own
        planned.append(SendStep(number, place, not repeated))

    def around(self, computation: Computation, planned: list, in_body: bool) -> None:
        """The steps before and after a repeated computation."""
        own = [i for i in computation.instructions if i.opcode in TRANSFERS]
        renewed = [RenewStep(i["channel_id"], 1 if in_body else 0) for i in own if i.opcode == "send"]
        freed = [FreeStep(i["channel_id"]) for i in own if i.opcode == "recv"]
        swaps = [Swap(*self.places[i["channel_id"]]) for i in own if in_body and i["channel_id"] in self.places]
        planned[:] = [*renewed, *planned, *freed, *swaps]
