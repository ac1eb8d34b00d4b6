"""Matrix products for CUDA against the reference interpreter, every thread of them simulated."""

import numpy as np
import pytest
from contraction_programs import TENSOR, TENSOR_WORDS, THREADS, bias_gelu, check, dot, launches, outputs, product
from cuda_programs import computation, inputs

from hloom.compiler.targets.cuda.contractions.tiles import Tile, candidates

ALIGNED, ODD = {"i": 32, "j": 40, "p": 48}, {"i": 19, "j": 37, "p": 35}
LAYOUTS = pytest.mark.parametrize("left, right", [("ip", "pj"), ("pi", "pj"), ("ip", "jp"), ("pi", "jp")])
BOTH_ORDERS = pytest.mark.parametrize("reverse", [False, True])


def kernel(program, **options):
    """The source of the only launch."""
    (launch,) = launches(program, **options)
    return launch.source


@LAYOUTS
@pytest.mark.parametrize("extents", [ALIGNED, ODD], ids=["aligned", "odd"])
@pytest.mark.parametrize("dtype, tile", [("f32", THREADS), ("bf16", TENSOR)])
def test_every_layout(left, right, extents, dtype, tile):
    check(product(extents, dtype, left, right), tile=tile, reverse=left == "pi")


@LAYOUTS
def test_aligned_operands_are_moved_16_bytes_at_a_time(left, right):
    text = kernel(product(ALIGNED, "bf16", left, right), tile=TENSOR).text
    assert text.count("copy_ahead(") == 4 and "load_bf16" not in text
    assert ("load_matrix4_turned" in text) == (left == "pi" or right == "pj")
    text = kernel(product(ALIGNED, "f32", left, right), tile=THREADS).text
    # Threads read shared memory along i and j: what lies along p in memory goes through registers.
    assert ("copy_ahead(" in text) == (left == "pi" or right == "pj")
    assert ("load4_f32(in0" in text, "load4_f32(in1" in text) == (left == "ip", right == "jp")
    assert "copy_ahead" not in kernel(product(ODD, "bf16", left, right), tile=TENSOR).text


@pytest.mark.parametrize("dtype", ["f32", "f64", "s32", "u32", "s64", "u64", "s8", "u8", "s16", "bf16", "f16"])
def test_dtypes(dtype):
    check(product({"i": 9, "j": 20, "p": 24}, dtype))


@pytest.mark.parametrize("dtype, result", [("bf16", "f32"), ("f16", "f32"), ("s8", "s32"), ("f32", "f64")])
def test_results_of_another_dtype(dtype, result):
    check(product({"i": 16, "j": 24, "p": 24}, dtype, result=result))


@BOTH_ORDERS
@pytest.mark.parametrize("dtype, tile", [("f32", THREADS), ("bf16", TENSOR)])
def test_batches(dtype, tile, reverse):
    check(product({"b": 3, "i": 17, "j": 24, "p": 40}, dtype, "bip", "bjp"), tile=tile, reverse=reverse)


@pytest.mark.parametrize("dtype, tile", [("f32", THREADS), ("f16", TENSOR)])
def test_a_batch_that_is_not_the_first_dimension(dtype, tile):
    check(product({"b": 2, "i": 8, "j": 24, "p": 16}, dtype, "ibp", "pbj"), tile=tile)


@pytest.mark.parametrize("dtype, tile", [("f32", THREADS), ("bf16", TENSOR)])
@pytest.mark.parametrize("extents", [ALIGNED, ODD], ids=["aligned", "odd"])
def test_operands_are_computed_while_they_are_staged(dtype, tile, extents):
    def before(x, y):
        return x.op("tanh") * 0.5, y.op("abs").op("exponential").op("log") - 1.0

    program = product(extents, dtype, before=before)
    check(program, tile=tile, tolerance=1e-4)
    text = kernel(program, tile=tile).text
    assert text.index("tanh_f32") < text.index("t_q = 0") and "copy_ahead" not in text


