"""Operands, epilogue and dimensions of a fused contraction: index maps, and the text of elements."""

from __future__ import annotations

from hloom.compiler.kernels.codegen.affine import ZERO, Affine, linear, merge_groups, row_major_strides, variables
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.kernels.codegen.serial import block_lines
from hloom.compiler.kernels.codegen.writer import Writer
from hloom.compiler.kernels.contractions.spec import ContractionKernels, Element, PlainOperand, PlainStore
from hloom.compiler.kernels.request import name_dims
from hloom.compiler.reshapes import without_ones_groups
from hloom.ir.module import Instruction
from hloom.ir.ops.linalg.dot import dot_dims, free_dims
from hloom.ir.records import record
from hloom.ir.types import HLO_NAME, compute_dtype


@record
class Product:
    """A contraction ready to plan: its kernels, the extents, strides of plain operands, and integer arguments."""

    kernels: ContractionKernels
    extents: tuple[int, int, int, int]
    lhs_strides: tuple[int, int, int]
    rhs_strides: tuple[int, int, int]
    integers: dict[str, int]
    rhs_stays: bool = False  # as of `blocking.step_plan`


class Roles:
    """Which dimension of each operand is batch, row (i), depth (p) or column (j); None where there is none."""

    def __init__(self, dot: Instruction):
        lb, rb, lc, rc = dot_dims(dot.attributes)
        x, y = (o.dims for o in dot.operands)
        lf, rf = free_dims(len(x), lb, lc), free_dims(len(y), rb, rc)
        if max(map(len, (lb, lc, lf, rf))) > 1:
            raise ValueError(f"{dot!r} is not in normal form")
        first = lambda dims: dims[0] if dims else None  # noqa: E731
        self.left = {"b": first(lb), "i": first(lf), "p": first(lc)}
        self.right = {"b": first(rb), "p": first(rc), "j": first(rf)}
        extent = lambda dims, which: dims[which[0]] if which else 1  # noqa: E731
        self.extents = (extent(x, lb), extent(x, lf), extent(y, rf), extent(x, lc))
        self.batch = self.extents[0]
        self.right_has_no_batch = not rb
        self.result = [role for role, there in (("b", lb), ("i", lf), ("j", rf)) if there]
        self.dims = dot.dims


@record
class Operand:
    """An operand of a contraction: its code, its strides by role, and its fastest-varying role."""

    code: Element | PlainOperand
    strides: tuple[int, int, int]
    fast: str


def operand_of(request, instruction, roles, integers, accumulate, order) -> Operand:
    """A plain array, or the text of an element. `order`: roles to prefer as the fast one, the default first."""
    names = list(roles)
    if instruction in request.names:
        strides = row_major_strides(instruction.dims)
        by_role = tuple(0 if roles[r] is None else strides[roles[r]] for r in names)
        return Operand(PlainOperand(request.names[instruction], HLO_NAME[instruction.dtype]), by_role, order[0])

    def index(variables_of):
        position = [ZERO] * len(instruction.dims)
        for role, dimension in roles.items():
            if dimension is not None:
                position[dimension] = Affine(0, {variables_of[role]: 1})
        return tuple(position)

    def element(*at: str):
        writer = _shared_writer(request, integers)
        writer.root.variables = frozenset(at)
        value = writer.value(instruction, index(dict(zip(names, at, strict=True))), writer.root)
        own = HLO_NAME[compute_dtype(instruction.dtype)]
        lines = block_lines(writer.root)
        return lines, value if own == accumulate else f"{accumulate}({value})"

    # Writing it once tells which integer arguments there are, and along which index the largest input is contiguous.
    writer = _shared_writer(request, integers)
    writer.root.variables = frozenset(f"t_{r}" for r in names)
    writer.value(instruction, index({r: f"t_{r}" for r in names}), writer.root)
    fast, largest = order[0], 0
    for parameter, pointer in request.names.items():
        for affine in writer.loads.get(pointer, ()):
            for role in order:
                if affine.terms.get(f"t_{role}") == 1 and parameter.shape.size > largest:
                    fast, largest = role, parameter.shape.size
    return Operand(element, (0, 0, 0), fast)


def _shared_writer(request, integers) -> Writer:
    writer = request.writer(())
    writer.integers = integers
    return writer


def epilogue_of(request, dot, roles, integers, accumulate):
    """What becomes of a sum. roles: `result`, the roles of the result's dimensions (some of which may be several dims
    of the instruction; "bj" is b and j joined), and `dims`, their extents."""
    outputs = request.outputs
    wide = [role for role, extent in zip(roles.result, roles.dims, strict=True) if extent != 1]
    if outputs == [dot] and HLO_NAME[dot.dtype] == accumulate and wide == sorted(set(wide) - {"bj"}):
        return PlainStore(request.output_name(0))
    dims = outputs[0].dims
    split = [news for _, news in _dimension_groups(roles.dims, dims)]

    def lines(value: str, b: str, i: str, j: str):
        names = [{"b": b, "i": i, "j": j, "bj": "t_bj"}[role] for role in wide]
        writer = _write_epilogue(request, dot, dims, split, names, value, integers, accumulate)
        joined = [f"t_bj = {b} * n + {j}"] if "bj" in wide else []
        return joined + block_lines(writer.root)

    lines("t_sum", "t_b", "t_i", "t_j")  # written once to know its integer arguments
    return lines


def _dimension_groups(old, new):
    groups = without_ones_groups(old, new)
    if any(len(olds) != 1 for olds, _ in groups):
        raise ValueError(f"the dimensions {old} and {new} do not correspond")
    return groups


def _write_epilogue(request, dot, dims, split, names, value, integers, accumulate) -> Writer:
    def write(writer):
        index = variables(dims)
        own = HLO_NAME[compute_dtype(dot.dtype)]
        result = value
        if own != accumulate:
            result = writer.fresh()
            writer.root.body.append(f"{result} = {own}({value})")
        writer.overrides[dot] = (result, writer.root)
        elements = [writer.value(output, index, writer.root) for output in request.outputs]
        for k, (output, element) in enumerate(zip(request.outputs, elements, strict=True)):
            writer.store(request.output_name(k), linear(index, output.dims), output.dtype, element, writer.root)

    probe = request.writer(dims)
    probe.root = Block(None, frozenset(f"i{k}" for k in range(len(dims))))
    write(probe)
    merged = merge_groups(dims, probe.used, [news[0] for news in split])
    writer = request.writer(dims)
    writer.integers = integers
    writer.merged = dict.fromkeys(range(len(dims)))
    writer.root.variables = frozenset(names)
    for name, news in zip(names, split, strict=True):
        name_dims(writer, writer.root, dims, [g for g in merged if set(g) <= set(news)], name)
    write(writer)
    return writer
