"""Partitioning: a program with a device for each instruction becomes one program per device.

Every edge between devices is cut: the value is sent after its computation, and received before its first use. All uses
on one device share one receive, all receivers one send (a *channel*). Cheap values (constants, iotas, their broadcasts,
scalars computed from them) are recomputed on each device that reads them.

Loops and branches with work on several devices run on each of them: a device keeps the elements of the state that it
computes. Counters are counted on each device, and conditions on them computed everywhere; any other condition is
computed once and sent in each step.

All devices follow one global order, sends and receives stay in sequence, and a send never waits in straight-line code:
so there are no deadlocks.
"""

from __future__ import annotations

from hloom.compiler.fusibility import is_control
from hloom.ir.build import Builder
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops import OPS
from hloom.ir.ops.programs.transfer import WITHOUT_DEVICE
from hloom.ir.records import field, record
from hloom.ir.types import Shape, TupleShape

Key = Instruction | tuple[Instruction, int]  # an array: an instruction's result, or an element of its tuple


@record
class Channel:
    """A value in transfer. number: the channel id, in the order in which a computation's values are computed; sender: a
    device; receivers: devices that read it. ends: its send and its receives."""

    number: int
    shape: Shape
    sender: str
    maker: Instruction
    receivers: list[str] = field(default_factory=list)
    ends: list[Instruction] = field(default_factory=list)


@record
class Partition:
    """The programs by device. Each has all parameters of the whole; outputs[n] = (device, index of its output)."""

    modules: dict[str, Module]
    channels: list[Channel]
    outputs: list[tuple[str, int]]


def partition(
    module: Module,
    device_of: dict[Instruction, str],
    default: str,
    shared_memory=lambda a, b: True,
    apart=lambda a, b: False,
    everywhere: frozenset[int] = frozenset(),
) -> Partition:
    """Partitions a module whose loops and branches have flat states (`prepared`).

    default: the device of a program without work. device_of: the device of each instruction with work, also in called
    computations (`placed`); for a parameter that of its argument. shared_memory(a, b): whether device b can read the
    arguments of device a in place. apart(a, b): whether they are in different processes, and thus share no channel.
    everywhere: indices of the arguments that every device can read.
    """
    return _Partitioner(module, device_of, default, shared_memory, apart, everywhere).partition()


class _Partitioner:
    def __init__(self, module: Module, device_of, default: str, shared_memory, apart, everywhere: frozenset[int]):
        self.module, self.device_of, self.shared_memory = module, device_of, shared_memory
        self.default, self.apart, self.everywhere = default, apart, everywhere
        self.channels: list[Channel] = []

    def partition(self) -> Partition:
        entry = self.module.entry
        devices = devices_within(entry, self.device_of) or [self.default]
        homes = {p: self.device_of.get(p, devices[0]) for p in entry.parameters}
        for parameter, home in homes.items():
            # The owner of an argument that others can't read in place must send it.
            if parameter["index"] in self.everywhere:
                continue
            if home not in devices and not all(self.shared_memory(home, d) for d in devices):
                devices.append(home)
        level = _Level(self, entry, devices)
        for device in devices:
            builder = level.builders[device]
            for parameter in entry.parameters:
                copy = builder.parameter(parameter.shape, parameter.hint, parameter.source)
                level.place(copy, device, -1)
                home = homes[parameter]
                if home == device or parameter["index"] in self.everywhere or self.shared_memory(home, device):
                    level.local[device][parameter] = copy
        for parameter, home in homes.items():
            level.home[parameter] = home if home in devices else devices[0]
        level.run()
        roots = entry.outputs() if entry.root.opcode == "tuple" else [entry.root]
        numbers: dict[str, list[Instruction]] = {d: [] for d in devices}
        outputs = []
        for key, shape in leaf_keys(roots):
            home = level.home_of(key, devices[0])
            made = level.get(home, key, shape, len(entry.instructions))
            numbers[home].append(made)
            outputs.append((home, len(numbers[home]) - 1))
        modules = {}
        for device in devices:
            computation = level.finish(device, numbers[device], as_tuple=True)
            modules[device] = Module(f"{self.module.name}_{_identifier(device)}", computation)
        return Partition(modules, sorted(self.channels, key=lambda channel: channel.number), outputs)

    def channel(self, shape: Shape, sender: str, maker: Instruction) -> Channel:
        self.channels.append(Channel(len(self.channels), shape, sender, maker))
        return self.channels[-1]


def _identifier(device: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in device)


