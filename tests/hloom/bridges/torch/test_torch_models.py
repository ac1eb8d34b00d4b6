"""Models under torch.compile(backend="hloom") against torch itself: results, gradients, buffers."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'hloom[torch]'")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from hloom.bridges.torch import hloom  # noqa: E402


class Images(nn.Module):
    """Convolutions with batch norm and pooling; a residual; groups."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.group = nn.Conv2d(8, 8, 3, stride=2, groups=4, padding=1), nn.GroupNorm(2, 8)
        self.up, self.last = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Linear(4, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 3, 2, 1)
        x = F.silu(self.group(self.second(x)))
        return self.last(F.avg_pool2d(self.up(x), 2, ceil_mode=True).mean((2, 3)))


class Block(nn.Module):
    def __init__(self, size=32, heads=4):
        super().__init__()
        self.heads, self.embedding = heads, nn.Embedding(20, size)
        self.mixed, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.norms = nn.ModuleList([nn.LayerNorm(size), nn.LayerNorm(size)])
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, tokens):
        x = self.embedding(tokens)
        batch, length, size = x.shape
        parts = self.mixed(self.norms[0](x)).view(batch, length, 3, self.heads, size // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, size))
        return x + self.mlp(self.norms[1](x))


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)), lambda: torch.randn(6, 8)),
    "images": (Images, lambda: torch.randn(2, 3, 17, 17)),
    "channels last": (
        lambda: Images().to(memory_format=torch.channels_last),
        lambda: torch.randn(2, 3, 17, 17).to(memory_format=torch.channels_last),
    ),
    "block": (Block, lambda: torch.randint(0, 20, (2, 9))),
}


@pytest.mark.parametrize("name", MODELS)
def test_training_gives_the_results_gradients_and_buffers_of_torch(name):
    make, inputs = MODELS[name]
    model, x = make(), inputs()
    other = copy.deepcopy(model)
    compiled = torch.compile(other, backend="hloom")
    for _ in range(2):
        wanted, found = model(x), compiled(x)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        assert found.stride() == wanted.stride()
        wanted.square().sum().backward()
        found.square().sum().backward()
    for (key, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-3, atol=1e-4, msg=lambda m, key=key: f"{key}: {m}")
    for p, q in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_inference(name):
    make, inputs = MODELS[name]
    model, x = make().eval(), inputs()
    compiled = torch.compile(model, backend=hloom)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


def test_recurrent_layers():
    torch._dynamo.config.allow_rnn = True
    try:
        model, x = nn.LSTM(5, 6, 2, batch_first=True), torch.randn(2, 4, 5)
        found, wanted = torch.compile(model, backend=hloom)(x)[0], model(x)[0]
    finally:
        torch._dynamo.config.allow_rnn = False
    torch.testing.assert_close(found, wanted)
    pairs = zip(*(torch.autograd.grad(y.sum(), model.parameters()) for y in (found, wanted)), strict=True)
    for p, q in pairs:
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


def test_cross_entropy_of_embeddings():
    embedding, last = nn.Embedding(20, 8, padding_idx=3), nn.Linear(8, 20)
    parameters = [*embedding.parameters(), *last.parameters()]
    tokens, labels = torch.randint(0, 20, (4, 6)), torch.randint(0, 20, (4, 6))
    labels[0, 0], tokens[1, 1] = -100, 3

    def loss():
        return F.cross_entropy(last(embedding(tokens)).flatten(0, 1), labels.flatten(), label_smoothing=0.1)

    found, wanted = torch.compile(loss, backend=hloom)(), loss()
    torch.testing.assert_close(found, wanted)
    pairs = zip(*(torch.autograd.grad(y, parameters) for y in (found, wanted)), strict=True)
    for p, q in pairs:
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True), lambda p: torch.optim.AdamW(p, 0.01)],
    ids=["sgd", "adamw"],
)
def test_optimizers_under_compile_change_parameters_in_place(make):
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    other, x = copy.deepcopy(model), torch.randn(5, 4)
    ours, theirs = make(other.parameters()), make(model.parameters())
    memory = [p.data_ptr() for p in other.parameters()]
    step = torch.compile(lambda: ours.step(), backend=hloom)
    for _ in range(3):
        for m, optimizer, update in ((model, theirs, theirs.step), (other, ours, step)):
            optimizer.zero_grad()
            m(x).square().mean().backward()
            update()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-5)
    assert [p.data_ptr() for p in other.parameters()] == memory


def test_autocast_in_bfloat16():
    model, x = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8), nn.LayerNorm(8)), torch.randn(4, 32)
    compiled = torch.compile(model, backend=hloom)
    with torch.autocast("cpu", torch.bfloat16):
        found, wanted = compiled(x), model(x)
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted, rtol=3e-2, atol=3e-2)
    weights = torch.randn(found.shape)
    ours, theirs = (torch.autograd.grad((y * weights).sum(), model.parameters()) for y in (found, wanted))
    for p, q in zip(ours, theirs, strict=True):
        assert (p - q).norm() < 0.02 * q.norm()


@pytest.mark.parametrize("shared", [4, 2, 1], ids=["keys of each head", "keys of groups", "keys of all"])
@pytest.mark.parametrize("kind", ["booleans", "numbers", "of each head", "causal"])
def test_attention_with_masks(kind, shared):
    """A row that a mask hides all of has weights of zero and no gradient."""
    parts = [torch.randn(2, heads, 5, 8, requires_grad=True) for heads in (4, shared, shared)]
    mask = torch.rand(2, 1, 5, 5) > 0.4
    mask[0, 0, 2] = False
    options = {
        "booleans": {"attn_mask": mask},
        "numbers": {"attn_mask": torch.randn(2, 1, 5, 5).masked_fill(~mask, -torch.inf), "scale": 0.3},
        "of each head": {"attn_mask": torch.randn(2, 4, 5, 5)},
        "causal": {"is_causal": True},
    }[kind]

    def f(query, key, value):
        return F.scaled_dot_product_attention(query, key, value, enable_gqa=shared < 4, **options)

    found, wanted = torch.compile(f, backend=hloom)(*parts), f(*parts)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    ours, theirs = (torch.autograd.grad(y.square().sum(), parts) for y in (found, wanted))
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
