"""Every door through which a name leaves hloom: written under it, read back, and found as data.

A door is a function of a name and an empty folder, which asserts; it raises HloomError where the name is refused. All
files that it makes have to be in the folder, and nothing in a name may run: each text is read by what reads it usually.
"""

import ast
import contextlib
import csv
import dataclasses
import html.parser
import importlib
import importlib.util
import itertools
import json
from pathlib import Path

import numpy as np
from rich.console import Console

import hloom as hl
from hloom import sessions
from hloom.backends.text import program_text
from hloom.cluster.jobs import status
from hloom.cluster.report import read_reports, write_report
from hloom.export.names import identifier
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.text.lexer import escape
from hloom.ir.text.parser import parse_module
from hloom.ir.text.printer import print_module
from hloom.jax import export
from hloom.sessions.text import to_text
from hloom.training import history

X = np.arange(3, dtype=np.float32)
DOORS = {}


def door(check):
    DOORS[check.__name__] = check
    return check


def lowered(name: str):
    """A program with the name wherever a user's names go: its own, its arguments', a scope's, a line's file."""

    def program(tree, other):
        with hl.named_scope(name):
            return {name: hl.numpy.tanh(tree[name]) + other * 2}

    program.__name__ = program.__qualname__ = name
    return hl.jit(program).lower({name: X}, X)


def parsed_by_mlir(text: str) -> None:
    """What XLA's own parser makes of StableHLO text, where there is one."""
    if importlib.util.find_spec("jaxlib") is None:
        return
    ir, sdy = importlib.import_module("jaxlib.mlir.ir"), importlib.import_module("jaxlib.mlir.dialects.sdy")
    registry = ir.DialectRegistry()
    importlib.import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext").register_dialects(registry)
    with ir.Context() as context:
        context.append_dialect_registry(registry)
        context.load_all_available_dialects()
        importlib.import_module("jaxlib.mlir.dialects.stablehlo").register_dialect(context)
        sdy.register_dialect(context)
        ir.Module.parse(text)


@door
def hlo(name: str, folder: Path) -> None:
    """Text of HLO, with metadata: it is parsed to what prints the same."""
    module = lowered(name).module
    module.name = name
    for metadata in (False, True):
        text = print_module(module, metadata=metadata)
        again = parse_module(text)
        assert print_module(again, metadata=metadata) == text
        assert len(again.entry.instructions) == len(module.entry.instructions)
    got = hl.from_hlo(print_module(module))(X, X)
    np.testing.assert_allclose(np.asarray(hl.tree.leaves(got)[0]), np.tanh(X) + X * 2, rtol=1e-6)


@door
def stablehlo_text(name: str, folder: Path) -> None:
    """Text of StableHLO: it is parsed to what prints the same, by jaxlib's parser too where there is one."""
    text = lowered(name).as_text("stablehlo")
    got = hl.from_stablehlo(text)(X, X)
    np.testing.assert_allclose(np.asarray(hl.tree.leaves(got)[0]), np.tanh(X) + X * 2, rtol=1e-6)
    parsed_by_mlir(text)


@door
def custom_calls(name: str, folder: Path) -> None:
    """Targets of custom calls, in both languages."""
    text = "HloModule m\n\nENTRY %e (x: f32[3]) -> f32[3] {\n  %x = f32[3]{0} parameter(0)\n  ROOT %c = f32[3]{0} "
    text += f"custom-call(%x), custom_call_target={escape(name)}\n}}\n"
    module = parse_module(text)
    written = name.encode("utf-8", "replace").decode()
    for again in (parse_module(print_module(module)), hl.from_stablehlo(program_text(module, "stablehlo")).module()):
        (call,) = [one for one in again.entry.instructions if one.opcode == "custom-call"]
        assert call.attributes["custom_call_target"] == written
    parsed_by_mlir(program_text(module, "stablehlo"))


@door
def meshes(name: str, folder: Path) -> None:
    """Names of a mesh's axes."""
    mesh = DeviceMesh((name, "y"), (2, 1))
    module = hl.jit(lambda x: x * 2).lower(X[:2]).module
    sharding = Sharding(mesh, ((name,),))
    module.entry.parameters[0].sharding = sharding
    module.partitions = 2
    for text, read in (
        (print_module(module), parse_module),
        (program_text(module, "stablehlo"), lambda text: hl.from_stablehlo(text).module()),
    ):
        (parameter,) = read(text).entry.parameters
        found = parameter.sharding.mesh.names[0]
        assert found == name or name.encode("utf-8", "replace").decode() != name, (found, text)
    assert name == "" or "mesh" in text
    parsed_by_mlir(text)


@door
def kernels(name: str, folder: Path) -> None:
    """Generated kernels: they run, and their listing is Python in which the name is a comment."""
    compiled = lowered(name).compile()
    np.testing.assert_allclose(np.asarray(compiled({name: X}, X)[name]), np.tanh(X) + X * 2, rtol=1e-6)
    tree = ast.parse(compiled.source())
    assert all(isinstance(node, (ast.FunctionDef, ast.Expr, ast.Assign)) for node in tree.body), tree.body


@door
def dumps(name: str, folder: Path) -> None:
    """Files of `hl.config.dump_to`."""
    with hl.config(dump_to=str(folder / "dump"), cache_dir=""):
        hl.jit(lambda x: hl.numpy.tanh(x) + 1)
        lowered(name).compile()
    made = list((folder / "dump").iterdir())
    assert any(path.suffix == ".hlo" for path in made) and any(path.name.endswith(".kernels.py") for path in made)
    for path in made:
        if path.suffix == ".py":
            tree = ast.parse(path.read_text())
            assert all(isinstance(node, (ast.FunctionDef, ast.Expr, ast.Assign)) for node in tree.body)