def devices_within(computation: Computation, device_of) -> list[str]:
    """The devices of the work of a computation and nested ones, in order of first use."""
    found: dict[str, None] = {}
    for instruction in computation.instructions:
        if instruction.opcode == "parameter":
            continue
        if is_control(instruction):
            for callee in instruction.called():
                found |= dict.fromkeys(devices_within(callee, device_of))
        if instruction in device_of:
            found[device_of[instruction]] = None
    return list(found)


def key_of(value: Instruction) -> Key:
    """The key of an array: elements of tuples are identified by the tuple's maker."""
    while value.opcode == "get-tuple-element":
        tuple_maker, index = value.operands[0], value["index"]
        if tuple_maker.opcode != "tuple":
            return tuple_maker, index
        value = tuple_maker.operands[index]
    return value


def leaf_keys(values) -> list[tuple[Key, Shape]]:
    """The arrays of values, with tuples flattened."""
    found: list[tuple[Key, Shape]] = []
    for value in values:
        if isinstance(value.shape, Shape):
            found.append((key_of(value), value.shape))
        elif value.opcode == "tuple":
            found += leaf_keys(value.operands)
        else:
            found += [((value, k), shape) for k, shape in enumerate(value.shape.elements)]
    return found


def is_cheap(instruction: Instruction) -> bool:
    """Whether it is recomputed wherever it is read, if its operands can be: constants, iotas, broadcasts, scalar
    work."""
    if instruction.opcode in ("constant", "iota", "broadcast"):
        return True
    if not isinstance(instruction.shape, Shape) or instruction.shape.dims or not instruction.operands:
        return False
    scalars = all(isinstance(o.shape, Shape) and not o.shape.dims for o in instruction.operands)
    return scalars and (OPS[instruction.opcode].family == "elementwise" or instruction.opcode == "reshape")


# For floats: correctly rounded ops, so that all devices compute the same.
_EXACT = frozenset((
    "abs", "add", "broadcast", "ceil", "clamp", "compare", "constant", "convert", "copy", "divide", "floor", "iota",
    "is-finite", "maximum", "minimum", "multiply", "negate", "reshape", "select", "sign", "sqrt", "subtract",
))  # fmt: skip


def is_same_everywhere(instruction: Instruction) -> bool:
    """Whether all kinds of devices compute the same bits, so that each may evaluate a loop's counter or a branch's
    condition: different decisions would deadlock. Constants are folded alike."""
    exact = all(i.shape.dtype.kind in "biu" for i in (instruction, *instruction.operands))
    return exact or instruction.opcode in _EXACT


