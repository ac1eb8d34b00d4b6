"""dot and convolution as a loop in each element's expression: right for every dtype and form, and as slow as that.

It is what a contraction becomes that the tensor cores' kernels do not take. Operands and epilogue are fused in as any
other work: an element of the result asks for the elements of the operands that it needs.
"""

from __future__ import annotations

from hloom.compiler.kernel_ir import builder
from hloom.compiler.kernel_ir.builder import call, compared, minus, operation, plus, times
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import Expr, Var
from hloom.compiler.kernels.codegen.affine import ZERO, Affine, Index
from hloom.compiler.kernels.codegen.constants import literal
from hloom.compiler.kernels.codegen.description import Block, Branch, Nest, Serial
from hloom.compiler.kernels.codegen.guards import all_of
from hloom.compiler.kernels.codegen.writer import Writer, extend_variables
from hloom.compiler.kernels.loops.elementwise import loop_nest
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.normal_forms import accumulation_dtype
from hloom.ir.module import Instruction
from hloom.ir.ops.linalg.convolution import groups_of, parse_labels
from hloom.ir.ops.linalg.dot import dot_dims, free_dims
from hloom.ir.types import DTYPES, HLO_NAME, compute_dtype
from hloom.ir.window import dilated, window_of


class _Request(KernelRequest):
    """A request whose nests know sums of products."""

    def writer(self, dims: tuple[int, ...], names: Names | None = None) -> Writer:
        writer = super().writer(dims, names)
        writer.expressions |= {"dot": _dot, "convolution": _convolution}
        return writer


def plain_product_nest(request: KernelRequest) -> Nest:
    """The loop nest of a fused computation with contractions."""
    return loop_nest(_Request(request.computation, request.shared, request.target, request.kept))


def _loop(writer: Writer, block: Block, extent: int) -> tuple[Affine, Block]:
    """A loop over what is summed, in `block`: (its variable, its body)."""
    name = writer.fresh("p")
    body = block.child(name)
    block.body.append(Serial(writer.index(name), builder.ZERO, writer.integer(f"{name}_n", extent), body))
    return Affine(0, {name: 1}), body


def _accumulator(writer: Writer, instruction: Instruction, block: Block) -> tuple[Var, str]:
    """(the sum, its dtype), begun in `block`."""
    dtype = accumulation_dtype(instruction)
    return block.let(writer.fresh("a"), literal(0, DTYPES[dtype])), dtype


def _take(writer: Writer, block: Block, total: Var, dtype: str, elements) -> None:
    """total += x * y, for elements (instruction, index) in `block`; fused where the dtype has that."""
    words = []
    for operand, index in elements:
        value = writer.value(operand, index, block)
        words.append(value if HLO_NAME[compute_dtype(operand.dtype)] == dtype else builder.cast(dtype, value))
    x, y = words
    if dtype in ("f32", "f64"):
        made = call(f"fma_{dtype}", (x, y, total), by_name)
    elif dtype in ("c64", "c128"):
        made = plus(total, call(f"mul_{dtype}", (x, y), by_name))
    elif dtype == "pred":
        made = call("or_pred", (total, call("and_pred", (x, y), by_name)), by_name)
    else:
        made = builder.cast(dtype, plus(total, times(x, y)))
    block.set([total], [made])


def _result(writer: Writer, instruction: Instruction, total: Var, dtype: str, block: Block) -> tuple[Var, Block]:
    own = HLO_NAME[compute_dtype(instruction.dtype)]
    if own == dtype:
        return total, block
    return block.let(writer.fresh(), builder.cast(own, total)), block


