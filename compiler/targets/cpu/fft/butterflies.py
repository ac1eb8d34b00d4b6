"""Passes of Fourier transforms, written as LLVM vector code behind names that kernel texts call.

Vectors run across transforms: a *block* holds as many transforms as a vector has lanes, element i of all of them as a
vector of real parts and after it one of imaginary parts. A transform of length n = r0 * r1 * ... is a sequence of
passes (Stockham's, decimation in frequency), one for each radix. The pass of radix r at stride s, with
m = n / (r * s), reads element q + s * (p + m * k) for k < r, transforms these r numbers, multiplies number k by
w^(p * k), where w is the root of unity of order r * m, and writes it as element q + s * (r * p + k) of another block.
After the last pass the elements stand in their natural order.

- `fft8_f32_8_first(source, target, factors, m)`: radix 8, blocks of 8 lanes of float32, s = 1. `factors` has the real
  and imaginary part of w^(p * k) for p < m and 1 <= k < r, p slowest.
- `fft8_f32_8_inner(source, target, factors, m, s)`: any stride.
- `fft8_f32_8_last(source, target, s)`: m = 1, where all factors are 1.

Words that may follow, in this order:

- `inverse`: roots of unity are the conjugates (and so must be the factors that are passed).
- `frompairs`: the source is no block: element i is at `source + i * source_step`, the numbers of all lanes side by
  side, a real and an imaginary part each; `fromreals`: real numbers side by side. `topairs` is the same of the target
  (of `last` only), with `target_step`. A step follows the address that it belongs to.
- `twiddled` (of `last`): number k of the result is multiplied by the complex number k at `twiddles` and by the complex
  vector k at `lane_twiddles` (two vectors): two further arguments.
- `scaled` (of `last`): the result is multiplied by the number at `scale`, the last argument.

`fft_half_f32_8(block, twiddles, m)` turns a block with the transform of m complex numbers into that of the 2m real
numbers that their parts are, and writes elements 0 to m; `fft_whole_f32_8` is its inverse but for a factor of 2m.
`twiddles` has the complex numbers of k <= m / 2: exp(-pi i k / m) / 2, for `whole` exp(pi i k / m).

All arguments are int64: addresses, steps in bytes, and counts.
"""

from __future__ import annotations

import math

from llvmlite import ir

from hloom.compiler.targets.cpu.fft.names import Pass, Spectrum, function_of, parameters
from hloom.compiler.targets.cpu.microkernels.ir_building import (
    BYTES,
    ELEMENTS,
    I32,
    I64,
    block_function,
    disable_unrolling,
    integer,
    multiply_add,
)
from hloom.ir.records import record


def build(module: ir.Module, name: str) -> ir.Function:
    """Defines the function of a name in a module, once, and returns it. Needs no Numba."""
    names = parameters(name) or ()
    function, new = block_function(module, f"hloom_{name}", names)
    if not new:
        return function
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    arguments = dict(zip(names, function.args, strict=True))
    match function_of(name):
        case Spectrum(kind, dtype, lanes):
            (_half if kind == "half" else _whole)(_Writer(builder, dtype, lanes, False), **arguments)
        case Pass(radix, dtype, lanes, stage, inverse, read):
            _Pass(_Writer(builder, dtype, lanes, inverse), radix, read[1:], arguments).write(stage)
    builder.ret_void()
    return function


