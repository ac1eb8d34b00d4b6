"""`jax.export`: programs as StableHLO that outlive the process. `hl.export` is a library for C; these are its names in
JAX.

    exported = jax.export.export(jax.jit(f))(jax.ShapeDtypeStruct((4,), "float32"))
    data = exported.serialize()
    jax.export.deserialize(data).call(x)

With symbolic shapes (`symbolic_shape`) one program serves all sizes from 2 on; sizes of 0 and 1 are traced by
themselves. Its serialized form is StableHLO text with dynamic sizes where constraints leave no smaller ones
("b >= 2"); otherwise it has a module for each size, and constraints such as "b <= 64" have to bound them.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.arrays.shape_dtype import ShapeDtypeStruct, is_open
from hloom.dispatch.from_text import from_stablehlo
from hloom.dispatch.jit import jit
from hloom.errors import ArgumentError, ExportError, ParseError, ShapeError, UnsupportedError
from hloom.export.artifacts import artifact_of_text
from hloom.export.names import described_tree
from hloom.export.shape_text import Names, constraints_of, parsed_shape, scope_of
from hloom.ir.module import below
from hloom.ir.op_table import OPS
from hloom.ir.records import record
from hloom.ir.sizes.expressions import Comparison, Dim, Size, SizeExpression, dims_of, single, size_at
from hloom.ir.sizes.solving import solved
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
MOST_MODULES = 256  # of a serialized program with symbolic shapes
SMALL = 2  # smaller sizes are traced by themselves


@record(frozen=True)
class Exported:
    """A program for arguments of certain shapes. in_avals, out_avals: of the flat arguments and results."""

    fun_name: str
    in_tree: Any
    in_avals: tuple
    out_tree: Any
    out_avals: tuple
    text: str | None
    function: Any
    platforms: tuple[str, ...] = ("cpu",)
    nr_devices: int = 1
    calling_convention_version: int = 1
    constraints: tuple[tuple[str, Comparison], ...] = ()  # with their texts
    texts: tuple[tuple[dict[str, int], str], ...] = ()  # of a program that was read: for sizes of its dimensions
    open_text: str | None = None  # of symbolic shapes: for all sizes that are not small
    program: Any = None  # what that text computes

    def mlir_module(self) -> str:
        """The program as StableHLO text, with dynamic ops for symbolic shapes. Raises ExportError for those that have
        no such text."""
        text = self.open_text if self.text is None else self.text
        if text is None:
            raise ExportError(
                f"the module of '{self.fun_name}', which was exported with symbolic shapes",
                "StableHLO has an op of it with fixed sizes alone",
                "export it with sizes, or as a library: hl.export(f, ...) with hl.Dim",
            )
        return text

    @property
    def mlir_module_serialized(self) -> bytes:
        """The program as a StableHLO portable artifact, which needs jaxlib."""
        return artifact_of_text(self.mlir_module())

    def has_vjp(self) -> bool:
        """False: an artifact holds no derivative."""
        return False

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The result for arguments of the exported shapes and dtypes. Raises ArgumentError, ShapeError."""
        leaves, structure = tree.flatten((args, kwargs))
        if structure != self.in_tree:
            raise ArgumentError(f"call of the exported '{self.fun_name}'", f"{structure}", f"pass {self.in_tree}")
        sizes = _check(self.fun_name, leaves, self.in_avals, self.constraints)
        if self.program is not None and all(size >= SMALL for size in sizes.values()):
            return tree.unflatten(self.out_tree, tree.leaves(self.program(*leaves)))
        return self.function(*args, **kwargs)

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """The program as bytes, for `deserialize`: shapes, trees and StableHLO text. Containers other than tuples,
        lists and dicts come back as these. Raises ExportError for derivatives and symbolic shapes."""
        if vjp_order:
            raise ExportError(
                f"serialize(vjp_order={vjp_order})", "derivatives are not exported with a program", "export jax.grad(f)"
            )
        dims = _dims(self.in_avals)
        is_open = self.open_text is not None and all(d.min >= SMALL for d in dims)
        texts = self._modules() if self.text is None and not is_open else []
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
        if dims:
            header["dims"] = {d.name: [d.min, d.most] for d in dims}
            header["constraints"] = [text for text, _ in self.constraints]
        if texts:
            header["modules"] = [[sizes[d.name] for d in dims] + [len(text.encode())] for sizes, text in texts]
        data = json.dumps(header).encode()
        body = "".join([text for _, text in texts]) if texts else self.mlir_module()
        return bytearray(MAGIC + struct.pack("<Q", len(data)) + data + body.encode())

    def _modules(self) -> list[tuple[dict[str, int], str]]:
        """The texts for all sizes of the dimensions."""
        if self.texts:
            return list(self.texts)
        dims = _dims(self.in_avals)
        count = 1
        for d in dims:
            count *= d.most - d.min + 1
        if count > MOST_MODULES:
            raise ExportError(
                f"serialize() of '{self.fun_name}', which has symbolic shapes",
                f"it is written as a module for each size, of which {MOST_MODULES} are possible; "
                f"{', '.join(d.name for d in dims)} may have {'any' if count > 1 << 30 else f'{count:,}'}",
                f"bound them: symbolic_shape(..., constraints=['{dims[0].name} <= 64']) or, for one module, "
                f"'{dims[0].name} >= {SMALL}'; or hl.export(f) with hl.Dim",
            )
        found = []
        for numbers in itertools.product(*[range(d.min, d.most + 1) for d in dims]):
            sizes = {d.name: n for d, n in zip(dims, numbers, strict=True)}
            if all(one.holds(sizes) for _, one in self.constraints):
                leaves = [ShapeDtypeStruct(_at(a.shape, sizes), a.dtype, a.weak) for a in self.in_avals]
                args, kwargs = tree.unflatten(self.in_tree, leaves)
                found.append((sizes, self.function.lower(*args, **kwargs).as_text("stablehlo")))
        return found


