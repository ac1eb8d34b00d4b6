"""What users see: `dir` of every public module shows public names only, all of which exist and are documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import types
from pathlib import Path

import pytest

import hloom as hl
from hloom.jax.import_hook import MODULES

pytestmark = pytest.mark.quick

FOLDERS = ("experimental",)  # of hloom.jax: their modules are public


def public_modules() -> list[str]:
    found, stack = {}, ["hloom", *MODULES.values()]
    for folder in FOLDERS:
        package = importlib.import_module(f"hloom.jax.{folder}")
        stack += [f"{package.__name__}.{m.name}" for m in pkgutil.iter_modules(package.__path__)]
    while stack:
        name = stack.pop()
        if name not in found:
            found[name] = module = importlib.import_module(name)
            values = [getattr(module, n, None) for n in module.__all__]
            stack += [v.__name__ for v in values if isinstance(v, types.ModuleType) and v.__name__.startswith("hloom")]
    return sorted(found)


@pytest.mark.parametrize("name", public_modules())
def test_a_public_module_shows_its_public_names(name):
    module = importlib.import_module(name)
    assert sorted(set(module.__all__)) == dir(module), "each name once"
    assert not [n for n in module.__all__ if n.startswith("_") and not n.endswith("__")]
    missing = [n for n in module.__all__ if not hasattr(module, n)]
    assert not missing
    values = {n: getattr(module, n) for n in module.__all__}
    ours = {n: v for n, v in values.items() if (getattr(v, "__module__", None) or "").startswith("hloom")}
    bare = [n for n, v in ours.items() if (inspect.isfunction(v) or inspect.isclass(v)) and not v.__doc__]
    assert not bare, f"without a docstring: {bare}"
    foreign = [n for n, v in values.items() if isinstance(v, types.ModuleType) and not v.__name__.startswith("hloom")]
    assert not foreign


def test_the_walk_finds_the_packages():
    names = public_modules()
    assert {"hloom.numpy.linalg", "hloom.scipy.stats", "hloom.nn.initializers", "hloom.jax.experimental.checkify"} <= {
        *names
    }
    assert len(names) > 60


@pytest.mark.parametrize("name", ("hloom", "hloom.numpy", "hloom.lax", "hloom.nn", "hloom.optim"))
def test_type_checkers_see_the_lazy_names(name):
    """Names that `__getattr__` finds are imported from the same modules under TYPE_CHECKING, and nothing else is."""
    module = importlib.import_module(name)
    body = ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body
    (block,) = [node for node in body if isinstance(node, ast.If) and ast.unparse(node.test) == "_TYPE_CHECKING"]
    seen = {(node.module, alias.name): alias.asname or alias.name for node in block.body for alias in node.names}
    homes = {(home, n): n for home, names in module._HOMES.items() for n in names.split()}
    assert homes.items() <= seen.items()
    for (package, submodule), public in seen.items() - homes.items():
        found = vars(importlib.import_module(package)).get(submodule)
        assert getattr(module, public) is (found or importlib.import_module(f"{package}.{submodule}"))
    eager = {n for n in module.__all__ if n not in seen.values()} - {*getattr(module, "_table", module).__all__}
    assert not eager - vars(module).keys() - {*getattr(module, "_DEFAULT_TYPES", ())}


def test_names_that_are_only_ours_are_not_shown():
    assert not {"importlib", "preload", "annotations", "arrays", "tracing", "MODULES"} & {*dir(hl)}
    assert "NamedTuple" not in dir(hl.metrics) and "math" not in dir(hl.numpy)


def test_a_star_import_brings_the_public_names():
    scope: dict = {}
    exec("from hloom.numpy import *", scope)
    assert scope["sin"] is hl.numpy.sin and "annotations" not in scope
