"""The examples of TensorFlow 1.0's programs do what its texts say."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from example_scripts import help_of

import hloom as hl
from hloom import checkpoints
from hloom.cluster import make_key

FOLDER = Path(__file__).parents[2] / "examples" / "tf1"


def example(name: str):
    specification = importlib.util.spec_from_file_location(f"tf1_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def silent(line):
    pass


def test_a_graph_is_loaded_and_trained_by_another_process(tmp_path):
    first, last, tanhs = example("mlp_graph").main(tmp_path, report=silent)
    assert last < first / 2 and tanhs == 2  # the gradient reads the outputs of tanh
    assert (tmp_path / "mlp.txt").read_text().startswith("hloom-program 2")


def test_placements_are_logged():
    lines = []
    log, total, twice = example("placement").main(report=lines.append)
    assert (total, twice) == ("cpu:1", "cpu:2") and lines[0].startswith("cpu:0: name: ")
    assert "(add) cpu:1" in log and "(multiply) cpu:2" in log and "device cpu:1: name: " in log
    assert "hloom: a: (constant) cpu:0" in log and "hloom: b: (constant) cpu:0" in log  # a program on one device
    assert "(subtract) cpu:0" in log and any("device /cpu:99" in line for line in lines)


@pytest.mark.slow
def test_servers_and_tasks():
    servers = example("servers")
    assert servers.local_greeting() == "Hello, distributed hloom!"
    assert servers.main(report=silent) == [16.0, [3.0, 9.0, 15.0, 21.0]]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "options"), [("async", ["--kill"]), ("sync", []), ("in-graph", [])])
def test_parameter_servers_and_workers(mode, options, tmp_path):
    """Processes of their own; asynchronously a worker and a parameter server are killed, and training goes on."""
    pytest.importorskip("sklearn")
    command = [sys.executable, FOLDER / "replicated.py", "--mode", mode, "--steps", "150", *options]
    key = {"HLOOM_CLUSTER_KEY_FILE": str(make_key(tmp_path / "key"))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env={**os.environ, **key})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f": {mode}, 15") == (1 if mode == "in-graph" else 3), done.stdout
    if options:
        assert "killing ('ps', 1)" in done.stdout and "restored step" in done.stdout


def test_an_estimator_of_a_model_function(tmp_path):
    pytest.importorskip("sklearn")
    found, predicted = example("model_function").main(tmp_path, steps=60, report=silent)
    assert found["global_step"] == 60 and found["accuracy"] > 0.5 and len(predicted) == 10


@pytest.mark.slow
def test_digits_from_records_to_tensorboard(tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("tensorboard")
    first, last, accuracy = example("digits_session").main(tmp_path, steps=40, report=silent)
    assert last < first / 2 and accuracy > 0.6
    state = checkpoints.Manager(tmp_path / "checkpoints").restore()
    assert int(state["global_step"]) == 40 and "net/layers/0/kernel/average" in state
    lines = []
    example("digits_session").main(tmp_path, steps=5, report=lines.append)  # in the same folder it goes on
    assert lines[0] == "goes on from step 40" and checkpoints.Manager(tmp_path / "checkpoints").latest() == 46
    events = importlib.import_module("tensorboard.backend.event_processing.event_accumulator").EventAccumulator(
        str(tmp_path / "summaries")
    )
    events.Reload()
    tags = events.Tags()
    assert [e.step for e in events.Tensors("loss")] == [*range(0, 40, 8), *range(41, 46)] and tags["graph"]
    assert "gradients/net/layers/0/kernel" in tags["tensors"]  # a histogram
    assert any(node.name.startswith("GPU_3/") for node in _nodes(events.Graph()))


def _nodes(text):
    definition = importlib.import_module("tensorboard.compat.proto.graph_pb2").GraphDef()
    definition.ParseFromString(text.SerializeToString() if hasattr(text, "SerializeToString") else text)
    return definition.node


def test_fused_programs_have_fewer_kernels():
    (_, fused, temporary), (_, unfused, more) = example("fused").main(rows=64, report=silent)
    assert fused < unfused / 2 and temporary < more


def test_a_loop_in_the_program_computes_the_same():
    by_calls, whole = example("loop_in_program").main(steps=20, report=silent)
    assert by_calls == pytest.approx(whole, rel=1e-5)


def test_element_types_and_live_arrays():
    count, (before, during, after) = example("element_types").main(report=silent)
    assert count == 20 and during - before == 5 and after == before


@pytest.mark.slow
def test_sequences_are_written_backwards():
    assert example("seq2seq").train(steps=200, report=silent) > 0.9


def test_towers_of_lenet():
    rates = example("lenet_rate").main(towers=(1, 2), batch=4, repeats=2, report=silent)
    assert len(rates) == 2 and min(rates) > 0


def test_inception_has_its_parameters_and_reads_weights(tmp_path):
    pytest.importorskip("PIL")
    inception = example("inception")
    model = inception.inception(hl.random.key(0), classes=1000)
    found = hl.eval_shape(model, hl.ShapeDtypeStruct((2, 299, 299, 3), "float32"))
    assert found.shape == (2, 1000)
    # 23,834,568 parameters of the paper's network without the second classifier; BatchNorm has its statistics as well.
    units = [u for u in hl.tree.leaves(model, is_leaf=inception.is_unit) if inception.is_unit(u)]
    assert len(units) == len(inception.NAMES) == 94
    assert sum(u.conv.kernel.size + u.bn.scale.size + u.bn.bias.size for u in units) + 2049 * 1000 == 23_834_568
    small = {}
    for k, (name, unit) in enumerate(zip(inception.NAMES, units, strict=True)):
        outputs = unit.bn.scale.size
        rows, columns, inputs, _ = unit.conv.kernel.shape
        small[f"{name}.conv.weight"] = np.full((outputs, inputs, rows, columns), k, np.float32)
        small |= {f"{name}.bn.{n}": np.full(outputs, k, np.float32)
                  for n in ("weight", "bias", "running_mean", "running_var")}  # fmt: skip
    small |= {"fc.weight": np.ones((1000, 2048), np.float32), "fc.bias": np.zeros(1000, np.float32)}
    checkpoints.save_safetensors(tmp_path / "weights.safetensors", small)
    loaded = inception.with_weights(model, tmp_path / "weights.safetensors")
    again = [u for u in hl.tree.leaves(loaded, is_leaf=inception.is_unit) if inception.is_unit(u)]
    for k, (old, new) in enumerate(zip(units, again, strict=True)):
        assert new.conv.kernel.shape == old.conv.kernel.shape and float(new.conv.kernel[0, 0, 0, 0]) == k
    inception.write_pictures(tmp_path, 2)
    pictures = [inception.read(path, 75) for path in sorted(tmp_path.glob("*.jpg"))]
    assert [int(label) for _, label in pictures] == [0, 1] and pictures[0][0].shape == (83, 83, 3)
    crops = inception.distorted(hl.random.key(0), np.stack([p for p, _ in pictures]), 75)
    assert crops.shape == (2, 75, 75, 3) and -1 <= float(crops.min()) and float(crops.max()) <= 1


@pytest.mark.slow
def test_inception_trains_in_two_towers():
    inception, lines = example("inception"), []
    losses = inception.train(size=75, batch=4, towers=2, steps=1, report=lines.append)
    assert len(losses) == 1 and 1.0 < losses[0] < 5.0  # of 10 classes, at the start: ln 10
    assert lines[0] == "21.8 million parameters"


@pytest.mark.parametrize("name", sorted(p.stem for p in FOLDER.glob("*.py")))
def test_every_example_has_help(name, monkeypatch, capsys):
    text = help_of(FOLDER / f"{name}.py", monkeypatch, capsys)
    assert "usage:" in text and "--" in text
