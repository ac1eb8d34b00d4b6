"""Constants in HLO text: `{ { 1, 2 }, { 3, 4 } }`, with nan, inf, complex pairs and pred as 0 and 1.

Floats have the same digits as in XLA: the fewest that round-trip.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from hloom.ir.types import COMPLEX, FLOATS, HLO_NAME, INTEGERS, PRED, Shape, real_dtype

# The numbers of digits that XLA tries, in order. XLA prints f16 and bf16 with enough digits for all values.
_DIGITS = {"f32": (6, 9), "f64": (15, 17), "f16": (5,), "bf16": (4,), "f8e5m2": (2,)}
_DIGITS |= {"f4e2m1fn": (2,), "f8e8m0fnu": (2, 17)}
_DIGITS |= dict.fromkeys(("f8e3m4", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e4m3fnuz", "f8e5m2fnuz"), (3,))
# Mantissa bits, without the hidden one.
_MANTISSA = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7, "f8e5m2": 2, "f8e4m3": 3, "f8e3m4": 4}


class LiteralError(Exception):
    """A malformed constant: (problem, offset in its text, found, repair)."""


# --- printing -----------------------------------------------------------------------------------------------------


def _nan_text(value) -> str:
    """`nan`, `-nan`, and with non-default payloads (other than the highest bit): `nan(0x1234)`."""
    name = HLO_NAME[value.dtype]
    if name.endswith("fnuz"):
        return "nan"
    bits = int(value.view(f"u{value.dtype.itemsize}"))
    sign = "-" if bits >> (8 * value.dtype.itemsize - 1) else ""
    if name not in _MANTISSA:
        return f"{sign}nan"
    payload = bits & ((1 << _MANTISSA[name]) - 1)
    usual = 1 << (_MANTISSA[name] - 1)
    return f"{sign}nan" if payload == usual else f"{sign}nan({payload:#x})"


def _float_texts(flat: np.ndarray) -> list[str]:
    """Processes the whole array for each number of digits, because large constants are printed in full."""
    wide = flat.astype(np.float64)
    few, *many = _DIGITS[HLO_NAME[flat.dtype]]
    texts = [f"{v:.{few}g}" for v in wide.tolist()]
    if many:
        back = np.array(list(map(float, texts)), np.float64).astype(flat.dtype)
        for k in np.flatnonzero(back != flat):
            texts[k] = f"{wide[k]:.{many[0]}g}"
    for k in np.flatnonzero(wide == 0):
        # XLA's parser treats `-0` as an integer and loses the sign.
        texts[k] = "-0.0" if np.signbit(wide[k]) else "0"
    for k in np.flatnonzero(np.isnan(wide)):
        texts[k] = _nan_text(flat[k])
    return texts


def _texts(flat: np.ndarray) -> list[str]:
    """The text of each element of a flat array."""
    dtype = flat.dtype
    if dtype == PRED:
        return ["1" if v else "0" for v in flat.tolist()]
    if dtype in INTEGERS:
        return list(map(str, flat.astype(np.int64 if dtype.itemsize < 8 else dtype).tolist()))
    if dtype in COMPLEX:
        parts = _texts(flat.view(real_dtype(dtype)))
        return [f"({re}, {im})" for re, im in zip(parts[::2], parts[1::2], strict=True)]
    return _float_texts(flat)


def literal_text(value: np.ndarray) -> str:
    """The constant's text without the enclosing parentheses, always in full."""
    with np.errstate(all="ignore"):
        texts = _texts(np.ascontiguousarray(value).reshape(-1))
    if value.ndim == 0:
        return ("true" if value else "false") if value.dtype == PRED else texts[0]
    if value.ndim == 1:
        return f"{{{', '.join(texts)}}}"
    # From the innermost dimension outwards. XLA prints empty rows as `{}` and other empty dimensions as `{ }`.
    size = value.shape[-1]
    count = int(np.prod(value.shape[:-1], dtype=np.int64))
    rows = [f"{{ {', '.join(texts[k * size : (k + 1) * size])} }}" if size else "{}" for k in range(count)]
    for axis in range(value.ndim - 2, -1, -1):
        size = value.shape[axis]
        count = int(np.prod(value.shape[:axis], dtype=np.int64))
        rows = [f"{{ {', '.join(rows[k * size : (k + 1) * size])} }}" for k in range(count)]
    return rows[0]


