"""NumPy's functions for hloom arrays, with the names and promotion rules of `jax.numpy`.

Outside of `hl.jit` every call computes eagerly; inside it is recorded and compiled. 64-bit arrays keep their dtype;
Python scalars take the dtype of the other operand, and alone are pred, s32, f32 or c64.
"""

import functools as _functools
import math as _math
from typing import TYPE_CHECKING as _TYPE_CHECKING

from numpy import iterable
from numpy.exceptions import ComplexWarning

from hloom.arrays import arguments as _arguments
from hloom.ir.process import lazy as _lazy
from hloom.numpy.elementwise import table as _table
from hloom.typing import Array as _AnyArray

if _TYPE_CHECKING:  # the names of _HOMES, for type checkers
    # fmt: off
    # isort: off
    from hloom.numpy import fft, linalg

    from hloom.numpy.creation import (
        arange, array, asarray, astype, copy, empty, empty_like, from_dlpack, frombuffer, full, full_like, geomspace,
        indices, linspace, logspace, meshgrid, ones, ones_like, zeros, zeros_like,
    )
    from hloom.numpy.dtypes import (
        bfloat16, bool, bool_, can_cast, cdouble, character, complex64, complex128, complexfloating, csingle, double,
        dtype, finfo, flexible, float4_e2m1fn, float8_e3m4, float8_e4m3, float8_e4m3b11fnuz, float8_e4m3fn,
        float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu, float16, float32, float64, floating, generic,
        half, iinfo, inexact, int2, int4, int8, int16, int32, int64, integer, isdtype, issubdtype, number, object_,
        promote_types, result_type, signedinteger, single, uint2, uint4, uint8, uint16, uint32, uint64, unsignedinteger,
    )
    from hloom.numpy.elementwise.interpolation import interp
    from hloom.numpy.elementwise.logic import (
        allclose, array_equal, array_equiv, bitwise_count, bitwise_left_shift, bitwise_right_shift, equal, greater,
        greater_equal, isclose, iscomplex, iscomplexobj, isfinite, isinf, isnan, isneginf, isposinf, isreal, isrealobj,
        isscalar, left_shift, less, less_equal, logical_and, logical_not, logical_or, logical_xor, not_equal,
        right_shift, select,
    )
    from hloom.numpy.elementwise.numbers import (
        byteswap, frexp, gcd, lcm, nextafter, packbits, ravel_multi_index, spacing, unpackbits, unravel_index, view,
    )
    from hloom.numpy.elementwise.signs import (
        angle, around, ceil, clip, conj, conjugate, copysign, fix, floor, fmax, fmin, imag, ldexp, modf, nan_to_num,
        real, rint, round, trunc,
    )
    from hloom.numpy.elementwise.ufunc import frompyfunc, ufunc
    from hloom.numpy.elementwise.ufuncs import (
        abs, absolute, deg2rad, degrees, divide, divmod, exp2, expm1, fabs, float_power, floor_divide, fmod, heaviside,
        hypot, i0, log2, log10, logaddexp, logaddexp2, maximum, minimum, mod, positive, pow, power, rad2deg, radians,
        reciprocal, remainder, sign, signbit, sinc, square, true_divide,
    )
    from hloom.numpy.indexing.nonzero import argwhere, flatnonzero, nonzero, where
    from hloom.numpy.indexing.take import (
        choose, compress, diag_indices, diag_indices_from, extract, ix_, mask_indices, place, put, put_along_axis,
        putmask, take, take_along_axis, tril_indices, tril_indices_from, triu_indices, triu_indices_from,
    )
    from hloom.numpy.linear.convolution import convolve, correlate
    from hloom.numpy.linear.einsum import einsum, einsum_path, multi_dot
    from hloom.numpy.linear.matrices import eye, identity, tri, tril, triu, vander
    from hloom.numpy.linear.polynomials import (
        poly, polyadd, polyder, polydiv, polyfit, polyint, polymul, polysub, polyval, roots, trim_zeros,
    )
    from hloom.numpy.linear.products import (
        cross, dot, inner, kron, matmul, matrix_transpose, matvec, outer, tensordot, vdot, vecdot, vecmat,
    )
    from hloom.numpy.mapping import apply_along_axis, apply_over_axes, piecewise, vectorize
    from hloom.numpy.printing import (
        array_repr, array_str, fromfile, fromfunction, fromiter, fromstring, get_printoptions, load, printoptions, save,
        savez, set_printoptions,
    )
    from hloom.numpy.reducing.histograms import bincount, histogram, histogram2d, histogram_bin_edges, histogramdd
    from hloom.numpy.reducing.quantiles import median, nanmedian, nanpercentile, nanquantile, percentile, quantile
    from hloom.numpy.reducing.reductions import (
        all, amax, amin, any, argmax, argmin, average, count_nonzero, max, mean, min, nanargmax, nanargmin, nanmax,
        nanmean, nanmin, nanprod, nanstd, nansum, nanvar, prod, ptp, std, sum, var,
    )
    from hloom.numpy.reducing.scans import (
        cumprod, cumsum, cumulative_prod, cumulative_sum, diff, ediff1d, gradient, nancumprod, nancumsum, trapezoid,
        unwrap,
    )
    from hloom.numpy.reducing.statistics import corrcoef, cov
    from hloom.numpy.shaping.diagonals import diag, diagflat, diagonal, fill_diagonal, trace
    from hloom.numpy.shaping.grids import c_, index_exp, mgrid, ogrid, r_, s_
    from hloom.numpy.shaping.manipulation import (
        append, array_split, atleast_1d, atleast_2d, atleast_3d, block, broadcast_arrays, broadcast_shapes,
        broadcast_to, column_stack, concat, concatenate, dsplit, dstack, expand_dims, hsplit, hstack, moveaxis, ndim,
        permute_dims, ravel, reshape, resize, rollaxis, shape, size, split, squeeze, stack, swapaxes, tile, transpose,
        unstack, vsplit, vstack,
    )
    from hloom.numpy.shaping.padding import pad
    from hloom.numpy.shaping.rearrangement import delete, flip, fliplr, flipud, insert, repeat, roll, rot90
    from hloom.numpy.shaping.sets import (
        in1d, intersect1d, isin, setdiff1d, setxor1d, union1d, unique, unique_all, unique_counts, unique_inverse,
        unique_values,
    )
    from hloom.numpy.shaping.sorting import (
        argpartition, argsort, digitize, lexsort, partition, searchsorted, sort, sort_complex,
    )
    from hloom.numpy.windows import bartlett, blackman, hamming, hanning, kaiser
    # isort: on
    # fmt: on

