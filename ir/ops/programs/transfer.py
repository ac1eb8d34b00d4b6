"""send and recv: a value produced on one device and read on another. Partitioning creates them."""

from __future__ import annotations

from hloom.ir.errors import AttributeValueError
from hloom.ir.module import Instruction, below
from hloom.ir.op_table import No, op
from hloom.ir.ops.rules import require_count
from hloom.ir.types import TupleShape

ALONE = No("its other end is in the program of another device")
LATER = No("programs are partitioned after that")
TRANSFERS = ("send", "recv")
WITHOUT_DEVICE = ("parameter", "tuple", "get-tuple-element")  # which are not executed


def has_transfers(control: Instruction) -> bool:
    """Whether a loop or a branch sends or receives in its steps, at any depth."""
    return any(i.opcode in TRANSFERS for i in below([control]) if i is not control)


def _send_infer(operands, attributes, shape):
    require_count("send", operands, 1)
    return TupleShape(())


def _recv_infer(operands, attributes, shape):
    require_count("recv", operands, 0)
    if shape is None:
        raise AttributeValueError("recv needs the shape of the sent value", "None", "pass shape=")
    return shape


# channel_id names the pair. In a loop each step sends once and receives once.
for _name, _infer in zip(TRANSFERS, (_send_infer, _recv_infer), strict=True):
    op(
        _name,
        family="structure",
        dialects="hlo",
        infer=_infer,
        reference=ALONE,
        code=ALONE,
        jvp=LATER,
        transpose=LATER,
        batch=LATER,
        factors=LATER,
        attributes={"channel_id": "int"},
        shaped=_name == "recv",
        effects=True,
        flops=0,
    )
