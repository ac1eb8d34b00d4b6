"""MkDocs hook: adds pages that live outside `docs/`, lists the decision records, and makes relative links work.

Links in the pages lead to files of the repository, so that they work in a checkout and on a code host. In the site a
link to another page leads to that page; a link to a file that is not in the site becomes plain text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
OUTSIDE = ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "benchmarks/results.png",
           *(f"benchmarks/{p.name}" for p in (ROOT / "benchmarks").glob("*.md"))]  # fmt: skip
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"(^ *```.*?^ *```)", re.MULTILINE | re.DOTALL)


def on_config(config):
    """Lists the decision records in the navigation, the latest first."""
    records = sorted((Path(config.docs_dir) / "decisions").glob("2*.md"), reverse=True)
    for part in config.nav:
        part.get("Decisions", []).extend(f"decisions/{p.name}" for p in records)
    return config


def on_files(files: Files, config) -> Files:
    for name in OUTSIDE:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page, config, files: Files) -> str:
    source = Path(page.file.abs_src_path).resolve()
    in_site = {Path(f.abs_src_path).resolve(): f.src_uri for f in files if f.abs_src_path}

    def link(found: re.Match) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        if re.match(r"\w+:", target):
            return found[0]
        path = (source.parent / target).resolve()
        if path in in_site:
            return f"[{text}]({os.path.relpath(in_site[path], os.path.dirname(page.file.src_uri) or '.')}{anchor})"
        return text if path.exists() else found[0]  # a link to nothing stays, and fails the strict build

    parts = FENCE.split(markdown)
    return "".join(part if k % 2 else LINK.sub(link, part) for k, part in enumerate(parts))
