"""Errors of the parser: line, column and caret; and no text, however broken, raises anything else."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from op_modules import cases

from hloom.ir.errors import HloomError, ParseError
from hloom.ir.text import parse_module, print_module
from hloom.ir.verify import verify

pytestmark = pytest.mark.quick

# Each text has a caret line under the place that the error must name; the first line of the message follows.
BROKEN = {
    "opcode": """
HloModule m

ENTRY main {
  x = f32[2] parameter(0)
  ROOT y = f32[2] tahn(x)
                  ^
}
'tahn' is not an op of hloom
""",
    "operand": """
main {
  first = f32[2] parameter(0)
  ROOT y = f32[2] add(first, frist)
                             ^
}
'frist' is not defined above in this computation
""",
    "attribute": """
main {
  x = f32[2] parameter(0)
  ROOT y = f32[2] negate(x), dimensions={0}
                             ^
}
negate has no attribute 'dimensions'
""",
    "attribute twice": """
main {
  x = f32[2] parameter(0)
  ROOT y = f32[2] reverse(x), dimensions={0}, dimensions={0}
                                              ^
}
'dimensions' is given twice
""",
    "integers": """
main {
  x = f32[2] parameter(0)
  ROOT y = f32[2] reverse(x), dimensions={0,a}
                                         ^
}
expected a list of integers such as {0,1}
""",
    "slices": """
main {
  x = f32[2] parameter(0)
  ROOT y = f32[2] slice(x), slice={[0]}
                                  ^
}
expected [start:limit] or [start:limit:stride]
""",
    "padding": """
main {
  x = f32[2] parameter(0)
  ROOT y = f32[2] pad(x, x), padding=0_
                                     ^
}
expected padding such as 0_1x2_3_1 (low_high_interior of each dimension)
""",
    "flag": """
main {
  ROOT y = f32[2] custom-call(), custom_call_target="f", custom_call_has_side_effect=yes
                                                                                     ^
}
expected true or false
""",
    "value that changes the meaning": """
f {
  ROOT x = f32[2] parameter(0)
}

main {
  x = f32[2] parameter(0)
  ROOT y = f32[2] call(x), to_apply=f, is_composite=rather
                                                    ^
}
hloom's call has is_composite true, false only
""",
    "element type": """
main {
  x = f31[2] parameter(0)
      ^
}
'f31' is not an element type of hloom
""",
    "extents": """
main {
  x = f32[<=2] parameter(0)
      ^
}
dynamic sizes are not supported
""",
    "layout": """
main {
  x = f32[2,3]{0,2} parameter(0)
      ^
}
the layout '{0,2}' is not a permutation of 2 dimensions
""",
    "number": """
main {
  x = f32[2,2] constant({ { 1, 2 }, { 3, four } })
                                         ^
}
'four' is not a number
""",
    "count of a constant": """
main {
  x = f32[2,2] constant({ { 1, 2 }, { 3, 4, 5 } })
                                    ^
}
dimension 1 has 2 elements
""",
    "nesting of a constant": """
main {
  x = f32[2,2] constant({ 1, 2 })
                        ^
}
braces are nested less deep than the rank
""",
    "range of a constant": """
main {
  x = s8[2] constant({1, 200})
                         ^
}
200 does not fit into s8 (-128 to 127)
""",
    "range of a float": """
main {
  x = f16[] constant(70000)
                     ^
}
70000 is out of the range of f16
""",
    "elided constant": """
main {
  x = f32[200] constant({...})
                         ^
}
the constant's values are left out
""",
    "computation": """
main {
  x = f32[2] parameter(0)
  ROOT y = f32[2] call(x), to_apply=missing
                                    ^
}
there is no computation 'missing' above
""",
    "name twice": """
main {
  x = f32[2] parameter(0)
  x = f32[2] parameter(1)
  ^
}
'x' is defined twice
""",
    "second root": """
main {
  ROOT x = f32[2] parameter(0)
  ROOT y = f32[2] negate(x)
  ^
}
there is a second ROOT instruction
""",
    "parameter": """
main {
^
  x = f32[2] parameter(1)
}
parameter(0) is missing, or its index is wrong
""",
    "signature": """
HloModule m

ENTRY main (x: f32[2]) -> f32[3] {
      ^
  x = f32[2] parameter(0)
}
the signature of 'main' does not have the shapes of its parameters and root
""",
    "shape of an operand": """
main {
  x = f32[2] parameter(0)
  ROOT y = f32[2] negate(f32[3] x)
                         ^
}
'x' has another shape
""",
    "module attribute": """
HloModule m, colour=green
             ^
'colour' is not an attribute of modules that hloom knows
""",
    "entry layout": """
HloModule m, entry_computation_layout={()->f32[3]{0}}
             ^
main { ROOT x = f32[2] parameter(0) }
entry_computation_layout does not have the shapes of the entry computation
""",
    "alias": """
HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }
                                  ^
main { ROOT x = f32[2] parameter(0) }
the output of an alias is {k} for a tuple's element k and {} otherwise
""",
    "two entries": """
ENTRY f { x = f32[] parameter(0) }
ENTRY g { x = f32[] parameter(0) }
^
there is a second ENTRY computation
""",
    "brace": """
main {
  x = f32[2] parameter(0)
  ROOT y = f32[2] negate(x))
                           ^
}
expected an instruction
""",
    "tabs": """
