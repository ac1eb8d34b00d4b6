"""Whole programs planned for CUDA and run launch by launch in the lock-step simulator, against the reference."""

import numpy as np
import pytest
from cuda_plans import check, planned

import hloom.nn as hnn
import hloom.numpy as hnp
from hloom import grad, lax
from hloom.compiler.schedule.steps import BranchStep, CopyStep, HostStep, JumpStep, SwapStep
from hloom.compiler.targets.cuda.target import CudaTarget, NoCudaKernelError, has_cuda_kernel

RANDOM = np.random.default_rng(0)


def floats(*dims, dtype=np.float32):
    return RANDOM.standard_normal(dims).astype(dtype)


def kernels(plan) -> list[str]:
    return [step.launch.source.name for step in plan.kernels()]


# --- programs -----------------------------------------------------------------------------------------------------


def mlp(w1, b1, w2, x, y):
    return hnp.mean((hnp.tanh(x @ w1 + b1) @ w2 - y) ** 2)


PROGRAMS = {
    "elementwise": (lambda x, y: hnp.tanh(x) * y + hnp.where(x > 0, x, -y), (floats(9, 40), floats(9, 40))),
    "softmax": (lambda x: hnn.softmax(x, axis=-1), (floats(6, 50),)),
    "normalized": (lambda x: (x - x.mean(0)) / (x.std(0) + 1e-3), (floats(33, 12),)),
    "gradient": (grad(mlp, argnums=(0, 1, 2)), (floats(6, 9), floats(9), floats(9, 4), floats(8, 6), floats(8, 4))),
    "batched dots": (lambda x, y: hnp.einsum("bij,bjk->bik", x, y) * 0.5, (floats(3, 5, 7), floats(3, 7, 6))),
    "attention": (
        lambda q, k, v: hnn.softmax(q @ k.T * 0.35, axis=-1) @ v, (floats(10, 8), floats(12, 8), floats(12, 6)),
    ),
    "transposes": (lambda x: hnp.transpose(x, (2, 0, 1)) + 1.0, (floats(5, 35, 34),)),
    "integers": (lambda x: (x // 3) % 5 + x.max(), (RANDOM.integers(-50, 50, (7, 9)).astype(np.int32),)),
    "complex": (lambda x, y: (x @ y).conj() * 2, (floats(4, 5) + 1j * floats(4, 5), floats(5, 3) + 0j)),
    "narrow": (lambda x: (x * 2).sum(1), (floats(5, 40).astype("float16"),)),
    "convolution": (
        lambda x, w: lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        (floats(2, 7, 6, 3), floats(3, 3, 3, 4)),
    ),
    "a grouped convolution": (
        lambda x, w: lax.conv_general_dilated(
            x, w, (1, 1), [(1, 2), (0, 1)], lhs_dilation=(2, 1), rhs_dilation=(1, 2), feature_group_count=2,
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
        ),
        (floats(2, 4, 5, 6), floats(6, 2, 2, 3)),
    ),
    "gathered": (lambda x, i: x[i] + x[i, ::-1], (floats(9, 5), np.array([3, 0, 8, 3]))),
    "padded": (lambda x: hnp.concatenate([hnp.pad(x, 2), hnp.pad(x, 2)[::-1]], 1), (floats(4, 6),)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    function, arrays = PROGRAMS[name]
    check(function, *arrays)


def test_loops_and_branches_are_steps():
    def function(x, n):
        def body(state):
            k, y = state
            return k + 1, lax.cond(k % 2 == 0, lambda y: hnp.sin(y) + 1, lambda y: y * y, y)

        return lax.while_loop(lambda state: state[0] < n, body, (0, x))[1]

    plan = check(function, floats(40), np.int32(5))
    assert {BranchStep, JumpStep} <= {type(step) for step in plan.steps}, "a loop of the GPU is no kernel"


def test_scans_carry_their_state():
    def function(x):
        return lax.scan(lambda c, row: (c * 0.5 + row, c.sum()), hnp.zeros(6, hnp.float32), x)

    check(function, floats(7, 6))


def test_the_state_of_a_loop_stays_where_it_is():
    """A large state whose next value is not computed in place is copied: graphs have their addresses."""
    plan = check(lambda x: lax.fori_loop(0, 3, lambda k, x: x + x[::-1], x), floats(200))
    kinds = {type(step) for step in plan.steps}
    assert CopyStep in kinds and SwapStep not in kinds


def test_random_numbers_are_those_of_the_cpu():
    import hloom as hl

    def function(x):
        return hl.random.normal(hl.random.key(3), (6, 5)) + x

    check(function, floats(6, 5))


def test_an_update_in_place_of_a_donated_argument():
    from cuda_plans import simulate

    x = floats(20)
    plan, wanted = planned(lambda x: x.at[3].set(2.0) * 1.5, x, donated=frozenset({0}))
    assert plan.donated == {0: 0}
    np.testing.assert_allclose(simulate(plan, [x])[0], wanted[0])


# --- what there is a kernel for -----------------------------------------------------------------------------------


def test_an_op_without_a_kernel_names_itself_and_the_line():
    with pytest.raises(NoCudaKernelError) as error:
        planned(lambda x: hnp.linalg.eigvals(x), floats(4, 4))
    text = str(error.value)
    assert "no CUDA kernel for" in text and "f32[4,4]" in text and "test_cuda_plan.py" in text
    assert not has_cuda_kernel(error.value.instruction)


def test_a_callback_stays_a_step_of_the_host():
    import hloom as hl

    def function(x):
        return hl.pure_callback(lambda a: a + 1, hl.ShapeDtypeStruct(x.shape, x.dtype), x * 2)

    plan, _ = planned(function, floats(8))
    assert [type(s) for s in plan.steps if isinstance(s, HostStep)] == [HostStep]


def test_an_architecture_without_a_machine_is_named():
    from hloom.ir.errors import AttributeValueError

    with pytest.raises(AttributeValueError, match="sm_90"):
        CudaTarget("sm_91")
    assert CudaTarget("sm_90a").machine.capability == (9, 0)
