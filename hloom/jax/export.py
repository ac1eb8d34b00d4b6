"""`jax.export`: programs as StableHLO that outlive the process. `hl.export` is a library for C; these are its names in
JAX.

    exported = jax.export.export(jax.jit(f))(jax.ShapeDtypeStruct((4,), "float32"))
    data = exported.serialize()
    jax.export.deserialize(data).call(x)

With symbolic shapes (`symbolic_shape`) a program is called in the process that exported it; it has no serialized form,
because hloom compiles programs of fixed sizes.
"""

from __future__ import annotations

import ast
import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.arrays.dimensions import Dim, DimStruct
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.dispatch.from_text import from_stablehlo
from hloom.dispatch.jit import jit
from hloom.errors import ArgumentError, ExportError, ParseError, ShapeError
from hloom.export.artifacts import artifact_of_text
from hloom.export.names import described_tree
from hloom.ir.records import record
from hloom.ir.types import DTYPES, HLO_NAME
from hloom.tree import pytrees as tree

__all__ = [
    "Exported",
    "SymbolicScope",
    "deserialize",
    "export",
    "is_symbolic_dim",
    "symbolic_args_specs",
    "symbolic_shape",
]

MAGIC = b"hloom exported 1\n"
minimum_supported_calling_convention_version = maximum_supported_calling_convention_version = 1
UNBOUNDED = 1 << 40


