"""Operands, epilogue and dimensions of a fused contraction: index maps, and the statements of elements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from hloom.compiler.kernel_ir.builder import cast, plus, times
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import Expr, Stmt
from hloom.compiler.kernels.codegen.affine import ZERO, Affine, linear, merge_groups, row_major_strides, variables
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.kernels.codegen.serial import block_statements
from hloom.compiler.kernels.codegen.writer import Writer
from hloom.compiler.kernels.contractions.convolution_dims import ConvolutionRoles
from hloom.compiler.kernels.contractions.spec import ContractionSpec, Element, Epilogue, PlainOperand, PlainStore
from hloom.compiler.kernels.request import KernelRequest, name_dims
from hloom.compiler.reshapes import without_ones_groups
from hloom.ir.module import Instruction
from hloom.ir.ops.linalg.dot import dot_dims, free_dims
from hloom.ir.records import record
from hloom.ir.types import HLO_NAME, compute_dtype

Strides = tuple[int, int, int]


@record
class ContractionParts:
    """A contraction with what surrounds it, before any target: sizes (batch, m, n, k), strides of plain operands, and
    the values of the integers in its texts."""

    spec: ContractionSpec
    extents: tuple[int, int, int, int]
    lhs_strides: Strides
    rhs_strides: Strides
    integers: dict[str, int]


class Roles:
    """Which dimension of each operand is batch, row (i), depth (p) or column (j); None where there is none."""

    def __init__(self, dot: Instruction):
        lb, rb, lc, rc = dot_dims(dot.attributes)
        x, y = (o.dims for o in dot.operands)
        lf, rf = free_dims(len(x), lb, lc), free_dims(len(y), rb, rc)
        if max(map(len, (lb, lc, lf, rf))) > 1:
            raise ValueError(f"{dot!r} is not in normal form")
        self.left = {role: dims[0] if dims else None for role, dims in (("b", lb), ("i", lf), ("p", lc))}
        self.right = {role: dims[0] if dims else None for role, dims in (("b", rb), ("p", rc), ("j", rf))}
        self.extents = (_size(x, lb), _size(x, lf), _size(y, rf), _size(x, lc))
        self.batch = self.extents[0]
        self.right_has_no_batch = not rb
        self.result = [role for role, there in (("b", lb), ("i", lf), ("j", rf)) if there]
        self.dims = dot.dims


@record
class Operand:
    """An operand of a contraction: its code, its strides by role, and its fastest-varying role."""

    code: Element | PlainOperand
    strides: Strides
    fast: str


def _size(dims: Sequence[int], which: Sequence[int]) -> int:
    return math.prod(dims[d] for d in which)


def extra_params(request: KernelRequest, integers: Iterable[str], *parts: object) -> tuple[tuple[str, str], ...]:
    """`ContractionSpec.extra_params`: the pointers of a computation that no plain operand or store among `parts` has,
    and its integers."""
    plain = {getattr(part, "pointer", None) for part in parts}
    pointers = [p for p in request.input_pointers() + request.output_pointers() if p[0] not in plain]
    return (*((name, f"{dtype}*") for name, dtype in pointers), *((name, "s64") for name in integers))


def operand_of(
    request: KernelRequest,
    instruction: Instruction,
    roles: Mapping[str, int | None],
    integers: dict[str, int],
    accumulate: str,
    order: Sequence[str],
) -> Operand:
    """A plain array, or the code of an element. `order`: roles to prefer as the fast one, the default first."""
    if instruction in request.names:
        strides = row_major_strides(instruction.dims)
        first, second, third = (0 if d is None else strides[d] for d in roles.values())
        array = PlainOperand(request.names[instruction], HLO_NAME[instruction.dtype])
        return Operand(array, (first, second, third), order[0])

    def write(names: Names, at: Iterable[str]) -> tuple[Writer, Expr]:
        writer = request.writer((), names)
        writer.integers = integers
        writer.root.variables = frozenset(at)
        position = [ZERO] * len(instruction.dims)
        for variable, dimension in zip(at, roles.values(), strict=True):
            if dimension is not None:
                position[dimension] = Affine(0, {variable: 1})
        return writer, writer.value(instruction, tuple(position), writer.root)

    def element(names: Names, *at: str) -> tuple[list[Stmt], Expr]:
        writer, value = write(names.part(), at)
        own = HLO_NAME[compute_dtype(instruction.dtype)]
        return block_statements(writer.root), value if own == accumulate else cast(accumulate, value)

    # Writing it once tells which integer arguments there are, and along which index the largest input is contiguous.
    loads = write(Names(by_name), [f"t_{role}" for role in roles])[0].loads
    fast, largest = order[0], 0
    for parameter, pointer in request.names.items():
        for affine in loads.get(pointer, ()):
            for role in order:
                if affine.terms.get(f"t_{role}") == 1 and parameter.shape.size > largest:
                    fast, largest = role, parameter.shape.size
    return Operand(element, (0, 0, 0), fast)


def epilogue_of(
    request: KernelRequest,
    dot: Instruction,
    roles: Roles | ConvolutionRoles,
    integers: dict[str, int],
    accumulate: str,
) -> Epilogue | PlainStore:
    """What is computed from a sum. roles: `result`, the roles of the result's dimensions (some of which may be several
    dimensions of the instruction; "bj" is b and j joined), and `dims`, their sizes."""
    outputs = request.outputs
    wide = [role for role, extent in zip(roles.result, roles.dims, strict=True) if extent != 1]
    if outputs == [dot] and HLO_NAME[dot.dtype] == accumulate and wide == sorted(set(wide) - {"bj"}):
        return PlainStore(request.output_name(0))
    dims = outputs[0].dims
    groups = without_ones_groups(roles.dims, dims)
    if any(len(olds) != 1 for olds, _ in groups):
        raise ValueError(f"the dimensions {roles.dims} and {dims} do not correspond")
    split = [news for _, news in groups]

    def consume(names: Names, value: str, b: str, i: str, j: str) -> list[Stmt]:
        names, joined = names.part(), list[Stmt]()
        if "bj" in wide:
            joined.append(names.let("t_bj", plus(times(names.index(b), names.index("n")), names.index(j))))
        at = [{"b": b, "i": i, "j": j, "bj": "t_bj"}[role] for role in wide]
        writer = _write_epilogue(request, dot, dims, split, names, at, value, integers, accumulate)
        return joined + block_statements(writer.root)

    consume(Names(by_name), "t_sum", "t_b", "t_i", "t_j")  # written once to know its integer arguments
    return consume


def _write_epilogue(request, dot, dims, split, names, at, value, integers, accumulate) -> Writer:
    def write(writer):
        index = variables(dims)
        own = HLO_NAME[compute_dtype(dot.dtype)]
        result: Expr = writer.names.declare(value, accumulate)
        if own != accumulate:
            result = writer.root.let(writer.fresh(), cast(own, result))
        writer.overrides[dot] = (result, writer.root)
        elements = [writer.value(output, index, writer.root) for output in request.outputs]
        for k, (output, element) in enumerate(zip(request.outputs, elements, strict=True)):
            writer.store(request.output_name(k), linear(index, output.dims), element, writer.root)

    probe = request.writer(dims)
    probe.root = Block(None, frozenset(f"i{k}" for k in range(len(dims))), names=probe.names)
    write(probe)
    merged = merge_groups(dims, probe.used, [news[0] for news in split])
    writer = request.writer(dims, names)
    writer.integers = integers
    writer.merged = dict.fromkeys(range(len(dims)))
    writer.root.variables = frozenset(at)
    for name, news in zip(at, split, strict=True):
        name_dims(writer, writer.root, dims, [g for g in merged if set(g) <= set(news)], name)
    write(writer)
    return writer
