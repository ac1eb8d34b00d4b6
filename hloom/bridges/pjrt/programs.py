"""Compiles jax's program to an executable that native code calls."""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax._src import xla_bridge
from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib import xla_client

from hloom._version import __version__
from hloom.backends.cpu.compilation import CpuExecutable, compile_module
from hloom.backends.cpu.driver import driver
from hloom.backends.spmd.backend import SpmdBackend
from hloom.backends.spmd.program import SpmdExecutable
from hloom.backends.text import program_text
from hloom.bridges.pjrt.callbacks import held
from hloom.bridges.pjrt.decoding import decoded, module_of, text_of
from hloom.bridges.pjrt.memory import Block, Text, address_of, array_of
from hloom.bridges.pjrt.protobuf import fields, numbers
from hloom.bridges.pjrt.spmd.inspection import with_observers
from hloom.bridges.pjrt.spmd.orders import in_one_order
from hloom.bridges.pjrt.spmd.partitioners import with_rules
from hloom.bridges.pjrt.spmd.shardings import Layouts, partitioned_program, signature, state_layouts
from hloom.compiler.analysis import arithmetic_flops
from hloom.errors import ArgumentError, HloomError, ReplicationWarning, UnsupportedError
from hloom.ir.module import Instruction, map_module
from hloom.ir.stablehlo import parse_program, to_module
from hloom.ir.types import HLO_NAME
from hloom.platforms.backend import CompileOptions
from hloom.runtime import program as runtime
from hloom.runtime.driver_source import BLOCK_BUSY, BLOCK_FLAGS, FLAG_PARALLEL
from hloom.runtime.host_steps import take_error
from hloom.runtime.pjrt.blocks import OUT
from hloom.runtime.pjrt.interface import FLOAT, NAMED_VALUE_WORDS, TYPES
from hloom.runtime.spmd import SpmdProgram, Team
from hloom.runtime.team_source import TEAM_STOP

__all__ = ["MEMORY_KINDS", "Executable", "Source", "deserialized", "serialized"]

MAGIC = b"hloom-pjrt-1\0"


class Source:
    """A program as jax hands it over: MLIR (bytes), its format, and serialized compile options."""

    def __init__(self, code: bytes, options: bytes):
        self.code, self.options = code, options

    def fingerprint(self) -> str:
        return hashlib.sha256(b"\0".join((__version__.encode(), self.code, self.options))).hexdigest()


def serialized(source: Source) -> bytes:
    """The program and its options: loading compiles it again, with the kernels from hloom's cache."""
    version = __version__.encode()
    head = MAGIC + struct.pack("<QQQ", len(version), len(source.options), len(source.code))
    return head + version + source.options + source.code


def deserialized(data: bytes) -> Source:
    """The inverse of `serialized`. Raises ArgumentError for other bytes, and for those of another version."""
    asked = "loading a serialized executable"
    start = len(MAGIC) + 24
    if not data.startswith(MAGIC) or len(data) < start:
        raise ArgumentError(asked, "bytes that hloom's plugin did not write", "compile the program again", "")
    sizes = struct.unpack("<QQQ", data[len(MAGIC) : start])
    if start + sum(sizes) != len(data):
        raise ArgumentError(asked, f"{len(data)} bytes of {start + sum(sizes)}", "compile the program again", "")
    ends = np.cumsum([start, *sizes]).tolist()
    version, options, code = (data[low:high] for low, high in itertools.pairwise(ends))
    if version.decode("utf-8", "replace") != __version__:
        raise ArgumentError(
            asked, f"written by hloom {version.decode('utf-8', 'replace')}, this is {__version__}",
            "compile the program again", "",
        )  # fmt: skip
    return Source(code, options)


def decoded_spread(code: bytes, placement: Placement) -> tuple[str, Layouts]:
    """The same of a program for several devices, and its layouts (see `state_layouts`)."""
    with jax_mlir.make_ir_context() as context:
        module = module_of(code, context)
        found = state_layouts(module, len(placement.devices), placement.free_inputs, placement.free_outputs)
        return text_of(module), found


MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")  # those of jax's CPU; the first is the default
_ORDERED = re.compile(r'mhlo\.layout_mode = "\{')
_ALIAS = re.compile(r"tf\.aliasing_output|jax\.buffer_donor")


def _donated(tree: Any) -> tuple[frozenset[int], frozenset[int]]:
    """The arguments of @main that the program may consume, and those that it always consumes."""
    may, must = set(), set()
    function = tree.functions()["main"]
    for k, attributes in enumerate(function.attributes.get("arg_attrs", ())):
        if "tf.aliasing_output" in attributes:
            must.add(k)
        elif attributes.get("jax.buffer_donor"):
            may.add(k)
    return frozenset(may | must), frozenset(must)