class _Level:
    """The state of partitioning one computation: a builder and the available values for each device."""

    def __init__(self, owner: _Partitioner, computation: Computation, devices: list[str], everywhere=()):
        self.owner, self.computation, self.devices = owner, computation, devices
        self.device_of = owner.device_of
        self.builders = {d: Builder(computation.name) for d in devices}
        self.order: dict[str, list[tuple[tuple[int, int, int], Instruction]]] = {d: [] for d in devices}
        self.local: dict[str, dict[Key, Instruction]] = {d: {} for d in devices}
        self.home: dict[Key, str] = {}
        self.position: dict[Instruction, int] = {}
        self.sent: dict[tuple[Key, str, str], Channel] = {}  # by value, sender and, in another process, receiver
        self.arrived: dict[tuple[str, Key], int] = {}  # where a device has received a value
        self.everywhere: set[Key] = set(everywhere)  # elements of the state kept on each device
        constant: set[Key] = set()
        for instruction in computation.instructions:
            operands = {key_of(o) for o in instruction.operands}
            if is_cheap(instruction) and operands <= self.everywhere:
                if operands <= constant:
                    constant.add(instruction)
                if operands <= constant or is_same_everywhere(instruction):
                    self.everywhere.add(instruction)

    # --- building ---

    def place(self, instruction: Instruction, device: str, position: int, rank: int = 1) -> Instruction:
        """Inserts an instruction into a device's order, after those with smaller (position, rank)."""
        self.order[device].append(((position, rank, len(self.order[device])), instruction))
        return instruction

    def emit(self, device: str, position: int, opcode: str, *operands, rank: int = 1, like=None, **rest) -> Instruction:
        builder = self.builders[device]
        builder.source, builder.made_by = (None, ()) if like is None else (like.source, (*like.made_by, "partition"))
        count = len(builder.instructions)
        made = builder.emit(opcode, *operands, **rest)
        for instruction in builder.instructions[count:]:
            self.place(instruction, device, position, rank)
        return made

    def finish(self, device: str, results: list[Instruction], as_tuple: bool) -> Computation:
        builder = self.builders[device]
        last = len(self.computation.instructions) + 1
        root = self.emit(device, last, "tuple", *results) if as_tuple else results[0]
        builder.instructions = [i for _, i in sorted(self.order[device], key=lambda pair: pair[0])]
        self._number_channels()
        return builder.finish(root)

    def _number_channels(self) -> None:
        """Renumbers channels from order of request to the order in which values are computed, so that receivers receive
        in that order (`fuse`)."""
        own = sorted(self.sent.values(), key=lambda channel: self.position.get(channel.maker, -1))
        for channel, number in zip(own, sorted(channel.number for channel in own), strict=True):
            channel.number = number
            for end in channel.ends:
                end.attributes["channel_id"] = number

    def state(self, device: str, parameter: Instruction, shapes: list[Shape], taken: list[int]) -> None:
        """The parameter of a device's part of a loop or branch: a tuple of some elements of the whole state."""
        own = self.builders[device].parameter(TupleShape([shapes[k] for k in taken]), parameter.hint)
        self.place(own, device, -1)
        self.elements(device, -1, own, parameter, taken)

    def elements(self, device: str, position: int, made: Instruction, whole: Instruction, taken: list[int]) -> None:
        """Records that a tuple on a device has these elements of the whole tuple."""
        for number, k in enumerate(taken):
            self.local[device][whole, k] = self.emit(device, position, "get-tuple-element", made, index=number)
            self.home.setdefault((whole, k), device)

    # --- values ---

    def home_of(self, key: Key, otherwise: str) -> str:
        if key in self.home:
            return self.home[key]
        return next((d for d in self.devices if key in self.local[d]), otherwise)

    def get(self, device: str, key: Key, shape: Shape, position: int) -> Instruction:
        """A value on a device: available, recomputed, or received."""
        found = self.local[device].get(key)
        if found is not None:
            return found
        if isinstance(key, Instruction) and (key in self.everywhere or self._is_slice_here(device, key)):
            operands = [self.get(device, key_of(o), o.shape, position) for o in key.operands]
            made = self.place(self.builders[device].add(key.with_operands(tuple(operands))), device, position)
        else:
            made = self._receive(device, key, shape, position)
        self.local[device][key] = made
        return made

    def _is_slice_here(self, device: str, instruction: Instruction) -> bool:
        """Whether it is a slice of a local value, which is read in place, unlike a received one."""
        return instruction.opcode == "slice" and key_of(instruction.operands[0]) in self.local[device]

    def _receive(self, device: str, key: Key, shape: Shape, position: int) -> Instruction:
        maker = key if isinstance(key, Instruction) else key[0]
        home, apart = self.home[key], self.owner.apart
        if apart(home, device):
            # A device of the same process that has already received the value forwards it.
            home = next((d for d in self.devices if not apart(d, device) and (d, key) in self.arrived), home)
        link = key, home, device if apart(home, device) else ""
        channel = self.sent.get(link)
        if channel is None:
            value = self.local[home][key]
            channel = self.sent[link] = self.owner.channel(shape, home, maker)
            after, rank = self.position.get(maker, -1), 2
            if (home, key) in self.arrived:
                after, rank = self.arrived[home, key], 0
            send = self.emit(home, after, "send", value, rank=rank, like=maker, channel_id=channel.number)
            channel.ends.append(send)
        channel.receivers.append(device)
        received = self.emit(
            device, position, "recv", shape=shape, rank=0, like=maker, channel_id=channel.number, hint=maker.hint
        )
        self.arrived[device, key] = position
        channel.ends.append(received)
        return received

    def operand(self, device: str, value: Instruction, position: int) -> Instruction:
        """An operand, with tuples assembled from their arrays."""
        if isinstance(value.shape, Shape):
            return self.get(device, key_of(value), value.shape, position)
        parts = [self.get(device, key, shape, position) for key, shape in leaf_keys([value])]
        return self.emit(device, position, "tuple", *parts)

    # --- instructions ---

    def run(self) -> None:
        for position, instruction in enumerate(self.computation.instructions):
            self.position[instruction] = position
            if instruction.opcode in WITHOUT_DEVICE or instruction in self.everywhere:
                continue
            devices = []
            if is_control(instruction):
                devices = list(
                    dict.fromkeys(d for c in instruction.called() for d in devices_within(c, self.device_of))
                )
            if len(devices) > 1:
                parts = _While if instruction.opcode == "while" else _Conditional
                parts(self, instruction, position, devices).emit()
            else:
                self._single(instruction, position, self.device_of[instruction])

    def _single(self, instruction: Instruction, position: int, device: str) -> None:
        operands = tuple(self.operand(device, o, position) for o in instruction.operands)
        made = self.place(self.builders[device].add(instruction.with_operands(operands)), device, position)
        self.put(device, instruction, made, position)

    def put(self, device: str, instruction: Instruction, made: Instruction, position: int) -> None:
        """Records the values of an instruction computed on a device."""
        if isinstance(instruction.shape, Shape):
            self.local[device][instruction] = made
            self.home[instruction] = device
            return
        for k in range(len(instruction.shape.elements)):
            self.local[device][instruction, k] = self.emit(device, position, "get-tuple-element", made, index=k)
            self.home[instruction, k] = device


