"""Inlining of calls."""

from __future__ import annotations

from hloom.ir.build import Builder
from hloom.ir.errors import UnsupportedError
from hloom.ir.module import Computation, Instruction, callees_first
from hloom.ir.ops import OPS
from hloom.ir.rewrite import has_effects, sweep
from hloom.ir.source import on_device

MOST = 1_000_000  # maximum number of instructions of a program with its calls inlined


def inline_calls(
    computation: Computation, known: dict[Instruction, object] | None = None, *, rules: bool = False
) -> Computation:
    """The computation with every `call` and `map`, at any depth, replaced by the callee's instructions.

    Instructions before the first call are reused; without a call the computation itself is returned. Result tuples of
    callees are flattened. rules: includes calls with a rule for differentiation or batching, which transforms still
    need. known: values of instructions; copied instructions inherit them. Calls of the same computation with the same
    operands are inlined once. Raises UnsupportedError (`check_size`).
    """
    if not any(i.opcode == "map" or _is_inlined(i, rules) for i in computation.instructions):
        return computation
    check_size(computation, rules)
    builder = Builder(computation.name)
    builder.parameters = list(computation.parameters)
    root = _copy(builder, computation, list(computation.parameters), known if known is not None else {}, True, rules)
    return sweep(builder.finish(root))


def _is_inlined(instruction: Instruction, rules: bool) -> bool:
    return instruction.opcode == "call" and (rules or "rule" not in instruction.attributes)


def check_size(computation: Computation, rules: bool = True) -> None:
    """Raises UnsupportedError if a computation would have more than MOST instructions, with one copy of a function per
    call, and of a body per loop."""
    order = callees_first(computation, lambda i: i.called() if _is_copied(i, rules) else [])
    sizes: dict[int, int] = {}
    calls: dict[int, list[Instruction]] = {}
    for caller in order:
        copied = [i for i in caller.instructions if _is_copied(i, rules)]
        calls[id(caller)] = list({(*map(id, i.called()), i.operands): i for i in copied}.values())
        sizes[id(caller)] = len(caller.instructions)
        sizes[id(caller)] += sum(sizes[id(c)] for i in calls[id(caller)] for c in i.called())
    if sizes[id(computation)] > MOST:
        _raise_too_large(order, calls, sizes[id(computation)])


def _is_copied(instruction: Instruction, rules: bool) -> bool:
    if instruction.opcode == "call":
        return _is_inlined(instruction, rules)
    return OPS[instruction.opcode].family == "control"


def _raise_too_large(order: list[Computation], calls: dict[int, list[Instruction]], size: int) -> None:
    """The error names the computation that contributes most, and where it is called."""
    times = {id(order[-1]): 1}
    where: dict[int, Instruction] = {}
    for caller in reversed(order):
        for call in calls[id(caller)]:
            for callee in call.called():
                times[id(callee)] = times.get(id(callee), 0) + times[id(caller)]
                where[id(callee)] = call
    most = max(order[:-1], key=lambda c: times[id(c)] * len(c.instructions))
    raise UnsupportedError(
        f"'{order[-1].name}' was to be compiled with all the functions that it calls",
        f"'{most.name}' is called {times[id(most)]:,} times, which makes {size:,} instructions; {MOST:,} are possible",
        "repeat the calls in a loop (lax.fori_loop, lax.scan)",
        where[id(most)].source or "",
    )


def _copy(builder: Builder, computation: Computation, arguments, known, top: bool, rules: bool) -> Instruction:
    mapped: dict[Instruction, Instruction] = dict(zip(computation.parameters, arguments, strict=True))
    results: dict[tuple, Instruction] = {}  # results of calls, by callee and operands
    for instruction in computation.instructions:
        if instruction in mapped:
            if top:
                builder.add(instruction)
            continue
        operands = tuple(mapped[o] for o in instruction.operands)
        if _is_inlined(instruction, rules):
            callee = instruction["to_apply"]
            key = (callee, operands, instruction.device)
            if key in results:
                mapped[instruction] = results[key]
                continue
            start = len(builder.instructions)
            result = mapped[instruction] = _copy(builder, callee, operands, known, False, rules)
            if not has_effects(instruction):
                results[key] = result
            if instruction.device:
                _place(builder.instructions[start:], instruction.device)
            if instruction.hint and not result.hint and callee.root not in callee.parameters:
                result.hint = instruction.hint
        elif instruction.opcode == "map":
            mapped[instruction] = _spread_map(builder, instruction, operands)
        elif instruction.opcode == "get-tuple-element" and operands[0].opcode == "tuple":
            mapped[instruction] = operands[0].operands[instruction["index"]]
        elif top and operands == instruction.operands:
            mapped[instruction] = builder.add(instruction)
        else:
            # Copied even if the operands are unchanged: a callee's instructions are duplicated per call.
            mapped[instruction] = builder.add(instruction.with_operands(operands))
        if top and instruction in known:
            known[mapped[instruction]] = known[instruction]
    return mapped[computation.root]


def _place(instructions: list[Instruction], device: str) -> None:
    """The device chosen for a call applies to the callee's instructions without one."""
    for instruction in instructions:
        if not instruction.device:
            instruction.source = on_device(instruction.source, device)


def _spread_map(builder: Builder, instruction: Instruction, operands) -> Instruction:
    """Expands a map to its computation on whole arrays, or to a scan if some instructions are not element-wise."""
    body, shape = instruction["to_apply"], instruction.shape
    with builder.provenance(instruction, "inline-calls"):
        if all(
            i.opcode in ("parameter", "constant") or OPS[i.opcode].family == "elementwise" for i in body.instructions
        ):
            mapped = dict(zip(body.parameters, operands, strict=True))
            for scalar in body.instructions:
                if scalar.opcode == "constant":
                    mapped[scalar] = builder.splat(scalar["value"], scalar.shape.with_dims(shape.dims))
                elif scalar not in mapped:
                    copy = scalar.with_operands(tuple([mapped[o] for o in scalar.operands]))
                    copy.shape = scalar.shape.with_dims(shape.dims)
                    mapped[scalar] = builder.add(copy)
            return mapped[body.root]
        inner = Builder(body.name)
        slices = [inner.parameter(p.shape, p.hint) for p in body.parameters]
        step = inner.finish(inner.tuple([inner.inline(inline_calls(body), slices)]))
        flat = [builder.emit("reshape", o, shape=o.shape.with_dims((shape.size,))) for o in operands]
        scan = builder.emit("scan", *flat, num_consts=0, num_carry=0, length=shape.size, reverse=False, body=step)
        return builder.emit("reshape", builder.emit("get-tuple-element", scan, index=0), shape=shape)
