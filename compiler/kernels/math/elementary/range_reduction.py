"""Sine, cosine and tangent of huge angles, outside the vector loop.

From 2^45 on an angle needs up to 1200 bits of 2/pi. Such angles are rare, so they go to the C library, whose reduction
is exact, by a function that the loop calls without becoming scalar: LLVM's vector function ABI names vector variants of
it, the loop vectorizer calls the variant of its width, and that one first looks whether any lane is huge. The variants
preserve all registers, so that a loop keeps its constants over a call that nearly always does nothing.

`huge_sin_f32(x)` is sin(x) for |x| >= 2^45 (NaN for infinities), and 0 for smaller x and NaN.
"""

from __future__ import annotations

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils

from hloom.compiler.kernels.math.bits import BIT, DOUBLE, FLOAT, call_overloaded, instruction

HUGE = 2.0**45
LANES = {"f32": (4, 8, 16), "f64": (2, 4, 8)}
_INDEX = ir.IntType(32)


def _new_function(module: ir.Module, name: str, result: ir.Type, *parameters: ir.Type) -> ir.Function:
    function = ir.Function(module, ir.FunctionType(result, parameters), name)
    function.linkage = "linkonce_odr"
    function.attributes.add("nounwind")
    return function


def _without_effects(function: ir.Function) -> None:
    for attribute in ("readnone", "willreturn"):
        set.add(function.attributes, attribute)  # llvmlite's own list of attributes lacks the second


def _fill_scalar(function: ir.Function, base: str) -> None:
    """x -> base(x) for huge x, else 0.

    It has a call of itself, never taken, because LLVM inlines no recursive function, and so no loop gets its branch.
    """
    x = function.args[0]
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    work, again, done, small = (function.append_basic_block(name) for name in ("work", "again", "done", "small"))
    magnitude = call_overloaded(builder, "llvm.fabs", x)
    builder.cbranch(builder.fcmp_ordered(">=", magnitude, ir.Constant(x.type, HUGE)), work, small)
    builder.position_at_end(small)
    builder.ret(ir.Constant(x.type, 0.0))
    builder.position_at_end(work)
    library = cgutils.get_or_insert_function(function.module, ir.FunctionType(DOUBLE, [DOUBLE]), base)
    result = builder.call(library, [builder.fpext(x, DOUBLE) if x.type == FLOAT else x])
    narrow = builder.fptrunc(result, FLOAT) if x.type == FLOAT else result
    # no tangent of a double is as large as this
    builder.cbranch(builder.fcmp_ordered(">", result, ir.Constant(DOUBLE, 1e300)), again, done)
    builder.position_at_end(again)
    builder.ret(builder.fadd(narrow, builder.call(function, [narrow])))
    builder.position_at_end(done)
    builder.ret(narrow)


def _fill_lanes(function: ir.Function, scalar: ir.Function, lanes: int) -> None:
    """(x, lane): the scalar function on the lanes from `lane` on. Recursive, and not by a tail call: never inlined."""
    x, lane = function.args
    entry, work, done = (function.append_basic_block(name) for name in ("entry", "work", "done"))
    builder = ir.IRBuilder(entry)
    builder.cbranch(builder.icmp_unsigned("<", lane, ir.Constant(_INDEX, lanes)), work, done)
    builder.position_at_end(done)
    builder.ret(x)
    builder.position_at_end(work)
    value = builder.call(scalar, [builder.extract_element(x, lane)])
    next_lane = builder.add(lane, ir.Constant(_INDEX, 1))
    others = builder.call(function, [x, next_lane], cconv=function.calling_convention)
    builder.ret(builder.insert_element(others, value, lane))


