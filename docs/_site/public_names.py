"""Griffe extension: API pages show the public names that exist at run time, and render docstrings as Markdown.

Griffe reads source text. Functions that a table creates (`hloom.lax.sin`) have no `def`, and some `__all__` are
computed: for the modules in `PAGES` both are taken from the imported module.
"""

from __future__ import annotations

import importlib
import inspect
import re
import types

import griffe

FIELD = re.compile(r"^(\*{0,2}[a-zA-Z_]\w*(?:, \*{0,2}\w+)*): (?=\S)")


class PublicNames(griffe.Extension):
    """Completes `PAGES` from the imported modules, and turns `name: meaning` lines of docstrings into lists."""

    PAGES = ("hloom", "hloom.lax", "hloom.nn", "hloom.numpy", "hloom.optim")

    def on_package(self, *, pkg: griffe.Module, **_) -> None:
        for path in self.PAGES if pkg.path == "hloom" else ():
            module = pkg if path == "hloom" else pkg[path.removeprefix("hloom.")]
            runtime = importlib.import_module(path)
            names = getattr(runtime, "__all__", None) or [n for n in vars(runtime) if not n.startswith("_")]
            for name in names:
                value = getattr(runtime, name)
                if isinstance(value, types.FunctionType) and not _has_definition(module, name):
                    module.set_member(name, _function(name, value))
            module.exports = sorted(names)

    def on_instance(self, *, obj: griffe.Object, **_) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def _has_definition(module: griffe.Module, name: str) -> bool:
    try:
        found = module[name]
        return (found.final_target if found.is_alias else found).is_function
    except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
        return False


def _function(name: str, value: types.FunctionType) -> griffe.Function:
    kinds = {k: getattr(griffe.ParameterKind, k.name.lower()) for k in inspect._ParameterKind}
    parameters = griffe.Parameters(*(
        griffe.Parameter(p.name, kind=kinds[p.kind], default=None if p.default is p.empty else repr(p.default))
        for p in inspect.signature(value).parameters.values()
    ))  # fmt: skip
    doc = inspect.getdoc(value)
    return griffe.Function(name, parameters=parameters, docstring=griffe.Docstring(as_markdown(doc)) if doc else None)


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
