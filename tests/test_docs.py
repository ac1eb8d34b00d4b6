"""The pages say what the code does: tables, printed outputs, commands, links. `pytest --bless` writes them anew."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import textwrap
import tomllib
from pathlib import Path

import pytest

import hloom as hl
from hloom import commands
from hloom.benchmarks.jax_tests import table as jax_tests
from hloom.benchmarks.report import summary as benchmark
from hloom.compiler.kernels.math import FUNCTIONS, callees
from hloom.compiler.passes import all_passes
from hloom.compiler.pipeline import PIPELINE, SPMD_PIPELINE
from hloom.config import SETTINGS
from hloom.ir.ops import OPS

ROOT = Path(__file__).parents[1]
OUTSIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PAGES = [ROOT / n for n in OUTSIDE] + sorted((ROOT / "docs").rglob("*.md"))
HELPERS = ("bitcast", "convert", "huge", "remainder_step", "polynomial")


def section(page: str, mark: str) -> tuple[str, str, str]:
    """The text before a marked section, the section, and what follows."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.search(rf"<!-- {re.escape(mark)} -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert found, f"{page} has no section {mark}"
    return text[: found.start(1)], found[1], text[found.end(1) :]


def holds(request, page: str, mark: str, wanted: str) -> None:
    before, there, after = section(page, mark)
    if request.config.getoption("--bless"):
        (ROOT / page).write_text(before + wanted + after, encoding="utf-8")
        return
    assert there == wanted, f"{page}, {mark}: run pytest --bless tests/test_docs.py and review the page"


# --- README -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tour():
    code = section("README.md", "tour")[1].removeprefix("```python\n").removesuffix("```\n")
    scope: dict = {}
    exec(compile(code, "tour.py", "exec"), scope)
    return scope


@pytest.mark.parametrize(
    ("expression", "language"), [("lowered.as_text()", ""), ("lowered.compile().source()", "python")]
)
def test_the_tour_prints_what_the_readme_shows(request, tour, expression, language):
    text = eval(expression, tour).strip("\n")
    holds(request, "README.md", f"output: {expression}", f"```{language}\n{text}\n```\n")


def test_the_tour_computes(tour):
    import numpy as np

    x, y = tour["x"].astype(np.float64), tour["y"].astype(np.float64)
    expected = np.sqrt(((x - y) ** 2).sum(axis=1))
    np.testing.assert_allclose(np.asarray(tour["d"]), expected, rtol=1e-5)
    np.testing.assert_allclose(tour["gradient"](tour["x"], tour["y"]), (x - y) / expected[:, None], atol=1e-6)
    assert tour["lowered"].compile().cost_analysis()["kernels"] == 1


def test_the_training_example_reads_digits():
    import numpy as np

    digits = pytest.importorskip("sklearn.datasets").load_digits()
    scope: dict = {}
    code = section("README.md", "training")[1].removeprefix("```python\n").removesuffix("```\n")
    exec(compile(code, "training.py", "exec"), scope)
    scores = scope["result"].state.model(digits.data.astype(np.float32) / 16)
    assert float(hl.metrics.accuracy(scores, digits.target)) > 0.95


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_figures_are_those_of_the_benchmark(request, page):
    result, counts = benchmark.results(), jax_tests.totals()
    lines = [
        f"- {benchmark.speed(result)}.",
        f"- {benchmark.first_calls(result)}.",
        f"- **{counts['hloom']:,} of the {counts['cpu']:,} tests** of jax's own suite that pass on jax's CPU pass with "
        "hloom as its device.",
    ]
    holds(request, page, "generated: figures", "\n" + "\n".join(lines) + "\n\n")


def test_the_chart_is_that_of_the_benchmark(request):
    picture = ROOT / "docs" / "assets" / "speed.svg"
    wanted = benchmark.chart(benchmark.results(), benchmark.user_kernels())
    if request.config.getoption("--bless"):
        picture.write_text(wanted, encoding="utf-8")
    assert picture.read_text(encoding="utf-8") == wanted, "run pytest --bless tests/test_docs.py"


def test_the_readme_has_one_command_for_the_main_job_and_one_for_the_tests():
    for mark, wanted in (("run-command", "examples/digits.py --dump hloom_dump"), ("test-command", "-m pytest")):
        (command,) = section("README.md", mark)[1].strip().removeprefix("```\n").removesuffix("\n```").split("\n")
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install") and wanted in command


