"""Linear algebra through the torch backend: values, derivatives and torch's own errors."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'hloom[torch]'")


def well(*dims):
    """Matrices far from singular ones."""
    return torch.randn(*dims) + 3 * torch.eye(dims[-1])


def positive(*dims):
    x = torch.randn(*dims)
    return x @ x.mT + torch.eye(dims[-1])


def check(function, *tensors, rtol=1e-3):
    """Values and derivatives of every tensor against torch's."""
    rows = []
    for call in (function, torch.compile(function, backend="hloom")):
        given = [t.detach().clone().as_strided(t.shape, t.stride()).requires_grad_(t.is_floating_point())
                 for t in tensors]  # fmt: skip
        found = call(*given)
        found = found if isinstance(found, tuple) else (found,)
        floats = [v for v in found if v.requires_grad]
        torch.manual_seed(1)
        sum((v * torch.randn_like(v)).sum() for v in floats).backward()
        rows.append(([v.detach() for v in found], [t.grad for t in given]))
    for wanted, result in zip(rows[0], rows[1], strict=True):
        torch.testing.assert_close(result, wanted, rtol=rtol, atol=rtol)


@pytest.mark.parametrize(
    "function",
    [
        torch.linalg.det, torch.linalg.slogdet, torch.linalg.inv, torch.linalg.qr, torch.linalg.pinv,
        torch.linalg.svdvals, torch.matrix_exp, torch.linalg.eigvalsh, lambda x: torch.linalg.matrix_norm(x, "nuc"),
        lambda x: torch.linalg.matrix_power(x, -2), lambda x: torch.linalg.lu_factor(x)[0],
        lambda x: torch.linalg.lu(x)[1:],
    ],
    ids="det slogdet inv qr pinv svdvals matrix_exp eigvalsh nuclear power lu_factor lu".split(),
)  # fmt: skip
@pytest.mark.parametrize("transposed", [False, True])
def test_functions_of_a_matrix(function, transposed):
    """The factors that a forward saves are those that torch's derivative wants, also of transposed matrices."""
    x = well(2, 4, 4)
    check(function, x.mT if transposed else x)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transposed", [False, True])
def test_solve(left, transposed):
    a, b = well(2, 3, 3), torch.randn(2, 3, 3)
    check(lambda a, b: torch.linalg.solve(a, b, left=left), a.mT if transposed else a, b)


def test_solve_for_a_vector():
    check(torch.linalg.solve, well(3, 3), torch.randn(3))


@pytest.mark.parametrize("upper", [True, False])
def test_triangular_systems(upper):
    a, b = well(2, 3, 3), torch.randn(2, 3, 2)
    check(lambda a, b: torch.linalg.solve_triangular(a, b, upper=upper), a, b)
    check(
        lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(a, upper=upper), upper=upper), positive(2, 3, 3), b
    )


@pytest.mark.parametrize("adjoint", [True, False])
@pytest.mark.parametrize("left", [True, False])
def test_lu_solve(left, adjoint):
    def solve(a, b):
        return torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b, left=left, adjoint=adjoint)

    check(solve, torch.randn(2, 4, 4) * 2, torch.randn(2, 4, 4), rtol=1e-2)


def test_normal_log_density():
    """As multivariate_normal computes it."""
    check(lambda c, x: torch.distributions.MultivariateNormal(torch.zeros(3), c, validate_args=False).log_prob(x),
          positive(3, 3), torch.randn(5, 3))  # fmt: skip


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (torch.linalg.cholesky, torch.diag(torch.tensor([1.0, 2.0, -1.0, 3.0]))),
        (torch.linalg.inv, torch.zeros(2, 3, 3)),
        (lambda x: torch.linalg.solve(x, x + 1), torch.zeros(3, 3)),
        (torch.cholesky, -torch.eye(3)),
    ],
    ids=["cholesky", "inv", "solve", "old cholesky"],
)
def test_errors_are_those_of_torch(function, x):
    with pytest.raises(torch.linalg.LinAlgError) as wanted:
        function(x)
    with pytest.raises(torch.linalg.LinAlgError) as found:
        torch.compile(function, backend="hloom")(x)
    assert str(found.value) == str(wanted.value)


def test_info_names_the_first_minor_that_is_not_positive():
    x = torch.stack([torch.eye(3), torch.diag(torch.tensor([1.0, -1.0, 2.0])), -torch.eye(3)])
    function = torch.compile(lambda x: torch.linalg.cholesky_ex(x)[1], backend="hloom")
    assert function(x).tolist() == [0, 2, 1]