@door
def errors(name: str, folder: Path) -> None:
    """What an error and a representation say is text."""
    text = repr(lowered(name)) + str(lowered(name).as_text())
    text.encode("utf-8")
    with contextlib.suppress(KeyError):
        hl.jit(lambda tree: tree["other"])({name: X})


@door
def checkpoints(name: str, folder: Path) -> None:
    """Keys of a tree, in a checkpoint and in a safetensors file."""
    hl.checkpoints.save(folder / "checkpoint", {name: X})
    got = hl.checkpoints.restore(folder / "checkpoint", {name: np.zeros(3, np.float32)})
    np.testing.assert_array_equal(np.asarray(got[name]), X)
    hl.checkpoints.save_safetensors(folder / "a.safetensors", {name: X}, metadata={name: name})
    got = hl.checkpoints.load_safetensors(folder / "a.safetensors")
    assert list(got) == [name]
    np.testing.assert_array_equal(np.asarray(got[name]), X)


@door
def programs(name: str, folder: Path) -> None:
    """Saved programs: text and file."""
    with sessions.Program(name or "program") as program:
        sessions.variable(name, X)
        sessions.placeholder(f"{name} given", (3,))
    for suffix in (".txt", ".hloom"):
        path = folder / f"p{suffix}"
        sessions.save(path, program)
        found = sessions.load(path)
        assert to_text(found.program) == to_text(program)


@door
def summaries(name: str, folder: Path) -> None:
    """Event files, lines of JSON and CSV; twice, the second time from a step back."""
    for step, kind in itertools.product((1, 2), ("jsonl", "csv")):
        with hl.summary.Writer(folder / kind, lines=kind, purge_step=step) as writer:
            writer.scalar(name, 0.5, step)
            writer.text(f"{name} text", name, step)
            writer.graph(lowered(name))
    (file,) = (folder / "jsonl").glob("*.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["name"], row["step"]) for row in rows] == [(name, 1), (name, 2)]
    (path,) = (folder / "csv").glob("*.csv")
    with open(path, newline="", encoding="utf-8") as file:
        assert [(row["name"], row["step"]) for row in csv.DictReader(file)] == [(name, "1"), (name, "2")]


@door
def histories(name: str, folder: Path) -> None:
    """Metrics of a training."""
    for file in ("m.jsonl", "m.csv"):
        made = history.History(folder / file)
        made.open(0)
        made.add({"step": 1, name: 0.5})
        made.flush()
        made.add({"step": 2, f"{name} more": 0.25})
        made.flush()
        rows = history.read(folder / file)
        assert rows[0][name] == 0.5 and rows[1][f"{name} more"] == 0.25


class _Page(html.parser.HTMLParser):
    """The elements and the text of a page."""

    def __init__(self):
        super().__init__()
        self.elements, self.text = [], ""

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, tuple(attributes)))

    def handle_data(self, data):
        self.text += data


@door
def pages(name: str, folder: Path) -> None:
    """The status of a job as a page and as a table."""

    def found(text):
        return {"command": ["python", text], "state": text, "problem": text, "processes": [{
            "name": text, "state": text, "problem": text, "waits": [{"for": text, "seconds": 1.0}]}]}  # fmt: skip

    plain, hostile = _Page(), _Page()
    plain.feed(status.page(found("plain")))
    hostile.feed(status.page(found(name)))
    assert hostile.elements == plain.elements
    with open(folder / "table.txt", "w", encoding="utf-8", errors="replace") as file:
        status.show(found(name), Console(file=file, width=4000, force_terminal=False))
    status.page(found(name)).encode("utf-8")
    write_report(folder / "job", identifier(name), {"state": name})
    assert [row["state"] for row in read_reports(folder / "job")] == [name]


@door
def exports(name: str, folder: Path) -> None:
    """C and its header: compiled and loaded (slow: a compiler runs)."""
    library = hl.export(lambda tree: {name: tree[name] * 2}, {name: X}, folder=folder / "c", name=identifier(name))
    with library.load() as loaded:
        (function,) = loaded.functions.values()
        np.testing.assert_array_equal(function({name: X})[name], X * 2)


@door
def records(name: str, folder: Path) -> None:
    """Features of a TFRecord file."""
    hl.data.write_tfrecord(folder / "a.tfrecord", [{name: 3}])
    (row,) = list(hl.data.tfrecord(folder / "a.tfrecord", {name: hl.data.Int64()}))
    assert int(np.asarray(row[name])) == 3


@door
def artifacts(name: str, folder: Path) -> None:
    """`jax.export`'s form of programs."""

    def program(x):
        return x * 2

    program.__name__ = name
    data = export.export(hl.jit(program))(X).serialize()
    np.testing.assert_array_equal(np.asarray(export.deserialize(data).call(X)), X * 2)


QUICK = tuple(name for name in DOORS if name != "exports")


@dataclasses.dataclass
class Outcome:
    """refused: the error's text, "" where the name passed."""

    refused: str = ""


def passed(which: str, name: str, folder: Path) -> Outcome:
    """Takes a name through a door. Raises AssertionError where a file appears outside of its folder, and whatever the
    door raises but errors of hloom."""
    inside = folder / "inside"
    inside.mkdir(parents=True)
    before = set(folder.iterdir())
    try:
        DOORS[which](name, inside)
    except hl.errors.HloomError as error:
        str(error).encode("utf-8", "replace")
        return Outcome(str(error))
    finally:
        assert set(folder.iterdir()) == before, "a file outside"
    return Outcome()
