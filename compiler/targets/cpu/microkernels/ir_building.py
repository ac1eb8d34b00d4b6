"""LLVM IR that register tiles and the passes of Fourier transforms share."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

BYTE, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
VOID, BYTES = ir.VoidType(), ir.PointerType()

# HLO dtype -> (LLVM element type, letters of the type in the names of LLVM's overloaded intrinsics, bytes)
ELEMENTS = {
    "f32": (ir.FloatType(), "f32", 4),
    "f64": (ir.DoubleType(), "f64", 8),
    "s32": (I32, "i32", 4),
    "u32": (I32, "i32", 4),
    "s64": (I64, "i64", 8),
    "u64": (I64, "i64", 8),
}


def integer(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


def block_function(module: ir.Module, name: str, parameters: Sequence[str]) -> tuple[ir.Function, bool]:
    """The internal function `name` of int64 arguments in `module`, and whether it is new and lacks a body."""
    if name in module.globals:
        return module.globals[name], False
    function = ir.Function(module, ir.FunctionType(VOID, [I64] * len(parameters)), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    for argument, parameter in zip(function.args, parameters, strict=True):
        argument.name = parameter
    return function, True


def intrinsic(module: ir.Module, name: str, result: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
    """The declaration of LLVM's intrinsic `name` in `module`."""
    if name in module.globals:
        return module.globals[name]
    return ir.Function(module, ir.FunctionType(result, arguments), name)


def multiply_add(builder: ir.IRBuilder, letters: str, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c of vectors, fused where the processor can. letters: as of `ELEMENTS`."""
    name = f"llvm.fmuladd.v{a.type.count}{letters}"
    return builder.call(intrinsic(builder.module, name, a.type, [a.type] * 3), [a, b, c])


def disable_unrolling(branch: ir.Instruction) -> None:
    """For a loop whose body has enough independent work: unrolled, it would only take longer to compile."""
    name_loop(branch, [ir.MetaDataString(branch.function.module, "llvm.loop.unroll.disable")])


def name_loop(branch: ir.Instruction, option: Sequence[ir.Value]) -> None:
    """Gives a loop, by its branch back, a name with an option: the option's words."""
    module = branch.function.module
    options = [module.add_metadata(option)]
    # The first operand of the node is the node itself, the form LLVM requires of a loop's name.
    node = ir.MDValue(module, options, name=str(len(module.metadata)))
    node.operands = (node, *options)
    branch.set_metadata("llvm.loop", node)