def test_an_operand_that_is_computed_beside_one_that_is_copied():
    check(product(ALIGNED, "bf16", before=lambda x, y: (x.op("negate"), y)), tile=TENSOR)
    text = kernel(product(ALIGNED, "f32", before=lambda x, y: (x, y * 2.0)), tile=THREADS).text
    assert "load4_f32(in0" in text and "in1[" in text
    check(product(ALIGNED, "f32", before=lambda x, y: (x, y * 2.0)), tile=THREADS)


@BOTH_ORDERS
@pytest.mark.parametrize("dtype, tile", [("f32", THREADS), ("bf16", TENSOR)])
@pytest.mark.parametrize("extents", [ALIGNED, ODD], ids=["aligned", "odd"])
def test_bias_and_gelu(dtype, tile, extents, reverse):
    program = product(extents, dtype, after=bias_gelu, more=[(dtype, (extents["j"],))])
    check(program, tile=tile, tolerance=1e-4, reverse=reverse)


@pytest.mark.parametrize("dtype, tile", [("f32", THREADS), ("bf16", TENSOR)])
def test_several_outputs(dtype, tile):
    program = product(ODD, dtype, after=lambda total: (total.op("tanh"), total.op("abs"), total * 2.0))
    check(program, tile=tile)


def test_a_result_that_overwrites_an_operand_of_its_epilogue():
    program = product(ODD, after=lambda total, x: total + x, more=[("f32", (ODD["i"], ODD["j"]))])
    check(program, shared={0: 2}, tile=THREADS)


def test_a_result_of_other_dimensions():
    """What reads the sums as (2, 6, 5, 7) divides the indexes of the product."""

    def after(total, scale):
        return total.reshape((2, 6, 5, 7)) * scale.broadcast((2, 6, 5, 7), (1, 3))

    program = product({"i": 12, "j": 35, "p": 9}, after=after, more=[("f32", (6, 7))])
    check(program, tile=THREADS)
    assert "q_s" not in kernel(program, tile=THREADS).arguments, "divided by a number that the compiler does not know"


@pytest.mark.parametrize("extents", [ALIGNED, ODD], ids=["aligned", "odd"])
@LAYOUTS
def test_tf32_where_the_user_says_so(extents, left, right):
    program = product(extents, "f32", left, right)
    check(program, tile=TENSOR_WORDS, tf32=True, tolerance=2e-3)
    assert "mma_tf32" in kernel(program, tile=TENSOR_WORDS, tf32=True).text
    assert "mma" not in kernel(program).text


def test_tf32_is_of_float32_only():
    assert "mma_bf16" in kernel(product(ALIGNED, "bf16"), tf32=True).text
    assert "mma" not in kernel(product(ALIGNED, "f64"), tf32=True).text


@pytest.mark.parametrize("kind, itemsize, dtype", [("thread", 4, "f32"), ("thread", 8, "s64"), ("tensor", 2, "f16")])
def test_every_tile(kind, itemsize, dtype):
    """Rows, columns and sums of each tile are where they belong; with few products each, which is all that matters."""
    for tile in candidates(kind, itemsize):
        extents = {"i": min(tile.rows, 32) + 1, "j": min(tile.columns, 8) + 8, "p": 2}
        check(product(extents, dtype), tile=tile)


def test_tiles_do_not_change_a_bit():
    for dtype, tiles in (
        ("f32", [THREADS, Tile("thread", 64, 16, 8, 4, 8), Tile("thread", 4, 128, 4, 4, 16)]),
        ("bf16", [TENSOR, Tile("tensor", 16, 64, 16, 16, 64), Tile("tensor", 64, 32, 32, 32, 16)]),
    ):
        program = product({"i": 17, "j": 24, "p": 40}, dtype, result="f32")
        arrays = inputs(program)
        results = {outputs(program, arrays, tile=tile)[0].tobytes() for tile in tiles}
        assert len(results) == 1


