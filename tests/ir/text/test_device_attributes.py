"""What HLO text says of devices: counts, the mesh, groups, and errors with their places."""

from __future__ import annotations

import numpy as np
import pytest
import xla

from hloom.errors import ParseError, VerifyError
from hloom.ir.build import Builder
from hloom.ir.module import Module
from hloom.ir.spmd.sharding import DeviceMesh, Sharding, on_device
from hloom.ir.text import parse_module, print_module
from hloom.ir.types import Shape
from hloom.ir.verify import verify

MESH = DeviceMesh(("data", "model.0", 'a "b"'), (2, 2, 2))


def module(*shardings, root=None, partitions=8):
    builder = Builder("main")
    values = []
    for sharding in shardings:
        values.append(builder.parameter(Shape("f32", (8, 4))))
        values[-1].sharding = sharding
    values = [builder.emit("negate", v) for v in values]
    values[0].sharding = shardings[0]
    made = builder.tuple(values)
    made.sharding = root
    return Module("m", builder.finish(made), partitions=partitions)


def test_names_of_axes_and_counts_are_kept():
    one = Sharding(MESH, (("model.0", "data"), ('a "b"',)))
    two = Sharding(MESH, ((), ("data",)), ("model.0",))
    made = module(one, two, None, on_device(3, 2), root=(None, one, two, on_device(1, 2)))
    verify(made)
    text = print_module(made)
    assert "replica_count=1, num_partitions=8" in text
    xla.parse(text)
    read = parse_module(text)
    verify(read)
    assert [p.sharding for p in read.entry.parameters] == [one, two, None, on_device(3, 2)]
    assert read.entry.root.sharding == made.entry.root.sharding
    assert read.entry.root.operands[0].sharding == one and read.partitions == 8
    assert print_module(read) == text


def test_replicas():
    made = module(None, partitions=1)
    made.replicas = 4
    read = parse_module(print_module(made))
    assert (read.replicas, read.partitions) == (4, 1)
    assert "replica_count" not in print_module(module(None, partitions=1))


GROUPS = """HloModule m, replica_count=1, num_partitions=8

ENTRY main {
  x = f32[8]{0} parameter(0)
  ROOT y = f32[32]{0} all-gather(x), dimensions={0}, channel_id=1, replica_groups=%s, use_global_device_ids=true
}
"""


@pytest.mark.parametrize(
    ("groups", "wanted"),
    [
        ("[2,4]<=[8]", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("[2,4]<=[4,2]T(1,0)", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("{{0,1,2,3},{4,5,6,7}}", [[0, 1, 2, 3], [4, 5, 6, 7]]),
    ],
)
def test_groups_that_are_counted(groups, wanted):
    read = parse_module(GROUPS % groups)
    verify(read)
    assert np.array_equal(read.entry.root["replica_groups"], wanted)


def changed(old: str, new: str) -> str:
    text = print_module(module(Sharding(DeviceMesh(("x",), (8,)), (("x",), ()))))
    assert old in text
    return text.replace(old, new)


BAD = {
    "groups": (GROUPS % "[3,4]<=[8]", "as many members as numbers"),
    "order of groups": (GROUPS % "[2,4]<=[8]T(1)", "as many members as numbers"),
    "no devices": (changed("num_partitions=8", "num_partitions=0"), "is positive"),
    "more devices than partitions": (changed("num_partitions=8", "num_partitions=4"), "8 devices"),
    "mesh": (changed('[\\"x\\"=8]', '[\\"x\\"=2, \\"x\\"=4]'), "have distinct names"),
    "rank": (changed("devices=[8,1]", "devices=[8]"), "rank 2"),
    "devices": (changed("<=[8]", "<=[4]"), "are 8"),
    "device": (changed("{devices=[8,1]<=[8]}", "{maximal device=8}"), "device 8"),
    "form": (changed("{devices=[8,1]<=[8]}", "{whole}"), "none that HLO has"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_show_the_place(name):
    text, said = BAD[name]
    with pytest.raises(ParseError) as caught:
        parse_module(text, "bad.hlo")
    error = caught.value
    assert said in f"{error.asked} {error.found}" and "^" in error.asked and error.source.line


@pytest.mark.parametrize(
    ("sharding", "said"),
    [
        (Sharding(DeviceMesh(("x",), (8,)), (("z",), ())), "an axis 'z'"),
        (Sharding(DeviceMesh(("x",), (8,)), (("x",), ("x",))), "used 2 times"),
        (Sharding(DeviceMesh(("x",), (8,)), (("x",),)), "for 1 dimension"),
        (Sharding(DeviceMesh(("x",), (4,)), (("x",), ())), "mesh of 4 devices"),
        (Sharding(DeviceMesh(("x",), (16,)), (("x",), ())), "mesh of 16 devices"),
        (on_device(8, 2), "mesh of 9 devices"),
    ],
)
def test_the_verifier_refuses_shardings_that_do_not_fit(sharding, said):
    with pytest.raises(VerifyError, match="rule 'sharding'") as caught:
        verify(module(sharding))
    assert said in str(caught.value) and caught.value.repair
