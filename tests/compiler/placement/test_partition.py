"""Placement and partition: random programs on random devices against the interpreter, and what is cut where."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from loop_programs import LoopPrograms, arguments
from random_devices import choose

import hloom as hl
from hloom.backends.interpreted import InterpretedKind
from hloom.backends.multi_device import MultiDeviceBackend
from hloom.compiler.placement.partition import partition
from hloom.compiler.placement.placer import placed, prepared
from hloom.ir.build import Builder, Value
from hloom.ir.interpret import run
from hloom.ir.module import Instruction, Module
from hloom.ir.source import on_device
from hloom.ir.types import DTYPES, Shape, TupleShape
from hloom.ir.verify import verify
from hloom.platforms.backend import CompileOptions
from hloom.platforms.kinds import device_kinds

F32 = Shape(DTYPES["f32"], (8,))


@pytest.fixture
def three_devices():
    with hl.config(num_cpu_devices=3):
        yield


class Interpreted(InterpretedKind):
    name = "interpreted"

    def count(self) -> int:
        return 2


def on(value: Value, device: str) -> Value:
    value.instruction.source = on_device(None, device)
    return value


def parts(module: Module, arguments=None, default: str = "cpu:0"):
    whole = prepared(module)
    found = partition(whole, placed(whole, arguments or {}, default), default)
    for lane in found.modules.values():
        verify(lane)
    return found


@pytest.mark.parametrize("first", range(0, 160, 20))
def test_random_programs_on_random_devices(first, three_devices):
    """Run twice: what a first run leaves in the channels must not matter to the next."""
    for seed in range(first, first + 20):
        module = LoopPrograms(seed).module()
        given = arguments(module, seed)
        want = run(module, given)
        want = want if isinstance(want, tuple) else (want,)
        choose(module.entry, random.Random(seed), (0.1, 0.3, 0.9)[seed % 3])
        compiled = MultiDeviceBackend().compile(module, CompileOptions())
        for _ in range(2):
            for got, expected in zip(compiled(given), want, strict=True):
                np.testing.assert_array_equal(got, expected, err_msg=f"seed {seed}")


@pytest.mark.parametrize("first", [1000, 1010, 1100])
def test_random_programs_on_kinds_of_devices(first, three_devices, monkeypatch):
    """Compiled parts and parts that are computed op by op hand values to each other, in loops too."""
    monkeypatch.setitem(device_kinds(), "interpreted", Interpreted())
    for seed in range(first, first + 15):
        module = LoopPrograms(seed).module()
        given = arguments(module, seed)
        want = run(module, given)
        want = want if isinstance(want, tuple) else (want,)
        choose(module.entry, random.Random(seed), 0.6, ("cpu:0", "interpreted:1", "cpu:1", "interpreted:0"))
        compiled = MultiDeviceBackend().compile(module, CompileOptions())
        for got, expected in zip(compiled(given), want, strict=True):
            np.testing.assert_array_equal(got, expected, err_msg=f"seed {seed}")


def test_one_send_serves_all_who_read():
    b = Builder("main")
    x = Value(b, b.parameter(F32))
    y = on(x * 2.0, "cpu:0")
    readers = [on(y + 1.0, "cpu:1"), on(y - 1.0, "cpu:1"), on(y * y, "cpu:2")]
    found = parts(Module("m", b.finish(b.tuple([r.instruction for r in readers]))))
    assert [(c.sender, c.receivers) for c in found.channels] == [("cpu:0", ["cpu:1", "cpu:2"])]
    opcodes = {d: [i.opcode for i in m.entry.instructions] for d, m in found.modules.items()}
    assert opcodes["cpu:0"].count("send") == 1
    assert opcodes["cpu:1"].count("recv") == 1 and opcodes["cpu:2"].count("recv") == 1


def test_what_is_cheap_is_made_where_it_is_read():
    b = Builder("main")
    x = Value(b, b.parameter(F32))
    one = Value(b, b.splat(1.0, F32))
    outputs = [on(x + one, "cpu:0"), on(x * one, "cpu:1")]
    assert parts(Module("m", b.finish(b.tuple([o.instruction for o in outputs])))).channels == []


def test_a_send_follows_its_value_and_a_receive_comes_before_its_use():
    b = Builder("main")
    x = Value(b, b.parameter(F32))
    early = on(x * 2.0, "cpu:0")
    late = on(on(x.op("exponential"), "cpu:0").op("log"), "cpu:0")
    own = on(x.op("tanh"), "cpu:1")
    joined = on(own + early, "cpu:1")
    found = parts(Module("m", b.finish(b.tuple([late.instruction, joined.instruction]))))
    sender = [i.opcode for i in found.modules["cpu:0"].entry.instructions]
    receiver = [i.opcode for i in found.modules["cpu:1"].entry.instructions]
    assert sender.index("send") < sender.index("exponential")
    assert receiver.index("tanh") < receiver.index("recv") < receiver.index("add")


def test_what_is_sent_last_is_received_last_and_no_work_waits_behind_a_receive(three_devices):
    """The first result needs what cpu:1 makes last; the others' products must not wait for it."""

    def step(x, y):
        a, made, mine = y, [], []
        with hl.device("cpu:1"):
            for _ in range(3):
                a = a @ x
                made.append(a)
        with hl.device("cpu:0"):
            for k in range(3):
                mine.append(hl.numpy.cos(y + k) @ x)
            return [m + n for m, n in zip(reversed(mine), reversed(made), strict=True)]

    x = np.full((16, 16), 0.1, np.float32)
    compiled = hl.jit(step).lower(x, x).compile()
    text = compiled.as_text().partition("// cpu:0")[2].partition("ENTRY")[2].partition("}\n\n")[0]
    assert re.findall(r" (dot|recv)\(", text) == ["dot"] * 3 + ["recv"] * 3
    received = [int(number) for number in re.findall(r"recv\(\), channel_id=(\d+)", text)]
    assert received == sorted(received)
    made = [x @ x, x @ x @ x, x @ x @ x @ x]
    for k, got in zip((2, 1, 0), compiled(x, x), strict=True):
        np.testing.assert_allclose(got, made[k] + np.cos(x + k) @ x, rtol=1e-5)


