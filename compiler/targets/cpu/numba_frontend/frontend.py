"""Kernel text to LLVM IR by Numba, with only the passes that kernels need.

Numba's usual pipeline has some thirty passes and a typing step that asks every known signature of `+`. Kernels are
plain loops over pointers, so here eight passes run, the answers of overload resolution are kept over kernels, and the
module that comes out goes straight to LLVM (`backend`), past Numba's linking, wrappers and caching.
"""

from __future__ import annotations

import contextlib
import gc
import operator
import types as python_types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ir
from numba.core import bytecode, callconv, cgutils, compiler, cpu, errors, funcdesc, lowering, types, typing
from numba.core.compiler_lock import global_compiler_lock
from numba.core.imputils import builtin_registry
from numba.core.typed_passes import NopythonTypeInference, PreLowerStripPhis
from numba.core.typing import cmathdecl, mathdecl, templates
from numba.core.typing.templates import signature
from numba.core.untyped_passes import ExtractByteCode, FixupArgs, IRProcessing, ReconstructSSA, TranslateByteCode
from numba.extending import intrinsic

from hloom.compiler.kernels.math.registry import REGISTER
from hloom.compiler.targets.cpu.numba_frontend.builtins import REPLACEMENTS
from hloom.compiler.targets.cpu.numba_frontend.loops import interleave_loops
from hloom.ir.process import forking

# What a pointer points at in memory, where that is not the type of the value.
STORAGE_TYPES = REGISTER | {"pred": types.uint8, "f16": types.uint16, "bf16": types.uint16}


def numba_type(param: str) -> types.Type:
    """The Numba type of a parameter such as `"f32*"` or `"s64"`."""
    if param.endswith("*"):
        return types.CPointer(STORAGE_TYPES[param[:-1]])
    return REGISTER[param]


def external(symbol: str, result: str, parameters: Sequence[str], check: Callable | None = None):
    """A function of another module, as a name that kernel sources can call. Its parameters and result have the types
    that values have in registers: truth values are i1, complex numbers structs.

    check: called with the Numba types of the arguments; may raise a TypingError.
    """
    arguments = [numba_type(parameter) for parameter in parameters]
    returned = types.void if result in ("", "void") else numba_type(result)
    if check is None and not {"pred", "c64", "c128"} & {result, *parameters}:
        return types.ExternalFunction(symbol, signature(returned, *arguments))

    def typing_of(*given):
        if check is not None:
            check(given)

        def emit(context, builder, sig, values):
            void = returned is types.void
            kinds = [context.get_value_type(argument) for argument in arguments]
            kind = ir.FunctionType(ir.VoidType() if void else context.get_value_type(returned), kinds)
            value = builder.call(cgutils.get_or_insert_function(builder.module, kind, symbol), values)
            return context.get_dummy_value() if void else value

        return signature(returned, *arguments), emit

    # Numba reads the number of parameters from the Python signature.
    names = ", ".join(f"a{k}" for k in range(len(arguments)))
    scope = {"typing_of": typing_of}
    exec(f"def typing(context, {names}):\n    return typing_of({names})\n", scope)
    scope["typing"].__name__ = scope["typing"].__qualname__ = symbol
    return intrinsic(scope["typing"])


class _Typing(typing.Context):
    """A typing context that remembers overload resolution, which is the larger part of type inference."""

    def __init__(self):
        self._resolved: dict = {}
        super().__init__()

    def load_additional_registries(self):
        """Scalars, tuples and math functions only: no arrays, strings or containers (0.4 s of declarations)."""
        self.install_registry(mathdecl.registry)
        self.install_registry(cmathdecl.registry)

    def resolve_function_type(self, func, args, kws):
        if kws:
            return super().resolve_function_type(func, args, kws)
        try:
            return self._resolved[func, args]
        except KeyError:
            pass
        except TypeError:
            return super().resolve_function_type(func, args, kws)
        result = super().resolve_function_type(func, args, kws)
        if result is not None:
            self._resolved[func, args] = result
        return result


_numbas_registry = templates._TemplateTargetHelperMixin._get_target_registry


