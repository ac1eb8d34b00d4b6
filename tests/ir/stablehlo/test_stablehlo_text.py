"""StableHLO text: what is parsed, what is printed, what an error says, and that mutated text raises nothing else."""

# ruff: noqa: E501 (lines of MLIR are long)

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloom.errors import HloomError, ParseError, ShapeError, UnsupportedError
from hloom.ir.interpret import run
from hloom.ir.stablehlo import parse_program, print_program, to_module
from hloom.ir.stablehlo.reading import is_stablehlo, read_module


def evaluate(text: str, *arguments, **options):
    return run(to_module(parse_program(text), **options), list(arguments))


def function(body: str, arguments: str = "", results: str = "tensor<f32>") -> str:
    return f"func.func @main({arguments}) -> {results} {{\n{body}\n}}\n"


@pytest.mark.parametrize("shapes", [[], [(2,)], [(2,), (2,), (2,)]])
def test_a_shape_is_given_for_each_argument(shapes):
    text = function(
        "%0 = stablehlo.add %x, %y : tensor<?xf32>\nreturn %0 : tensor<?xf32>",
        "%x: tensor<?xf32>, %y: tensor<?xf32>", "tensor<?xf32>",
    )  # fmt: skip
    with pytest.raises(ShapeError, match="@main takes 2 arguments") as error:
        to_module(parse_program(text), input_shapes=shapes)
    assert error.value.found == f"{len(shapes)} shapes"
    assert to_module(parse_program(text), input_shapes=[(2,), (2,)]).entry.root.dims == (2,)


SCATTER = """%i = stablehlo.constant dense<[[0], [2]]> : tensor<2x1xi32>
%u = stablehlo.constant dense<1.0> : tensor<2xf32>
%0 = "stablehlo.scatter"(%x, %i, %u) <{FLAGSscatter_dimension_numbers = #stablehlo.scatter<
  inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
  stablehlo.return %b : tensor<f32>
}) : (tensor<4xf32>, tensor<2x1xi32>, tensor<2xf32>) -> tensor<4xf32>
return %0 : tensor<4xf32>"""


@pytest.mark.parametrize("names", [(), ("indices_are_sorted",), ("indices_are_sorted", "unique_indices")])
def test_promises_about_the_indexes_of_a_scatter(names):
    flags = "".join(f"{name} = {str(name in names).lower()}, " for name in ("indices_are_sorted", "unique_indices"))
    text = function(SCATTER.replace("FLAGS", flags), "%x: tensor<4xf32>", "tensor<4xf32>")
    root = to_module(parse_program(text)).entry.root
    assert {
        name: value for name, value in root.attributes.items() if name in ("indices_are_sorted", "unique_indices")
    } == (dict.fromkeys(names, True))


