"""If, Loop and Scan: compiled where shapes stay the same, unrolled or run by Python otherwise."""

from __future__ import annotations

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.errors import HloomError
from hloom.onnx.table import NeedsValue, is_known, op
from hloom.tracing.concrete import known
from hloom.tracing.eval_shape import eval_shape

UNROLLED = 4  # steps up to which a Loop is unrolled


class _Data(Exception):
    """A body cannot be compiled once for all of its steps."""


def _plain(values) -> bool:
    """Whether values can pass through compiled control flow: numeric tensors."""
    return all(v is not None and not isinstance(v, list) and np.dtype(v.dtype).kind not in "OSU" for v in values)


@op("If", decides=(0,))
def branch(node, condition, *, then_branch, else_branch):
    """A known condition selects the branch to trace. Otherwise both are traced, into a `lax.cond`; if that is
    impossible, the condition's value is requested, and only the taken branch has to be valid."""
    chosen = known(condition)
    if chosen is not None:
        return tuple(node.body(then_branch if chosen.reshape(-1)[0] else else_branch, keeps_sizes=True)())
    shapes = []

    def traced(graph):
        def run():
            results = node.body(graph)()
            if not _plain(results):
                raise NeedsValue("its branches return sequences or strings", condition)
            return [hnp.asarray(r) for r in results]

        return run

    for name, graph in (("then_branch", then_branch), ("else_branch", else_branch)):
        try:
            shapes.append([(r.shape, np.dtype(r.dtype)) for r in eval_shape(traced(graph))])
        except NeedsValue as found:
            raise NeedsValue(f"its {name} is not compiled before it is taken: {found.what}", condition) from found
        except HloomError as error:
            text = f"{error.asked}, {error.found}"
            raise NeedsValue(f"its {name} does not fit and may not be taken ({text})", condition) from error
    if shapes[0] != shapes[1]:
        raise NeedsValue("its branches return different shapes", condition)
    return tuple(lax.cond(hnp.reshape(condition, ()).astype(bool), traced(then_branch), traced(else_branch)))


@op("Loop", decides=(0, 1))
def loop(node, most, condition, *states, body):
    step = node.body(body)
    count = len(states)
    scans = len(body.outputs) - 1 - count
    limit = None if most is None else known(most)
    going = np.array(True) if condition is None else known(condition)
    if going is not None and not going.reshape(-1)[0]:
        limit = np.array(0)
    number = None if limit is None else int(limit.reshape(-1)[0])
    concrete = is_known([v for v in (most, condition, *states) if v is not None])
    if not concrete and _plain(states) and not (number is not None and number <= UNROLLED):
        try:
            return _compiled(node, step, number, most, condition, going, states, scans, body)
        except _Data:
            pass
    if most is not None and limit is None:
        raise NeedsValue("the number of its steps decides shapes", most)
    if going is None:
        raise NeedsValue("its condition decides shapes", condition)
    values, rows = _written_out(step, number, going, list(states), scans)
    ports = body.outputs[1 + count :]
    return (*values, *(_stacked(row, port) for row, port in zip(rows, ports, strict=True)))


def _written_out(step, number: int | None, going: np.ndarray, values: list, scans: int) -> tuple[list, list[list]]:
    """(the last states, the rows of each scanned output) of a loop whose steps follow each other, `number` at most."""
    count, k = len(values), 0
    rows: list[list] = [[] for _ in range(scans)]
    while (number is None or k < number) and going.reshape(-1)[0]:
        again, *results = step(np.array(k, np.int64), np.array(True), *values)
        values = results[:count]
        for row, value in zip(rows, results[count:], strict=True):
            row.append(value)
        found = known(again)
        if found is None:
            raise NeedsValue("the number of its steps depends on what it computes")
        going = found
        k += 1
    return values, rows


def _stacked(rows: list, port):
    if not rows:
        sizes = [s if isinstance(s, int) else 0 for s in port.shape or ()]
        return hnp.zeros((0, *sizes), port.dtype or np.float32)
    if isinstance(rows[0], np.ndarray) and rows[0].dtype.kind in "OSU":
        return np.stack(rows)
    return hnp.stack(rows)


