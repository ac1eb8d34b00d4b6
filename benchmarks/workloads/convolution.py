"""Convolutions (batch, height, width, features), their gradients, and pooling."""

from __future__ import annotations

from hloom.benchmarks.workloads.table import Family, normal

FAMILY = Family("convolution")
workload = FAMILY.workload


def convolution(
    name: str,
    size: int,
    features: int,
    outputs: int,
    window: int,
    batch: int = 8,
    strides: int = 1,
    dilation: int = 1,
    groups: int = 1,
    layout: str = "NHWC",
):
    """Registers a convolution with 'SAME' padding, forward."""
    image = (batch, size, size, features) if layout == "NHWC" else (batch, features, size, size)
    kernel = (window, window, features // groups, outputs)
    if layout == "NCHW":
        kernel = (outputs, features // groups, window, window)
    what = f"{window} x {window}, {features} to {outputs} features, {batch} x {size} x {size}"
    what += f", strides {strides}" * (strides > 1) + f", dilation {dilation}" * (dilation > 1)
    what += ", depthwise" * (groups > 1) + ", NCHW" * (layout == "NCHW")

    def inputs(random, divide=1):
        # Only the image shrinks: the features of image and kernel belong together.
        small = tuple(max(7, e // divide) if e == size else e for e in image)
        return normal(small, kernel)(random)

    def function(lib, x, w):
        return lib.conv(x, w, strides, dilation, groups, layout)

    flops = 2.0 * batch * (size // strides) ** 2 * window**2 * (features // groups) * outputs
    workload(name, what, inputs, bound_by="compute", flops=flops, needs=("conv",), tolerance=1e-5)(function)


convolution("conv_1x1", 56, 64, 128, 1)
convolution("conv_3x3", 56, 64, 64, 3)
convolution("conv_3x3_nchw", 56, 64, 64, 3, layout="NCHW")
convolution("conv_5x5", 28, 32, 64, 5)
convolution("conv_strided", 56, 64, 128, 3, strides=2)
convolution("conv_dilated", 56, 32, 32, 3, dilation=2)
convolution("conv_depthwise", 56, 128, 128, 3, groups=128)
convolution("conv_7x7_image", 112, 3, 64, 7, strides=2)


def _gradient(window: int, size: int, features: int):
    def inputs(random, divide=1):
        s = max(7, size // divide)
        return normal((8, s, s, features), (window, window, features, features), (8, s, s, features))(random)

    flops = 2.0 * 8 * size**2 * window**2 * features**2

    @workload(
        f"conv_{window}x{window}_by_input",
        f"{window} x {window}, gradient by the image, {features} features, 8 x {size} x {size}",
        inputs,
        bound_by="compute",
        flops=flops,
        needs=("conv", "grad"),
        tolerance=1e-5,
    )
    def by_input(lib, x, w, g):
        return lib.value_and_grad(lambda x: lib.np.sum(lib.conv(x, w) * g))(x)[1]

    @workload(
        f"conv_{window}x{window}_by_filter",
        f"{window} x {window}, gradient by the kernel, {features} features, 8 x {size} x {size}",
        inputs,
        bound_by="compute",
        flops=flops,
        needs=("conv", "grad"),
        tolerance=2e-5,
    )
    def by_filter(lib, x, w, g):
        return lib.value_and_grad(lambda w: lib.np.sum(lib.conv(x, w) * g))(w)[1]


_gradient(3, 56, 64)
_gradient(5, 28, 32)


def _images(random, divide=1):
    size = max(8, 112 // divide // 2 * 2)
    return normal((8, size, size, 64))(random)


@workload("max_pool", "largest of 2 x 2, 8 x 112 x 112 x 64", _images, needs=("conv",))
def _max_pool(lib, x):
    return lib.max_pool(x, 2)


@workload("max_pool_grad", "its gradient", _images, needs=("conv", "grad"))
def _max_pool_grad(lib, x):
    return lib.value_and_grad(lambda x: lib.np.sum(lib.max_pool(x, 2) ** 2))(x)[1]
