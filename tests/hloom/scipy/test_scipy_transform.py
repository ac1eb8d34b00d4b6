"""Rotations and their interpolation against SciPy's."""

import itertools

import numpy as np
import pytest
import scipy.spatial.transform as reference

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, ShapeError
from hloom.scipy.spatial.transform import Rotation, Slerp

RNG = np.random.default_rng(3)
QUATS = RNG.normal(size=(6, 4))
THEIRS = reference.Rotation.from_quat(QUATS)
ROTVECS = np.concatenate([RNG.normal(size=(4, 3)), RNG.normal(size=(2, 3)) * 1e-5, np.zeros((1, 3))])
SEQUENCES = ["".join(s) for s in itertools.product("xyz", repeat=3) if s[0] != s[1] and s[1] != s[2]]


@pytest.fixture(autouse=True)
def wide():
    with hl.config(enable_x64=True):
        yield


def same(rotation, theirs):
    np.testing.assert_allclose(rotation.as_matrix(), theirs.as_matrix(), atol=1e-12)


@pytest.mark.parametrize("name", ["as_matrix", "as_rotvec", "as_mrp", "magnitude"])
@pytest.mark.parametrize("which", [slice(None), 2])
def test_what_it_is_read_as(name, which):
    wanted = getattr(THEIRS[which], name)()
    np.testing.assert_allclose(getattr(Rotation.from_quat(QUATS[which]), name)(), wanted, atol=1e-12)


@pytest.mark.parametrize("name", ["matrix", "rotvec", "mrp"])
def test_what_it_is_made_from(name):
    given = getattr(THEIRS, f"as_{name}")()
    same(getattr(Rotation, f"from_{name}")(given), THEIRS)
    same(getattr(Rotation, f"from_{name}")(given[1]), THEIRS[1])


@pytest.mark.parametrize("degrees", [False, True])
def test_rotation_vectors_of_all_lengths(degrees):
    given = np.rad2deg(ROTVECS) if degrees else ROTVECS
    made = Rotation.from_rotvec(given, degrees)
    same(made, reference.Rotation.from_rotvec(ROTVECS))
    np.testing.assert_allclose(made.as_rotvec(degrees), given, atol=1e-13)


def test_half_turns_from_matrices():
    turns = reference.Rotation.from_rotvec(np.pi * np.concatenate([np.eye(3), np.eye(3)[::-1] * 0.5]))
    same(Rotation.from_matrix(turns.as_matrix()), turns)


@pytest.mark.parametrize("seq", [*SEQUENCES, *(s.upper() for s in SEQUENCES)])
def test_euler_angles(seq):
    np.testing.assert_allclose(Rotation.from_quat(QUATS).as_euler(seq), THEIRS.as_euler(seq), atol=1e-10)
    same(Rotation.from_euler(seq, THEIRS.as_euler(seq, degrees=True), degrees=True), THEIRS)


@pytest.mark.filterwarnings("ignore:Gimbal lock")
@pytest.mark.parametrize("seq", ["xyz", "XYZ", "zxz", "ZXZ", "yzx", "YXZ"])
@pytest.mark.parametrize("middle", [0.0, np.pi / 2, -np.pi / 2, np.pi])
def test_euler_angles_where_only_a_sum_is_known(seq, middle):
    turn = reference.Rotation.from_euler(seq, [0.3, middle, 0.5])
    angles = Rotation.from_quat(turn.as_quat()).as_euler(seq)
    np.testing.assert_allclose(reference.Rotation.from_euler(seq, angles).as_matrix(), turn.as_matrix(), atol=1e-6)


def test_one_and_two_axes():
    same(Rotation.from_euler("z", 90, degrees=True), reference.Rotation.from_euler("z", 90, degrees=True))
    same(Rotation.from_euler("z", [[1.0], [2.0]]), reference.Rotation.from_euler("z", [[1.0], [2.0]]))
    same(Rotation.from_euler("XZ", [1.0, 2.0]), reference.Rotation.from_euler("XZ", [1.0, 2.0]))


def test_composition_inverse_and_vectors():
    ours, other = Rotation.from_quat(QUATS), Rotation.from_quat(QUATS[::-1].copy())
    same(ours * other, THEIRS * THEIRS[::-1])
    same(ours.inv(), THEIRS.inv())
    vectors = RNG.normal(size=(6, 3))
    np.testing.assert_allclose(ours.apply(vectors), THEIRS.apply(vectors), atol=1e-12)
    np.testing.assert_allclose(ours.apply(vectors[0], inverse=True), THEIRS.apply(vectors[0], inverse=True), atol=1e-12)
    same(ours.mean(), THEIRS.mean())
    same(ours.mean(np.arange(6.0)), THEIRS.mean(np.arange(6.0)))
    same(Rotation.concatenate([ours, other]), reference.Rotation.concatenate([THEIRS, THEIRS[::-1]]))
    same(Rotation.identity(), reference.Rotation.identity())
    assert len(ours) == 6 and not ours.single and ours[1].single


def test_quaternions_of_one_sign():
    quats = np.concatenate([QUATS, [[-1.0, 0, 0, 0], [0, -1, 0, 0], [0, 1, -1, 0], [0, 0, -1, 0]]])
    theirs = reference.Rotation.from_quat(quats)
    np.testing.assert_allclose(
        Rotation.from_quat(quats).as_quat(canonical=True), theirs.as_quat(canonical=True), atol=1e-15
    )
    assert Rotation.from_quat(QUATS).as_quat(scalar_first=True)[0, 0] == Rotation.from_quat(QUATS).quat[0, 3]


def test_interpolation_in_a_compiled_function():
    times = np.array([0.0, 1, 2, 4, 7, 8])
    wanted = reference.Slerp(times, THEIRS)
    at = np.array([0.0, 0.5, 1, 3.3, 7.9, 8])
    found = hl.jit(lambda q, t: Slerp.init(times, Rotation.from_quat(q))(t))(QUATS, at)
    same(found, wanted(at))
    same(Slerp.init(times, Rotation.from_quat(QUATS))(2.5), wanted(2.5))


def test_gradients_are_finite_at_no_rotation():
    slope = hl.grad(lambda v: hnp.sum(Rotation.from_rotvec(v).as_rotvec() * hnp.arange(3.0)))(np.zeros(3))
    np.testing.assert_allclose(slope, np.arange(3.0), atol=1e-12)


def test_random_rotations_are_rotations():
    matrices = Rotation.random(hl.random.key(0), 5).as_matrix()
    np.testing.assert_allclose(matrices @ hnp.swapaxes(matrices, 1, 2), np.stack([np.eye(3)] * 5), atol=1e-12)


@pytest.mark.parametrize(
    "function, error",
    [
        (lambda: Rotation.from_euler("xyX", [1, 2, 3]), ArgumentError),
        (lambda: Rotation.from_euler("xx", [1, 2]), ArgumentError),
        (lambda: Rotation.from_euler("xyz", [1.0, 2.0]), ShapeError),
        (lambda: Rotation.identity().as_euler("xy"), ArgumentError),
        (lambda: Rotation.from_quat(QUATS).mean(np.ones(5)), ShapeError),
        (lambda: Slerp.init([0.0], Rotation.identity()), ArgumentError),
        (lambda: Slerp.init([0.0], Rotation.from_quat(QUATS)), ShapeError),
        (lambda: len(Rotation.identity()), TypeError),
    ],
)
def test_what_is_refused(function, error):
    with pytest.raises(error):
        function()