def _get_target_registry(self, reason):
    """Where an intrinsic enters its lowering.

    Numba's own answer first brings its usual CPU target up to date, arrays, containers and linear algebra included:
    0.4 s for the first intrinsic of a process and 1 ms for each later one. Our contexts read the same registry anyway.
    """
    return builtin_registry if isinstance(self.context, _Typing) else _numbas_registry(self, reason)


# No other place has a say in this: Numba asks the class of each intrinsic's template.
templates._TemplateTargetHelperMixin._get_target_registry = _get_target_registry  # type: ignore[method-assign]


class _Target(cpu.CPUContext):
    """The CPU target without Numba's runtime: no environment, no reference counting, no Python exceptions."""

    _loaded = False

    def load_additional_registries(self):
        from numba.core import optional  # noqa: F401
        from numba.cpython import builtins, cmathimpl, mathimpl, numbers, tupleobj  # noqa: F401

        self.install_registry(cmathimpl.registry)
        self.install_registry(mathimpl.registry)

    def refresh(self):
        """Called for every intrinsic that is met for the first time, so only what may have grown is looked at."""
        if not self._loaded:
            self._loaded = True
            self.load_additional_registries()
            self.typing_context.refresh()
        self.install_registry(builtin_registry)

    def get_function(self, fn, sig, _firstcall=True):
        """Numba's, also for an intrinsic whose registration our loader has missed.

        Seen in processes that compile the same intrinsics through `njit` too (the tests of vector math): the shared
        function type then names an implementation that this context has not been told of. The name of an intrinsic's
        implementation is the implementation itself, so it can be entered here.
        """
        try:
            return super().get_function(fn, sig, _firstcall)
        except NotImplementedError:
            if not (_firstcall and isinstance(fn, types.Function)):
                raise
            implementation = fn.get_impl_key(sig)
            if not isinstance(implementation, python_types.FunctionType):
                raise
            self.insert_func_defn([(implementation, implementation, sig.args)])
            return super().get_function(fn, sig, False)

    def post_lowering(self, mod, library):
        pass


_POWERS = (operator.pow, operator.ipow)


class _Lower(lowering.Lower):
    def emit_environment_object(self):
        """Kernels touch no Python object, so there is no environment to fill in after loading."""

    def lower_binop(self, resty, expr, op):
        """Numba's, without resolving the operator three more times for constant operands (only powers use that)."""
        signature = self.fndesc.calltypes[expr]
        if op in _POWERS or not all(isinstance(kind, types.Number | types.Boolean) for kind in signature.args):
            return super().lower_binop(resty, expr, op)
        operands = [
            self.context.cast(self.builder, self.loadvar(operand.name), self.typeof(operand.name), kind)
            for operand, kind in zip((expr.lhs, expr.rhs), signature.args, strict=True)
        ]
        implementation = self.context.get_function(self.context.typing_context.resolve_value_type(op), signature)
        return self.context.cast(self.builder, implementation(self.builder, operands), signature.return_type, resty)


class _Library:
    """Takes the module that Numba's lowering makes; stands in for Numba's CodeLibrary, which would compile it."""

    name = "hloom"
    codegen = None
    recorded_timings = None

    def __init__(self):
        self._reload_init = set()
        self.module: ir.Module | None = None

    def create_ir_module(self, name):
        module = ir.Module(name)
        module.triple = llvm.get_process_triple()
        return module

    def add_ir_module(self, module):
        self.module = module

    def add_linking_library(self, library):
        raise errors.UnsupportedError("kernel text needs Numba's runtime, which kernels do without")


# Neither wrappers nor machine code nor Numba's runtime; divisions as NumPy's; pointers that never overlap.
_FLAGS = {
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "no_compile": True,
    "nrt": False,
    "error_model": "numpy",
    "noalias": True,
}


