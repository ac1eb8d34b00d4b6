"""Every function of `hloom.lax`, with one argument at a time that does not fit: refused in four parts, at this line."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import HloomError
from hloom.ir.op_table import OPS

X, V, S = hnp.ones((2, 3)), hnp.arange(4.0), hnp.asarray(1.5)
I, P, C = hnp.arange(4), hnp.arange(4) > 1, hnp.ones(3, "complex64")
IMAGE, KERNEL = hnp.ones((1, 2, 5, 5)), hnp.ones((3, 2, 2, 2))
GATHER = lax.GatherDimensionNumbers((1,), (0,), (0,))
SCATTER = lax.ScatterDimensionNumbers((1,), (0,), (0,))
SCATTER_BOTH, AT_BOTH = lax.ScatterDimensionNumbers((), (0, 1), (0, 1)), hnp.asarray([[0, 1], [1, 2]])
AT, ROWS = hnp.asarray([[0], [1]]), hnp.ones((2, 3))
WINDOW = ((2, 2), (1, 1), "VALID")


def add(a, b):
    return a + b


def of_the_table() -> dict[str, tuple]:
    """The functions that are one op each, with arguments of a dtype that it has."""
    calls = {}
    for entry in OPS.values():
        x = V + 1 if "float" in entry.kinds else I
        for name in entry.lax.split():
            calls[name] = (x,) * entry.arity if entry.arity < 3 else (x, x, V / 8)
    return calls


# name -> arguments of a call that is right.
CALLS: dict[str, tuple] = {
    **of_the_table(),
    **dict.fromkeys("exp2 reciprocal square stop_gradient optimization_barrier round".split(), (V,)),
    **dict.fromkeys("conj imag real".split(), (C,)),
    **dict.fromkeys("eq ge gt le lt ne random_gamma_grad".split(), (V + 1, V + 1)),
    **dict.fromkeys("cumsum cumprod cummax cummin cumlogsumexp".split(), (X, 1)),
    **dict.fromkeys("reduce_max reduce_min reduce_prod reduce_sum".split(), (X, (0,))),
    **dict.fromkeys("reduce_and reduce_or reduce_xor".split(), (P, (0,))),
    **dict.fromkeys("argmax argmin".split(), (X, 1, "int32")),
    **dict.fromkeys("approx_max_k approx_min_k top_k".split(), (V, 2)),
    **dict.fromkeys("reduce_window_max reduce_window_min reduce_window_sum".split(), (X, (2, 2), (1, 1), "VALID")),
    **dict.fromkeys(
        "scatter scatter_add scatter_max scatter_min scatter_mul scatter_sub".split(), (X, AT, ROWS, SCATTER)
    ),
    "batch_matmul": (hnp.ones((2, 3, 4)), hnp.ones((2, 4, 5))),
    "bitcast_convert_type": (V, "int32"),
    "broadcast": (V, (2,)),
    "broadcast_like": (V, X[:, :1] + V),
    "broadcast_in_dim": (V, (2, 4), (1,)),
    "broadcast_shapes": ((2, 1), (3,)),
    "broadcast_to_rank": (V, 2),
    "broadcasted_iota": ("int32", (2, 3), 1),
    "clamp": (S, V, S),
    "collapse": (X, 0, 2),
    "concatenate": ([X, X], 0),
    "cond": (True, add, add, V, V),
    "conv": (IMAGE, KERNEL, (1, 1), "VALID"),
    "conv_general_dilated": (IMAGE, KERNEL, (1, 1), [(0, 0), (1, 1)], (1, 1), (1, 1), ("NCHW", "OIHW", "NCHW")),
    "conv_general_dilated_patches": (IMAGE, (2, 2), (1, 1), "VALID"),
    "conv_transpose": (hnp.ones((1, 5, 5, 2)), hnp.ones((2, 2, 2, 3)), (1, 1), "SAME"),
    "conv_with_general_padding": (IMAGE, KERNEL, (1, 1), [(0, 0), (1, 1)], (1, 1), (1, 1)),
    "convert_element_type": (V, "int32"),
    "dtype": (V,),
    "dot": (X, hnp.ones((3, 2))),
    "dot_general": (X, hnp.ones((3, 2)), (((1,), (0,)), ((), ()))),
    "dynamic_index_in_dim": (X, 1, 0, False),
    "dynamic_slice": (X, (0, 1), (2, 2)),
    "dynamic_slice_in_dim": (X, 1, 2, 1),
    "dynamic_update_index_in_dim": (X, hnp.ones(3), 0, 0),
    "dynamic_update_slice": (X, hnp.ones((1, 2)), (0, 1)),
    "dynamic_update_slice_in_dim": (X, hnp.ones((2, 1)), 1, 1),
    "empty": ((2,), "float32"),
    "expand_dims": (V, (0,)),
    "fft": (hnp.ones(4, "complex64"), "fft", (4,)),
    "fori_loop": (0, 3, lambda i, x: x + 1.0, V),
    "full": ((2,), 1.0, "float32"),
    "full_like": (V, 2.0),
    "gather": (X, AT, GATHER, (1, 3)),
    "index_in_dim": (X, 1, 0, False),
    "integer_pow": (V, 3),
    "iota": ("int32", 4),
    "map": (lambda x: x + 1.0, V),
    "associative_scan": (lambda a, b: a + b, V),
    "mulhi": (I, I),
    "pad": (X, S, ((0, 1, 0), (1, 0, 1))),
    "reduce": (X, np.float32(0), add, (0,)),
    "reduce_precision": (V, 8, 7),
    "reduce_window": (X, np.float32(0), add, *WINDOW),
    "reshape": (X, (3, 2)),
    "rev": (X, (0,)),
    "rng_bit_generator": (hnp.ones(2, "uint64"), (3,), "uint32"),
    "rng_uniform": (S, S + 1.0, (3,)),
    "scan": (lambda c, x: (c + x, c), 0.0, V),
    "scatter_apply": (
        X,
        hnp.asarray([[0, 1], [1, 2]]),
        lambda x: x + 1.0,
        lax.ScatterDimensionNumbers((), (0, 1), (0, 1)),
    ),
    "select": (P, V, V),
    "select_and_scatter": (X, lax.ge, *WINDOW, hnp.ones((1, 2)), np.float32(0), add),
    "select_n": (P, V, V),
    "shape_as_value": ((2, 3),),
    "slice": (X, (0, 1), (2, 3), (1, 1)),
    "slice_in_dim": (X, 0, 2, 1, 1),
    "sort": (V,),
    "sort_key_val": (V, V),
    "split": (V, (1, 3), 0),
    "squeeze": (hnp.ones((1, 3)), (0,)),
    "stack": ([V, V], 0),
    "stage": (V,),
    "switch": (1, [add, add], V, V),
    "tile": (X, (2, 1)),
    "transpose": (X, (1, 0)),
    "unstack": (X, 0),
    "while_loop": (lambda x: x < 5.0, lambda x: x + 1.0, 0.0),
}
KEYWORDS = {"scatter_apply": {"update_shape": (2,)}}
# Collectives need a vmap around them: tests/hloom/lax/test_parallel.py. The rest takes functions of its own kind.
ELSEWHERE = set(
    """all_gather all_to_all axis_index axis_size pbroadcast pmax pmean pmin ppermute pshuffle psum psum_scatter
    pswapaxes custom_call custom_linear_solve custom_root infeed outfeed platform_dependent with_sharding_constraint
    index_take conv_general_permutations conv_dimension_numbers conv_general_dilated_local conv_general_shape_tuple
    conv_shape_tuple padtype_to_pads conv_transpose_shape_tuple reduce_window_shape_tuple
    composite dce_sink pcast""".split()
)
TAKES_FUNCTIONS = set("associative_scan cond fori_loop map reduce reduce_window scan scatter_apply switch while_loop "
                      "select_and_scatter".split())  # fmt: skip
TAKES_ANYTHING = {"stop_gradient", "optimization_barrier", "broadcast_shapes"}


def wrong_arguments(value):
    """What may stand in an argument's place: other shapes, dtypes, kinds."""
    yield from ("bogus", None, object())
    if isinstance(value, type(X)):
        yield hnp.ones((*value.shape, 7), value.dtype)
        yield hnp.ones((5, 1, 9), value.dtype)
        yield from (hnp.ones(value.shape, dtype) for dtype in ("bool", "int8", "uint64", "float64", "complex64"))
        yield np.array(["text"])
    elif callable(value):
        yield from (3, lambda: None, lambda *a: "bogus", lambda *a: (hnp.ones((9, 9)),) * 5)
    elif isinstance(value, (tuple, list)):
        yield from ((), (17,) * len(value), (-99,) * len(value), (*value, 1), 1.5, ((1.5,),) * len(value), V)
    elif isinstance(value, str):
        yield from ("", 3, 1.5, (1,), V)
    else:
        yield from (-99, 99, 2.5, (1, 2), hnp.ones((9, 9)), 1j)


