"""Derivatives of every op against finite differences, and reverse mode against forward mode, on the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from derivative_cases import CASES, ELSEWHERE, F64, STEPS, D, as_list, build, check, direction
from linalg_cases import CASES as LINALG

from hloom.compiler.transforms.jvp import jvp
from hloom.compiler.transforms.vjp import gradient
from hloom.ir.build import Builder, Value
from hloom.ir.errors import HloomError
from hloom.ir.interpret import evaluate
from hloom.ir.ops import OPS
from hloom.ir.ops.rules import zero_jvp
from hloom.ir.types import INEXACT, Shape


@pytest.mark.parametrize("given", CASES, ids=str)
def test_first_derivative(given):
    check(given.computation(), given.arguments())


@pytest.mark.parametrize("given", [c for c in CASES if c.smooth], ids=str)
def test_second_derivative(given):
    arguments, computation = given.arguments(), given.computation()
    wrt = [k for k, a in enumerate(arguments) if a.dtype in INEXACT]
    rng = np.random.default_rng(1)
    cotangents = [direction(rng, o) for o in as_list(evaluate(computation, arguments))]
    check(gradient(computation, wrt), [*arguments, *cotangents], 2e-5)


@pytest.mark.parametrize("opcode", STEPS)
def test_steps_have_no_tangent(opcode):
    x = np.random.default_rng(3).normal(size=D)
    computation = build(STEPS[opcode], [x])
    assert opcode in {i.opcode for i in computation.instructions}
    moved = [evaluate(computation, [x + e]) for e in (1e-9, -1e-9)]
    np.testing.assert_array_equal(moved[0], moved[1])
    made = jvp(computation, [True])
    np.testing.assert_array_equal(evaluate(made, [x, np.ones(D)])[1], np.zeros(D))
    assert not any("jvp" in i.made_by for i in made.instructions)


def test_stopped_gradient():
    x = np.array([1.5, -2.0])
    made = gradient(build(lambda x: x * x.op("copy", stop_gradient=True), [x]), [0])
    np.testing.assert_array_equal(evaluate(made, [x, np.ones(2)])[1], x)


def test_the_absolute_value_of_a_complex_zero_has_the_derivative_0():
    x = np.array([0, 3 - 4j, -1j])
    computation = build(lambda x: x.op("abs"), [x])
    np.testing.assert_allclose(evaluate(jvp(computation, [True]), [x, np.full(3, 1 + 2j)])[1], [0, -1, -2])
    np.testing.assert_allclose(np.abs(evaluate(gradient(computation, [0]), [x, np.ones(3)])[1]), [0, 1, 1])


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_convert_between_floats(dtype):
    """Tangents take the dtype of the values beside them, and cotangents come back in the operand's."""
    x, t = np.array([1.0, 2.5]), np.array([3.0, -4.0])
    for source, target in ((F64, dtype), (dtype, F64)):
        builder = Builder("f")
        value = Value(builder, builder.parameter(Shape(source, (2,))))
        computation = builder.finish((value.convert(target) * 2.0).instruction)
        made = jvp(computation, [True])
        assert made.outputs()[1].dtype == Shape(target).dtype
        source = Shape(source).dtype
        np.testing.assert_array_equal(evaluate(made, [x.astype(source), t.astype(source)])[1].astype(F64), 2 * t)
        made = gradient(computation, [0])
        assert made.outputs()[1].dtype == source
        cotangent = t.astype(Shape(target).dtype)
        np.testing.assert_array_equal(evaluate(made, [x.astype(source), cotangent])[1].astype(F64), 2 * t)


def test_every_op_with_a_derivative_has_a_case():
    covered = {c.opcode for c in [*CASES, *LINALG]} | set(STEPS) | ELSEWHERE
    for name, entry in OPS.items():
        if not entry.jvp:
            assert entry.jvp.reason, name
            continue
        if entry.jvp is zero_jvp and name not in covered:
            # Integers and booleans only: floats are refused, so there never is a tangent.
            for count in (1, 2):
                with pytest.raises(HloomError):
                    entry.infer([Shape(F64, D)] * count, {}, None)
            continue
        assert name in covered, f"'{name}' has a derivative and no case: add one to CASES"


def test_every_transpose_rule_is_used_by_a_case():
    used = set()
    for given in [*CASES, *LINALG]:
        computation = given.computation()
        made = jvp(computation, [p.dtype in INEXACT for p in computation.parameters])
        linear = set(made.parameters[len(computation.parameters) :])
        for instruction in made.instructions:
            if linear.intersection(instruction.operands):
                linear.add(instruction)
        used |= {i.opcode for i in linear}
    missing = {name for name, entry in OPS.items() if entry.transpose} - used - ELSEWHERE
    assert not missing, f"no case transposes {sorted(missing)}"
