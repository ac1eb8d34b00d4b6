"""Rules of arithmetic: neutral elements, signs, strength, powers."""

from __future__ import annotations

import math

import numpy as np

from hloom.ir.build import combiner_opcode
from hloom.ir.ops import OPS
from hloom.ir.patterns import Any, Number, Op, Splat, as_op, is_splat_of, splat_value
from hloom.ir.rewrite import INEXACT, ROUNDING, Rules, is_discrete, is_float, is_inexact, is_integer, is_real, rule
from hloom.ir.types import COMPLEX, FLOATS, NARROW_FLOATS, SIGNED, UNSIGNED

x, y, z = Any("x"), Any("y"), Any("z")
c, d = Splat("c"), Splat("d")
absolute, cosine, exponential, sqrt = (as_op(n) for n in ("abs", "cosine", "exponential", "sqrt"))

hyperbolic_tangent = Op("tanh", x, name="tangent")

COMMUTATIVE = " | ".join(n for n, o in OPS.items() if o.commutative)
IDEMPOTENT = " | ".join(n for n, o in OPS.items() if o.idempotent)
INVOLUTION = " | ".join(n for n, o in OPS.items() if o.involution)
NEUTRAL = " | ".join(n for n, o in OPS.items() if o.identity)
ASSOCIATIVE = " | ".join(n for n, o in OPS.items() if o.associative and o.family == "elementwise")
ROUNDINGS = "floor | ceil | round-nearest-even | round-nearest-afz"


def is_signed_or_float(root) -> bool:
    return root.shape.dtype in SIGNED or root.shape.dtype in FLOATS


def is_logistic(b, root, tangent) -> bool:
    """Whether the hyperbolic tangent has no other users, for which it would be computed in addition to the logistic
    function."""
    return is_float(root) and b.used_once(tangent)


def logistic_of_twice(b, x):
    return b.emit("logistic", b.emit("add", x, x))


def is_unsigned(root) -> bool:
    return root.shape.dtype in UNSIGNED


def is_constant(instruction) -> bool:
    return instruction.opcode == "constant" or splat_value(instruction) is not None


def is_neutral(root, c) -> bool:
    """Whether c is the neutral element, exactly: floats add -0, because x + 0 turns -0 into 0."""
    if root.shape.dtype in COMPLEX:
        return False
    if root.opcode == "add" and is_float(root):
        return is_splat_of(c, -0.0)
    identity = OPS[root.opcode].identity
    return identity is not None and is_splat_of(c, identity(root.dtype))


def absorbing_value(root):
    """The z with f(x, z) = z for every x, for discrete dtypes; None if there is none."""
    dtype = root.shape.dtype
    neutral = {"multiply": "add", "and": "or", "or": "and", "maximum": "minimum", "minimum": "maximum"}
    if dtype == np.bool_ and root.opcode == "add":
        return True
    other = neutral.get(root.opcode)
    return None if other is None else OPS[other].neutral(dtype)


def is_absorbing(root, c) -> bool:
    return is_discrete(root) and (value := absorbing_value(root)) is not None and is_splat_of(c, value)


def splat_of(instruction) -> np.ndarray:
    value = splat_value(instruction)
    assert value is not None  # patterns and `is_constant` admit only splats
    return value


def number(instruction) -> float:
    return splat_of(instruction).item()


def power_of_two(instruction) -> int | None:
    """k if the splat is 2^k, otherwise None."""
    value = number(instruction)
    if isinstance(value, complex) or not math.isfinite(value) or value <= 0:
        return None
    mantissa, exponent = math.frexp(value)
    return exponent - 1 if mantissa == 0.5 else None


def has_exact_reciprocal(c) -> bool:
    """Whether 1/c is exactly representable in the dtype. Division and multiplication then round the same real
    number."""
    exponent = power_of_two(c) if is_float(c) else None
    if exponent is None or exponent < -1000:
        return False
    with np.errstate(all="ignore"):
        return float(np.asarray(2.0**-exponent).astype(c.shape.dtype)) == 2.0**-exponent


def is_reduced(instruction) -> bool:
    """Whether a value is the result of a reduction. Its divisor is often a size, a power of two for some shapes only;
    as the division is done once per row, the kernel should be the same for all shapes."""
    while instruction.opcode in ("reshape", "broadcast"):
        instruction = instruction.operands[0]
    return instruction.opcode == "reduce"


def negated(b, c):
    """-c, evaluated immediately: rules that move a negation into a constant must not leave one for others to move
    out."""
    with np.errstate(all="ignore"):
        return b.splat(np.negative(splat_of(c)), c.shape)


def reciprocal(b, c):
    with np.errstate(all="ignore"):
        return b.splat(1 / number(c), c.shape)