def _compiled(node, step, number, most, condition, going, states, scans: int, body):
    """The loop as a scan (a known number of steps) or as a while loop (without results of each step)."""
    states = [hnp.asarray(s) for s in states]
    forever: list[bool] = []

    def once(k, values):
        again, *results = step(k, np.array(True), *values)
        forever.append(isinstance(again, np.ndarray) and bool(again.reshape(-1)[0]))
        if not _plain(results):
            raise _Data
        return hnp.reshape(hnp.asarray(again), ()).astype(bool), [hnp.asarray(r) for r in results]

    try:
        _, shapes = eval_shape(once, hnp.zeros((), np.int64), states)
    except NeedsValue:
        raise _Data from None
    if any((a.shape, np.dtype(a.dtype)) != (b.shape, np.dtype(b.dtype)) for a, b in zip(states, shapes, strict=False)):
        raise _Data
    count = len(states)
    if forever[-1] and number is not None and going is not None:

        def advance(values, k):
            _, results = once(k, values)
            return results[:count], results[count:]

        values, rows = lax.scan(advance, states, hnp.arange(number, dtype=np.int64))
        return (*values, *rows)
    if scans:
        raise _Data
    last = hnp.asarray(np.iinfo(np.int64).max if most is None else hnp.reshape(most, ()))
    first = hnp.asarray(True if condition is None else hnp.reshape(condition, ()))

    def proceed(carried):
        k, values, _ = carried
        again, results = once(k, values)
        return k + 1, results, again

    _, values, _ = lax.while_loop(lambda c: (c[0] < last) & c[2], proceed, (hnp.zeros((), np.int64), states, first))
    return tuple(values)


def _scan(node, body, states, sequences, in_axes, in_directions, out_axes, out_directions):
    step = node.body(body)
    count, given = len(states), states
    states = [hnp.asarray(s) for s in states]
    rows = []
    for sequence, axis, backwards in zip(sequences, in_axes, in_directions, strict=True):
        moved = hnp.moveaxis(hnp.asarray(sequence), axis, 0)
        rows.append(hnp.flip(moved, 0) if backwards else moved)

    def advance(values, inputs):
        results = [hnp.asarray(r) for r in step(*values, *inputs)]
        return results[:count], results[count:]

    try:
        values, made = lax.scan(advance, states, rows)
    except NeedsValue:
        if not is_known([*given, *sequences]) or not rows or not rows[0].shape[0]:
            raise NeedsValue("its body needs the values of its inputs") from None
        values, made = _steps(step, given, [np.asarray(r) for r in rows])
    results = []
    for value, axis, backwards in zip(made, out_axes, out_directions, strict=True):
        turned = hnp.flip(value, 0) if backwards else value
        results.append(hnp.moveaxis(turned, 0, axis))
    return [*values, *results]


def _steps(step, values: list, rows: list[np.ndarray]):
    """(last states, results of all steps) of a scan that Python runs step by step, on concrete values."""
    count, made = len(values), []
    for k in range(len(rows[0])):
        results = step(*values, *[row[k] for row in rows])
        values = results[:count]
        made.append(results[count:])
    return values, [np.stack(list(map(np.asarray, column))) for column in zip(*made, strict=True)]


@op("Scan")
def scan8(node, lengths, *inputs, body, num_scan_inputs, directions=None):
    """Opset 8: with a batch axis in front, and the lengths of the sequences."""
    if lengths is not None:
        raise HloomError(
            "Scan of opset 8 with lengths", "sequences of different lengths", "export for opset 9 or newer"
        )
    states, sequences = inputs[: len(inputs) - num_scan_inputs], inputs[len(inputs) - num_scan_inputs :]
    outputs = len(body.outputs) - len(states)
    batch = []
    for k in range(sequences[0].shape[0]):
        batch.append(_scan(node, body, [s[k] for s in states], [s[k] for s in sequences], [0] * num_scan_inputs,
                           directions or [0] * num_scan_inputs, [0] * outputs, [0] * outputs))  # fmt: skip
    return tuple(hnp.stack(values) for values in zip(*batch, strict=True))


@op("Scan", since=9)
def scan(node, *inputs, body, num_scan_inputs, scan_input_axes=None, scan_input_directions=None, scan_output_axes=None,
         scan_output_directions=None):  # fmt: skip
    states, sequences = inputs[: len(inputs) - num_scan_inputs], inputs[len(inputs) - num_scan_inputs :]
    outputs = len(body.outputs) - len(states)
    return tuple(_scan(node, body, states, sequences, scan_input_axes or [0] * num_scan_inputs,
                       scan_input_directions or [0] * num_scan_inputs, scan_output_axes or [0] * outputs,
                       scan_output_directions or [0] * outputs))  # fmt: skip