def _dims(avals: Sequence) -> list[Dim]:
    """The named dimensions of shapes, each once."""
    return list({name: dim for aval in avals for size in aval.shape for name, dim in dims_of(size).items()}.values())


def _at(shape: Sequence, sizes: Any) -> tuple[int, ...]:
    return tuple([size_at(size, sizes) for size in shape])


def _plain(aval: Any) -> list:
    shape = [size if isinstance(size, int) else str(size) for size in aval.shape]
    return [shape, HLO_NAME[aval.dtype], bool(aval.weak)]


def _check(
    name: str, leaves: Sequence, avals: Sequence, constraints: Sequence[tuple[str, Comparison]]
) -> dict[str, int]:
    """Sizes of the named dimensions. Raises ShapeError for arguments that do not fit."""
    arrays = [leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else np.asarray(leaf) for leaf in leaves]
    shapes = []
    for number, (given, aval) in enumerate(zip(arrays, avals, strict=True)):
        fits = len(given.shape) == len(aval.shape) and (aval.weak or np.dtype(given.dtype) == aval.dtype)
        for size, wanted in zip(given.shape, aval.shape, strict=False):
            if isinstance(wanted, int):
                fits = fits and size == wanted
            elif (dim := single(wanted)) is not None:
                fits = fits and dim.min <= size <= dim.most
        if not fits:
            raise ShapeError(
                f"call of the exported '{name}'",
                f"argument {number} is {given.dtype}{list(given.shape)}",
                f"pass {_described(aval)}",
            )
        shapes.append((aval.shape, given.shape))
    sizes = solved(shapes)
    if sizes is None:
        raise ShapeError(
            f"call of the exported '{name}'",
            f"no sizes of {', '.join(d.name for d in _dims(avals))} give the shapes "
            + ", ".join(str(list(given)) for _, given in shapes),
            f"pass {', '.join(_described(aval) for aval in avals)}",
        )
    for text, one in constraints:
        if not one.holds(sizes):
            raise ShapeError(
                f"call of the exported '{name}'",
                f"with {', '.join(f'{k} = {n}' for k, n in sizes.items())} the constraint {text!r} does not hold",
                "pass arrays of sizes for which it does",
            )
    return sizes