def _in_this_file(traceback) -> bool:
    while traceback is not None and traceback.tb_frame.f_code.co_filename != __file__:
        traceback = traceback.tb_next
    return traceback is not None


@pytest.mark.parametrize("name", sorted(CALLS))
def test_one_wrong_argument(name):
    function, arguments, named = getattr(lax, name), CALLS[name], KEYWORDS.get(name, {})
    function(*arguments, **named)
    refused = 0
    for k, value in enumerate(arguments):
        for wrong in wrong_arguments(value):
            given = [*arguments[:k], wrong, *arguments[k + 1 :]]
            try:
                line = inspect.currentframe().f_lineno + 1
                function(*given, **named)
            except HloomError as error:
                refused += 1
                assert error.asked and error.found and error.repair, (given, str(error))
                inside = name in TAKES_FUNCTIONS  # then the user's line may be in one of these
                assert error.source.file == __file__ and (inside or error.source.line == line), (given, str(error))
            except Exception as error:
                if _in_this_file(error.__traceback__.tb_next):
                    continue  # a function of this file was called, and it is the one that raises
                raise AssertionError(f"{name}{given}: {type(error).__name__}: {error}") from error
    assert refused or name in TAKES_ANYTHING


def test_every_function_is_called():
    names = {n for n in dir(lax) if not n.startswith("_") and inspect.isfunction(getattr(lax, n))}
    names -= {"ragged_dot", "ragged_dot_general", "scaled_dot"}  # tests/hloom/lax/test_lax_joining.py
    assert names - set(CALLS) - ELSEWHERE == set()


