"""Loops over arrays around the functions of `hloom.compiler.kernels.math`, for its tests."""

import ctypes

import numpy as np

from hloom.compiler.cache import default_cache
from hloom.compiler.kernels import math
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu import codegen
from hloom.runtime import native

NUMPY = {"pred": np.bool_, "f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
NUMPY |= {f"s{bits}": np.dtype(f"int{bits}").type for bits in (8, 16, 32, 64)}
NUMPY |= {f"u{bits}": np.dtype(f"uint{bits}").type for bits in (8, 16, 32, 64)}
NUMPY |= {"f16": np.float32, "bf16": np.float32}  # register type


def loop_source(text, params):
    """The kernel source of the function `loop` that `text` defines; `params` are such as "f32*" and "s64"."""
    return KernelSource("loop", text.replace("):", ", lo, hi):", 1), (*params, "s64", "s64"))


def compile_kernel(text, params):
    """The address of the compiled `loop`."""
    (code,) = codegen.compile_kernels([loop_source(text, params)], default_cache())
    return native.load(code.data, code.symbols)["loop"]


def call_kernel(kernel, *arguments):
    """Call with arrays (by address) and integers."""
    words = [value.ctypes.data if isinstance(value, np.ndarray) else value for value in arguments]
    block = np.array(words, np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(kernel)(block.ctypes.data, 0, 0)


def _read(dtype, pointer):
    return f"load_pred({pointer}, i)" if dtype == "pred" else f"{pointer}[i]"


def elementwise(names):
    """One compiled kernel for several functions of the same parameters; gives a function from arrays to results."""
    parameters = math.FUNCTIONS[names[0]].parameters
    inputs = [f"x{i}" for i in range(len(parameters))]
    values = ", ".join(_read(dtype, pointer) for dtype, pointer in zip(parameters, inputs, strict=True))
    text = [f"def loop({', '.join(inputs + [f'o{i}' for i in range(len(names))])}, n):"]
    for index, name in enumerate(names):
        assert math.FUNCTIONS[name].parameters == parameters
        result = f"{name}({values})"
        is_pred = math.FUNCTIONS[name].result == "pred"
        text.append("    for i in range(n):")
        text.append(f"        store_pred(o{index}, i, {result})" if is_pred else f"        o{index}[i] = {result}")
    register = {"f16": "f32", "bf16": "f32"}
    results = [math.FUNCTIONS[name].result for name in names]
    params = [register.get(dtype, dtype) + "*" for dtype in (*parameters, *results)] + ["s64"]
    kernel = compile_kernel("\n".join(text), params)

    def run(*arrays):
        arrays = [np.ascontiguousarray(x, NUMPY[dtype]) for x, dtype in zip(arrays, parameters, strict=True)]
        outputs = [np.empty(arrays[0].shape, NUMPY[dtype]) for dtype in results]
        call_kernel(kernel, *arrays, *outputs, arrays[0].size)
        return outputs

    return run


def ulp_error(result, reference):
    """|result - reference| in units in the last place of the reference rounded to the result's dtype.

    reference: numpy.longdouble. Where either is not finite the error is 0 (the same value, or both NaN) or inf.
    """
    with np.errstate(all="ignore"):
        info = np.finfo(result.dtype)
        rounded = reference.astype(result.dtype)
        _, exponent = np.frexp(np.abs(reference))
        unit = np.ldexp(np.longdouble(1), np.maximum(exponent - (info.nmant + 1), info.minexp - info.nmant))
        error = np.abs(result.astype(np.longdouble) - reference) / unit
        same = (result == rounded) | (np.isnan(result) & np.isnan(rounded))
        finite = np.isfinite(rounded) & np.isfinite(result)
        return np.where(finite, error, np.where(same, 0.0, np.inf)).astype(np.float64)


def random_bits(generator, dtype, count):
    """Numbers of every sign and exponent: uniform bit patterns, infinities and NaN among them."""
    word = np.uint32 if dtype == np.float32 else np.uint64
    return generator.integers(0, np.iinfo(word).max, count, dtype=word, endpoint=True).view(dtype)