def test_a_small_result_of_long_sums_is_summed_in_parts():
    program = product({"i": 8, "j": 16, "p": 1100}, "bf16", after=bias_gelu, more=[("bf16", (16,))])
    first, second = launches(program, tile=TENSOR)
    assert first.blocks == 2 and first.temporaries == second.temporaries == {"t_parts": 2 * 8 * 16 * 4}
    assert "logistic_f32" in second.source.text and "logistic_f32" not in first.source.text
    check(program, tile=TENSOR)


@BOTH_ORDERS
def test_parts_of_batches(reverse):
    check(product({"b": 2, "i": 3, "j": 8, "p": 1032}, "f16", "bip", "bpj"), tile=TENSOR, reverse=reverse)
    check(product({"i": 3, "j": 5, "p": 1030}, "s32"), tile=Tile("thread", 8, 8, 4, 4, 16), reverse=reverse)


def test_parts_depend_on_the_shape_alone():
    for arch in ("sm_80", "sm_86", "sm_90"):
        first, second = launches(product({"i": 8, "j": 16, "p": 8192}, "bf16"), arch=arch)
        assert first.temporaries["t_parts"] == 16 * 8 * 16 * 4
    assert len(launches(product({"i": 1024, "j": 1024, "p": 8192}, "bf16"))) == 1


@pytest.mark.parametrize("extents", [(1, 30, 20), (30, 1, 20), (5, 6, 1), (1, 1, 40), (4, 5, 0)])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_extents_of_one_and_none(extents, dtype):
    check(product(dict(zip("ijp", extents, strict=True)), dtype))


def test_an_empty_result_has_no_launches():
    assert launches(product({"i": 0, "j": 5, "p": 7})) == []


def test_vectors_and_dots_without_free_dimensions():
    check(computation([("f32", (33,)), ("f32", (33, 9))], lambda x, y: dot(x, y, "p", "pj")))
    check(computation([("f32", (9, 33)), ("f32", (33,))], lambda x, y: dot(x, y, "ip", "p")))
    check(computation([("f32", (33,)), ("f32", (33,))], lambda x, y: dot(x, y, "p", "p") * 2.0))


def test_one_text_serves_many_shapes():
    texts = {kernel(product({"i": i, "j": j, "p": p}, "bf16"), tile=TENSOR).text for i, j, p in
             ((64, 128, 96), (128, 64, 320), (32, 1024, 640))}  # fmt: skip
    assert len(texts) == 1


def test_no_range_loops():
    for dtype in ("f32", "bf16"):
        text = kernel(product(ODD, dtype)).text
        assert "range(" not in text and "for " not in text


def test_the_cost_model_takes_large_tiles_for_large_products_and_small_ones_for_small():
    large, small = (launches(product({"i": n, "j": n, "p": n}, "bf16"))[0] for n in (4096, 256))
    assert large.threads >= 128 and small.blocks >= 16
    thin = launches(product({"i": 4, "j": 4096, "p": 512}))[0]
    assert thin.blocks >= 16


def test_what_is_no_product_is_refused():
    program = computation([("f32", (4, 5))], lambda x: x + 1.0)
    with pytest.raises(ValueError, match="one dot in normal form"):
        launches(program)
    many = computation([("f32", (4, 5, 6)), ("f32", (5, 6, 7))], lambda x, y: x.op(
        "dot", y, lhs_contracting_dims=(1, 2), rhs_contracting_dims=(0, 1)))  # fmt: skip
    with pytest.raises(ValueError, match="one dot in normal form"):
        launches(many)


def test_launches_hold_what_a_driver_needs():
    (launch,) = launches(product(ALIGNED, "bf16"), tile=TENSOR)
    source = launch.source
    assert len(launch.arguments) == len(source.params) == len(source.parameters)
    assert launch.arguments[:3] == ["in0", "in1", "out0"] and all(isinstance(x, int) for x in launch.arguments[3:])
    assert (launch.blocks, launch.threads, source.alignment) == (2, 64, 16)
    assert launch.shared_bytes == source.shared == 3 * (32 * 40 + 32 * 40) * 2
    np.testing.assert_equal(launch.work, 2.0 * 32 * 40 * 48)