@pytest.mark.parametrize(
    "call",
    [
        lambda: hnp.std(V, ddof="one"),
        lambda: hnp.tril_indices("three"),
        lambda: hnp.sum(V, initial="zero"),
        lambda: hnp.histogram(V, bins=object()),
        lambda: hnp.diag(V, k="first"),
        lambda: hnp.rot90(X, k="once"),
        lambda: hnp.zeros(X),
        lambda: hnp.nan_to_num(V, nan="none"),
    ],
)
def test_arguments_of_array_functions(call):
    with pytest.raises(HloomError) as caught:
        call()
    error = caught.value
    assert error.asked and error.found and error.repair and isinstance(error, (TypeError, ValueError))
    assert (error.source.file, error.source.line) == (__file__, call.__code__.co_firstlineno)


def test_errors_of_the_users_functions_stay_what_they_are():
    def fails(*arguments):
        raise KeyError("mine")

    for call in (
        lambda: lax.scan(fails, 0.0, V),
        lambda: lax.reduce(V, np.float32(0), fails, (0,)),
        lambda: hnp.apply_along_axis(fails, 0, X),
    ):
        with pytest.raises(KeyError, match="mine"):
            call()
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        lax.reshape(V)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (C, C)], ids=["numbers", "arrays"])
def test_complex_numbers_have_no_clamp(bounds):
    """As in JAX: StableHLO compares its operands, and complex numbers have no order there."""
    low, high = bounds
    for function in (lax.clamp, hl.jit(lax.clamp)):
        with pytest.raises(HloomError, match="clamp takes") as caught:
            function(low, C, high)
        assert "c64[3]" in caught.value.found and isinstance(caught.value, TypeError)