# --- parsing ------------------------------------------------------------------------------------------------------

_COMMENT = re.compile(r"/\*[\s\S]*?\*/")
_PIECE = re.compile(r"\s*+(\{[^{}]*+\}|[{},]|[^\s{},][^{}]*+)", re.ASCII)
_NAN = re.compile(r"([+-]?)nan(?:\((0x[0-9a-fA-F]{1,16})\))?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|inf)", re.ASCII)
_ELEMENT = re.compile(r"\s*+(\((?:[^()]|\([^()]*+\))*+\)\s*+|[^,()]*(?:\([^()]*+\))?[^,()]*)(,|\Z)")


def _nan(sign: str, payload: int | None, dtype: np.dtype):
    """The NaN with a sign and a payload, from bits, as conversions between dtypes may lose them."""
    name = HLO_NAME[dtype]
    width = 8 * dtype.itemsize
    mantissa = _MANTISSA.get(name)
    if mantissa is None:
        if payload is not None:
            raise ValueError(f"a NaN of {name} has no payload")
        if name.endswith("fnuz"):
            return np.asarray(0x80, np.uint8).view(dtype)[()]  # the only one: where -0 would be
        bits = (1 << width - 1) - 1
    else:
        payload = 1 << mantissa - 1 if payload is None else payload
        if not 0 < payload < 1 << mantissa:
            raise ValueError(f"a NaN of {name} cannot have the payload {payload:#x}")
        bits = ((1 << width - 1 - mantissa) - 1) << mantissa | payload
    return np.asarray(bits | (sign == "-") << (width - 1), f"u{dtype.itemsize}").view(dtype)[()]


def _float(text: str, dtype: np.dtype):
    """One float of a dtype, NaN by its bits. Raises ValueError."""
    match = _NAN.fullmatch(text)
    if match:
        return _nan(match[1], int(match[2], 16) if match[2] else None, dtype)
    if _FLOAT.fullmatch(text) is None:
        raise ValueError(f"'{text}' is not a number")
    with np.errstate(all="ignore"):
        result = np.asarray(float(text)).astype(dtype)[()]
    if text[-1] != "f" and not np.isfinite(result):
        raise ValueError(f"{text} is out of the range of {HLO_NAME[dtype]}")
    return result


def _integer(text: str, dtype: np.dtype) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(f"'{text}' is not an integer")
    value = int(text)
    bits = 4 if HLO_NAME[dtype] in ("s4", "u4") else 8 * dtype.itemsize
    signed = HLO_NAME[dtype][0] == "s"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if not low <= value <= high:
        raise ValueError(f"{value} does not fit into {HLO_NAME[dtype]} ({low} to {high})")
    return value


def _one(text: str, dtype: np.dtype):
    """The element of a text. Raises ValueError(problem)."""
    if dtype == PRED:
        if text not in ("0", "1", "true", "false"):
            raise ValueError(f"'{text}' is not a pred: true, false, 1 or 0")
        return text in ("1", "true")
    if dtype in INTEGERS:
        return _integer(text, dtype)
    if dtype in COMPLEX:
        parts = text[1:-1].split(",") if text[:1] == "(" and text[-1:] == ")" else []
        if len(parts) != 2:
            raise ValueError(f"'{text}' is not a complex number, written (re, im)")
        result = np.zeros((), dtype)
        result.real, result.imag = (_float(p.strip(), real_dtype(dtype)) for p in parts)
        return result[()]
    return _float(text, dtype)


def _fast(texts: list[str], dtype: np.dtype) -> np.ndarray | None:
    """The elements of plain numbers, or None if one needs special handling (or is invalid)."""
    try:
        if dtype in FLOATS:
            values = np.array(list(map(float, texts)))
            if not np.isfinite(values).all():
                return None
            with np.errstate(all="ignore"):
                narrow = values.astype(dtype)
            return narrow if np.isfinite(narrow).all() else None
        if dtype.kind in "iu":
            return np.array(list(map(int, texts)), dtype)
    except (ValueError, OverflowError):
        pass
    return None


