"""The ops of the table as functions, with JAX's names and argument names (`jax.lax`).

Nothing is promoted or broadcast here, except Python scalars, which take the dtype and shape of the other operands.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from hloom.arrays import arguments as _arguments
from hloom.ir.process import lazy as _lazy
from hloom.lax import table as _table

if _TYPE_CHECKING:  # the names of _HOMES, for type checkers
    # fmt: off
    # isort: off
    from hloom.lax import linalg

    from hloom.lax.control.associative import associative_scan
    from hloom.lax.control.branches import cond, platform_dependent, switch
    from hloom.lax.control.custom_solves import custom_linear_solve, custom_root
    from hloom.lax.control.loops import fori_loop, while_loop
    from hloom.lax.control.parallel import (
        all_gather, all_to_all, axis_index, axis_size, pbroadcast, pmax, pmean, pmin, ppermute, pshuffle, psum,
        psum_scatter, pswapaxes,
    )
    from hloom.lax.control.programs import composite, dce_sink, pcast, rng_uniform
    from hloom.lax.control.scan import map, scan
    from hloom.lax.elementwise import (
        RoundingMethod, bitcast_convert_type, clamp, conj, convert_element_type, eq, exp2, ge, gt, integer_pow, le, lt,
        ne, random_gamma_grad, reciprocal, reduce_precision, round, select, square,
    )
    from hloom.lax.joining import (
        broadcast_like, dtype, empty, mulhi, select_n, shape_as_value, stack, stage, tile, unstack,
    )
    from hloom.lax.linear.convolution import (
        ConvDimensionNumbers, ConvGeneralDilatedDimensionNumbers, conv, conv_dimension_numbers, conv_general_dilated,
        conv_general_dilated_local, conv_general_dilated_patches, conv_general_permutations, conv_general_shape_tuple,
        conv_shape_tuple, conv_transpose, conv_transpose_shape_tuple, conv_with_general_padding, padtype_to_pads,
    )
    from hloom.lax.linear.fft import FftType, fft
    from hloom.lax.linear.ragged import RaggedDotDimensionNumbers, ragged_dot, ragged_dot_general, scaled_dot
    from hloom.lax.movement import (
        broadcast, broadcast_in_dim, broadcast_to_rank, broadcasted_iota, collapse, concatenate, dynamic_index_in_dim,
        dynamic_slice, dynamic_slice_in_dim, dynamic_update_index_in_dim, dynamic_update_slice,
        dynamic_update_slice_in_dim, expand_dims, full, full_like, index_in_dim, iota, pad, reshape, rev, slice,
        slice_in_dim, split, squeeze, transpose, broadcast_shapes,
    )
    from hloom.lax.precision import (
        AccuracyMode, DotAlgorithm, DotAlgorithmPreset, DotDimensionNumbers, Precision, PrecisionLike, Tolerance,
    )
    from hloom.lax.random import RandomAlgorithm, rng_bit_generator
    from hloom.lax.reduction import (
        argmax, argmin, batch_matmul, custom_call, dot, dot_general, optimization_barrier, reduce, reduce_and,
        reduce_max, reduce_min, reduce_or, reduce_prod, reduce_sum, reduce_xor, stop_gradient,
    )
    from hloom.lax.scans import cumlogsumexp, cummax, cummin, cumprod, cumsum
    from hloom.lax.slicing import (
        GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers, gather, index_take, scatter, scatter_add,
        scatter_apply, scatter_max, scatter_min, scatter_mul, scatter_sub,
    )
    from hloom.lax.sorting import approx_max_k, approx_min_k, sort, sort_key_val, top_k
    from hloom.lax.transfer import with_sharding_constraint
    from hloom.lax.windows import (
        reduce_window, reduce_window_max, reduce_window_min, reduce_window_shape_tuple, reduce_window_sum,
        select_and_scatter,
    )
    from hloom.tracing.callback import infeed, outfeed
    # isort: on
    # fmt: on

# Where the public names are defined.
_HOMES = {
    "hloom.lax.control.associative": "associative_scan",
    "hloom.lax.control.branches": "cond platform_dependent switch",
    "hloom.lax.control.custom_solves": "custom_linear_solve custom_root",
    "hloom.lax.control.loops": "fori_loop while_loop",
    "hloom.lax.control.parallel": (
        "all_gather all_to_all axis_index axis_size pbroadcast pmax pmean pmin ppermute pshuffle psum psum_scatter "
        "pswapaxes"
    ),
    "hloom.lax.control.programs": "composite dce_sink pcast rng_uniform",
    "hloom.lax.control.scan": "map scan",
    "hloom.lax.elementwise": (
        "RoundingMethod bitcast_convert_type clamp conj convert_element_type eq exp2 ge gt integer_pow le lt ne "
        "random_gamma_grad reciprocal reduce_precision round select square"
    ),
    "hloom.lax.joining": ("broadcast_like dtype empty mulhi select_n shape_as_value stack stage tile unstack"),
    "hloom.lax.linear.convolution": (
        "ConvDimensionNumbers ConvGeneralDilatedDimensionNumbers conv conv_dimension_numbers conv_general_dilated "
        "conv_general_dilated_local conv_general_dilated_patches conv_general_permutations conv_general_shape_tuple "
        "conv_shape_tuple conv_transpose conv_transpose_shape_tuple conv_with_general_padding padtype_to_pads"
    ),
    "hloom.lax.linear.fft": "FftType fft",
    "hloom.lax.linear.ragged": "RaggedDotDimensionNumbers ragged_dot ragged_dot_general scaled_dot",
    "hloom.lax.movement": (
        "broadcast broadcast_in_dim broadcast_to_rank broadcasted_iota collapse concatenate dynamic_index_in_dim "
        "dynamic_slice dynamic_slice_in_dim dynamic_update_index_in_dim dynamic_update_slice "
        "dynamic_update_slice_in_dim expand_dims full full_like index_in_dim iota pad reshape rev slice slice_in_dim "
        "split squeeze transpose broadcast_shapes"
    ),
    "hloom.lax.precision": (
        "AccuracyMode DotAlgorithm DotAlgorithmPreset DotDimensionNumbers Precision PrecisionLike Tolerance"
    ),
    "hloom.lax.random": "RandomAlgorithm rng_bit_generator",
    "hloom.lax.reduction": (
        "argmax argmin batch_matmul custom_call dot dot_general optimization_barrier reduce reduce_and reduce_max "
        "reduce_min reduce_or reduce_prod reduce_sum reduce_xor stop_gradient"
    ),
    "hloom.lax.scans": "cumlogsumexp cummax cummin cumprod cumsum",
    "hloom.lax.slicing": (
        "GatherDimensionNumbers GatherScatterMode ScatterDimensionNumbers gather index_take scatter scatter_add "
        "scatter_apply scatter_max scatter_min scatter_mul scatter_sub"
    ),
    "hloom.lax.sorting": "approx_max_k approx_min_k sort sort_key_val top_k",
    "hloom.lax.transfer": "with_sharding_constraint",
    "hloom.lax.windows": (
        "reduce_window reduce_window_max reduce_window_min reduce_window_shape_tuple reduce_window_sum "
        "select_and_scatter"
    ),
    "hloom.tracing.callback": "infeed outfeed",
}
# Python's argument errors become hloom errors. Element-wise functions check all of their arguments themselves, except
# these, which have other arguments than arrays.
_WITH_OPTIONS = frozenset(("bitcast_convert_type", "convert_element_type", "integer_pow", "reduce_precision", "round"))
_explained = _arguments.explained_functions(
    "hloom.lax",
    {"control.custom_solves", "control.sequential", "elementwise", "linalg", "precision", "table", "transfer"},
)
__getattr__ = _lazy.lazy_names(
    globals(),
    {"hloom.lax.table": " ".join(_table.__all__), **_HOMES},
    {"linalg": "hloom.lax.linalg"},
    lambda name, value: _arguments.explains_arguments(value) if name in _WITH_OPTIONS else _explained(name, value),
)


__all__ = ["linalg", *_table.__all__, *" ".join(_HOMES.values()).split()]
__dir__ = __all__.copy
