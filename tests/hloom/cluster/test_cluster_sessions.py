"""Sessions at a server: programs as text, variables that sessions share, parts on other tasks."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
from hloom.cluster import Server, free_addresses, make_key
from hloom.errors import DistributedError
from hloom.sessions import Program, Session, placeholder, variable

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def key_file(tmp_path, monkeypatch):
    """A key of the test's own, for this process and those that it starts."""
    path = make_key(tmp_path / "cluster_key")
    monkeypatch.setenv("HLOOM_CLUSTER_KEY_FILE", str(path))
    with hl.config(cluster_key_file=str(path)):
        yield path


def counting():
    """A program, and its update of s."""
    program = Program("counting")
    with program:
        s = variable("s", np.zeros(4, np.float32))
        x = placeholder("x", [4])
        return program, s.assign_add(x * 2)


def test_the_log_of_placements_names_the_server_s_task(key_file, capsys):
    program, grown = counting()
    with Server({"local": free_addresses(2)}, "local", 1) as server, Session(program, server.target) as session:
        with hl.config(log_device_placement=True):
            session.run(program.initializer())
            session.run(grown, {"x": np.ones(4)})
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith("hloom: device /job:local/task:1/cpu:0: name: ") for line in lines)
    assert any("(add) /job:local/task:1/cpu:0" in line for line in lines)


def test_what_nobody_placed_runs_at_the_session_s_server_and_all_is_logged(key_file, capsys):
    jobs = {"ps": free_addresses(2), "worker": free_addresses(1)}
    with contextlib.ExitStack() as stack, Program("spread") as program:
        server, *_ = [stack.enter_context(Server(jobs, *task)) for task in (("worker", 0), ("ps", 0), ("ps", 1))]
        ws = []
        for k in range(2):
            with hl.device(f"/job:ps/task:{k}"):
                ws.append(variable(f"w{k}", np.ones(3, np.float32)))
        with hl.device("/job:ps/task:1"):
            text = program.constant("hello", name="hello")
        total = program.target("total", ws[0] + ws[1])
        session = stack.enter_context(Session(program, server.target, config={"log_device_placement": True}))
        session.run(program.initializer())
        found, update, hello = session.run([total, ws[1].assign_sub(total), text])
        assert (np.asarray(found).tolist(), np.asarray(update).tolist(), hello) == ([2] * 3, [-1] * 3, "hello")
    log = {line.removeprefix("hloom: ").partition(" at ")[0] for line in capsys.readouterr().err.splitlines()}
    assert {
        "total: (add) /job:worker/task:0/cpu:0", "hello: (constant) /job:ps/task:1/cpu:0",
        "subtract: (subtract) /job:ps/task:1/cpu:0",
    } <= log, log  # fmt: skip


def test_sessions_at_one_server_share_variables(key_file):
    program, grown = counting()
    with Server({"local": free_addresses(1)}) as server:
        with Session(program, server.target) as session:
            session.run(program.initializer())
            for _ in range(3):
                session.run(grown, {"x": np.ones(4, np.float32)})
        program, grown = counting()
        with Session(program, server.target) as other:
            assert np.asarray(other.run("s")).tolist() == [6] * 4
            other.restore({"s": np.full(4, 5, np.float32)})
            assert other.state()["s"].tolist() == [5] * 4
            with pytest.raises(hl.errors.FeedError):
                other.run(grown, {"x": np.ones(3, np.float32)})


def test_a_session_at_a_dead_server_ends(key_file, capfd):
    (address,) = free_addresses(1)
    with hl.config(distributed_timeout=0.3), pytest.raises(DistributedError, match="Connection refused"):
        Session(counting()[0], f"hloom://{address}")
    assert f"waiting for a server at {address} (Connection refused) until " in capfd.readouterr().err


def test_a_program_of_a_session_runs_on_other_tasks(key_file):
    addresses = free_addresses(2)
    jobs = {"ps": addresses[:1], "worker": addresses[1:]}
    serve = [sys.executable, "-m", "hloom", "cluster", "serve", "--cluster", json.dumps(jobs), "--job", "ps"]
    other = subprocess.Popen(serve, stdout=subprocess.DEVNULL)
    try:
        with Server(jobs, "worker", 0) as server, Program("cut") as program:
            with hl.device("/job:ps/task:0"):
                w, s = variable("w", np.full(4, 2, np.float32)), variable("s", np.zeros(4, np.float32))
            x = placeholder("x", [4])
            with hl.device("/job:worker/task:0"):
                product = w * x + 1
            with hl.device("/job:ps/task:0"):
                added = s.assign_add(product)
            with Session(program, server.target) as session:
                session.run(program.initializer())
                for _ in range(3):
                    found = session.run(added, {"x": np.arange(4, dtype=np.float32)})
            assert np.asarray(found).tolist() == [3, 9, 15, 21]
    finally:
        other.kill()
        other.wait()


@pytest.mark.slow
def test_two_tasks(key_file):
    ports = [a.rpartition(":")[2] for a in free_addresses(2)]
    command = [sys.executable, str(EXAMPLES / "two_tasks.py"), "--ports", *ports, "--task"]
    second = subprocess.Popen([*command, "1"])
    try:
        done = subprocess.run([*command, "0"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == ["Hello from server 0!", "Hello from server 1!"]
        assert "/job:local/task:1" in done.stderr
        assert second.wait(20) == 0
    finally:
        second.kill()
        second.wait()
