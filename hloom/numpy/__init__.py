"""The functions of NumPy on hloom's arrays, with `jax.numpy`'s names and promotion.

Outside of `hl.jit` every call computes at once; inside it is recorded and compiled. Arrays of 64 bits stay so;
Python numbers take the dtype of the array beside them, and alone they are pred, s32, f32 or c64.
"""

# ruff: noqa: F405  (names of __all__ that __getattr__ answers)

import math as _math

from numpy import iterable
from numpy.exceptions import ComplexWarning

from hloom.arrays import arguments as _arguments
from hloom.numpy import fft, linalg
from hloom.numpy.creation import (
    arange,
    array,
    asarray,
    astype,
    bartlett,
    blackman,
    copy,
    empty,
    empty_like,
    eye,
    from_dlpack,
    frombuffer,
    full,
    full_like,
    geomspace,
    hamming,
    hanning,
    identity,
    indices,
    kaiser,
    linspace,
    logspace,
    meshgrid,
    ones,
    ones_like,
    tri,
    tril,
    triu,
    vander,
    zeros,
    zeros_like,
)
from hloom.numpy.dtypes import (
    bfloat16,
    bool,
    bool_,
    can_cast,
    cdouble,
    character,
    complex64,
    complex128,
    complexfloating,
    csingle,
    double,
    dtype,
    finfo,
    flexible,
    float4_e2m1fn,
    float8_e3m4,
    float8_e4m3,
    float8_e4m3b11fnuz,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    floating,
    generic,
    half,
    iinfo,
    inexact,
    int2,
    int4,
    int8,
    int16,
    int32,
    int64,
    integer,
    isdtype,
    issubdtype,
    number,
    object_,
    promote_types,
    result_type,
    signedinteger,
    single,
    uint2,
    uint4,
    uint8,
    uint16,
    uint32,
    uint64,
    unsignedinteger,
)
from hloom.numpy.dtypes import default_types as _default_types
from hloom.numpy.elementwise import table as _table
from hloom.numpy.elementwise.interpolation import interp
from hloom.numpy.elementwise.logic import (
    allclose,
    array_equal,
    array_equiv,
    bitwise_count,
    bitwise_left_shift,
    bitwise_right_shift,
    equal,
    greater,
    greater_equal,
    isclose,
    iscomplex,
    iscomplexobj,
    isfinite,
    isinf,
    isnan,
    isneginf,
    isposinf,
    isreal,
    isrealobj,
    isscalar,
    left_shift,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
    right_shift,
    select,
)
from hloom.numpy.elementwise.numbers import (
    byteswap,
    frexp,
    gcd,
    lcm,
    nextafter,
    packbits,
    ravel_multi_index,
    spacing,
    unpackbits,
    unravel_index,
    view,
)
from hloom.numpy.elementwise.signs import (
    angle,
    around,
    ceil,
    clip,
    conj,
    conjugate,
    copysign,
    fix,
    floor,
    fmax,
    fmin,
    imag,
    ldexp,
    modf,
    nan_to_num,
    real,
    rint,
    round,
    trunc,
)
from hloom.numpy.elementwise.table import *  # noqa: F403
from hloom.numpy.elementwise.ufunc import equip as _equip
from hloom.numpy.elementwise.ufunc import frompyfunc, ufunc
from hloom.numpy.elementwise.ufuncs import (
    abs,
    absolute,
    deg2rad,
    degrees,
    divide,
    divmod,
    exp2,
    expm1,
    fabs,
    float_power,
    floor_divide,
    fmod,
    heaviside,
    hypot,
    i0,
    log2,
    log10,
    logaddexp,
    logaddexp2,
    maximum,
    minimum,
    mod,
    positive,
    pow,
    power,
    rad2deg,
    radians,
    reciprocal,
    remainder,
    sign,
    signbit,
    sinc,
    square,
    true_divide,
)
from hloom.numpy.indexing.nonzero import argwhere, flatnonzero, nonzero, where
from hloom.numpy.indexing.take import (
    choose,
    compress,
    diag_indices,
    diag_indices_from,
    extract,
    ix_,
    mask_indices,
    place,
    put,
    put_along_axis,
    putmask,
    take,
    take_along_axis,
    tril_indices,
    tril_indices_from,
    triu_indices,
    triu_indices_from,
)
from hloom.numpy.key_arrays import MOVERS as _MOVERS
from hloom.numpy.key_arrays import takes_keys as _takes_keys
from hloom.numpy.linear.convolution import convolve, correlate
from hloom.numpy.linear.einsum import einsum, einsum_path, multi_dot
from hloom.numpy.linear.polynomials import (
    poly,
    polyadd,
    polyder,
    polydiv,
    polyfit,
    polyint,
    polymul,
    polysub,
    polyval,
    roots,
    trim_zeros,
)
from hloom.numpy.linear.products import (
    cross,
    dot,
    inner,
    kron,
    matmul,
    matrix_transpose,
    matvec,
    outer,
    tensordot,
    vdot,
    vecdot,
    vecmat,
)
from hloom.numpy.mapping import apply_along_axis, apply_over_axes, piecewise, vectorize
from hloom.numpy.namespace import VERSION as __array_api_version__
from hloom.numpy.namespace import __array_namespace_info__
from hloom.numpy.printing import (
    array_repr,
    array_str,
    fromfile,
    fromfunction,
    fromiter,
    fromstring,
    get_printoptions,
    load,
    printoptions,
    save,
    savez,
    set_printoptions,
)
from hloom.numpy.reducing.histograms import bincount, histogram, histogram2d, histogram_bin_edges, histogramdd
from hloom.numpy.reducing.quantiles import median, nanmedian, nanpercentile, nanquantile, percentile, quantile
from hloom.numpy.reducing.reductions import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    average,
    count_nonzero,
    max,
    mean,
    min,
    nanargmax,
    nanargmin,
    nanmax,
    nanmean,
    nanmin,
    nanprod,
    nanstd,
    nansum,
    nanvar,
    prod,
    ptp,
    std,
    sum,
    var,
)
from hloom.numpy.reducing.scans import (
    cumprod,
    cumsum,
    cumulative_prod,
    cumulative_sum,
    diff,
    ediff1d,
    gradient,
    nancumprod,
    nancumsum,
    trapezoid,
    unwrap,
)
from hloom.numpy.reducing.statistics import corrcoef, cov
from hloom.numpy.shaping.diagonals import diag, diagflat, diagonal, fill_diagonal, trace
from hloom.numpy.shaping.grids import c_, index_exp, mgrid, ogrid, r_, s_
from hloom.numpy.shaping.manipulation import (
    append,
    array_split,
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block,
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    column_stack,
    concat,
    concatenate,
    dsplit,
    dstack,
    expand_dims,
    hsplit,
    hstack,
    moveaxis,
    ndim,
    permute_dims,
    ravel,
    reshape,
    resize,
    rollaxis,
    shape,
    size,
    split,
    squeeze,
    stack,
    swapaxes,
    tile,
    transpose,
    unstack,
    vsplit,
    vstack,
)
from hloom.numpy.shaping.padding import pad
from hloom.numpy.shaping.rearrangement import delete, flip, fliplr, flipud, insert, repeat, roll, rot90
from hloom.numpy.shaping.sets import (
    in1d,
    intersect1d,
    isin,
    setdiff1d,
    setxor1d,
    union1d,
    unique,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from hloom.numpy.shaping.sorting import (
    argpartition,
    argsort,
    digitize,
    lexsort,
    partition,
    searchsorted,
    sort,
    sort_complex,
)
from hloom.typing import Array as _AnyArray

pi, e, euler_gamma = _math.pi, _math.e, 0.5772156649015329
inf, nan = _math.inf, _math.nan
newaxis = None
ndarray = _AnyArray

# Element-wise functions have the attributes and methods of ufuncs.
for _function, _nin, _nout, _identity, _quick in (
    (_table.add, 2, 1, 0, {"reduce": sum, "accumulate": cumsum, "at": lambda x, y: x.add(y)}),
    (_table.multiply, 2, 1, 1, {"reduce": prod, "accumulate": cumprod, "at": lambda x, y: x.multiply(y)}),
    (maximum, 2, 1, None, {"at": lambda x, y: x.max(y)}),
    (minimum, 2, 1, None, {"at": lambda x, y: x.min(y)}),
    (logical_and, 2, 1, True, {}),
    (logical_or, 2, 1, False, {}),
    (logical_xor, 2, 1, False, {}),
    (_table.bitwise_and, 2, 1, -1, {}),
    (_table.bitwise_or, 2, 1, 0, {}),
    (_table.bitwise_xor, 2, 1, 0, {}),
    (_table.subtract, 2, 1, None, {}),
    (logaddexp, 2, 1, -_math.inf, {}),
    (logaddexp2, 2, 1, -_math.inf, {}),
    (_table.negative, 1, 1, None, {}),
):
    _equip(_function, _nin, _nout, _identity, **_quick)

# Arrays of random keys are moved as others are.
for _name in _MOVERS:
    globals()[_name] = _takes_keys(globals()[_name])

# What Python refuses in an argument is said in hloom's errors. Element-wise functions check all that they take.
_arguments.explain_all(
    globals(),
    {
        "dtypes",
        "elementwise.logic",
        "elementwise.table",
        "elementwise.ufunc",
        "elementwise.ufuncs",
        "key_arrays",
        "namespace",
        "printing",
    },
)


def __getattr__(name: str):
    if name in ("int_", "uint", "float_", "complex_"):
        return _default_types()[name]
    raise AttributeError(f"module 'hloom.numpy' has no attribute '{name}'")


__all__ = [
    "ComplexWarning", "abs", "absolute", "all", "allclose",
    "amax", "amin", "angle", "any", "append", "apply_along_axis", "apply_over_axes", "arange", "argmax", "argmin",
    "argpartition", "argsort", "argwhere", "around", "array", "array_equal", "array_equiv", "array_repr",
    "array_split", "array_str", "asarray", "astype", "atleast_1d", "atleast_2d", "atleast_3d", "average", "bartlett",
    "bfloat16", "bincount", "bitwise_count", "bitwise_left_shift", "bitwise_right_shift", "blackman", "block", "bool",
    "bool_", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "byteswap", "c_", "can_cast", "cdouble", "ceil",
    "character", "choose", "clip", "column_stack", "complex128", "complex64", "complex_", "complexfloating",
    "compress", "concat", "concatenate", "conj", "conjugate", "convolve", "copy", "copysign", "corrcoef", "correlate",
    "count_nonzero", "cov", "cross", "csingle", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "deg2rad",
    "degrees", "delete", "diag", "diag_indices", "diag_indices_from", "diagflat", "diagonal", "diff", "digitize",
    "divide", "divmod", "dot", "double", "dsplit", "dstack", "dtype", "e", "ediff1d", "einsum", "einsum_path",
    "empty", "empty_like", "equal", "euler_gamma", "exp2", "expand_dims", "expm1", "extract", "eye", "fabs", "fft",
    "fill_diagonal", "finfo", "fix", "flatnonzero", "flexible", "flip", "fliplr", "flipud", "float16", "float32",
    "float4_e2m1fn", "float64", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn",
    "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float_", "float_power", "floating",
    "floor", "floor_divide", "fmax", "fmin", "fmod", "frexp", "from_dlpack", "frombuffer", "fromfile", "fromfunction",
    "fromiter", "frompyfunc", "fromstring", "full", "full_like", "gcd", "generic", "geomspace", "get_printoptions",
    "gradient", "greater", "greater_equal", "half", "hamming", "hanning", "heaviside", "histogram", "histogram2d",
    "histogram_bin_edges", "histogramdd", "hsplit", "hstack", "hypot", "i0", "identity", "iinfo", "imag", "in1d",
    "index_exp", "indices", "inexact", "inf", "inner", "insert", "int16", "int2", "int32", "int4", "int64", "int8",
    "int_", "integer", "interp", "intersect1d", "isclose", "iscomplex", "iscomplexobj", "isdtype", "isfinite", "isin",
    "isinf", "isnan", "isneginf", "isposinf", "isreal", "isrealobj", "isscalar", "issubdtype", "iterable", "ix_",
    "kaiser", "kron", "lcm", "ldexp", "left_shift", "less", "less_equal", "lexsort", "linalg", "linspace", "load",
    "log10", "log2", "logaddexp", "logaddexp2", "logical_and", "logical_not", "logical_or", "logical_xor", "logspace",
    "mask_indices", "matmul", "matrix_transpose", "matvec", "max", "maximum", "mean", "median", "meshgrid", "mgrid",
    "min", "minimum", "mod", "modf", "moveaxis", "multi_dot", "nan", "nan_to_num", "nanargmax", "nanargmin",
    "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile",
    "nanstd", "nansum", "nanvar", "ndarray", "ndim", "newaxis", "nextafter", "nonzero", "not_equal", "number",
    "object_", "ogrid", "ones", "ones_like", "outer", "packbits", "pad", "partition", "percentile", "permute_dims",
    "pi", "piecewise", "place", "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub",
    "polyval", "positive", "pow", "power", "printoptions", "prod", "promote_types", "ptp", "put", "put_along_axis",
    "putmask", "quantile", "r_", "rad2deg", "radians", "ravel", "ravel_multi_index", "real", "reciprocal",
    "remainder", "repeat", "reshape", "resize", "result_type", "right_shift", "rint", "roll", "rollaxis", "roots",
    "rot90", "round", "s_", "save", "savez", "searchsorted", "select", "set_printoptions", "setdiff1d", "setxor1d",
    "shape", "sign", "signbit", "signedinteger", "sinc", "single", "size", "sort", "sort_complex", "spacing", "split",
    "square", "squeeze", "stack", "std", "sum", "swapaxes", "take", "take_along_axis", "tensordot", "tile", "trace",
    "transpose", "trapezoid", "tri", "tril", "tril_indices", "tril_indices_from", "trim_zeros", "triu",
    "triu_indices", "triu_indices_from", "true_divide", "trunc", "ufunc", "uint", "uint16", "uint2", "uint32",
    "uint4", "uint64", "uint8", "union1d", "unique", "unique_all", "unique_counts", "unique_inverse", "unique_values",
    "unpackbits", "unravel_index", "unsignedinteger", "unstack", "unwrap", "vander", "var", "vdot", "vecdot",
    "vecmat", "vectorize", "view", "vsplit", "vstack", "where", "zeros", "zeros_like",
]  # fmt: skip
__all__ += _table.__all__
__dir__ = __all__.copy