class FrontEnd:
    """Numba's contexts and options, made once; `lower` turns one function into a module."""

    def __init__(self):
        with global_compiler_lock:
            self.typing = _Typing()
            self.target = _Target(self.typing)
            self.target.refresh()
        self.flags = compiler.Flags()
        for flag, value in _FLAGS.items():
            setattr(self.flags, flag, value)
        self.subtarget = self.target.subtarget(
            enable_nrt=False, error_model=callconv.create_error_model("numpy", self.target)
        )

    def lower(
        self,
        function: Callable,
        symbol: str,
        arguments: Sequence[types.Type],
        result: types.Type,
        wrap: Callable[[ir.Module, ir.Function, Callable], None],
        interleaves: bool = False,
    ) -> str:
        """LLVM IR (text) of `function` as an internal function `symbol`.body, and of what `wrap` adds.

        wrap: called as wrap(module, body, call); `call(builder, values)` emits a call of the body and returns its
              result in Numba's return representation (None for a function without result).
        interleaves: whether innermost loops are marked for it (`loop_hints`).
        """
        state = compiler.StateDict()
        state.update(
            typingctx=self.typing,
            targetctx=self.subtarget,
            library=None,
            args=tuple(arguments),
            return_type=result,
            flags=self.flags,
            locals={},
            lifted=(),
            lifted_from=None,
            metadata={"parfors": {}},
            reload_init=[],
            status=compiler._CompileStatus(can_fallback=False),
            func_id=bytecode.FunctionIdentity.from_function(function),
        )
        library = _Library()
        with global_compiler_lock, _no_garbage_collection(), compiler.ConfigStack().enter(self.flags.copy()):
            self.typing.refresh()  # intrinsics that were made since
            for make in _PASSES:
                make().run_pass(state)
            descriptor = funcdesc.PythonFunctionDescriptor.from_specialized_function(
                state.func_ir, state.typemap, state.return_type, state.calltypes,
                mangler=lambda name, argtypes, **_: f"{symbol}.body", inline=False, noalias=True, abi_tags=(),
            )  # fmt: skip
            with self.subtarget.push_code_library(library):
                _Lower(self.subtarget, library, descriptor, state.func_ir, metadata=state.metadata).lower()
        module = library.module
        assert module is not None, "lowering adds the module to the library"
        body = module.get_global(descriptor.llvm_func_name)
        body.linkage = "internal"
        body.attributes.add("nounwind")

        def call(builder, values):
            # Numba's convention: a status is returned, result and exception go to memory. Kernel text raises nothing.
            packed = self.subtarget.call_conv.get_function_type(state.return_type, state.args)
            slot = builder.alloca(packed.args[0].pointee)
            exception = builder.alloca(packed.args[1].pointee)
            packer = self.subtarget.get_arg_packer(state.args)
            builder.call(body, [slot, exception, *packer.as_arguments(builder, values)])
            if state.return_type in (types.none, types.void):
                return None
            return builder.load(slot)

        wrap(module, body, call)
        if interleaves:
            interleave_loops(module)
        return str(module)


_PASSES = (
    ExtractByteCode,
    TranslateByteCode,
    FixupArgs,
    IRProcessing,
    ReconstructSSA,
    NopythonTypeInference,
    PreLowerStripPhis,
)


@contextlib.contextmanager
def _no_garbage_collection():
    """Numba creates many small objects and no garbage that matters; each collection in between takes long."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_lock = forking.lock()
_front_end: FrontEnd | None = None


def front_end() -> FrontEnd:
    """The one front end of this process."""
    global _front_end
    with _lock:
        if _front_end is None:
            _front_end = FrontEnd()
        return _front_end


def define(
    name: str, text: str, names: Mapping[str, object], of: Callable[[Sequence[str]], Mapping[str, object]] | None = None
) -> python_types.FunctionType:
    """The Python function that `text` defines, with `names` as its globals, and those that `of` has for the names that
    the function uses."""
    scope: dict[str, Any] = dict(names)
    exec(compile(text, f"<kernel {name}>", "exec"), scope)
    return with_kernel_builtins(scope[name], of(scope[name].__code__.co_names) if of is not None else None)


def with_kernel_builtins(
    function: python_types.FunctionType, more: Mapping[str, object] | None = None
) -> python_types.FunctionType:
    """`function` with its `range`, `min` and `max` replaced by those of `builtins`, and `more` globals."""
    code = function.__code__
    names = tuple(REPLACEMENTS[name][0] if name in REPLACEMENTS else name for name in code.co_names)
    scope = {**function.__globals__, **(more or {}), **dict(REPLACEMENTS.values())}
    return python_types.FunctionType(code.replace(co_names=names), scope, function.__name__, function.__defaults__)


__all__ = ["FrontEnd", "define", "external", "front_end", "numba_type", "with_kernel_builtins"]
