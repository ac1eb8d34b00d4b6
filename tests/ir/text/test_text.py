"""Printing and parsing HLO text: round trips, names, provenance, golden texts, what XLA prints."""

from __future__ import annotations

import time

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from op_modules import cases, numbers

from hloom.ir.build import Builder
from hloom.ir.errors import ParseError
from hloom.ir.interpret import run
from hloom.ir.module import Instruction, Module
from hloom.ir.ops import OPS
from hloom.ir.portable import portable
from hloom.ir.source import Source
from hloom.ir.spmd.sharding import DeviceMesh, Sharding, on_device
from hloom.ir.text import parse_module, print_computation, print_instruction, print_module
from hloom.ir.text.attributes import KINDS, WindowDimension, is_required, kind_of
from hloom.ir.text.lexer import Cursor, escape, unescape
from hloom.ir.text.literals import literal_text, parse_literal, same_bits
from hloom.ir.types import BITS, DTYPES, FLOATS, Shape, TupleShape
from hloom.ir.verify import verify

CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_print_parse_print_gives_the_same_bytes(case):
    text = print_module(case.module)
    parsed = parse_module(text)
    verify(case.module)
    verify(parsed)
    assert print_module(parsed) == text


def test_every_op_is_in_a_printed_module():
    printed = {instruction.opcode for case in CASES for instruction in case.module.instructions()}
    assert printed == set(OPS) - {
        "send",
        "recv",  # not in programs of single devices: tests/compiler/placement/test_partition.py
        "size",  # not in programs of known sizes: tests/ir/sizes/test_open_programs.py
        "set-dimension-size",  # likewise: tests/hloom/dispatch/test_computed_sizes.py
        "kernel",
        "kernel-map",  # made of users' functions: tests/hloom/kernels
    }


@pytest.mark.parametrize("name", ["movement", "calls", "reductions", "dots", "fusions", "barriers", "custom_calls"])
def test_golden_text(name, golden):
    (case,) = [c for c in CASES if c.name == name]
    golden(f"ir/{name}.hlo", print_module(case.module))


