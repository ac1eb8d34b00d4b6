"""Programs with ops that torch computes: they run, in as few parts as they need, and say which ops these are."""

import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'hloom[torch]'")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from hloom.bridges.torch import calls, hloom  # noqa: E402
from hloom.bridges.torch.parts import Parts  # noqa: E402
from hloom.bridges.torch.table import RULES, Rule  # noqa: E402
from hloom.errors import FallbackWarning  # noqa: E402
from hloom.ir import source  # noqa: E402


@pytest.fixture
def made(monkeypatch):
    """The graphs that were cut."""
    source._SHOWN.clear()
    found = []

    class Noted(Parts):
        def __init__(self, *args):
            super().__init__(*args)
            found.append(self)

    monkeypatch.setattr(calls, "Parts", Noted)
    return found


def compiled(function, **options):
    return torch.compile(function, backend=hloom, **options)


@torch.library.custom_op("hloom_test::turned", mutates_args=())
def turned(x: torch.Tensor, by: float) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy()[::-1].copy()) * by


@turned.register_fake
def _(x, by):
    return torch.empty_like(x)


turned.register_autograd(lambda ctx, g: (turned(g, ctx.by), None),
                         setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]))  # fmt: skip


@torch.library.custom_op("hloom_test::doubled_", mutates_args=("x",))
def doubled_(x: torch.Tensor) -> None:
    x.mul_(2)


def test_two_ops_and_their_lines(made):
    def f(x):
        y = torch.special.airy_ai(x * 2)
        return y + torch.special.bessel_y0(x)

    x = torch.rand(3, 3)
    with pytest.warns(FallbackWarning) as caught:
        found = compiled(f, fullgraph=True)(x)
    torch.testing.assert_close(found, f(x))
    texts = [str(w.message) for w in caught if w.category is FallbackWarning]
    assert len(texts) == 2
    for op, text in zip(("special_airy_ai", "special_bessel_y0"), texts, strict=True):
        assert f"aten.{op}.default" in text
        assert "test_torch_parts.py" in text
        assert "cost:" in text


def test_one_part_more_than_ops_in_a_row(made):
    def f(x, w):
        for _ in range(4):
            x = torch.tanh(torch.cummax(turned(x, 0.5) @ w, 0)[0]) + w.sum()
        return x

    x, w = torch.randn(4, 4), torch.randn(4, 4)
    with pytest.warns(FallbackWarning, match="turned"):
        found = compiled(f)(x, w)
    torch.testing.assert_close(found, f(x, w))
    (parts,) = made
    assert len(parts.steps) == 8  # the first op reads an argument


def test_derivatives_through_an_op_of_the_users(made):
    def f(x):
        return (turned(x.sin(), 3.0) * x).cos()

    x = torch.randn(5, requires_grad=True)
    with pytest.warns(FallbackWarning, match="turned"):
        found = compiled(f)(x)
        (slope,) = torch.autograd.grad(found.sum(), x)
    torch.testing.assert_close(found, f(x))
    torch.testing.assert_close(slope, torch.autograd.grad(f(x).sum(), x)[0])


@pytest.mark.filterwarnings("ignore::hloom.errors.FallbackWarning")
def test_an_op_of_the_users_that_changes_its_argument(made):
    def f(x, y):
        z = y + 1
        doubled_(z)
        doubled_(x)
        return x + z

    x, y = torch.arange(3.0), torch.arange(3.0)
    other = x.clone()
    torch.testing.assert_close(compiled(f)(x, y), f(other, y))
    torch.testing.assert_close(x, other)
    assert made


def test_what_a_rule_refuses_is_computed_too(made):
    def f(x):
        return torch.ops.aten.index.Tensor(x * 2, [x > 0]).sum() + 1

    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    try:
        with pytest.warns(FallbackWarning, match="known only at run time"):
            function = compiled(f)
            for x in (torch.tensor([1.0, -1.0, 2.0]), torch.tensor([-1.0, -1.0, 3.0])):
                torch.testing.assert_close(function(x), f(x))
    finally:
        torch._dynamo.config.capture_dynamic_output_shape_ops = False


def test_several_results_of_a_rule_that_refuses(made):
    def f(x, y):
        return F.scaled_dot_product_attention(x + 1, y, y, dropout_p=0.0, enable_gqa=True) * 2

    x, y = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8)
    torch.testing.assert_close(compiled(f)(x, y), f(x, y))
    assert not made
    op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default

    def refuse(*args, **kwargs):
        raise ValueError("not today")

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RULES, op, Rule(refuse))
        torch._dynamo.reset()
        with pytest.warns(FallbackWarning, match="rule raised ValueError: not today"):
            torch.testing.assert_close(compiled(f)(x, y), f(x, y))


@pytest.mark.filterwarnings("ignore::hloom.errors.FallbackWarning")
def test_open_sizes(made):
    def f(x, w):
        return (turned(x.reshape(-1, x.shape[0] * 2) @ w[: x.shape[0] * 2], 2.0) * x.shape[1]).sum(1)

    function, w = compiled(f, dynamic=True), torch.randn(20, 3)
    for n in (3, 4, 3):
        x = torch.randn(n, 8)
        torch.testing.assert_close(function(x, w), f(x, w))


@pytest.mark.filterwarnings("ignore::hloom.errors.FallbackWarning")
def test_dtypes_and_layouts_that_hloom_has_not(made):
    def f(x, s):
        return torch.quantize_per_tensor(x * 2, 0.1, 0, torch.qint8).dequantize() + torch.sparse.mm(s, x + 1)

    x, s = torch.randn(3, 3), torch.eye(3).to_sparse()
    torch.testing.assert_close(compiled(f)(x, s), f(x, s))


def test_a_layer_with_a_weight_norm_trains(made):
    torch.manual_seed(0)
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.Tanh())
    x = torch.randn(2, 4)
    compiled(model)(x).sum().backward()
    assert not made
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    torch.testing.assert_close(found, [p.grad for p in model.parameters()])


def test_a_warning_that_is_an_error_ends_nothing(made, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        assert compiled(lambda x: turned(x, 2.0))(torch.ones(2)).tolist() == [2.0, 2.0]
    assert "turned" in capsys.readouterr().err
