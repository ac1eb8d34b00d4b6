"""A stretch of a program as a CUDA graph, built node by node.

Nodes form a chain, in the order of the steps. Loops and branches are conditional nodes, whose condition a small kernel
sets from memory. A captured stretch is for one set of addresses: `update` gives its nodes others where the driver can
change them, which it can for kernels, copies and fills that are not inside of a body.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from hloom.ir.records import field, record
from hloom.runtime.cuda.api import KernelNode
from hloom.runtime.cuda.errors import CudaError
from hloom.runtime.cuda.programs.program import (
    Conditional,
    Copy,
    Enqueue,
    Exchange,
    Fill,
    Launch,
    Ref,
    Step,
    While,
    places,
)

Resolve = Callable[[Ref], int]


def follows_call(ref: Ref) -> bool:
    """Whether a reference's address differs between calls."""
    return ref.kind in ("input", "output")


def pack(words: Sequence[int | Ref | bytes], resolve: Resolve) -> tuple[int, object]:
    """(address of an array of the arguments' addresses, the memory that holds all of it)."""
    count = len(words)
    block = (ctypes.c_uint64 * max(2 * count, 1))()
    base = ctypes.addressof(block)
    kept: list = [block]
    for k, word in enumerate(words):
        place = base + 8 * k
        if isinstance(word, bytes):
            value = ctypes.create_string_buffer(word, len(word))
            kept.append(value)
            place = ctypes.addressof(value)
        else:
            block[k] = resolve(word) if isinstance(word, Ref) else word
        block[count + k] = place
    return base + 8 * count, kept


@record
class Changeable:
    """A node whose addresses change from call to call.

    moves: (position among the arguments, number among the addresses that a stretch follows). block: a launch's packed
    arguments; record: the driver's, which points there.
    """

    node: object
    step: Launch | Copy | Fill
    moves: tuple[tuple[int, int], ...]
    record: object
    block: ctypes.Array[ctypes.c_uint64] | None = None


@record
class Captured:
    """An executable graph. whole: its addresses can only be changed together, by a new graph. conditions: it has loops
    or branches, whose conditions belong to one graph, so that it cannot be updated from another graph."""

    graph: object
    key: tuple[int, ...]
    executable: object = None
    changeable: list[Changeable] = field(default_factory=list)
    whole: bool = False
    conditions: bool = False