def _dot(writer: Writer, dot: Instruction, index: Index, block: Block) -> tuple[Var, Block]:
    left, right = dot.operands
    lb, rb, lc, rc = dot_dims(dot.attributes)
    lf, rf = free_dims(len(left.dims), lb, lc), free_dims(len(right.dims), rb, rc)
    x, y = [ZERO] * len(left.dims), [ZERO] * len(right.dims)
    for k, (i, j) in enumerate(zip(lb, rb, strict=True)):
        x[i] = y[j] = index[k]
    for k, i in enumerate(lf):
        x[i] = index[len(lb) + k]
    for k, j in enumerate(rf):
        y[j] = index[len(lb) + len(lf) + k]
    total, dtype = _accumulator(writer, dot, block)
    inside = block
    for i, j in zip(lc, rc, strict=True):
        x[i], inside = _loop(writer, inside, left.dims[i])
        y[j] = x[i]
    _take(writer, inside, total, dtype, ((left, tuple(x)), (right, tuple(y))))
    return _result(writer, dot, total, dtype, block)


def _divided(writer: Writer, block: Block, affine: Affine, divisor: int) -> tuple[Affine, Affine]:
    """(quotient, remainder) as index variables, computed in `block`."""
    if divisor == 1:
        return affine, ZERO
    above, below = writer.fresh("q"), writer.fresh("q")
    by = writer.integer("q_s", divisor)
    place = writer.position(affine, "q")
    quotient = block.let(above, operation("//", place, by))
    block.let(below, minus(place, times(quotient, by)))
    block.variables = block.variables | {above, below}
    return Affine(0, {above: 1}), Affine(0, {below: 1})


def _convolution(writer: Writer, instruction: Instruction, index: Index, block: Block) -> tuple[Var, Block]:
    left, right = instruction.operands
    labels, window = parse_labels(instruction["dim_labels"]), window_of(instruction)
    groups, batch_groups = groups_of(instruction.attributes)
    features = right.dims[labels.rhs.feature]
    total, dtype = _accumulator(writer, instruction, block)
    x, y = [ZERO] * len(left.dims), [ZERO] * len(right.dims)
    y[labels.rhs.batch] = index[labels.out.feature]
    batch, group = index[labels.out.batch], ZERO
    if groups > 1:
        group, _ = _divided(writer, block, index[labels.out.feature], right.dims[labels.rhs.batch] // groups)
    elif batch_groups > 1:
        part, _ = _divided(writer, block, index[labels.out.feature], right.dims[labels.rhs.batch] // batch_groups)
        batch = batch + part * (left.dims[labels.lhs.batch] // batch_groups)
    x[labels.lhs.batch] = batch
    inside = block
    for d, w in enumerate(window):
        tap, inside = _loop(writer, inside, w.size)
        y[labels.rhs.spatial[d]] = tap * -1 + (w.size - 1) if w.reversed else tap
        place, extent = labels.lhs.spatial[d], left.dims[labels.lhs.spatial[d]]
        position = index[labels.out.spatial[d]] * w.stride + tap * w.window_dilation + -w.low
        spread = dilated(extent, w.base_dilation)
        asked: list[Expr] = []
        last = (instruction.dims[labels.out.spatial[d]] - 1) * w.stride + (w.size - 1) * w.window_dilation - w.low
        if w.low > 0 or last >= spread:
            at = writer.position(position, "x")
            asked = [compared(">=", at, builder.ZERO), compared("<", at, writer.integer("x_n", spread))]
        if w.base_dilation > 1:
            # Where the position is negative nothing is asked of the remainder.
            gap = writer.integer("x_d", w.base_dilation)
            name, at = writer.fresh("q"), writer.position(position, "x")
            divided = inside.let(name, operation("//", at, gap))
            inside.variables = inside.variables | {name}
            asked.append(compared("==", times(divided, gap), at))
            position = Affine(0, {name: 1})
        if asked:
            branch = inside.child()
            branch.guarded = True
            inside.body.append(Branch(all_of(asked), branch))
            inside = branch
        x[place] = position
    feature, inside = _loop(writer, inside, features)
    y[labels.rhs.feature] = feature
    x[labels.lhs.feature] = feature + group * features
    extend_variables(inside, block)
    _take(writer, inside, total, dtype, ((left, tuple(x)), (right, tuple(y))))
    return _result(writer, instruction, total, dtype, block)