def test_a_slice_of_what_is_there_is_not_sent():
    b = Builder("main")
    x = Value(b, b.parameter(Shape(DTYPES["f32"], (16,))))
    first, second = (Value(b, b.emit("slice", x.instruction, slice=((k, k + 8, 1),))) for k in (0, 8))
    halves = [on(first * first, "cpu:0"), on(second * second, "cpu:1")]
    root = on(halves[0] + halves[1], "cpu:0")
    found = parts(Module("m", b.finish(b.tuple([root.instruction]))))
    (channel,) = found.channels
    assert channel.sender == "cpu:1" and channel.maker.opcode == "multiply"


def test_nothing_is_cut_where_nothing_was_chosen():
    b = Builder("main")
    x = Value(b, b.parameter(F32))
    found = parts(Module("m", b.finish((x.op("tanh") * x).instruction)), default="cpu:1")
    assert list(found.modules) == ["cpu:1"] and found.channels == []


def test_the_rest_is_placed_by_its_cost():
    """A product of what two devices made stays with the larger of them; small work follows its operands."""
    wide = Shape(DTYPES["f32"], (4096, 64))
    b = Builder("main")
    x, y = Value(b, b.parameter(wide)), Value(b, b.parameter(F32))
    large, small = on(x * 2.0, "cpu:0"), on(y * 2.0, "cpu:1")
    more, less = large + 1.0, small + 1.0
    module = prepared(Module("m", b.finish(b.tuple([more.instruction, less.instruction]))))
    device_of = placed(module, {}, "cpu:0")
    adds = [i for i in module.entry.instructions if i.opcode == "add"]
    assert [device_of[i] for i in adds] == ["cpu:0", "cpu:1"]