class Builder:
    """Builds the graph of some steps of the program `name` on a device.

    follows: the references whose addresses differ between calls; key: their addresses in this call.
    """

    def __init__(self, device, name: str, resolve: Resolve, follows: Sequence[Ref], key: tuple[int, ...]):
        self.device, self.api, self.name, self.resolve = device, device.api, name, resolve
        self.follows, self.key = {ref: k for k, ref in enumerate(follows)}, key

    def capture(self, steps: Sequence[Step]) -> Captured:
        """Raises CudaError, with the user's line of the step that the driver refuses."""
        captured = self.graph(steps)
        try:
            captured.executable = self.api.instantiate(captured.graph, self.name)
        except BaseException:
            self.device.discard(self.api.destroy_graph, captured.graph)
            raise
        return captured

    def graph(self, steps: Sequence[Step]) -> Captured:
        """Not instantiated."""
        self.captured = Captured(self.api.create_graph(), self.key)
        try:
            self._add(self.captured.graph, steps, [], inside=False)
        except BaseException:
            self.device.discard(self.api.destroy_graph, self.captured.graph)
            raise
        return self.captured

    def _add(self, graph, steps: Sequence[Step], after: list, inside: bool) -> list:
        """Appends steps to a graph; returns the node that the next one follows, in a list."""
        for step in steps:
            if inside and any(follows_call(ref) for ref in places(step)):
                self.captured.whole = True
            match step:
                case Launch():
                    after = self._launch(graph, step, after, inside)
                case Copy():
                    after = self._copy(graph, step, after, inside)
                case Fill():
                    after = self._fill(graph, step, after, inside)
                case Exchange():
                    for target, source in _exchange(step):
                        after = self._copy(graph, Copy(target, source, step.bytes, step.where), after, inside)
                case Enqueue():
                    after = self._enqueue(graph, step, after)
                case While():
                    after = self._while(graph, step, after, inside)
                case Conditional():
                    after = self._conditional(graph, step, after, inside)
        return after

    def _launch(self, graph, step: Launch, after: list, inside: bool) -> list:
        function = self.device.function(step.kernel, step.shared, step.where)
        arguments, kept = pack(step.words, self.resolve)
        packed = KernelNode(function, step.grid, step.block, step.shared, arguments, kept)
        return self._kernel(graph, step, packed, after, inside)

    def _kernel(self, graph, step: Launch, packed: KernelNode, after: list, inside: bool) -> list:
        record = self.api.kernel_parameters(packed)
        node = self.api.add_kernel(graph, after, record, self._asked(step), step.where)
        self._note(node, step, step.words, record, inside, packed.keep)
        return [node]

    def _copy(self, graph, step: Copy, after: list, inside: bool) -> list:
        if not step.bytes:
            return after
        record = self.api.copy_parameters(self.resolve(step.target), self.resolve(step.source), step.bytes)
        node = self.api.add_copy(graph, after, record, self.device.context, step.where)
        self._note(node, step, places(step), record, inside)
        return [node]

    def _fill(self, graph, step: Fill, after: list, inside: bool) -> list:
        if not step.bytes:
            return after
        record = self.api.fill_parameters(self.resolve(step.target), step.byte, step.bytes)
        node = self.api.add_fill(graph, after, record, self.device.context, step.where)
        self._note(node, step, places(step), record, inside)
        return [node]

    def _enqueue(self, graph, step: Enqueue, after: list) -> list:
        if any(follows_call(ref) for ref in step.places):
            self.captured.whole = True
        stream = self.device.recording
        addresses = [self.resolve(ref) for ref in step.places]
        child = self.api.capture(stream, lambda: _call(step, stream, addresses), step.name, step.where)
        try:
            return [self.api.add_child(graph, after, child, step.where)]
        finally:
            self.device.discard(self.api.destroy_graph, child)  # the node holds a copy

    def _while(self, graph, step: While, after: list, inside: bool) -> list:
        after = self._add(graph, step.condition, after, inside)
        handle = self._condition(graph)
        after = self._set(graph, handle, step.pred, 0, step.where, after, inside)
        node, (body,) = self.api.add_conditional(graph, after, handle, "WHILE", 1, self.device.context, step.where)
        last = self._add(body, (*step.body, *step.condition), [], inside=True)
        self._set(body, handle, step.pred, 0, step.where, last, inside=True)
        return [node]

    def _conditional(self, graph, step: Conditional, after: list, inside: bool) -> list:
        count = len(step.branches)
        if count == 1:
            return self._add(graph, step.branches[0], after, inside)
        handle = self._condition(graph)
        kind = "SWITCH" if step.by_index else "IF"
        after = self._set(graph, handle, step.selector, count if step.by_index else 0, step.where, after, inside)
        node, bodies = self.api.add_conditional(graph, after, handle, kind, count, self.device.context, step.where)
        for body, branch in zip(bodies, step.branches, strict=True):
            self._add(body, branch, [], inside=True)
        return [node]

    def _condition(self, graph):
        self.captured.conditions = True
        return self.api.create_condition(graph, self.device.context)

    def _set(self, graph, handle, place: Ref, count: int, where: str, after: list, inside: bool) -> list:
        """The kernel that sets a condition from the pred there, or with a `count` from the s32."""
        if inside and follows_call(place):
            self.captured.whole = True
        kernel, function = self.device.condition_kernel(bool(count))
        words = (int(handle), place, count) if count else (int(handle), place)
        step = Launch(kernel, (1, 1, 1), (1, 1, 1), words, 0, where)
        arguments, kept = pack(words, self.resolve)
        packed = KernelNode(function, step.grid, step.block, 0, arguments, kept)
        return self._kernel(graph, step, packed, after, inside)

    def _asked(self, step: Launch) -> str:
        return f"the kernel {step.kernel.name} of {self.name} was launched on {step.grid} blocks of {step.block}"

    def _note(self, node, step, arguments, record, inside: bool, kept=(None,)) -> None:
        moves = tuple((at, self.follows[ref]) for at, ref in enumerate(arguments) if ref in self.follows)
        if moves and not inside:
            self.captured.changeable.append(Changeable(node, step, moves, record, kept[0]))

    def update(self, captured: Captured, steps: Sequence[Step]) -> bool:
        """Gives a captured stretch the addresses of this builder. False: it has to be captured anew.

        Where this raises or returns False the stretch must not be launched again.
        """
        if captured.whole:
            if captured.conditions:
                return False
            other = self.graph(steps)
            try:
                return self.api.update_graph(captured.executable, other.graph)
            finally:
                self.device.discard(self.api.destroy_graph, other.graph)
        old, new = captured.key, self.key
        for item in captured.changeable:
            block, changed = item.block, False
            for at, number in item.moves:
                if old[number] != new[number]:
                    changed = True
                    if block is not None:
                        block[at] = new[number]
            if changed:
                self._change(captured.executable, item)
        captured.key = new
        return True

    def _change(self, executable, item: Changeable) -> None:
        api, step, resolve = self.api, item.step, self.resolve
        if isinstance(step, Launch):
            status = api.change_kernel(executable, item.node, item.record)[0]
            if status:
                raise api.failure(status, self._asked(step), step.where)
        elif isinstance(step, Copy):
            record = api.copy_parameters(resolve(step.target), resolve(step.source), step.bytes)
            api.update_copy(executable, item.node, record, self.device.context, step.where)
        else:
            record = api.fill_parameters(resolve(step.target), step.byte, step.bytes)
            api.update_fill(executable, item.node, record, self.device.context, step.where)