def is_nonnegative(instruction, depth: int = 4) -> bool:
    """Whether no element is negative or -0 (but possibly NaN), as far as its producers show."""
    opcode, operands = instruction.opcode, instruction.operands
    if opcode in ("abs", "exponential", "logistic"):
        return is_real(instruction)
    if opcode == "multiply" and operands[0] is operands[1]:
        return is_float(instruction)
    value = splat_value(instruction)
    if value is not None:
        return value.dtype.kind != "c" and not np.signbit(np.float64(value)) if value.dtype in FLOATS else False
    if depth and opcode in ("add", "multiply", "divide", "minimum") and is_float(instruction):
        return all(is_nonnegative(o, depth - 1) for o in operands)
    if depth and opcode == "reduce" and combiner_opcode(instruction["to_apply"]) in ("add", "multiply", "maximum"):
        return is_float(instruction) and all(is_nonnegative(o, depth - 1) for o in operands)
    if depth and opcode in ("sqrt", "reshape", "transpose", "broadcast", "slice", "copy"):
        return is_float(instruction) and is_nonnegative(operands[0], depth - 1)
    return False


def small_power(b, root, x, c):
    """Floats up to the fourth power, whose error of 1.5 ulp is within `power`'s specification; narrow floats, for which
    `power` computes in float32, up to the second, which rounds once."""
    exponent = number(c)
    limit = 16 if is_integer(root) else 2 if root.shape.dtype in NARROW_FLOATS else 4
    if not is_real(root) or not 2 <= exponent <= limit or exponent != int(exponent):
        return None
    result, square, rest = None, x, int(exponent)
    while rest:
        if rest & 1:
            result = square if result is None else b.emit("multiply", result, square)
        rest >>= 1
        if rest:
            square = b.emit("multiply", square, square)
    return result


def guarded_root(b, root, x, opcode: str, at_minus_infinity: float):
    """x ** 0.5 and x ** -0.5 treat -0 as 0 and -inf as inf; sqrt and rsqrt do not."""
    positive_zero = b.emit("add", x, b.splat(0.0, x.shape))
    value = b.emit(opcode, positive_zero)
    infinite = b.emit("compare", x, b.splat(-math.inf, x.shape), direction="EQ")
    return b.emit("select", infinite, b.splat(at_minus_infinity, x.shape), value)


neutral = Rules(
    [
        rule(
            Op(COMMUTATIVE, Op("constant | broadcast", name="x"), y),
            lambda b, root, x, y: b.again(root, y, x),
            when=lambda x, y: is_constant(x) and not is_constant(y),
            name="constant-to-the-right",
            identity="f(c, x) = f(x, c) for commutative f",
        ),
        rule(Op(NEUTRAL, x, c), x, when=is_neutral, name="neutral-element", identity="f(x, e) = x"),
        rule(
            Op(NEUTRAL, x, c),
            c,
            when=is_absorbing,
            name="absorbing-element",
            identity="f(x, z) = z: x * 0 = 0 for integers and pred; floats: NaN, infinities",
        ),
        rule(Op(IDEMPOTENT, x, x), x, name="idempotent", identity="f(x, x) = x"),
        rule(
            Op(INVOLUTION, Any("inner")),
            lambda inner: inner.operands[0],
            when=lambda root, inner: inner.opcode == root.opcode,
            name="involution",
            identity="f(f(x)) = x: -(-x), not(not(x))",
        ),
        rule(x - 0, x, when=is_real, name="subtract-zero", identity="x - 0 = x, also for x = -0"),
        rule(x / 1, x, when=is_real, name="divide-by-one", identity="x / 1 = x"),
        rule(x**1, x, when=is_real, name="power-one", identity="x ^ 1 = x"),
        rule(x**0, 1, when=is_real, name="power-zero", identity="x ^ 0 = 1, also for NaN"),
        rule(x - x, 0, when=is_integer, name="subtract-self", identity="x - x = 0; floats: NaN, infinities"),
        rule(
            Op("xor", x, x),
            lambda b, root: b.splat(0, root.shape),
            name="xor-self",
            identity="x ^ x = 0",
        ),
        rule(
            x + 0,
            x,
            when=is_inexact,
            name="add-zero",
            identity="x + 0 = x but for x = -0",
            numerics=INEXACT,
        ),
        rule(
            x * 0,
            0,
            when=is_inexact,
            name="multiply-zero",
            identity="x * 0 = 0 but for NaN, infinities and signs",
            numerics=INEXACT,
        ),
        rule(x - x, 0, when=is_inexact, name="subtract-self-inexact", identity="x - x = 0", numerics=INEXACT),
    ]
)

