"""Matrix products for CUDA: the launches of a fused computation with a dot or a convolution.

out[b, i, j] = epilogue(sum over p of lhs(b, i, p) * rhs(b, p, j)); operands and epilogue are those that
the CPU has (`contractions.product`). One kernel, and a second one that adds parts of sums where the result is small.
"""

from __future__ import annotations

from functools import partial

from hloom.compiler.kernels.contractions.operands import ContractionParts
from hloom.compiler.kernels.contractions.product import dot_parts
from hloom.compiler.kernels.contractions.spec import PlainStore
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.normal_forms import is_normal_convolution, is_normal_dot
from hloom.compiler.targets.cuda.contractions.kernel import ProductWriter, join_source, sums_pitch
from hloom.compiler.targets.cuda.contractions.operands import TENSOR_INPUTS, Side, make_side
from hloom.compiler.targets.cuda.contractions.products import tensor_products, thread_products
from hloom.compiler.targets.cuda.contractions.tiles import Tile, blocks_together, choose, parts_of
from hloom.compiler.targets.cuda.contractions.windows import convolution_parts
from hloom.compiler.targets.cuda.launches import CudaLaunch, launch_of_source
from hloom.compiler.targets.cuda.libraries.matmul import library_product
from hloom.compiler.targets.cuda.machine import CudaMachine
from hloom.ir.module import Instruction
from hloom.ir.records import replace
from hloom.ir.types import DTYPES, HLO_NAME


def contraction_sources(
    request: KernelRequest,
    machine: CudaMachine,
    tile: Tile | None = None,
    tf32: bool = False,
    vectors: bool = True,
) -> list[CudaLaunch]:
    """The launches of a fused computation with one dot or convolution in normal form; none where the result is empty.

    tile: in place of the one that the cost model chooses. tf32: whether products of float32 may be rounded to tf32,
    as exact as float16's; nothing but the user may say so. vectors: whether 16 bytes are moved at a time, for which all
    arrays have to begin at multiples of 16.

    Raises ValueError for a computation without exactly one of them, or with one that is not in normal form.
    """
    found = [i for i in request.computation.instructions if i.opcode in ("dot", "convolution")]
    if len(found) != 1 or not has_product_kernel(found[0]):
        raise ValueError(f"{request.computation.name}: one dot in normal form has kernels, {len(found)} are here")
    made = (dot_parts if found[0].opcode == "dot" else convolution_parts)(request, found[0])
    if 0 in made.extents[:3]:
        return []
    launches = _Contraction(made, found[0], machine, tile, tf32, vectors).launches()
    choice = library_product(request, found[0], made, tf32)
    return [replace(launch, choice=choice) for launch in launches]


def has_product_kernel(instruction: Instruction) -> bool:
    """Whether an instruction is a dot or a convolution in normal form, which `contraction_sources` takes."""
    return {"dot": is_normal_dot, "convolution": is_normal_convolution}[instruction.opcode](instruction)


def tensor_dtype(dot: Instruction, accumulate: str, tf32: bool) -> str | None:
    """The dtype that tensor cores multiply for a dot: f16, bf16 or tf32; None where threads multiply."""
    kinds = {HLO_NAME[o.dtype] for o in dot.operands}
    if accumulate != "f32" or len(kinds) > 1:
        return None
    (kind,) = kinds
    return kind if kind in TENSOR_INPUTS else "tf32" if kind == "f32" and tf32 else None