# --- constants ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dense<1.5> : tensor<2xf32>", np.float32([1.5, 1.5])),
        ("dense<[[1, 2], [3, -4]]> : tensor<2x2xi32>", np.int32([[1, 2], [3, -4]])),
        ("dense<0x7F800000> : tensor<f32>", np.float32(np.inf)),
        ("dense<[0xFFC00000, 1.0e-3]> : tensor<2xf32>", np.float32([np.nan, 1e-3])),
        ("dense<(1.0, -2.0)> : tensor<complex<f32>>", np.complex64(1 - 2j)),
        ("dense<[(1.0,2.0), (0x7FC00000,0.0)]> : tensor<2xcomplex<f32>>", np.array([1 + 2j, np.nan], np.complex64)),
        ("dense<[true, false]> : tensor<2xi1>", np.array([True, False])),
        ('dense<"0x0100FEFF"> : tensor<2xi16>', np.int16([1, -2])),
        ('dense<"0x01"> : tensor<3xi1>', np.array([True] * 3)),
        ('dense<"0x0000803F00000040"> : tensor<2x1xf32>', np.float32([[1], [2]])),
        ("dense<> : tensor<0x3xf32>", np.zeros((0, 3), np.float32)),
        ("dense<18446744073709551615> : tensor<ui64>", np.uint64(2**64 - 1)),
        ("dense<0xFF> : tensor<i8>", np.int8(-1)),
    ],
)
def test_constants(text, expected):
    result = evaluate(function(f"%0 = stablehlo.constant {text}\nreturn %0 : {text.split(' : ')[1]}", "",
                               text.split(" : ")[1]))  # fmt: skip
    assert result.dtype == expected.dtype and np.shape(result) == np.shape(expected)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("dense<[1, 2, 3]> : tensor<2xi32>", "shape [3]"),
        ("dense<[[1], [2, 3]]> : tensor<2x2xi32>", "lists of one level have one length"),
        ("dense<1.5> : tensor<i32>", "is an integer"),
        ("dense<300> : tensor<i8>", "out of the range of s8"),
        ("dense<maybe> : tensor<i1>", "true or false"),
        ("dense<(1.0)> : tensor<complex<f32>>", "a pair"),
        ('dense<"0x00"> : tensor<2xf32>', "8 bytes"),
        ('dense<"0xZZ"> : tensor<i8>', "hexadecimal digits"),
        ("dense<0x1FFFFFFFF> : tensor<f32>", "wider than f32"),
        ("dense<[1, 2> : tensor<2xi32>", "not closed"),
    ],
)
def test_wrong_constants(text, problem):
    result = text.split(" : ")[1]
    with pytest.raises(ParseError) as error:
        evaluate(function(f"%0 = stablehlo.constant {text}\nreturn %0 : {result}", "", result))
    assert problem in str(error.value) and "line 2, column 1" in str(error.value)


# --- spellings ----------------------------------------------------------------------------------------------------

X = "%x: tensor<2x3xf32>"
PAIRS = [
    ("%0 = stablehlo.add %x, %x : tensor<2x3xf32>",
     '%0 = "stablehlo.add"(%x, %x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>'),
    ("%0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>",
     '%0 = "stablehlo.transpose"(%x) {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>'),
    ("%0 = stablehlo.slice %x [0:2, 0:3:2] : (tensor<2x3xf32>) -> tensor<2x2xf32>",
     '%0 = "stablehlo.slice"(%x) <{start_indices = dense<0> : tensor<2xi64>, limit_indices = array<i64: 2, 3>, '
     "strides = [1, 2]}> : (tensor<2x3xf32>) -> tensor<2x2xf32>"),
    ("%0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x2xf32>",
     '%0 = "stablehlo.dot_general"(%x, %x) {dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], '
     "rhs_contracting_dimensions = [1]>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x2xf32>"),
    ("%c = stablehlo.constant dense<0.0> : tensor<f32>\n"
     "%0 = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>",
     "%c = stablehlo.constant dense<0.0> : tensor<f32>\n"
     '%0 = "stablehlo.reduce"(%x, %c) ({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n%1 = stablehlo.add %a, %b : tensor<f32>\n'
     "stablehlo.return %1 : tensor<f32>\n}) {dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>"),
]  # fmt: skip


@pytest.mark.parametrize("pretty, generic", PAIRS)
def test_pretty_and_generic_spelling_mean_the_same(pretty, generic):
    result = pretty.rsplit(" ", 1)[1]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    texts = [function(f"{t}\nreturn %0 : {result}", X, result) for t in (pretty, generic)]
    a, b = (evaluate(t, x) for t in texts)
    np.testing.assert_array_equal(a, b)
    # What is printed means the same, in whichever spelling its attributes allow.
    for text in texts:
        np.testing.assert_array_equal(evaluate(print_program(parse_program(text)), x), a)
    # The generic print is read as the pretty one is.
    program = parse_program(texts[0])
    np.testing.assert_array_equal(evaluate(print_program(program, generic=True), x), a)
    assert print_program(parse_program(print_program(program, generic=True))) == print_program(program)


