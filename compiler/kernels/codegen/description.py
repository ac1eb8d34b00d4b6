"""Kernel descriptions: a loop nest with statements in it, before a target says how its work is handed out.

The nodes say what a nest is; each target (`compiler/targets/*/render.py`) says how its work is handed out: loops over
lo..hi on a CPU, threads, warps and blocks on a GPU. Statements are those of the kernel language (`kernel_ir.nodes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloom.compiler.kernel_ir import builder
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Expr,
    For,
    If,
    Load,
    Scratch,
    Stmt,
    Store,
    Together,
    Var,
    While,
)
from hloom.ir.records import field, record


@record(eq=False)
class Block:
    """A list of statements and inner nodes. `variables`: index variables defined by it or around it. `guarded`: whether
    it runs under a condition, without which what it reads may not exist. `names`: of the variables of the function."""

    parent: Block | None = None
    variables: frozenset = frozenset()
    body: list = field(default_factory=list)
    memo: dict = field(default_factory=dict)
    guarded: bool = False
    names: Names = None  # type: ignore[assignment]

    def __post_init__(self):
        if self.names is None:
            self.names = Names(by_name) if self.parent is None else self.parent.names

    def child(self, *variables) -> Block:
        return Block(self, self.variables | frozenset(variables))

    def chain(self) -> Iterator[Block]:
        block: Block | None = self
        while block is not None:
            yield block
            block = block.parent

    def let(self, name: str, value: Expr) -> Var:
        """Assigns a value to a name; returns the variable."""
        var = self.names.declare(name, value.type)
        self.body.append(builder.assign(var, value))
        return var

    def set(self, variables: Sequence[Expr], values: Sequence[Expr]) -> None:
        """Assigns values to variables, all of them before any of the values changes."""
        parts: list[Assign | Store] = []
        for var, value in zip(variables, values, strict=True):
            assert isinstance(var, Var)
            parts.append(builder.assign(var, value))
        self.body.append(parts[0] if len(parts) == 1 else Together(parts))

    def store(self, pointer: Expr, index: Expr, value: Expr, streamed: bool = False) -> None:
        """Writes an element; streamed: non-temporal, where the target has such stores."""
        self.body.append(builder.store(pointer, index, value, streamed))

    def increase(self, var: Var, by: Expr | int) -> None:
        """`var += by`."""
        self.body.append(builder.increased(var, by))

    def do(self, name: str, *arguments: Expr) -> None:
        """A call for its effect."""
        self.body.append(builder.do(name, arguments))

    def scratch(self, name: str, dtype: str, size: int) -> Var:
        """Memory of so many elements that a call of the kernel has for itself."""
        var = self.names.declare(name, f"*{dtype}")
        self.body.append(Scratch(var, size))
        return var

    # The blocks of statements, which have no inner nodes.

    def loop(self, name: str, start: Expr, stop: Expr, step: Expr = builder.ONE) -> tuple[Var, Block]:
        """(the variable, the block) of a loop `for name in range(start, stop, step)`."""
        inside, var = self.child(name), self.names.declare(name, "s64")
        self.body.append(For(var, start, stop, step, inside.body))
        return var, inside

    def repeat(self, test: Expr) -> Block:
        """The block of a loop `while test`."""
        inside = self.child()
        self.body.append(While(builder.truth(test), inside.body))
        return inside

    def branch(self, test: Expr) -> Block:
        """The block of `if test`."""
        return self.branches(test)[0]

    def branches(self, test: Expr) -> tuple[Block, Block]:
        """The blocks of `if test`, and of its `else` if it gets statements."""
        then, other = self.child(), self.child()
        self.body.append(If(builder.truth(test), then.body, other.body))
        return then, other

    def statements(self) -> list[Stmt]:
        """The body of a block without inner nodes."""
        assert all(isinstance(node, Stmt) for node in self.body)
        return list(self.body)


@record
class Items:
    """Independent work items: all combinations of the dims' (variable, its size).

    grain: 'element' (one thread does one item), 'row' (a warp or block shares the Lanes loops of one item) or 'serial'
    (one thread does one item, loops and all).
    """

    dims: list[tuple[Var, Var]]
    body: Block
    grain: str = "element"


@record
class Inner:
    """The innermost dimension of an element-wise nest: a vector loop on a CPU, further threads on a GPU."""

    variable: Var
    extent: Var
    body: Block


@record
class Pieces:
    """The innermost loop in pieces: block k goes from bounds[k] to bounds[k + 1].

    limits: the variables between whose values the loop runs, lo and hi for one over the work items themselves; None:
    all. Only for targets whose items walk that loop alone.
    """

    variable: Var
    bounds: list[Expr]
    blocks: list[Block]
    limits: tuple[Expr, Expr] | None = None


@record
class Lanes:
    """A loop from `start` to `extent` inside a 'row' item whose steps the lanes share: all of it on a CPU."""

    variable: Var
    extent: Expr
    body: Block
    start: Expr = builder.ZERO


@record
class Serial:
    """A plain loop `for variable in range(start, stop)`.

    together: where its body is one Lanes, behind statements perhaps, each place of which needs the steps in their
        order, or in any other that depends on their number alone, and no other place of any.
    """

    variable: Var
    start: Expr
    stop: Expr
    body: Block
    together: bool = False


@record
class Branch:
    """`if condition:`."""

    condition: Expr
    body: Block


@record
class Collective:
    """Combines an accumulator over the lanes of an item, by an associative op of a dtype; nothing on a CPU."""

    variable: Var
    operation: str
    dtype: str


@record
class Tiles:
    """Like Items and two Inner loops, in tiles over two dimensions: for inputs that are read with a large stride.

    outer: further item dims. across, along: (variable, size) of the two tiled dimensions, `along` the fast one of
    the outputs. sizes: a tile's, across and along.
    staged: (value, dtype, load) of statements `value = load` in the body whose input is contiguous along `across`: a
    target reads them along `across` into a small array first.
    """

    outer: list[tuple[Var, Var]]
    across: tuple[Var, Var]
    along: tuple[Var, Var]
    sizes: tuple[int, int]
    body: Block
    staged: list[tuple[Var, str, Load]] = field(default_factory=list)


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