def known_issues() -> dict[str, list[str]]:
    """The issues of other projects that `tests/known_issues` has a test of, by the project's name."""
    found = {}
    for file in sorted((ROOT / "tests" / "known_issues").glob("test_known_*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        issues = []
        for test in tree.body:
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                issue = re.match(r"([\w/]+#\d+): ", ast.get_docstring(test) or "")
                assert issue, f"{file.name}, {test.name}: the docstring begins with no issue, such as `jax#2491: `"
                issues.append(issue[1])
        found[re.search(r"Open issues of (\S+(?: Runtime)?)", ast.get_docstring(tree) or "")[1]] = issues
    return found


def test_the_readme_counts_what_is_open_elsewhere(request):
    issues = known_issues()
    every = [issue for project in issues.values() for issue in project]
    assert len(every) == len(set(every)) >= 20
    *counts, last = [f"{len(found)} of {project}" for project, found in issues.items()]
    text = (
        f"Open elsewhere, right here: {len(every)} issues of other projects are tests in `tests/known_issues`: "
        f"{', '.join(counts)} and {last}."
    )
    holds(request, "README.md", "generated: known issues", "\n".join(textwrap.wrap(text, 120)) + "\n")


# --- generated tables ---------------------------------------------------------------------------------------------


def test_every_setting_is_in_the_table(request):
    lines = ["| variable | `hl.config` | default | meaning |", "| --- | --- | --- | --- |"]
    lines += [f"| `{s.variable}` | `{s.name}` | `{s.default!r}` | {s.help} |" for s in SETTINGS.values()]
    holds(request, "docs/reference/settings.md", "generated: settings", "\n".join(lines) + "\n")


@pytest.mark.parametrize(("part", "names"), [("pipeline", PIPELINE), ("spmd pipeline", SPMD_PIPELINE)])
def test_every_pass_of_the_pipeline_is_on_the_page(request, part, names):
    lines = ["| pass | what it does |", "| --- | --- |"]
    for name in names:
        lines.append(f"| `{name}` | {all_passes()[name].summary} |")
    holds(request, "docs/reference/architecture.md", f"generated: {part}", "\n".join(lines) + "\n")


def test_what_annexes_import_of_the_core_is_on_the_page(request):
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    lines: dict[str, list[str]] = {}
    for pair in next(c for c in contracts if c["id"] == "annexes")["ignore_imports"]:
        annex, module = pair.split(" -> ")
        who = annex.removesuffix("**").removesuffix(".").removeprefix("hloom").removeprefix(".")
        lines.setdefault(who or "several", []).append(f"`{module.removeprefix('hloom.')}`")
    rows = [f"| {who} | {' '.join(modules)} |" for who, modules in lines.items()]
    text = "\n".join(["| annex | modules |", "| --- | --- |", *rows]) + "\n"
    holds(request, "docs/reference/architecture.md", "generated: annexes", text)


def test_every_command_and_option_is_on_the_page(request):
    lines = []
    for name, (_, summary) in commands.COMMANDS.items():
        lines += [
            f"## hloom {name}",
            "",
            summary[0].upper() + summary[1:] + ".",
            "",
            "```",
            *commands.examples(name),
            "```",
        ]
        lines += ["", "| option | default | meaning |", "| --- | --- | --- |"]
        for action in commands.command_parser(name)._actions[1:]:
            option = ", ".join(f"`{o}`" for o in action.option_strings) or f"`{action.dest}`"
            values = [action.metavar] if action.metavar else list(action.choices or ())
            default = f"`{action.default}`" if action.default not in (None, False, "", []) else ""
            lines.append(f"| {' '.join([option, *(f'`{v}`' for v in values)])} | {default} | {action.help} |")
        lines.append("")
    holds(request, "docs/reference/command_line.md", "generated: commands", "\n".join(lines))


def test_every_layer_is_in_the_table(request):
    lines = ["| layer | what it does |", "| --- | --- |"]
    layers = [getattr(hl.nn, name) for name in dir(hl.nn)]
    layers = [kind for kind in layers if isinstance(kind, type) and issubclass(kind, hl.nn.Module)]
    for layer in sorted((kind for kind in layers if kind is not hl.nn.Module), key=lambda kind: kind.__name__):
        parameters = []
        for parameter in [*inspect.signature(layer.__init__).parameters.values()][1:]:
            default = parameter.default
            if default is not parameter.empty and callable(default):  # an initializer, whose repr has an address
                default = re.sub(r"\.<locals>.*", "()", default.__qualname__)
                text = f"{parameter.name}={default}"
            else:
                text = str(parameter.replace(annotation=parameter.empty))
            if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parameters:
                parameters.append("*")
            parameters.append(text)
        meaning = re.sub(r"\s+", " ", inspect.getdoc(layer).split("\n\n")[0])
        meaning = meaning.replace("|", "\\|")
        lines.append(f"| `{layer.__name__}({', '.join(parameters)})` | {meaning} |")
    holds(request, "docs/guides/networks.md", "generated: layers", "\n".join(lines) + "\n")


def test_every_error_is_in_the_table(request):
    lines = ["| class | is also a | when |", "| --- | --- | --- |"]
    for name in sorted(hl.errors.__all__):
        error = getattr(hl.errors, name)
        own = [b.__name__ for b in error.__mro__[1:] if b.__module__ == "builtins"][:-1]
        kinds = [k for k in own if k not in ("Exception", "BaseException", "object", "LookupError")]
        meaning = re.sub(r"\s+", " ", inspect.getdoc(error).split("\n\n")[0])
        lines.append(f"| `{name}` | {', '.join(f'`{k}`' for k in kinds)} | {meaning} |")
    holds(request, "docs/reference/errors.md", "generated: errors", "\n".join(lines) + "\n")


def test_every_function_of_the_dialect_is_in_the_table(request):
    called = set().union(*(callees(name) for name in FUNCTIONS))
    used = {re.match(r"[a-z0-9_]+?(?=_\{)", t)[0] for o in OPS.values() if isinstance(o.code, dict)
            for t in o.code.values() if re.match(r"[a-z0-9_]+?(?=_\{)", t)}  # fmt: skip
    rows: dict[str, dict[str, float]] = {}
    for name, entry in FUNCTIONS.items():
        base, _, dtype = name.rpartition("_")
        if not base or base.startswith(HELPERS) or (name in called and base not in used and entry.kind == "function"):
            continue
        rows.setdefault(base, {})[dtype] = entry.ulp
    lines = ["| function | dtypes | error, ulp (f32, f64) | method or meaning |", "| --- | --- | --- | --- |"]
    for base, dtypes in rows.items():
        ulp = ", ".join(f"{dtypes[t]:g}" for t in ("f32", "f64") if t in dtypes)
        first = FUNCTIONS[f"{base}_{next((t for t in ('f32', 'f64') if t in dtypes), next(iter(dtypes)))}"]
        meaning = first.reference.split("\n")[0].replace("|", "\\|")
        lines.append(f"| `{base}` | {' '.join(dtypes)} | {ulp} | {meaning} |")
    assert len(lines) > 60 and {"exp", "tanh", "erf", "pow", "sum"} <= set(rows)
    holds(request, "docs/reference/kernels.md", "generated: functions", "\n".join(lines) + "\n")


# --- examples -----------------------------------------------------------------------------------------------------


def test_the_gallery_shows_every_example_as_it_is(request):
    found = importlib.util.spec_from_file_location("gallery", ROOT / "docs" / "_site" / "gallery.py")
    gallery = importlib.util.module_from_spec(found)
    found.loader.exec_module(gallery)
    assert not gallery.outdated(), f"run docs/_site/gallery.py {' '.join(gallery.outdated())}"
    shown = {name for names in gallery.GROUPS.values() for name in names.split()}
    assert shown == {file.stem for file in (ROOT / "examples").glob("*.py")} - {"text_data"}
    holds(request, "docs/guides/examples.md", "generated: gallery", gallery.page())


# --- all pages ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_that_pages_name_exist(page):
    for name in re.findall(r"`((?:ir|compiler|runtime|hloom|tests|examples|benchmarks)/[\w/.-]*)`", page.read_text()):
        assert (ROOT / name).exists(), f"{page.name} names {name}"


@pytest.mark.parametrize(
    ("page", "pattern"),
    [("docs/reference/features.md", r"^\|(?:.*?)\|(.*)\|$"), ("README.md", r"^(?:- No|  ) (.*)$")],
)
def test_no_op_that_exists_is_said_to_be_missing(page, pattern):
    """Nothing that the op table and the front end have stands in the column, or the list, of what is missing."""
    text = (ROOT / page).read_text(encoding="utf-8").split("## Not yet")[-1].split("## Documentation")[0]
    missing = " ".join(re.findall(pattern, text, re.MULTILINE))
    words = re.findall(r"`([\w-]+)(?![\w/-])[^`]*`", missing)
    present = {word for word in words if word in OPS or hasattr(hl, word) or hasattr(hl.lax, word)}
    assert missing and not present, f"{page} says that hloom has not {sorted(present)}"


def test_the_tables_of_jaxs_tests_are_those_of_the_counts():
    assert jax_tests.table() in jax_tests.TABLE.read_text(encoding="utf-8")
    assert jax_tests.summary() in jax_tests.SUMMARY.read_text(encoding="utf-8")