pi, e, euler_gamma = _math.pi, _math.e, 0.5772156649015329
inf, nan = _math.inf, _math.nan
newaxis = None
ndarray = _AnyArray
__array_api_version__ = "2024.12"

# Where the public names are defined.
_HOMES = {
    "hloom.numpy.creation": (
        "arange array asarray astype copy empty empty_like from_dlpack frombuffer full full_like geomspace indices "
        "linspace logspace meshgrid ones ones_like zeros zeros_like"
    ),
    "hloom.numpy.dtypes": (
        "bfloat16 bool bool_ can_cast cdouble character complex64 complex128 complexfloating csingle double dtype "
        "finfo flexible float4_e2m1fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz "
        "float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float16 float32 float64 floating generic half iinfo inexact int2 "
        "int4 int8 int16 int32 int64 integer isdtype issubdtype number object_ promote_types result_type "
        "signedinteger single uint2 uint4 uint8 uint16 uint32 uint64 unsignedinteger"
    ),
    "hloom.numpy.elementwise.interpolation": "interp",
    "hloom.numpy.elementwise.logic": (
        "allclose array_equal array_equiv bitwise_count bitwise_left_shift bitwise_right_shift equal greater "
        "greater_equal isclose iscomplex iscomplexobj isfinite isinf isnan isneginf isposinf isreal isrealobj "
        "isscalar left_shift less less_equal logical_and logical_not logical_or logical_xor not_equal right_shift "
        "select"
    ),
    "hloom.numpy.elementwise.numbers": (
        "byteswap frexp gcd lcm nextafter packbits ravel_multi_index spacing unpackbits unravel_index view"
    ),
    "hloom.numpy.elementwise.signs": (
        "angle around ceil clip conj conjugate copysign fix floor fmax fmin imag ldexp modf nan_to_num real rint "
        "round trunc"
    ),
    "hloom.numpy.elementwise.ufunc": "frompyfunc ufunc",
    "hloom.numpy.elementwise.ufuncs": (
        "abs absolute deg2rad degrees divide divmod exp2 expm1 fabs float_power floor_divide fmod heaviside hypot i0 "
        "log2 log10 logaddexp logaddexp2 maximum minimum mod positive pow power rad2deg radians reciprocal remainder "
        "sign signbit sinc square true_divide"
    ),
    "hloom.numpy.indexing.nonzero": "argwhere flatnonzero nonzero where",
    "hloom.numpy.indexing.take": (
        "choose compress diag_indices diag_indices_from extract ix_ mask_indices place put put_along_axis putmask "
        "take take_along_axis tril_indices tril_indices_from triu_indices triu_indices_from"
    ),
    "hloom.numpy.linear.convolution": "convolve correlate",
    "hloom.numpy.linear.einsum": "einsum einsum_path multi_dot",
    "hloom.numpy.linear.matrices": "eye identity tri tril triu vander",
    "hloom.numpy.linear.polynomials": (
        "poly polyadd polyder polydiv polyfit polyint polymul polysub polyval roots trim_zeros"
    ),
    "hloom.numpy.linear.products": (
        "cross dot inner kron matmul matrix_transpose matvec outer tensordot vdot vecdot vecmat"
    ),
    "hloom.numpy.mapping": "apply_along_axis apply_over_axes piecewise vectorize",
    "hloom.numpy.printing": (
        "array_repr array_str fromfile fromfunction fromiter fromstring get_printoptions load printoptions save savez "
        "set_printoptions"
    ),
    "hloom.numpy.reducing.histograms": "bincount histogram histogram2d histogram_bin_edges histogramdd",
    "hloom.numpy.reducing.quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
    "hloom.numpy.reducing.reductions": (
        "all amax amin any argmax argmin average count_nonzero max mean min nanargmax nanargmin nanmax nanmean nanmin "
        "nanprod nanstd nansum nanvar prod ptp std sum var"
    ),
    "hloom.numpy.reducing.scans": (
        "cumprod cumsum cumulative_prod cumulative_sum diff ediff1d gradient nancumprod nancumsum trapezoid unwrap"
    ),
    "hloom.numpy.reducing.statistics": "corrcoef cov",
    "hloom.numpy.shaping.diagonals": "diag diagflat diagonal fill_diagonal trace",
    "hloom.numpy.shaping.grids": "c_ index_exp mgrid ogrid r_ s_",
    "hloom.numpy.shaping.manipulation": (
        "append array_split atleast_1d atleast_2d atleast_3d block broadcast_arrays broadcast_shapes broadcast_to "
        "column_stack concat concatenate dsplit dstack expand_dims hsplit hstack moveaxis ndim permute_dims ravel "
        "reshape resize rollaxis shape size split squeeze stack swapaxes tile transpose unstack vsplit vstack"
    ),
    "hloom.numpy.shaping.padding": "pad",
    "hloom.numpy.shaping.rearrangement": "delete flip fliplr flipud insert repeat roll rot90",
    "hloom.numpy.shaping.sets": (
        "in1d intersect1d isin setdiff1d setxor1d union1d unique unique_all unique_counts unique_inverse unique_values"
    ),
    "hloom.numpy.shaping.sorting": "argpartition argsort digitize lexsort partition searchsorted sort sort_complex",
    "hloom.numpy.windows": "bartlett blackman hamming hanning kaiser",
}
_DEFAULT_TYPES = ("int_", "uint", "float_", "complex_")  # dtypes that follow a setting