def _readers(computation: Computation, device_of) -> dict[int, set[str]]:
    """For each element of a computation's parameter the devices whose work reads it."""
    (parameter,) = computation.parameters
    found: dict[int, set[str]] = {k: set() for k in range(len(parameter.shape.elements))}
    passed: dict[Instruction, set[int]] = {}  # elements that cheap instructions depend on
    for instruction in computation.instructions:
        used: set[int] = set()
        for key, _ in leaf_keys(instruction.operands):
            if isinstance(key, tuple) and key[0] is parameter:
                used.add(key[1])
            elif isinstance(key, Instruction):
                used |= passed.get(key, set())
        if instruction.opcode in WITHOUT_DEVICE:
            continue
        if is_cheap(instruction):
            passed[instruction] = used
        devices = {device_of[instruction]} if instruction in device_of else set()
        if is_control(instruction):
            devices |= {d for c in instruction.called() for d in devices_within(c, device_of)}
        for k in used:
            found[k] |= devices
    return found


class _While:
    """A loop with work on several devices."""

    def __init__(self, level: _Level, loop: Instruction, position: int, devices: list[str]):
        self.level, self.loop, self.position, self.devices = level, loop, position, devices
        self.condition, self.body = loop["condition"], loop["body"]
        (self.state,) = self.body.parameters
        self.shapes = [shape for _, shape in leaf_keys([loop])]
        self.given = leaf_keys([loop.operands[0]])
        self.results = [key for key, _ in leaf_keys([self.body.root])]
        self.kept = {k for k, key in enumerate(self.results) if key == (self.state, k)}
        self.counted = self._counted()
        self.homes = self._homes()

    def _counted(self) -> set[int]:
        """The elements that each device computes itself: scalars computed from such, from kept elements, and from
        constants."""
        counted = {k for k, shape in enumerate(self.shapes) if not shape.dims}
        while True:
            known: set[Key] = {(self.state, k) for k in counted}
            for instruction in self.body.instructions:
                if is_cheap(instruction) and all(key_of(o) in known for o in instruction.operands):
                    if not instruction.shape.dims and is_same_everywhere(instruction):
                        known.add(instruction)
            left = {k for k in counted if self.results[k] in known}
            if left == counted:
                return counted
            counted = left

    def _homes(self) -> dict[int, str]:
        """The device of each element that is neither counted nor kept: where the body computes its next value."""
        device_of = self.level.device_of
        homes: dict[int, str] = {}
        waiting = [k for k in range(len(self.shapes)) if k not in self.kept | self.counted]
        for _ in range(len(waiting) + 1):
            for k in waiting:
                key = self.results[k]
                if isinstance(key, tuple) and key[0] is self.state:
                    found = homes.get(key[1])
                else:
                    found = device_of.get(key if isinstance(key, Instruction) else key[0])
                if found in self.devices:
                    homes[k] = found
        return {k: homes.get(k, self.devices[0]) for k in waiting}

    def _states(self) -> dict[str, list[int]]:
        """The elements that each device keeps."""
        device_of = self.level.device_of
        body, condition = _readers(self.body, device_of), _readers(self.condition, device_of)
        states: dict[str, list[int]] = {d: [] for d in self.devices}
        for k in range(len(self.shapes)):
            if k in self.counted:
                readers = set(self.devices)
            elif k in self.kept:
                readers = (body[k] | condition[k]) & set(self.devices) or {self.devices[0]}
            else:
                readers = {self.homes[k]}
            for device in self.devices:
                if device in readers:
                    states[device].append(k)
        return states

    def _inner(self, computation: Computation, states) -> _Level:
        (parameter,) = computation.parameters
        level = _Level(self.level.owner, computation, self.devices, [(parameter, k) for k in sorted(self.counted)])
        for device in self.devices:
            level.state(device, parameter, self.shapes, states[device])
        for k, home in self.homes.items():
            level.home[parameter, k] = home
        return level

    def emit(self) -> None:
        outer, loop, position = self.level, self.loop, self.position
        states = self._states()
        condition = self._inner(self.condition, states)
        condition.run()
        end = len(self.condition.instructions)
        root = key_of(self.condition.root)
        shape = self.condition.root.shape
        conditions = {
            d: condition.finish(d, [value], as_tuple=False)
            for d, value in [(d, condition.get(d, root, shape, end)) for d in self.devices]
        }
        body = self._inner(self.body, states)
        body.run()
        end = len(self.body.instructions)
        following = {d: [body.get(d, self.results[k], self.shapes[k], end) for k in states[d]] for d in self.devices}
        bodies = {d: body.finish(d, following[d], as_tuple=True) for d in self.devices}
        for device in self.devices:
            parts = [outer.get(device, *self.given[k], position) for k in states[device]]
            start = outer.emit(device, position, "tuple", *parts)
            made = outer.emit(
                device, position, "while", start, like=loop, hint=loop.hint,
                condition=conditions[device], body=bodies[device],
            )  # fmt: skip
            outer.elements(device, position, made, loop, states[device])
        for k, home in self.homes.items():
            outer.home[loop, k] = home


