"""The gallery of the examples, `docs/guides/examples.md`: what each does, and what it prints.

    python docs/_site/gallery.py [NAME ...]

runs examples (all of the gallery without names) and keeps their outputs in `gallery.json`, each with a digest of the
example's source. `pytest --bless tests/test_docs.py` writes the page; the test fails where a source has changed
since.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
OUTPUTS = Path(__file__).with_name("gallery.json")
TIME_LIMIT = 300  # seconds for one example
COLUMNS = 120  # of tables
MOST_LINES = 14  # of an output that are shown
# Names of examples by subject; those that need a cluster, a second process or root are listed without an output.
GROUPS = {
    "Science": "black_scholes linear_regression logistic_regression gaussian_process pca k_means heat neural_ode",
    "Networks": "digits lenet character_lstm transformer wide_and_deep train_digits tfrecord_input",
    "Several devices": "towers layer_per_device sharded_digits sharded_weights sharded_tables tensor_parallel "
    "ring_attention pipeline mixture_of_experts",
    "Several processes": "cut_graph two_tasks parameter_servers two_hosts",
    "Other frameworks": "keras_digits",
}
ALONE = ["two_tasks", "parameter_servers", "two_hosts", "keras_digits", "train_digits"]


def source(name: str) -> str:
    return (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")


def digest(name: str) -> str:
    return hashlib.sha256(source(name).encode()).hexdigest()[:16]


def kept() -> dict[str, dict[str, str]]:
    return json.loads(OUTPUTS.read_text(encoding="utf-8")) if OUTPUTS.exists() else {}


def outdated() -> list[str]:
    """Examples that were changed after their outputs were kept."""
    return [name for name, run in kept().items() if run["source"] != digest(name)]


def page() -> str:
    """The generated part of the page."""
    outputs, lines = kept(), [""]
    for group, names in GROUPS.items():
        lines += [f"## {group}", ""]
        for name in names.split():
            what = ast.get_docstring(ast.parse(source(name))).split("\n\n")[0].replace("\n", " ")
            lines += [f"### {name}", "", what, "", f"[examples/{name}.py](../../examples/{name}.py)", ""]
            if name in outputs:
                text = outputs[name]["output"].splitlines()
                if len(text) > MOST_LINES:
                    text = [*text[: MOST_LINES // 2], "...", *text[-MOST_LINES // 2 :]]
                lines += ["```text", f"$ python examples/{name}.py", *text, "```", ""]
    return "\n".join(lines) + "\n"


def run(name: str) -> None:
    command = [sys.executable, f"examples/{name}.py"]
    wide = os.environ | {"COLUMNS": str(COLUMNS + len(str(ROOT)))}  # tables cut no path off
    done = subprocess.run(command, cwd=ROOT, env=wide, capture_output=True, text=True, timeout=TIME_LIMIT, check=True)
    text = re.sub(rf"{re.escape(str(ROOT))}/(\S+)", lambda found: found[1].ljust(len(found[0])), done.stdout)
    lines = [line.rstrip() for line in text.rstrip().splitlines()]
    outputs = kept() | {name: {"source": digest(name), "output": "\n".join(lines)}}
    OUTPUTS.write_text(json.dumps(dict(sorted(outputs.items())), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or [n for names in GROUPS.values() for n in names.split() if n not in ALONE]:
        run(chosen)
        print(chosen)
