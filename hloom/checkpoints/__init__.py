"""Checkpoints: trees of arrays on disk, written atomically, restorable with other layouts.

    hl.checkpoints.save("run/initial", state)
    state = hl.checkpoints.restore("run/initial", like=state)

    with hl.checkpoints.Manager("run", keep=3, best=("loss", "min")) as checkpoints:
        checkpoints.save(step, state, metrics={"loss": loss})      # returns at once, a thread writes
        state = checkpoints.restore(like=state)                    # the latest

(`hl.checkpoint` is something else: rematerialization in gradients.)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hloom.arrays.array import Array
from hloom.checkpoints import safetensors
from hloom.checkpoints.directory import Checkpoint, Snapshot, write
from hloom.checkpoints.manager import Manager
from hloom.checkpoints.orbax import load_orbax


def save(
    path: str | os.PathLike,
    tree: Any,
    *,
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Saves a tree of arrays (of any dtype, sharded or not), random keys, numbers and texts in a folder.

    It is on disk when this returns; a process that is killed before leaves no folder of that name. metadata: any JSON
    value. Raises CheckpointError if the folder exists or a leaf cannot be saved, FileError.

    >>> folder = hl.checkpoints.save("run", {"w": hnp.ones((2, 3)), "epoch": 4}, step=100)
    >>> hl.checkpoints.restore("run")["epoch"]
    4
    """
    return write(path, Snapshot(tree), step, metrics, metadata)


def restore(path: str | os.PathLike, like: Any = None, *, partial: bool = False) -> Any:
    """The tree of a checkpoint.

    like: a tree of arrays, `ShapeDtypeStruct`s and numbers with the paths of the saved one. The result has its classes,
    and each array the kind (NumPy or hloom) and the device or sharding of its counterpart. Without it, dicts, lists and
    tuples are returned. partial: leaves of `like` that are not in the checkpoint are kept, and others in the checkpoint
    are skipped. Raises MissingFileError; CheckpointError with each path at which the two differ, and for damaged files.

    >>> folder = hl.checkpoints.save("run", {"w": hnp.array([1.0, 2.0])})
    >>> hl.checkpoints.restore("run", like={"w": hnp.zeros(2)})
    {'w': Array([1., 2.], dtype=float32)}
    """
    return Checkpoint(path).restore(like, partial=partial)


def load_safetensors(path: str | os.PathLike) -> dict[str, Array]:
    """The arrays of a safetensors file by name, as torch, flax and others write them. Raises FileError,
    CheckpointError.

    >>> hl.checkpoints.save_safetensors("model.safetensors", {"w": hnp.array([1.0, 2.0])})
    >>> hl.checkpoints.load_safetensors("model.safetensors")
    {'w': Array([1., 2.], dtype=float32)}
    """
    with safetensors.File(path) as file:
        return {name: Array(file.read(name)) for name in file.entries}


def save_safetensors(
    path: str | os.PathLike, arrays: Mapping[str, Any], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes arrays to a safetensors file, which torch, flax and others read. Element types that the format lacks are
    refused. Raises CheckpointError, FileError.

    >>> hl.checkpoints.save_safetensors("model.safetensors", {"w": hnp.ones((2, 3))}, {"format": "pt"})
    >>> hl.checkpoints.load_safetensors("model.safetensors")["w"].shape
    (2, 3)
    """
    held = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    safetensors.require_standard(held)
    safetensors.write(path, held, metadata)


__all__ = ["Checkpoint", "Manager", "load_orbax", "load_safetensors", "restore", "save", "save_safetensors"]
__dir__ = __all__.copy
