"""KernelRequest: a fused computation with the facts about buffers that its kernel depends on."""

from __future__ import annotations

import math
from functools import cached_property

from hloom.compiler.kernel_ir.builder import operation
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernels.codegen.constants import sized
from hloom.compiler.kernels.codegen.description import Block, Nest
from hloom.compiler.kernels.codegen.writer import Writer
from hloom.compiler.targets.capabilities import Capabilities
from hloom.ir.module import Computation, Instruction, reachable
from hloom.ir.ops import OPS
from hloom.ir.records import field, record
from hloom.ir.types import COMPLEX, HLO_NAME


@record
class KernelRequest:
    """What a nest is made from.

    computation: the fused computation. Scalar constants in it become literals, or arguments (`constants`).
    shared: output number -> parameter number whose buffer the output overwrites in place.
    target: what it will run on; by default one without any special capability.
    kept: numbers of parameters that are loop-invariant in the surrounding loop.
    leaving: numbers of outputs that are results of the program and that nothing in it reads.
    """

    computation: Computation
    shared: dict[int, int] = field(default_factory=dict)
    target: Capabilities = Capabilities()
    kept: frozenset[int] = frozenset()
    leaving: frozenset[int] = frozenset()

    def __post_init__(self):
        self.outputs = self.computation.outputs()
        self.names: dict[Instruction, str] = {}
        by_parameter = {p: k for k, p in self.shared.items()}
        for k, parameter in enumerate(self.computation.parameters):
            self.names[parameter] = f"io{by_parameter[k]}" if k in by_parameter else f"in{k}"

    def stays(self, instruction: Instruction) -> bool:
        """Whether a value is loop-invariant in the surrounding loop."""
        changing = {p for k, p in enumerate(self.computation.parameters) if k not in self.kept}
        return bool(self.kept) and changing.isdisjoint(reachable([instruction]))

    def instruction(self, opcode: str) -> Instruction:
        """The instruction of this opcode, of which a kernel of its own kind has one."""
        (found,) = [i for i in self.computation.instructions if i.opcode == opcode]
        return found

    def output_name(self, k: int) -> str:
        return f"io{k}" if k in self.shared else f"out{k}"

    def streamed(self, k: int) -> bool:
        """Whether output `k` can have non-temporal stores; `past_caches` says whether it has."""
        direct = k not in self.shared and self.outputs[k].dtype not in COMPLEX
        return direct and self.target.nontemporal_threshold > 0

    def past_caches(self, run: int = 0) -> frozenset[str]:
        """The outputs (pointers) that have non-temporal stores, as far as they can: all, where the kernel reads and
        writes more than the last cache holds; with a little less traffic only results that leave the program.

        run: elements that are stored one after the other; 0: all. Where a run is no multiple of a vector, most runs
        begin inside of one, so that they need ordinary stores, and lines shared by two runs would be written twice.
        """
        moved, target = self.moved, self.target
        if not target.nontemporal_threshold or moved < target.nontemporal_result_threshold:
            return frozenset()
        names = frozenset(
            self.output_name(k)
            for k, o in enumerate(self.outputs)
            if not run * o.dtype.itemsize % target.nontemporal_bytes
        )
        return names if moved >= target.nontemporal_threshold else names & self.leaving_names

    @property
    def leaving_names(self) -> frozenset[str]:
        return frozenset(self.output_name(k) for k in self.leaving)

    @cached_property
    def moved(self) -> int:
        """Bytes of what the kernel reads and writes."""
        return sum(value.shape.bytes for value in (*self.computation.parameters, *self.outputs))

    @property
    def supports_loop_splitting(self) -> bool:
        return self.target.supports_loop_splitting

    def title(self, kind: str) -> str:
        """A name for the kernel from its main ops: structure only, so that equal kernels have equal names."""
        skipped = {"parameter", "constant", "tuple", "broadcast", "get-tuple-element", "reshape", "bitcast"}
        ops = [i.opcode.replace("-", "_") for i in self.computation.instructions if i.opcode not in skipped]
        distinct = list(dict.fromkeys(reversed(ops)))[:3]
        return "_".join([kind, *reversed(distinct)])

    def writer(self, dims: tuple[int, ...], names: Names | None = None) -> Writer:
        """A writer of elements. names: of the function's variables, where it has others besides."""
        writer = Writer(dict(self.names), dims, names)
        for instruction, name in (*self.names.items(), *((o, self.output_name(k)) for k, o in enumerate(self.outputs))):
            writer.pointer(name, instruction.dtype)
        writer.sized = self.sized
        return writer

    @cached_property
    def sized(self) -> frozenset[Instruction]:
        """The constants that become arguments."""
        return sized(self.computation)

    def pointers(self, writer: Writer) -> list[tuple[str, str]]:
        """(name, dtype) of every pointer parameter: all inputs that are read, then all outputs."""
        return [p for p in self.input_pointers() if p[0] in writer.loads] + self.output_pointers()

    def input_pointers(self) -> list[tuple[str, str]]:
        """(name, HLO dtype) of every parameter that no output overwrites."""
        names = [(self.names[p], HLO_NAME[p.dtype]) for p in self.computation.parameters]
        return [p for p in names if p[0].startswith("in")]

    def output_pointers(self) -> list[tuple[str, str]]:
        return [(self.output_name(k), HLO_NAME[output.dtype]) for k, output in enumerate(self.outputs)]

    def flops(self) -> float:
        """Rough work for one element of the domain."""
        return sum((OPS[i.opcode].flops for i in self.computation.instructions), 1.0)


def finish(request, writer: Writer, kind: str, root: Block, items: int, work: float, run: int = 0) -> Nest:
    """The Nest, with the parts that all kinds have in common. run: see `KernelRequest.past_caches`."""
    outputs = frozenset(name for name, _ in request.output_pointers())
    nest = Nest(kind, request.title(kind), request.pointers(writer), dict(writer.integers), root, items, work, outputs)
    nest.past_caches, nest.leaving = request.past_caches(run), request.leaving_names
    nest.moved = request.moved
    return nest


def name_dims(writer: Writer, block: Block, dims, merged: list[list[int]], name: str) -> None:
    """Makes the index variable `name` stand for the merged dimensions; `block` divides it where they are used apart."""
    rest = writer.index(name)
    sizes = [math.prod(dims[k] for k in group) for group in merged]
    for g, group in enumerate(merged[:-1]):
        above, below = writer.fresh("q"), writer.fresh("q")
        divisor = writer.integer("q_s", math.prod(sizes[g + 1 :]))
        quotient = block.let(above, operation("//", rest, divisor))
        rest = block.let(below, operation("-", rest, operation("*", quotient, divisor)))
        writer.merged[group[-1]] = above
        block.variables = block.variables | {above, below}
    if merged:
        writer.merged[merged[-1][-1]] = rest.name