def test_aliases_locations_names_and_resources():
    text = """
#map = array<i64: 1, 0>
!matrix = tensor<2x3xf32>
#loc1 = loc("model.py":7:3)
#loc2 = loc("jit(f)/add"(callsite(#loc1 at #loc)))
module @"a name" attributes {mhlo.num_partitions = 1 : i32, unit, list = [1, "two\\22", @three]} {
  func.func private @"odd name"(%arg0: !matrix loc("x")) -> (tensor<3x2xf32> {jax.result_info = ""}) {
    %0 = "stablehlo.transpose"(%arg0) <{permutation = #map}> : (!matrix) -> tensor<3x2xf32> loc("f"("model.py":12:1))
    return %0 : tensor<3x2xf32> loc(#loc1)
  } loc(#loc1)
  func.func public @main(%arg0: !matrix) -> tensor<3x2xf32> {
    %c = stablehlo.constant dense_resource<blob> : tensor<3x2xf32>
    %0 = call @"odd name"(%arg0) : (!matrix) -> tensor<3x2xf32>
    %1 = stablehlo.add %0, %c : tensor<3x2xf32> loc(#loc2)
    return %1 : tensor<3x2xf32>
  }
}
#loc = loc(unknown)
{-#
  dialect_resources: { builtin: { blob: "0x040000000000803F0000803F0000803F0000803F0000803F0000803F" } }
#-}
"""
    program = parse_program(text)
    assert program.name == "a name"
    printed = print_program(program)
    assert print_program(parse_program(printed)) == printed
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(evaluate(printed, x), x.T + 1)
    module = to_module(program)
    transpose = next(i for i in module.instructions() if i.opcode == "transpose")
    assert (transpose.source.file, transpose.source.line) == ("model.py", 12)
    add = next(i for i in module.instructions() if i.opcode == "add")
    assert (add.source.file, add.source.line) == ("model.py", 7)


def test_loops_and_branches_see_values_from_outside():
    text = function(
        """
    %c = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %0:2 = stablehlo.while(%i = %c, %v = %x) : tensor<i32>, tensor<f32>
     cond {
      %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %w = stablehlo.multiply %v, %x : tensor<f32>
      stablehlo.return %j, %w : tensor<i32>, tensor<f32>
    }
    %p = stablehlo.compare GT, %0#1, %x : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %r = "stablehlo.if"(%p) ({
      stablehlo.return %0#1 : tensor<f32>
    }, {
      %m = stablehlo.negate %x : tensor<f32>
      stablehlo.return %m : tensor<f32>
    }) : (tensor<i1>) -> tensor<f32>
    return %r : tensor<f32>""",
        "%x: tensor<f32>, %n: tensor<i32>",
    )
    assert evaluate(text, np.float32(3), np.int32(2)) == 27
    assert evaluate(text, np.float32(0.5), np.int32(2)) == -0.5


def test_composites_are_their_decompositions():
    text = """
module {
  func.func private @twice(%a: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %a, %a : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func @main(%a: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.composite "my.twice" %a {decomposition = @twice, version = 1 : i32} : (tensor<f32>) -> tensor<f32>
    return %0 : tensor<f32>
  }
}"""
    assert evaluate(text, np.float32(4)) == 8


def test_a_composite_with_the_name_of_an_op_is_the_op():
    text = """
module {
  func.func private @impl(%a: tensor<3xf32>) -> (tensor<2xf32>, tensor<2xi32>) {
    %0 = stablehlo.iota dim = 0 : tensor<3xi32>
    %1 = stablehlo.slice %a [0:2] : (tensor<3xf32>) -> tensor<2xf32>
    %2 = stablehlo.slice %0 [0:2] : (tensor<3xi32>) -> tensor<2xi32>
    return %1, %2 : tensor<2xf32>, tensor<2xi32>
  }
  func.func @main(%a: tensor<3xf32>) -> (tensor<2xf32>, tensor<2xi32>) {
    %0:2 = stablehlo.composite "chlo.top_k" %a {composite_attributes = {k = 2 : i64}, decomposition = @impl} : (tensor<3xf32>) -> (tensor<2xf32>, tensor<2xi32>)
    return %0#0, %0#1 : tensor<2xf32>, tensor<2xi32>
  }
}"""
    values, indices = evaluate(text, np.float32([1, 3, 2]))
    np.testing.assert_array_equal(values, [3, 2])
    np.testing.assert_array_equal(indices, [1, 2])


