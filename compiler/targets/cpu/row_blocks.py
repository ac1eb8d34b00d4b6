"""Unroll and jam: rows that are read only once are processed four at a time.

One row after the other is one stream from memory, and a processor can load more than one concurrently. What rows share,
such as the vector of a product, is read once for all. Each row keeps its own accumulator and its own order of steps.
Short rows are adjacent, so they are one stream anyway.

Where columns are reduced, four rows are read and added to each other, and the sums of the columns are written once.
"""

from __future__ import annotations

import re

from hloom.compiler.kernels.codegen.description import Block, Collective, Items, Lanes, Nest, Serial

ROWS = 4
FEWEST = 256  # rows; fewer gain nothing
SHORTEST = 1024  # elements of a row; shorter ones are slower four at a time
MOST_STATEMENTS = 12  # of the loop over a row; with more than that it is arithmetic that takes the time
MOST_OF_STEPS = 8  # of the loop over columns, which has its statements four times
# Calls that cost about as much as an addition.
_CHEAP = re.compile(r"(sum|prod|accmax|accmin|max|min|maxkey|minkey|keyed|abs|load|store|fma)_\w+|[fsu]\d+")
_CALL = re.compile(r"\b([A-Za-z_]\w*)\(")
_TAKEN = re.compile(r"(\w+) = (\w+)\(\1, (\w+)\)")  # by an accumulator
_WORD = re.compile(r"[A-Za-z_]\w*")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*) = ")


def rows_together(nest: Nest) -> list[str] | None:
    """The lines of a row nest's body, four rows at a time; None where that is no gain.

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
    if nest.integers.get(lanes.extent, SHORTEST) < SHORTEST:
        return None
    variable = node.dims[0][0]
    names = {variable, *_assigned([*before, *lanes.body.body, *after])}

    def copies(lines: list[str], depth: int) -> list[str]:
        return ["    " * depth + _renamed(line, names, k) for line in lines for k in range(ROWS)]

    return [
        f"for {variable} in range(lo, hi, {ROWS}):",
        *[f"    {variable}_{k} = min({variable} + {k}, hi - 1)" for k in range(1, ROWS)],
        *copies(before, 1),
        f"    for {lanes.variable} in range({lanes.extent}):",
        *copies(lanes.body.body, 2),
        *copies(after, 1),
    ]


def steps_together(node: Serial) -> list[str] | None:
    """The lines of a loop that may do its steps together (`Serial.together`), four at a time; None where that is no
    gain, or no cheap text."""
    if not node.together or not node.body.body:
        return None
    *before, lanes = node.body.body  # what a step needs for all of its places comes first
    if not isinstance(lanes, Lanes) or len(before) + len(lanes.body.body) > MOST_OF_STEPS:
        return None
    variable, lines = node.variable, lanes.body.body
    if not _is_cheap([*before, *lines]) or not all(isinstance(line, str) and _ASSIGNED.match(line) for line in before):
        return None
    names = {variable, *_assigned([*before, *lines])}
    header = f"for {lanes.variable} in range({lanes.start}, {lanes.extent}):"
    return [
        f"{variable}_whole = {node.start} + ({node.stop} - {node.start}) // {ROWS} * {ROWS}",
        f"for {variable} in range({node.start}, {variable}_whole, {ROWS}):",
        *[f"    {variable}_{k} = {variable} + {k}" for k in range(1, ROWS)],
        *["    " + _renamed(line, names, k) for k in range(ROWS) for line in before],
        f"    {header}",
        *["        " + line for line in _joined(lines, names)],
        f"for {variable} in range({variable}_whole, {node.stop}):",
        *["    " + line for line in before],
        f"    {header}",
        *["        " + line for line in lines],
    ]


def _joined(lines: list[str], names: set[str]) -> list[str]:
    """The statements of several steps: what they add to an accumulator is added two by two first, so that the
    accumulator waits for one addition and not for one of each step."""
    accumulators = {}  # name -> the statements that load, change and store it, where there are no others of it
    for line in lines:
        if match := _TAKEN.fullmatch(line):
            own = [other for other in lines if match[1] in _WORD.findall(other)]
            if len(own) == 3 and own[1] == line and own[0].startswith(f"{match[1]} = "):
                accumulators[match[1]] = match, own
    kept = {line for _, own in accumulators.values() for line in own}
    result = [_renamed(line, names, k) for k in range(ROWS) for line in lines if line not in kept]
    for match, (load, _, store) in accumulators.values():
        name, function, value = match.groups()
        values = [_renamed(value, names, k) for k in range(ROWS)]
        pairs = [f"{function}({a}, {b})" for a, b in zip(values[::2], values[1::2], strict=True)]
        result += [load, f"{name} = {function}({name}, {function}({', '.join(pairs)}))", store]
    return result


def _is_cheap(lines: list) -> bool:
    """Whether all are statements of operations that cost about as much as an addition."""
    if not all(isinstance(line, str) for line in lines):
        return False
    return all(_CHEAP.fullmatch(name) for line in lines for name in _CALL.findall(line))


def _parts(body: Block) -> tuple[list[str], Lanes, list[str]] | None:
    """Statements before the only loop over the row, the loop, and statements after it, where all of it is cheap."""
    nodes = [node for node in body.body if not isinstance(node, Collective)]
    loops = [k for k, node in enumerate(nodes) if not isinstance(node, str)]
    if len(loops) != 1 or not isinstance(nodes[loops[0]], Lanes):
        return None
    lanes, before, after = nodes[loops[0]], nodes[: loops[0]], nodes[loops[0] + 1 :]
    inner = lanes.body.body
    if lanes.start != "0" or len(inner) > MOST_STATEMENTS or not _is_cheap(inner):
        return None
    # One accumulator: more rows of several would leave no registers for what is under way.
    if len(_assigned(before)) != 1 or not all(_ASSIGNED.match(line) for line in inner):
        return None
    stores = [k for k, line in enumerate(after) if not _ASSIGNED.match(line)]
    if stores and any(_ASSIGNED.match(line) for line in after[stores[0] :]):
        return None
    return before, lanes, after


def _assigned(lines: list[str]) -> list[str]:
    return [match[1] for line in lines if (match := _ASSIGNED.match(line))]


def _renamed(line: str, names: set[str], k: int) -> str:
    """The line for row k, whose own names end with the number."""
    if k == 0:
        return line
    return _WORD.sub(lambda word: f"{word[0]}_{k}" if word[0] in names else word[0], line)
