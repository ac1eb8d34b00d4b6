"""The collectives of a program that several GPUs run together, as calls of NCCL on the GPUs' main streams."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hloom.backends.cuda.spmd.communicators import World, group_members, nccl, until_ready
from hloom.ir.build import combiner_opcode
from hloom.ir.module import Instruction, Module
from hloom.ir.ops.programs.collective import COLLECTIVES
from hloom.ir.spmd.groups import device_groups, device_pairs
from hloom.ir.types import TupleShape
from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.libraries.nccl import Communicator
from hloom.runtime.cuda.memory import Buffer

Groups = tuple[tuple[int, ...], ...]


class Exchange:
    """A collective. groups: the devices that exchange values, by number. source: by target, of a permutation."""

    def __init__(self, instruction: Instruction, module: Module, world: World):
        self.instruction, self.world = instruction, world
        self.groups = device_groups(instruction.opcode, instruction.attributes, module.replicas, module.partitions)
        self.source: dict[int, int] = {}
        if instruction.opcode == "collective-permute":
            pairs = device_pairs(instruction.attributes, module.replicas, module.partitions)
            self.source = {target: source for source, target in pairs}
            self.groups = tuple(group for group in self.groups if group)
        self.group_of = {device: group for group in self.groups for device in group}
        shape = instruction.shape
        self.results: list[Any] = list(shape.elements) if isinstance(shape, TupleShape) else [shape]
        self.reduction = combiner_opcode(instruction["to_apply"]) or "" if "to_apply" in instruction.attributes else ""
        self.moves_nothing = not any(s.bytes for s in (*self.results, *(o.shape for o in instruction.operands)))

    @property
    def asked(self) -> str:
        """For errors."""
        return f"{self.instruction.opcode} of {self.instruction.operands[0].shape!r} among {len(self.world.gpus)} GPUs"

    def load(self) -> None:
        """Makes the communicators. Every process calls this for all exchanges of a program in its order."""
        if self.calls:
            group_members(self.world, self.groups)

    @property
    def calls(self) -> bool:
        """Whether NCCL has something to do."""
        return not self.moves_nothing and any(len(group) > 1 for group in self.groups)

    def crosses(self) -> bool:
        """Whether a group has GPUs of several processes."""
        gpus = self.world.gpus
        return self.calls and any(len({gpus[d][0] for d in group}) > 1 for group in self.groups)

    def settle(self, devices: Iterable[int]) -> None:
        """Waits until calls among processes, which do not block, are on the streams: before, nothing else may be.
        Raises CudaLibraryError, and DistributedError where a process does not come."""
        if self.crosses():
            members = group_members(self.world, self.groups)
            until_ready(self.world, [members[d] for d in devices if d in members], self.asked)

    def waits_for(self, device: int, own: Iterable[int]) -> set[int]:
        """The devices of this process that must arrive before a device can continue."""
        group = self.group_of.get(device, (device,))
        return set(group) & set(own) | {device}

    def enqueue(self, device: int, on: Device, operands: Sequence[Buffer]) -> list[Buffer]:
        """Enqueues a device's part. Calls of all devices that are here are in one group of NCCL's (`nccl().group`).
        Raises CudaError."""
        group = self.group_of.get(device, ())
        alone = len(group) == 1 and self.instruction.opcode != "collective-permute"
        with on.guard() as api:
            for buffer in operands:
                on.use(buffer)
            if alone:
                return list(operands)
            results = [on.pool.take(s.bytes, self.instruction.hint or self.instruction.opcode) for s in self.results]
            if device not in group or (self.source and device not in self.source):
                for buffer, shape in zip(results, self.results, strict=True):
                    if shape.bytes:
                        api.fill(buffer.address, 0, shape.bytes, on.main)
            if device in group and not self.moves_nothing:
                if len(group) == 1:
                    api.copy(results[0].address, operands[0].address, self.results[0].bytes, on.main, self.asked)
                else:
                    member = group_members(self.world, self.groups)[device]
                    call = getattr(self, "_" + self.instruction.opcode.replace("-", "_"))
                    call(device, group, member, operands, results)
        return results

    # --- one method a kind; they are in the guard of the device ---

    def _all_reduce(self, device: int, group, member: Communicator, operands, results) -> None:
        for operand, result, shape in zip(operands, results, self.results, strict=True):
            if shape.size:
                nccl().all_reduce(member, operand.address, result.address, shape.size, shape.dtype, self.reduction)

    def _reduce_scatter(self, device: int, group, member: Communicator, operands, results) -> None:
        (shape,) = self.results
        nccl().reduce_scatter(member, operands[0].address, results[0].address, shape.size, shape.dtype, self.reduction)

    def _all_gather(self, device: int, group, member: Communicator, operands, results) -> None:
        nbytes = self.instruction.operands[0].shape.bytes
        nccl().all_gather(member, operands[0].address, results[0].address, nbytes)

    def _all_to_all(self, device: int, group, member: Communicator, operands, results) -> None:
        part = self.results[0].bytes // len(group)
        for r in range(len(group)):
            if "dimensions" in self.instruction.attributes:
                given, made = operands[0].address + r * part, results[0].address + r * part
                self._both(member, given, made, part, r)
            else:
                self._both(member, operands[r].address, results[r].address, self.results[r].bytes, r)

    @staticmethod
    def _both(member: Communicator, source: int, target: int, nbytes: int, peer: int) -> None:
        if nbytes:
            nccl().send(member, source, nbytes, peer)
            nccl().receive(member, target, nbytes, peer)

    def _collective_broadcast(self, device: int, group, member: Communicator, operands, results) -> None:
        nccl().broadcast(member, operands[0].address, results[0].address, self.results[0].bytes, 0)

    def _collective_permute(self, device: int, group, member: Communicator, operands, results) -> None:
        nbytes = self.results[0].bytes
        for target, source in self.source.items():
            if source == device and target in group:
                nccl().send(member, operands[0].address, nbytes, group.index(target))
        if device in self.source:
            nccl().receive(member, results[0].address, nbytes, group.index(self.source[device]))


def exchanges_of(module: Module, world: World) -> dict[Instruction, Exchange]:
    """The collectives of a module in the order of its text."""
    return {i: Exchange(i, module, world) for i in module.instructions() if i.opcode in COLLECTIVES}


def number_of(instruction: Instruction, device: int, module: Module) -> np.ndarray:
    """The value of `partition-id` or `replica-id` on a device."""
    found = device % module.partitions if instruction.opcode == "partition-id" else device // module.partitions
    return np.array(found, np.uint32)


__all__ = ["Exchange", "exchanges_of", "number_of"]