def _fill_variant(function: ir.Function, each: ir.Function, lanes: int) -> None:
    """Zeros without further work when no lane is huge."""
    x = function.args[0]
    element, width = x.type.element, 32 if x.type.element == FLOAT else 64
    entry, work, done = (function.append_basic_block(name) for name in ("entry", "work", "done"))
    builder = ir.IRBuilder(entry)
    fabs = ir.FunctionType(x.type, [x.type])
    fabs = cgutils.get_or_insert_function(function.module, fabs, f"llvm.fabs.v{lanes}f{width}")
    limit = ir.Constant(x.type, [ir.Constant(element, HUGE)] * lanes)
    huge = builder.fcmp_ordered(">=", builder.call(fabs, [x]), limit)
    any_lane = ir.FunctionType(BIT, [huge.type])
    any_lane = cgutils.get_or_insert_function(function.module, any_lane, f"llvm.vector.reduce.or.v{lanes}i1")
    builder.cbranch(builder.call(any_lane, [huge]), work, done)
    builder.position_at_end(done)
    builder.ret(ir.Constant(x.type, [ir.Constant(element, 0.0)] * lanes))
    builder.position_at_end(work)
    builder.ret(builder.call(each, [x, ir.Constant(_INDEX, 0)], cconv=each.calling_convention))


def _convention(kind: ir.VectorType) -> str:
    """The calling convention of functions that return `kind`.

    LLVM's x86 backend clears the upper halves of all vector registers before a return (vzeroupper), after it has
    restored them, unless the result itself is 256 bits or wider: only then does preserve_allcc keep its promise.
    """
    bits = kind.count * (32 if kind.element == FLOAT else 64)
    x86 = llvm.get_process_triple().startswith(("x86_64", "amd64"))
    return "preserve_allcc" if x86 and bits >= 256 else ""


def _keep(module: ir.Module, functions: list[ir.Function]) -> None:
    """List `functions` in llvm.compiler.used: nothing calls the variants before the loop vectorizer does."""
    name = "llvm.compiler.used"
    pointer = ir.IntType(8).as_pointer()
    entries = [function.bitcast(pointer) for function in functions]
    if name in module.globals:
        entries = [*module.globals[name].initializer.constant, *entries]
        used = module.globals[name]
        used.value_type = ir.ArrayType(pointer, len(entries))
    else:
        used = ir.GlobalVariable(module, ir.ArrayType(pointer, len(entries)), name)
        used.linkage = "appending"
        used.section = "llvm.metadata"
    used.initializer = ir.Constant(ir.ArrayType(pointer, len(entries)), entries)


def _scalar(module: ir.Module, base: str, dtype: str) -> ir.Function:
    """The scalar function in `module`, defined there with its variants when first asked for."""
    name = f"hloom_huge_{base}_{dtype}"
    if name in module.globals:
        return module.globals[name]
    kind = FLOAT if dtype == "f32" else DOUBLE
    scalar = _new_function(module, name, kind, kind)
    _without_effects(scalar)
    mapping = ",".join(f"_ZGV_LLVM_N{lanes}v_{name}({name}_v{lanes})" for lanes in LANES[dtype])
    set.add(scalar.attributes, f'"vector-function-abi-variant"="{mapping}"')
    _fill_scalar(scalar, base)
    variants = []
    for lanes in LANES[dtype]:
        vector = ir.VectorType(kind, lanes)
        variant = _new_function(module, f"{name}_v{lanes}", vector, vector)
        each = _new_function(module, f"{name}_lanes{lanes}", vector, vector, _INDEX)
        for function in (variant, each):
            _without_effects(function)
            function.calling_convention = _convention(vector)
        _fill_variant(variant, each, lanes)
        _fill_lanes(each, scalar, lanes)
        variants.append(variant)
    _keep(module, variants)
    return scalar


for _base in ("sin", "cos", "tan"):
    for _dtype in ("f32", "f64"):
        instruction(
            f"huge_{_base}_{_dtype}",
            _dtype,
            _dtype,
            lambda builder, x, base=_base, dtype=_dtype: builder.call(_scalar(builder.module, base, dtype), [x]),
            "the C library's, for |x| >= 2^45, in a call of its own",
        )
