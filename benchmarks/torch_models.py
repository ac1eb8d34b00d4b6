"""The networks that `benchmarks.bridges_torch` measures, written in torch.nn, with random weights."""

from __future__ import annotations

import itertools

import torch
from torch import nn
from torch.nn import functional

__all__ = ["MODELS"]


def normed(inputs, outputs, size, stride=1, groups=1, act=nn.ReLU):
    parts = [nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
             nn.BatchNorm2d(outputs)]  # fmt: skip
    return nn.Sequential(*parts, *([act()] if act else []))


class Basic(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(normed(inputs, outputs, 3, stride), normed(outputs, outputs, 3, act=None))
        same = stride == 1 and inputs == outputs
        self.short = nn.Identity() if same else normed(inputs, outputs, 1, stride, act=None)

    def forward(self, x):
        return functional.relu(self.body(x) + self.short(x))


def resnet18():
    parts, inputs = [normed(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        parts += [Basic(inputs, outputs, stride), Basic(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class Squeeze(nn.Module):
    def __init__(self, channels):
        super().__init__()
        inner = max(8, channels // 4 // 8 * 8)
        self.down, self.up = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)

    def forward(self, x):
        return x * functional.hardsigmoid(self.up(functional.relu(self.down(functional.adaptive_avg_pool2d(x, 1)))))


class Inverted(nn.Module):
    def __init__(self, inputs, inner, outputs, size, stride, squeeze, act):
        super().__init__()
        self.same = stride == 1 and inputs == outputs
        parts = [normed(inputs, inner, 1, act=act)] if inner != inputs else []
        parts.append(normed(inner, inner, size, stride, inner, act))
        parts += [Squeeze(inner)] if squeeze else []
        self.body = nn.Sequential(*parts, normed(inner, outputs, 1, act=None))

    def forward(self, x):
        return self.body(x) + x if self.same else self.body(x)


def mobilenet_v3():  # small
    rows = [(16, 16, 16, 3, 2, 1, nn.ReLU), (16, 72, 24, 3, 2, 0, nn.ReLU), (24, 88, 24, 3, 1, 0, nn.ReLU),
            (24, 96, 40, 5, 2, 1, nn.Hardswish), (40, 240, 40, 5, 1, 1, nn.Hardswish),
            (40, 240, 40, 5, 1, 1, nn.Hardswish), (40, 120, 48, 5, 1, 1, nn.Hardswish),
            (48, 144, 48, 5, 1, 1, nn.Hardswish), (48, 288, 96, 5, 2, 1, nn.Hardswish),
            (96, 576, 96, 5, 1, 1, nn.Hardswish), (96, 576, 96, 5, 1, 1, nn.Hardswish)]  # fmt: skip
    return nn.Sequential(
        normed(3, 16, 3, 2, act=nn.Hardswish), *(Inverted(*row) for row in rows),
        normed(96, 576, 1, act=nn.Hardswish), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(576, 1024),
        nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1024, 1000),
    )  # fmt: skip


class Layer(nn.Module):
    def __init__(self, size, heads, hidden):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(size), nn.LayerNorm(size)])
        self.mixed, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.mlp = nn.Sequential(nn.Linear(size, hidden), nn.GELU(), nn.Linear(hidden, size))

    def forward(self, x):
        batch, length, size = x.shape
        parts = self.mixed(self.norms[0](x)).view(batch, length, 3, self.heads, size // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(batch, length, size)
        x = x + self.out(mixed)
        return x + self.mlp(self.norms[1](x))


class Vision(nn.Module):
    def __init__(self, size=768, layers=12, heads=12):
        super().__init__()
        self.patches = nn.Conv2d(3, size, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, size))
        self.place = nn.Parameter(torch.randn(1, 197, size) * 0.02)
        self.layers = nn.Sequential(*(Layer(size, heads, 4 * size) for _ in range(layers)), nn.LayerNorm(size))
        self.head = nn.Linear(size, 1000)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.place
        return self.head(self.layers(x)[:, 0])


class Encoder(nn.Module):
    def __init__(self, words=8000, size=256, layers=4, heads=4, length=128):
        super().__init__()
        self.words, self.place = nn.Embedding(words, size), nn.Parameter(torch.randn(length, size) * 0.02)
        self.layers = nn.Sequential(*(Layer(size, heads, 4 * size) for _ in range(layers)), nn.LayerNorm(size))
        self.head = nn.Linear(size, words)

    def forward(self, x):
        return self.head(self.layers(self.words(x) + self.place))


class Recurrent(nn.Module):
    """An LSTM cell in a loop over time: torch's nn.LSTM is left out of graphs by torch.compile."""

    def __init__(self, words=4000, size=256):
        super().__init__()
        self.words, self.head = nn.Embedding(words, size), nn.Linear(size, words)
        self.cells = nn.ModuleList([nn.LSTMCell(size, size), nn.LSTMCell(size, size)])

    def forward(self, x):
        x = self.words(x)
        states = [(x.new_zeros(x.shape[0], x.shape[2]),) * 2 for _ in self.cells]
        outs = []
        for t in range(x.shape[1]):
            value = x[:, t]
            for k, cell in enumerate(self.cells):
                states[k] = cell(value, states[k])
                value = states[k][0]
            outs.append(value)
        return self.head(torch.stack(outs, 1))


class UNet(nn.Module):
    def __init__(self, width=16, depth=3):
        super().__init__()
        sizes = [width << k for k in range(depth + 1)]
        self.down = nn.ModuleList(self.two(a, b) for a, b in zip([3, *sizes], sizes, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in itertools.pairwise(sizes))
        self.join = nn.ModuleList(self.two(2 * a, a) for a in sizes[:-1])
        self.last = nn.Conv2d(width, 2, 1)

    def two(self, inputs, outputs):
        return nn.Sequential(normed(inputs, outputs, 3), normed(outputs, outputs, 3))

    def forward(self, x):
        kept = []
        for k, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if k else x)
            kept.append(x)
        for k in reversed(range(len(self.up))):
            x = self.join[k](torch.cat([kept[k], self.up[k](x)], 1))
        return self.last(x)


# name -> (a model, its input)
MODELS = {
    "ResNet-18": (resnet18, lambda: torch.randn(4, 3, 224, 224)),
    "MobileNetV3-small": (mobilenet_v3, lambda: torch.randn(4, 3, 224, 224)),
    "ViT-B/16": (Vision, lambda: torch.randn(2, 3, 224, 224)),
    "LSTM language model": (Recurrent, lambda: torch.randint(0, 4000, (16, 20))),
    "transformer encoder": (Encoder, lambda: torch.randint(0, 8000, (8, 128))),
    "U-Net": (UNet, lambda: torch.randn(2, 3, 128, 128)),
}