@record(frozen=True)
class _Complex:
    """A complex number in each lane. The operators write instructions."""

    writer: _Writer
    real: ir.Value
    imag: ir.Value

    def __add__(self, other: _Complex) -> _Complex:
        add = self.writer.builder.fadd
        return _Complex(self.writer, add(self.real, other.real), add(self.imag, other.imag))

    def __sub__(self, other: _Complex) -> _Complex:
        sub = self.writer.builder.fsub
        return _Complex(self.writer, sub(self.real, other.real), sub(self.imag, other.imag))

    def times(self, factor: _Complex) -> _Complex:
        """The product, each part with two roundings: a product, then a fused multiply-add."""
        builder, fma = self.writer.builder, self.writer.fma
        real = fma(self.real, factor.real, builder.fneg(builder.fmul(self.imag, factor.imag)))
        imag = fma(self.real, factor.imag, builder.fmul(self.imag, factor.real))
        return _Complex(self.writer, real, imag)

    def rotated(self, factor: _Complex, base: _Complex) -> tuple[_Complex, _Complex]:
        """base + self * factor and base - self * factor, each part with two roundings."""
        neg, fma = self.writer.builder.fneg, self.writer.fma
        real, imag, less_real, less_imag = self.real, self.imag, neg(self.real), neg(self.imag)
        plus = _Complex(
            self.writer,
            fma(real, factor.real, fma(less_imag, factor.imag, base.real)),
            fma(real, factor.imag, fma(imag, factor.real, base.imag)),
        )
        minus = _Complex(
            self.writer,
            fma(less_real, factor.real, fma(imag, factor.imag, base.real)),
            fma(less_real, factor.imag, fma(less_imag, factor.real, base.imag)),
        )
        return plus, minus

    def scaled(self, factor: ir.Value) -> _Complex:
        mul = self.writer.builder.fmul
        return _Complex(self.writer, mul(self.real, factor), mul(self.imag, factor))

    def plus(self, factor: ir.Value, other: _Complex) -> _Complex:
        """self + factor * other, for a real factor."""
        fma = self.writer.fma
        return _Complex(self.writer, fma(factor, other.real, self.real), fma(factor, other.imag, self.imag))

    def conjugate(self) -> _Complex:
        return _Complex(self.writer, self.real, self.writer.builder.fneg(self.imag))


