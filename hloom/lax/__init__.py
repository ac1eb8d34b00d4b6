"""The ops of the table as functions, with JAX's names and argument names (`jax.lax`).

Nothing is promoted or broadcast here, except Python numbers, which take the dtype and shape of the arrays beside them.
"""

from hloom.arrays import arguments as _arguments
from hloom.lax import linalg
from hloom.lax import primitive_names as _primitive_names
from hloom.lax.control.associative import associative_scan
from hloom.lax.control.branches import cond, platform_dependent, switch
from hloom.lax.control.custom_solves import custom_linear_solve, custom_root
from hloom.lax.control.loops import fori_loop, while_loop
from hloom.lax.control.parallel import (
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    pbroadcast,
    pmax,
    pmean,
    pmin,
    ppermute,
    pshuffle,
    psum,
    psum_scatter,
    pswapaxes,
)
from hloom.lax.control.programs import composite, dce_sink, pcast, rng_uniform
from hloom.lax.control.scan import map, scan
from hloom.lax.elementwise import (
    RoundingMethod,
    bitcast_convert_type,
    clamp,
    conj,
    convert_element_type,
    eq,
    exp2,
    ge,
    gt,
    integer_pow,
    le,
    lt,
    ne,
    random_gamma_grad,
    reciprocal,
    reduce_precision,
    round,
    select,
    square,
)
from hloom.lax.joining import (
    broadcast_like,
    dtype,
    empty,
    mulhi,
    select_n,
    shape_as_value,
    stack,
    stage,
    tile,
    unstack,
    with_sharding_constraint,
)
from hloom.lax.linear.convolution import (
    ConvDimensionNumbers,
    ConvGeneralDilatedDimensionNumbers,
    conv,
    conv_dimension_numbers,
    conv_general_dilated,
    conv_general_dilated_local,
    conv_general_dilated_patches,
    conv_general_permutations,
    conv_general_shape_tuple,
    conv_shape_tuple,
    conv_transpose,
    conv_transpose_shape_tuple,
    conv_with_general_padding,
    padtype_to_pads,
)
from hloom.lax.linear.fft import FftType, fft
from hloom.lax.linear.ragged import RaggedDotDimensionNumbers, ragged_dot, ragged_dot_general, scaled_dot
from hloom.lax.movement import (
    broadcast,
    broadcast_in_dim,
    broadcast_to_rank,
    broadcasted_iota,
    collapse,
    concatenate,
    dynamic_index_in_dim,
    dynamic_slice,
    dynamic_slice_in_dim,
    dynamic_update_index_in_dim,
    dynamic_update_slice,
    dynamic_update_slice_in_dim,
    expand_dims,
    full,
    full_like,
    index_in_dim,
    iota,
    pad,
    reshape,
    rev,
    slice,
    slice_in_dim,
    split,
    squeeze,
    transpose,
)
from hloom.lax.movement import broadcast_shapes_of as broadcast_shapes
from hloom.lax.precision import (
    AccuracyMode,
    DotAlgorithm,
    DotAlgorithmPreset,
    DotDimensionNumbers,
    Precision,
    PrecisionLike,
    Tolerance,
)
from hloom.lax.random import RandomAlgorithm, rng_bit_generator
from hloom.lax.reduction import (
    argmax,
    argmin,
    batch_matmul,
    custom_call,
    dot,
    dot_general,
    optimization_barrier,
    reduce,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_sum,
    reduce_xor,
    stop_gradient,
)
from hloom.lax.scans import cumlogsumexp, cummax, cummin, cumprod, cumsum
from hloom.lax.slicing import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
    gather,
    index_take,
    scatter,
    scatter_add,
    scatter_apply,
    scatter_max,
    scatter_min,
    scatter_mul,
    scatter_sub,
)
from hloom.lax.sorting import approx_max_k, approx_min_k, sort, sort_key_val, top_k
from hloom.lax.table import *  # noqa: F403
from hloom.lax.table import __all__ as _of_the_table
from hloom.lax.windows import (
    reduce_window,
    reduce_window_max,
    reduce_window_min,
    reduce_window_shape_tuple,
    reduce_window_sum,
    select_and_scatter,
)
from hloom.tracing.callback import infeed, outfeed

