"""`hl.config.cpu_memory`: how much memory a program may use on a CPU device, checked when it is compiled."""

from __future__ import annotations

from hloom.compiler.schedule.scheduler import Plan
from hloom.config import config
from hloom.errors import DeviceError
from hloom.ir.types import Shape

SHOWN = 3  # of the largest arrays


def check_memory(plan: Plan, device: str) -> None:
    """Raises DeviceError for a program that uses more memory than the limit; names its largest arrays."""
    budget = config.cpu_memory
    if not budget:
        return
    entry = plan.module.entry
    used = {o for i in entry.instructions for o in i.operands} | {entry.root}
    arguments = sum(p.shape.bytes for p in entry.parameters if p in used)
    outputs = sum(s.bytes for k, s in enumerate(plan.output_shapes) if k not in plan.donated)
    total = arguments + outputs + plan.arena_bytes + plan.kept_bytes + sum(c.nbytes for c in plan.constants)
    if total <= budget:
        return
    arrays = [i for i in entry.instructions if isinstance(i.shape, Shape) and i in used and i.opcode != "reshape"]
    largest = sorted(arrays, key=lambda i: -i.shape.bytes)[:SHOWN]
    named = "; ".join(
        f"{i.hint or i.opcode} {i.shape!r}, {i.shape.bytes} bytes" + (f", at {i.source}" if i.source else "")
        for i in largest
    )
    raise DeviceError(
        f"'{plan.module.name}' on {device}, whose programs may use {budget} bytes (hl.config.cpu_memory)",
        f"it needs {total} bytes: {arguments} of arguments, {outputs} of results, {plan.arena_bytes} of temporaries; "
        f"the largest arrays: {named}",
        "use smaller arrays, put parts of it on other devices (hl.device), or raise the limit",
        largest[0].source if largest else None,
    )
