"""Griffe extension: API pages show the public names that exist at run time, and render docstrings as Markdown.

Griffe reads source text. Functions that a table creates (`hloom.lax.sin`) have no `def`, layers no `__init__`, and some
`__all__` are computed: what the text lacks is taken from the imported modules.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import types
from pathlib import Path

import griffe

from hloom.errors import HloomError

PAGES = Path(__file__).parents[1] / "api"
FIELD = re.compile(r"^(\*{0,2}[a-zA-Z_]\w*(?:, \*{0,2}\w+)*): (?=\S)")
NOT_FOUND = (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError)


class PublicNames(griffe.Extension):
    """Completes the modules of the pages from run time, and turns `name: meaning` lines of docstrings into lists."""

    def on_package(self, *, pkg: griffe.Module, **_) -> None:
        for path in packages_of_pages() if pkg.path == "hloom" else ():
            runtime = _module_at(path)
            if hasattr(runtime, "__all__"):
                module = pkg if path == "hloom" else pkg[path.removeprefix("hloom.")]
                for name in runtime.__all__:
                    _complete(pkg, module, name, runtime)

    def on_instance(self, *, obj: griffe.Object, **_) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def _complete(pkg: griffe.Module, module: griffe.Module | griffe.Alias, name: str, runtime) -> None:
    """Makes a public name what it is at run time, where its text does not say so."""
    try:
        value = getattr(runtime, name)
    except HloomError:  # a module whose library is not installed
        return
    found = _definition(module, name)
    if found is None or (isinstance(value, types.FunctionType) and not found.is_function):
        written = _written(pkg, value)
        if written is not None:
            module.set_member(name, griffe.Alias(name, written, parent=module))
        elif isinstance(value, types.FunctionType):
            module.set_member(name, _function(name, value))
        elif not isinstance(value, types.ModuleType):
            plain = repr(value) if isinstance(value, (int, float, str)) else None
            module.set_member(name, griffe.Attribute(name, value=plain, docstring=_docstring(value)))
        found = _definition(module, name)
    elif found.is_attribute and found.docstring is None and callable(value):
        found.docstring = _docstring(value)
    if found is not None and found.is_class and inspect.isclass(value):
        _add_constructor(found, value)


def _written(pkg: griffe.Module, value) -> griffe.Object | None:
    """Where the text of a function or class is, if it has one under its own name."""
    home, name = getattr(value, "__module__", None) or "", getattr(value, "__qualname__", "")
    found = _definition(pkg, f"{home.removeprefix('hloom.')}.{name}") if home.startswith("hloom.") and name else None
    return found if found is not None and (found.is_function or found.is_class) else None


def packages_of_pages() -> list[str]:
    """The modules of which the pages show names, `hloom.numpy` for `::: hloom.numpy.sin`."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES.glob("*.md"))
    return sorted({path.rpartition(".")[0] for path in re.findall(r"^::: (\S+)$", text, re.MULTILINE)})


def _module_at(path: str):
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:  # hloom.debug and hloom.ref are modules of other names
        return getattr(importlib.import_module("hloom"), path.removeprefix("hloom."))
    except HloomError:  # the estimators' library is not installed: their text has to do
        return None


def _definition(module: griffe.Module | griffe.Alias, name: str) -> griffe.Object | None:
    try:
        found = module[name]
        return found.final_target if found.is_alias else found
    except NOT_FOUND:
        return None


def _add_constructor(found: griffe.Object, value: type) -> None:
    """The parameters of a class whose text has no `__init__`, as those of dataclasses and named tuples."""
    if issubclass(value, enum.Enum) or "__init__" in found.members:
        return
    try:
        found.set_member("__init__", _function("__init__", value, "self"))
    except (TypeError, ValueError):  # a class of a library without a signature
        return


def _function(name: str, value, *first: str) -> griffe.Function:
    """A function with the parameters that a function or class has at run time, after those named `first`."""
    kinds = {k: getattr(griffe.ParameterKind, k.name.lower()) for k in inspect._ParameterKind}
    parameters = [griffe.Parameter(n, kind=griffe.ParameterKind.positional_or_keyword) for n in first]
    for p in inspect.signature(value).parameters.values():
        default = None if p.default is p.empty else default_text(p.default)
        parameters.append(griffe.Parameter(p.name, kind=kinds[p.kind], default=default))
    docstring = None if first else _docstring(value)
    return griffe.Function(name, parameters=griffe.Parameters(*parameters), docstring=docstring)


def default_text(value) -> str:
    """A default as a signature shows it; of functions their names, since their repr has an address."""
    if isinstance(value, (types.FunctionType, type)):
        return value.__qualname__.replace(".<locals>.init", "()")
    return "..." if " at 0x" in repr(value) else repr(value)


def _docstring(value) -> griffe.Docstring | None:
    doc = None if type(value).__module__ == "builtins" and not callable(value) else inspect.getdoc(value)
    return griffe.Docstring(as_markdown(doc)) if doc else None


def as_markdown(text: str) -> str:
    """Lines `name: meaning` become a list, a line that begins with 'Raises' a paragraph of its own, brackets text, and
    a paragraph that begins with `>>>` a block of code."""
    lines, in_list, in_code = [], False, False
    for line in [*inspect.cleandoc(text).split("\n"), ""]:
        if in_code or line.startswith(">>> "):
            lines += [] if in_code else ["```pycon"]
            lines += [line] if line else ["```", ""]
            in_code = bool(line)
            continue
        field = FIELD.match(line)
        if field:
            lines += [] if in_list else [""]
            line = f"- `{field[1]}`: {line[field.end() :]}"
        elif line.startswith("Raises ") and lines and lines[-1]:
            lines.append("")
        if not line.startswith("    "):  # a bracket outside of code would begin a link
            line = "".join(p if p[0] == "`" else p.replace("[", "\\[") for p in re.findall(r"`[^`]*`|[^`]+|`", line))
        in_list = bool(field) or (in_list and bool(line.strip()))
        lines.append(line)
    return "\n".join(lines)
