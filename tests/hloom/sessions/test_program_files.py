"""Programs as text and in files: the same bytes again, the same numbers in another process, damaged files."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import errors, optim, sessions
from hloom.sessions import Program, Session, control_dependencies, minimize, placeholder, target, variable

pytestmark = pytest.mark.quick
RNG = np.random.default_rng(1)
X, Y = RNG.random((20, 6), np.float32), RNG.random((20, 2), np.float32)
TABLE = RNG.random((100, 6)).astype(np.float32)


def program() -> Program:
    made = Program("regression")
    with made:
        x, y = placeholder("x", [None, 6]), placeholder("y", [None, 2])
        with hl.named_scope("layer"):
            w = variable("w", lambda: hl.random.normal(hl.random.key(3), (6, 2)))
        cost = hnp.mean((x @ w - y) ** 2)
        train = minimize(optim.adam(0.1), cost)
        with control_dependencies([train]):
            target("after", hnp.sum(w))
        target("running", hl.scan(lambda c, row: (c + row, c), hnp.zeros(6), hnp.ones((4, 6)))[1])
        target("table", hnp.asarray(TABLE) * 2)
        made.constant("Hello", "text"), made.constant(b"\xff\x00", "bytes")
        made.constant(np.array(["a", "bc"]), "words")
        made.initializer()
    return made


def trained(program: Program, steps: int = 5) -> list[np.ndarray]:
    with Session(program) as session:
        session.run("init")
        found = [session.run(["train", "cost", "after"], {"x": X, "y": Y})[1:] for _ in range(steps)]
        return [np.asarray(v) for v in sum(found, [])] + [np.asarray(session.run("running"))]


def test_text_comes_back():
    first = program()
    text = first.to_text()
    again = Program.from_text(text)
    assert again.to_text() == text
    named = [n for n in first.names() if "tuple" not in n and "." not in n]
    assert set(named) <= {*again.names(), "running"}
    assert again["x"].dims == (None, 6) and [v.name for v in again.get_collection("trainable_variables")] == ["layer/w"]
    for a, b in zip(trained(first), trained(again), strict=True):
        assert np.array_equal(a, b)
    with Session(again) as session:
        text, data, words = session.run(["text", "bytes", "words"])
        assert (text, data, words.tolist()) == ("Hello", b"\xff\x00", ["a", "bc"])


@pytest.mark.parametrize("name", ["program.txt", "program.hloom"])
def test_another_process_loads_and_trains(tmp_path, name):
    first = program()
    sessions.save(tmp_path / name, first)
    script = (
        "import sys, numpy as np\nfrom hloom import sessions\n"
        f"program = sessions.load({str(tmp_path / name)!r}).program\n"
        "with sessions.Session(program) as session:\n"
        "    session.run('init')\n"
        "    for _ in range(5): session.run('train', dict(np.load(sys.argv[1])))\n"
        "    print(repr(float(session.run('cost', dict(np.load(sys.argv[1]))))))\n"
        "    assert np.asarray(session.run('table')).shape == (100, 6)\n"
    )
    np.savez(tmp_path / "batch.npz", x=X, y=Y)
    found = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "batch.npz")], capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 0, found.stderr
    with Session(first) as session:
        session.run("init")
        for _ in range(5):
            session.run("train", {"x": X, "y": Y})
        assert float(found.stdout) == float(session.run("cost", {"x": X, "y": Y}))


def test_a_pruned_program_has_what_is_fetched():
    first = program()
    part = first.prune(["train", "cost"], ["x", "y"])
    assert len(part.instructions) < len(first.instructions) and "table" not in part.names()
    again = Program.from_text(part.to_text())
    with Session(first) as a, Session(again) as b:
        a.run("init")
        b.restore(a.state())
        for _ in range(3):
            assert float(a.run(["cost", "train"], {"x": X, "y": Y})[0]) == float(
                b.run(["cost", "train"], {"x": X, "y": Y})[0]
            )
    after = first.prune(["after"], ["x", "y"])
    assert "layer/w" in after.variables and "train" in after.names()
    fed = first.prune(["cost"], ["subtract"])
    assert isinstance(fed["subtract"], sessions.Placeholder) and "x" not in fed.names()


def test_a_loaded_program_is_extended():
    again = Program.from_text(program().to_text())
    with again:
        step = minimize(optim.sgd(0.1), again["cost"], name="sgd")
    with Session(again) as session:
        session.run(again.initializer())
        costs = [float(session.run(["cost", step], {"x": X, "y": Y})[0]) for _ in range(20)]
        assert costs[-1] < costs[0] / 2


def test_functions_and_state_in_one_file(tmp_path):
    optimizer = optim.adam(0.1)

    def cost(w, x, y):
        return hnp.mean((x @ w["w"] + w["b"] - y) ** 2)

    def step(w, state, x, y):
        updates, state = optimizer.update(hl.grad(cost)(w, x, y), state, w)
        return optim.apply_updates(w, updates), state

    w = {"w": hnp.ones((6, 2)), "b": hnp.zeros(2)}
    state = optimizer.init(w)
    functions = {
        "init": hl.jit(optimizer.init).lower(w),
        "step": hl.jit(step).lower(w, state, X, Y),
        "cost": hl.jit(cost).lower(w, x=X, y=Y),
    }
    sessions.save(tmp_path / "all.hloom", functions=functions, state={"w": w, "count": 3})
    saved = sessions.load(tmp_path / "all.hloom")
    assert saved.state["count"] == 3 and saved.program is None
    w2, state2 = saved.functions["step"](saved.state["w"], saved.functions["init"](saved.state["w"]), X, Y)
    w2, state2 = saved.functions["step"](w2, state2, X, Y)
    expected, found = hl.jit(step)(*hl.jit(step)(w, state, X, Y), X, Y)[0], w2
    assert all(np.array_equal(expected[k], found[k]) for k in w)
    assert float(saved.functions["cost"](w2, x=X, y=Y)) == float(hl.jit(cost)(expected, X, Y))
    with pytest.raises(errors.TreeError, match="args/1"):
        saved.functions["step"](w2, X, Y)


def test_damaged_texts_are_errors(tmp_path):
    text = program().to_text()
    cut = text.index("\nHloModule ")
    header = json.loads(text[text.index("\n") : cut])

    def changed(**fields) -> str:
        return "hloom-program 2\n" + json.dumps({**header, **fields}) + text[cut:]

    Program.from_text(changed())
    bad = [
        "", "something else", text[:200], text[:cut], changed(parameters=[]), changed(sizes={"?0": 7}),
        changed(updates=[{**header["updates"][0], "value": "nothing"}]),
        changed(updates=[{**header["updates"][0], "value": "x"}]),
        changed(targets=[{"name": "t", "needs": ["nothing"]}]), changed(names=[]), changed(name=None, targets=None),
        changed(names=dict.fromkeys(header["names"], "same")),
    ]  # fmt: skip
    for wrong in bad:
        with pytest.raises((errors.ParseError, errors.FetchError)):
            Program.from_text(wrong)
    sessions.save(tmp_path / "p.hloom", program())
    data = (tmp_path / "p.hloom").read_bytes()
    for size in (0, 7, 100, len(data) - 1):
        (tmp_path / "q.hloom").write_bytes(data[:size])
        with pytest.raises(errors.CheckpointError):
            sessions.load(tmp_path / "q.hloom")
    with pytest.raises(errors.MissingFileError):
        sessions.load(tmp_path / "absent.hloom")
    hl.checkpoints.save_safetensors(tmp_path / "arrays.hloom", {"a": np.zeros(3)})
    with pytest.raises(errors.CheckpointError, match="arrays only"):
        sessions.load(tmp_path / "arrays.hloom")


def test_python_callbacks_are_refused():
    made = Program("callback")
    with made:
        x = placeholder("x", [3])
        y = hl.pure_callback(np.sin, hl.ShapeDtypeStruct((3,), "float32"), x)
        target("z", x + 1), target("y", y)
    with pytest.raises(errors.UnsupportedError, match="Python function"):
        made.to_text()
    assert "HloModule" in made.prune(["z"]).to_text()