def _row(body: str, start: int, dtype: np.dtype) -> np.ndarray:
    """The elements of an innermost row. `start` is the offset of `body` in the constant."""
    if not body or body.isspace():
        return np.empty(0, dtype)
    if dtype not in COMPLEX and "_" not in body and body.isascii():
        values = _fast(body.split(","), dtype)
        if values is not None:
            return values
    elements: list = []
    at = 0
    while True:
        match = _ELEMENT.match(body, at)
        if match is None:
            raise LiteralError("expected a number", start + at, f"'{body[at : at + 20]}'", "")
        try:
            elements.append(_one(match[1].rstrip(), dtype))
        except ValueError as error:
            raise LiteralError(error.args[0], start + match.start(1), "", "") from None
        if not match[2]:
            break
        at = match.end()
    result = np.empty(len(elements), dtype)
    for k, value in enumerate(elements):
        result[k] = value  # element by element, as NaNs of narrow dtypes would lose their bits in a list
    return result


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    for match in _PIECE.finditer(text):
        yield match[1], match.start(1)
    yield "", len(text)


def parse_literal(text: str, shape: Shape) -> np.ndarray:
    """The array of the text inside of `constant(...)`. Raises LiteralError."""
    if "/*" in text:
        text = _COMMENT.sub(lambda m: " " * len(m[0]), text)  # same length, which preserves offsets
    if "..." in text:
        raise LiteralError(
            "the constant's values are left out",
            text.index("..."),
            "'{...}'",
            "print the module with its large constants in full",
        )
    if shape.rank == 0:
        lead = len(text) - len(text.lstrip())
        try:
            return np.asarray(_one(text.strip(), shape.dtype), dtype=shape.dtype)
        except ValueError as error:
            raise LiteralError(error.args[0], lead, "", "") from None
    rows: list[np.ndarray] = []
    _Nested(text, shape, rows).read()
    flat = np.concatenate(rows) if rows else np.empty(0, shape.dtype)
    return flat.reshape(shape.dims)


class _Nested:
    """Parses nested braces to the depth of the rank, without recursion, so that no text exhausts the stack."""

    def __init__(self, text: str, shape: Shape, rows: list[np.ndarray]):
        self.text, self.shape, self.rows = text, shape, rows

    def read(self) -> None:
        dims, last = self.shape.dims, self.shape.rank - 1
        counts = [0]  # number of elements so far, per open brace; the first is the constant itself
        comma_next = False
        for piece, offset in _pieces(self.text):
            level = len(counts) - 1  # one plus the dimension of which a row here would be an element
            if piece == "":
                if level or counts[0] != 1:
                    raise LiteralError("the constant ends too early", offset, "", f"it has the shape {self.shape!r}")
                return
            if level == 0 and counts[0]:
                raise LiteralError("expected the end of the constant", offset, f"'{piece[:20]}'", "")
            if piece == ",":
                if not comma_next:
                    raise LiteralError("expected an element", offset, "','", "")
                comma_next = False
                continue
            if piece == "}":
                if level == 0 or (not comma_next and counts[-1]):
                    raise LiteralError("expected an element", offset, "'}'", "")
                self._close(counts.pop(), dims[level - 1], level - 1, offset)
                comma_next = True
                continue
            if comma_next:
                raise LiteralError("expected ',' or '}'", offset, f"'{piece[:20]}'", "")
            counts[-1] += 1
            if piece == "{":
                if level >= last:
                    raise LiteralError("braces are nested deeper than the rank", offset, "", f"{self.shape!r}")
                counts.append(0)
            elif piece[0] == "{":
                if level == last:
                    row = _row(piece[1:-1], offset + 1, self.shape.dtype)
                    self._close(len(row), dims[level], level, offset)
                    self.rows.append(row)
                elif piece[1:-1].strip() == "":
                    self._close(0, dims[level], level, offset)
                else:
                    raise LiteralError("braces are nested less deep than the rank", offset, "", f"{self.shape!r}")
                comma_next = True
            else:
                raise LiteralError("expected '{'", offset, f"'{piece[:20]}'", f"the shape is {self.shape!r}")

    def _close(self, found: int, wanted: int, dimension: int, offset: int) -> None:
        if found != wanted:
            raise LiteralError(
                f"dimension {dimension} has {wanted} elements", offset, f"{found}", f"the shape is {self.shape!r}"
            )


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two constants are identical, including NaN and the sign of zero."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
