"""Devices in programs, rules that choose them, and what the log says of devices."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import errors, optim
from hloom.sessions import (
    LocalServer,
    Program,
    Session,
    SessionConfig,
    minimize,
    placeholder,
    replica_device_setter,
    variable,
)

pytestmark = pytest.mark.quick


@pytest.fixture
def devices():
    with hl.config(num_cpu_devices=3):
        yield


def test_a_rule_chooses_devices_in_jit(devices):
    def rule(operation):
        return {"dot": "cpu:1", "tanh": "cpu:2"}.get(operation.type) or ("cpu:1" if operation.name == "last" else None)

    @hl.jit
    def f(x):
        with hl.device(rule):
            last = hnp.tanh(x @ x) + 1
            return last

    text = f.lower(np.ones((2, 2), np.float32)).as_text()
    of = {line.split(" = ")[1].split("(")[0].split()[-1]: line for line in text.splitlines() if " = " in line}
    assert "cpu:1" in of["dot"] and "cpu:2" in of["tanh"] and "cpu:1" in of["add"]
    assert "device" not in of["parameter"]
    np.testing.assert_allclose(f(np.ones((2, 2), np.float32)), np.tanh(2) + np.ones((2, 2)), rtol=1e-6)


def test_variables_go_round_and_updates_run_where_they_are(devices):
    program = Program("replica")
    rule = replica_device_setter(2, ps_device="/job:ps", worker_device="/job:worker/task:1")
    with program, hl.device(rule):
        x = placeholder("x", [None, 4])
        ws = [variable(f"w{k}", hnp.ones(4)) for k in range(3)]
        cost = hnp.sum(x * sum(ws))
        minimize(optim.sgd(0.1), cost)
    assert [w.device_name for w in ws] == ["/job:ps/task:0/cpu:0", "/job:ps/task:1/cpu:0", "/job:ps/task:0/cpu:0"]
    assert cost.device_name == "/job:worker/task:1/cpu:0"
    assert ws[1].assign_add(hnp.ones(4)).record.value.device == "/job:ps/task:1/cpu:0"
    with Session(program) as session, pytest.raises(errors.DeviceError, match="/job:worker"):
        session.run(program.initializer())


def test_a_program_on_devices_of_this_process(devices, capsys):
    program = Program("local")
    with program:
        with hl.device("cpu:1"):
            w = variable("w", hnp.zeros(3))
        with hl.device("/job:localhost/task:0/cpu:2"):
            y = w * 2 + 1
        step = w.assign_add(y)
    with Session(program) as session, hl.config(log_device_placement=True):
        session.run(program.initializer())
        for _ in range(2):
            session.run(step)
        assert session.run(w).tolist() == [4, 4, 4] and str(session.run(y).device) == "cpu:2"
    log = capsys.readouterr().err
    assert "(add) cpu:1" in log and "(multiply) cpu:2" in log


def test_eager_operations_are_in_the_log(devices, capsys):
    mesh = hl.make_mesh((2,), ("x",))

    def square(x):
        with hl.device("cpu:1"):
            return hnp.sum(x * x)

    with hl.config(log_device_placement=True):
        a = hnp.asarray([1.0, 2.0])
        with hl.device("cpu:1"):
            b = hnp.ones(2)
            c = b + 1
        moved = hl.device_put(c, "cpu:2")
        rows = moved[:1]
        taken = moved[hnp.asarray([0, 0])]  # noqa: F841  (the log has its name)
        hl.grad(square)(a)
        hl.lax.fori_loop(0, 2, lambda k, s: s + 1, rows)
        parts = hl.device_put(np.arange(4.0), hl.NamedSharding(mesh, hl.P("x")))
        parts * 2
        hl.jit(lambda x: x - 1)(parts)
    lines = capsys.readouterr().err.splitlines()
    log = [line.removeprefix("hloom: ").partition(" at ")[0] for line in lines if "(" in line]
    own = [line for line in log if not line.startswith("device ")]
    for expected in (
        "a: (constant) cpu:0", "b: (constant) cpu:1", "c: (add) cpu:1", "moved: (copy) cpu:2", "rows: (slice) cpu:2",
        "taken: (gather) cpu:2", "multiply: (multiply) cpu:1", "parts: (copy) cpu:0, cpu:1",
        "multiply: (multiply) cpu:0, cpu:1", "subtract: (subtract) cpu:0, cpu:1",
    ):  # fmt: skip
        assert expected in own, own
    assert [line.split()[-1] for line in own if line.startswith("scan: ")] == ["cpu:2"]
    assert f"{__file__}:" in next(line for line in lines if "c: (add)" in line)
    a + a
    assert not capsys.readouterr().err


def test_constants_of_text_are_in_the_log(devices, capsys, tmp_path):
    with Program("texts") as program:
        hello = program.constant("hello", name="hello")
        with hl.device("cpu:1"):
            words, numbers = program.constant(["a", "b"], name="words"), program.constant([1.0], name="numbers")
    hl.sessions.save(tmp_path / "texts.txt", program)
    for one in (program, hl.sessions.load(tmp_path / "texts.txt").program):
        with Session(one, config=SessionConfig(log_device_placement=True)) as session:
            for _ in range(2):
                session.run([hello.name, words.name, numbers.name])
        lines = [line for line in capsys.readouterr().err.splitlines() if "(constant)" in line]
        found = sorted(line.removeprefix("hloom: ").partition(" at ")[0] for line in lines)
        assert found == ["hello: (constant) cpu:0", "numbers: (constant) cpu:1", "words: (constant) cpu:1"]
        assert all(f"{__file__}:" in line for line in lines)


def test_devices_say_what_they_are(capsys):
    found = hl.devices("cpu")[0].description
    assert found.startswith("name: ") and len(found) > 10


def test_the_options_of_a_session(devices, capsys):
    program = Program("options")
    with program, hl.device("cpu:7"):
        twice = program.target("twice", placeholder("x", [3]) * 2)
    config = SessionConfig(log_device_placement=True, allow_soft_placement=True)
    with Session(program, config=config) as session:
        assert session.run(twice, {"x": np.arange(3.0)}).tolist() == [0, 2, 4]
    assert "cpu:7 does not exist here; cpu:0 is used" in capsys.readouterr().err
    with Session(program, config={"allow_soft_placement": True}) as session:
        assert session.make_callable(twice, ["x"])(np.ones(3)).tolist() == [2, 2, 2]
    with Session(program) as session, pytest.raises(errors.DeviceError, match="cpu:7"):
        session.run(twice, {"x": np.arange(3.0)})
    with LocalServer() as server, pytest.raises(errors.ArgumentError, match=r"(?s)local://.*'key'"):
        Session(program, server.target, key=b"")
    for options, kind, found in (
        ({"foo": 2}, errors.ArgumentError, "the option 'foo'"),
        ({"config": {"foo": 2}}, errors.ArgumentError, "the option 'foo'.*\n.*log_device_placement"),
        ({"config": 3}, errors.ArgumentError, "int"),
        ({"config": {"allow_growth": False}}, errors.UnsupportedError, "as it is needed"),
        ({"config": SessionConfig(per_process_gpu_memory_fraction=0.4)}, errors.UnsupportedError, "0.4"),
    ):
        with pytest.raises(kind, match=f"(?s){found}"):
            Session(program, **options)