# What Python refuses in an argument becomes an error of hloom's. Element-wise functions check all that they accept.
_arguments.explain_all(
    globals(),
    {"control.custom_solves", "control.sequential", "elementwise", "linalg", "precision", "table", "transfer"},
)
for _name in ("bitcast_convert_type", "convert_element_type", "integer_pow", "reduce_precision", "round"):
    globals()[_name] = _arguments.explains_arguments(globals()[_name])


def __getattr__(name: str):
    """Functions as primitives, `lax.add_p`, for libraries that ask for them by these names."""
    function = globals().get(name.removesuffix("_p"))
    if name.endswith("_p") and callable(function):
        return _primitive_names.find(name, function)
    raise AttributeError(f"module 'hloom.lax' has no attribute '{name}'")


__all__ = [
    "AccuracyMode", "ConvDimensionNumbers", "ConvGeneralDilatedDimensionNumbers", "DotAlgorithm",
    "DotAlgorithmPreset", "DotDimensionNumbers", "FftType", "GatherDimensionNumbers", "GatherScatterMode",
    "Precision", "PrecisionLike", "RaggedDotDimensionNumbers", "RandomAlgorithm", "RoundingMethod",
    "ScatterDimensionNumbers", "Tolerance", "all_gather", "all_to_all", "approx_max_k", "approx_min_k", "argmax",
    "argmin", "associative_scan", "axis_index", "axis_size", "batch_matmul", "bitcast_convert_type", "broadcast",
    "broadcast_in_dim", "broadcast_like", "broadcast_shapes", "broadcast_to_rank", "broadcasted_iota", "clamp",
    "collapse", "composite", "concatenate", "cond", "conj", "conv", "conv_dimension_numbers", "conv_general_dilated",
    "conv_general_dilated_local", "conv_general_dilated_patches", "conv_general_permutations",
    "conv_general_shape_tuple", "conv_shape_tuple", "conv_transpose", "conv_transpose_shape_tuple",
    "conv_with_general_padding", "convert_element_type", "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum",
    "custom_call", "custom_linear_solve", "custom_root", "dce_sink", "dot", "dot_general", "dtype",
    "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim", "dynamic_update_index_in_dim",
    "dynamic_update_slice", "dynamic_update_slice_in_dim", "empty", "eq", "exp2", "expand_dims", "fft", "fori_loop",
    "full", "full_like", "gather", "ge", "gt", "index_in_dim", "index_take", "infeed", "integer_pow", "iota", "le",
    "linalg", "lt", "map", "mulhi", "ne", "optimization_barrier", "outfeed", "pad", "padtype_to_pads", "pbroadcast",
    "pcast", "platform_dependent", "pmax", "pmean", "pmin", "ppermute", "pshuffle", "psum", "psum_scatter",
    "pswapaxes", "ragged_dot", "ragged_dot_general", "random_gamma_grad", "reciprocal", "reduce", "reduce_and",
    "reduce_max", "reduce_min", "reduce_or", "reduce_precision", "reduce_prod", "reduce_sum", "reduce_window",
    "reduce_window_max", "reduce_window_min", "reduce_window_shape_tuple", "reduce_window_sum", "reduce_xor",
    "reshape", "rev", "rng_bit_generator", "rng_uniform", "round", "scaled_dot", "scan", "scatter", "scatter_add",
    "scatter_apply", "scatter_max", "scatter_min", "scatter_mul", "scatter_sub", "select", "select_and_scatter",
    "select_n", "shape_as_value", "slice", "slice_in_dim", "sort", "sort_key_val", "split", "square", "squeeze",
    "stack", "stage", "stop_gradient", "switch", "tile", "top_k", "transpose", "unstack", "while_loop",
    "with_sharding_constraint",
]  # fmt: skip
__all__ += _of_the_table
__dir__ = __all__.copy
