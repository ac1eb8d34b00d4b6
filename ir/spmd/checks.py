"""Validation of shardings against arrays and meshes."""

from __future__ import annotations

from hloom.ir.errors import AttributeValueError, ShapeError
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.types import TupleShape


def check_mesh(what: str, mesh: DeviceMesh) -> None:
    """Raises AttributeValueError for a mesh with duplicate names or devices."""
    twice = sorted({n for n in mesh.names if mesh.names.count(n) > 1})
    if twice or len(mesh.names) != len(mesh.sizes) or any(s < 1 for s in mesh.sizes):
        found = ", ".join(f"{n}={s}" for n, s in zip(mesh.names, mesh.sizes, strict=False))
        raise AttributeValueError(
            f"{what}: the axes of a mesh have distinct names and positive sizes", found, "rename the axes"
        )
    ids = mesh.device_ids
    if ids and mesh.names and (len(ids) != mesh.size or len(set(ids)) != mesh.size or min(ids) < 0):
        raise AttributeValueError(
            f"{what}: the mesh has each of its {mesh.size} devices once", f"{ids}", "name each device once"
        )


def check_axes(what: str, mesh: DeviceMesh, axes) -> None:
    """Raises AttributeValueError unless the axes are distinct axes of the mesh."""
    axes = tuple(axes)
    has = ", ".join(mesh.names) or "no axes"
    for name in axes:
        if name not in mesh.names:
            raise AttributeValueError(f"{what}: an axis {name!r}", f"the mesh has {has}", "name an axis of the mesh")
        if axes.count(name) > 1:
            raise AttributeValueError(
                f"{what}: each axis is used once", f"{name!r} is used {axes.count(name)} times", "use each axis once"
            )


def check_sharding(what: str, sharding, shape) -> None:
    """Raises ShapeError or AttributeValueError unless the sharding (for a tuple, a tuple of them; None if unspecified)
    is valid for this shape."""
    if isinstance(shape, TupleShape):
        given = sharding if isinstance(sharding, tuple) else (sharding,) * len(shape.elements)
        if len(given) != len(shape.elements):
            raise ShapeError(
                f"{what}: a sharding for each element of a tuple",
                f"{len(given)} for {shape!r}",
                "give one for each element",
            )
        for one, element in zip(given, shape.elements, strict=True):
            if one is not None:
                check_sharding(what, one, element)
        return
    if not isinstance(sharding, Sharding):
        raise AttributeValueError(f"{what}: a sharding of {shape!r}", f"{sharding!r:.80}", "give a Sharding")
    if sharding.rank != shape.rank:
        raise ShapeError(
            f"{what}: a sharding says for each dimension of {shape!r} how it is split",
            f"one for {sharding.rank} dimension{'s' * (sharding.rank != 1)}",
            "give one for each dimension, () where it is not split",
        )
    check_axes(what, sharding.mesh, (*sharding.axes, *sharding.unreduced, *sharding.replicated_axes))
    if any(not 0 <= d < shape.rank for d in sharding.open) or len(sharding.priorities) not in (0, shape.rank):
        raise AttributeValueError(
            f"{what}: open dimensions and priorities are those of {shape!r}",
            f"open {sharding.open}, priorities {sharding.priorities}",
            "name existing dimensions",
        )
