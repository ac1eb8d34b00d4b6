"""Convolutions as products on CUDA, simulated, against the reference interpreter."""

import numpy as np
import pytest
import window_programs as programs
from contraction_programs import TENSOR, THREADS, check, launches, outputs
from cuda_programs import computation, expected, inputs

from hloom.compiler.targets.cuda.contractions.launches import has_product_kernel
from hloom.compiler.targets.cuda.contractions.tiles import Tile
from hloom.ir.types import DTYPES
from hloom.ir.window import WindowDimension as W

LAYOUTS = pytest.mark.parametrize(
    "labels", ["b01f_01io->b01f", "bf01_oi01->bf01", "f01b_i01o->01bf", "b01f_o01i->b01f", "b01f_01io->bf01"]
)
WINDOW = (W(3, 1, 1, 1), W(2, 2, 0, 1))


def convolution(labels, dtype="f32", features=8, outputs_=24, window=WINDOW, after=None, more=(), batch=2):
    """A convolution of 5 x 6 places, with those labels."""
    lhs, rhs, _ = labels.replace("->", "_").split("_")
    sizes = {"b": batch, "f": features, "0": 5, "1": 6, "i": features, "o": outputs_}
    taps = {"0": window[0].size, "1": window[1].size}
    x, w = tuple(sizes[c] for c in lhs), tuple((sizes | taps)[c] for c in rhs)

    def build(x, w, *rest):
        made = x.op("convolution", w, window=window, dim_labels=labels)
        return after(made, *rest) if after else made

    return computation([(dtype, x), (dtype, w), *more], build, "convolved")


@LAYOUTS
@pytest.mark.parametrize("dtype, tile", [("f32", THREADS), ("bf16", TENSOR)])
def test_layouts(labels, dtype, tile):
    check(convolution(labels, dtype), tile=tile)


@pytest.mark.parametrize("window", [
    (W(3, 2, 1, 0), W(3, 1, 2, 2, window_dilation=2)), (W(1), W(1)), (W(5, 1, -1, 3), W(2, 3, 0, 0)),
])  # fmt: skip
def test_windows(window):
    check(convolution("b01f_01io->b01f", window=window), tile=THREADS)
    check(convolution("bf01_oi01->bf01", "f16", features=3, window=window), tile=TENSOR)


def test_features_side_by_side_are_copied_16_bytes_at_a_time():
    text = launches(convolution("b01f_01io->b01f", "bf16"), tile=TENSOR)[0].source.text
    assert text.count("copy_ahead(") == 4 and "load_bf16" not in text
    text = launches(convolution("b01f_01io->b01f", "f32"), tile=THREADS)[0].source.text
    assert "load4_f32(in0" in text and "copy_ahead(" in text
    for other in ({"features": 3}, {"labels": "bf01_oi01->bf01"}):
        named = {"labels": "b01f_01io->b01f"} | other
        text = launches(convolution(named.pop("labels"), "bf16", **named), tile=TENSOR)[0].source.text
        assert "load_bf16(in0" in text


def test_places_are_the_columns_where_the_result_has_them_last():
    text = launches(convolution("bf01_oi01->bf01"), tile=THREADS)[0].source.text
    assert text.index("lhs_si") < text.index("w_x0"), "the kernel is the left operand"
    assert "in1[" in text or "in1, " in text


@pytest.mark.parametrize("labels", ["b01f_01io->b01f", "bf01_oi01->bf01"])
def test_bias_and_activation_are_the_epilogue(labels):
    place = labels.split("->")[1].index("f")

    def after(made, bias):
        return (made + bias.broadcast(made.dims, (place,))).op("maximum", 0.0)

    check(convolution(labels, after=after, more=[("f32", (24,))]), tile=THREADS)
    check(convolution(labels, "bf16", after=after, more=[("bf16", (24,))]), tile=TENSOR)


def test_divisions_are_by_numbers_in_32_bits():
    text = launches(convolution("b01f_01io->b01f"), tile=THREADS)[0].source.text
    assert "div_u32(u32(t_p), u32(16))" in text and "//" not in text


@pytest.mark.parametrize("seed", range(40))
def test_random_convolutions(seed):
    rng = np.random.default_rng(seed)
    x, w, attributes = programs.random_convolution(rng, DTYPES[("f32", "bf16", "s32", "f64")[seed % 4]])
    program = programs.single("convolution", [x, w], **attributes)
    if not has_product_kernel(program.root):
        with pytest.raises(ValueError, match="normal form"):
            launches(program)
        return
    tile = TENSOR if seed % 4 == 1 else Tile("thread", 16, 16, 4, 4, 16) if seed % 4 < 3 else None
    arrays = inputs(program)
    (got,) = outputs(program, arrays, tile=tile, reverse=seed % 3 == 0)
    (want,) = expected(program, arrays)
    bound = 2**-7 if want.dtype.name == "bfloat16" else 1e-5
    np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=bound, atol=bound * 30)