def _exchange(step: Exchange) -> tuple[tuple[Ref, Ref], ...]:
    """The copies, (target, source), that swap two buffers through a third."""
    return ((step.scratch, step.first), (step.first, step.second), (step.second, step.scratch))


def _call(step: Enqueue, stream, addresses: Sequence[int]) -> None:
    """Lets a library enqueue its work; its errors name the user's line."""
    try:
        step.function(int(stream), *addresses)
    except CudaError as error:
        error.locate(step.where)
        raise


class Direct:
    """Runs steps on the main stream one by one, synchronizing after each, so that an error names the step.

    Loops and branches, whose bodies it leaves to its caller, and Python functions are not handled here.
    """

    def __init__(self, device, name: str, resolve: Resolve):
        self.device, self.api, self.name, self.resolve = device, device.api, name, resolve

    def run(self, step: Step) -> None:
        api, device, resolve = self.api, self.device, self.resolve
        stream = device.main
        match step:
            case Launch():
                function = device.function(step.kernel, step.shared, step.where)
                arguments, kept = pack(step.words, resolve)
                node = KernelNode(function, step.grid, step.block, step.shared, arguments, kept)
                api.launch(node, stream, self._asked(step), step.where)
            case Copy():
                self._copies(((step.target, step.source),), step)
            case Fill() if step.bytes:
                api.fill(resolve(step.target), step.byte, step.bytes, stream, step.where)
            case Exchange():
                self._copies(_exchange(step), step)
            case Enqueue():
                _call(step, stream, [resolve(ref) for ref in step.places])
        try:
            api.synchronize_stream(stream, f"{self._asked(step)} and waited for")
        except CudaError as error:
            error.locate(step.where)
            raise

    def _copies(self, pairs, step: Copy | Exchange) -> None:
        for target, source in pairs if step.bytes else ():
            asked = f"{step.bytes:,} bytes were copied by {self.name}"
            self.api.copy(self.resolve(target), self.resolve(source), step.bytes, self.device.main, asked, step.where)

    def _asked(self, step: Step) -> str:
        if isinstance(step, Launch):
            return f"the kernel {step.kernel.name} of {self.name} was launched on {step.grid} blocks of {step.block}"
        return f"a step {type(step).__name__} of {self.name} was run"
