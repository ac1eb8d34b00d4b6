"""Derivatives of linear algebra and the Fourier transform: modes against central differences and each other."""

from __future__ import annotations

import pytest
from derivative_cases import Case, check, normal
from linalg_cases import CASES

from hloom.ir.errors import DifferentiationError
from hloom.ir.ops.linalg.matrices import elements

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("case", CASES, ids=str)
def test_derivative(case):
    check(case.computation(), case.arguments(), tolerance=2e-5)


@pytest.mark.parametrize(
    "opcode, attributes, dims",
    [
        ("qr", {"full_matrices": True}, (4, 3)),
        ("svd", {"full_matrices": True, "compute_uv": True}, (4, 3)),
        ("eig", {"left": True}, (3, 3)),
        ("schur", {"vectors": True}, (3, 3)),
        ("hessenberg", {}, (3, 3)),
        ("tridiagonal", {}, (3, 3)),
        ("geqrf", {}, (3, 3)),
    ],
)
def test_derivatives_that_do_not_exist_are_errors(opcode, attributes, dims):
    one = Case(opcode, lambda x: list(elements(x.op(opcode, **attributes))), ((normal, dims),))
    with pytest.raises(DifferentiationError) as caught:
        check(one.computation(), one.arguments())
    assert opcode in caught.value.asked and caught.value.found and caught.value.repair
