"""Values of `dense<...>` constants: splats, nested lists, bit patterns, complex pairs, and raw bytes in hexadecimal."""

from __future__ import annotations

import re

import numpy as np

from hloom.ir.stablehlo.assembly.attributes import Dense
from hloom.ir.types import COMPLEX, FLOATS, HLO_NAME, INTEGERS, PRED, Shape, real_dtype

_BITS = {"s2": 2, "u2": 2, "s4": 4, "u4": 4}
_DECIMAL = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|[-+]?inf|-?nan", re.ASCII)
_INTEGER = re.compile(r"-?(?:[0-9]{1,20}|0x[0-9A-Fa-f]{1,16})", re.ASCII)
_HEX = re.compile(r"0x[0-9A-Fa-f]{1,32}", re.ASCII)
_ELEMENT = re.compile(r"\s*+(\(\s*[^(),]*+,\s*[^(),]*+\)|[^\s,()\[\]]++)\s*+", re.ASCII)


class LiteralProblem(ValueError):
    """A constant that does not match its type: (problem, found, repair)."""


def dense_value(dense: Dense, shape: Shape, resources: dict[str, str] | None = None) -> np.ndarray:
    """The array of a constant's text, with a shape. Raises LiteralProblem."""
    body = dense.body.strip()
    if body.startswith("dense_resource<"):
        return _resource(body[15:-1].strip(), shape, resources or {})
    if body[:1] == '"':
        return _raw(body, shape)
    if body == "":
        if shape.size:
            raise LiteralProblem(f"the constant of {shape!r} has no elements", "dense<>", "write a value")
        return np.zeros(shape.dims, shape.dtype)
    if body[0] != "[":
        return np.broadcast_to(np.asarray(_elements([body], shape.dtype)[0]), shape.dims)
    texts: list[str] = []
    dims = _flatten(body, texts)
    if dims != shape.dims and not (shape.size == 0 and not texts):
        raise LiteralProblem(f"the constant's list has the shape {list(dims)}", repr(shape), "write the type's shape")
    return _elements(texts, shape.dtype).reshape(shape.dims)


def _flatten(body: str, texts: list[str]) -> tuple[int, ...]:
    """Appends the elements of nested lists to `texts`; returns the sizes. Not recursive, as the text determines the
    depth."""
    sizes: list[int | None] = []
    counts: list[int] = []
    at, end = 0, len(body)
    expect_value = True
    while at < end:
        c = body[at]
        if c.isspace():
            at += 1
        elif c == "[":
            if not expect_value:
                raise LiteralProblem("expected ',' in a list", body[at : at + 20])
            counts.append(0)
            if len(counts) > len(sizes):
                sizes.append(None)
            at += 1
        elif c == "]":
            if not counts:
                raise LiteralProblem("']' closes no list", body[at : at + 20])
            depth = len(counts) - 1
            count = counts.pop()
            if sizes[depth] is None:
                sizes[depth] = count
            elif sizes[depth] != count:
                raise LiteralProblem("lists of one level have one length", f"{sizes[depth]} and {count} elements")
            if counts:
                counts[-1] += 1
            expect_value = False
            at += 1
        elif c == ",":
            if expect_value:
                raise LiteralProblem("expected an element before ','", body[at : at + 20])
            expect_value = True
            at += 1
        else:
            match = _ELEMENT.match(body, at)
            if match is None or not counts or not expect_value or len(counts) != len(sizes):
                raise LiteralProblem("expected an element", body[at : at + 20])
            texts.append(match[1])
            counts[-1] += 1
            expect_value = False
            at = match.end()
    if counts:
        raise LiteralProblem("a list is not closed", body[-20:], "add ']'")
    return tuple(e or 0 for e in sizes)


def _elements(texts: list[str], dtype: np.dtype) -> np.ndarray:
    if dtype == PRED:
        known = {"true": True, "false": False, "1": True, "0": False}
        return np.array([_looked_up(known, t) for t in texts], dtype)
    if dtype in COMPLEX:
        part = real_dtype(dtype)
        flat: list = []
        for text in texts:
            if text[:1] != "(" or text.count(",") != 1:
                raise LiteralProblem("a complex element is a pair (re, im)", text[:40])
            flat.extend(p.strip() for p in text[1:-1].split(","))
        return _elements(flat, part).view(dtype)
    if dtype in INTEGERS:
        return _integers(texts, dtype)
    if dtype in FLOATS:
        return _floats(texts, dtype)
    raise LiteralProblem("a constant's elements are numbers", HLO_NAME[dtype])


