"""Sizes beyond memory, ranks beyond NumPy's, trees too deep, files that are missing, calls with wrong arguments: errors
of hloom with their four parts."""

from __future__ import annotations

import functools
import re
import subprocess
import sys

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import errors, lax

ABSENT = "/nowhere/absent.npy"
HUGE, BEYOND = 1 << 55, 1 << 62  # elements


def nested(depth: int, container=list):
    tree = 1.0
    for _ in range(depth):
        tree = container([tree]) if container is not dict else {"a": tree}
    return tree


def complete(error: errors.HloomError) -> None:
    assert error.asked and error.found and error.repair, str(error)
    assert error.source is not None and error.source.file == __file__, str(error)


@pytest.mark.parametrize(
    "call",
    [
        lambda: hnp.zeros((HUGE, 2)),
        lambda: hnp.ones(BEYOND),
        lambda: hnp.full((BEYOND, 4), 2.0),
        lambda: hnp.arange(HUGE),
        lambda: hnp.linspace(0, 1, HUGE),
        lambda: hnp.eye(1 << 45),
        lambda: hnp.outer(*[hnp.ones(1 << 23)] * 2) if sys.platform == "linux" else hnp.ones(HUGE),
        lambda: hnp.broadcast_to(hnp.ones(3), (HUGE, 3)) + 1,
        lambda: hnp.tile(hnp.ones(3), HUGE),
        lambda: hnp.pad(hnp.ones(3), HUGE),
        lambda: lax.iota("s32", HUGE),
        lambda: hl.nn.one_hot(hnp.arange(3), HUGE),
        lambda: hl.random.normal(hl.random.key(0), (HUGE,)),
        lambda: hl.random.normal(hl.random.key(0), (BEYOND,)),
        lambda: hl.jit(lambda: hnp.ones((BEYOND,)))(),
        lambda: hl.jit(lambda x: hnp.broadcast_to(x, (HUGE, 3)) + 1)(hnp.ones(3)),
        lambda: hl.jit(lambda x: hnp.sort(hnp.broadcast_to(x, (HUGE, 3)).reshape(-1))[:3])(hnp.ones(3)),
    ],
)
def test_sizes_beyond_memory(call):
    with pytest.raises(MemoryError) as caught:
        call()
    error = caught.value
    assert isinstance(error, errors.OutOfMemoryError)
    complete(error)
    assert re.search(r"bytes|[TPEZ]iB", error.found), error.found


def test_memory_is_usable_after_such_an_error():
    function = hl.jit(lambda x: hnp.broadcast_to(x, (HUGE,)) * 2)
    for _ in range(3):
        with pytest.raises(errors.OutOfMemoryError, match=r"f32\[36028797018963968\]"):
            function(hnp.ones(()))
    np.testing.assert_array_equal(hl.jit(lambda x: x * 2)(hnp.ones(3)), [2, 2, 2])


@pytest.mark.parametrize(
    "call",
    [
        lambda: hnp.ones((1,) * 100),
        lambda: hl.jit(lambda x: x.reshape((1,) * 100))(hnp.ones(1)),
        lambda: hl.jit(lambda x: hnp.broadcast_to(x, (1,) * 70) * 2)(hnp.ones(1)),
    ],
)
def test_too_many_dimensions(call):
    with pytest.raises(errors.HloomError, match="64") as caught:
        call()
    assert isinstance(caught.value, ValueError)
    complete(caught.value)


@pytest.mark.parametrize("container", [list, tuple, dict])
@pytest.mark.parametrize(
    "use",
    [
        lambda tree: hl.jit(lambda t: 1.0)(tree),
        lambda tree: hl.jit(lambda x: tree)(1.0),
        lambda tree: hl.grad(lambda t: 1.0)(tree),
        lambda tree: hl.vmap(lambda t: t)(tree),
        lambda tree: hl.tree.leaves(tree),
        lambda tree: hl.tree.structure(tree),
        lambda tree: hl.tree.map(lambda x: x, tree),
    ],
)
def test_trees_that_are_too_deep(use, container):
    with pytest.raises(errors.TreeDepthError) as caught:
        use(nested(5000, container))
    assert isinstance(caught.value, RecursionError)
    complete(caught.value)


def test_files_that_are_not_there():
    for call in (lambda: hnp.load(ABSENT), lambda: hnp.fromfile(ABSENT), lambda: hnp.save(ABSENT, hnp.ones(3))):
        with pytest.raises(FileNotFoundError) as caught:
            call()
        error = caught.value
        assert isinstance(error, errors.MissingFileError) and ABSENT in str(error)
        assert error.filename == ABSENT and error.errno == 2
        complete(error)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(OSError, match="directory") as caught:
        hnp.fromfile(tmp_path)
    assert isinstance(caught.value, errors.FileError)
    complete(caught.value)


@pytest.mark.parametrize(("content", "found"), [(None, "No such file"), (b"\xd8\x00\xff", "not text in UTF-8")])
def test_the_command_line_says_what_is_wrong_with_a_file(tmp_path, content, found):
    path = tmp_path / "program.hlo"
    if content is not None:
        path.write_bytes(content)
    run = subprocess.run([sys.executable, "-m", "hloom", "run", str(path)], capture_output=True, text=True)
    assert run.returncode == 2 and found in run.stderr and "found:" in run.stderr and "repair:" in run.stderr
    assert str(path) in run.stderr and "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: hl.jit(lambda x, y: x + y)(hnp.ones(3)), "'y'"),
        (lambda: hl.jit(lambda x: x)(1.0, 2.0), "2 were given"),
        (lambda: hl.jit(lambda x: x)(1.0, z=2.0), "'z'"),
        (lambda: hl.grad(lambda x, y: (x + y).sum())(hnp.ones(3)), "'y'"),
        (lambda: hl.vmap(lambda x, y: x + y)(hnp.ones(3)), "'y'"),
        (lambda: hl.jvp(lambda x, y: x + y, (1.0,), (1.0,)), "'y'"),
        (lambda: hl.eval_shape(lambda x, y: x, hnp.ones(3)), "'y'"),
        (lambda: hl.make_jaxpr(lambda x, y: x)(hnp.ones(3)), "'y'"),
        (lambda: hl.jit(functools.partial(lambda x, y, z: x, 1.0))(2.0), "'z'"),
    ],
)
def test_wrong_numbers_of_arguments(call, found):
    with pytest.raises(TypeError) as caught:
        call()
    assert isinstance(caught.value, errors.ArgumentError) and found in str(caught.value)
    complete(caught.value)


def test_a_wrong_call_inside_a_function_of_the_users_stays_as_it_is():
    def inner(a, b):
        return a

    with pytest.raises(TypeError) as caught:
        hl.jit(lambda x: inner(x))(1.0)
    assert not isinstance(caught.value, errors.HloomError)
