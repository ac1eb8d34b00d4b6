"""Sources of the kernels of `fft`: blocks of transforms from memory, through the passes, back to memory.

What they call is in `parts`; their own are the order of calls, addresses, and what is computed from results.
"""

from __future__ import annotations

import functools

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu.fft.names import Pass, parameters
from hloom.compiler.targets.cpu.fft.parts import SIZES
from hloom.ir.records import field, record

# Bytes by which one block lies further than the other in the pages of memory: what a pass reads and what it writes then
# do not share sets of the first cache. The eight streams of each that are 4096 bytes apart fill its ways alone.
APART = 2048


@record(frozen=True)
class Epilogue:
    """Statements that compute the result `v` of an element `z`; none: that is the result. real: whether `v` is a real
    number. title: the names of their ops."""

    statements: tuple[str, ...] = ()
    real: bool = False
    title: str = ""


@record(frozen=True)
class Form:
    """What the text of a kernel depends on.

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
    epilogue: Epilogue = Epilogue()

    @property
    def stores_directly(self) -> bool:
        """Whether the last pass writes to the array itself: not where something is to be computed from its results."""
        return self.write == "columns" and not self.epilogue.statements


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


@record
class Text:
    """Lines with their depth, and the integer arguments that they use."""

    integers: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    depth: int = 0

    def add(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def open(self, header: str) -> None:
        self.add(header)
        self.depth += 1

    def number(self, name: str, value: int) -> str:
        self.integers[name] = value
        return name


class _Text(Text):
    """Writes the kernel of a form."""

    def __init__(self, form: Form):
        super().__init__(depth=2)
        self.form, size = form, SIZES[form.dtype]
        self.size, self.vector, self.element = size, form.lanes * size, 2 * form.lanes * size

    def integer(self, name: str) -> str:
        return self.number(name, 0)  # launches have the values

    def kernel(self) -> KernelSource:
        form = self.form
        given, made = ("data", "data") if form.in_place else ("given", "made")
        lanes, integer = form.lanes, self.integer
        self.integers = {"blocks": 0, "count": 0}
        room = form.capacity * 2 * lanes + APART // self.size
        body = [f"    {block} = scratch_{form.dtype}({room})" for block in "ab"] + ["    for item in range(lo, hi):"]
        self.add("outer = quotient(item, blocks)", f"first = (item - outer * blocks) * {lanes}")
        self.add(f"lanes = min({lanes}, count - first)")
        self.add(f"x = outer * {integer('given_outer')} + first * {integer('given_lane')}")
        self.add(f"y = outer * {integer('made_outer')} + first * {integer('made_lane')}")
        self.block, self.free = "a", "b"
        if form.read == "columns":
            source = self.columns_source(given)
        else:
            self.rows_source(given)
            source = f"address({self.block})"
        self.passes(source, made)
        if form.spectrum == "half":
            self.spectrum()
        if form.epilogue.statements:
            self.epilogue()
        if form.write == "columns":
            self.columns_target(made)
        else:
            self.rows_target(made)
        pointers = ([given] if form.in_place else [given, made]) + ["factors"]
        pointers += ["twiddles"] * (form.spectrum in ("half", "whole"))
        pointers += ["twiddles", "lane_twiddles"] * form.twiddled + ["scale"] * form.scaled
        title = "_".join(
            ["ifft" if form.inverse else "fft", str(form.passes), form.read, form.write]
            + [form.epilogue.title] * bool(form.epilogue.title)
        )
        names = [*pointers, *self.integers, "lo", "hi"]
        text = "\n".join([f"def {title}({', '.join(names)}):", *body, *self.lines]) + "\n"
        kinds = [f"{form.dtype}*"] * len(pointers) + ["s64"] * (len(self.integers) + 2)
        return KernelSource(title, text, tuple(kinds))

    def part(self, name: str, *arguments: str) -> None:
        """A call of one of `parts`, whose address is the argument of that name."""
        self.add(f"call_kernel({self.integer(name)}, 0, 1, {', '.join(arguments)})")

    # --- memory to block ---

    def columns_source(self, given: str) -> str:
        """Statements that set `source` and `source_step`; a block that is not full is copied."""
        step = self.integer("given_step")
        self.add(f"source = address({given}) + x * {self.size}", f"source_step = {step} * {self.size}")
        self.open(f"if lanes < {self.form.lanes}:")
        self.part("columns_in", "source", step, f"address({self.free})", self.integer("n"), "lanes")
        self.add(f"source = address({self.free})", f"source_step = {self.element}")
        self.depth -= 1
        return "source"

    def rows_source(self, given: str) -> None:
        form, block = self.form, f"address({self.block})"
        step, width = self.integer("given_lane"), self.integer("given_width")
        name = "reals_in" if form.read == "reals" else "rows_in"
        self.part(name, f"address({given}) + x * {self.size}", step, block, width, "lanes")
        if form.spectrum == "whole":
            self.spectrum()
        if form.spectrum == "mirror":
            self.part("mirror", block, self.integer("n"), "lanes")

    # --- passes ---

    def passes(self, source: str, made: str) -> None:
        """The passes; afterwards `block` names the scratch memory with the result, if it is not in the array itself."""
        form = self.form
        direct = form.stores_directly
        if direct:
            self.add(f"target = address({made}) + y * {self.size}")
            self.add(f"target_step = {self.integer('made_step')} * {self.size}")
        for number in range(form.passes):
            last = number == form.passes - 1
            # Columns come from memory into the block, all else goes from one block to the other, but that the last pass
            # puts its results where it found their operands.
            stays = (number == 0 and form.read == "columns") or (last and not direct)
            target = self.block if stays else self.free
            into = f"address({target})"
            if last and direct:
                # Those that are no full block are copied, from what is not read any more.
                self.open(f"if lanes < {form.lanes}:")
                self.add(f"target = {into}", f"target_step = {self.element}")
                self.depth -= 1
                into = "target"
            values = {
                "source": source if number == 0 else f"address({self.block})",
                "source_step": "source_step",
                "target": into,
                "target_step": "target_step",
                "scale": "address(scale)",
            }
            if not last:
                values["factors"] = f"address(factors) + {self.integer(f'factors{number}')} * {self.size}"
                values["m"] = self.integer(f"m{number}")
            if number or last:
                values["s"] = self.integer(f"s{number}")
            if last and form.twiddled:
                per_block = f"(item - outer * blocks) * {self.integer('n')} * {2 * self.size}"
                values["twiddles"] = f"address(twiddles) + {per_block}"
                values["lane_twiddles"] = "address(lane_twiddles)"
            if target == self.free:
                self.block, self.free = self.free, self.block
            names = parameters(_pass_of(form, number, 2).name) or ()  # those of all radices
            self.part(f"pass{number}", *(values[name] for name in names))

    def spectrum(self) -> None:
        self.part(self.form.spectrum, f"address({self.block})", "address(twiddles)", self.integer("n"))

    # --- block to memory ---

    def epilogue(self) -> None:
        """From each element of the block what is computed from it; real numbers stand side by side afterwards."""
        form, lanes = self.form, self.form.lanes
        self.open(f"for i in range({self.integer('results')}):")
        self.open(f"for lane in range({lanes}):")
        at = f"{self.block}[i * {2 * lanes} + lane]", f"{self.block}[i * {2 * lanes} + {lanes} + lane]"
        self.add(f"z = complex_{form.dtype}({at[0]}, {at[1]})", *form.epilogue.statements)
        if form.epilogue.real:
            self.block, self.free = self.free, self.block
            self.add(f"{self.block}[i * {lanes} + lane] = v")
        else:
            self.add(f"{at[0]} = v.real", f"{at[1]} = v.imag")
        self.depth -= 2

    def columns_target(self, made: str) -> None:
        step = self.integer("made_step")
        target = f"address({made}) + y * {self.size}"
        arguments = f"address({self.block})", target, step, self.integer("n"), "lanes"
        if self.form.epilogue.statements:
            self.part("real_columns_out", *arguments)
            return
        self.open(f"if lanes < {self.form.lanes}:")
        self.part("columns_out", *arguments)
        self.depth -= 1

    def rows_target(self, made: str) -> None:
        step, width = self.integer("made_lane"), self.integer("made_width")
        name = "reals_out" if self.form.write == "reals" else "rows_out"
        self.part(name, f"address({self.block})", f"address({made}) + y * {self.size}", step, width, "lanes")


@functools.lru_cache(256)
def kernel_of(form: Form) -> KernelSource:
    return _Text(form).kernel()
