"""while, conditional, scan and map: meaning, text that XLA reads, errors."""

from __future__ import annotations

import numpy as np
import pytest
import xla

from hloom.ir.build import Builder
from hloom.ir.errors import AttributeValueError, DTypeError, ShapeError
from hloom.ir.interpret import run
from hloom.ir.loops import counted_trips, lower_scans
from hloom.ir.module import Module
from hloom.ir.text import parse_module, print_module
from hloom.ir.types import DTYPES, PRED, Shape, TupleShape
from hloom.ir.verify import verify

F32, S32 = Shape(DTYPES["f32"], ()), Shape(DTYPES["s32"], ())
VECTOR = F32.with_dims((4,))


def scan_module(reverse=False, length=4):
    """carry' = carry * const + x; y = carry' + 1."""
    b = Builder("step")
    const, carry, x = b.parameter(F32), b.parameter(F32), b.parameter(F32)
    new = b.emit("add", b.emit("multiply", carry, const), x)
    body = b.finish(b.tuple([new, b.emit("add", new, b.splat(1, F32))]))
    b = Builder("main")
    operands = [b.parameter(F32), b.parameter(F32), b.parameter(F32.with_dims((length,)))]
    root = b.emit("scan", *operands, num_consts=1, num_carry=1, length=length, reverse=reverse, body=body)
    return Module("scans", b.finish(root))


def while_module(nested=False):
    """(i, x) -> while i < 5: (i + 1, x + x)."""
    state = TupleShape([S32, TupleShape([VECTOR])]) if nested else TupleShape([S32, VECTOR])
    b = Builder("condition")
    count = b.emit("get-tuple-element", b.parameter(state), index=0)
    condition = b.finish(b.emit("compare", count, b.constant(5, "s32"), direction="LT"))
    b = Builder("body")
    p = b.parameter(state)
    count, x = [b.emit("get-tuple-element", p, index=k) for k in range(2)]
    x = b.emit("get-tuple-element", x, index=0) if nested else x
    x = b.emit("add", x, x)
    new = b.emit("add", count, b.constant(1, "s32"))
    body = b.finish(b.tuple([new, b.tuple([x]) if nested else x]))
    b = Builder("main")
    count, x = b.parameter(S32), b.parameter(VECTOR)
    start = b.tuple([count, b.tuple([x]) if nested else x])
    loop = b.emit("while", start, condition=condition, body=body)
    x = b.emit("get-tuple-element", loop, index=1)
    x = b.emit("get-tuple-element", x, index=0) if nested else x
    return Module("loops", b.finish(b.tuple([b.emit("get-tuple-element", loop, index=0), x])))


def one(opcode, shape=F32):
    b = Builder(opcode)
    return b.finish(b.emit(opcode, b.parameter(shape)))


def conditional_module(dtype, branches):
    b = Builder("main")
    selector, x = b.parameter(Shape(dtype, ())), b.parameter(F32)
    root = b.emit("conditional", selector, *[x] * len(branches), branch_computations=tuple(branches))
    return Module("conditionals", b.finish(root))


def agree(module, arguments, lowered=True):
    """Interpreter, text that is read again, and XLA."""
    verify(module)
    wanted = run(module, arguments)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    text = print_module(module)
    again = parse_module(text)
    verify(again)
    assert print_module(again) == text
    found = run(again, arguments)
    for a, b, c in zip(wanted, found if isinstance(found, tuple) else (found,), xla.run(text, arguments), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, rtol=1e-6)
    return wanted


@pytest.mark.parametrize("length", [1, 2, 4])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse, length):
    x = np.arange(1, length + 1, dtype=np.float32)
    last, ys = agree(scan_module(reverse, length), [np.float32(2), np.float32(3), x])
    carry, wanted = 3.0, np.zeros(length)
    for k in reversed(range(length)) if reverse else range(length):
        carry = carry * 2 + x[k]
        wanted[k] = carry + 1
    assert last == carry
    np.testing.assert_array_equal(ys, wanted)


def test_scan_of_no_steps():
    last, ys = agree(scan_module(length=0), [np.float32(2), np.float32(3), np.zeros(0, np.float32)])
    assert last == 3 and ys.shape == (0,)


@pytest.mark.parametrize("nested", [False, True])
def test_while(nested):
    count, x = agree(while_module(nested), [np.int32(2), np.ones(4, np.float32)])
    assert count == 5
    np.testing.assert_array_equal(x, 8)


