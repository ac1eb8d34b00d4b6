"""Kernels with faults: each is found, while the program is compiled or by a check of the kernel, and the process lives.

Faults are made in the text of a plan's kernels, or in what the plan says of the size of an array.
"""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.backends.compile import optimized_plan
from hloom.backends.cpu import bounds
from hloom.backends.cpu.driver import driver
from hloom.backends.cpu.program import Layout, program_of
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.schedule.steps import KernelStep
from hloom.compiler.targets.cpu.llvm_emitter import checks
from hloom.errors import InternalError, SettingError
from hloom.ir.records import replace
from hloom.runtime import host_steps
from hloom.runtime.program import Executable


def plan_of(function, arguments):
    return optimized_plan(hl.jit(function).lower(*arguments).module)[1]


def with_kernels(plan, change, shrink: dict[str, int] | None = None):
    """The plan with other kernels, and arrays that are smaller by so many bytes."""
    changes = 0

    def source(one: KernelSource) -> KernelSource:
        parts = tuple([(name, source(part)) for name, part in one.parts])
        return KernelSource(one.name, change(one.text), one.params, parts=parts)

    def step(one):
        nonlocal changes
        if not isinstance(one, KernelStep):
            return one
        arguments = [source(a) if isinstance(a, KernelSource) else a for a in one.launch.arguments]
        launch = replace(one.launch, source=source(one.launch.source), arguments=arguments)
        extents = {name: n - (shrink or {}).get(name, 0) for name, n in one.extents.items()}
        made = replace(one, launch=launch, extents=extents)
        changes += made != one
        return made

    steps = [step(one) for one in plan.steps]
    assert changes, "the fault is in no kernel"
    return replace(plan, steps=steps)


def executable(plan, level: str = "1") -> Executable:
    with hl.config(check_bounds=level):
        return Executable(program_of(plan, Layout()), driver())


@pytest.fixture
def nothing_is_proved(monkeypatch):
    """Every access is checked when it is made."""
    known = bounds.accesses_of

    def found(launch, extents):
        all_of = known(launch, extents)
        return {source: [replace(a, status="unproved") for a in of] for source, of in all_of.items()}

    monkeypatch.setattr(bounds, "accesses_of", found)
    monkeypatch.setattr(bounds, "_known", {})


def add(x, y):
    return x + y * 2


def image(x, w):
    return lax.conv(x, w, (1, 1), "SAME")


def ones(*shape, dtype="f4"):
    return np.ones(shape, dtype)


LONG = ones(2_000_003)  # several chunks
# function, arguments, text, its replacement, bytes by which arrays are smaller, what the error says
FAULTS = {
    "a loop that is too long": (add, (ones(9, 7), ones(7)), "range(n1)", "range(n1 + 1)", {}, "i1]"),
    "an index that is too large": (add, (ones(50), ones(50)), "out0[i0]", "out0[i0 + 1]", {}, "out0[i0 + 1]"),
    "an index that is negative": (add, (ones(50), ones(50)), "in0[i0]", "in0[i0 - 1]", {}, "in0[i0 - 1]"),
    "an array that is shorter": (add, (ones(50), ones(50)), "", "", {"in1": 4}, "in1[i0]"),
    "in threads": (add, (LONG, LONG), "out0[i0]", "out0[i0 + 1]", {}, "out0[i0 + 1]"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_faults_that_are_found_while_compiling(fault):
    function, arguments, old, new, shrink, where = fault
    plan = with_kernels(plan_of(function, arguments), lambda text: text.replace(old, new), shrink)
    with pytest.raises(InternalError) as caught:
        executable(plan)
    text = str(caught.value)
    assert where in text and "elements, the index is from" in text and "of the kernel" not in text
    assert "return x + y * 2" in text  # the user's line
    assert "report the program" in text


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_faults_that_checks_find(fault, nothing_is_proved):
    function, arguments, old, new, shrink, where = fault
    run = executable(with_kernels(plan_of(function, arguments), lambda text: text.replace(old, new), shrink))
    for _ in range(2):  # the program can be called again
        with pytest.raises(InternalError) as caught:
            run(list(arguments))
        text = str(caught.value)
        assert where in text and "of an array of the size" in text and "return x + y * 2" in text
    with hl.config(check_bounds="1"):
        np.testing.assert_array_equal(hl.jit(add)(ones(5), ones(5)), np.full(5, 3, "f4"))


def test_what_data_decide(nothing_is_proved):
    x = np.random.default_rng(0).random((3, 3000)).astype("f4")
    with hl.config(library_calls=False):
        plan = plan_of(lambda x: hnp.sort(x, axis=1), (x,))
    run = executable(with_kernels(plan, str, {"work": 8000}))
    with pytest.raises(InternalError, match=r"work\["):
        run([x])


SCRATCH = {
    "convolution": (image, (ones(8, 512, 7, 7), ones(8, 512, 3, 3)), "t_left"),
    "product": (hnp.matmul, (ones(70, 90), ones(90, 71)), "edge"),
    "product and what follows": (lambda x, y: hnp.tanh(x @ y), (ones(70, 90), ones(90, 71)), "t_sums"),
    "transform": (hnp.fft.rfft, (ones(30, 48),), "a"),
}


@pytest.mark.parametrize(("function", "arguments", "name"), SCRATCH.values(), ids=SCRATCH)
def test_scratch_memory_that_is_too_small(function, arguments, name):
    def smaller(text: str) -> str:
        lines = []
        for line in text.split("\n"):
            head, found, tail = line.partition(f" {name} = scratch_")
            lines.append(f"{head}{found}{tail.split('(')[0]}(8)" if found else line)
        return "\n".join(lines)

    plan = plan_of(function, arguments)
    executable(plan)(list(arguments))
    with pytest.raises(InternalError, match="outside of its arrays"):
        executable(with_kernels(plan, smaller))(list(arguments))


def test_a_convolution_that_overran_its_scratch_memory():
    """Of batch 8, 512 channels and 7 x 7: with memory on the stack, the process ended."""
    arguments = ones(8, 512, 7, 7), ones(512, 512, 3, 3)
    with hl.config(check_bounds="all"):
        found = hl.jit(image)(*arguments)
    np.testing.assert_array_equal(found, hl.jit(lambda x, w: image(x, w))(*arguments))


def test_proofs_hold_where_all_accesses_are_checked():
    x, y = (np.random.default_rng(0).random(s).astype("f4") for s in ((40, 33), (33, 50)))

    def function(x, y):
        z = hnp.tanh(x @ y)
        return z.sum(1), hnp.sort(z, axis=1), hnp.cumsum(z, 0), z[hnp.argmax(z, axis=0)], hnp.linalg.qr(z)[1]

    expected = hl.jit(function)(x, y)
    for level in ("1", "all"):
        with hl.config(check_bounds=level):
            made = hl.jit(lambda x, y: function(x, y))(x, y)
        for one, other in zip(made, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5)


def test_open_sizes():
    rows = hl.Dim("n", min=2)
    with hl.config(check_bounds="1"):
        made = hl.jit(lambda x: hnp.tanh(x).sum(1) + 1).lower(hl.ShapeDtypeStruct((rows, 5), "float32")).compile()
        for n in (3, 50):
            np.testing.assert_allclose(made(ones(n, 5)), np.tanh(ones(n, 5)).sum(1) + 1, rtol=1e-6)


def test_values():
    with pytest.raises(SettingError, match="'0', '1' or 'all'"):
        hl.config.check_bounds = "2"
    with hl.config(check_bounds=True):
        assert hl.config.check_bounds == "1"


def test_words_of_a_state():
    assert checks.RECORD == host_steps.RECORD
