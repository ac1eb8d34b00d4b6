"""StableHLO programs with dynamic dimensions: one module for all sizes for which the text means the same."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.errors import ParseError, ShapeError, UndecidedSizeError, UnsupportedError
from hloom.ir.stablehlo import parse_program, to_module
from hloom.ir.stablehlo.reader.open_sizes import open_module


def function(body: str, arguments: str, result: str) -> str:
    return f"func.func @main({arguments}) -> {result} {{\n{body}\n}}"


def opened(text: str, shapes, values=None):
    """The module that is read for arguments of these shapes."""
    program = parse_program(text, "open.mlir")
    return open_module(program, program.functions()["main"], shapes, values or (None,) * len(shapes))


def drawn(*dims) -> np.ndarray:
    return np.random.default_rng(sum(dims)).standard_normal(dims).astype(np.float32)


def programs(f) -> int:
    """How many programs serve the calls so far; none where the text is read for each size."""
    return 0 if f._open._closed else len(f._open._programs)


LAYER = function(
    """
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
    %m = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %0 = stablehlo.dynamic_iota %m, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
    %three = stablehlo.constant dense<3> : tensor<1xi32>
    %s = stablehlo.concatenate %m, %three, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %1 = stablehlo.dynamic_broadcast_in_dim %0, %s, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x3xf32>
    %2 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<?x4xf32>, tensor<4x3xf32>) -> tensor<?x3xf32>
    %3 = stablehlo.add %1, %2 : tensor<?x3xf32>
    %k = stablehlo.constant dense<3> : tensor<i32>
    %4 = stablehlo.multiply %n, %k : tensor<i32>
    %5 = stablehlo.reshape %4 : (tensor<i32>) -> tensor<1xi32>
    %6 = stablehlo.dynamic_reshape %3, %5 : (tensor<?x3xf32>, tensor<1xi32>) -> tensor<?xf32>
    return %6, %n : tensor<?xf32>, tensor<i32>""",
    "%x: tensor<?x4xf32>, %w: tensor<4x3xf32>",
    "(tensor<?xf32>, tensor<i32>)",
)


def test_one_program_for_all_sizes():
    f, w = hl.from_stablehlo(LAYER), drawn(4, 3)
    for n in (5, 3, 64, 2, 7, 1000):
        x = drawn(n, 4)
        result, size = f(x, w)
        np.testing.assert_allclose(result, (x @ w + np.arange(n)[:, None]).reshape(-1), rtol=1e-4, atol=1e-4)
        assert int(size) == n and size.dtype == np.int32
    assert programs(f) == 1
    for n in (0, 1):
        x = drawn(n, 4)
        result, size = f(x, w)
        np.testing.assert_allclose(result, (x @ w + np.arange(n)[:, None]).reshape(-1), rtol=1e-5, atol=1e-5)
        assert int(size) == n
    assert programs(f) == 3, "sizes of 0 and 1 have programs of their own"


def test_the_module_has_sizes():
    module = opened(LAYER, [(5, 4), (4, 3)])
    assert [str(s) for s in module.shapes] == ["(x_0, 4)", "(4, 3)"]
    assert str(module.module.entry.shape) == "(f32[3*x_0], s32[])"
    assert list(map(str, module.conditions)) == ["x_0 >= 2", "3*x_0 <= 2147483647"]
    assert module.serves([(9, 4), (4, 3)], (None, None)) and not module.serves([(1, 4), (4, 3)], (None, None))
    assert not module.serves([(1 << 30, 4), (4, 3)], (None, None)), "3 * n has no room in an i32"


def test_in_transforms_and_with_dims():
    f, w, x = hl.from_stablehlo(LAYER), drawn(4, 3), drawn(6, 4)
    f(x, w)
    wanted = np.broadcast_to(w.sum(1), (6, 4))
    np.testing.assert_allclose(hl.grad(lambda a: f(a, w)[0].sum())(x), wanted, rtol=1e-5)
    batch = hl.vmap(lambda a: f(a, w)[0])(np.stack([x, x + 1]))
    np.testing.assert_allclose(batch[1], f(x + 1, w)[0], rtol=1e-5)
    np.testing.assert_allclose(hl.jit(lambda a: f(a, w)[0] * 2)(x), 2 * f(x, w)[0], rtol=1e-5)
    compiled = f.lower(hl.ShapeDtypeStruct((hl.Dim("n", 1, 4096), 4), "float32"), w).compile()
    for n in (1, 3, 20):
        np.testing.assert_allclose(compiled(drawn(n, 4), w)[0], f(drawn(n, 4), w)[0], rtol=1e-4, atol=1e-5)
    assert f.lower(x, w).out_info[0].shape == (18,)
    g = hl.jit(lambda a: f(a, w)[0].sum(), dims={"a": (hl.Dim("n", 1, 4096), 4)})
    for n in (2, 9):
        np.testing.assert_allclose(g(drawn(n, 4)), np.asarray(f(drawn(n, 4), w)[0]).sum(), rtol=1e-4, atol=1e-4)


def test_sizes_that_have_to_be_equal_become_one():
    text = function(
        "%0 = stablehlo.add %x, %y : tensor<?x?xf32>\nreturn %0 : tensor<?x?xf32>",
        "%x: tensor<?x?xf32>, %y: tensor<?x?xf32>",
        "tensor<?x?xf32>",
    )
    module = opened(text, [(5, 7), (5, 7)])
    assert module.shapes[0] == module.shapes[1] and len(module.dims) == 2
    assert not module.serves([(5, 7), (5, 8)], (None, None))
    f = hl.from_stablehlo(text)
    for n, m in ((5, 7), (7, 5), (6, 6), (1, 3), (3, 0)):
        np.testing.assert_allclose(f(drawn(n, m), drawn(n, m)), 2 * drawn(n, m), rtol=1e-6)
    with pytest.raises(ShapeError, match="one shape"):
        f(drawn(5, 7), drawn(5, 8))
    with pytest.raises(ShapeError, match="one shape"):
        f(drawn(1, 7), drawn(5, 7))


BROADCAST = function(
    """
    %n = stablehlo.get_dimension_size %y, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %s = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %0 = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [0] : (tensor<?xf32>, tensor<1xi32>) -> tensor<?xf32>
    %1 = stablehlo.add %0, %y : tensor<?xf32>
    return %1 : tensor<?xf32>""",
    "%x: tensor<?xf32>, %y: tensor<?xf32>",
    "tensor<?xf32>",
)


def test_sizes_that_may_be_spread():
    f = hl.from_stablehlo(BROADCAST)
    for n, m in ((4, 4), (1, 4), (1, 9), (6, 6), (1, 1), (1, 0), (0, 0)):
        np.testing.assert_allclose(f(drawn(n), drawn(m)), drawn(n) + drawn(m), rtol=1e-6)
    assert programs(f) == 5  # of x and y alike, and for each size of 0 and 1
    for n, m in ((3, 4), (0, 4), (4, 1)):
        with pytest.raises(ShapeError, match="spreads sizes of 1"):
            f(drawn(n), drawn(m))


def test_integers_wrap_around():
    """The last 8 bits of n - n * 2^31 are those of n; 200 of them are -56 in an i8."""
    text = function(
        """
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %k = stablehlo.constant dense<-2147483648> : tensor<i32>
    %0 = stablehlo.multiply %n, %k : tensor<i32>
    %1 = stablehlo.add %0, %n : tensor<i32>
    %b = stablehlo.convert %1 : (tensor<i32>) -> tensor<i8>
    %c = stablehlo.convert %b : (tensor<i8>) -> tensor<i32>
    %s = stablehlo.reshape %c : (tensor<i32>) -> tensor<1xi32>
    %2 = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
    return %2 : tensor<?xi32>""",
        "%x: tensor<?xf32>",
        "tensor<?xi32>",
    )
    f = hl.from_stablehlo(text)
    for n in (4, 6, 100, 126, 258, 0, 5, 3 * 256 + 5):
        np.testing.assert_array_equal(f(drawn(n)), np.arange(n % 256))
    for n in (200, 255):
        with pytest.raises(ShapeError, match="not negative"):
            f(drawn(n))


ARITHMETIC = """
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %k = stablehlo.constant dense<CONSTANT> : tensor<i32>
    %0 = stablehlo.subtract %n, %k : tensor<i32>
    %d = stablehlo.constant dense<DIVISOR> : tensor<i32>
    %1 = stablehlo.OP %0, %d : tensor<i32>
    %ten = stablehlo.constant dense<10> : tensor<i32>
    %2 = stablehlo.add %1, %ten : tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %3 = stablehlo.maximum %2, %zero : tensor<i32>
    %s = stablehlo.reshape %3 : (tensor<i32>) -> tensor<1xi32>
    %4 = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
    return %4 : tensor<?xi32>"""


@pytest.mark.parametrize("op", ["divide", "remainder", "minimum", "maximum", "multiply", "subtract"])
@pytest.mark.parametrize("divisor", [2, 3, -3])
def test_arithmetic_with_sizes_is_that_of_the_text(op, divisor):
    text = function(ARITHMETIC, "%x: tensor<?xf32>", "tensor<?xi32>")
    f = hl.from_stablehlo(text.replace("OP", op).replace("CONSTANT", "4").replace("DIVISOR", str(divisor)))
    meaning = {
        "divide": lambda a, b: int(a / b),
        "remainder": lambda a, b: a - b * int(a / b),
        "minimum": min,
        "maximum": max,
        "multiply": lambda a, b: a * b,
        "subtract": lambda a, b: a - b,
    }[op]
    for n in (2, 3, 4, 5, 6, 7, 13, 1, 0):
        assert f(drawn(n)).shape == (max(meaning(n - 4, divisor) + 10, 0),), n
    assert 0 < programs(f) <= 6


def test_assertions_and_comparisons_are_conditions():
    text = function(
        """
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %two = stablehlo.constant dense<2> : tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %r = stablehlo.remainder %n, %two : tensor<i32>
    %even = stablehlo.compare EQ, %r, %zero, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%even, %n) {error_message = "an even size, found {0}"}
      : (tensor<i1>, tensor<i32>) -> ()
    %h = stablehlo.divide %n, %two : tensor<i32>
    %h1 = stablehlo.reshape %h : (tensor<i32>) -> tensor<1xi32>
    %two1 = stablehlo.constant dense<2> : tensor<1xi32>
    %s = stablehlo.concatenate %h1, %two1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %0 = stablehlo.dynamic_reshape %x, %s : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x2xf32>
    return %0 : tensor<?x2xf32>""",
        "%x: tensor<?xf32>",
        "tensor<?x2xf32>",
    )
    f = hl.from_stablehlo(text)
    for n in (6, 8, 100, 0):
        np.testing.assert_array_equal(f(drawn(n)), drawn(n).reshape(-1, 2))
    assert programs(f) == 2
    for n in (1, 7):
        with pytest.raises(ShapeError, match=f"an even size, found {n}"):
            f(drawn(n))
    np.testing.assert_array_equal(f(drawn(10)), drawn(10).reshape(-1, 2))


def test_sizes_among_the_arguments():
    """As jax's exporter passes them: a size that stands in no shape, and one that does."""
    text = function(
        """
    %n = stablehlo.convert %size : (tensor<i64>) -> tensor<i32>
    %s = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %0 = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [0] : (tensor<?xf32>, tensor<1xi32>) -> tensor<?xf32>
    %m = stablehlo.reshape %count : (tensor<i32>) -> tensor<1xi32>
    %1 = stablehlo.dynamic_iota %m, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
    return %0, %1 : tensor<?xf32>, tensor<?xi32>""",
        "%size: tensor<i64>, %x: tensor<?xf32>, %count: tensor<i32>",
        "(tensor<?xf32>, tensor<?xi32>)",
    )
    f = hl.from_stablehlo(text)
    for n, count in ((4, 3), (9, 100), (9, 2)):
        x, r = f(np.int64(n), drawn(n), np.int32(count))
        np.testing.assert_array_equal(x, drawn(n))
        np.testing.assert_array_equal(r, np.arange(count))
    assert programs(f) == 1
    for n, count in ((4, 0), (1, 5), (0, 5)):
        x, r = f(np.int64(n), drawn(n), np.int32(count))
        assert x.shape == (n,) and r.shape == (count,)
    np.testing.assert_array_equal(f(np.int64(5), drawn(1), np.int32(2))[0], np.repeat(drawn(1), 5))
    for n, size, count in ((4, 5, 3), (4, 4, -1)):
        with pytest.raises(ShapeError):
            f(np.int64(size), drawn(n), np.int32(count))