class _Contraction:
    def __init__(
        self,
        made: ContractionParts,
        dot: Instruction,
        machine: CudaMachine,
        tile: Tile | None,
        tf32: bool,
        vectors: bool,
    ):
        self.made, self.spec, self.machine, self.vectors = made, made.spec, machine, vectors
        self.batch, self.m, self.n, self.k = made.extents
        self.tensor = tensor_dtype(dot, self.spec.accumulate, tf32)
        self.dtype = self.tensor if self.tensor in TENSOR_INPUTS else self.spec.accumulate
        self.parts, self.length = parts_of(*made.extents)
        itemsize = DTYPES[self.dtype].itemsize
        if tile is None:
            sides = self.sides(Tile("tensor" if self.tensor else "thread", 64, 64, 32, 32, 32))
            tile = choose(
                made.extents, (self.parts, self.length), "tensor" if self.tensor else "thread",
                self.tensor or self.spec.accumulate, itemsize, machine,
                lambda tile: sum(side.area for side in self.sides(tile)) * itemsize,
                all(side.how == "ahead" for side in sides),
            )  # fmt: skip
        self.tile = tile

    # --- operands ---

    def sides(self, tile: Tile) -> tuple[Side, Side]:
        """How the operands come into shared memory, which has the left one's stages first."""
        sb, sp, sj = self.made.rhs_strides
        whole = self.length % tile.depth == 0 and (self.parts == 1 or self.k % self.length == 0)
        make = partial(
            make_side, tile=tile, dtype=self.dtype, batch=self.batch, deep=self.k, vectors=self.vectors,
            whole_depth=whole,
        )  # fmt: skip
        spec, strides = self.spec, self.made.lhs_strides
        left = make("lhs", "i", spec.lhs, strides, spec.lhs_fast, self.m, 0)
        first = left.area * tile.stages
        right = make("rhs", "j", spec.rhs, (sb, sj, sp), spec.rhs_fast, self.n, first)
        return left, right

    # --- launches ---

    def launches(self) -> list[CudaLaunch]:
        tile, spec = self.tile, self.spec
        left, right = self.sides(tile)
        multiplies = spec if self.parts == 1 else replace(spec, epilogue=PlainStore("t_parts"))
        room = tile.stages * (left.area + right.area) * DTYPES[self.dtype].itemsize // DTYPES[spec.accumulate].itemsize
        if self.tensor:
            products = tensor_products(tile, left, right, self.tensor, room)
        else:
            products = thread_products(tile, left, right, spec.accumulate, room)
        if products.lines * sums_pitch(tile) > room:
            raise ValueError(f"{tile} has no room for a share of its sums")
        wide_stores = self.vectors and self.n % 4 == 0 and spec.accumulate in ("f32", "s32", "u32")
        # Operands that are evaluated take registers that nobody counts in advance.
        evaluated = "element" in (left.how, right.how)
        itemsize = DTYPES[self.dtype].itemsize
        together = (
            1 if evaluated else blocks_together(tile, self.machine, (left.area + right.area) * itemsize, itemsize)
        )
        writer = ProductWriter(multiplies, tile, left, right, products, self.batch * self.parts > 1, wide_stores)
        rows, columns = -(-self.m // tile.rows), -(-self.n // tile.columns)
        integers = self.integers() | {"t_row_tiles": rows, "t_column_tiles": columns, "t_length": self.length}
        blocks = rows * columns * self.batch * self.parts
        size = self.batch * self.m * self.n
        temporaries = {"t_parts": size * self.parts * DTYPES[spec.accumulate].itemsize} if self.parts > 1 else {}
        work = 2.0 * size * self.k
        source = replace(writer.source(integers, blocks), together=together)
        result = [self.launch(source, integers, work, temporaries)]
        if self.parts > 1:
            integers = self.integers() | {"t_size": size, "t_all": size * self.parts}
            source = join_source(spec, integers, size)
            result.append(self.launch(source, integers, float(size * self.parts), temporaries))
        return result

    def launch(self, source, integers: dict[str, int], work: float, temporaries: dict[str, int]) -> CudaLaunch:
        launch = launch_of_source(source, integers, work, dict(temporaries), processors=self.machine.multiprocessors)
        return replace(launch, shared_bytes=source.shared)

    def integers(self) -> dict[str, int]:
        """Values of every integer that a kernel may name."""
        strides = {f"lhs_s{role}": value for role, value in zip("bip", self.made.lhs_strides, strict=True)}
        strides |= {f"rhs_s{role}": value for role, value in zip("bpj", self.made.rhs_strides, strict=True)}
        return self.made.integers | strides | {"batch": self.batch, "m": self.m, "n": self.n, "k": self.k}
