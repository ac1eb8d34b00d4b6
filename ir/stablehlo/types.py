"""Types of StableHLO programs: tensors (with dynamic sizes and quantized elements), tuples, tokens, functions.

Types are frozen, hashable and compared by value. `str(type)` is their text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from hloom.ir.sizes.expressions import SizeExpression, dims_of, highest
from hloom.ir.stablehlo.lexer import MlirCursor
from hloom.ir.types import DTYPES, HLO_NAME, Shape

# MLIR's names of element types and HLO's.
ELEMENTS = {
    "i1": "pred",
    "i2": "s2",
    "i4": "s4",
    "i8": "s8",
    "i16": "s16",
    "i32": "s32",
    "i64": "s64",
    "ui2": "u2",
    "ui4": "u4",
    "ui8": "u8",
    "ui16": "u16",
    "ui32": "u32",
    "ui64": "u64",
    "f4E2M1FN": "f4e2m1fn",
    "f8E3M4": "f8e3m4",
    "f8E4M3": "f8e4m3",
    "f8E4M3FN": "f8e4m3fn",
    "f8E4M3B11FNUZ": "f8e4m3b11fnuz",
    "f8E4M3FNUZ": "f8e4m3fnuz",
    "f8E5M2": "f8e5m2",
    "f8E5M2FNUZ": "f8e5m2fnuz",
    "f8E8M0FNU": "f8e8m0fnu",
    "f16": "f16",
    "bf16": "bf16",
    "f32": "f32",
    "f64": "f64",
    "complex<f32>": "c64",
    "complex<f64>": "c128",
}
ELEMENT_NAME = {hlo: mlir for mlir, hlo in ELEMENTS.items()}
_SCALAR = re.compile(r"(?:s?i|ui)[0-9]{1,5}|f[0-9]+(?:E[0-9]+M[0-9]+[A-Z0-9]*)?|bf16|tf32|index|none", re.ASCII)


@dataclass(frozen=True)
class Quantized:
    """`!quant.uniform<storage<low:high>:expressed[:axis], scales:zero points>`: real = scale * (stored - zero point).

    One scale and zero point (axis None), or one for each index along `axis`.
    """

    storage: str
    low: int
    high: int
    expressed: str
    axis: int | None
    scales: tuple[float, ...]
    zeros: tuple[int, ...]
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Tensor:
    """A tensor: sizes (None if open), element type, and the text of an encoding or ''."""

    dims: tuple[int | None, ...]
    element: str | Quantized
    encoding: str = ""

    @property
    def static(self) -> bool:
        return None not in self.dims

    @property
    def sizes(self) -> tuple[int, ...]:
        """The dimensions of a static type."""
        assert self.static, f"{self} has open sizes"
        return tuple([d for d in self.dims if d is not None])

    def __str__(self) -> str:
        dims = "".join("?x" if d is None else f"{d}x" for d in self.dims)
        return f"tensor<{dims}{self.element}{', ' if self.encoding else ''}{self.encoding}>"


@dataclass(frozen=True)
class Unranked:
    """A tensor type of unknown rank: `tensor<*xf32>`."""

    element: str | Quantized

    def __str__(self) -> str:
        return f"tensor<*x{self.element}>"


@dataclass(frozen=True)
class Tuple:
    """A tuple type."""

    elements: tuple

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.elements))}>"


@dataclass(frozen=True)
class Function:
    """The type of a function."""

    inputs: tuple
    results: tuple

    def __str__(self) -> str:
        results = self.results
        single = len(results) == 1 and not isinstance(results[0], Function)
        right = str(results[0]) if single else f"({', '.join(map(str, results))})"
        return f"({', '.join(map(str, self.inputs))}) -> {right}"


@dataclass(frozen=True)
class Scalar:
    """A non-tensor type: `i64`, `f32`, `index`, `complex<f32>`, or a quantized element by itself."""

    name: str | Quantized

    def __str__(self) -> str:
        return str(self.name)


@dataclass(frozen=True)
class Opaque:
    """A dialect type known only by name: `!stablehlo.token`."""

    text: str

    def __str__(self) -> str:
        return self.text


Type = Tensor | Unranked | Tuple | Function | Scalar | Opaque
_MOST_NESTED = 50


class TypeProblem(ValueError):
    """A malformed type: (problem, found, repair)."""


@lru_cache(maxsize=8192)
def tensor(token: str) -> Tensor | Unranked:
    """The type of a token `tensor<2x?xf32>`. Raises TypeProblem."""
    body = token[len("tensor<") : -1].strip()
    dims = []
    if body.startswith("*x"):
        element, rest = _element(body[2:])
        if rest:
            raise TypeProblem("an unranked tensor has an element type only", token, "write tensor<*xf32>")
        return Unranked(element)
    while True:
        match = re.match(r"(\?|[0-9]{1,18})\s*x\s*", body, re.ASCII)
        if match is None:
            break
        dims.append(None if match[1] == "?" else int(match[1]))
        body = body[match.end() :]
    element, rest = _element(body)
    if rest and rest[0] != ",":
        raise TypeProblem("expected an element type", rest, "write for example tensor<2x3xf32>")
    return Tensor(tuple(dims), element, re.sub(r"\s+", " ", rest[1:].strip()))


def _element(text: str) -> tuple[str | Quantized, str]:
    """An element type at the beginning of a text, and the rest."""
    match = re.match(r"complex\s*<\s*(f32|f64)\s*>", text, re.ASCII)
    if match:
        return f"complex<{match[1]}>", text[match.end() :].strip()
    if text.startswith("!"):
        depth, end = 0, len(text)
        for k, c in enumerate(text):
            depth += (c == "<") - (c == ">")
            if c == ">" and depth == 0:
                end = k + 1
                break
        return quantized(text[:end]), text[end:].strip()
    match = _SCALAR.match(text)
    if match is None or (text[match.end() : match.end() + 1].isalnum()):
        raise TypeProblem("expected an element type", f"'{text[:40]}'", "write for example f32 or i64")
    return match[0], text[match.end() :].strip()


_UNIFORM = re.compile(
    r"!quant\.uniform<\s*(ui|i|u|si)([0-9]{1,2})\s*(?:<\s*(-?[0-9]{1,19})\s*:\s*(-?[0-9]{1,19})\s*>)?\s*:\s*([a-z]+[0-9]+)\s*"
    r"(?::\s*([0-9]{1,9})\s*)?,\s*(.*)>",
    re.ASCII | re.DOTALL,
)
_SCALE = re.compile(
    r"\s*([-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|0x[0-9A-Fa-f]+)\s*(?::\s*(-?[0-9]{1,19}))?\s*", re.ASCII
)


@lru_cache(maxsize=4096)
def quantized(token: str) -> Quantized:
    """The type `!quant.uniform<i8:f32, 0.5:-128>`. Raises TypeProblem."""
    match = _UNIFORM.fullmatch(token)
    if match is None:
        raise TypeProblem(
            "expected a uniform quantized type", f"'{token[:60]}'", "write for example !quant.uniform<i8:f32, 0.5:-1>"
        )
    sign, bits, low, high, expressed, axis, body = match.groups()
    width = int(bits)
    signed = sign in ("i", "si")
    lowest = -(1 << (width - 1)) if signed else 0
    highest = (1 << (width - 1)) - 1 if signed else (1 << width) - 1
    low, high = (lowest, highest) if low is None else (int(low), int(high))
    storage = f"{'i' if signed else 'ui'}{width}"
    if storage not in ELEMENTS or expressed not in ("f32", "f64", "f16", "bf16"):
        raise TypeProblem("a quantized type stores integers and expresses floats", token, "write for example i8:f32")
    if not lowest <= low < high <= highest:
        raise TypeProblem(f"the range {low}:{high} is not within {storage}", token, f"it has {lowest}:{highest}")
    if (axis is None) == body.startswith("{"):
        raise TypeProblem("an axis goes with scales in braces", token, "write i8:f32:1, {0.5, 0.25}")
    parts = body[1:-1].split(",") if axis is not None and body.endswith("}") else [body]
    scales, zeros = [], []
    for part in parts:
        found = _SCALE.fullmatch(part)
        if found is None:
            raise TypeProblem("expected scale:zero point", f"'{part[:40]}'", "write for example 0.5:-128")
        scales.append(float.fromhex(found[1]) if found[1].startswith("0x") else float(found[1]))
        zeros.append(int(found[2] or 0))
    text = re.sub(r"\s+", "", token).replace(",", ", ")
    return Quantized(
        storage, low, high, expressed, None if axis is None else int(axis), tuple(scales), tuple(zeros), text
    )


def is_type(token: str) -> bool:
    """Whether a type begins with the token."""
    return (
        token[:1] == "!"
        or token == "("
        or token[:7] == "tensor<"
        or token in ("tuple", "index", "none")
        or token[:8] in ("complex<", "vector<", "memref<")
        or _SCALAR.fullmatch(token) is not None
    )


def parse_type(cursor: MlirCursor, aliases: dict[str, Type], depth: int = 0) -> Type:
    """A type at the cursor. `aliases`: the types named by `!name = ...`."""
    token = cursor.tokens[cursor.at]
    try:
        if token[:7] == "tensor<":
            cursor.at += 1
            try:
                return tensor(token)
            except TypeProblem:
                # Element types that are aliases: tensor<2x!name>.
                found = re.search(r"!\w+>$", token)
                if found is None or found[0][:-1] not in aliases:
                    raise
                return tensor(token[: found.start()] + str(aliases[found[0][:-1]]) + ">")
        if token[:1] == "!":
            cursor.at += 1
            if token in aliases:
                return aliases[token]
            return Scalar(quantized(token)) if token.startswith("!quant.uniform<") else Opaque(token)
        if _SCALAR.fullmatch(token) is not None:
            cursor.at += 1
            return Scalar(token)
        if token[:8] in ("complex<", "vector<", "memref<"):
            cursor.at += 1
            return Scalar(token) if token.startswith("complex<") else Opaque(token)
    except TypeProblem as error:
        problem, found, repair = error.args
        raise cursor.fail(problem, found, repair, at=cursor.at - 1) from None
    if depth >= _MOST_NESTED:
        raise cursor.fail(f"types are nested deeper than {_MOST_NESTED}")
    if token == "tuple":
        cursor.at += 1
        return Tuple(tuple(cursor.bracketed("<", lambda: parse_type(cursor, aliases, depth + 1), ">")))
    if token == "(":
        inputs = parse_type_list(cursor, aliases, depth + 1)
        cursor.expect("->")
        return Function(inputs, parse_results(cursor, aliases, depth + 1))
    raise cursor.unexpected("a type")


def parse_type_list(cursor: MlirCursor, aliases, depth: int = 0) -> tuple:
    """Reads `(type, type)`."""
    return tuple(cursor.bracketed("(", lambda: parse_type(cursor, aliases, depth), ")"))


def parse_results(cursor: MlirCursor, aliases, depth: int = 0) -> tuple:
    """Reads `type` or `(type, type)`."""
    if cursor.peek() == "(":
        return parse_type_list(cursor, aliases, depth)
    return (parse_type(cursor, aliases, depth),)


def element_dtype(element: str):
    """The NumPy dtype of an element type, or None if unsupported."""
    return DTYPES.get(ELEMENTS.get(element, ""))


def _bound(size: SizeExpression) -> int | None:
    """The upper bound of a size; None if one of its dimensions is unbounded."""
    most = highest(size)
    return most if isinstance(most, int) and all(d.max is not None for d in dims_of(size).values()) else None


@lru_cache(maxsize=8192)
def shape_type(shape: Shape) -> Tensor:
    """The tensor type of an array's shape. Dynamic sizes are open, with their bounds."""
    element = ELEMENT_NAME[HLO_NAME[shape.dtype]]
    if not shape.is_open:
        return Tensor(shape.dims, element)
    dims = tuple([None if isinstance(size, SizeExpression) else size for size in shape.dims])
    most = [None if size is not None else _bound(given) for size, given in zip(dims, shape.dims, strict=True)]
    if not any(size is not None for size in most):
        return Tensor(dims, element)
    return Tensor(dims, element, f"#stablehlo.bounds<{', '.join('?' if m is None else str(m) for m in most)}>")
