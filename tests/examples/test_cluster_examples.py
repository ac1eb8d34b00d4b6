"""The examples of clusters: parameter servers, a cut graph, two hosts in two network namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hloom.cluster import make_key

pytest.importorskip("sklearn")
pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples"


def environment(tmp_path) -> dict[str, str]:
    """A key of the test's own."""
    return os.environ | {"HLOOM_CLUSTER_KEY_FILE": str(make_key(tmp_path / "cluster_key"))}


def ran(command: list[str], tmp_path) -> str:
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment(tmp_path)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_parameter_servers(tmp_path, mode):
    command = "-m hloom cluster submit --local --workers 3 --ps 2 --folder run".split()
    flags = ["--async"] if mode == "async" else []
    found = ran([*command, *flags, str(EXAMPLES / "parameter_servers.py"), "--mode", mode], tmp_path)
    assert sum(f"{mode}, 150 steps, accuracy 0.9" in line for line in found.splitlines()) == 3, found


def test_a_cut_graph(tmp_path):
    found = ran([str(EXAMPLES / "cut_graph.py")], tmp_path)
    assert found.count(" send(") == found.count(" recv(") == 3  # w and b to the worker, the product back
    assert "[ 3.  9. 15. 21.] /job:ps/task:0/cpu:0" in found


def may_make_namespaces() -> bool:
    if shutil.which("ip") is None:
        return False
    name = f"hloomtest{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
    if made:
        subprocess.run(["ip", "netns", "del", name], check=True)
    return made


def test_two_hosts(tmp_path):
    if not may_make_namespaces():
        pytest.skip("network namespaces are not permitted here (ip netns add)")
    found = ran([str(EXAMPLES / "two_hosts.py"), "--out", str(tmp_path / "two_hosts.json"), "--cut", "2"], tmp_path)
    assert "the link is cut for 2 s" in found and "'step': 40" in found
