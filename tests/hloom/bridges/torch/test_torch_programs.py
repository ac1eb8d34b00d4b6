"""Programs that people write with torch: they agree with torch, and torch computes exactly the ops that are named."""

import re
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'hloom[torch]'")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from hloom.errors import FallbackWarning  # noqa: E402
from hloom.ir import source  # noqa: E402

torch.manual_seed(0)
X, I = torch.randn(4, 6), torch.tensor([3, -8, 100, 7])
IMAGE, H = torch.randn(2, 3, 9, 8), torch.randn(2, 5, 16)
Q, K = torch.randn(1, 4, 16, 8), torch.randn(1, 2, 16, 8)
P, R = [torch.randn(3), torch.randn(2, 2)], [torch.randn(3), torch.randn(2, 2)]
BYTES = torch.randint(-100, 100, (16, 32), dtype=torch.int8)
PADDED = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
HIDDEN = torch.tensor([[True] * 5, [False] * 5])
CAUSAL = torch.ones(5, 5, dtype=torch.bool).triu(1)
ENCODERS = [
    nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=first,
                                                     activation="gelu" if first else "relu"),
                          1, enable_nested_tensor=False).eval() for first in (False, True)
]  # fmt: skip
ATTENTION = nn.MultiheadAttention(16, 4, batch_first=True).eval()

COMPILED = {
    "shifts": lambda: (I << 2, I >> 1, I.to(torch.int8) << 3, I.to(torch.uint8) >> 2, 3 << I.clamp(0, 5)),
    "shifts out of range": lambda: (I << 70, I >> 70, I >> torch.tensor(64), I.to(torch.uint8) >> 9),
    "gcd, lcm": lambda: (torch.gcd(I, I + 2), torch.lcm(I, I + 2)),
    "frexp": lambda: torch.frexp(X),
    "mode": lambda: (torch.mode(torch.tensor([[1, 2, 2, 3, 3], [3, 3, 1, 1, 0]])), torch.mode(I, 0, True)),
    "histc": lambda: (torch.histc(X, 4, 0, 1), torch.histc(X, 5), torch.histc(torch.ones(3), 4)),
    "lists": lambda: (
        torch._foreach_add(P, R, alpha=2), torch._foreach_mul(P, 2.0), torch._foreach_addcdiv(P, R, R, [1.0, 2.0]),
        torch._foreach_norm(P), torch._foreach_maximum(P, 0.0), torch._foreach_pow(2.0, P),
        torch._foreach_lerp(P, R, 0.3), torch._foreach_abs(P), torch._foreach_max(P), torch.ops.aten._foreach_zero(P),
        torch._foreach_clamp_min(P, [0.0, 1.0]), torch._foreach_div(P, R), torch.ops.aten._foreach_copy(P, R),
    ),
    "products of integers": lambda: (
        torch._int_mm(BYTES.repeat(2, 1), BYTES.t()),
        torch._weight_int8pack_mm(BYTES[:4].bfloat16(), BYTES, torch.arange(16.0).bfloat16()),
    ),
    "fake quantization": lambda: (
        torch.fake_quantize_per_tensor_affine(X, 0.1, 3, 0, 15),
        torch.fake_quantize_per_channel_affine(X, torch.arange(1.0, 5), torch.zeros(4, dtype=torch.int32), 0, 0, 255),
    ),
    "float8": lambda: [
        (X * 100).to(d).float() for d in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz)
    ],
    "encoder": lambda: ENCODERS[0](H),
    "encoder with a padding": lambda: ENCODERS[1](H, src_key_padding_mask=PADDED),
    "encoder with a row that sees nothing": lambda: ENCODERS[0](H, src_key_padding_mask=HIDDEN),
    "encoder with a mask": lambda: ENCODERS[0](H, mask=CAUSAL, is_causal=True),
    "encoder with a mask of each head": lambda: ENCODERS[1].layers[0](H, src_mask=torch.zeros(8, 5, 5).bool()),
    "encoder with both masks": lambda: ENCODERS[1].layers[0](H, src_mask=CAUSAL, src_key_padding_mask=PADDED),
    "encoder with a mask of floats, read as booleans": lambda: ENCODERS[0].layers[0](H, src_mask=CAUSAL * 2.0),
    "attention with weights": lambda: ATTENTION(H, H, H),
    "item": lambda: X * X.sum().item(),
}  # fmt: skip
BY_TORCH = {
    "cond": ("cond", lambda: torch.cond(X.sum() > 0, lambda x: x + 1, lambda x: x - 1, (X,)) * 2),
    "while_loop": ("while_loop", lambda: torch._higher_order_ops.while_loop(
        lambda c, y: c < 5, lambda c, y: (c + 1, y * 1.1), (torch.tensor(0), X))),
    "scan": ("scan", lambda: torch._higher_order_ops.scan(lambda c, y: (c + y, c * y), X[0].clone(), X)),
    "integer item": ("add", lambda: X + I[0].item()),
    "pool of no rows": ("_adaptive_avg_pool2d", lambda: F.adaptive_avg_pool2d(IMAGE, (0, 2))),
    "repeat_interleave": ("repeat_interleave index_select", lambda: X.repeat_interleave(torch.tensor([1, 2, 0, 3]), 0)),
    "fractional pool": ("fractional_max_pool2d", lambda: F.fractional_max_pool2d(
        IMAGE, 2, output_size=3, _random_samples=torch.full((2, 3, 2), 0.5))),
    "segments": ("segment_reduce", lambda: torch.segment_reduce(X, "sum", lengths=torch.tensor([1, 3]))),
    "Bessel": ("special_bessel_y0", lambda: torch.special.bessel_y0(X.abs() + 1)),
}  # fmt: skip


