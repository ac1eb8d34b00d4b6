"""Kernel descriptions: a loop nest with dialect statements in it, before a target writes it as Python text.

The nodes say what a nest is; each target (`compiler/targets/*/render.py`) says how its work is handed out: loops over
lo..hi on a CPU, threads, warps and blocks on a GPU.
Statements are single lines of the dialect (docs/reference/kernels.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from hloom.ir.records import field, record


@record
class Block:
    """A list of statements (str) and inner nodes. `variables`: index variables defined by it or around it. `guarded`:
    whether it runs under a condition, without which what it reads may not exist."""

    parent: Block | None = None
    variables: frozenset = frozenset()
    body: list = field(default_factory=list)
    memo: dict = field(default_factory=dict)
    guarded: bool = False

    def child(self, *variables) -> Block:
        return Block(self, self.variables | frozenset(variables))

    def chain(self) -> Iterator[Block]:
        block: Block | None = self
        while block is not None:
            yield block
            block = block.parent


@record
class Items:
    """Independent work items: all combinations of the dims' (variable name, name of its size).

    grain: 'element' (one thread does one item), 'row' (a warp or block shares the Lanes loops of one item) or 'serial'
    (one thread does one item, loops and all).
    """

    dims: list[tuple[str, str]]
    body: Block
    grain: str = "element"


@record
class Inner:
    """The innermost dimension of an element-wise nest: a vector loop on a CPU, further threads on a GPU."""

    variable: str
    extent: str
    body: Block


@record
class Pieces:
    """The innermost loop in pieces: block k goes from bounds[k] to bounds[k + 1].

    limits: the names between whose values the loop runs, lo and hi for one over the work items themselves; None: all.
    Only for targets whose items walk that loop alone.
    """

    variable: str
    bounds: list[str]
    blocks: list[Block]
    limits: tuple[str, str] | None = None


@record
class Lanes:
    """A loop from `start` to `extent` inside a 'row' item whose steps the lanes share: all of it on a CPU."""

    variable: str
    extent: str
    body: Block
    start: str = "0"


@record
class Serial:
    """A plain loop `for variable in range(start, stop)`.

    together: where its body is one Lanes, behind statements perhaps, each place of which needs the steps in their
        order, or in any other that depends on their number alone, and no other place of any.
    """

    variable: str
    start: str
    stop: str
    body: Block
    together: bool = False


@record
class Branch:
    """`if condition:`."""

    condition: str
    body: Block


@record
class Collective:
    """Combines an accumulator over the lanes of an item, by an associative op of a dtype; nothing on a CPU."""

    variable: str
    operation: str
    dtype: str


@record
class Tiles:
    """Like Items and two Inner loops, in tiles over two dimensions: for inputs that are read with a large stride.

    outer: further item dims. across, along: (variable, size) of the two tiled dimensions, `along` the fast one of
    the outputs. sizes: a tile's, across and along.
    staged: (value name, dtype, load) of statements `name = load` in the body whose input is contiguous along `across`:
    a target reads them along `across` into a small array first.
    """

    outer: list[tuple[str, str]]
    across: tuple[str, str]
    along: tuple[str, str]
    sizes: tuple[int, int]
    body: Block
    staged: list[tuple[str, str, str]] = field(default_factory=list)


@record
class Nest:
    """A kernel description.

    pointers: (name, HLO dtype); an output's name begins with 'out', one that is both with 'io'.
    integers: name -> value for this launch; the names and their order are part of the kernel, the values are not.
    temporaries: bytes of each pointer that is neither input nor output, but scratch between the stages of a kernel.
    items, inner_work: how many work items a CPU launch has, and about how many element operations each is.
    moved: bytes of what it reads and writes.
    past_caches: the outputs whose streamed stores (`writer.store`) are non-temporal; the others are plain stores.
    leaving: outputs that nothing in the program reads.
    """

    kind: str
    name: str
    pointers: list[tuple[str, str]]
    integers: dict[str, int]
    root: Block
    items: int
    inner_work: float
    outputs: frozenset[str] = frozenset()
    temporaries: dict[str, int] = field(default_factory=dict)
    past_caches: frozenset[str] = frozenset()
    moved: int = 0
    leaving: frozenset[str] = frozenset()