def _memories(tree: Any, count: int) -> list[int]:
    """For each result of @main the number of its memory kind. Raises UnsupportedError for another kind."""
    stated: Sequence[dict] = tree.functions()["main"].attributes.get("res_attrs") or ({},) * count
    kinds = [attributes.get("mhlo.memory_kind", MEMORY_KINDS[0]) for attributes in stated]
    for kind in kinds:
        if kind not in MEMORY_KINDS:
            raise UnsupportedError(
                f"a result in memory '{kind}'", f"devices of hloom have {', '.join(MEMORY_KINDS)}",
                "name one of these", "",
            )  # fmt: skip
    return [MEMORY_KINDS.index(kind) for kind in kinds]


class Placement(NamedTuple):
    """Where a program runs. devices: indices. assignment: a DeviceAssignmentProto. free_inputs, free_outputs: whether
    layouts that are not stated are the compiler's (for all, or for each)."""

    devices: tuple[int, ...]
    assignment: bytes
    free_inputs: tuple[bool, ...]
    free_outputs: tuple[bool, ...]


@functools.cache
def _check_overrides(overrides: tuple[tuple[str, Any], ...]) -> None:
    """Raises ArgumentError for names and values of compiler_options that XLA refuses; hloom has its own settings, and
    reads none of these."""
    found = [f"No such compile option: '{name}'" for name, _ in overrides if not name.startswith("xla_")]
    checked = [(name, value) for name, value in overrides if not name.startswith("xla_dump")]  # which write files
    if checked and not found:
        options = xla_client.CompileOptions()
        options.env_option_overrides = checked
        cpu = xla_bridge.get_backend("cpu")
        try:
            cpu.compile_and_load(_NOTHING, xla_client.DeviceList(tuple(cpu.local_devices()[:1])), options)
        except xla_client.XlaRuntimeError as error:
            found = [str(error).removeprefix("INVALID_ARGUMENT: ")]
    if found:
        raise ArgumentError(
            found[0], "compiler_options of jax.jit or compile()",
            "leave it out; hloom's settings are hl.config and HLOOM_*", "",
        )  # fmt: skip


_NOTHING = b"module @options { func.func public @main() { return } }"


def _placement(options: bytes, count: int) -> Placement:
    """The content of compile options, for a client with `count` devices. Raises UnsupportedError."""
    found = xla_client.CompileOptions.ParseFromString(options)
    wanted = found.num_replicas * found.num_partitions
    if found.num_replicas != 1:
        raise UnsupportedError(
            f"a program for {found.num_replicas} replicas", "hloom's programs of jax have partitions only",
            "lower it by a newer jax, in which pmap makes partitions", "",
        )  # fmt: skip
    if wanted > count:
        raise UnsupportedError(
            f"a program for {wanted} devices", f"{count} of hloom",
            f"set HLOOM_NUM_CPU_DEVICES={wanted}, or use fewer devices", "",
        )  # fmt: skip
    _check_overrides(tuple(found.env_option_overrides))
    default = np.arange(wanted, dtype=np.int32).reshape(1, wanted)
    data = (found.device_assignment or xla_client.DeviceAssignment.create(default)).serialize()
    build = found.executable_build_options
    numbers = tuple(_device_ids(data))
    if any(not 0 <= number < count for number in numbers):
        raise UnsupportedError(
            f"a program for the devices {', '.join(map(str, numbers))}", f"{count} devices of hloom, from 0 on",
            f"set HLOOM_NUM_CPU_DEVICES={max(numbers) + 1}, or compile it again", "",
        )  # fmt: skip
    return Placement(
        numbers, data, tuple(build.allow_spmd_sharding_propagation_to_parameters),
        tuple(build.allow_spmd_sharding_propagation_to_output),
    )  # fmt: skip


def _device_ids(data: bytes) -> list[int]:
    """The device ids in a DeviceAssignmentProto of one replica: fields 3 (computation_devices), in each field 1."""
    found: list[int] = []
    for number, row in fields(data):
        if number == 3 and isinstance(row, bytes):
            for inner, value in fields(row):
                if inner == 1:
                    found += [value] if isinstance(value, int) else numbers(value)
    return found


