"""Unroll and jam: rows that are read only once are processed four at a time.

One row after the other is one stream from memory, and a processor can load more than one concurrently. What rows share,
such as the vector of a product, is read once for all. Each row keeps its own accumulator and its own order of steps.
Short rows are adjacent, so they are one stream anyway.

Where columns are reduced, four rows are read and added to each other, and the sums of the columns are written once.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.compiler.kernel_ir.builder import ONE, assign, constant, least, minus, operation, plus, times
from hloom.compiler.kernel_ir.nodes import Assign, Call, Expr, For, Stmt, Store, Var
from hloom.compiler.kernel_ir.rewrite import assigned, read, with_variables
from hloom.compiler.kernels.codegen.description import Block, Collective, Items, Lanes, Nest, Serial

ROWS = 4
FEWEST = 256  # rows; fewer gain nothing
SHORTEST = 1024  # elements of a row; shorter ones are slower four at a time
MOST_STATEMENTS = 12  # of the loop over a row; with more than that it is arithmetic that takes the time
MOST_OF_STEPS = 8  # of the loop over columns, which has its statements four times
# Functions that cost about as much as an addition.
_CHEAP = ("sum_", "prod_", "accmax_", "accmin_", "max_", "min_", "maxkey_", "minkey_", "keyed_", "abs_", "fma_")

_Variables = dict[Var, Var]


def rows_together(nest: Nest) -> list[Stmt] | None:
    """A row nest's body, four rows at a time; None where that is no gain.

    Where fewer rows are left, the last of them is computed again: so every row's sum has the same order of additions.
    All rows are read before one is written, because an output may lie where an input lies.
    """
    if nest.kind != "row" or nest.items < FEWEST or len(nest.root.body) != 1:
        return None
    (node,) = nest.root.body
    if not isinstance(node, Items) or node.grain != "row" or len(node.dims) != 1:
        return None
    parts = _parts(node.body)
    if parts is None:
        return None
    before, lanes, after = parts
    width = nest.integers.get(lanes.extent.name, SHORTEST) if isinstance(lanes.extent, Var) else SHORTEST
    if width < SHORTEST:
        return None
    row, names = node.dims[0][0], node.body.names
    lo, hi = names.declare("lo", "s64"), names.declare("hi", "s64")
    inner = lanes.body.statements()
    copies = _copies([*before, *inner, *after], row)
    last = minus(hi, ONE)
    rows: list[Stmt] = [assign(own[row], least(plus(row, constant(k)), last)) for k, own in enumerate(copies) if k]
    loop = For(lanes.variable, lanes.start, lanes.extent, ONE, _jammed(inner, copies))
    return [For(row, lo, hi, constant(ROWS), [*rows, *_jammed(before, copies), loop, *_jammed(after, copies)])]


def steps_together(node: Serial) -> list[Stmt] | None:
    """A loop that may do its steps together (`Serial.together`), four at a time; None where that is no gain, or no
    cheap work."""
    if not node.together or not node.body.body:
        return None
    *before, lanes = node.body.body  # what a step needs for all of its places comes first
    if not isinstance(lanes, Lanes) or len(before) + len(lanes.body.body) > MOST_OF_STEPS:
        return None
    step, inner = node.variable, lanes.body.body
    if not _is_cheap([*before, *inner]) or not all(isinstance(statement, Assign) for statement in before):
        return None
    copies = _copies([*before, *inner], step)
    whole, width = node.body.names.declare(f"{step.name}_whole", "s64"), constant(ROWS)
    steps: list[Stmt] = [assign(own[step], plus(step, constant(k))) for k, own in enumerate(copies) if k]
    several = [with_variables(statement, own) for own in copies for statement in before]

    def over(body: list[Stmt]) -> For:
        return For(lanes.variable, lanes.start, lanes.extent, ONE, body)

    count = times(operation("//", minus(node.stop, node.start), width), width)
    return [
        assign(whole, plus(node.start, count)),
        For(step, node.start, whole, width, [*steps, *several, over(_joined(inner, copies))]),
        For(step, whole, node.stop, ONE, [*_again(before), over(_again(inner))]),
    ]


def _again(statements: Sequence[Stmt]) -> list[Stmt]:
    """The same statements at another place: a statement has one."""
    return [with_variables(statement, {}) for statement in statements]


def _copies(statements: Sequence[Stmt], step: Var) -> list[_Variables]:
    """For each row its own variables, in the place of those that the statements assign; the first has theirs."""
    own = [step, *assigned(statements)]
    return [{var: Var(var.type, f"{var.name}_{k}") for var in own} if k else {} for k in range(ROWS)]


def _jammed(statements: Sequence[Stmt], copies: Sequence[_Variables]) -> list[Stmt]:
    """Each statement for all rows."""
    return [with_variables(statement, own) for statement in statements for own in copies]


def _joined(statements: Sequence[Stmt], copies: Sequence[_Variables]) -> list[Stmt]:
    """The statements of several steps: what they add to an accumulator is added two by two first, so that the
    accumulator waits for one addition and not for one of each step."""
    accumulators: list[tuple[list[Stmt], Assign, str, Var]] = []  # where a load, a change and a store are all of one
    for statement in statements:
        match statement:
            case Assign(var=var, value=Call(function=function, arguments=(Var() as taken, Var() as value))):
                own = [other for other in statements if var in assigned([other]) or var in read([other])]
                first = own[0]
                if taken is var and len(own) == 3 and own[1] is statement:
                    if isinstance(first, Assign) and first.var is var:
                        accumulators.append((own, statement, function, value))
    kept = [statement for own, *_ in accumulators for statement in own]
    others = [s for s in statements if not any(s is one for one in kept)]
    result = [with_variables(statement, own) for own in copies for statement in others]
    for (first, _, last), statement, function, value in accumulators:
        values = [own.get(value, value) for own in copies]
        pairs = [_both(function, one, other) for one, other in zip(values[::2], values[1::2], strict=True)]
        total = _both(function, statement.var, _both(function, pairs[0], pairs[1]))
        result += [first, Assign(statement.var, total), last]
    return result


def _both(function: str, one: Expr, other: Expr) -> Expr:
    return Call(one.type, function, (one, other))


def _is_cheap(statements: Sequence[object]) -> bool:
    """Whether all are statements of operations that cost about as much as an addition."""
    if not all(isinstance(statement, (Assign, Store)) for statement in statements):
        return False
    return all(
        name.startswith(_CHEAP)
        for statement in statements
        if isinstance(statement, Stmt)
        for name in statement.called()
    )


def _parts(body: Block) -> tuple[list[Stmt], Lanes, list[Stmt]] | None:
    """Statements before the only loop over the row, the loop, and statements after it, where all of it is cheap."""
    nodes = [node for node in body.body if not isinstance(node, Collective)]
    loops = [k for k, node in enumerate(nodes) if not isinstance(node, Stmt)]
    if len(loops) != 1 or not isinstance(nodes[loops[0]], Lanes):
        return None
    lanes, before, after = nodes[loops[0]], nodes[: loops[0]], nodes[loops[0] + 1 :]
    inner = lanes.body.body
    if lanes.start != constant(0) or len(inner) > MOST_STATEMENTS or not _is_cheap(inner):
        return None
    # One accumulator: more rows of several would leave no registers for what is under way.
    if len([s for s in before if isinstance(s, Assign)]) != 1 or not all(isinstance(s, Assign) for s in inner):
        return None
    stores = [k for k, statement in enumerate(after) if not isinstance(statement, Assign)]
    if stores and any(isinstance(statement, Assign) for statement in after[stores[0] :]):
        return None
    return before, lanes, after
