"""`mode` and `options` of torch.compile: those that have a meaning here, and the refusal of others."""

import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'hloom[torch]'")
from torch._dynamo.exc import BackendCompilerFailed  # noqa: E402

import hloom as hl  # noqa: E402
from hloom.backends.cpu import autotune  # noqa: E402
from hloom.errors import ArgumentError  # noqa: E402

TUNED = ({"mode": "max-autotune"}, {"mode": "max-autotune-no-cudagraphs"}, {"options": {"autotune": True}})
NOT_TUNED = ({"mode": "default"}, {"mode": "reduce-overhead"}, {"options": {}}, {"options": {"autotune": False}})


@pytest.fixture
def tuned(monkeypatch):
    """The arguments on which programs were timed."""
    found, tune = [], autotune.autotuned

    def noted(module, arrays, **options):
        found.append(arrays)
        return tune(module, arrays, **options)

    monkeypatch.setattr(autotune, "autotuned", noted)
    with hl.config(autotune_seconds=0.2):
        yield found


def step(x, weight, rows):
    x.add_(1)
    return torch.relu(x @ weight)[rows]


@pytest.mark.parametrize("given", [*TUNED, *NOT_TUNED])
def test_modes_compute_the_same_and_say_nothing(tuned, given):
    x, weight, rows = torch.randn(32, 64), torch.randn(64, 48), torch.tensor([31, 0, 7])
    changed = x.clone()
    wanted = step(x, weight, rows)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", UserWarning)
        found = torch.compile(step, backend="hloom", **given)(changed, weight, rows)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(changed, x)
    assert [[a.shape for a in arrays] for arrays in tuned] == [[(32, 64), (64, 48), (3,)]] * (given in TUNED)


def test_backward_programs_are_tuned_too_and_open_sizes_are_not(tuned):
    x = torch.randn(8, 4, requires_grad=True)
    torch.compile(lambda x: torch.sin(x).sum(), backend="hloom", mode="max-autotune")(x).backward()
    torch.testing.assert_close(x.grad, x.detach().cos())
    assert len(tuned) == 2
    open_sizes = torch.compile(torch.cos, backend="hloom", mode="max-autotune", dynamic=True)
    torch.testing.assert_close(open_sizes(x), x.cos())
    assert len(tuned) == 2


def test_without_fusion_there_is_a_kernel_for_each_op(capsys):
    def f(x):
        return torch.sin(x) * torch.cos(x)

    x, kernels = torch.randn(300, 40), []
    for options in ({}, {"fusion": False}):
        torch._dynamo.reset()
        with hl.config(debug=1), torch.no_grad():
            torch.testing.assert_close(torch.compile(f, backend="hloom", options=options)(x), f(x))
        kernels.append(int(capsys.readouterr().err.partition("torch_inference: ")[2].split()[0]))
    assert kernels == [1, 3]


@pytest.mark.parametrize(
    ("given", "valid"),
    [
        ({"mode": "fast"}, "the modes are 'default', 'reduce-overhead', 'max-autotune', 'max-autotune-no-cudagraphs'"),
        ({"options": {"epilogue_fusion": True}}, "the options are 'autotune' and 'fusion', True or False"),
        ({"options": {"fusion": 0}}, "the options are 'autotune' and 'fusion', True or False"),
    ],
)
def test_others_are_refused_at_the_users_line(given, valid):
    function = torch.compile(torch.sin, backend="hloom", **given)
    with pytest.raises(BackendCompilerFailed) as caught:
        function(torch.ones(2))  # here
    cause = caught.value.inner_exception
    assert isinstance(cause, ArgumentError) and valid in cause.found
    assert cause.source.code().endswith("# here") and str(next(iter(given))) in cause.asked
    assert str(cause) in str(caught.value)
