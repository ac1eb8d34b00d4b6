"""The folders show direction, files are of a size that one reads, and nothing is a stub."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[1]
ROOMS = ("ir", "compiler", "runtime", "hloom", "benchmarks")
LINES = 600  # files are split by subject near 500 lines
# What a room may import of ours. `hloom` joins them all.
ALLOWED = {
    "ir": ("hloom.ir",),
    "compiler": ("hloom.ir", "hloom.compiler"),
    "runtime": (
        "hloom.ir.types",
        "hloom.ir.records",
        "hloom.ir.sizes.numbers",
        "hloom.ir.base_error",
        "hloom.ir.process",
        "hloom.runtime",
    ),
}


def sources(*folders: str) -> list[Path]:
    found = []
    for folder in folders:
        # rglob does not follow links, so hloom/ir is not hloom's
        found += [p for p in sorted((ROOT / folder).rglob("*.py")) if not (folder == "hloom" and _behind_link(p))]
    return found


def _behind_link(path: Path) -> bool:
    return path.relative_to(ROOT / "hloom").parts[0] in ROOMS


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(path: Path) -> list[tuple[int, str]]:
    """(line, module) of each import of ours; relative ones made absolute; `from a import b` as a.b."""
    package = ["hloom", *path.relative_to(ROOT).with_suffix("").parts[:-1]]
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*base, *([node.module] if node.module else [])])
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return [(line, module) for line, module in found if module.split(".")[0] == "hloom"]


def within(module: str, allowed: tuple[str, ...]) -> bool:
    return any(module == room or module.startswith(room + ".") for room in allowed)


@pytest.mark.parametrize("room", ALLOWED)
def test_imports_go_one_way(room):
    files = sources(room)
    assert len(files) > 3
    wrong = [
        f"{name(path)}:{line} imports {module}"
        for path in files
        for line, module in imports(path)
        if not within(module, ALLOWED[room])
    ]
    assert not wrong, "\n".join(wrong)


def test_the_checker_of_imports_sees_relative_and_inner_imports(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    file = tmp_path / "ir" / "ops" / "x.py"
    file.parent.mkdir(parents=True)
    file.write_text("from ..types import Shape\ndef f():\n    import hloom.jit\n    from hloom import compiler\n")
    assert [m for _, m in imports(file)] == ["hloom.ir.types.Shape", "hloom.jit", "hloom.compiler"]


def test_files_are_short_enough_to_read():
    long = {
        name(path): count
        for path in sources(*ROOMS, "examples", "tests")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > LINES
    }
    assert not long, f"split by subject: {long}"


def test_nothing_is_a_stub():
    stubs = []
    for path in sources(*ROOMS):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "NotImplementedError" in text else ():
            if isinstance(node, ast.Raise) and "NotImplementedError" in ast.unparse(node):
                stubs.append(f"{name(path)}:{node.lineno}")
    assert not stubs, stubs


@pytest.mark.parametrize("room", ("ir", "compiler", "runtime", "benchmarks"))
def test_rooms_are_links_in_the_package(room):
    link = ROOT / "hloom" / room
    assert link.is_symlink() and link.readlink() == Path("..") / room


def test_import_linter_agrees():
    pytest.importorskip("importlinter")
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and "0 broken" in done.stdout, done.stdout + done.stderr


# --- rooms, circles, imports inside functions ----------------------------------------------------------------------


TOP_MODULES = 12  # directly in hloom/
ROOM_FILES = 15  # directly in a folder
# One file per benchmark and module of JAX's; the IR's own parts, one file each; one file per subject of the
# operations of torch and ONNX.
LARGER_ROOMS = {
    "benchmarks": 16,
    "hloom/jax": 17,
    "hloom/onnx/rules": 18,
    "hloom/njit": 19,
    "ir": 17,
    "hloom/bridges/torch/rules": 18,
}
# A budget of lines for each room: what it had on 2026-11-28, and a little for repairs. Whoever needs more says so
# here, in the change that needs it.
# fmt: off
LINES_OF_ROOMS = {
    "benchmarks": 14400, "compiler": 1750, "compiler/kernel_ir": 8000, "compiler/kernels": 14800,
    "compiler/passes": 10000, "compiler/placement": 1250, "compiler/schedule": 3500, "compiler/targets": 750,
    "compiler/targets/cpu": 7750, "compiler/targets/cuda": 7500, "compiler/transforms": 3750, "hloom": 2250,
    "hloom/arrays": 2750, "hloom/backends": 6250, "hloom/bridges": 10250, "hloom/checkpoints": 1750,
    "hloom/cluster": 5750, "hloom/commands": 1750, "hloom/data": 4500, "hloom/dispatch": 3750,
    "hloom/distributed": 1250, "hloom/export": 3500, "hloom/jax": 2500, "hloom/kernels": 7250, "hloom/lax": 5750,
    "hloom/njit": 8600,
    "hloom/nn": 3500, "hloom/numpy": 11450, "hloom/onnx": 5750, "hloom/optim": 2250, "hloom/platforms": 1500,
    "hloom/profiler": 750, "hloom/random": 2250, "hloom/scipy": 4500, "hloom/serving": 1750, "hloom/sessions": 5000,
    "hloom/sharding": 1500, "hloom/summary": 1500, "hloom/tracing": 3500, "hloom/training": 3500,
    "hloom/transforms": 2750, "hloom/tree": 1000, "ir": 4000, "ir/ops": 10250, "ir/process": 1000, "ir/sizes": 2250,
    "ir/spmd": 2500, "ir/stablehlo": 7250, "ir/text": 2750, "runtime": 4500, "runtime/cuda": 5000,
    "runtime/distributed": 750, "runtime/pjrt": 2250,
}
# fmt: on
# How many folders and modules of a package know each other, though none of their modules do. These only get fewer.
ROOM_CIRCLES = {
    "hloom.bridges.torch": 3,  # calls, open_sizes, translate
    "hloom.compiler": 3,  # kernels, passes, targets: all know the interface of targets, targets/base
    "hloom.compiler.targets.cpu": 7,  # fft, microkernels; interface, llvm_emitter; codegen, library, prebuilt
    "hloom.ir": 6,  # build, interpret, op_table, ops, spmd, window: ops declare themselves in op_table
    "hloom.numpy": 11,  # by subject, of functions that call each other
    "hloom.runtime.cuda": 2,  # device, programs
}
ANNEX_IMPORTS = 117  # modules of the core that annexes import beside its public face
LATE_IMPORTS = 60  # import statements inside functions of PACKAGES, which save the start-up time of a heavy library
PACKAGES = ("ir", "compiler", "runtime", "hloom")


def module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "hloom" else ("hloom", *parts)).removesuffix(".__init__")


def import_nodes(tree: ast.Module) -> list[ast.Import | ast.ImportFrom]:
    """The imports of a file at any depth, except those under `if TYPE_CHECKING`, which only `lazy_names` makes real."""
    found, stack = [], [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not lazy(tree):
            stack += node.orelse
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.append(node)
        else:  # no expression has an import in it
            stack += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
    return found


def lazy(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "lazy_names" for node in ast.walk(tree))


@functools.cache
def import_graph() -> dict[str, set[str]]:
    """Module -> the modules of ours that it knows: every import statement counts, at any depth, those inside functions
    and those under `if TYPE_CHECKING` too.

    `from package import name` is an import of package.name where that is a module, else of the package. A package is a
    module, its `__init__`; importing a module of a package is no import of the package, and a package's own modules do
    not count as importing it.
    """
    paths = {module(p): p for p in sources(*ROOMS)}
    edges: dict[str, set[str]] = {m: set() for m in paths}
    for importer, path in paths.items():
        package = (importer if path.name == "__init__.py" else importer.rpartition(".")[0]).split(".")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = ".".join([*(package[: len(package) - node.level + 1] if node.level else []),
                                 *([node.module] if node.module else [])])  # fmt: skip
                names = [f"{base}.{alias.name}" for alias in node.names]
            else:
                continue
            for name in names:
                while name and name not in paths:
                    name = name.rpartition(".")[0]
                if name and name != importer and not importer.startswith(name + "."):
                    edges[importer].add(name)
    return edges


def neighbours(edges: dict[str, set[str]], package: str) -> dict[str, set[str]]:
    """The folders and modules directly in a package -> those of the same package that something in them imports."""
    level = package.count(".") + 2
    within = [m for m in edges if m.startswith(package + ".")]
    room = {m: ".".join(m.split(".")[:level]) for m in within}
    found: dict[str, set[str]] = {r: set() for r in room.values()}
    for m in within:
        found[room[m]] |= {room[n] for n in edges[m] if n in room} - {room[m]}
    return found


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(v: str) -> None:
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in edges[v]:
            if w not in index:
                visit(w)
            if w in stack:
                low[v] = min(low[v], low[w])
        if low[v] == index[v]:
            at = stack.index(v)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for v in edges:
        if v not in index:
            visit(v)
    return found


def late_imports(path: Path) -> list[tuple[int, bool]]:
    """(line, whether a comment gives a reason) of each import inside a function: on its line, or over its block."""
    text = path.read_text(encoding="utf-8")
    lines, found = text.splitlines(), {}
    if not re.search(r"^\s+(import|from) ", text, re.MULTILINE):
        return []  # few files have one, and parsing them all takes seconds
    for function in ast.walk(ast.parse("\n".join(lines))):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        reasoned, end = False, 0
        for node in sorted(import_nodes(ast.Module([*function.body], [])), key=lambda n: n.lineno):
            if node.lineno != end + 1:  # a block of its own
                reasoned = lines[node.lineno - 2].lstrip().startswith("#")
            end = node.end_lineno or node.lineno
            found[node.lineno] = reasoned or any("#" in line for line in lines[node.lineno - 1 : end])
    return sorted(found.items())


def test_no_circle_of_files():
    found = circles(import_graph())
    assert not found, "\n".join(f"{len(c)}: {' '.join(c)}" for c in found)


def test_circles_of_rooms_are_known():
    """Of folders, with all that is in them, and modules side by side in a package. No modules are in a circle, but a
    folder may have one module that knows another folder and one that is known there."""
    edges = import_graph()
    for package in {m.rpartition(".")[0] for m in edges} - {""}:
        found = circles(neighbours(edges, package))
        shown = "; ".join(" ".join(r.removeprefix(package + ".") for r in c) for c in found)
        assert sum(map(len, found)) <= ROOM_CIRCLES.get(package, 0), f"{package}: {shown}"


def test_the_graph_counts_imports_for_type_checkers_and_inside_functions(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    for file, text in {
        "ir/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from hloom.ir.b import B\n",
        "ir/b.py": "def f():\n    from . import a\n",
        "ir/room/__init__.py": "from hloom.ir.room import c\n",
        "ir/room/c.py": "import hloom.ir.room\nfrom hloom.ir import b\n",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    edges = import_graph.__wrapped__()
    assert edges == {
        "hloom.ir.a": {"hloom.ir.b"},
        "hloom.ir.b": {"hloom.ir.a"},
        "hloom.ir.room": {"hloom.ir.room.c"},
        "hloom.ir.room.c": {"hloom.ir.b"},
    }
    assert circles(edges) == [["hloom.ir.a", "hloom.ir.b"]]
    assert neighbours(edges, "hloom.ir")["hloom.ir.room"] == {"hloom.ir.b"}


def test_the_finder_of_circles_finds_them():
    edges = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(circles(edges)) == [["a", "b", "c"], ["d", "e"]]


def test_rooms_are_small():
    assert len(list((ROOT / "hloom").glob("*.py"))) <= TOP_MODULES
    folders: dict[str, int] = {}
    for path in sources(*ROOMS):
        if path.parent != ROOT / "hloom" and path.name != "__init__.py":
            folders[name(path.parent)] = folders.get(name(path.parent), 0) + 1
    large = {folder: count for folder, count in folders.items() if count > LARGER_ROOMS.get(folder, ROOM_FILES)}
    assert not large, large


def room_of(path: Path) -> str:
    """The room whose budget a file counts to: a folder of a package, of targets each; all of the benchmarks."""
    parts = path.relative_to(ROOT).parts[:-1]
    if parts[0] == "benchmarks":
        return "benchmarks"
    return "/".join(parts[: 3 if parts[:2] == ("compiler", "targets") else 2])


def test_rooms_keep_to_their_budgets():
    lines: dict[str, int] = {}
    for path in sources(*ROOMS):
        room = room_of(path)
        lines[room] = lines.get(room, 0) + len(path.read_text(encoding="utf-8").splitlines())
    over = {r: f"{n} lines, of {LINES_OF_ROOMS.get(r, 0)}" for r, n in lines.items() if n > LINES_OF_ROOMS.get(r, 0)}
    assert not over, f"say in LINES_OF_ROOMS that a room grows: {over}"
    assert lines.keys() == LINES_OF_ROOMS.keys(), "a budget without a room"


# --- core and annexes ----------------------------------------------------------------------------------------------


def annex_contract() -> tuple[set[str], list[tuple[str, str]]]:
    """(the annexes, what they may import of the core: (an annex or '', a module)) of the linter's contract."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    contract = next(c for c in found if c["id"] == "annexes")
    pairs = [line.split(" -> ") for line in contract["ignore_imports"]]
    return {*contract["source_modules"]}, [(a.removesuffix("**").removesuffix("."), m) for a, m in pairs]