def test_ops_of_a_function_without_places_have_that_of_its_call():
    text = """
#loc1 = loc("model.py":5:3)
module {
  func.func private @twice(%a: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %a, %a : tensor<f32> loc("add")
    return %0 : tensor<f32>
  }
  func.func @main(%a: tensor<f32>) -> tensor<f32> {
    %0 = call @twice(%a) : (tensor<f32>) -> tensor<f32> loc("f"(#loc1))
    return %0 : tensor<f32>
  }
}"""
    add = next(i for i in to_module(parse_program(text)).instructions() if i.opcode == "add")
    assert (add.source.file, add.source.line) == ("model.py", 5)


def test_quantized_axes():
    text = function(
        """
    %0 = stablehlo.uniform_quantize %x : (tensor<2x2xf32>) -> tensor<2x2x!quant.uniform<i8:f32:1, {0.5:1, 0.25}>>
    %1 = stablehlo.add %0, %0 : (tensor<2x2x!quant.uniform<i8:f32:1, {0.5:1, 0.25}>>, tensor<2x2x!quant.uniform<i8:f32:1, {0.5:1, 0.25}>>) -> tensor<2x2x!quant.uniform<i8:f32, 1.0>>
    %2 = stablehlo.uniform_dequantize %1 : (tensor<2x2x!quant.uniform<i8:f32, 1.0>>) -> tensor<2x2xf32>
    return %2 : tensor<2x2xf32>""",
        "%x: tensor<2x2xf32>",
        "tensor<2x2xf32>",
    )
    x = np.float32([[0.6, 0.3], [100.0, -100.0]])
    # 0.6 -> 0.5, 0.3 -> 0.25 (0.5 rounds to even: 0); 100 clamps to 0.5 * (127 - 1) = 63, -100 to -32.
    np.testing.assert_array_equal(evaluate(text, x), np.float32([[1, 0], [126, -64]]))


# --- open extents -------------------------------------------------------------------------------------------------

DYNAMIC = function(
    """
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x2xf32>) -> tensor<i32>
    %m = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %0 = stablehlo.dynamic_iota %m, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
    %two = stablehlo.constant dense<2> : tensor<1xi32>
    %s = stablehlo.concatenate %m, %two, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %1 = stablehlo.dynamic_broadcast_in_dim %0, %s, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x2xf32>
    %2 = stablehlo.add %x, %1 : tensor<?x2xf32>
    return %2 : tensor<?x2xf32>""",
    "%x: tensor<?x2xf32>",
    "tensor<?x2xf32>",
)


def test_open_extents_become_the_arguments():
    for n in (1, 3):
        result = evaluate(DYNAMIC, np.ones((n, 2), np.float32), input_shapes=[(n, 2)])
        np.testing.assert_array_equal(result, 1 + np.repeat(np.arange(n, dtype=np.float32)[:, None], 2, 1))


