"""The runner of StableHLO's tests of collectives."""

import pytest
from stablehlo_parallel import check

TEXT = """
module @two_by_two {
  func.func @sum(%x : tensor<2xi64>) -> tensor<2xi64> {
    %r = "stablehlo.all_reduce"(%x) ({
      ^bb0(%a: tensor<i64>, %b: tensor<i64>):
        %0 = stablehlo.add %a, %b : tensor<i64>
        stablehlo.return %0 : tensor<i64>
    }) {
      replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 0, type = 0>
    } : (tensor<2xi64>) -> tensor<2xi64>
    return %r : tensor<2xi64>
  }
  func.func @main() {
    %a = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
    %b = stablehlo.constant dense<[10, 20]> : tensor<2xi64>
    %results:4 = "interpreter.run_parallel"(%a, %b, %b, %b) {
      programs=[[@sum, @sum], [@sum, @sum]]
    } : (tensor<2xi64>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) ->
        (tensor<2xi64>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>)
    check.expect_eq_const %results#0, dense<[11, 22]> : tensor<2xi64>
    check.expect_eq_const %results#3, dense<[20, 40]> : tensor<2xi64>
    func.return
  }
}
"""


def test_a_grid_of_replicas_and_partitions():
    assert check(TEXT) == 2
    with pytest.raises(AssertionError):
        check(TEXT.replace("dense<[20, 40]>", "dense<[20, 41]>"))