def test_arguments_that_decide_no_size_are_data():
    text = function(
        """
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xi32>) -> tensor<i32>
    %s = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %0 = stablehlo.dynamic_broadcast_in_dim %k, %s, dims = [] : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
    %1 = stablehlo.add %0, %x : tensor<?xi32>
    return %1 : tensor<?xi32>""",
        "%x: tensor<?xi32>, %k: tensor<i32>",
        "tensor<?xi32>",
    )
    f = hl.from_stablehlo(text)
    for n, k in ((4, 0), (5, 1), (6, -7), (7, 1 << 30)):
        np.testing.assert_array_equal(f(np.arange(n, dtype=np.int32), np.int32(k)), np.arange(n) + k)
    assert programs(f) == 1


def test_loops_branches_and_calls_know_sizes():
    text = """
func.func private @halved(%n: tensor<i32>, %x: tensor<?xf32>) -> tensor<?xf32> {
    %two = stablehlo.constant dense<2> : tensor<i32>
    %h = stablehlo.divide %n, %two : tensor<i32>
    %limit = stablehlo.reshape %h : (tensor<i32>) -> tensor<1xi32>
    %zero = stablehlo.constant dense<0> : tensor<1xi32>
    %one = stablehlo.constant dense<1> : tensor<1xi32>
    %0 = "stablehlo.real_dynamic_slice"(%x, %zero, %limit, %one)
      : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
    return %0 : tensor<?xf32>
}
func.func private @plus(%a: tensor<i32>, %b: tensor<i32>) -> (tensor<i32>, tensor<i32>) {
    %0 = stablehlo.add %a, %b : tensor<i32>
    return %b, %0 : tensor<i32>, tensor<i32>
}
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %p:2 = call @plus(%n, %one) : (tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<i32>)
    %m = stablehlo.add %p#1, %zero : tensor<i32>
    %x0 = call @halved(%m, %x) : (tensor<i32>, tensor<?xf32>) -> tensor<?xf32>
    %r:2 = stablehlo.while(%i = %zero, %a = %x0) : tensor<i32>, tensor<?xf32>
    cond {
      %c = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %two = stablehlo.constant dense<2> : tensor<i32>
      %h = stablehlo.divide %m, %two : tensor<i32>
      %s = stablehlo.reshape %h : (tensor<i32>) -> tensor<1xi32>
      %o = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
      %b = stablehlo.add %a, %o : tensor<?xf32>
      %j = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %j, %b : tensor<i32>, tensor<?xf32>
    }
    return %r#1 : tensor<?xf32>
}"""
    f = hl.from_stablehlo(text)
    for n in (4, 7, 11, 20, 1, 0):
        half = (n + 1) // 2
        np.testing.assert_allclose(f(drawn(n)), drawn(n)[:half] + n * np.arange(half), rtol=1e-5, atol=1e-5)
    assert programs(f) == 3