def ops_by_torch(function):
    """(results, the names of ops that torch computed)."""
    source._SHOWN.clear()
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        found = torch.compile(function, backend="hloom")()
    texts = [str(w.message) for w in caught if w.category is FallbackWarning]
    return found, {re.search(r"computes (?:aten\.)?(\w+)", text)[1] for text in texts}


@pytest.mark.parametrize("name", COMPILED)
def test_hloom_computes_all(name):
    torch._dynamo.config.capture_scalar_outputs = True
    try:
        torch.manual_seed(1)
        found, ops = ops_by_torch(COMPILED[name])
    finally:
        torch._dynamo.config.capture_scalar_outputs = False
    torch.manual_seed(1)
    with torch.no_grad():  # where torch has one op for an encoder's layer
        wanted = COMPILED[name]()
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)
    assert not ops


@pytest.mark.parametrize("name", BY_TORCH)
def test_torch_computes_some(name):
    names, function = BY_TORCH[name]
    config = torch._dynamo.config
    config.capture_scalar_outputs = config.capture_dynamic_output_shape_ops = True
    try:
        found, ops = ops_by_torch(function)
    finally:
        config.capture_scalar_outputs = config.capture_dynamic_output_shape_ops = False
    torch.testing.assert_close(found, function(), rtol=1e-4, atol=1e-5)
    assert ops == set(names.split())


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_images_at_other_sizes(mode):
    def f(x):
        return [
            F.interpolate(x, size=(3, 13), mode=mode, antialias=True),
            F.interpolate(x, scale_factor=1.7, mode=mode, antialias=True, align_corners=True),
            F.interpolate(x, size=(3, 13), mode=mode),
        ]

    rows = []
    for call in (f, torch.compile(f, backend="hloom")):
        x = IMAGE.clone().requires_grad_()
        found = call(x)
        (slope,) = torch.autograd.grad(sum((v * v).sum() for v in found), x)
        rows.append([*found, slope])
    torch.testing.assert_close(rows[1], rows[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD])
def test_steps_of_optimizers_on_lists(optimizer):
    options = {"momentum": 0.9} if optimizer is torch.optim.SGD else {}
    rows = []
    for through in (lambda step: step, lambda step: torch.compile(step, backend="hloom")):
        torch.manual_seed(0)
        p = nn.Parameter(torch.randn(3, 2))
        made = optimizer([p], lr=0.1, foreach=True, **options)
        step = through(made.step)
        for k in range(3):
            p.grad = torch.sin(3 * p.detach() + k)
            step()
        rows.append(p.detach())
    torch.testing.assert_close(rows[1], rows[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_values_have_no_variance(dtype):
    """Each row differs from its rounded sum over its count, which the variance must not take for a difference."""
    x = torch.tensor([7.5e10, 0.1, -3.3e-20, 1 / 3, 16777217.0], dtype=dtype)[:, None].expand(5, 300)

    def f(x):
        return x.var(1), torch.std_mean(x, 1)[0], F.layer_norm(x, (300,)), F.group_norm(x, 3), F.instance_norm(x[None])

    for found in torch.compile(f, backend="hloom")(x):
        assert not found.any()