def _looked_up(known: dict, text: str):
    if text not in known:
        raise LiteralProblem("an element of i1 is true or false", text[:40])
    return known[text]


def _integers(texts: list[str], dtype: np.dtype) -> np.ndarray:
    name = HLO_NAME[dtype]
    width = _BITS.get(name, 8 * dtype.itemsize)
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if name[0] == "s" else (0, (1 << width) - 1)
    values = []
    for text in texts:
        if _INTEGER.fullmatch(text) is None:
            raise LiteralProblem(f"an element of {name} is an integer", text[:40])
        value = int(text, 0) if "x" in text else int(text)
        if "x" in text and value > high >= value - (1 << width):
            value -= 1 << width
        if not low <= value <= high:
            raise LiteralProblem(f"{text[:40]} is out of the range of {name}", f"{low} to {high}")
        values.append(value)
    return np.array(values, np.int64 if high < 2**63 else np.uint64).astype(dtype)


def _floats(texts: list[str], dtype: np.dtype) -> np.ndarray:
    result = np.zeros(len(texts), dtype)
    patterns, wide = [], []
    for k, text in enumerate(texts):
        if _DECIMAL.fullmatch(text):
            wide.append(float(text))
        elif _HEX.fullmatch(text):
            patterns.append((k, int(text, 16)))
            wide.append(0.0)
        else:
            raise LiteralProblem(f"an element of {HLO_NAME[dtype]} is a number", text[:40], "write for example 1.0")
    with np.errstate(all="ignore"):
        result[:] = np.array(wide, np.float64).astype(dtype)
    bits = result.view(f"u{dtype.itemsize}")
    for k, pattern in patterns:
        if pattern >> (8 * dtype.itemsize):
            raise LiteralProblem(
                f"the bit pattern {texts[k][:40]} is wider than {HLO_NAME[dtype]}", "", "check its digits"
            )
        bits[k] = pattern
    return result


def _raw(body: str, shape: Shape) -> np.ndarray:
    """`"0x..."`: the bytes of the elements, little-endian, row-major; one byte for an element with fewer than 8
    bits."""
    digits = body[1:-1]
    if digits[:2] != "0x" or body[-1] != '"':
        raise LiteralProblem('raw bytes are written "0x..."', digits[:40])
    try:
        data = bytes.fromhex(digits[2:])
    except ValueError:
        raise LiteralProblem("raw bytes are hexadecimal digits, two a byte", digits[:40]) from None
    return _from_bytes(data, shape)


def _from_bytes(data: bytes, shape: Shape) -> np.ndarray:
    size = shape.dtype.itemsize
    name = HLO_NAME[shape.dtype]
    if len(data) == size and shape.size != 1:
        # A single element is a splat.
        return np.broadcast_to(_from_bytes(data, shape.with_dims(())), shape.dims)
    if len(data) != size * shape.size:
        raise LiteralProblem(
            f"{shape!r} has {size * shape.size} bytes", f"{len(data)} bytes", "write two digits for each byte"
        )
    if shape.dtype == PRED:
        return (np.frombuffer(data, np.uint8) != 0).reshape(shape.dims)
    if name in _BITS:
        return np.frombuffer(data, np.int8 if name[0] == "s" else np.uint8).astype(shape.dtype).reshape(shape.dims)
    return np.frombuffer(data, shape.dtype).reshape(shape.dims)


def _resource(name: str, shape: Shape, resources: dict[str, str]) -> np.ndarray:
    """A blob after the module: four bytes of alignment, then the elements."""
    if name not in resources:
        raise LiteralProblem(f"there is no resource '{name}'", ", ".join(list(resources)[:8]) or "none")
    try:
        data = bytes.fromhex(resources[name][2:])[4:]
    except ValueError:
        raise LiteralProblem("a resource is hexadecimal digits, two a byte", resources[name][:40]) from None
    return _from_bytes(data, shape)
