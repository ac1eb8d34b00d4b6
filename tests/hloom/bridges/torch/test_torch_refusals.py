"""What torch refuses in eager mode: indices and labels out of range, integer divisors of 0, dtypes, shapes."""

import threading
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'hloom[torch]'")
from torch.nn import functional as F  # noqa: E402

from hloom.bridges.torch import hloom  # noqa: E402
from hloom.errors import FallbackWarning  # noqa: E402

X, V = torch.arange(12.0).view(3, 4), torch.arange(4.0)
FAR, MINUS, ZERO, ONE = torch.tensor([9]), torch.tensor([-1]), torch.tensor([0]), torch.ones(1)

OF_VALUES = {
    "index": (lambda: X[:, FAR], "index 9 is out of bounds for dimension 1 with size 4"),
    "index from the end": (lambda: V[MINUS * 5], "index -5 is out of bounds for dimension 0 with size 4"),
    "gather": (lambda: X.gather(1, torch.tensor([[0, 9]])), "index 9 is out of bounds for dimension 1 with size 4"),
    "gather of a negative index": (lambda: V.gather(0, MINUS), "index -1 is out of bounds for dimension 0 with size 4"),
    "take": (lambda: torch.take(X, FAR * 2), "index 18 is out of bounds for dimension 0 with size 12"),
    "index_select of a negative index": (lambda: V.index_select(0, MINUS), "index out of range in self: -1"),
    "scatter": (lambda: V.scatter(0, FAR, 1.0), "index 9 is out of bounds"),
    "scatter_reduce": (lambda: V.scatter_reduce(0, MINUS, ONE, "sum"), "index -1 is out of bounds"),
    "index_put": (lambda: V.index_put((FAR,), ONE, accumulate=True), "index 9 is out of bounds"),
    "put": (lambda: V.put(MINUS * 5, ONE), "tried to access index -5 on a tensor of 4 elements"),
    "index_add": (lambda: V.index_add(0, MINUS, ONE), "index out of range in self: -1"),
    "index_copy": (lambda: V.index_copy(0, FAR, ONE), "index 9 is out of bounds for dimension 0 with size 4"),
    "index_fill": (lambda: V.index_fill(0, FAR, 1.0), "index 9 is out of bounds"),
    "embedding": (lambda: F.embedding(FAR, X), "index out of range in self: 9"),
    "bag": (lambda: F.embedding_bag(FAR, X, ZERO), r"takes value 9, not in the valid range \[0, 3\)"),
    "label": (lambda: F.cross_entropy(X, torch.tensor([0, 1, 9])), r"Target 9 is out of bounds\."),
    "negative label": (lambda: F.nll_loss(X, torch.tensor([0, 1, -1])), "Target -1 is out of bounds"),
    "label of a pixel": (lambda: F.cross_entropy(X[None, :, :, None], torch.full((1, 4, 1), 9)), "Target 9"),
    "probability": (lambda: F.binary_cross_entropy(X, X / 20), "all elements of input should be between 0 and 1"),
    "class": (lambda: F.one_hot(FAR, 4), r"Class values must be smaller than num_classes\."),
    "negative class": (lambda: F.one_hot(MINUS, 4) + 1, r"Class values must be non-negative\."),
    "assertion": (lambda: torch._assert_async(V[0], "more {than} 0") or V + 1, "more {than} 0"),
    "floor of a quotient": (lambda: FAR // ZERO, "ZeroDivisionError"),
    "remainder of a number": (lambda: 9 % ZERO, "ZeroDivisionError"),
    "rest": (lambda: torch.fmod(FAR, ZERO), "ZeroDivisionError"),
    "quotient without its fraction": (
        lambda: torch.div(FAR.to(torch.uint8), ZERO.to(torch.uint8), rounding_mode="trunc"),
        "ZeroDivisionError",
    ),
}
OF_DTYPES = {
    "linear": lambda: F.linear(torch.ones(2, 3, dtype=torch.float64), torch.ones(4, 3)),
    "product": lambda: torch.mm(torch.ones(2, 2, dtype=torch.int32), torch.ones(2, 2)),
    "products": lambda: X[None] @ torch.ones(1, 4, 2, dtype=torch.bfloat16),
    "convolution": lambda: F.conv1d(torch.ones(1, 2, 5, dtype=torch.float64), torch.ones(3, 2, 2)),
    "softmax": lambda: torch.softmax(FAR, 0),
    "activation": lambda: F.gelu(FAR),
    "comparison": lambda: torch.tensor([1j]) < torch.tensor([1j]),
    "loss": lambda: F.cross_entropy(torch.zeros(2, 3, dtype=torch.int64), torch.tensor([0, 1])),
    "shape": lambda: X.index_add(0, torch.tensor([0, 1]), torch.ones(2, 3)),
}


@pytest.mark.parametrize("name", OF_VALUES)
def test_values_that_torch_refuses(name):
    function, text = OF_VALUES[name]
    with pytest.raises((IndexError, RuntimeError)) as wanted:
        function()
    with pytest.raises(wanted.type, match=text) as found:
        torch.compile(function, backend=hloom)()
    assert "op:     aten." in str(found.value)
    assert "where:  " in str(found.value)
    assert "test_torch_refusals.py" in str(found.value)


@pytest.mark.parametrize("name", OF_DTYPES)
@pytest.mark.filterwarnings("ignore::hloom.errors.FallbackWarning")
def test_operands_that_torch_refuses(name):
    function = OF_DTYPES[name]
    with pytest.raises(RuntimeError) as wanted:
        function()
    with pytest.raises(RuntimeError) as found:  # where torch does not refuse them already when it captures the graph
        torch.compile(function, backend=hloom)()
    assert str(found.value) == str(wanted.value) or isinstance(found.value, torch._dynamo.exc.TorchRuntimeError)


@pytest.mark.filterwarnings("ignore::hloom.errors.FallbackWarning")
def test_large_operands_of_two_dtypes_are_refused():
    x, y = torch.ones(300, 300, dtype=torch.float64), torch.ones(300, 300)
    with pytest.raises(RuntimeError, match="same dtype"):
        torch.compile(lambda x, y: x @ y, backend=hloom)(x, y)


def test_what_torch_takes_is_computed():
    def f(i, j):
        z = X[j, torch.arange(3)]
        return V[i], V.index_add(0, j, torch.ones(3), alpha=2), V.index_fill(0, i, 3), V.index_copy(0, j, X[:, 0]), (
            i // j.clamp(1)), i % 3, torch.take(X, i), X.gather(1, j[:, None]), z, F.embedding(j, X)  # fmt: skip

    i, j = torch.tensor([-4, -1, 3]), torch.tensor([2, 0, 1])
    for found, wanted in zip(torch.compile(f, backend=hloom)(i, j), f(i, j), strict=True):
        torch.testing.assert_close(found, wanted)


def test_losses_of_class_numbers_and_their_gradients():
    x, weight = torch.randn(2, 5, 3), torch.rand(5)
    target = torch.tensor([[0, 4, -100], [2, 2, 1]])
    for reduction in ("mean", "none"):

        def f(x, reduction=reduction):
            return F.cross_entropy(x, target, weight, reduction=reduction, label_smoothing=0.1)

        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        wanted, found = f(a), torch.compile(f, backend=hloom)(b)
        torch.testing.assert_close(found, wanted)
        wanted.sum().backward()
        found.sum().backward()
        torch.testing.assert_close(b.grad, a.grad)


def test_the_first_failure_of_a_program_is_named_and_the_next_call_is_right():
    def f(x, i, j):
        y = x[i]
        return y[j] * 2

    function = torch.compile(f, backend=hloom)
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 4"):
        function(V, torch.tensor([7, 0]), torch.tensor([5]))
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 0 with size 2"):
        function(V, torch.tensor([3, 0]), torch.tensor([5]))
    assert function(V, torch.tensor([3, 0]), torch.tensor([0])).tolist() == [6]


def test_threads_read_flags_of_their_own():
    function = torch.compile(lambda x, i: x[i], backend=hloom)
    function(V, ZERO)
    wrong = []

    def run(index, fails):
        for _ in range(300):
            try:
                function(V, index)
                raised = False
            except IndexError:
                raised = True
            if raised != fails:
                wrong.append(fails)

    threads = [threading.Thread(target=run, args=(FAR if k % 2 else ZERO, bool(k % 2))) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_assertions_are_a_part_of_the_program():
    """Experts by a mask of classes: nothing is left to torch, gradients too."""

    def routed(x, gate, weights):
        shares, chosen = torch.topk(torch.softmax(x @ gate, -1), 2, -1)
        mask = F.one_hot(chosen, weights.shape[0])
        assert (shares > 0).all(), "no {shares}"
        each = torch.einsum("td,edf->tef", x, weights)
        return torch.einsum("tke,tk,tef->tf", mask.to(x.dtype), shares, each)

    operands = [torch.randn(*dims, requires_grad=True) for dims in ((5, 4), (4, 3), (3, 4, 2))]
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        found, wanted = torch.compile(routed, backend=hloom)(*operands), routed(*operands)
        torch.testing.assert_close(found, wanted)
        found, wanted = (torch.autograd.grad(y.sin().sum(), operands) for y in (found, wanted))
    torch.testing.assert_close(found, wanted)