def test_the_list_of_what_annexes_import_is_as_short_as_it_can_be():
    annexes, listed = annex_contract()
    edges = import_graph()

    def users(imported: str) -> set[str]:
        """The annexes that import a module, or one directly in a package (`hloom.ir.sizes.*`)."""
        package, star, _ = imported.partition("*")
        matches = {m for m in edges if (m.rpartition(".")[0] + "." == package if star else m == imported)}
        importers = (m for m, known in edges.items() if known & matches)
        return {".".join(m.split(".")[:2]) for m in importers} & annexes

    public = {"hloom.nn.functional", "hloom.nn.initializers", "hloom.nn.losses", "hloom.nn.regularizers"}
    for annex, imported in listed:
        found = users(imported)
        if annex == "hloom":  # for all of them
            assert len(found) > 1 or (found and imported in public), f"{imported} serves {found or 'no annex'} alone"
        else:
            assert found == {annex}, f"{imported}, listed for {annex}, is imported by {found or 'none'}"
    assert len({m for _, m in listed} - public) <= ANNEX_IMPORTS


def test_imports_inside_functions_are_few_and_have_reasons():
    found = [(f"{name(p)}:{line}", reasoned) for p in sources(*PACKAGES) for line, reasoned in late_imports(p)]
    bare = [where for where, reasoned in found if not reasoned]
    assert not bare, "an import inside a function says why on its line or the line before:\n" + "\n".join(bare)
    assert len(found) <= LATE_IMPORTS, f"{len(found)} imports inside functions"