# Element-wise functions with the attributes and methods of ufuncs: operands, identity, methods that are functions.
_UFUNCS: dict[str, tuple[int, object, dict[str, str]]] = {
    "add": (2, 0, {"reduce": "sum", "accumulate": "cumsum", "at": "add"}),
    "multiply": (2, 1, {"reduce": "prod", "accumulate": "cumprod", "at": "multiply"}),
    "maximum": (2, None, {"at": "max"}),
    "minimum": (2, None, {"at": "min"}),
    "logical_and": (2, True, {}),
    "logical_or": (2, False, {}),
    "logical_xor": (2, False, {}),
    "bitwise_and": (2, -1, {}),
    "bitwise_or": (2, 0, {}),
    "bitwise_xor": (2, 0, {}),
    "subtract": (2, None, {}),
    "logaddexp": (2, -_math.inf, {}),
    "logaddexp2": (2, -_math.inf, {}),
    "negative": (1, None, {}),
}
# Data movement functions, which also accept arrays of random keys.
_MOVERS = frozenset(
    (
        "append array_split atleast_1d atleast_2d atleast_3d broadcast_to column_stack concat concatenate delete "
        "dsplit dstack expand_dims flip fliplr flipud hsplit hstack insert moveaxis permute_dims ravel repeat reshape "
        "roll rollaxis rot90 split squeeze stack swapaxes take tile transpose unstack vsplit vstack where"
    ).split()
)
# Functions whose results are views in NumPy (`hl.config.item_assignment`).
_VIEWS = frozenset(
    (
        "array_split atleast_1d atleast_2d atleast_3d dsplit expand_dims flip fliplr flipud hsplit imag "
        "matrix_transpose moveaxis permute_dims ravel real reshape rollaxis rot90 split squeeze swapaxes transpose "
        "unstack vsplit"
    ).split()
)
_ufunc, _key_arrays, _dtypes, _assignment = (
    _lazy.LazyModule(f"hloom.numpy.{name}") for name in ("elementwise.ufunc", "key_arrays", "dtypes", "assignment")
)
# Python's argument errors are raised as hloom errors. Element-wise functions check all of their arguments themselves.
_explained = _arguments.explained_functions(
    "hloom.numpy",
    {
        "dtypes",
        "elementwise.logic",
        "elementwise.table",
        "elementwise.ufunc",
        "elementwise.ufuncs",
        "namespace",
    },
)


