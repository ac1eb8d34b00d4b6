"""Tensors that a forward saves for its derivative lie as they are computed; pooling's derivatives by phases."""

import copy
import itertools

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'hloom[torch]'")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from hloom.bridges.torch import calls  # noqa: E402


class Layers(nn.Module):
    """What stands between convolutions of an image network; the first result is saved, too, and the last is a view."""

    def __init__(self, features=16):
        super().__init__()
        self.first = nn.Conv2d(3, features, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(features)
        self.alone = nn.Conv2d(features, features, 5, 2, 2, groups=features)
        self.second = nn.Conv2d(features, 2 * features, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * features, features, 2, 2)
        self.last = nn.Conv2d(2 * features, features, 3, padding=1)

    def forward(self, x):
        y = F.relu(self.norm(self.first(x)))
        z = self.up(self.second(F.hardswish(self.alone(F.max_pool2d(y, 3, 1, 1)))))
        z = self.last(torch.cat([y, z], 1))
        return y, z, z[:, 1:3].flatten(2)


@pytest.fixture
def programs(monkeypatch):
    """The programs that are compiled in a test."""
    found = []

    class Noted(calls.Program):
        def __init__(self, translation, *given, **options):
            super().__init__(translation, *given, **options)
            found.append(self)

    monkeypatch.setattr(calls, "Program", Noted)
    return found


def compare(model, x):
    other, own = copy.deepcopy(model), x.detach().clone().requires_grad_()
    compiled = torch.compile(other, backend="hloom")
    x = x.detach().clone().requires_grad_()
    for _ in range(2):
        wanted, found = model(x), compiled(own)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
            assert a.stride() == b.stride()
        sum(v.square().sum() for v in wanted).backward()
        sum(v.square().sum() for v in found).backward()
    for p, q in zip([x, *model.parameters()], [own, *other.parameters()], strict=True):
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-3, atol=1e-3 * float(p.grad.abs().max()))
        assert q.grad.stride() == p.grad.stride()
    for p, q in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-5)


def test_saved_tensors_of_convolutions_have_features_last(programs):
    compare(Layers(), torch.randn(2, 3, 16, 12))
    forward, backward = (p.translation for p in programs[-2:])
    images = [forward.new[k] for k in forward.free if len(forward.new[k].sizes) == 4]
    last = [t for t in images if t.strides[1] == 1 and t.sizes[1] > 1]
    assert len(last) > len(images) / 2
    # The backward graph is compiled for them: nothing is copied into another order at its door.
    assert {t.strides for t in last} <= {strides for _, strides in backward.layouts.values()}
    assert not any(r.number in forward.free for r in forward.results[:2] if isinstance(r, calls.New))


def test_channels_last_models(programs):
    last = torch.channels_last
    compare(Layers().to(memory_format=last), torch.randn(2, 3, 16, 12).to(memory_format=last))


def test_open_sizes_keep_torchs_order(programs):
    model = Layers()
    compiled = torch.compile(copy.deepcopy(model), backend="hloom", dynamic=True)
    for batch in (2, 3):
        x = torch.randn(batch, 3, 16, 12)
        for a, b in zip(compiled(x), model(x), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert not any(p.translation.free for p in programs)


POOLS = [
    (size, stride, padding, dilation, ceil)
    for size, stride, padding, dilation, ceil in itertools.product(
        (1, 2, 3), (1, 2, 3, 4), (0, 1), (1, 2), (False, True)
    )
    if 2 * padding <= size
]


@pytest.mark.parametrize("number", range(0, len(POOLS), 3))
def test_derivatives_of_pooling(number):
    size, stride, padding, dilation, ceil = POOLS[number]

    def pools(x):
        largest, where = F.max_pool2d(x, (size, 2), (stride, 2), (padding, 0), dilation, ceil, return_indices=True)
        mean = F.avg_pool2d(x, (2, size), (1, stride), (0, padding), ceil_mode=ceil)
        whole = F.max_pool3d(x, size, stride, padding, dilation, ceil)
        return largest, mean, whole, where

    x = torch.randn(2, 3, 9, 8, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    try:
        wanted = pools(x)
    except RuntimeError:
        pytest.skip("torch refuses these sizes")
    found = torch.compile(pools, backend="hloom")(y)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)
    weights = [torch.randn_like(v) for v in wanted[:3]]
    for results in (found, wanted):
        sum((v * w).sum() for v, w in zip(results, weights, strict=False)).backward()
    torch.testing.assert_close(y.grad, x.grad)


@pytest.mark.parametrize(("size", "stride", "dilation"), [(2, 1, 1), (3, 2, 1), (2, 3, 2), (3, 3, 1)])
def test_blocks_are_added_where_they_overlap(size, stride, dilation):
    def there_and_back(x):
        blocks = F.unfold(x, size, dilation, 1, stride)
        return F.fold(blocks * blocks, (8, 9), size, dilation, 1, stride)

    x = torch.randn(2, 3, 8, 9)
    torch.testing.assert_close(torch.compile(there_and_back, backend="hloom")(x), there_and_back(x))
