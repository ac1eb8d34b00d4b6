"""Shardy's syntax of meshes and shardings: `<@mesh, [{"x"}, {"y":(1)2, ?}], unreduced={"z"}>`.

Source: openxla.org/shardy/sharding_representation. A mesh may be inline: `<mesh<["x"=2]>, [{"x"}]>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from hloom.ir.module import Module
from hloom.ir.spmd.mlir_strings import escape, unescape
from hloom.ir.spmd.sharding import DeviceMesh, Sharding, on_device

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|@[\w$.\-]+|#?[A-Za-z_][\w.]*|[0-9]+|.)', re.ASCII)


class ShardyProblem(ValueError):
    """A malformed text, or an unknown name: (problem, found, repair)."""


class _Reader:
    """The tokens of a text and a position among them."""

    def __init__(self, text: str, meshes: Mapping[str, DeviceMesh]):
        self.text, self.meshes = text, meshes
        self.tokens = [*_TOKEN.findall(text.strip()), ""]
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at]

    def take(self) -> str:
        token = self.tokens[self.at]
        self.at += bool(token)
        return token

    def accept(self, token: str) -> bool:
        found = self.peek() == token
        self.at += found
        return found

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.problem(f"'{token}'")

    def problem(self, wanted: str) -> ShardyProblem:
        found = f"'{self.peek()}' in" if self.peek() else "the end of"
        return ShardyProblem(
            f"expected {wanted} in a sharding", f"{found} {self.text[:80]}", 'write for example <@mesh, [{"x"}, {}]>'
        )

    def number(self) -> int:
        if not self.peek().isdigit() or len(self.peek()) > 18:
            raise self.problem("a number")
        return int(self.take())

    def string(self) -> str:
        if self.peek()[:1] != '"' or len(self.peek()) < 2:
            raise self.problem("the name of an axis in quotes")
        return unescape(self.take()[1:-1])

    def listed(self, opening: str, read, closing: str) -> list:
        """A comma-separated list in brackets, each item parsed by `read`."""
        self.expect(opening)
        found: list = []
        while not self.accept(closing):
            if found:
                self.expect(",")
            found.append(read())
        return found

    # --- meshes ---

    def mesh_body(self) -> DeviceMesh:
        """`<["x"=2, "y"=4], device_ids=[...]>`."""
        self.expect("<")
        pairs = self.listed("[", self._axis_size, "]")
        ids: list[int] = []
        if self.accept(","):
            self.expect("device_ids")
            self.expect("=")
            ids = self.listed("[", self.number, "]")
        self.expect(">")
        names = tuple(n for n, _ in pairs)
        if len(set(names)) < len(names):
            raise ShardyProblem("the axes of a mesh have distinct names", self.text[:80], "rename an axis")
        mesh = DeviceMesh(names, tuple(s for _, s in pairs), tuple(ids))
        if (names and ids and sorted(ids) != list(range(mesh.size))) or (not names and len(ids) > 1) or 0 in mesh.sizes:
            raise ShardyProblem(
                f"a mesh has each of its {mesh.size} devices once", f"device_ids {ids[:8]}", "number them from 0"
            )
        return mesh

    def _axis_size(self) -> tuple[str, int]:
        name = self.string()
        self.expect("=")
        return name, self.number()

    def mesh(self) -> DeviceMesh:
        token = self.take()
        if token == "mesh":
            return self.mesh_body()
        name = self.string() if token == "@" else token[1:]
        if token[:1] != "@" or name not in self.meshes:
            known = ", ".join(f"@{m}" for m in self.meshes) or "none"
            raise ShardyProblem(f"there is no mesh '{token}'", f"the meshes: {known}", "define it with sdy.mesh")
        return self.meshes[name]

    # --- shardings ---

    def sharding(self) -> Sharding:
        self.accept("#sdy.sharding")
        self.expect("<")
        mesh = self.mesh()
        self.expect(",")
        parts = self.listed("[", self._dimension, "]")
        named: dict[str, list] = {"replicated": [], "unreduced": []}
        while self.accept(","):
            key = self.take()
            if key not in named or named[key]:
                self.at -= 1
                raise self.problem("replicated= or unreduced=, once each")
            self.expect("=")
            named[key] = self.listed("{", self._axis, "}")
        self.expect(">")
        if not mesh.names and mesh.device_ids:
            return on_device(mesh.device_ids[0], len(parts))
        lists = [axes for axes, _, _ in parts] + list(named.values())
        if any(part for axes in lists for _, part in axes):
            lists = [_atoms(mesh, axes) for axes in lists]
            mesh = mesh.atomic()
        *dims, fixed, unreduced = (tuple(name for name, _ in axes) for axes in lists)
        self._check(mesh, [n for axes in (*dims, fixed, unreduced) for n in axes])
        opened = tuple(d for d, (_, is_open, _) in enumerate(parts) if is_open)
        priorities = tuple(p for _, _, p in parts)
        return Sharding(mesh, tuple(dims), unreduced, opened, fixed, priorities if any(priorities) else ())

    def _check(self, mesh: DeviceMesh, names: list[str]) -> None:
        has = ", ".join(mesh.names) or "none"
        for name in names:
            if name not in mesh.names:
                raise ShardyProblem(f"an axis '{name}'", f"the mesh has {has}", "name an axis of the mesh")
            if names.count(name) > 1:
                raise ShardyProblem("a sharding uses each axis once", f"'{name}' occurs twice", "use it once")

    def _dimension(self) -> tuple[list, bool, int]:
        self.expect("{")
        axes: list[tuple[str, tuple[int, int] | None]] = []
        is_open = False
        while not self.accept("}"):
            if is_open:
                raise self.problem("'}'")
            if axes:
                self.expect(",")
            is_open = self.accept("?")
            if not is_open:
                axes.append(self._axis())
        priority = 0
        if re.fullmatch(r"p[0-9]{1,9}", self.peek(), re.ASCII):
            priority = int(self.take()[1:])
        return axes, is_open, priority

    def _axis(self) -> tuple[str, tuple[int, int] | None]:
        """`"x"`, or a sub-axis: `"x":(2)4`, of size 4, after a pre-size of 2."""
        name = self.string()
        if not self.accept(":"):
            return name, None
        self.expect("(")
        before = self.number()
        self.expect(")")
        return name, (before, self.number())


def _atoms(mesh: DeviceMesh, axes) -> list[tuple[str, None]]:
    """Axes and sub-axes as axes of the atomic mesh."""
    atomic = mesh.atomic()
    found: list[tuple[str, None]] = []
    for name, part in axes:
        if name not in mesh.names:
            raise ShardyProblem(
                f"an axis '{name}'", f"the mesh has {', '.join(mesh.names)}", "name an axis of the mesh"
            )
        before, size = part or (1, mesh.axis_size(name))
        passed, taken = 1, 1
        for atom in mesh.atoms(name):
            if passed == before * taken and taken < size:
                found.append((atom, None))
                taken *= atomic.axis_size(atom)
            passed *= atomic.axis_size(atom)
        if taken != size:
            raise ShardyProblem(
                f"a part of size {size} of the axis '{name}', after {before}",
                f"the axis has {mesh.axis_size(name)} devices, in the order of its prime factors",
                "use a mesh with an axis for each part",
            )
    return found


def parse_mesh(text: str) -> DeviceMesh:
    """The mesh `<["x"=2, "y"=4]>`. Raises ShardyProblem."""
    reader = _Reader(text, {})
    reader.accept("#sdy.mesh")
    mesh = reader.mesh_body()
    reader.expect("")
    return mesh


def parse_sharding(text: str, meshes: Mapping[str, DeviceMesh] | None = None) -> Sharding:
    """The sharding `<@mesh, [...]>`. meshes: by name. Raises ShardyProblem."""
    reader = _Reader(text, meshes or {})
    sharding = reader.sharding()
    reader.expect("")
    return sharding


def parse_shardings(text: str, meshes: Mapping[str, DeviceMesh] | None = None) -> tuple[Sharding, ...]:
    """The shardings of a list `[<...>, <...>]` or `<[<...>, <...>]>`. Raises ShardyProblem."""
    reader = _Reader(text, meshes or {})
    reader.accept("#sdy.sharding_per_value")
    wrapped = reader.accept("<")
    found = tuple(reader.listed("[", reader.sharding, "]"))
    if wrapped:
        reader.expect(">")
    reader.expect("")
    return found


def parse_names(text: str) -> tuple[str, ...]:
    """The names `["x", "y"]` or `{"x", "y"}`. Raises ShardyProblem."""
    reader = _Reader(text, {})
    braces = "{}" if reader.peek() == "{" else "[]"
    found = tuple(reader.listed(braces[0], reader.string, braces[1]))
    reader.expect("")
    return found


def names_text(names: Iterable[str], braces: str = "{}") -> str:
    return braces[0] + ", ".join(escape(str(n)) for n in names) + braces[1]


def mesh_text(mesh: DeviceMesh) -> str:
    """`<["x"=2, "y"=4]>`."""
    axes = ", ".join(f"{escape(n)}={s}" for n, s in zip(mesh.names, mesh.sizes, strict=True))
    ids = f", device_ids=[{', '.join(map(str, mesh.device_ids))}]" if mesh.device_ids else ""
    return f"<[{axes}]{ids}>"


def sharding_text(sharding: Sharding, names: Mapping[DeviceMesh, str] | None = None) -> str:
    """`<@mesh, [{"x"}, {}]>`; a mesh without a name is written inline."""
    name = (names or {}).get(sharding.mesh)
    pieces = [f"@{name}" if name else f"mesh{mesh_text(sharding.mesh)}"]
    dims = []
    for d, axes in enumerate(sharding.dims):
        text = names_text(axes)
        if d in sharding.open:
            text = f"{text[:-1]}{', ' * bool(axes)}?}}"
        priority = sharding.priorities[d] if sharding.priorities else 0
        dims.append(f"{text}p{priority}" if priority else text)
    pieces.append(f"[{', '.join(dims)}]")
    if sharding.replicated_axes:
        pieces.append(f"replicated={names_text(sharding.replicated_axes)}")
    if sharding.unreduced:
        pieces.append(f"unreduced={names_text(sharding.unreduced)}")
    return f"<{', '.join(pieces)}>"


def shardings_text(shardings: Iterable[Sharding], names: Mapping[DeviceMesh, str] | None = None) -> str:
    return f"[{', '.join(sharding_text(s, names) for s in shardings)}]"


def all_shardings(value) -> list[Sharding]:
    """The shardings of a slot or an attribute."""
    if isinstance(value, tuple):
        return [s for element in value for s in all_shardings(element)]
    return [value] if isinstance(value, Sharding) else []


def meshes_of(module: Module) -> list[DeviceMesh]:
    """The meshes of all shardings of a module, in instruction order."""
    found: dict[DeviceMesh, None] = {}
    for instruction in module.instructions():
        for value in (instruction.sharding, *instruction.attributes.values()):
            if value is not None and value.__class__ in (tuple, Sharding):
                found |= dict.fromkeys(s.mesh for s in all_shardings(value))
    return list(found)
