"""The API pages show all that is public: each name once, in a group, with a signature and a docstring."""

from __future__ import annotations

import importlib
import inspect
import re
import types
from collections import Counter
from pathlib import Path

import pytest

import hloom as hl
from hloom.jax.import_hook import MODULES

PAGES = Path(__file__).parents[1] / "docs" / "api"
# Modules under JAX's names; docs/reference/coverage.md lists what is in them.
FOR_JAX = MODULES.keys() - {"debug", "ref", "stages"}


def packages() -> dict[str, types.ModuleType]:
    """The public packages under the names that users write, `hloom.debug` for `hl.debug`."""
    found = {"hloom": hl, "hloom.serving": importlib.import_module("hloom.serving")}
    stack = [*found]
    while stack:
        path = stack.pop()
        for name in found[path].__all__:
            value = getattr(found[path], name)
            if isinstance(value, types.ModuleType) and not (path == "hloom" and name in FOR_JAX):
                found[f"{path}.{name}"] = value
                stack.append(f"{path}.{name}")
    return found


PACKAGES = packages()
METHODS = (types.FunctionType, staticmethod, classmethod)


def own_names(path: str) -> set[str]:
    module = PACKAGES[path]
    public = {name for name in module.__all__ if not name.startswith("__")}
    return {name for name in public if not isinstance(getattr(module, name), types.ModuleType)}


def names_of_pages() -> Counter:
    """The names that pages show, `::: hloom.numpy.sin`, or list after `<!-- names: hloom.numpy -->`."""
    found: Counter = Counter()
    for page in PAGES.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        found.update(re.findall(r"^::: (\S+)$", text, re.MULTILINE))
        for path, listed in re.findall(r"<!-- names: (\S+) -->\n(.*?)\n\n", text + "\n\n", re.DOTALL):
            found.update(f"{path}.{name}" for name in re.findall(r"`(\w+)`", listed))
    return found


@pytest.mark.parametrize("path", PACKAGES)
def test_every_public_name_is_on_a_page_once(path):
    shown = names_of_pages()
    count = {name: shown[f"{path}.{name}"] for name in own_names(path)}
    missing = sorted(name for name, times in count.items() if not times)
    assert not missing, f"add to a group of a page in docs/api: {', '.join(f'::: {path}.{name}' for name in missing)}"
    twice = sorted(name for name, times in count.items() if times > 1)
    assert not twice, f"{path}: on a page more than once: {twice}"


def test_pages_show_only_what_there_is():
    for shown in names_of_pages():
        path, _, name = shown.rpartition(".")
        if path in PACKAGES:
            assert name in own_names(path), f"a page of docs/api shows {shown}"


def documented_callables(path: str):
    """(name, value) of the public functions and classes of ours, and of the public methods of the classes."""
    for name in own_names(path):
        value = getattr(PACKAGES[path], name)
        if not callable(value) or (getattr(value, "__module__", None) or "hloom").partition(".")[0] != "hloom":
            continue
        yield name, value
        for method, member in vars(value).items() if inspect.isclass(value) else ():
            if not method.startswith("_") and isinstance(member, METHODS):
                yield f"{name}.{method}", getattr(value, method)


@pytest.mark.parametrize("path", PACKAGES)
def test_every_public_callable_has_a_signature_and_a_docstring(path):
    without = []
    for name, value in documented_callables(path):
        exception = inspect.isclass(value) and issubclass(value, Exception)  # Python gives some no signature
        try:
            signature = exception or inspect.signature(value)
        except (TypeError, ValueError):
            signature = None
        if signature is None or not inspect.getdoc(value):
            without.append(name)
    assert not without, f"{path}: without a docstring or a signature: {sorted(without)}"
