"""The table of ONNX's ops against ONNX's schemas, and the page that lists them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")

from hloom.onnx import loading  # noqa: E402, F401  # fills the table
from hloom.onnx.graph import Scope  # noqa: E402
from hloom.onnx.reader import Reader  # noqa: E402
from hloom.onnx.reference import evaluator  # noqa: E402
from hloom.onnx.table import ONNX_DOMAINS, OPS, find  # noqa: E402

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "onnx.md"
SCHEMAS = {(s.domain, s.name): s for s in onnx.defs.get_all_schemas()}
VERSIONS = [s for s in onnx.defs.get_all_schemas_with_history() if s.since_version >= 7 or s.domain]


def has_body(schema) -> bool:
    return schema.has_function or schema.has_context_dependent_function


def test_rules_take_all_attributes_of_their_schemas():
    missing = {}
    for schema in VERSIONS:
        entry = find(schema.domain, schema.name, schema.since_version)
        if entry is not None and (left := set(schema.attributes) - entry.attributes):
            missing[schema.domain, schema.name, schema.since_version] = left
    assert not missing


def test_all_ops_of_the_table_exist():
    ours = {key for key in OPS if key[0] in ONNX_DOMAINS}  # rules of other domains have no schema in ONNX
    assert ours <= {(s.domain, s.name) for s in onnx.defs.get_all_schemas_with_history()}


def test_every_op_of_onnx_has_a_rule_or_a_body():
    left = [
        name
        for (domain, name), s in SCHEMAS.items()
        if not domain and not s.deprecated and find(domain, name, s.since_version) is None and not has_body(s)
    ]
    assert not left


def test_every_op_without_a_rule_and_a_body_has_a_reference():
    for (domain, name), schema in SCHEMAS.items():
        if schema.deprecated or has_body(schema) or find(domain, name, schema.since_version) is not None:
            continue
        required = {n: [1.0] for n, a in schema.attributes.items() if a.required}  # coefficients, all of them
        node = onnx.helper.make_node(
            name, ["x"] * schema.min_input, ["y"] * schema.min_output, domain=domain, **required
        )
        scope = Scope({"": onnx.defs.onnx_opset_version(), domain: schema.since_version}, {})
        assert evaluator(Reader().node(node), scope) is not None, name


def test_the_page_lists_the_ops(request):
    lines = ["| domain | ops |", "| --- | --- |"]
    for domain in sorted({d for d, _ in SCHEMAS}):
        names = sorted(n for d, n in SCHEMAS if d == domain)
        ruled = [n for n in names if find(domain, n, SCHEMAS[domain, n].since_version)]
        bodies = [n for n in names if n not in ruled and has_body(SCHEMAS[domain, n])]
        absent = [n for n in names if n not in ruled and n not in bodies]
        title = domain or "ai.onnx"
        lines.append(f"| `{title}` ({len(ruled)}) | {', '.join(ruled)} |")
        if bodies:
            lines.append(f"| `{title}`, expanded ({len(bodies)}) | {', '.join(bodies)} |")
        if absent:
            lines.append(f"| `{title}`, by ONNX's reference evaluator ({len(absent)}) | {', '.join(absent)} |")
    wanted = "\n".join(lines) + "\n"
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(r"<!-- generated: onnx ops -->\n(.*?)<!-- end -->", text, re.DOTALL)
    if request.config.getoption("--bless"):
        PAGE.write_text(text[: found.start(1)] + wanted + text[found.end(1) :], encoding="utf-8")
        return
    assert found[1] == wanted, "run pytest --bless tests/hloom/onnx and review the page"


def test_the_page_has_the_results_of_the_suite():
    import onnx_cases

    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.-]+/\w+)` \| (.*) \|$", text, re.MULTILINE)
    named = dict(rows)
    expected = {case.name: onnx_cases.cause(case.name) for case in onnx_cases.cases() if onnx_cases.cause(case.name)}
    assert named == expected, "run python tests/onnx_suite.py --write"
    assert int(re.search(r"\| all \| (\d+) \|", text)[1]) >= 1900