class _Conditional:
    """Branches with work on several devices: each executes its part of the same branch."""

    def __init__(self, level: _Level, instruction: Instruction, position: int, devices: list[str]):
        self.level, self.instruction, self.position, self.devices = level, instruction, position, devices
        self.branches = instruction["branch_computations"]
        self.results = leaf_keys([instruction])
        self.homes = [self._home(k) for k in range(len(self.results))]

    def _home(self, k: int) -> str:
        for branch in self.branches:
            key = leaf_keys([branch.root])[k][0]
            found = self.level.device_of.get(key if isinstance(key, Instruction) else key[0])
            if found in self.devices:
                return found
        return self.devices[0]

    def emit(self) -> None:
        outer, position, instruction = self.level, self.position, self.instruction
        selector, *arguments = instruction.operands
        branches: dict[str, list[Computation]] = {d: [] for d in self.devices}
        operands: dict[str, list[Instruction]] = {d: [] for d in self.devices}
        for branch, argument in zip(self.branches, arguments, strict=True):
            (parameter,) = branch.parameters
            given = leaf_keys([argument])
            readers = _readers(branch, outer.device_of)
            results = [key for key, _ in leaf_keys([branch.root])]
            for k, home in enumerate(self.homes):  # invariant, or the result of cheap work
                for element in _roots(results[k], parameter):
                    readers[element].add(home)
            inner = _Level(outer.owner, branch, self.devices)
            for device in self.devices:
                taken = [k for k in range(len(given)) if device in readers[k]]
                inner.state(device, parameter, [shape for _, shape in given], taken)
                parts = [outer.get(device, *given[k], position) for k in taken]
                operands[device].append(outer.emit(device, position, "tuple", *parts))
            inner.run()
            end = len(branch.instructions)
            own = {
                d: [inner.get(d, results[k], self.results[k][1], end) for k, h in enumerate(self.homes) if h == d]
                for d in self.devices
            }
            for device in self.devices:
                branches[device].append(inner.finish(device, own[device], as_tuple=True))
        for device in self.devices:
            chosen = outer.operand(device, selector, position)
            made = outer.emit(
                device, position, "conditional", chosen, *operands[device], like=instruction, hint=instruction.hint,
                branch_computations=tuple(branches[device]),
            )  # fmt: skip
            for number, k in enumerate(k for k, home in enumerate(self.homes) if home == device):
                key, _ = self.results[k]
                outer.local[device][key] = outer.emit(device, position, "get-tuple-element", made, index=number)
                outer.home[key] = device


def _roots(key: Key, parameter: Instruction) -> set[int]:
    """The elements of a parameter that a value is, or is computed from by cheap instructions."""
    if isinstance(key, tuple):
        return {key[1]} if key[0] is parameter else set()
    if not is_cheap(key):
        return set()
    return set().union(*[_roots(key_of(o), parameter) for o in key.operands]) if key.operands else set()
