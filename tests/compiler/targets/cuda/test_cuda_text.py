"""The text of CUDA kernels: goldens, and what is decided from a nest."""

import pytest
from cuda_programs import bias_gelu, computation, layer_norm, request, softmax, transposed
from kernel_nests import nests

from hloom.compiler.targets.cuda.codegen.render import render
from hloom.ir.records import replace

PROGRAMS = {
    "bias_gelu": bias_gelu(33, 77),
    "contiguous": computation([("f32", (33, 77)), ("bf16", (33, 77))], lambda x, y: (x * y.convert("f32")).op("tanh")),
    "softmax_by_warps": softmax(40, 70),
    "softmax_by_blocks": softmax(40, 5000),
    "layer_norm": layer_norm(40, 768),
    "transpose": transposed(3, 40, 50),
    "column_sums": computation([("f32", (3000, 77))], lambda x: x.sum([0])),
    "whole_sum": computation([("bf16", (200, 3000))], lambda x: x.convert("f32").sum([0, 1])),
    "any": computation([("pred", (20, 3000))], lambda x: x.reduce("or", False, [1])),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_text(name, golden):
    texts = []
    for nest in nests(request(PROGRAMS[name])):
        source = render(nest)
        launch = f"# {source.grain}: {source.blocks()} blocks of {source.threads} threads, parameters {source.params}\n"
        texts.append(launch.replace("'", "") + source.text)
    golden(f"cuda/{name}.txt", "\n".join(texts))


def sources(program):
    return [render(nest) for nest in nests(request(program))]


def test_divisors_are_literals_and_other_extents_are_arguments():
    one, two = sources(bias_gelu(33, 77))[0], sources(bias_gelu(35, 77))[0]
    assert "n1 = 77" in one.text and "n1" not in one.arguments and "n0" in one.arguments
    assert one.text == two.text and one.items == 33 * 77 and two.items == 35 * 77


def test_a_kernel_without_divisions_is_one_text_for_all_shapes():
    (one,), (two,) = sources(softmax(40, 70)), sources(softmax(17, 900))
    assert one.text == two.text and not any(line.strip().endswith("= 70") for line in one.text.splitlines())
    assert sources(softmax(40, 5000))[0].text != one.text, "a long row needs a block"


def test_items_are_taken_apart_in_32_bits_where_there_are_fewer():
    (small,), (large,) = sources(bias_gelu(60000, 70001)), sources(bias_gelu(70000, 70001))
    assert "rest0 = s64(div_u32(u32(item), u32(n1)))" in small.text
    assert "rest0 = item // n1" in large.text and large.items == 70000 * 70001


def test_no_range_loops():
    """`for ... in range(...)` costs registers."""
    for program in PROGRAMS.values():
        for source in sources(program):
            assert "range(" not in source.text and "for " not in source.text


def test_grids():
    (element,), (four,) = sources(bias_gelu(10, 101)), sources(bias_gelu(10, 100))
    assert (element.grain, element.threads, element.blocks()) == ("element", 256, 4)
    assert (four.grain, four.threads, four.blocks()) == ("element", 256, 1)
    (row,) = sources(softmax(1000, 70))
    assert (row.blocks(), row.blocks(most=7)) == (250, 7)
    assert replace(row, items=0).blocks() == 1


def test_contiguous_elements_are_done_four_at_a_time():
    program = computation([("f32", (1003,))], lambda x: x + 1.0)
    (nest,) = nests(request(program))
    wide, narrow = render(nest), render(nest, vectors=False)
    assert (wide.items, wide.alignment) == (250 + 3, 16) and "copy4" in wide.text
    assert (narrow.items, narrow.alignment) == (1003, 1) and "copy4" not in narrow.text


@pytest.mark.parametrize(
    "build",
    [
        lambda x: x.op("slice", slice=((0, 80, 2),)) + 1.0,
        lambda x: x.op("slice", slice=((1, 80, 1),)) + 1.0,
        lambda x: x.op("reverse", dimensions=(0,)),
        lambda x: x.convert("bf16").op("slice", slice=((3, 80, 1),)),
    ],
)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_other_indexes_are_done_one_by_one(build, dtype):
    (source,) = sources(computation([(dtype, (80,))], build))
    assert "copy4" not in source.text and source.alignment == 1


@pytest.mark.parametrize("threads", [0, 33, 2048])
def test_blocks_are_whole_warps(threads):
    (nest,) = nests(request(softmax(4, 70)))
    if threads:
        with pytest.raises(ValueError, match="whole warps of 32"):
            render(nest, threads)
    else:
        assert render(nest, None).threads == 128
