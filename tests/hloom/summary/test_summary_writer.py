"""Summaries: event files that TensorBoard reads, lines, graphs, and summaries from inside of compiled programs."""

import csv
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import warnings

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import ArgumentError, AttributeValueError, DTypeError, FileError, ShapeError, UnsupportedError

pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install 'hloom[train]'")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util


def read(folder) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    found.Reload()
    return found


def values(folder, name: str) -> list:
    """(step, array) of a tag."""
    return [(e.step, tensor_util.make_ndarray(e.tensor_proto)) for e in read(folder).Tensors(name)]


@pytest.mark.quick
def test_scalars_of_numbers_arrays_and_trees(tmp_path):
    with hl.summary.Writer(tmp_path) as summary:
        for step in range(3):
            summary.scalar("loss", hnp.float32(step) / 2, step)
        summary.scalars({"train": {"accuracy": 0.5}, "rate": np.float64(2)}, hnp.int32(7), prefix="run")
        summary.scalar("nan", np.float16("nan"), 1)
    assert [(s, float(v)) for s, v in values(tmp_path, "loss")] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert values(tmp_path, "run/train/accuracy")[0][0] == 7 and float(values(tmp_path, "run/rate")[0][1]) == 2
    assert np.isnan(values(tmp_path, "nan")[0][1])


@pytest.mark.quick
def test_histograms_count_every_finite_value_once(tmp_path):
    x = np.random.default_rng(0).normal(size=(50, 20)).astype(np.float32)
    with hl.summary.Writer(tmp_path) as summary:
        summary.histograms("w", {"a": x, "b": [hnp.asarray(x).astype(hnp.bfloat16), np.ones(5)]}, 3)
        x[:] = 0  # what was handed over was copied
        summary.histogram("empty", np.zeros(0), 0)
        with pytest.warns(hl.summary.SummaryWarning, match="'bad' at step 1 leaves out 2 of 4 values"):
            summary.histogram("bad", np.array([1.0, np.nan, np.inf, 2.0]), 1)
            summary.flush()
    for name in ("w/a", "w/b/0"):
        ((step, rows),) = values(tmp_path, name)
        assert step == 3 and rows.shape == (30, 3) and rows[:, 2].sum() == 1000
        assert np.all(rows[:, 0] < rows[:, 1]) and rows[0, 0] < -2 and rows[-1, 1] > 2
    assert values(tmp_path, "w/b/1")[0][1][:, 2].sum() == 5 and values(tmp_path, "empty")[0][1].sum() == 0
    assert values(tmp_path, "bad")[0][1][:, 2].sum() == 2


@pytest.mark.quick
def test_pictures_sounds_texts_figures_and_hyperparameters(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from io import BytesIO

    from matplotlib import pyplot

    picture = np.random.default_rng(0).integers(0, 256, (2, 5, 7, 3), np.uint8)
    with hl.summary.Writer(tmp_path) as summary:
        summary.image("rgb", picture, 0)
        summary.image("grey", np.linspace(-1, 2, 12).reshape(3, 4), 0)
        summary.audio("sound", np.sin(np.arange(100) / 5), 8000, 0)
        summary.text("note", "# title", 0)
        summary.text("rows", ["a", "b"], 0)
        pyplot.plot([1, 2])
        summary.figure("curve", pyplot.gcf(), 0)
        assert not pyplot.get_fignums()
        summary.hparams({"rate": 0.1, "adam": {"nesterov": True}, "name": "a", "sizes": (1, 2)}, ["loss"])
    width, height, *files = values(tmp_path, "rgb")[0][1]
    assert (width, height, len(files)) == (b"7", b"5", 2)
    assert np.array_equal(np.asarray(pillow.open(BytesIO(files[1]))), picture[1])
    grey = np.asarray(pillow.open(BytesIO(values(tmp_path, "grey")[0][1][2])))
    assert grey.shape == (3, 4) and grey.min() == 0 and grey.max() == 255  # values beyond 0 to 1 are clipped
    assert values(tmp_path, "sound")[0][1][0, 0].startswith(b"RIFF")
    assert values(tmp_path, "rows")[0][1].tolist() == [b"a", b"b"] and values(tmp_path, "note")[0][1] == b"# title"
    assert values(tmp_path, "curve")[0][1][2].startswith(b"\x89PNG")
    tags = read(tmp_path).Tags()["tensors"]
    assert {"_hparams_/experiment", "_hparams_/session_start_info", "_hparams_/session_end_info"} <= set(tags)


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_lines_need_no_package_and_a_resumed_run_removes_what_was_written_too_much(tmp_path, kind):
    path = tmp_path / f"metrics.{kind}"
    with hl.summary.Writer(tmp_path, events=False, lines=kind) as summary:
        for step in range(5):
            summary.scalar("loss", 1 / (1 + step), step)
        summary.scalar("loss", float("inf"), 5)
    with path.open("a") as file:
        file.write('{"step": 1, "na' if kind == "jsonl" else "1")  # cut off by a kill
    with hl.summary.Writer(tmp_path, events=False, lines=kind, purge_step=3) as summary:
        summary.scalar("loss", 7.0, 3)
    text = path.read_text()
    rows = [json.loads(t) for t in text.splitlines()] if kind == "jsonl" else list(csv.DictReader(text.splitlines()))
    assert [(int(r["step"]), float(r["value"])) for r in rows if r["value"]][-2:] == [(2, 1 / 3), (3, 7.0)]
    assert not list(tmp_path.glob("events*"))


@pytest.mark.quick
def test_summaries_inside_of_programs_are_in_order_and_of_each_step(tmp_path):
    def loss(w, x, step):
        y = hnp.mean((x * w) ** 2)
        hl.summary.scalar("loss", y, step)
        lax.cond(step % 2 == 0, lambda: hl.summary.histogram("products", x * w, step), lambda: None)
        return y

    step = hl.jit(lambda w, x, n: w - 0.1 * hl.grad(loss)(w, x, n))
    w, x = hnp.float32(2), hnp.arange(4, dtype=hnp.float32)
    with hl.summary.Writer(tmp_path) as summary, summary.as_default():
        assert hl.summary.current_writer() is summary
        for number in range(4):
            w = step(w, x, number)
        hl.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: (hl.summary.scalar("i", c, i), c + 1)[1], x))(hnp.float32(0))
        hl.summary.text("outside", "written at once", 2)
    losses = values(tmp_path, "loss")
    assert [s for s, _ in losses] == [0, 1, 2, 3] and losses[0][1] > losses[3][1]
    assert [s for s, _ in values(tmp_path, "products")] == [0, 2]
    assert [(s, float(v)) for s, v in values(tmp_path, "i")] == [(0, 0), (1, 1), (2, 2)]
    assert values(tmp_path, "outside")[0][1] == b"written at once"


