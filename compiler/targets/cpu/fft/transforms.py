"""The kernels of `fft`: blocks of transforms from memory, through the passes, back to memory.

What they call is in `parts`; their own are the order of calls, addresses, and what is computed from results.
"""

from __future__ import annotations

import functools

from hloom.compiler.kernel_ir.builder import ONE, ZERO, address, assign, call, constant, element, least, part, quotient
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import Expr, Kernel, Stmt, Var
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu.fft.names import Pass, parameters
from hloom.compiler.targets.cpu.fft.parts import SIZES
from hloom.ir.records import record

# Bytes by which one block lies further than the other in the pages of memory: what a pass reads and what it writes then
# do not share sets of the first cache. The eight streams of each that are 4096 bytes apart fill its ways alone.
APART = 2048


@record(eq=False)
class Epilogue:
    """What is computed from each element: `result` of the variable `z`, behind statements over `names`. integers:
    arguments that they use. real: whether it is a real number. title: the names of the ops."""

    names: Names
    z: Var
    statements: list[Stmt]
    result: Expr
    integers: dict[str, int]
    real: bool
    title: str


@record(frozen=True)
class Form:
    """What a kernel depends on.

    passes: how many there are. read, write: 'rows' or 'columns' of complex numbers, 'reals' (rows of real ones: their
    imaginary parts are 0 or left out). spectrum: 'half' after, or 'whole' before, the passes of a real transform of
    even length; 'mirror' completes the spectrum of a real one of odd length. epilogue: what is computed from each
    element. twiddled, scaled: as in `butterflies`. capacity: elements of a block.
    """

    dtype: str
    lanes: int
    passes: int
    inverse: bool
    read: str
    write: str
    in_place: bool = False
    spectrum: str = ""
    twiddled: bool = False
    scaled: bool = False
    capacity: int = 64
    epilogue: Epilogue | None = None

    @property
    def stores_directly(self) -> bool:
        """Whether the last pass writes to the array itself: not where something is to be computed from its results."""
        return self.write == "columns" and self.epilogue is None


def pass_names(form: Form, radices: tuple[int, ...]) -> list[str]:
    """The names of a transform's passes."""
    return [_pass_of(form, number, radix).name for number, radix in enumerate(radices)]


def _pass_of(form: Form, number: int, radix: int) -> Pass:
    last = number == form.passes - 1
    return Pass(
        radix, form.dtype, form.lanes, "last" if last else "inner" if number else "first", form.inverse,
        "_frompairs" * (number == 0 and form.read == "columns"), "_topairs" * (last and form.stores_directly),
        last and form.twiddled, last and form.scaled,
    )  # fmt: skip


