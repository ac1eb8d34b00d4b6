"""Programs in files: text that people read, and one binary file with programs, named functions and state.

The binary form is a safetensors file: its arrays are the state and large constants, its metadata the texts. Other
tools can read the arrays. Nothing in a file is executed; sizes are checked before memory is allocated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hloom.checkpoints import safetensors, trees
from hloom.dispatch.from_text import from_hlo
from hloom.dispatch.stages import Lowered
from hloom.errors import ArgumentError, CheckpointError, FileError, HloomError, TreeError, file_error
from hloom.ir.process.files import whole_file
from hloom.ir.records import record
from hloom.sessions.program import Program
from hloom.sessions.text import from_text, to_text
from hloom.tree import pytrees as tree

PROGRAM, FUNCTIONS, STATE = "hloom.program", "hloom.functions", "hloom.state"
TEXTS = (".txt", ".hlo", ".text")


@record(eq=False)
class Saved:
    """The contents of a file. functions: by name, callable with the trees that they were saved with. state: a tree, in
    which named tuples and other classes are dicts; None if none was saved."""

    program: Program | None
    functions: dict[str, SavedFunction]
    state: Any


def save(
    path: str | os.PathLike,
    program: Program | None = None,
    *,
    functions: Mapping[str, Lowered] | None = None,
    state: Any = None,
) -> Path:
    """Saves a program, functions and a tree of arrays in one file.

    program: its names, placeholders, variables, updates, operations and collections. functions: by name, lowered for
    their shapes: {"step": hl.jit(step).lower(state, batch)}. state: such as `session.state()`. A path that ends in
    .txt or .hlo holds a program's text alone. The file is written atomically. Raises FileError,
    UnsupportedError for Python callbacks.
    """
    path = Path(path)
    if path.suffix in TEXTS:
        if program is None or functions or state is not None:
            raise ArgumentError(
                f"save {path}", "functions or state, and text holds a program alone",
                f"choose another ending: {path.with_suffix('.hloom')}",
            )  # fmt: skip
        return _replace(path, lambda partial: partial.write_text(to_text(program), encoding="utf-8"))
    arrays: dict[str, np.ndarray] = {}
    metadata: dict[str, str] = {}
    if program is not None:
        metadata[PROGRAM] = to_text(program, arrays)
    if functions:
        metadata[FUNCTIONS] = json.dumps({name: _described(lowered) for name, lowered in functions.items()})
    if state is not None:
        leaves = trees.named_leaves(state, "the state")
        numbers = {n: trees.encoded_leaf(leaf, n) for n, leaf in leaves.items() if not trees.is_array(leaf)}
        arrays |= {f"state/{n}": np.asarray(leaf, order="C") for n, leaf in leaves.items() if n not in numbers}
        metadata[STATE] = json.dumps({"tree": _structure(state, iter(leaves)), "numbers": numbers})
    safetensors.require_standard(arrays)
    return _replace(path, lambda partial: safetensors.write(partial, arrays, metadata))


def _replace(path: Path, write) -> Path:
    try:
        with whole_file(path) as partial:
            write(partial)
    except OSError as error:
        raise error if isinstance(error, FileError) else file_error(f"save {path}", error) from error
    return path


def load(path: str | os.PathLike) -> Saved:
    """Loads a file written by `save`. Raises MissingFileError, FileError, CheckpointError and ParseError for damaged
    files."""
    path = Path(path)
    if path.suffix in TEXTS:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise file_error(f"load {path}", error) from error
        return Saved(from_text(text, Program, file=str(path)), {}, None)
    with safetensors.File(path) as file:
        if not {PROGRAM, FUNCTIONS, STATE} & set(file.metadata):
            raise CheckpointError(
                f"load the program in {path}", f"arrays only: {', '.join([*file.entries][:5])}",
                "hl.checkpoints.load_safetensors reads arrays",
            )  # fmt: skip
        arrays = {name: file.read(name) for name in file.entries}
        metadata = dict(file.metadata)
    try:
        program = from_text(metadata[PROGRAM], Program, arrays, str(path)) if PROGRAM in metadata else None
        rows = json.loads(metadata.get(FUNCTIONS, "{}"))
        functions = {str(name): SavedFunction(str(name), row) for name, row in rows.items()}
        state = None
        if STATE in metadata:
            found = json.loads(metadata[STATE])
            leaves = {name: trees.decoded_leaf(value) for name, value in found["numbers"].items()}
            leaves |= {n.removeprefix("state/"): a for n, a in arrays.items() if n.startswith("state/")}
            state = _built(found["tree"], leaves)
    except HloomError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"the program in {path}", f"{type(error).__name__}: {error}", "copy it again, or save it again"
        ) from error
    return Saved(program, functions, state)


# --- functions -----------------------------------------------------------------------------------------------------


def _described(lowered: Lowered) -> dict[str, Any]:
    args, kwargs = lowered.in_avals
    given = {"args": list(args), "kwargs": dict(kwargs)}
    return {
        "text": lowered.as_text(metadata=True),
        "inputs": list(trees.named_leaves(given, "arguments")),
        "result": _structure(lowered.out_info, iter(range(len(tree.leaves(lowered.out_info))))),
    }


class SavedFunction:
    """A function from a file. Its arguments are trees with the paths that it was saved with; in its results named
    tuples and other classes are dicts, which it accepts as arguments again."""

    def __init__(self, name: str, row: Mapping[str, Any]):
        self.__name__ = name
        self._inputs = [str(n) for n in row["inputs"]]
        self._result = row["result"]
        self._function = from_hlo(str(row["text"]))
        self.text = str(row["text"])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises TreeError for trees of other paths; ShapeError and DTypeError as `hl.from_hlo`."""
        leaves = trees.named_leaves({"args": list(args), "kwargs": kwargs}, f"arguments of '{self.__name__}'")
        if set(leaves) != set(self._inputs):
            wrong = min(set(leaves) ^ set(self._inputs))
            raise TreeError(
                f"call of '{self.__name__}', which was saved with {len(self._inputs)} arrays",
                f"{wrong} is {'not one of them' if wrong in leaves else 'missing'}",
                "pass trees like those that it was lowered for",
            )
        found = self._function(*(leaves[name] for name in self._inputs))
        found = found if isinstance(found, tuple) else (found,)
        return _built(self._result, dict(enumerate(found)))

    def __repr__(self) -> str:
        return f"<function {self.__name__!r} of {len(self._inputs)} arrays, from a file>"


def _structure(value: Any, names: Any) -> Any:
    """Containers as JSON, with the names of leaves; classes are dicts of their fields."""
    if value is None:
        return {"none": True}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_structure(child, names) for child in value]}
    if tree.is_tree_node(type(value)) and not trees.is_keys(value):
        children = tree.flatten_one_level_with_keys(value)[0]
        return {"dict": [[_key(key), _structure(child, names)] for key, child in children]}
    return {"leaf": next(names)}


def _key(key: Any) -> Any:
    if type(getattr(key, "key", None)) in (str, int):
        return key.key
    return tree.keystr((key,), simple=True)


def _built(structure: Any, leaves: Mapping[Any, Any]) -> Any:
    return trees.built(structure, leaves, "a tree")


__all__ = ["Saved", "SavedFunction", "load", "save"]