def test_bounded_types():
    text = function(
        "%0 = stablehlo.add %x, %x : tensor<?x2xf32, #stablehlo.bounds<8, ?>>\n"
        "return %0 : tensor<?x2xf32, #stablehlo.bounds<8, ?>>",
        "%x: tensor<?x2xf32, #stablehlo.bounds<8, ?>>",
        "tensor<?x2xf32, #stablehlo.bounds<8, ?>>",
    )
    f = hl.from_stablehlo(text)
    for n in (3, 8, 2, 0, 1):
        np.testing.assert_array_equal(f(drawn(n, 2)), 2 * drawn(n, 2))
    assert opened(text, [(3, 2)]).dims["x_0"].most == 8
    with pytest.raises(ShapeError, match=r"float32\[<=8,2\]"):
        f(drawn(9, 2))
    with pytest.raises(ParseError, match="bounds 1 dimensions of 2"):
        hl.from_stablehlo(text.replace("<8, ?>", "<8>"))(drawn(3, 2))


def test_what_is_not_known_is_refused_at_its_line():
    """Of Dims there is no sample: what bounds leave open is an error."""
    text = function(
        """
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %k = stablehlo.constant dense<3> : tensor<i32>
    %0 = stablehlo.subtract %n, %k : tensor<i32>
    %s = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
    %1 = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
    return %1 : tensor<?xf32>""",
        "%x: tensor<?xf32>",
        "tensor<?xf32>",
    )
    program = parse_program(text, "open.mlir")
    module = to_module(program, input_shapes=[(hl.Dim("n", 3, 100),)])
    assert str(module.entry.shape) == "f32[n - 3]"
    with pytest.raises(UndecidedSizeError) as error:
        to_module(program, input_shapes=[(hl.Dim("n", 1, 100),)])
    assert "n - 3 < 0" in str(error.value) and str(error.value.source) == "open.mlir:7 in main"
    with pytest.raises(UndecidedSizeError, match="n <= 2147483647"):
        to_module(program, input_shapes=[(hl.Dim("n", 3),)])


def test_values_are_no_sizes():
    text = function(
        """
    %0 = stablehlo.reshape %k : (tensor<i32>) -> tensor<1xi32>
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xi32>) -> tensor<i32>
    %z = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [0]
      : (tensor<?xi32>, tensor<i32>) -> tensor<i32>
    %2 = stablehlo.reshape %1 : (tensor<i32>) -> tensor<1xi32>
    %3 = stablehlo.dynamic_iota %2, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
    return %3 : tensor<?xf32>""",
        "%x: tensor<?xi32>, %k: tensor<i32>",
        "tensor<?xf32>",
    )
    with pytest.raises(UnsupportedError, match="sizes that depends on the values of arguments"):
        hl.from_stablehlo(text)(np.arange(4, dtype=np.int32), np.int32(3))