# --- branches ------------------------------------------------------------------------------------------------------


MOST_BRANCHES = 20  # of a function, with those in it
# The functions with more, and what holds each of them together.
BRANCHY = {
    "compiler/kernel_ir/affine/facts.py _sup": "a case for each kind of term",
    "compiler/kernel_ir/bounds/abstract.py _within": "one step of the proof: the ways to show an index in bounds",
    "compiler/kernels/attention/structure.py _kind": "a case for each op of that pattern",
    "compiler/kernels/attention/structure.py attention_of": "the conditions of one pattern, each with its return",
    "compiler/kernels/contractions/im2col.py image_of": "the conditions of one pattern, each with its return",
    "compiler/kernels/matrices/eigh.py eigh": "a kernel, of which each loop is a step of one algorithm",
    "compiler/targets/cpu/llvm_emitter/values.py cast": "LLVM has an instruction for each pair of kinds",
    "compiler/targets/cuda/contractions/operands.py make_side": "one choice: how threads load, and what excludes a way",
}
_BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.comprehension, ast.match_case)
_KEYWORDS = re.compile(r"\b(?:if|elif|for|while|except|case|and|or)\b")  # as many as branches, or more


def branches(function: ast.AST) -> int:
    """The branches of a function: statements, conditional expressions, comprehensions, and each `and` and `or`."""
    nodes = list(ast.walk(function))
    operators = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return operators + sum(isinstance(node, _BRANCHES) for node in nodes)