def test_open_extents_that_nothing_decides():
    with pytest.raises(ShapeError) as error:
        to_module(parse_program(DYNAMIC, "d.mlir"))
    assert "argument 0 of @main has sizes that are not known" in str(error.value)
    assert error.value.repair == "pass input_shapes=, or call the function with arrays"
    text = function(
        "%0 = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>\nreturn %0 : tensor<?xf32>",
        "%n: tensor<1xi32>",
        "tensor<?xf32>",
    )
    with pytest.raises(UnsupportedError) as error:
        to_module(parse_program(text, "d.mlir"))
    assert "stablehlo.dynamic_iota with sizes that depends on the values of arguments" in error.value.asked
    assert str(error.value.source) == "d.mlir:2 in main"
    np.testing.assert_array_equal(evaluate(text, [3], known=[np.int32([3])]), [0, 1, 2])


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place", "problem", "repair"),
    [
        ("func.func @main( {", (1, 18), "expected", ""),
        (function("%0 = stablehlo.addd %x, %x : tensor<f32>", "%x: tensor<f32>"), (2, 6), "no pretty syntax", "stablehlo.add"),
        (function("return %y : tensor<f32>", "%x: tensor<f32>"), (2, 8), "'%y' is not defined", "define it first"),
        (function("return %x : tensor<2xf32>", "%x: tensor<f32>"), (2, 1), "uses %x as tensor<2xf32>", "the type it has"),
        (function("%x = stablehlo.sine %x : tensor<f32>", "%x: tensor<f32>"), (2, 1), "defined twice", "another name"),
        (function("%0:2 = stablehlo.sine %x : (tensor<f32>) -> tensor<f32>", "%x: tensor<f32>"), (2, 1), "1 results", ""),
        (function("return %x : tensor<2xq8>", "%x: tensor<f32>"), (2, 13), "element type", "f32 or i64"),
        (function("%0 = stablehlo.constant dense<1> : tensor<?xi32>"), (2, 36), "fixed sizes", ""),
        ("module { func.func @a() { return } func.func @a() { return } }", (1, 36), "'@a' is defined twice", ""),
        ("func.func @main() { return } ) ", (1, 30), "expected an operation", ""),
        ('module { "stablehlo.add"() {a = 1, a = 2} : () -> () }', (1, 36), "given twice", ""),
        ('"builtin.module"() <{sym_name = 1}> ({}) : () -> ()', (1, 1), "the name of a module is text", "sym_name ="),
        (
            '"func.func"() <{function_type = (tensor<f32>) -> (), sym_name = "f"}> ({ "func.return"() : () -> () }) '
            ": () -> ()", (1, 1), "arguments of the function's types", "for each input",
        ),
    ],
)  # fmt: skip
def test_errors_say_line_column_and_caret(text, place, problem, repair):
    with pytest.raises(ParseError) as error:
        parse_program(text, "p.mlir")
    message = str(error.value)
    line, column = place
    assert message.startswith(f"line {line}, column {column}: "), message
    assert problem in message and repair in message
    shown = message.split("\n")
    assert shown[2].index("^") == 4 + column - 1 and error.value.source.file == "p.mlir"


@pytest.mark.parametrize(
    ("body", "kind", "problem"),
    [
        ("%0 = stablehlo.reshape %x : (tensor<2xf32>) -> tensor<3xf32>", ShapeError, "reshape keeps the number"),
        ("%0 = stablehlo.transpose %x, dims = [1] : (tensor<2xf32>) -> tensor<2xf32>", HloomError, "permutation"),
        ('%0 = "stablehlo.rng"(%x, %x, %x) : (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>',
         UnsupportedError, "stablehlo.rng"),
        ('%0 = "mhlo.what"(%x) : (tensor<2xf32>) -> tensor<2xf32>', UnsupportedError, "mhlo.what is not an op"),
        ("%0 = stablehlo.sine %x : (tensor<2xf32>) -> tensor<3xf32>", ParseError, "gives f32[2]"),
        ("%0 = stablehlo.convert %x : (tensor<2xf32>) -> tensor<2xi3>", UnsupportedError, "type i3"),
        ('%0 = "stablehlo.slice"(%x) : (tensor<2xf32>) -> tensor<2xf32>', ParseError, "cannot take these"),
        ("%0 = call @f(%x) : (tensor<2xf32>) -> tensor<2xf32>", ParseError, "no function @f"),
        ("%0 = call @main(%x) : (tensor<2xf32>) -> tensor<2xf32>", ParseError, "calls itself"),
    ],
)  # fmt: skip
def test_errors_of_conversion_say_the_line(body, kind, problem):
    text = function(f"{body}\nreturn %0 : {body.split('-> ')[-1]}", "%x: tensor<2xf32>", body.split("-> ")[-1])
    with pytest.raises(kind) as error:
        to_module(parse_program(text, "p.mlir"))
    assert problem in str(error.value), error.value
    assert error.value.source.file == "p.mlir" and error.value.source.line == 2