def test_conditional_on_a_pred():
    module = conditional_module(PRED, [one("negate"), one("exponential")])
    text = print_module(module)
    assert "true_computation=%negate, false_computation=%exponential" in text
    assert agree(module, [np.bool_(True), np.float32(2)])[0] == -2
    assert agree(module, [np.bool_(False), np.float32(0)])[0] == 1


@pytest.mark.parametrize("index, wanted", [(0, -4), (1, 2), (2, 4), (-1, 4), (3, 4)])
def test_conditional_on_an_index(index, wanted):
    module = conditional_module(np.dtype(np.int32), [one("negate"), one("sqrt"), one("abs")])
    assert agree(module, [np.int32(index), np.float32(4)])[0] == wanted


def test_map():
    b = Builder("f")
    x, y = b.parameter(F32), b.parameter(F32)
    body = b.finish(b.emit("add", b.emit("multiply", x, y), b.constant(1, "f32")))
    b = Builder("main")
    x, y = b.parameter(VECTOR), b.parameter(VECTOR)
    module = Module("maps", b.finish(b.emit("map", x, y, to_apply=body, dimensions=(0,))))
    (result,) = agree(module, [np.arange(4, dtype=np.float32), np.full(4, 3, np.float32)])
    np.testing.assert_array_equal(result, np.arange(4) * 3 + 1)


def test_map_over_a_computation_with_a_conditional():
    b = Builder("f")
    x = b.parameter(F32)
    positive = b.emit("compare", x, b.constant(0, "f32"), direction="GT")
    branches = one("sqrt"), one("negate")
    body = b.finish(b.emit("conditional", positive, x, x, branch_computations=branches))
    b = Builder("main")
    module = Module("maps", b.finish(b.emit("map", b.parameter(VECTOR), to_apply=body, dimensions=(0,))))
    verify(module)
    np.testing.assert_array_equal(run(module, [np.array([4, -1, 9, -2], np.float32)]), [2, 1, 3, 2])


def test_lowering_leaves_other_modules_alone():
    module = while_module()
    assert lower_scans(module) is module


def test_trips_are_counted():
    def trips(module):
        module = lower_scans(module)
        return [counted_trips(i) for i in module.entry.instructions if i.opcode == "while"]

    assert trips(scan_module(length=7)) == [7]
    assert trips(scan_module(reverse=True, length=7)) == [7]
    assert trips(while_module()) == [None]


# --- errors -------------------------------------------------------------------------------------------------------


def emit(opcode, shapes, **attributes):
    b = Builder("main")
    return b.emit(opcode, *[b.parameter(s) for s in shapes], **attributes)


def test_the_body_returns_the_state():
    b = Builder("body")
    body = b.finish(b.emit("convert", b.parameter(F32), shape=S32))
    condition = one("is-finite")
    with pytest.raises(ShapeError, match=r"result of the body 'body'") as caught:
        emit("while", [F32], condition=condition, body=body)
    assert "s32[], expected f32[]" in str(caught.value)


def test_the_condition_is_a_pred():
    with pytest.raises(ShapeError, match="the condition 'negate'"):
        emit("while", [F32], condition=one("negate"), body=one("negate"))


def test_the_body_takes_the_state():
    with pytest.raises(ShapeError, match="parameter 0 of the condition"):
        emit("while", [VECTOR], condition=one("is-finite"), body=one("negate"))


def test_a_selector_is_pred_or_s32():
    with pytest.raises(DTypeError, match="a scalar of pred or s32"):
        emit("conditional", [F32, F32, F32], branch_computations=(one("negate"), one("abs")))


def test_a_pred_has_two_branches():
    with pytest.raises(AttributeValueError, match="has two computations"):
        emit("conditional", [Shape(PRED, ()), F32], branch_computations=(one("negate"),))


def test_branches_return_one_shape():
    with pytest.raises(ShapeError, match="the result of branch 1"):
        emit("conditional", [S32, F32, F32], branch_computations=(one("negate"), one("is-finite")))


def test_xs_have_the_length():
    module = scan_module()
    body = module.entry.root["body"]
    with pytest.raises(ShapeError, match="of size 5"):
        emit("scan", [F32, F32, VECTOR], num_consts=1, num_carry=1, length=5, reverse=False, body=body)


def test_map_takes_arrays_of_one_shape():
    with pytest.raises(ShapeError, match="arrays of one shape"):
        emit("map", [F32, VECTOR], to_apply=one("negate"))