def _described(aval: Any) -> str:
    return f"{aval.dtype.name}[{', '.join(map(str, aval.shape))}]"


def export(fun_jit: Callable, *, platforms: Sequence[str] | None = None, **options: Any) -> Callable[..., Exported]:
    """A function of arguments (arrays or ShapeDtypeStructs) that returns the program for their shapes.

    platforms: ("cpu",) or None. options: accepted, no effect. Raises ExportError.

    >>> exported = hl.export.export(hl.jit(hnp.sin))(hl.ShapeDtypeStruct((3,), "float32"))
    >>> restored = hl.export.deserialize(exported.serialize())
    >>> restored.call(hnp.zeros(3))
    Array([0., 0., 0.], dtype=float32)
    """
    if platforms is not None and set(platforms) != {"cpu"}:
        raise ExportError(f"export for {tuple(platforms)}", "hloom exports programs for cpu", "leave out platforms=")
    if not hasattr(fun_jit, "lower"):
        raise ArgumentError("jax.export.export", f"{fun_jit!r:.60} is not jitted", "pass jax.jit(f)")

    def exported(*args: Any, **kwargs: Any) -> Exported:
        leaves, structure = tree.flatten((args, kwargs))
        dims = _dims([leaf for leaf in leaves if is_open(leaf)])
        rules = constraints_of(dims)
        if dims:
            _require_told(leaves, dims)
        lowered = fun_jit.lower(*args, **kwargs)
        out, structure_out = tree.flatten(lowered.out_info)
        name = getattr(fun_jit, "__name__", "f")
        text = None if dims else lowered.as_text("stablehlo")
        avals = tuple(tree.leaves(lowered.in_avals))
        opened = _open_text(lowered, (*avals, *out)) if dims else None
        return Exported(
            name, structure, avals, structure_out, tuple(out), text, fun_jit, constraints=tuple(rules),
            open_text=opened, program=None if opened is None else from_stablehlo(opened),
        )  # fmt: skip

    return exported


def _open_text(lowered: Any, avals: Sequence) -> str | None:
    """The program of symbolic shapes as text for all sizes; None where it has none that takes and returns the same."""
    if any(aval.dtype not in HLO_NAME for aval in avals):
        return None
    if any(OPS[one.opcode].effects or one.opcode == "custom-call" for one in below(lowered.module.entry.instructions)):
        return None
    try:
        return str(lowered.as_text("stablehlo"))
    except UnsupportedError:
        return None


def _require_told(leaves: Sequence, dims: Sequence[Dim]) -> None:
    """Raises ExportError where the shapes of arguments do not tell the size of a dimension."""
    shapes = [leaf.shape for leaf in leaves if is_open(leaf)]
    sizes = {d.name: min(max(d.min, 2), d.most) + 3 * k for k, d in enumerate(dims)}
    if solved([(shape, _at(shape, sizes)) for shape in shapes]) is None:
        raise ExportError(
            "export with symbolic shapes",
            f"the shapes {', '.join('[' + ', '.join(map(str, shape)) + ']' for shape in shapes)} do not tell the "
            f"sizes of {', '.join(d.name for d in dims)}",
            "let each name stand alone in the shape of an argument",
        )


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
        limits = {str(n): (int(a), int(b)) for n, (a, b) in header.get("dims", {}).items()}
        names = scope_of([str(one) for one in header.get("constraints", [])])
        names.limits |= limits
        rules = () if names.scope is None else names.scope.comparisons
        avals, results = ([_aval(one, names) for one in header[key]] for key in ("in", "out"))
        arguments = _tree(header["args"], avals), _tree(header["kwargs"], avals)
        result = _tree(header["result"], results)
        texts = _split(text, header.get("modules", []), list(limits))
        if texts and not limits:
            raise ValueError("modules without dimensions")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, struct.error) as error:
        raise ParseError(
            "jax.export.deserialize", str(error)[:300], "pass what hloom's Exported.serialize returned"
        ) from None
    structure = tree.structure(result)
    if limits and not texts:
        read = from_stablehlo(text)
        return Exported(
            str(header["name"]), tree.structure(arguments), tuple(avals), structure, tuple(results), None, read,
            constraints=tuple(rules), open_text=text, program=read,
        )  # fmt: skip
    programs = {tuple(sizes.values()): from_stablehlo(one) for sizes, one in texts or [({}, text)]}

    def call(*args: Any, **kwargs: Any) -> Any:
        leaves = tree.leaves((args, kwargs))
        sizes = solved([(a.shape, np.shape(x)) for a, x in zip(avals, leaves, strict=True)]) or {}
        found = programs[tuple([sizes[name] for name in limits])](*leaves)
        return tree.unflatten(structure, tree.leaves(found))

    call.__name__ = str(header["name"])
    return Exported(
        call.__name__, tree.structure(arguments), tuple(avals), structure, tuple(results), None if texts else text,
        jit(call), constraints=tuple(rules), texts=tuple(texts),
    )  # fmt: skip


