"""What devices send in the textbook programs: never more than XLA's partition, as measured with jax 0.10."""

from __future__ import annotations

import pytest

from benchmarks.sharding.all_programs import PROGRAMS
from benchmarks.sharding.bytes_sent import count_hlo, partitioned
from hloom.compiler.communication import bytes_sent, collective_uses

# Bytes that a device sends in XLA's partition of the same program (`python -m benchmarks.sharding.bytes_sent`).
XLA = {
    "data_parallel_gradients": 1_146_880,
    "fully_sharded_weights": 1_132_544,
    "tensor_parallel_mlp": 114_688,
    "tensor_and_data_parallel_gradients": 188_416,
    "transformer_block": 393_216,
    "transformer_block_gradients": 786_432,
    "convolution_over_a_split_batch": 0,
    "convolution_over_split_rows": 2_048,
    "heat_equation": 3_088,
    "roll": 768,
    "embedding_split_by_vocabulary": 28_672,
    "k_means_step": 3_808,
    "mixture_of_experts": 114_688,
    "running_sum": 114_688,
    "sort_along_a_split_dimension": 28_672,
    "transposition": 14_336,
    "softmax_cross_entropy_of_split_classes": 1_344,
    "towers": 1_146_880,
    "ring_attention": 114_688,
    "pipeline": 204_800,
    "tensor_parallel_mlp_gradients": 114_688,
    "ring_attention_gradients": 229_376,
    "pipeline_gradients": 409_600,
    "heat_equation_gradients": 6_196,
    "embedding_split_by_vocabulary_gradients": 28_672,
    "mixture_of_experts_gradients": 347_648,
    "convolution_over_split_rows_gradients": 12_160,
}


@pytest.mark.parametrize("name", XLA)
def test_a_device_sends_no_more_than_by_the_partition_of_xla(name):
    assert bytes_sent(collective_uses(*partitioned(name))) <= XLA[name]


def test_all_programs_are_compared():
    assert set(PROGRAMS) == set(XLA)


def test_bytes_are_counted_in_the_text_of_xla():
    line = "%a = f32[8,4]{1,0} all-gather(%p), channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}"
    assert count_hlo(line) == {"bytes": 96, "kinds": {"all-gather": 1}}
    line = "%r = (f32[4]{0}, f32[2]{0}) all-reduce(%p, %q), replica_groups={{0,1},{2,3}}, to_apply=%add"
    assert count_hlo(line) == {"bytes": 24, "kinds": {"all-reduce": 1}}
