"""HLO's syntax of shardings, tile assignments: `{devices=[2,1,4]<=[2,4]T(1,0) last_tile_dim_replicate}`.

A tile assignment is an array of devices with one dimension per dimension of the value, and additional ones for
subgroups of devices that are replicated, hold partial sums, or are manual. It has no axes. `TileReader` finds a mesh
whose axes express all shardings of a module: the one named by the module, if any.

Source: xla/hlo/ir/tile_assignment.h, xla/hlo/parser/hlo_parser.cc.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence

import numpy as np

from hloom.ir.records import record
from hloom.ir.spmd.sharding import DeviceMesh, Sharding, on_device

GROUPS = ("replicated", "manual", "unreduced", "unknown")
_INTS = r"\[([0-9]{1,9}(?:,[0-9]{1,9})*|)\]"
_TILE = re.compile(rf"devices={_INTS}(?:<={_INTS}(?:T\(([0-9,]+)\))?|([0-9]{{1,9}}(?:,[0-9]{{1,9}})*))", re.ASCII)
_WORDS = re.compile(r"last_tile_dim_replicate|last_tile_dims=\{([a-z_,]*)\}", re.ASCII)
_IGNORED = re.compile(r",?(?:metadata=\{.*\}|shard_(?:as|like)[0-9]{1,9})", re.ASCII)
_EXAMPLE = "write for example {devices=[2,1]<=[2]}, {replicated} or {maximal device=0}"
_LARGEST = 1 << 20  # devices


class TileProblem(ValueError):
    """A malformed tile assignment, or one that fits no mesh: (problem, found, repair)."""


@record(frozen=True)
class Tiles:
    """A tile assignment: sizes of its dimensions, the devices in row-major order, the subgroup types of the last
    dimensions ('replicated', 'manual', 'unreduced'). Without sizes: all devices form one such subgroup, or `device` has
    the whole value."""

    sizes: tuple[int, ...]
    devices: tuple[int, ...]
    groups: tuple[str, ...]
    device: int | None = None


@record(frozen=True)
class Placed:
    """A sharding, and the manual axes of its context."""

    sharding: Sharding
    manual: tuple[str, ...] = ()


def _integers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def parse_tiles(text: str) -> Tiles | tuple:
    """The tile assignment of a text in braces; for a tuple, a tuple of them. Raises TileProblem."""
    text = re.sub(r"/\*.*?\*/|\s+", "", text)
    if text[:1] != "{" or text[-1:] != "}":
        raise TileProblem("a sharding is enclosed in braces", f"'{text[:60]}'", _EXAMPLE)
    body = text[1:-1]
    if body[:1] == "{" or not body:
        return tuple(parse_tiles(part) for part in _elements(body))
    body = _IGNORED.sub("", body)
    if body in GROUPS:
        return Tiles((), (), (body,))
    match = re.fullmatch(r"maximaldevice=([0-9]{1,9})", body, re.ASCII)
    if match:
        return Tiles((), (), (), int(match[1]))
    match = _TILE.match(body)
    if match is None:
        raise TileProblem("this sharding is none that HLO has", f"{{{body[:60]}}}", _EXAMPLE)
    groups, rest = _groups(body[match.end() :])
    if rest:
        raise TileProblem("this sharding continues with something unknown", f"'{rest[:60]}'", _EXAMPLE)
    sizes, shape, order = _integers(match[1]), _integers(match[2] or ""), _integers(match[3] or "")
    count = math.prod(sizes)
    if not sizes or not 0 < count <= _LARGEST or len(groups) > len(sizes):
        raise TileProblem("a tile assignment has a positive size in each dimension", f"[{match[1]}]", _EXAMPLE)
    if match[2] is None:
        devices = _integers(match[4])
    else:
        order = order or tuple(range(len(shape)))
        if sorted(order) != list(range(len(shape))) or math.prod(shape) != count:
            raise TileProblem(
                f"the devices of a tile assignment [{match[1]}] are {count}", f"<=[{match[2]}]T{order}", _EXAMPLE
            )
        devices = tuple(np.arange(count).reshape(shape).transpose(order).reshape(-1).tolist())
    if sorted(devices) != list(range(count)):
        raise TileProblem(
            f"a tile assignment [{match[1]}] has each of {count} devices once", f"{devices[:16]}", "number them from 0"
        )
    return Tiles(sizes, devices, groups)


def _groups(text: str) -> tuple[tuple[str, ...], str]:
    """The text after the devices: (the subgroup types of the last dimensions, the rest)."""
    match = _WORDS.match(text)
    if match is None:
        return (), text
    groups = tuple(match[1].split(",")) if match[1] is not None else ("replicated",)
    if any(g not in GROUPS for g in groups) or len(set(groups)) < len(groups):
        raise TileProblem("last_tile_dims are manual, replicated or unreduced, once each", f"{groups}", _EXAMPLE)
    return groups, text[match.end() :]


def _elements(body: str) -> list[str]:
    """The elements of a tuple: comma-separated texts in braces."""
    found, depth, start = [], 0, 0
    for k, c in enumerate(body):
        if c == "{":
            start = k if depth == 0 else start
            depth += 1
        elif c == "}":
            depth -= 1
            if depth == 0:
                found.append(body[start : k + 1])
        elif depth == 0 and c != ",":
            raise TileProblem(
                "the elements of a tuple's sharding are enclosed in braces", f"'{body[k : k + 40]}'", _EXAMPLE
            )
    if depth:
        raise TileProblem("a brace of a sharding is not closed", f"'{body[:60]}'", _EXAMPLE)
    return found


# --- meshes -------------------------------------------------------------------------------------------------------


def _digits(positions: Sequence[int]) -> list[tuple[int, int]] | None:
    """(size, stride) of the digits, minor first, of a mixed-radix sequence; None if it is not one."""
    count, weight, found = len(positions), 1, []
    while weight < count:
        stride, size = positions[weight], 1
        while weight * size < count and positions[weight * size] == stride * size:
            size += 1
        while count % (weight * size):
            size -= 1
        if size < 2 or stride < 1:
            return None
        found.append((size, stride))
        weight *= size
    total = np.zeros(1, np.int64)
    for size, stride in found:
        total = (np.arange(size)[:, None] * stride + total).reshape(-1)
    return found if total.tolist() == list(positions) else None


def _cuts(digits: Iterable[tuple[int, int]], sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """(dimension of the tile assignment, size, stride in the mesh) of the pieces of each dimension, minor first."""
    found, left = [], [[size, stride] for size, stride in digits]
    for d in reversed(range(len(sizes))):
        size = sizes[d]
        while size > 1:
            if not left:
                return []
            piece = math.gcd(size, left[0][0])
            if piece == 1:
                return []
            found.append((d, piece, left[0][1]))
            size //= piece
            left[0] = [left[0][0] // piece, left[0][1] * piece]
            if left[0][0] == 1:
                left.pop(0)
    return found


class TileReader:
    """Reads the shardings of a module in terms of the axes of a mesh.

    texts: all shardings of the module. count: its partitions. named: a mesh that it names. Raises TileProblem.
    """

    def __init__(self, texts: Iterable[str], count: int = 1, named: DeviceMesh | None = None):
        self.known: dict[str, Tiles | tuple] = {}
        tiles: list[Tiles] = []
        for text in dict.fromkeys(texts):
            self.known[text] = parse_tiles(text)
            tiles += _flat(self.known[text])
        sizes = {math.prod(t.sizes) for t in tiles if t.sizes} | {t.device + 1 for t in tiles if t.device}
        self.count = count if count > 1 or not sizes else max(sizes)
        self.mesh = named if named is not None and named.size == self.count else None
        if self.mesh is None:
            self.mesh = self._mesh_of(tiles) or DeviceMesh(("a0",), (self.count,))
        self.finer = self.mesh.atomic()

    def _mesh_of(self, tiles: Iterable[Tiles]) -> DeviceMesh | None:
        """The coarsest mesh whose axes express all of these; None if there is none."""
        cuts = {1, self.count}
        for t in tiles:
            if len(t.devices) == self.count:
                for _, size, stride in _cuts(self._digits_over(range(self.count), t) or [], t.sizes):
                    cuts |= {stride, stride * size}
        return _chain(cuts)

    @staticmethod
    def _digits_over(order: Sequence[int], tiles: Tiles) -> list[tuple[int, int]] | None:
        position = {device: k for k, device in enumerate(order)}
        return _digits([position[d] for d in tiles.devices])

    def placed(self, text: str, rank) -> Placed | tuple | None:
        """The sharding of a text for an array of this rank; rank: for a tuple the list of its elements' ranks. None if
        the text leaves it unspecified."""
        if text not in self.known:
            self.known[text] = parse_tiles(text)
        return self._placed(self.known[text], rank)

    def _placed(self, tiles, rank) -> Placed | tuple | None:
        if isinstance(tiles, tuple):
            ranks = list(rank) if isinstance(rank, (list, tuple)) else [rank]
            if len(tiles) == 1 and not isinstance(rank, (list, tuple)):
                return self._placed(tiles[0], rank)
            if len(tiles) != len(ranks):
                raise TileProblem(
                    f"a sharding for each of {len(ranks)} elements", f"{len(tiles)}", "give one for each element"
                )
            return tuple(self._placed(t, r) for t, r in zip(tiles, ranks, strict=True))
        if isinstance(rank, (list, tuple)):
            return tuple(self._placed(tiles, r) for r in rank)
        if "unknown" in tiles.groups:
            return None
        assert self.mesh is not None
        if tiles.device is not None:
            if tiles.device >= self.count:
                raise TileProblem(
                    f"a sharding on device {tiles.device}", f"the module has {self.count} partitions",
                    "name one of them, or set num_partitions",
                )  # fmt: skip
            return Placed(on_device(tiles.device, rank))
        if not tiles.sizes:
            names = tuple(n for n in self.mesh.names if self.mesh.axis_size(n) > 1)
            whole = Sharding(self.mesh, ((),) * rank, names if "unreduced" in tiles.groups else ())
            return Placed(whole, self.mesh.names if "manual" in tiles.groups else ())
        return self._tiled(tiles, rank)

    def _tiled(self, tiles: Tiles, rank: int) -> Placed:
        if len(tiles.devices) != self.count:
            raise TileProblem(
                f"a sharding over {len(tiles.devices)} devices", f"the module has {self.count} partitions",
                "lay the value out over all of them, or set num_partitions",
            )  # fmt: skip
        if len(tiles.sizes) != rank + len(tiles.groups):
            raise TileProblem(
                f"a sharding of an array of rank {rank} has {rank} dimensions and one for each group of devices",
                f"{list(tiles.sizes)} with groups {list(tiles.groups)}",
                "give a number of parts for each dimension",
            )
        for mesh in (self.mesh, self.finer, self._mesh_of([tiles])):
            axes = None if mesh is None else self._axes(tiles, mesh)
            if mesh is not None and axes is not None:
                break
        else:  # a separate mesh, with its devices in the assignment's order
            sizes = tuple(s for s in tiles.sizes if s > 1)
            mesh = DeviceMesh(tuple(f"a{k}" for k in range(len(sizes))), sizes, tiles.devices)
            names = iter(mesh.names)
            axes = [(next(names),) if s > 1 else () for s in tiles.sizes]
        by_group = dict(zip(tiles.groups, axes[rank:], strict=True))
        sharding = Sharding(mesh, tuple(axes[:rank]), by_group.get("unreduced", ()))
        return Placed(sharding, mesh.in_order(by_group.get("manual", ())))

    def _axes(self, tiles: Tiles, mesh: DeviceMesh) -> list[tuple[str, ...]] | None:
        """The axes of each dimension of a tile assignment; None if they are not whole axes of the mesh."""
        digits = self._digits_over(mesh.device_ids or range(self.count), tiles)
        if digits is None:
            return None
        strides, stride = {}, mesh.size
        for name, size in zip(mesh.names, mesh.sizes, strict=True):
            stride //= size
            if size > 1:
                strides[stride] = name, size
        found: list[list[str]] = [[] for _ in tiles.sizes]
        for d, size, at in _cuts(digits, tiles.sizes):
            while size > 1:
                name, own = strides.get(at, ("", 0))
                if not own or size % own:
                    return None
                found[d].append(name)
                size //= own
                at *= own
        return [tuple(reversed(names)) for names in found]


def _flat(tiles) -> list[Tiles]:
    return [t for element in tiles for t in _flat(element)] if isinstance(tiles, tuple) else [tiles]


def _chain(cuts: set[int]) -> DeviceMesh | None:
    """The mesh with axes between these strides; None if one does not divide the next."""
    order = sorted(cuts, reverse=True)
    if any(a % b for a, b in itertools.pairwise(order)):
        return None
    sizes = tuple(a // b for a, b in itertools.pairwise(order))
    return DeviceMesh(tuple(f"a{k}" for k in range(len(sizes))), sizes)


# --- writing ------------------------------------------------------------------------------------------------------


def tiles_text(sharding) -> str:
    """The text of a sharding, or of a tuple's; open dimensions are not distinguished."""
    if isinstance(sharding, tuple):
        return f"{{{', '.join('{unknown}' if s is None else tiles_text(s) for s in sharding)}}}"
    if not set(sharding.mesh.names).issuperset((*sharding.axes, *sharding.unreduced)):
        return f"{{{sharding.dims}}}"  # for the verifier's message
    if sharding.device is not None:
        return f"{{maximal device={sharding.device}}}"
    if sharding.is_replicated:
        return "{replicated}"
    mesh = sharding.mesh
    if mesh.axis_size(*sharding.unreduced) == mesh.size:
        return "{unreduced}"
    used = {*sharding.axes, *sharding.unreduced}
    rest = [n for n in mesh.names if n not in used]
    parts = [sharding.count(d) for d in range(sharding.rank)]
    groups = []
    for names, group in ((sharding.unreduced, "unreduced"), (rest, "replicated")):
        if mesh.axis_size(*names) > 1:
            parts.append(mesh.axis_size(*names))
            groups.append(group)
    order = [mesh.names.index(n) for n in (*sharding.axes, *sharding.unreduced, *rest)]
    text = f"devices=[{','.join(map(str, parts))}]{_devices_text(mesh, order)}"
    if groups == ["replicated"]:
        text += " last_tile_dim_replicate"
    elif groups:
        text += f" last_tile_dims={{{', '.join(groups)}}}"
    return f"{{{text}}}"


def _devices_text(mesh: DeviceMesh, order: Sequence[int]) -> str:
    """`<=[2,4]T(1,0)`: the devices with the mesh's axes in this order."""
    if mesh.device_ids:
        devices = np.array(mesh.device_ids).reshape(mesh.sizes).transpose(order).reshape(-1)
        return ",".join(map(str, devices.tolist()))
    order = [k for k in order if mesh.sizes[k] > 1]
    runs: list[list[int]] = []  # axes that remain adjacent
    position = {k: place for place, k in enumerate(sorted(order))}
    for k in order:
        if runs and position[k] == position[runs[-1][-1]] + 1:
            runs[-1].append(k)
        else:
            runs.append([k])
    by_place = sorted(runs)
    sizes = [math.prod(mesh.sizes[k] for k in run) for run in by_place]
    text = f"<=[{','.join(map(str, sizes))}]"
    return text if len(runs) == 1 else f"{text}T({','.join(str(by_place.index(run)) for run in runs)})"