def _split(text: str, modules: list, names: list[str]) -> list[tuple[dict[str, int], str]]:
    """The modules that follow each other in a text, with their sizes."""
    found, at, data = [], 0, text.encode()
    for *sizes, length in modules:
        if not isinstance(length, int) or length < 0 or at + length > len(data) or len(sizes) != len(names):
            raise ValueError("a module is truncated")
        found.append(({n: int(s) for n, s in zip(names, sizes, strict=True)}, data[at : at + length].decode()))
        at += length
    return found


def _aval(found: list, names: Names) -> Any:
    shape, dtype, weak = found
    sizes = [parsed_shape(size, names, None)[0] if isinstance(size, str) else int(size) for size in shape]
    return ShapeDtypeStruct(tuple(sizes), DTYPES[dtype], bool(weak))


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
    """Names of dimensions and the constraints between them; a name means the same dimension everywhere."""

    def __init__(self, constraints: Sequence[str] = ()):
        self.constraints = tuple(constraints)
        self.names = scope_of(self.constraints)


def symbolic_shape(
    shape_spec: str | None,
    *,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
    like: Sequence | None = None,
) -> tuple[Size, ...]:
    """The sizes in a text such as "batch, 2*batch + 1, 784": numbers, names for dimensions, and sums, products,
    quotients (`//`) and remainders (`%`) of these.

    constraints: what holds between sizes, such as "batch >= 2", "batch <= 2*rows", "batch % 8 == 0". scope: more of
    them. like: sizes where the text has "_" or "...". Raises ArgumentError.
    """
    if scope is not None and constraints:
        scope = SymbolicScope((*constraints, *scope.constraints))
    names = scope_of(constraints) if scope is None else scope.names
    return parsed_shape("..." if shape_spec is None else shape_spec, names, like)


def symbolic_args_specs(args: Any, shapes_specs: Any, **options: Any) -> Any:
    """The arguments as ShapeDtypeStructs with the shapes of a text, or of a tree of texts."""
    if options.get("scope") is None:  # one for all arguments
        options["scope"] = SymbolicScope(options.pop("constraints", ()))
    specs = tree.broadcast(shapes_specs, args)
    leaves, structure = tree.flatten(args)
    made = []
    for leaf, spec in zip(leaves, specs, strict=True):
        array = leaf if hasattr(leaf, "shape") else np.asarray(leaf)
        shape = symbolic_shape(spec, like=tuple(array.shape), **options)
        made.append(ShapeDtypeStruct(shape, array.dtype))
    return tree.unflatten(structure, made)


def is_symbolic_dim(size: Any) -> bool:
    """Whether a size is a dimension with a name, or an expression of such."""
    return isinstance(size, SizeExpression)