@record(frozen=True)
class Exported:
    """A program for arguments of certain shapes. in_avals, out_avals: of the flat arguments and results."""

    fun_name: str
    in_tree: Any
    in_avals: tuple
    out_tree: Any
    out_avals: tuple
    text: str | None
    function: Callable
    platforms: tuple[str, ...] = ("cpu",)
    nr_devices: int = 1
    calling_convention_version: int = 1

    def mlir_module(self) -> str:
        """The program as StableHLO text. Raises ExportError for symbolic shapes."""
        if self.text is None:
            raise ExportError(
                f"the module of '{self.fun_name}', which was exported with symbolic shapes",
                "hloom compiles programs of fixed sizes",
                "export it with sizes, or as a library: hl.export(f, ...) with hl.Dim",
            )
        return self.text

    @property
    def mlir_module_serialized(self) -> bytes:
        """The program as a StableHLO portable artifact, which needs jaxlib."""
        return artifact_of_text(self.mlir_module())

    def has_vjp(self) -> bool:
        return False

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The result for arguments of the exported shapes and dtypes. Raises ArgumentError, ShapeError."""
        leaves, structure = tree.flatten((args, kwargs))
        if structure != self.in_tree:
            raise ArgumentError(f"call of the exported '{self.fun_name}'", f"{structure}", f"pass {self.in_tree}")
        _check(self.fun_name, leaves, self.in_avals)
        return self.function(*args, **kwargs)

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """The program as bytes, for `deserialize`: shapes, trees and StableHLO text. Containers other than tuples,
        lists and dicts come back as these. Raises ExportError for derivatives and symbolic shapes."""
        if vjp_order:
            raise ExportError(
                f"serialize(vjp_order={vjp_order})", "derivatives are not exported with a program", "export jax.grad(f)"
            )
        text = self.mlir_module()
        args, kwargs = tree.unflatten(self.in_tree, list(range(len(self.in_avals))))
        result = tree.unflatten(self.out_tree, list(range(len(self.out_avals))))
        header = {
            "name": self.fun_name,
            "args": described_tree(args),
            "kwargs": described_tree(kwargs),
            "result": described_tree(result),
            "in": [_plain(a) for a in self.in_avals],
            "out": [_plain(a) for a in self.out_avals],
        }
        data = json.dumps(header).encode()
        return bytearray(MAGIC + struct.pack("<Q", len(data)) + data + text.encode())


def _plain(aval: Any) -> list:
    return [list(aval.shape), HLO_NAME[aval.dtype], bool(aval.weak)]


def _check(name: str, leaves: Sequence, avals: Sequence) -> None:
    sizes: dict[str, int] = {}
    for number, (leaf, aval) in enumerate(zip(leaves, avals, strict=True)):
        given = leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else np.asarray(leaf)
        fits = len(given.shape) == len(aval.shape) and (aval.weak or np.dtype(given.dtype) == aval.dtype)
        for size, wanted in zip(given.shape, aval.shape, strict=False):
            if isinstance(wanted, Dim):
                fits = fits and sizes.setdefault(wanted.name, size) == size and wanted.least <= size <= wanted.most
            else:
                fits = fits and size == wanted
        if not fits:
            shown = ", ".join(size.name if isinstance(size, Dim) else str(size) for size in aval.shape)
            raise ShapeError(
                f"call of the exported '{name}'",
                f"argument {number} is {given.dtype}{list(given.shape)}",
                f"pass {aval.dtype.name}[{shown}]",
            )


def export(fun_jit: Callable, *, platforms: Sequence[str] | None = None, **options: Any) -> Callable[..., Exported]:
    """A function of arguments (arrays or ShapeDtypeStructs) that returns the program for their shapes.

    platforms: ("cpu",) or None. options: accepted, no effect. Raises ExportError.
    """
    if platforms is not None and set(platforms) != {"cpu"}:
        raise ExportError(f"export for {tuple(platforms)}", "hloom exports programs for cpu", "leave out platforms=")
    if not hasattr(fun_jit, "lower"):
        raise ArgumentError("jax.export.export", f"{fun_jit!r:.60} is not jitted", "pass jax.jit(f)")

    def exported(*args: Any, **kwargs: Any) -> Exported:
        leaves, structure = tree.flatten((args, kwargs))
        symbolic = any(isinstance(leaf, DimStruct) for leaf in leaves)
        positional, named = _at_least((args, kwargs))
        lowered = fun_jit.lower(*positional, **named)
        avals = tuple(tree.leaves(lowered.in_avals))
        if symbolic:
            avals = tuple([b if isinstance(b, DimStruct) else a for a, b in zip(avals, leaves, strict=True)])
        name = getattr(fun_jit, "__name__", "f")
        out = tuple(tree.leaves(lowered.out_info))
        text = None if symbolic else lowered.as_text("stablehlo")
        return Exported(name, structure, avals, tree.structure(lowered.out_info), out, text, fun_jit)

    return exported


def _at_least(arguments: Any) -> Any:
    """Symbolic shapes with the least size of each dimension, but for 1, which is special to broadcasting."""

    def at(leaf: Any) -> Any:
        if not isinstance(leaf, DimStruct):
            return leaf
        sizes = [min(max(d.least, 2), d.most) if isinstance(d, Dim) else d for d in leaf.shape]
        return ShapeDtypeStruct(tuple(sizes), leaf.dtype, leaf.weak)

    return tree.map(at, arguments)


def deserialize(blob: bytes | bytearray) -> Exported:
    """The program in the bytes of `Exported.serialize`. Raises ParseError for others: nothing in them is executed."""
    data = bytes(blob)
    try:
        if not data.startswith(MAGIC):
            raise ValueError(f"it begins with {data[:16]!r}")
        start = len(MAGIC) + 8
        (size,) = struct.unpack("<Q", data[len(MAGIC) : start])
        if size > len(data) - start:
            raise ValueError(f"a header of {size} bytes in {len(data)}: truncated")
        header = json.loads(data[start : start + size])
        text = data[start + size :].decode()
        avals, results = ([_aval(one) for one in header[key]] for key in ("in", "out"))
        arguments = _tree(header["args"], avals), _tree(header["kwargs"], avals)
        result = _tree(header["result"], results)
    except (ValueError, KeyError, TypeError, IndexError, struct.error) as error:
        raise ParseError(
            "jax.export.deserialize", str(error)[:300], "pass what hloom's Exported.serialize returned"
        ) from None
    program = from_stablehlo(text)
    structure = tree.structure(result)

    def call(*args: Any, **kwargs: Any) -> Any:
        found = program(*tree.leaves((args, kwargs)))
        return tree.unflatten(structure, tree.leaves(found))

    call.__name__ = str(header["name"])
    in_tree = tree.structure(arguments)
    return Exported(call.__name__, in_tree, tuple(avals), structure, tuple(results), text, jit(call))


def _aval(found: list) -> ShapeDtypeStruct:
    shape, dtype, weak = found
    return ShapeDtypeStruct(tuple(shape), DTYPES[dtype], weak)


def _tree(described: Any, leaves: list) -> Any:
    if described is None:
        return None
    if isinstance(described, int):
        return leaves[described]
    ((kind, children),) = described.items()
    if kind == "dict":
        return {key: _tree(child, leaves) for key, child in children.items()}
    parts = [_tree(child, leaves) for child in children]
    return tuple(parts) if kind == "tuple" else parts


class SymbolicScope:
    """Accepted where JAX takes one: a name means the same dimension everywhere."""

    def __init__(self, constraints: Sequence[str] = ()):
        self.constraints = tuple(constraints)


def symbolic_shape(
    shape_spec: str,
    *,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
    like: Sequence | None = None,
) -> tuple[int | Dim, ...]:
    """The sizes in a text such as "batch, 784": numbers, and names for dimensions of any size.

    constraints: limits, such as "batch >= 2" and "batch <= 64". like: sizes where the text has "_". Sums and products
    of names are not supported. Raises ArgumentError.
    """
    limits: dict[str, list[int]] = {}
    for text in (*constraints, *(scope.constraints if scope else ())):
        name, least, most = _limit(text)
        known = limits.setdefault(name, [1, UNBOUNDED])
        known[:] = [max(known[0], least), min(known[1], most)]
    sizes: list[int | Dim] = []
    for k, part in enumerate(one.strip() for one in shape_spec.strip("()").split(",") if one.strip()):
        if part == "_" and like is not None:
            sizes.append(like[k])
        elif part.isdigit():
            sizes.append(int(part))
        elif part.isidentifier():
            sizes.append(Dim(part, *limits.get(part, [1, UNBOUNDED])))
        else:
            raise ArgumentError(
                f"symbolic_shape({shape_spec!r})", f"{part!r} is no number and no name", "write numbers and names"
            )
    return tuple(sizes)


def _limit(text: str) -> tuple[str, int, int]:
    """(name, least, most) of a constraint."""
    try:
        compare = ast.parse(text, mode="eval").body
        assert isinstance(compare, ast.Compare) and len(compare.ops) == 1
        left, right, how = compare.left, compare.comparators[0], type(compare.ops[0])
        if isinstance(left, ast.Constant):
            left, right, how = right, left, {ast.GtE: ast.LtE, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.Lt: ast.Gt}[how]
        assert isinstance(left, ast.Name) and isinstance(right, ast.Constant) and isinstance(right.value, int)
        value = right.value
        return {
            ast.GtE: (left.id, value, UNBOUNDED), ast.Gt: (left.id, value + 1, UNBOUNDED),
            ast.LtE: (left.id, 1, value), ast.Lt: (left.id, 1, value - 1), ast.Eq: (left.id, value, value),
        }[how]  # fmt: skip
    except (SyntaxError, AssertionError, KeyError):
        raise ArgumentError(
            f"the constraint {text!r}", "it is no limit of a dimension", "write 'batch >= 2' or 'batch <= 64'"
        ) from None


def symbolic_args_specs(args: Any, shapes_specs: Any, **options: Any) -> Any:
    """The arguments as ShapeDtypeStructs with the shapes of a text, or of a tree of texts."""
    specs = tree.broadcast(shapes_specs, args)
    leaves, structure = tree.flatten(args)
    made = []
    for leaf, spec in zip(leaves, specs, strict=True):
        array = leaf if hasattr(leaf, "shape") else np.asarray(leaf)
        shape = (
            tuple(array.shape) if spec in (None, "...") else symbolic_shape(spec, like=tuple(array.shape), **options)
        )
        made.append(ShapeDtypeStruct(shape, array.dtype))
    return tree.unflatten(structure, made)


def is_symbolic_dim(size: Any) -> bool:
    """Whether a size is a dimension with a name."""
    return isinstance(size, Dim)
