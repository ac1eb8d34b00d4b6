"""Calls of compiled graphs: memory, views, mutation, sizes, random numbers, threads, refusals."""

import gc
import resource
import threading

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'hloom[torch]'")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from hloom.bridges.torch import backend as backend_module  # noqa: E402
from hloom.bridges.torch import hloom  # noqa: E402


def compiled(function, **options):
    return torch.compile(function, backend=hloom, **options)


INPUTS = {
    "contiguous": lambda: torch.randn(3, 4),
    "transposed": lambda: torch.randn(4, 3).t(),
    "with gaps": lambda: torch.randn(6, 8)[::2, ::2],
    "expanded": lambda: torch.randn(4).expand(3, 4),
}


@pytest.mark.parametrize("name", INPUTS)
def test_views_and_layouts_are_those_of_torch(name):
    def f(x, y):
        z = x * 2
        return z.t(), z, x[1:], y.expand(3, 4), z[:, 1], (z + 1).permute(1, 0), x, z.sum(0, keepdim=True)

    x, y = INPUTS[name](), torch.randn(4)
    for found, wanted in zip(compiled(f)(x, y), f(x, y), strict=True):
        torch.testing.assert_close(found, wanted)
        assert found.stride() == wanted.stride()


@pytest.mark.parametrize("name", ["contiguous", "transposed", "with gaps"])
def test_arguments_are_changed_in_place(name):
    def f(x, y):
        x.add_(y)
        x.mul_(2)
        return x.sum()

    x, y = INPUTS[name](), torch.randn(3, 4)
    other, memory = x.clone(), x.data_ptr()
    torch.testing.assert_close(compiled(f)(x, y), f(other, y))
    torch.testing.assert_close(x, other)
    assert x.data_ptr() == memory


def test_an_argument_that_is_only_written():
    def f(x):
        x.copy_(torch.arange(4.0))

    x = torch.zeros(4)
    compiled(f)(x)
    assert x.tolist() == [0, 1, 2, 3]


def test_two_arguments_that_exchange_their_elements():
    def f(x, y):
        z = x.clone()
        x.copy_(y)
        y.copy_(z)

    x, y = torch.arange(5.0), torch.arange(5.0) + 10
    compiled(f)(x, y)
    assert x.tolist() == [10, 11, 12, 13, 14]
    assert y.tolist() == [0, 1, 2, 3, 4]


def test_open_sizes_are_not_compiled_forever():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    function = compiled(model)
    for n in (3, 5, 7, 9, 5, 3):
        x = torch.randn(n, 8, requires_grad=True)
        torch._dynamo.mark_dynamic(x, 0)
        found = function(x)
        torch.testing.assert_close(found, model(x))
        (slope,) = torch.autograd.grad(found.sum(), x)
        torch.testing.assert_close(slope, torch.autograd.grad(model(x).sum(), x)[0])


def test_sizes_in_computations():
    def f(x):
        return (x.reshape(-1, x.shape[0] * 2) * x.shape[1]).sum(1) + torch.arange(x.shape[1] // 2)

    function = compiled(f, dynamic=True)
    for n in (3, 4, 5):
        x = torch.randn(n, 8)
        torch.testing.assert_close(function(x), f(x))


def test_random_numbers_come_from_torchs_generator():
    f = compiled(lambda x: F.dropout(x, 0.25))
    x = torch.ones(4000, requires_grad=True)
    torch.manual_seed(1)
    first = f(x)
    torch.manual_seed(1)
    again, other = f(x), f(x)
    assert (first == again).all()
    assert not (first == other).all()
    assert set(first.tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert 850 < (first == 0).sum() < 1150
    first.sum().backward()
    torch.testing.assert_close(x.grad, first)


def test_each_random_op_draws_numbers_of_its_own():
    a, b = compiled(lambda: (torch.rand(100), torch.rand(100)))()
    assert not (a == b).any()


def test_recomputed_random_ops_repeat_the_numbers_of_the_forward():
    f = compiled(lambda x: checkpoint(lambda x: F.dropout(torch.sin(x), 0.5), x, use_reentrant=False))
    x = torch.randn(400, 8, requires_grad=True)
    found = f(x)
    found.sum().backward()
    torch.testing.assert_close(x.grad, (found != 0) * 2 * torch.cos(x))


def test_graph_breaks_are_left_to_torch():
    def f(x):
        y = x * 2
        return y + 1 if y.sum() > 0 else y - 1

    function = compiled(f)
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(function(x), f(x))


def test_integers_and_booleans():
    def f(x, y):
        return x + y, x // 3, x % 3, x & y, x > y, x.sum(), x.float().mean(), torch.where(x > 0, x, y), x.argmax(), ~x

    x, y = torch.randint(-5, 9, (7,)), torch.randint(-5, 9, (7,))
    for found, wanted in zip(compiled(f)(x, y), f(x, y), strict=True):
        torch.testing.assert_close(found, wanted)


def test_threads_call_one_function():
    model, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)), torch.randn(16, 64)
    function = compiled(model)
    wrong = []

    def run():
        with torch.no_grad():
            for _ in range(200):
                if not torch.allclose(function(x), wanted, atol=1e-5):
                    wrong.append(1)

    with torch.no_grad():
        wanted = model(x)
        function(x)
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_is_flat_over_many_calls():
    f = compiled(lambda x: (x * 2 + 1).sum(0))
    x = torch.randn(100, 10)
    with torch.no_grad():
        for _ in range(2000):
            f(x)
        gc.collect()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(100_000):
            f(x)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4096  # KiB


def test_another_version_of_torch_is_warned_of_once(monkeypatch):
    monkeypatch.setattr(backend_module, "TESTED", "1.0")
    backend_module._warn_of_version.cache_clear()
    with pytest.warns(UserWarning, match=r"tested with torch 1\.0"):
        compiled(lambda x: x + 1)(torch.ones(2))
    backend_module._warn_of_version.cache_clear()