def test_ten_thousand_instructions():
    b = Builder("main")
    values = [Value(b, b.parameter(F32))]
    generator = random.Random(0)
    for k in range(10_000):
        made = generator.choice(values[-20:]) * generator.choice(values[-20:])
        values.append(on(made, f"cpu:{k // 500 % 2}") if k % 3 == 0 else made)
    whole = prepared(Module("m", b.finish(b.tuple([v.instruction for v in values[-20:]]))))
    found = partition(whole, placed(whole, {}, "cpu:0"), "cpu:0")
    made = [i.opcode for m in found.modules.values() for i in m.entry.instructions]
    work = [i for i in whole.entry.instructions if i.opcode == "multiply"]
    assert made.count("multiply") == len(work) > 5_000 and made.count("recv") == len(found.channels)


def test_a_counted_loop_counts_on_each_device():
    """The counter and the condition are computed everywhere: only the values that cross are sent."""
    found = parts(_loop(lambda n, x, y: (on(x * 2.0, "cpu:0"), on(y + x, "cpu:1"))))
    assert len(found.channels) == 1 and found.channels[0].shape is F32
    for lane in found.modules.values():
        (loop,) = [i for i in lane.entry.instructions if i.opcode == "while"]
        assert "recv" not in [i.opcode for i in loop["condition"].instructions]


@pytest.mark.parametrize(
    "following, is_sent",
    [(lambda c: c * 0.5 + 1.0, False), (lambda c: c.op("sqrt"), False), (lambda c: c.op("exponential"), True)],
)
def test_only_what_all_devices_compute_alike_is_counted(following, is_sent):
    """A function whose last bit differs between kinds of devices could end a loop in another step."""
    state = TupleShape([Shape(DTYPES["f32"], ()), F32, F32])
    b = Builder("condition")
    count = Value(b, b.emit("get-tuple-element", b.parameter(state), index=0))
    condition = b.finish(b.emit("compare", count.instruction, b.constant(5, "f32"), direction="LT"))
    b = Builder("body")
    parameter = b.parameter(state)
    c, x, y = (Value(b, b.emit("get-tuple-element", parameter, index=k)) for k in range(3))
    made = [following(c), on(x * 2.0, "cpu:0"), on(y + 1.0, "cpu:1")]
    body = b.finish(b.tuple([value.instruction for value in made]))
    b = Builder("main")
    start = b.tuple([b.parameter(shape) for shape in state.elements])
    loop = b.emit("while", start, condition=condition, body=body)
    found = parts(Module("loop", b.finish(b.tuple([b.emit("get-tuple-element", loop, index=k) for k in (1, 2)]))))
    inside = [i for lane in found.modules.values() for i in lane.instructions() if i.opcode == "while"]
    received = [i for loop in inside for i in loop["condition"].instructions if i.opcode == "recv"]
    assert len(inside) == 2 and bool(received) == is_sent


def _loop(step) -> Module:
    s32 = Shape(DTYPES["s32"], ())
    state = TupleShape([s32, F32, F32])
    b = Builder("condition")
    count = b.emit("get-tuple-element", b.parameter(state), index=0)
    condition = b.finish(b.emit("compare", count, b.constant(5, "s32"), direction="LT"))
    b = Builder("body")
    parameter = b.parameter(state)
    n, x, y = (Value(b, b.emit("get-tuple-element", parameter, index=k)) for k in range(3))
    body = b.finish(b.tuple([(n + 1).instruction, *(v.instruction for v in step(n, x, y))]))
    b = Builder("main")
    start = b.tuple([b.constant(0, "s32"), b.parameter(F32), b.parameter(F32)])
    made: Instruction = b.emit("while", start, condition=condition, body=body)
    return Module("loop", b.finish(b.tuple([b.emit("get-tuple-element", made, index=k) for k in (1, 2)])))