class _Writer:
    """Instructions on vectors of one dtype and number of lanes."""

    def __init__(self, builder: ir.IRBuilder, dtype: str, lanes: int, inverse: bool):
        self.builder, self.lanes, self.inverse = builder, lanes, inverse
        self.element, self.letters, self.size = ELEMENTS[dtype]
        self.vector = ir.VectorType(self.element, lanes)
        self.bytes = lanes * self.size

    # --- arithmetic ---

    def constant(self, value: float) -> ir.Constant:
        return ir.Constant(self.vector, [value] * self.lanes)

    def fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        return multiply_add(self.builder, self.letters, a, b, c)

    def right(self, a: _Complex, b: _Complex) -> _Complex:
        """a + w b with w the root of unity of order 4: -i, or i in the inverse transform."""
        return self._rotated(a, b, self.inverse)

    def left(self, a: _Complex, b: _Complex) -> _Complex:
        """a - w b."""
        return self._rotated(a, b, not self.inverse)

    def _rotated(self, a: _Complex, b: _Complex, up: bool) -> _Complex:
        add, sub = self.builder.fadd, self.builder.fsub
        if up:
            return _Complex(self, sub(a.real, b.imag), add(a.imag, b.real))
        return _Complex(self, add(a.real, b.imag), sub(a.imag, b.real))

    # --- memory ---

    def place(self, base: ir.Value, offset: ir.Value | int) -> ir.Value:
        return self.builder.inttoptr(self._after(base, offset), BYTES)

    def load(self, base: ir.Value, offset: ir.Value | int = 0) -> ir.Value:
        return self.builder.load(self.place(base, offset), align=self.size, typ=self.vector)

    def broadcast(self, base: ir.Value, offset: ir.Value | int = 0) -> ir.Value:
        scalar = self.builder.load(self.place(base, offset), align=self.size, typ=self.element)
        undefined = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
        return self.builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, self.lanes), None))

    def factor(self, base: ir.Value, offset: ir.Value | int = 0) -> _Complex:
        """The complex number at an address, in all lanes."""
        return _Complex(self, self.broadcast(base, offset), self.broadcast(self._after(base, offset), self.size))

    def _after(self, base: ir.Value, offset: ir.Value | int) -> ir.Value:
        return self.builder.add(base, integer(offset) if isinstance(offset, int) else offset)

    def shuffled(self, a: ir.Value, b: ir.Value, places) -> ir.Value:
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, self.lanes), list(places)))

    def read(self, base: ir.Value, kind: str = "") -> _Complex:
        """The element at an address of a block ('') or of another array ('frompairs', 'fromreals')."""
        low = self.load(base)
        if kind == "fromreals":
            return _Complex(self, low, self.constant(0.0))
        high = self.load(base, self.bytes)
        if kind == "frompairs":
            even, odd = range(0, 2 * self.lanes, 2), range(1, 2 * self.lanes, 2)
            low, high = self.shuffled(low, high, even), self.shuffled(low, high, odd)
        return _Complex(self, low, high)

    def write(self, base: ir.Value, value: _Complex, pairs: bool = False) -> None:
        low, high = value.real, value.imag
        if pairs:
            order = [k // 2 + self.lanes * (k % 2) for k in range(2 * self.lanes)]
            low, high = self.shuffled(low, high, order[: self.lanes]), self.shuffled(low, high, order[self.lanes :])
        self.builder.store(low, self.place(base, 0), align=self.size)
        self.builder.store(high, self.place(base, self.bytes), align=self.size)

    # --- control ---

    def count(self, start: ir.Value | int, stop: ir.Value, starting: list, body) -> None:
        """A loop over start <= i < stop, at least once. `body(i, values)` gets values that begin as `starting` and
        returns those of the next turn."""
        builder = self.builder
        entry = builder.block
        loop, done = builder.append_basic_block("loop"), builder.append_basic_block("done")
        builder.branch(loop)
        builder.position_at_end(loop)
        index = builder.phi(I64)
        values = [builder.phi(I64) for _ in starting]
        following = body(index, values)
        after = builder.add(index, integer(1))
        for phi, first, then in zip([index, *values], [start, *starting], [after, *following], strict=True):
            phi.add_incoming(integer(first) if isinstance(first, int) else first, entry)
            phi.add_incoming(then, builder.block)
        branch = builder.cbranch(builder.icmp_signed("<", after, stop), loop, done)
        disable_unrolling(branch)
        builder.position_at_end(done)


class _Pass:
    """One pass over a block: transforms of `radix` numbers each, with the arguments of `names.parameters`."""

    def __init__(self, w: _Writer, radix: int, read: str, given: dict[str, ir.Value]):
        self.w, self.radix, self.read, self.given = w, radix, read, given
        builder, one = w.builder, integer(1)
        self.block = integer(2 * w.bytes)
        self.m, self.s = given.get("m", one), given.get("s", one)
        self.source_step, self.target_step = (given.get(name, self.block) for name in ("source_step", "target_step"))
        self.factors_step = integer(2 * (radix - 1) * w.size)
        # From number k of the operands, and of the results, to number k + 1.
        operands_apart = builder.mul(builder.mul(self.m, self.s), self.source_step)
        results_apart = builder.mul(self.s, self.target_step)
        self.scale = w.broadcast(given["scale"]) if "scale" in given else None
        self.operands, self.results = (
            [builder.mul(apart, integer(k)) for k in range(radix)] for apart in (operands_apart, results_apart)
        )

    def write(self, stage: str) -> None:
        w, given = self.w, self.given
        if stage == "last":
            w.count(0, self.s, [given["source"], given["target"]], self.last)
        else:
            body = self.first if stage == "first" else self.inner
            w.count(0, self.m, [given["source"], given["target"], given["factors"]], body)

    def last(self, q, values):
        source, target = values
        self.transform(source, target, None, q)
        return self.following(source, target)

    def first(self, p, values):
        source, target, at = values
        builder = self.w.builder
        self.transform(source, target, lambda k: self.w.factor(at, 2 * (k - 1) * self.w.size))
        step = builder.mul(self.block, integer(self.radix))
        return [
            builder.add(source, self.source_step), builder.add(target, step), builder.add(at, self.factors_step),
        ]  # fmt: skip

    def inner(self, p, values):
        source, target, at = values
        builder = self.w.builder
        factors = [self.w.factor(at, 2 * k * self.w.size) for k in range(self.radix - 1)]

        def column(q, inner):
            source, target = inner
            self.transform(source, target, lambda k: factors[k - 1])
            return self.following(source, target)

        self.w.count(0, self.s, [source, target], column)
        row = builder.mul(self.s, self.block)  # from one p to the next in the source; radix times that in the target
        rows = builder.mul(row, integer(self.radix))
        return [builder.add(source, row), builder.add(target, rows), builder.add(at, self.factors_step)]

    def following(self, source, target):
        builder = self.w.builder
        return [builder.add(source, self.source_step), builder.add(target, self.target_step)]

    def transform(self, source, target, factors, k1=None) -> None:
        """One transform. factors: of the number of a result, or None. k1: number of the transform for twiddles."""
        w, builder, given = self.w, self.w.builder, self.given
        numbers = [w.read(builder.add(source, self.operands[k]), self.read) for k in range(self.radix)]
        for k, number in enumerate(_dft(w, numbers)):
            if factors is not None and k:
                number = number.times(factors(k))
            if "twiddles" in given:
                at = builder.add(k1, builder.mul(self.s, integer(k)))
                number = number.times(w.factor(given["twiddles"], builder.mul(at, integer(2 * w.size))))
                number = number.times(w.read(builder.add(given["lane_twiddles"], builder.mul(at, self.block))))
            if self.scale is not None:
                number = number.scaled(self.scale)
            w.write(builder.add(target, self.results[k]), number, "target_step" in given)


def _dft(w: _Writer, a: list[_Complex]) -> list[_Complex]:
    """The transform of as many numbers as a radix says."""
    if len(a) == 2:
        return [a[0] + a[1], a[0] - a[1]]
    if len(a) == 4:
        return _dft4(w, *a)
    if len(a) == 8:
        return _dft8(w, a)
    return _odd(w, a)


def _dft4(w: _Writer, a: _Complex, b: _Complex, c: _Complex, d: _Complex) -> list[_Complex]:
    even, odd, even_difference, odd_difference = a + c, b + d, a - c, b - d
    right, left = w.right(even_difference, odd_difference), w.left(even_difference, odd_difference)
    return [even + odd, right, even - odd, left]


def _dft8(w: _Writer, a: list[_Complex]) -> list[_Complex]:
    """Two transforms of four numbers; odd ones turn by eighths: w = (1 - i) / sqrt 2 and w^3 = (-1 - i) / sqrt 2."""
    builder = w.builder
    even, odd = _dft4(w, *a[0::2]), _dft4(w, *a[1::2])
    root, minus = w.constant(math.sqrt(0.5)), w.constant(-math.sqrt(0.5))

    def rotated(z: _Complex) -> tuple[ir.Value, ir.Value]:
        return builder.fadd(z.real, z.imag), builder.fsub(z.imag, z.real)

    total, difference = rotated(odd[1])
    # w z = (total, difference) / sqrt 2, and with the conjugate of w (-difference, total) / sqrt 2.
    first = (difference, total) if w.inverse else (total, difference)
    signs = (minus, root) if w.inverse else (root, root)
    one, five = _both(w, even[1], first, signs, (root, minus))
    total, difference = rotated(odd[3])
    # w^3 z = (difference, -total) / sqrt 2, and with the conjugate (-total, -difference) / sqrt 2.
    third = (total, difference) if w.inverse else (difference, total)
    signs = (minus, minus) if w.inverse else (root, minus)
    three, seven = _both(w, even[3], third, signs, (root, minus))
    two, six = w.right(even[2], odd[2]), w.left(even[2], odd[2])
    return [even[0] + odd[0], one, two, three, even[0] - odd[0], five, six, seven]


def _both(w: _Writer, base: _Complex, parts, signs, constants) -> tuple[_Complex, _Complex]:
    """base + t and base - t, where t has the given parts times the given constants."""
    root, minus = constants
    opposite = [minus if sign is root else root for sign in signs]
    real, imag = parts
    plus = _Complex(w, w.fma(signs[0], real, base.real), w.fma(signs[1], imag, base.imag))
    return plus, _Complex(w, w.fma(opposite[0], real, base.real), w.fma(opposite[1], imag, base.imag))


def _odd(w: _Writer, a: list[_Complex]) -> list[_Complex]:
    """An odd number r of numbers: with sums t_j = a_j + a_(r-j) and differences u_j = a_j - a_(r-j), results k and
    r - k are (a_0 + sum of cos(2 pi j k / r) t_j) -+ i (sum of sin(2 pi j k / r) u_j)."""
    r, half = len(a), len(a) // 2
    sums = [a[j] + a[r - j] for j in range(1, half + 1)]
    differences = [a[j] - a[r - j] for j in range(1, half + 1)]
    first = a[0]
    for t in sums:
        first = first + t
    result = [first] * r
    for k in range(1, half + 1):
        # The angles within a half turn, so that equal numbers are equal in every result.
        turns = [j * k % r for j in range(1, half + 1)]
        angles = [2 * math.pi * min(turn, r - turn) / r for turn in turns]
        sines = [math.sin(x) * (1 if 2 * turn < r else -1) for x, turn in zip(angles, turns, strict=True)]
        even = a[0].plus(w.constant(math.cos(angles[0])), sums[0])
        odd = differences[0].scaled(w.constant(sines[0]))
        for x, sine, t, u in zip(angles[1:], sines[1:], sums[1:], differences[1:], strict=True):
            even, odd = even.plus(w.constant(math.cos(x)), t), odd.plus(w.constant(sine), u)
        result[k], result[r - k] = w.right(even, odd), w.left(even, odd)
    return result


def _half(w: _Writer, block, twiddles, m) -> None:
    """X(k) = E + w^k O, X(m - k) = conj(E - w^k O): 2 E = Z(k) + conj Z(m - k) and 2 i O = Z(k) - conj Z(m - k)."""
    builder, step = w.builder, integer(2 * w.bytes)
    half = w.constant(0.5)
    last = builder.add(block, builder.mul(m, step))
    first = w.read(block)
    zero = w.constant(0.0)
    w.write(block, _Complex(w, builder.fadd(first.real, first.imag), zero))
    w.write(last, _Complex(w, builder.fsub(first.real, first.imag), zero))

    def pair(a: _Complex, b: _Complex, at: ir.Value) -> tuple[_Complex, _Complex]:
        even, difference = (a + b).scaled(half), a - b
        odd = _Complex(w, difference.imag, builder.fneg(difference.real))
        return odd.rotated(w.factor(at), even)

    _pairs(w, pair, m, block, last, step, twiddles)


def _whole(w: _Writer, block, twiddles, m) -> None:
    """2 Z(k) = E + i O and 2 Z(m - k) = conj(E - i O), with E = X(k) + conj X(m - k) and
    w^k O = X(k) - conj X(m - k)."""
    builder, step = w.builder, integer(2 * w.bytes)
    last = builder.add(block, builder.mul(m, step))
    a, b = w.load(block), w.load(last)
    w.write(block, _Complex(w, builder.fadd(a, b), builder.fsub(a, b)))

    def pair(a: _Complex, b: _Complex, at: ir.Value) -> tuple[_Complex, _Complex]:
        even, factor = a + b, w.factor(at)
        return (a - b).rotated(_Complex(w, builder.fneg(factor.imag), factor.real), even)

    _pairs(w, pair, m, block, last, step, twiddles)


def _pairs(w: _Writer, pair, m, block, last, step, twiddles) -> None:
    """For 1 <= k <= m / 2 elements k and m - k become z and conj z', (z, z') = pair(element k, conj of element m - k,
    address of twiddle factor k)."""
    builder = w.builder
    stop = builder.add(builder.sdiv(m, integer(2)), integer(1))
    twiddle = integer(2 * w.size)

    def body(k: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        low, high, at = values
        plus, minus = pair(w.read(low), w.read(high).conjugate(), at)
        w.write(low, plus)
        w.write(high, minus.conjugate())
        return [builder.add(low, step), builder.sub(high, step), builder.add(at, twiddle)]

    with builder.if_then(builder.icmp_signed(">", stop, integer(1))):
        w.count(1, stop, [builder.add(block, step), builder.sub(last, step), builder.add(twiddles, twiddle)], body)