def _takes_out(function, position: int):
    """The function with an `out`, the argument at this position, that it writes its result to."""

    @_functools.wraps(function)
    def call(*args, **kwargs):
        out = args[position] if len(args) > position else kwargs.get("out")
        if out is None:
            return function(*args, **kwargs)
        given = (*args[:position], None, *args[position + 1 :]) if len(args) > position else args
        return _assignment.into(function, out, given, {**kwargs, "out": None} if "out" in kwargs else kwargs)

    return call


def _prepared(name: str, value):
    if name in _UFUNCS:
        nin, identity, methods = _UFUNCS[name]
        return _ufunc.equip(value, nin, identity, methods)
    code = getattr(value, "__code__", None)
    if code is not None and "out" in code.co_varnames[: code.co_argcount]:
        value = _takes_out(value, code.co_varnames.index("out"))
    value = _key_arrays.takes_keys(value) if name in _MOVERS else value
    return _explained(name, _assignment.viewing(name, value) if name in _VIEWS else value)


_find = _lazy.lazy_names(
    globals(),
    {
        "hloom.numpy.elementwise.table": " ".join(_table.__all__),
        "hloom.numpy.namespace": "__array_namespace_info__",
        **_HOMES,
    },
    {"fft": "hloom.numpy.fft", "linalg": "hloom.numpy.linalg"},
    _prepared,
)


def __getattr__(name: str):
    return _dtypes.default_types()[name] if name in _DEFAULT_TYPES else _find(name)


__all__ = ["ComplexWarning", "e", "euler_gamma", "fft", "inf", "iterable", "linalg", "nan", "ndarray", "newaxis", "pi"]
__all__ += [*_DEFAULT_TYPES, *_table.__all__, *" ".join(_HOMES.values()).split()]
__dir__ = __all__.copy