signs = Rules(
    [
        rule(x * -1, -x, when=is_signed_or_float, name="multiply-minus-one", identity="x * -1 = -x"),
        rule(x / -1, -x, when=is_signed_or_float, name="divide-minus-one", identity="x / -1 = -x"),
        rule(x + -y, x - y, name="add-negated", identity="x + -y = x - y"),
        rule((-x) + y, y - x, name="negated-plus", identity="-x + y = y - x"),
        rule(x - -y, x + y, name="subtract-negated", identity="x - -y = x + y"),
        rule(0 - x, -x, when=is_integer, name="zero-minus", identity="0 - x = -x; floats: 0 - 0 is 0, not -0"),
        rule(Number(-0.0) - x, -x, when=is_float, name="negative-zero-minus", identity="-0 - x = -x"),
        rule(-(x - y), y - x, when=is_integer, name="negated-difference", identity="-(x - y) = y - x; floats: -0"),
        rule((-x) * (-y), x * y, when=is_real, name="product-of-negated", identity="-x * -y = x * y"),
        rule(
            (-x) * c,
            lambda b, x, c: b.emit("multiply", x, negated(b, c)),
            when=is_real,
            name="negated-times-constant",
            identity="-x * c = x * -c",
        ),
        rule(
            -(x * c),
            lambda b, x, c: b.emit("multiply", x, negated(b, c)),
            when=is_real,
            name="negated-multiple",
            identity="-(x * c) = x * -c",
        ),
        rule((-x) / (-y), x / y, when=is_float, name="quotient-of-negated", identity="-x / -y = x / y, floats"),
        rule(
            (-x) / c,
            lambda b, x, c: b.emit("divide", x, negated(b, c)),
            when=is_float,
            name="negated-by-constant",
            identity="-x / c = x / -c, floats",
        ),
        rule(
            absolute(-x),
            absolute(x),
            when=lambda root: not is_unsigned(root),
            name="abs-of-negated",
            identity="|-x| = |x|; unsigned: -1 is the largest number",
        ),
        rule(
            absolute(x),
            x,
            when=lambda root, x: is_unsigned(root) or (is_float(x) and is_nonnegative(x)),
            name="abs-of-nonnegative",
            identity="|x| = x where x >= 0: |(|x|)|, |x * x|, |exp(x)|",
        ),
        rule(cosine(-x), cosine(x), name="cosine-of-negated", identity="cos(-x) = cos(x)"),
        rule(
            Op(ROUNDINGS, Op(ROUNDINGS, name="inner")),
            lambda inner: inner,
            name="rounding-of-integral",
            identity="floor(ceil(x)) = ceil(x): what is integral already is not rounded",
        ),
        rule(
            Op(ROUNDINGS, Op("convert", x, name="inner")),
            lambda inner: inner,
            when=lambda x: is_discrete(x),
            name="rounding-of-integer",
            identity="floor(convert(n)) = convert(n)",
        ),
    ]
)