@pytest.mark.quick
def test_without_a_current_writer_one_warning(monkeypatch):
    monkeypatch.setattr("hloom.summary.functions._warned", False)
    with pytest.warns(hl.summary.SummaryWarning, match="no writer is there for"):
        hl.jit(lambda x: (hl.summary.scalar("x", x, 0), x)[1])(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hl.summary.scalar("x", 1.0, 0)


def model(x, w):
    with hl.named_scope("encoder"), hl.named_scope("dense"):
        h = hnp.tanh(x @ w)
    h = lax.fori_loop(0, 3, lambda i, h: hnp.sin(h) + 1, h)
    with hl.named_scope("head"):
        return lax.cond(h.sum() > 0, lambda h: h * 2, lambda h: h, h).mean()


@pytest.mark.quick
def test_the_graph_folds_by_scopes_and_shows_loops_inside(tmp_path):
    x = np.ones((4, 4), np.float32)
    with hl.summary.Writer(tmp_path) as summary:
        summary.graph(model, x, x)
    nodes = {n.name: n for n in read(tmp_path).Graph().node}
    assert set(nodes["encoder/dense/dot"].input) == {"x", "w"} and nodes["encoder/dense/dot"].op == "dot"
    assert nodes["encoder/dense/dot"].attr["_output_shapes"].list.shape[0].dim[1].size == 4
    assert b"test_summary_writer.py" in nodes["encoder/dense/h"].attr["line"].s
    loop = next(n for n in nodes.values() if n.op in ("while", "scan"))
    inside = [n for n in nodes if n.startswith(loop.name + "/")]
    assert any(nodes[n].op == "sine" for n in inside) and any(n in loop.input for n in inside)
    assert any(n.startswith("head/conditional/") for n in nodes)
    assert all(i in nodes for n in nodes.values() for i in n.input)  # no edge leads nowhere


def test_a_profiled_graph_has_the_time_and_the_bytes_of_each_kernel(tmp_path):
    x = np.ones((64, 64), np.float32)
    jitted = hl.jit(model)
    with hl.summary.Writer(tmp_path) as summary:
        parts = summary.profile(jitted, x, x, step=5)
        summary.profile(jitted.lower(x, x), x, x, step=6)
    events = read(tmp_path / "kernels")
    assert events.Tags()["run_metadata"] == ["step 5", "step 6"]
    stats = events.RunMetadata("step 5").step_stats.dev_stats[0].node_stats
    nodes = {n.name: n.op for n in events.Graph().node}
    assert parts and {s.node_name for s in stats} <= set(nodes) and all(s.all_end_rel_micros >= 1 for s in stats)
    product = next(s for s in stats if "dot" in s.node_name or "h_fusion" in s.node_name)
    assert product.memory[0].total_bytes == 64 * 64 * 4
    starts = [s.all_start_micros for s in stats]
    assert starts == sorted(starts)


def test_devices_colour_the_graph(tmp_path):
    def two(x):
        with hl.device("cpu:0"):
            y = x + 1
        return y * 2

    with hl.summary.Writer(tmp_path) as summary:
        summary.graph(two, np.ones(3, np.float32))
    assert "cpu:0" in {n.device for n in read(tmp_path).Graph().node}


@pytest.mark.quick
def test_mistakes(tmp_path):
    with hl.summary.Writer(tmp_path) as summary:
        with pytest.raises(ShapeError, match="the scalar 'loss'"):
            summary.scalar("loss", np.ones(3), 0)
        with pytest.raises(ShapeError, match=r"the shape \[2, 3, 8, 8\]"):
            summary.image("x", np.ones((2, 3, 8, 8)), 0)
        with pytest.raises(DTypeError, match="u8 from 0 to 255"):
            summary.image("x", np.ones((8, 8), np.int32), 0)
        with pytest.raises(ArgumentError, match="a step is a whole number"):
            summary.scalar("x", 1.0, 0.5)
        with pytest.raises(ArgumentError, match="a summary has a name"):
            summary.scalar("", 1.0, 0)
        with pytest.raises(ArgumentError, match=r"call hl.summary.scalar\(\.\.\.\) inside"):
            hl.jit(lambda x: summary.scalar("x", x, 0))(1.0)
        with pytest.raises(ArgumentError, match=r"summary.graph\(step, state, batch\)"):
            summary.graph(3)
        with pytest.raises(ArgumentError, match="of matplotlib"):
            summary.figure("x", np.ones(3), 0)
    with pytest.raises(AttributeValueError, match="the writer is closed"):
        summary.scalar("x", 1.0, 0)
    with pytest.raises(AttributeValueError, match="'jsonl' or 'csv'"):
        hl.summary.Writer(tmp_path, lines="xml")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="writing summaries"):
        hl.summary.Writer(tmp_path / "file" / "run")