main {
\tx = f32[2]\tparmeter(0)
\t          \t^
}
'parmeter' is not an op of hloom
""",
}


@pytest.mark.parametrize("name", BROKEN)
def test_line_column_and_caret(name):
    *lines, message = BROKEN[name].strip("\n").split("\n")
    (line,) = [k for k, text in enumerate(lines) if text.strip() == "^"]
    column = lines[line].index("^") + 1
    with pytest.raises(ParseError) as caught:
        parse_module("\n".join(lines[:line] + lines[line + 1 :]) + "\n", "model.hlo")
    error = caught.value
    assert (error.line, error.column) == (line, column)
    assert error.source[:2] == ("model.hlo", line)
    shown = str(error).split("\n")
    assert shown[0] == f"line {line}, column {column}: {message}"
    assert shown[1] == "    " + lines[line - 1]
    assert shown[2] == "    " + lines[line]
    assert f"  where:  model.hlo:{line}" in shown


def test_the_whole_message():
    with pytest.raises(ParseError) as caught:
        parse_module("HloModule m\n\nmain {\n  x = f32[2] parameter(0)\n  ROOT y = f32[2] tanhh(x)\n}\n", "model.hlo")
    assert str(caught.value) == (
        "line 5, column 19: 'tanhh' is not an op of hloom\n"
        "      ROOT y = f32[2] tanhh(x)\n"
        "                      ^\n"
        "  where:  model.hlo:5\n"
        "  repair: did you mean 'tanh'?"
    )


def test_a_text_that_ends_too_early_points_at_its_end():
    with pytest.raises(ParseError) as caught:
        parse_module("main {\n  x = f32[2] para")
    assert (caught.value.line, caught.value.column) == (2, 14)
    with pytest.raises(ParseError) as caught:
        parse_module("main {\n  x = f32[2]")
    assert (caught.value.line, caught.value.column) == (2, 13)
    assert "the end of the text" in str(caught.value)


def test_a_long_line_is_shown_in_part():
    values = ", ".join(["1"] * 5000)
    with pytest.raises(ParseError) as caught:
        parse_module(f"main {{ x = f32[5001] constant({{{values}, y}}) }}")
    shown = str(caught.value).split("\n")
    assert max(map(len, shown)) < 120
    assert shown[1][shown[2].index("^")] == "y"


@pytest.mark.parametrize("text", ["", "   \n// nothing\n", "HloModule", "HloModule m", "ENTRY", "{", "\0", "%", "/*"])
def test_texts_without_a_module(text):
    with pytest.raises(ParseError):
        parse_module(text)


@pytest.mark.parametrize(
    "text",
    [
        "main { x = " + "(" * 50000,
        "main { x = f32[] constant(" + "{" * 50000,
        "main { x = f32[" + "9" * 5000 + "] parameter(0) }",
        "main { x = f32[] parameter(" + "9" * 5000 + ") }",
        "main { x = s32[] constant(" + "9" * 5000 + ") }",
        "main { x = f32[] parameter(0), backend_config=" + "{" * 50000,
        "main { x = f32[] parameter(0), metadata={a=" + "{" * 50000,
    ],
    ids=["tuples", "braces", "extent", "index", "integer", "config", "metadata"],
)
def test_nesting_and_digits_have_bounds(text):
    with pytest.raises(ParseError):
        parse_module(text)


def test_chains_of_calls_have_a_bound():
    lines = ["f0 { p = f32[] parameter(0) }"]
    lines += [f"f{k} {{ p = f32[] parameter(0)\n c = f32[] call(p), to_apply=f{k - 1} }}" for k in range(1, 300)]
    with pytest.raises(ParseError, match="calls are nested deeper than 200"):
        parse_module("\n".join(lines).replace("f299 {", "ENTRY f299 {"))


# --- broken at random ---------------------------------------------------------------------------------------------

_TEXTS = [
    print_module(case.module, metadata=True)
    for case in cases()
    if case.name in ("calls", "fusions", "movement", "reductions", "constants_c64", "custom_calls", "barriers", "pads")
]
_PIECES = [
    "{",
    "}",
    "(",
    ")",
    ",",
    "=",
    "->",
    '"',
    "%",
    "[",
    "]",
    "nan",
    "ROOT ",
    "f32[2]",
    "constant(",
    "-",
    "0",
    "/*",
]
_PIECES += [
    "{0,1}",
    "1_2x",
    "\n",
    " ",
    "\\",
    "metadata={",
    "ENTRY ",
    "tuple(",
    "²",
    "é",
    "\x00",
    "99999999999999999999",
]


@st.composite
def _mutated(draw):
    text = draw(st.sampled_from(_TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        length = draw(st.sampled_from([0, 0, 1, 1, 2, 5, 30]))
        other = draw(st.integers(0, len(text)))
        piece = draw(st.sampled_from([*_PIECES, "", text[other : other + 12]]))
        text = text[:at] + piece + text[at + length :]
    return text


@given(_mutated())
@settings(max_examples=400)
@example("main { x = c64[1] constant({(1, )}) }")
@example("main { x = f32[2]{0:T(8)} parameter(0) }")
@example("main { t = (f32[]) parameter(0)\n y = f32[] negate(t) }")
@example("main { t = (f32[]) parameter(0)\n y = f32[] reduce(t, t), dimensions={0}, to_apply=main }")
def test_broken_texts_raise_parse_errors_only(text):
    try:
        module = parse_module(text)
    except ParseError as error:
        assert 1 <= error.line <= text.count("\n") + 1
        assert "^" in str(error)
        return
    # It still is a module: it prints, and the verifier says what it thinks of it.
    printed = print_module(module, metadata=True)
    assert print_module(parse_module(printed), metadata=True) == printed
    try:
        verify(module)
    except HloomError as error:
        assert str(error)