strength = Rules(
    [
        rule(
            x / c,
            lambda b, x, c: b.emit("multiply", x, reciprocal(b, c)),
            when=lambda x, c: has_exact_reciprocal(c) and not is_reduced(x),
            name="divide-by-power-of-two",
            identity="x / 2^k = x * 2^-k, floats",
        ),
        rule(
            x / c,
            lambda b, x, c: b.emit("shift-right-logical", x, b.splat(power_of_two(c), c.shape)),
            when=lambda root, c: is_unsigned(root) and power_of_two(c) is not None,
            name="unsigned-divide-by-power-of-two",
            identity="x / 2^k = x >> k, unsigned",
        ),
        rule(
            Op("remainder", x, c),
            lambda b, x, c: b.emit("and", x, b.splat(number(c) - 1, c.shape)),
            when=lambda root, c: is_unsigned(root) and power_of_two(c) is not None,
            name="unsigned-remainder-by-power-of-two",
            identity="x rem 2^k = x & (2^k - 1), unsigned",
        ),
        rule(
            x / c,
            lambda b, x, c: b.emit("multiply", x, reciprocal(b, c)),
            when=lambda root, c: is_float(root) and np.isfinite(number(c)) and number(c) != 0,
            name="divide-by-constant",
            identity="x / c = x * (1/c) but for the last bit",
            numerics=INEXACT,
        ),
        rule(
            Op("shift-left | shift-right-logical | shift-right-arithmetic", x, 0),
            x,
            name="shift-by-zero",
            identity="x << 0 = x",
        ),
        rule(
            x**c,
            small_power,
            name="small-power",
            identity="x ^ 3 = x * x * x, up to 4 for floats and 16 for integers",
            numerics=ROUNDING,
        ),
        rule(x**-1, 1 / x, when=is_float, name="power-minus-one", identity="x ^ -1 = 1 / x", numerics=ROUNDING),
        rule(
            x**-2,
            lambda b, x: small_power(b, x, b.emit("divide", b.splat(1, x.shape), x), b.splat(2, x.shape)),
            when=lambda root: is_float(root) and root.shape.dtype not in NARROW_FLOATS,
            name="power-minus-two",
            identity="x ^ -2 = (1/x) * (1/x); 1 / (x * x) overflows earlier",
            numerics=ROUNDING,
        ),
        rule(
            x**0.5,
            sqrt(x),
            when=lambda root, x: is_float(root) and is_nonnegative(x),
            name="square-root-of-nonnegative",
            identity="x ^ 0.5 = sqrt(x) where x >= 0",
            numerics=ROUNDING,
        ),
        rule(
            x**0.5,
            lambda b, root, x: guarded_root(b, root, x, "sqrt", math.inf),
            when=is_float,
            name="power-half",
            identity="x ^ 0.5 = x = -inf ? inf : sqrt(x + 0)",
            numerics=ROUNDING,
        ),
        rule(
            x**-0.5,
            Op("rsqrt", x),
            when=lambda root, x: is_float(root) and is_nonnegative(x),
            name="reciprocal-root-of-nonnegative",
            identity="x ^ -0.5 = rsqrt(x) where x >= 0",
            numerics=ROUNDING,
        ),
        rule(
            x**-0.5,
            lambda b, root, x: guarded_root(b, root, x, "rsqrt", 0.0),
            when=is_float,
            name="power-minus-half",
            identity="x ^ -0.5 = x = -inf ? 0 : rsqrt(x + 0)",
            numerics=ROUNDING,
        ),
        rule(1 / sqrt(x), Op("rsqrt", x), when=is_float, name="reciprocal-of-root", identity="1 / sqrt(x) = rsqrt(x)"),
        rule(
            1 / (exponential(-x) + 1),
            Op("logistic", x),
            when=is_float,
            name="logistic-written-out",
            identity="1 / (exp(-x) + 1) = logistic(x), which rounds less often",
            numerics=ROUNDING,
        ),
        rule(
            (hyperbolic_tangent + 1) * 0.5,
            logistic_of_twice,
            when=is_logistic,
            counts_uses=True,
            name="logistic-by-tangent",
            identity="(tanh(x) + 1) / 2 = logistic(2 x), without the cancellation for negative x",
            numerics=ROUNDING,
        ),
        rule(
            hyperbolic_tangent * 0.5 + 0.5,
            logistic_of_twice,
            when=is_logistic,
            counts_uses=True,
            name="logistic-by-half-tangent",
            identity="tanh(x) / 2 + 1/2 = logistic(2 x), without the cancellation for negative x",
            numerics=ROUNDING,
        ),
        rule(
            (y * 0.5) * (hyperbolic_tangent + 1),
            lambda b, x, y: b.emit("multiply", y, logistic_of_twice(b, x)),
            when=is_logistic,
            counts_uses=True,
            name="half-times-tangent",
            identity="y / 2 (tanh(x) + 1) = y logistic(2 x)",
            numerics=ROUNDING,
        ),
    ]
)

reassociate = Rules(
    [
        rule(
            x - c,
            lambda b, x, c: b.emit("add", x, negated(b, c)),
            when=is_integer,
            name="subtract-constant",
            identity="x - c = x + -c, integers",
        ),
        rule(
            Op(ASSOCIATIVE, Op(ASSOCIATIVE, x, c, name="inner"), d),
            lambda b, root, x, c, d: b.again(root, x, b.again(root, c, d)),
            when=lambda root, inner: (
                inner.opcode == root.opcode
                and (is_discrete(root) or (root.opcode in ("maximum", "minimum") and is_float(root)))
            ),
            name="constants-together",
            identity="f(f(x, c), d) = f(x, f(c, d)): integers, and max and min of floats",
        ),
        rule(
            x * c * d,
            lambda b, x, c, d: b.emit("multiply", x, b.emit("multiply", c, d)),
            when=is_float,
            name="factors-together",
            identity="(x * c) * d = x * (c * d) but for rounding and overflow",
            numerics=INEXACT,
        ),
    ]
)

parts = Rules(
    [
        rule(Op("real", Op("complex", x, y)), x, name="real-of-complex", identity="Re(x + iy) = x"),
        rule(Op("imag", Op("complex", x, y)), y, name="imag-of-complex", identity="Im(x + iy) = y"),
        rule(
            Op("complex", Op("real", z), Op("imag", z)),
            z,
            when=lambda z: not is_real(z),
            name="complex-of-parts",
            identity="Re(z) + i Im(z) = z",
        ),
        rule(Op("real", x), x, when=lambda x: is_real(x), name="real-of-real", identity="Re(x) = x for real x"),
        rule(Op("imag", x), 0, when=lambda x: is_real(x), name="imag-of-real", identity="Im(x) = 0 for real x"),
    ]
)

ARITHMETIC = neutral + signs + strength + reassociate + parts
