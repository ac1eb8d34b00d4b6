module @jit__lambda attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["i"=8]> {stablehlo.mesh = {axes = [{name = "i", size = 8 : i64}]}}
  func.func public @main(%arg0: tensor<3x4xf32>, %arg1: tensor<16x3xf32>) -> (tensor<3x4xf32> {jax.result_info = "result"}) {
    %0:2 = sdy.manual_computation(%arg0, %arg1) in_shardings=[<@mesh, [{}, {}]>, <@mesh, [{"i"}, {}]>] out_shardings=[<@mesh, [{"i"}, {}]>, <@mesh, [{"i"}, {}]>] manual_axes={"i"} (%arg2: tensor<3x4xf32>, %arg3: tensor<2x3xf32>) {
      %2 = stablehlo.dot_general %arg3, %arg2, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
      %3 = stablehlo.tanh %2 : tensor<2x4xf32>
      %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %4 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x4xf32>
      %5 = stablehlo.subtract %4, %3 : tensor<2x4xf32>
      sdy.return %3, %5 : tensor<2x4xf32>, tensor<2x4xf32>
    } : (tensor<3x4xf32>, tensor<16x3xf32>) -> (tensor<16x4xf32>, tensor<16x4xf32>)
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %1 = sdy.manual_computation(%cst, %arg1, %0#0, %0#1) in_shardings=[<@mesh, []>, <@mesh, [{"i"}, {}]>, <@mesh, [{"i"}, {}]>, <@mesh, [{"i"}, {}]>] out_shardings=[<@mesh, [{}, {}]>] manual_axes={"i"} (%arg2: tensor<f32>, %arg3: tensor<2x3xf32>, %arg4: tensor<2x4xf32>, %arg5: tensor<2x4xf32>) {
      %2 = stablehlo.broadcast_in_dim %arg2, dims = [] : (tensor<f32>) -> tensor<2x4xf32>
      %3 = stablehlo.multiply %2, %arg5 : tensor<2x4xf32>
      %4 = stablehlo.multiply %3, %arg4 : tensor<2x4xf32>
      %5 = stablehlo.add %3, %4 : tensor<2x4xf32>
      %6 = stablehlo.dot_general %5, %arg3, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x4xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
      %7 = stablehlo.transpose %6, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>
      %8 = "stablehlo.all_reduce"(%7) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> ({
      ^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
        %9 = stablehlo.add %arg6, %arg7 : tensor<f32>
        stablehlo.return %9 : tensor<f32>
      }) : (tensor<3x4xf32>) -> tensor<3x4xf32>
      sdy.return %8 : tensor<3x4xf32>
    } : (tensor<f32>, tensor<16x3xf32>, tensor<16x4xf32>, tensor<16x4xf32>) -> tensor<3x4xf32>
    return %1 : tensor<3x4xf32>
  }
}