def branchy(text: str, most: int) -> dict[str, int]:
    """The functions with more branches than that, by name."""
    lines, found = text.splitlines(), {}
    nodes: list[ast.AST] = [ast.parse(text)] if len(_KEYWORDS.findall(text)) > most else []
    while nodes:
        node = nodes.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if len(_KEYWORDS.findall("\n".join(lines[node.lineno - 1 : node.end_lineno]))) <= most:
                continue
            if (count := branches(node)) > most:
                found[node.name] = count
        inner = (ast.stmt, ast.excepthandler, ast.match_case)
        nodes += [child for child in ast.iter_child_nodes(node) if isinstance(child, inner)]
    return found


def test_functions_have_few_branches():
    found = {
        f"{name(path)} {function}": count
        for path in sources(*PACKAGES)
        for function, count in branchy(path.read_text(encoding="utf-8"), MOST_BRANCHES).items()
    }
    new = {function: count for function, count in found.items() if function not in BRANCHY}
    assert not new, f"tables, named steps and early returns make them clearer: {new}"


def test_the_counter_of_branches_sees_nested_functions():
    text = (
        "class C:\n def f(x):\n  def g(y):\n   return y if x and y and 1 else [k for k in y if k]\n  for z in x: pass\n"
    )
    assert branchy(text, 3) == {"f": 5, "g": 4} and branchy(text, 4) == {"f": 5} and not branchy(text, 5)