def _fitting(
    donated: frozenset[int], consumed: frozenset[int], inputs: Sequence[int], outputs: Sequence[int]
) -> frozenset[int]:
    """The donated arguments of the size of a result, each paired with a different result: callers assume that a program
    for several devices consumes these. Sizes are bytes on a device."""
    left = list(outputs)
    for k in sorted(consumed):
        if inputs[k] in left:
            left.remove(inputs[k])
    found = set()
    for k in sorted(donated - consumed):
        if inputs[k] in left:
            left.remove(inputs[k])
            found.add(k)
    return frozenset(found)


def _without_sharding(instruction: Instruction) -> Instruction:
    if instruction.sharding is None:
        return instruction
    made = instruction.with_operands(instruction.operands)
    made.sharding = None
    return made


class Executable:
    """A compiled program, and the blocks of memory that native code reads. number: by which native code names it."""

    def __init__(self, source: Source, client: Block, devices: Sequence[Block], number: int):
        self.source, self.number = source, number
        placement = _placement(source.options, len(devices))
        self.assignment, self.layouts = placement.assignment, None
        index, count = placement.devices[0], len(placement.devices)
        if count == 1:
            self.text = decoded(source.code)
        if count > 1 or _ORDERED.search(self.text):
            self.text, self.layouts = decoded_spread(source.code, placement)
        self.callbacks = held(self.text)
        tree = parse_program(self.text, "jax")
        donated, consumed = _donated(tree) if _ALIAS.search(self.text) else (frozenset(), frozenset())
        module = to_module(tree, shardings=count > 1)
        self.compiled: CpuExecutable | SpmdExecutable
        if count == 1:
            self.compiled, self.driver = compile_module(module, donated=donated, device=index), driver(index)
        else:
            module.partitions = count
            options = CompileOptions(devices=tuple(f"cpu:{k}" for k in placement.devices), donated=donated)
            module = with_observers(with_rules(in_one_order(module)))
            with ReplicationWarning.silenced(has_rule=True):  # as XLA, which gathers a split matrix without a word
                compiled: SpmdExecutable = SpmdBackend().compile(module, options)
            self.compiled, self.driver = compiled, compiled.runner.team
        self.name = tree.name or "main"
        self.program = self.compiled.runner.program
        self._memories = _memories(tree, len(self.program.outputs))
        self._frames: list[tuple[runtime.Frame | Team, Block, np.ndarray]] = []
        self._partitioned: bytes | None = None
        self._costs: tuple[int, np.ndarray, list[Text]] | None = None
        self.block = Block("EXECUTABLE")
        self._fill(client, [devices[k] for k in placement.devices], donated, consumed)

    def _fill(self, client: Block, devices: list[Block], donated: frozenset[int], consumed: frozenset[int]) -> None:
        outputs, inputs = self.program.outputs, self.program.inputs
        used = consumed | (donated & set(self.program.donated.values()))
        if len(devices) > 1:
            used |= _fitting(donated, consumed, [s.bytes for s in inputs], [s.bytes for s in outputs])
        aliases = {k: given for k, given in self.program.donated.items() if given in used}
        kinds = [Text(kind) for kind in MEMORY_KINDS]
        self._kept = kinds
        block, local = self.block, [shape.dims for shape in outputs]
        block.update(
            {
                "refs": 1,
                "client": client.address,
                "device": devices[0].address,
                "input_count": len(inputs),
                "output_count": len(outputs),
                "inputs": array_of([shape.bytes for shape in inputs]),
                "donated": array_of(sorted(used)),
                "donated_count": len(used),
                "name": Text(self.name),
                "types": array_of([TYPES[HLO_NAME[shape.dtype]] for shape in outputs], np.int32),
                "dims": array_of([d for dims in local for d in dims]),
                "dim_sizes": array_of([len(dims) for dims in local]),
                "kinds": array_of([kinds[k].address for k in self._memories]),
                "kind_sizes": array_of([kinds[k].size for k in self._memories]),
                "fingerprint": Text(self.source.fingerprint()),
                "devices": array_of([device.address for device in devices]),
                "device_count": len(devices),
                "replicas": 1,
                "partitions": len(devices),
                "number": self.number,
                "state": self.driver.state_address,
                "argument_bytes": sum(shape.bytes for shape in inputs),
                "output_bytes": sum(shape.bytes for shape in outputs),
                "alias_bytes": sum(outputs[k].bytes for k in aliases),
                "temporary_bytes": self.program.arena_bytes,
                "runs_python": int(self.compiled.runner.runs_python),
            }
        )
        rows, dims = [], [array_of(own) for own in local]
        for k, shape in enumerate(outputs):
            row = [0] * OUT["OUT_WORDS"]
            row[OUT["OUT_TYPE"]], row[OUT["OUT_NDIMS"]] = TYPES[HLO_NAME[shape.dtype]], len(local[k])
            row[OUT["OUT_DIMS"]], row[OUT["OUT_BYTES"]] = address_of(dims[k]), shape.bytes
            row[OUT["OUT_MEMORY"]] = self._memories[k]
            row[OUT["OUT_DONOR"]] = self.program.donated.get(k, -1)
            rows += row
        self._dims = dims
        block["outputs"] = array_of(rows)
        self._flag_parallel(self.new_frame())

    def _flag_parallel(self, frame: Block) -> None:
        activation = self._frames[0][0].activation
        self.block["parallel"] = int(activation.block[BLOCK_FLAGS]) & FLAG_PARALLEL
        activation.block[BLOCK_BUSY] = 0

    def new_frame(self) -> Block:
        """A frame more, which is busy."""
        runner = self.compiled.runner
        made = runner.new_team() if isinstance(runner, SpmdProgram) else runner.new_frame()
        made.activation.block[BLOCK_BUSY] = 1
        block = Block("FRAME")
        held = array_of([0] * made.activation.slots.size)
        block.update(
            {
                "next": self.block["frames"],
                "block": made.activation.address,
                "state": made.state,
                "done": made.done,
                "stop": address_of(made.words[TEAM_STOP:]) if isinstance(made, Team) else 0,
                "held": held,
            }
        )
        self._frames.append((made, block, held))
        self.block["frames"] = block.address
        return block

    def raised(self, frame: int) -> BaseException:
        """The exception of a Python step, after a call with the frame at an address."""
        for made, block, _ in self._frames:
            if block.address == frame:
                if isinstance(made, Team):
                    return self._ended(made)
                error = take_error(made.state)
                made.done[0] = 1
                return error or KeyboardInterrupt()
        raise KeyError(frame)

    def _ended(self, team: Team) -> BaseException:
        """Why a call of several devices ended before its end."""
        assert isinstance(self.compiled.runner, SpmdProgram)
        error = self.compiled.runner.error(team)
        team.reset()
        return error

    def partitioned(self) -> bytes:
        """The program of each device, with the layouts of its arguments and results, as jax reads it."""
        if self._partitioned is None:
            assert self.layouts is not None
            count = self.block["device_count"]
            try:
                plain = map_module(self.compiled.module, _without_sharding)
                text = program_text(plain, "stablehlo")
                self._partitioned = partitioned_program(text, self.layouts, count)
            except (HloomError, ValueError):  # an op that only hloom has
                text = signature(self.program.inputs, self.program.outputs)
                self._partitioned = partitioned_program(text, self.layouts, count)
        return self._partitioned

    def cost_block(self) -> tuple[int, int]:
        """(number, address) of the PJRT_NamedValues of hloom's cost analysis."""
        if self._costs is None:
            found = {k: v for k, v in self.compiled.cost_analysis().items() if isinstance(v, int | float)}
            found["flops"] = arithmetic_flops(self.compiled.module.entry)  # XLA counts transcendentals apart
            names, rows = [Text(name) for name in found], []
            for name, value in zip(names, found.values(), strict=True):
                bits = int(np.float32(value).view(np.uint32))
                rows += [8 * NAMED_VALUE_WORDS, 0, name.address, name.size, FLOAT, bits, 1]
            self._costs = len(found), array_of(rows), names
        return self._costs[0], address_of(self._costs[1])

    def donated_twice(self, number: int) -> HloomError:
        """The error for an input that is another input's buffer, of which one is donated."""
        return ArgumentError(
            f"'{self.name}' was given one buffer twice, once to be donated",
            f"argument {number}, {self.program.inputs[number]!r}", "pass a copy, or do not donate it", "",
        )  # fmt: skip

    def mismatch(self, found: int) -> HloomError:
        """The error for an input (its number) of another size, or (-1 - count) for another number of inputs."""
        shapes = ", ".join(map(repr, self.program.inputs))
        if found < 0:
            return ArgumentError(
                f"'{self.name}' takes {len(self.program.inputs)} arguments on each of {self.block['device_count']} "
                f"devices: {shapes}",
                f"{-1 - found} arguments, or another number of devices",
                "call it with the arguments that it was compiled for", "",
            )  # fmt: skip
        return ArgumentError(
            f"argument {found} of '{self.name}' is {self.program.inputs[found]!r}", "a buffer of another size",
            "pass an array of the shape and dtype that it was compiled for", "",
        )  # fmt: skip
