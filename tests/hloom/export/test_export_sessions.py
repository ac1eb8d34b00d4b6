"""Programs of `hl.sessions` as libraries: the runs are functions, the variables are the state."""

import shutil

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import sessions
from hloom.commands.export import _feeds, _fetches
from hloom.errors import ArgumentError, ExportError, FetchError

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
Y = np.tanh(X[:, :3])


def program():
    made = sessions.Program("mlp")
    with made:
        x, y = sessions.placeholder("x", [None, 4]), sessions.placeholder("y", [None, 3])
        w = sessions.variable("w", 0.1 * hl.random.normal(hl.random.key(0), (4, 3)))
        b = sessions.variable("b", hnp.zeros(3))
        out = made.target("out", hnp.tanh(x @ w + b))
        cost = made.target("cost", hnp.mean((y - out) ** 2))
        sessions.minimize(hl.optim.adam(1e-2), cost, global_step=sessions.global_step(), name="train")
        made.initializer(name="init")
    return made


def test_a_program_trains_as_a_library_as_in_a_session(tmp_path):
    made = program()
    fetches = {"train": ["train", "cost"], "predict": "out", "both": ["out", "global_step"]}
    library = hl.export(made, fetches=fetches, feeds={"x": X, "y": (6, 3)}, folder=tmp_path).load()
    library.init()
    with sessions.Session(made) as session:
        session.run("init")
        for _ in range(4):
            cost = session.run(["train", "cost"], {"x": X, "y": Y})[1]
            assert library.train(X, Y).tobytes() == np.asarray(cost).tobytes()
        found = library.both(X)
        assert found["out"].tobytes() == np.asarray(session.run("out", {"x": X})).tobytes()
        assert int(found["global_step"]) == 4
        state = session.state()
        values = library.read_state()
        assert len(values) == len(state) and values["variables_w"].tobytes() == np.asarray(state["w"]).tobytes()
        # A file with the values, and a range of sizes.
        path = sessions.save(tmp_path / "mlp.hloom", made, state=state)
        feeds = {"x": (hl.Dim("batch", 1, 4), 4)}
        saved = sessions.load(path)
        again = hl.export(saved, fetches={"predict": "out"}, feeds=feeds, folder=tmp_path, name="again").load()
        again.init()
        for n in (1, 3, 4):
            np.testing.assert_allclose(again.predict(X[:n]), session.run("out", {"x": X[:n]}), rtol=1e-6)


def test_mistakes(tmp_path):
    made = program()
    for options, kind, found in (
        ({}, ExportError, "no fetches"),
        ({"fetches": "out"}, ExportError, r"'x' has sizes that are not known: f32\[None, 4\]"),
        ({"fetches": "outt"}, FetchError, "did you mean 'out'"),
        ({"fetches": "out", "feeds": {"x": (6, 5)}}, ArgumentError, r"f32\[None, 4\]"),
        ({"fetches": {"init": "out"}, "feeds": {"x": (6, 4)}}, ExportError, "a second function 'init'"),
        ({"fetches": "out", "feeds": {"x": (6, 4)}, "variables": {"v": X}}, ExportError, "not a variable"),
        ({"fetches": "out", "feeds": {"x": (6, 4)}, "variables": {"b": X}}, ExportError, "the value of 'b'"),
        ({"fetches": "out", "x": X}, ExportError, "pass fetches="),
    ):
        with pytest.raises(kind, match=found):
            hl.export(made, folder=tmp_path, **options)
    with pytest.raises(ExportError, match="which are for programs"):
        hl.export(lambda x: x, X, fetches="out", folder=tmp_path)
    with made:
        sessions.variable("late", shape=(3,))
    with pytest.raises(ExportError, match="'late' has no initial value"):
        hl.export(made, fetches="out", feeds={"x": (6, 4)}, folder=tmp_path)


def test_fetches_and_feeds_of_the_command_line():
    assert _fetches(["train=train,cost", "out"]) == {"train": ["train", "cost"], "out": ["out"]}
    assert _feeds(["x=f32[2,3]"])["x"].shape == (2, 3)
    with pytest.raises(ArgumentError, match=r"write x=f32\[2\]"):
        _feeds(["f32[2]"])