def test_a_full_disk_is_an_error_of_the_next_call_and_nothing_hangs(tmp_path):
    program = """
import resource, signal, sys, numpy as np, hloom as hl
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
summary = hl.summary.Writer(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, resource.RLIM_INFINITY))
try:
    for step in range(1000):
        summary.text("long", "x" * 1000, step)
    summary.flush()
except hl.errors.FileError as error:
    print("found", "writing summaries" in str(error))
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "found True", done.stderr
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY  # of this process


def test_a_forked_child_leaves_the_file_alone(tmp_path):
    summary = hl.summary.Writer(tmp_path, events=False, lines="csv")
    summary.scalar("x", 1.0, 0)
    summary.flush()
    child = os.fork()
    if not child:
        summary.scalar("x", 2.0, 1)
        summary.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    summary.scalar("x", 3.0, 2)
    summary.close()
    assert [line.split(",")[0] for line in (tmp_path / "metrics.csv").read_text().splitlines()] == ["step", "0", "2"]


def test_the_missing_package_is_named(tmp_path, monkeypatch):
    from hloom.summary import events

    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.record_writer", None)
    events.tensorboard.cache_clear()
    try:
        with pytest.raises(UnsupportedError, match=r"pip install 'hloom\[train\]'"):
            hl.summary.Writer(tmp_path)
        with hl.summary.Writer(tmp_path, events=False, lines="jsonl") as summary:
            summary.scalar("x", 1.0, 0)
    finally:
        events.tensorboard.cache_clear()


@pytest.mark.slow
def test_tensorboard_shows_them_in_a_browser(tmp_path):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium: apt-get install chromium")
    x = np.ones((16, 16), np.float32)
    with hl.summary.Writer(tmp_path / "runs" / "1") as summary:
        summary.graph(model, x, x)
        summary.scalar("loss", 0.5, 0)
        summary.scalar("loss", 0.25, 1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(tmp_path / "runs"), "--port", str(port)]
    server = subprocess.Popen([*command, "--host", "127.0.0.1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address, end = f"http://127.0.0.1:{port}", time.monotonic() + 60
        while True:
            try:
                found = json.load(urllib.request.urlopen(f"{address}/data/plugin/scalars/tags", timeout=5))
                if found.get("1", {}).get("loss") is not None:
                    break
            except OSError:
                pass
            assert time.monotonic() < end, "TensorBoard did not come up"
            time.sleep(0.5)
        for page, expected in (("graphs", "encoder"), ("scalars", "loss")):
            options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,800"]
            options += [f"--user-data-dir={tmp_path / 'browser'}", "--virtual-time-budget=20000"]
            picture = tmp_path / f"{page}.png"
            shown = subprocess.run(
                [browser, *options, f"--screenshot={picture}", f"{address}/#{page}"],
                capture_output=True,
                timeout=120,
            )
            assert shown.returncode == 0 and picture.stat().st_size > 10_000, (page, expected, shown.stderr[-500:])
    finally:
        server.terminate()
        server.wait(20)