def _same(a, b) -> bool:
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return same_bits(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("name", ["calls", "reductions", "dynamic", "constants_f32", "constants_c64", "movement"])
def test_a_parsed_module_computes_the_same_bits(name):
    (case,) = [c for c in CASES if c.name == name]
    assert _same(run(case.module, case.arguments), run(parse_module(print_module(case.module)), case.arguments))


# --- names --------------------------------------------------------------------------------------------------------


def _names(text: str) -> list[str]:
    return [
        line.split(" = ")[0].removeprefix("  ").removeprefix("ROOT ") for line in text.splitlines() if " = " in line
    ]


def test_names_come_from_hints_and_are_unique():
    b = Builder("main")
    x = b.parameter(Shape("f32"), "x")
    y = b.emit("add", x, x, hint="x")
    z = b.emit("add", x, y, hint="x.1")
    w = b.emit("add", y, z)
    b.emit("add", y, w)
    b.emit("negate", x, hint="α β")
    b.emit("negate", x, hint="f32")
    b.emit("negate", x, hint="2nd")
    root = b.emit("negate", x, hint="ROOT")
    text = print_module(Module("a module", b.finish(root)))
    assert _names(text) == ["%x", "%x.1", "%x.1.1", "%add.1", "%add.2", "%___", "%f32_", "%_2nd", "%ROOT_"]
    assert text.startswith("HloModule a_module, ")
    assert print_module(parse_module(text)) == text


def test_an_instruction_shared_by_computations_has_a_name_in_each():
    shared = Instruction("constant", (), Shape("f32"), {"value": np.float32(1)}, "one")
    b = Builder("f")
    b.parameter(Shape("f32"), "x")
    inner = b.finish(b.add(shared))
    b = Builder("main")
    x = b.parameter(Shape("f32"), "x")
    b.add(shared)
    module = Module("m", b.finish(b.emit("add", shared, b.emit("call", x, to_apply=inner))))
    text = print_module(module)
    assert _names(text) == ["%x", "%one", "%x.1", "%one.1", "%call.1", "%add.1"]
    assert print_module(parse_module(text)) == text


def test_order_of_computations_does_not_depend_on_the_order_of_attributes():
    first, second = (
        (b := Builder(name)).finish(b.emit("negate", b.parameter(Shape("f32")))) for name in ("first", "second")
    )
    b = Builder("main")
    x = b.parameter(Shape("f32"), "x")
    root = b.emit("call", b.emit("call", x, to_apply=first), to_apply=second)
    text = print_module(Module("m", b.finish(root)))
    assert text.index("%first") < text.index("%second") < text.index("ENTRY %main")
    assert [c.name for c in parse_module(text).computations()] == ["first", "second", "main"]


# --- provenance ---------------------------------------------------------------------------------------------------


def _with_source(source, made_by=()):
    b = Builder("main")
    b.source, b.made_by = source, made_by
    return Module("m", b.finish(b.emit("negate", b.parameter(Shape("f32"), "x"))))


@pytest.mark.parametrize(
    "source, made_by",
    [
        (Source('a b/ü "q".py', 12, "layer", "y"), ()),
        (Source("f.py", 3, "<lambda>"), ("fold", "cse")),
        (Source("f.py", 3, "", ""), ()),
        (None, ("fold",)),
    ],
)
def test_provenance_survives_text(source, made_by):
    text = print_module(_with_source(source, made_by), metadata=True)
    root = parse_module(text).entry.root
    assert (root.source, root.made_by) == (source, made_by)
    assert print_module(parse_module(text), metadata=True) == text


def test_metadata_as_xla_writes_it():
    text = print_module(_with_source(Source("f.py", 3, "layer", "y"), ("fold",)), metadata=True)
    assert 'metadata={op_type="fold" op_name="layer/y" source_file="f.py" source_line=3}' in text
    assert "metadata" not in print_module(_with_source(Source("f.py", 3, "layer", "y")))


@pytest.mark.parametrize(
    "metadata, source",
    [
        ('op_type=""', None),
        ("op_type=3", None),
        ("op_type=fold source_line=2", None),
        ('op_name=4 source_file="f.py" source_line="3"', Source("f.py", 0, "")),
        ('op_name="layer" source_file=5', None),
    ],
)
def test_metadata_of_other_types_is_ignored(metadata, source):
    text = print_module(_with_source(None, ("fold",)), metadata=True)
    root = parse_module(text.replace('op_type="fold"', metadata)).entry.root
    assert root.made_by == () and root.source == source


def test_stack_frames_of_xla():
    text = """HloModule m, is_scheduled=true

FileNames
1 "user.py"

FunctionNames
1 "layer"
2 "<module>"

FileLocations
1 {file_name_id=1 function_name_id=1 line=8 end_line=8 column=8 end_column=24}
2 {file_name_id=1 function_name_id=2 line=14 end_line=14 column=4 end_column=75}

StackFrames
1 {file_location_id=2 parent_frame_id=1}
2 {file_location_id=1 parent_frame_id=1}

ENTRY %main (x: f32[]) -> f32[] {
  %x = f32[] parameter(0), metadata={op_name="x"}
  ROOT %r = f32[] negate(%x), metadata={op_name="jit(layer)/neg" stack_frame_id=2}
}
"""
    entry = parse_module(text).entry
    assert entry.root.source == Source("user.py", 8, "layer")
    assert entry.parameters[0].source is None


@given(st.text(max_size=20))
def test_strings_are_escaped(text):
    encodable = text.encode("utf-8", "replace").decode("utf-8")
    assert unescape(escape(text)[1:-1]) == encodable
    assert escape(text).isascii()
    assert Cursor(escape(text), "").string() == encodable


# --- what the parser takes ----------------------------------------------------------------------------------------


def _body(*lines: str, head: str = "HloModule m") -> Module:
    inside = "\n".join(f"  {line}" for line in ("x = f32[3]{0} parameter(0)", *lines))
    return parse_module(f"{head}\n\nENTRY main {{\n{inside}\n}}\n")


def test_names_with_and_without_percent_and_operands_with_shapes():
    module = _body("%y = f32[3] add(f32[3]{0} %x, x)", "ROOT r = (f32[3], f32[3]) tuple(%y, /*index=1*/f32[3] y)")
    y = module.entry.root.operands[0]
    assert y.opcode == "add" and y.operands == (module.entry.parameters[0],) * 2
    assert module.entry.shape is TupleShape([Shape("f32", (3,))] * 2)


def test_hints_of_xla_are_passed():
    module = _body(
        'ROOT r = f32[3]{0} negate(x), sharding={devices=[2]0,1}, backend_config={"a":{"b":[1,2]},"c":"}"}, '
        'frontend_attributes={a="b",c={x}}, control-predecessors={%x}, metadata={op_name="n" profile_type={1}}'
    )
    verify(module)
    assert module.entry.root.attributes == {}


def test_frontend_attribute_of_an_op():
    text = 'ROOT r = f32[3]{0} copy(x), frontend_attributes={other="1",stop_gradient="true"}'
    module = _body(text)
    assert module.entry.root["stop_gradient"] is True
    assert print_instruction(module.entry.root).endswith('copy(%x), frontend_attributes={stop_gradient="true"}')


def test_a_single_computation_needs_no_entry_and_the_last_instruction_is_the_root():
    module = parse_module("HloModule m\n\nf {\n  x = f32[] parameter(0)\n  y = f32[] negate(x)\n}\n")
    assert module.entry.name == "f" and module.entry.root.opcode == "negate"
    assert parse_module("f { x = f32[] parameter(0) }").name == "module"


def test_parameters_in_any_order():
    module = parse_module("f {\n  y = f32[2] parameter(1)\n  x = f32[] parameter(0)\n}\n")
    assert [p.hint for p in module.entry.parameters] == ["x", "y"]
    verify(module)


@pytest.mark.parametrize("layout", ["{1,0}", "", "{0,1}"])
def test_layouts_that_mean_row_major(layout):
    module = parse_module(f"f {{ x = f32[1,5]{layout} parameter(0) }}")
    assert module.entry.shape is Shape("f32", (1, 5))


def test_aliases():
    text = "HloModule m, input_output_alias={ {0}: (1, {}, may-alias), {1}: (0, {}) }\n"
    body = "main { x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT t = (f32[], f32[]) tuple(x, y) }"
    module = parse_module(text + body)
    assert module.aliases == {0: 1, 1: 0}
    assert "input_output_alias={ {0}: (1, {}, may-alias), {1}: (0, {}, may-alias) }, entry" in print_module(module)
    none = _body("ROOT r = f32[3] negate(x)", head="HloModule m, input_output_alias={}")
    assert not none.aliases
    single = _body("ROOT r = f32[3] negate(x)", head="HloModule m, input_output_alias={ {}: (0, {}, must-alias) }")
    assert single.aliases == {0: 0}
    assert print_module(parse_module(print_module(single))) == print_module(single)


def test_defaults_that_xla_leaves_out():
    module = _body("ROOT r = f32[3]{0} slice(x), slice={[0:3]}")
    assert module.entry.root["slice"] == ((0, 3, 1),)
    module = _body("c = f32[] constant(0)", "ROOT r = f32[6]{0} pad(x, c), padding=1_2")
    assert module.entry.root["padding"] == ((1, 2, 0),)
    assert _body("ROOT r = pred[3] compare(x, x), direction=LT, type=FLOAT").entry.root.attributes == {
        "direction": "LT"
    }


def test_jax_prints_we_parse():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    jnp = jax.numpy

    def f(x, y, i):
        z = jnp.tanh(x @ y)
        return jnp.argmax(z, 1), jax.lax.dynamic_slice(z, (i, 0), (1, 2)), jnp.pad(z, 1), z[::2].astype(jnp.bfloat16)

    arguments = numbers("f32", (4, 4)), numbers("f32", (4, 4), 1), np.int32(2)
    lowered = jax.jit(f).lower(*arguments)
    expected = [np.asarray(r).astype(np.float64) for r in f(*arguments)]
    for text in (lowered.compiler_ir("hlo").as_hlo_text(), lowered.compile().as_text()):
        module = parse_module(text)
        verify(module)
        for found, wanted in zip(run(module, arguments), expected, strict=True):
            np.testing.assert_allclose(np.asarray(found).astype(np.float64), wanted, rtol=1e-2, atol=1e-6)
    assert any(i.source is not None and i.source.file == __file__ for i in module.instructions())


# --- constants ----------------------------------------------------------------------------------------------------


@st.composite
def _arrays(draw):
    """Arrays of any bits, any dtype, small extents, zero among them."""
    name = draw(st.sampled_from(sorted(DTYPES)))
    dims = tuple(draw(st.lists(st.integers(0, 3), max_size=4)))
    dtype = DTYPES[name]
    size = int(np.prod(dims, dtype=int))
    if dtype in BITS:
        low = -(1 << (BITS[dtype] - 1)) if name[0] == "s" else 0
        numbers = st.integers(low, low + (1 << BITS[dtype]) - 1)
        values = draw(st.lists(numbers, min_size=size, max_size=size))
        return np.array(values, np.int8).astype(dtype).reshape(dims)
    raw = draw(st.binary(min_size=size * dtype.itemsize, max_size=size * dtype.itemsize))
    if name == "pred":
        raw = bytes(b & 1 for b in raw)
    return np.frombuffer(raw, dtype).reshape(dims)


@given(_arrays())
@example(np.array([0, 0x7F810000], np.uint32).view(np.complex64))  # (0, nan(0x10000))
def test_constants_keep_their_bits(value):
    text = literal_text(value)
    assert same_bits(parse_literal(text, Shape(value.dtype, value.shape)), value)


@pytest.mark.parametrize(
    "value, text",
    [
        (np.float32(3.1415927), "3.14159274"),
        (np.float32(0.1), "0.1"),
        (np.float32([1e30, -0.0, np.nan, -np.inf]), "{1e+30, -0.0, nan, -inf}"),
        (np.float64(1 / 3), "0.33333333333333331"),
        (np.asarray([3.14159, 0.1], ml_dtypes.bfloat16), "{3.141, 0.1001}"),
        (np.float16([3.14159, 65504]), "{3.1406, 65504}"),
        (np.complex64([1 + 2j, complex(np.nan, -np.inf)]), "{(1, 2), (nan, -inf)}"),
        (np.bool_(True), "true"),
        (np.array([[True, False]]), "{ { 1, 0 } }"),
        (np.arange(4).reshape(2, 1, 2), "{ { { 0, 1 } }, { { 2, 3 } } }"),
        (np.zeros((2, 0), np.int8), "{ {}, {} }"),
        (np.zeros((0, 2), np.int8), "{  }"),
        (np.zeros(0, np.int8), "{}"),
    ],
)
def test_constants_as_xla_writes_them(value, text):
    assert literal_text(np.asarray(value)) == text


def test_payload_of_nan():
    bits = np.asarray(0x7F801234, np.uint32).view(np.float32)
    assert literal_text(bits) == "nan(0x1234)"
    assert same_bits(parse_literal("nan(0x1234)", Shape("f32")), bits)
    assert (
        FLOATS >= {DTYPES["f8e5m2"]} and literal_text(np.asarray(0xFD, np.uint8).view(DTYPES["f8e5m2"])) == "-nan(0x1)"
    )


def test_large_constants_are_printed_in_full():
    value = np.random.default_rng(0).standard_normal((100, 100)).astype(np.float32)
    b = Builder("main")
    text = print_module(Module("m", b.finish(b.constant(value))))
    assert same_bits(parse_module(text).entry.root["value"], value)


# --- kinds of attributes ------------------------------------------------------------------------------------------

_ONE = Sharding(DeviceMesh(("x", "y"), (2, 3)), (("y", "x"), ()))
_VALUES = {
    "int": [0, -3, 12],
    "float": [0.5, 1e-05, 3.0],
    "ints": [(), (0,), (0, 2, -1)],
    "groups": [(), ((0, 1), (2, 3)), ((),)],
    "slices": [(), ((0, 3, 1),), ((0, 3, 1), (1, 9, 2))],
    "padding": [(), ((0, 1, 0),), ((-1, 2, 0), (0, -3, 2))],
    "string": ["", 'a "b"\n', "ü"],
    "flag": [True, False],
    "frontend": [True, False],
    "enum": ["LT", "kLoop"],
    "frontend_word": ["kInput"],
    "window": [
        (),
        (WindowDimension(3), WindowDimension(2, stride=2)),
        (WindowDimension(3, 1, -1, 2, 2, 3, True), WindowDimension(1)),
    ],
    "dim_labels": ["b01f_01io->b01f", "bf_io->bf"],
    "frontend_int": [0, 7],
    "frontend_groups": [(), ((0, 1), (2, 3))],
    "frontend_names": [(), ("x", 'a "b", c')],
    "frontend_sharding": [_ONE, Sharding(_ONE.mesh, (("x",), ("y",)), (), (0, 1), (), (0, 2)), on_device(3, 1)],
    "frontend_shardings": [(), (_ONE, Sharding(DeviceMesh(("x",), (4,), (2, 0, 3, 1)), ((),), (), (0,), ("x",)))],
}


@pytest.mark.parametrize(
    "kind", sorted(set(KINDS) - {"computation", "computations", "literal", "hidden", "frontend_size"})
)
def test_kinds_read_what_they_write(kind):
    for value in _VALUES[kind]:
        assert KINDS[kind].holds(value)
        text = KINDS[kind].write(value, None)
        cursor = Cursor(text + ", next", "<text>")
        assert KINDS[kind].read(cursor) == value
        assert cursor.peek() == ","


def test_hidden_attributes_are_not_written():
    assert KINDS["hidden"].write(("i",), None) == ""
    with pytest.raises(ParseError, match="is not written"):
        KINDS["hidden"].read(Cursor("i", "<text>"))


def test_kinds_that_the_table_names_exist():
    for entry in OPS.values():
        for kind in entry.attributes.values():
            assert kind_of(kind).meaning
    assert is_required("ints") and not is_required("ints?") and not is_required("flag")


def test_print_computation_and_instruction():
    (case,) = [c for c in CASES if c.name == "scalar"]
    text = "%main (x: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n  ROOT %negate.1 = f32[] negate(%x)\n}\n"
    assert print_computation(case.module.entry) == text
    assert print_instruction(case.module.entry.root) == "%negate = f32[] negate(%x)"
    assert print_instruction(case.module.entry.root, case.module.entry) == "%negate.1 = f32[] negate(%x)"


def test_ten_thousand_instructions_parse_in_time():
    b = Builder("main")
    x = y = b.parameter(Shape("f32", (16, 16)), "x")
    for _ in range(5000):
        y = b.emit("slice", b.emit("add", y, x), slice=((0, 16, 1), (0, 16, 1)))
    text = print_module(Module("m", b.finish(y)))
    start = time.process_time()
    module = parse_module(text)
    assert time.process_time() - start < 3.0  # 0.2 s on a Zen 3 core
    assert len(module.entry.instructions) == 10001


def test_fusions_are_calls_in_portable_modules():
    text = """HloModule m, entry_computation_layout={(f32[4,3]{1,0})->f32[4]{0}}

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add.1 = f32[] add(%a, %b)
}

%rows (p: f32[4,3]) -> f32[4] {
  %p = f32[4,3]{1,0} parameter(0)
  %constant.1 = f32[] constant(0)
  ROOT %reduce.1 = f32[4]{0} reduce(%p, %constant.1), dimensions={1}, to_apply=%sum
}

ENTRY %main (x: f32[4,3]) -> f32[4] {
  %x = f32[4,3]{1,0} parameter(0)
  ROOT %y = f32[4]{0} fusion(%x), kind=kInput, calls=%rows
}
"""
    module = parse_module(text)
    verify(module)
    assert (module.entry.root.opcode, module.entry.root["kind"]) == ("fusion", "kInput")
    assert print_module(module) == text
    exported = print_module(portable(module))
    assert 'call(%x), to_apply=%rows, frontend_attributes={fusion_kind="kInput"}' in exported
    again = parse_module(exported)
    verify(again)
    assert (again.entry.root.opcode, again.entry.root["fusion_kind"]) == ("call", "kInput")
    assert print_module(again) == exported and portable(again) is again