SEEDS = [
    DYNAMIC,
    *(function(f"{p}\nreturn %0 : {p.rsplit(' ', 1)[1]}", X, p.rsplit(" ", 1)[1]) for p, _ in PAIRS),
    *(function(f"{g}\nreturn %0 : {g.rsplit(' ', 1)[1]}", X, g.rsplit(" ", 1)[1]) for _, g in PAIRS),
    function('%0 = stablehlo.constant dense<"0x00000000"> : tensor<f32>\nreturn %0 : tensor<f32>'),
    function(
        "%0 = stablehlo.convolution(%x, %x) dim_numbers = [b, f]x[i, o]->[b, f], window = {stride = []} "
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>\n"
        "return %0 : tensor<2x2xf32>",
        "%x: tensor<2x2xf32>",
        "tensor<2x2xf32>",
    ),
]
PIECES = """( ) { } < > [ ] : , = -> % %0 %x #a @f ^bb0 ! " tensor< dense<> dense<[[1]]> array<i64: 1> 0x 1.5e400 -1
99999999999999999999 stablehlo.while stablehlo.reduce stablehlo.add call loc( {-# module attributes tuple< ?x
!quant.uniform<i8:f32, 0.1:3> #stablehlo.gather<a = 1>""".split(" ")


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_mutated_text_raises_errors_of_ours_only(seed, count):
    rng = random.Random(seed)
    text = rng.choice(SEEDS)
    for _ in range(count):
        at = rng.randrange(len(text) + 1)
        action = rng.randrange(4)
        if action == 0:
            text = text[:at] + text[at + rng.randrange(1, 12) :]
        elif action == 1:
            text = text[:at] + rng.choice(PIECES) + text[at:]
        elif action == 2:
            other = rng.randrange(len(text) + 1)
            text = text[:at] + text[other : other + rng.randrange(40)] + text[at:]
        else:
            text = text[:at] + chr(rng.randrange(1, 0x300)) + text[at + 1 :]
    try:
        program = parse_program(text)
        assert print_program(parse_program(print_program(program))) == print_program(program)
        to_module(program, input_shapes=None)
    except HloomError:
        pass


def test_deep_and_long_texts_are_read_or_refused():
    for text in ("(" * 5000, "module {" * 5000, "tuple<" * 5000, "[" * 5000, "a" * 100_000):
        with pytest.raises(HloomError):
            parse_program(text)
    deep = 'module { "a.b"() {x = ' + "[" * 3000 + "]" * 3000 + "} : () -> () }"
    with pytest.raises(ParseError, match="nested deeper"):
        parse_program(deep)
    lines = "\n".join(f"%{k + 1} = stablehlo.sine %{k} : tensor<f32>" for k in range(3000))
    program = parse_program(
        function(f"%0 = stablehlo.sine %x : tensor<f32>\n{lines}\nreturn %3000 : tensor<f32>", "%x: tensor<f32>")
    )
    assert len(to_module(program).entry.instructions) == 3002


def test_the_dialect_of_a_text():
    assert (
        is_stablehlo("// a comment\nmodule @m {}")
        and is_stablehlo("#loc = loc(unknown)\n")
        and is_stablehlo("", "x.mlir")
    )
    assert (
        not is_stablehlo("HloModule m\n")
        and not is_stablehlo("ENTRY main {")
        and not is_stablehlo("module @m", "x.hlo")
    )
    assert read_module("HloModule m\nENTRY e { ROOT x = f32[] parameter(0) }").name == "m"
    assert (
        read_module("module @n { func.func @main(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> } }").name
        == "n"
    )


def test_a_slice_of_rank_0():
    """MLIR prints its empty list of starts between two commas."""
    line = "%0 = stablehlo.dynamic_slice %x, , sizes = [] : (tensor<i32>) -> tensor<i32>\nreturn %0 : tensor<i32>"
    program = parse_program(function(line, "%x: tensor<i32>", "tensor<i32>"))
    assert run(to_module(program), [np.int32(7)]) == [7]
    with pytest.raises(ParseError, match="sizes ="):
        parse_program(function(line.replace(", , ", ", , , "), "%x: tensor<i32>", "tensor<i32>"))