class _Writer:
    """Writes the kernel of a form."""

    def __init__(self, form: Form):
        self.form, size = form, SIZES[form.dtype]
        self.size, self.element = size, 2 * form.lanes * size
        self.names = Names(by_name) if form.epilogue is None else form.epilogue.names
        self.root = Block(names=self.names)
        self.integers: dict[Var, None] = {}  # arguments

    def integer(self, name: str) -> Var:
        """An argument, whose value launches have."""
        var = self.names.index(name)
        self.integers[var] = None
        return var

    def array(self, name: str) -> Var:
        return self.names.declare(name, f"*{self.form.dtype}")

    def kernel(self) -> KernelSource:
        form, root, lanes = self.form, self.root, constant(self.form.lanes)
        given, made = map(self.array, ("data", "data") if form.in_place else ("given", "made"))
        blocks, count = self.integer("blocks"), self.integer("count")
        room = form.capacity * 2 * form.lanes + APART // self.size
        self.block, self.free = (root.scratch(name, form.dtype, room) for name in "ab")
        item, self.item = root.loop("item", self.names.index("lo"), self.names.index("hi"))
        outer = self.item.let("outer", quotient(item, blocks))
        self.number = item - outer * blocks  # of the block
        first = self.item.let("first", self.number * lanes)
        self.lanes = self.item.let("lanes", least(lanes, count - first))
        self.x = self.item.let("x", outer * self.integer("given_outer") + first * self.integer("given_lane"))
        self.y = self.item.let("y", outer * self.integer("made_outer") + first * self.integer("made_lane"))
        if form.read == "columns":
            source: Expr = self.columns_source(given)
        else:
            self.rows_source(given)
            source = address(self.block)
        self.passes(source, made)
        if form.spectrum == "half":
            self.spectrum()
        if form.epilogue is not None:
            self.epilogue(form.epilogue)
        if form.write == "columns":
            self.columns_target(made)
        else:
            self.rows_target(made)
        pointers = ([given] if form.in_place else [given, made]) + [self.array("factors")]
        further = ["twiddles"] * (form.spectrum in ("half", "whole"))
        further += ["twiddles", "lane_twiddles"] * form.twiddled + ["scale"] * form.scaled
        pointers += map(self.array, further)
        words = ["ifft" if form.inverse else "fft", str(form.passes), form.read, form.write]
        title = "_".join(words + ([form.epilogue.title] if form.epilogue and form.epilogue.title else []))
        params = (*pointers, *self.integers, self.names.index("lo"), self.names.index("hi"))
        return KernelSource.of(Kernel(title, params, root.statements()))

    def part(self, name: str, *arguments: Expr, within: Block | None = None) -> None:
        """A call of one of `parts`, whose address is the argument of that name."""
        (within or self.item).do("call_kernel", self.integer(name), ZERO, ONE, *arguments)

    def few(self) -> Block:
        """The block for those that are no full block."""
        return self.item.branch(self.lanes < self.form.lanes)

    # --- memory to block ---

    def columns_source(self, given: Var) -> Var:
        """Sets `source` and `source_step`; a block that is not full is copied."""
        step, item = self.integer("given_step"), self.item
        source = item.let("source", address(given) + self.x * self.size)
        item.let("source_step", step * self.size)
        few = self.few()
        free = address(self.free)
        self.part("columns_in", source, step, free, self.integer("n"), self.lanes, within=few)
        few.let("source", free)
        few.let("source_step", constant(self.element))
        return source

    def rows_source(self, given: Var) -> None:
        form, block = self.form, address(self.block)
        step, width = self.integer("given_lane"), self.integer("given_width")
        name = "reals_in" if form.read == "reals" else "rows_in"
        self.part(name, address(given) + self.x * self.size, step, block, width, self.lanes)
        if form.spectrum == "whole":
            self.spectrum()
        if form.spectrum == "mirror":
            self.part("mirror", block, self.integer("n"), self.lanes)

    # --- passes ---

    def passes(self, source: Expr, made: Var) -> None:
        """The passes; afterwards `block` is the scratch memory with the result, if it is not in the array itself."""
        form, item, size = self.form, self.item, self.size
        direct = form.stores_directly
        if direct:
            item.let("target", address(made) + self.y * size)
            item.let("target_step", self.integer("made_step") * size)
        for number in range(form.passes):
            last = number == form.passes - 1
            # Columns come from memory into the block, all else goes from one block to the other, but that the last pass
            # puts its results where it found their operands.
            stays = (number == 0 and form.read == "columns") or (last and not direct)
            target = self.block if stays else self.free
            into: Expr = address(target)
            if last and direct:
                # Those that are no full block are copied, from what is not read any more.
                few = self.few()
                few.let("target", into)
                few.let("target_step", constant(self.element))
                into = self.names["target"]
            values = {"source": source if number == 0 else address(self.block), "target": into}
            values |= {name: var for name in ("source_step", "target_step") if (var := self.names.get(name))}
            if not last:
                values["factors"] = address(self.array("factors")) + self.integer(f"factors{number}") * size
                values["m"] = self.integer(f"m{number}")
            if number or last:
                values["s"] = self.integer(f"s{number}")
            if last and form.twiddled:
                per_block = self.number * self.integer("n") * (2 * size)
                values["twiddles"] = address(self.array("twiddles")) + per_block
                values["lane_twiddles"] = address(self.array("lane_twiddles"))
            if form.scaled:
                values["scale"] = address(self.array("scale"))
            if target is self.free:
                self.block, self.free = self.free, self.block
            names = parameters(_pass_of(form, number, 2).name) or ()  # those of all radices
            self.part(f"pass{number}", *(values[name] for name in names))

    def spectrum(self) -> None:
        self.part(self.form.spectrum, address(self.block), address(self.array("twiddles")), self.integer("n"))

    # --- block to memory ---

    def epilogue(self, epilogue: Epilogue) -> None:
        """From each element of the block what is computed from it; real numbers stand side by side afterwards."""
        form, lanes, block = self.form, self.form.lanes, self.block
        for name in epilogue.integers:
            self.integer(name)
        i, row = self.item.loop("i", ZERO, self.integer("results"))
        lane, inside = row.loop("lane", ZERO, constant(lanes))
        real, imag = i * (2 * lanes) + lane, i * (2 * lanes) + lanes + lane
        z = call(f"complex_{form.dtype}", (element(block, real), element(block, imag)), by_name)
        inside.body += [assign(epilogue.z, z), *epilogue.statements]
        value = inside.let("v", epilogue.result)
        if epilogue.real:
            self.block, self.free = self.free, self.block
            inside.store(self.block, i * lanes + lane, value)
        else:
            inside.store(block, real, part(value, "real"))
            inside.store(block, imag, part(value, "imag"))

    def columns_target(self, made: Var) -> None:
        step = self.integer("made_step")
        target = address(made) + self.y * self.size
        arguments = address(self.block), target, step, self.integer("n"), self.lanes
        if self.form.epilogue is not None:
            self.part("real_columns_out", *arguments)
        else:
            self.part("columns_out", *arguments, within=self.few())

    def rows_target(self, made: Var) -> None:
        step, width = self.integer("made_lane"), self.integer("made_width")
        name = "reals_out" if self.form.write == "reals" else "rows_out"
        self.part(name, address(self.block), address(made) + self.y * self.size, step, width, self.lanes)


@functools.lru_cache(256)
def kernel_of(form: Form) -> KernelSource:
    return _Writer(form).kernel()
