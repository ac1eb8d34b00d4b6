"""Classes of plain fields, as in `dataclasses`, but cheap to define.

`import hloom` defines over a hundred of them. `dataclasses` writes and compiles up to seven methods per class; here
only `__init__`. Comparison, hash and repr are closures over the field names.

    @record                         or @record(frozen=True), @record(eq=False)
    class Chunk:
        items: int
        names: list[str] = field(default_factory=list)

    replace(chunk, items=3)         a copy with other fields
    asdict(chunk)                   {'items': 3, 'names': []}, values as they are
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


_NONE = object()


class _Field:
    """The options of a field."""

    __slots__ = ("default", "make", "shown")

    def __init__(self, default: Any, make: Callable[[], Any] | None, shown: bool):
        self.default, self.make, self.shown = default, make, shown


def field(*, default: Any = _NONE, default_factory: Callable[[], Any] | None = None, repr: bool = True) -> Any:
    """A field with its default or default factory, and whether repr shows it."""
    return _Field(default, default_factory, repr)


@dataclass_transform(field_specifiers=(field,))
def record(cls: Any = None, *, frozen: bool = False, eq: bool = True):
    """Makes a class a record of its annotated names, those of its bases before its own.

    frozen: fields can't be set (AttributeError), and the hash is that of the fields. eq: equal if of the same class
    with equal fields; otherwise by identity. Methods defined by the class are kept; `__init__` calls `__post_init__`.
    Raises TypeError for a field without a default after one with a default, ValueError for a mutable default.
    """
    if cls is None:
        return lambda made: record(made, frozen=frozen, eq=eq)
    fields: dict[str, _Field] = {}
    for base in reversed(cls.__mro__[1:]):
        fields |= base.__dict__.get("__record_fields__", {})
    own = cls.__dict__
    for name in own.get("__annotations__", ()):
        made = own.get(name, _NONE)
        if not isinstance(made, _Field):
            inherited = fields.get(name)
            made = inherited if made is _NONE and inherited is not None else _Field(made, None, True)
        elif made.default is not _NONE:
            setattr(cls, name, made.default)
        else:
            delattr(cls, name)
        if isinstance(made.default, (list, dict, set)):
            raise ValueError(f"{cls.__name__}.{name}: all instances would share this default; use default_factory")
        fields[name] = made
    names = tuple(fields)
    values = attrgetter(*names) if names else _nothing

    def __repr__(self) -> str:
        parts = [f"{name}={getattr(self, name)!r}" for name in names if fields[name].shown]
        return f"{type(self).__qualname__}({', '.join(parts)})"

    def __eq__(self, other) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self) -> int:
        return hash(values(self))

    def give(name: str, method) -> None:
        if name not in own:
            setattr(cls, name, method)

    cls.__record_fields__ = fields
    cls.__match_args__ = names  # type: ignore[misc]  # (mypy forbids assigning this name, even for Any)
    give("__init__", _init(cls, fields, frozen))
    give("__repr__", __repr__)
    if eq:
        hashed = "__hash__" in own and own["__hash__"] is not None  # (a class with __eq__ alone has None there)
        give("__eq__", __eq__)
        if not hashed:
            cls.__hash__ = __hash__ if frozen else None
    if frozen:
        cls.__setattr__ = cls.__delattr__ = _refuse
    return cls


def replace(instance: T, **changes) -> T:
    """A record of the same class with some fields changed."""
    cls: Any = type(instance)
    return cls(**{name: getattr(instance, name) for name in cls.__record_fields__} | changes)


def asdict(instance) -> dict[str, Any]:
    """The fields of a record by name."""
    return {name: getattr(instance, name) for name in type(instance).__record_fields__}


def _nothing(instance) -> tuple:
    return ()


def _refuse(self, name: str, *value):
    raise AttributeError(f"{type(self).__name__} is frozen: {name} can't be changed; use replace()")


def _init(cls: type, fields: dict[str, _Field], frozen: bool) -> Callable:
    parameters, lines = ["self"], []
    known: dict[str, Any] = {}
    optional = ""
    for name, made in fields.items():
        value = name
        if made.default is _NONE and made.make is None:
            if optional:
                raise TypeError(f"{cls.__name__}.{name} has no default, but {optional} before it has one")
            parameters.append(name)
        else:
            optional = name
            known[f"default_{name}"] = made if made.make else made.default
            parameters.append(f"{name}=default_{name}")
            if made.make:
                value = f"default_{name}.make() if {name} is default_{name} else {name}"
        # A frozen record's fields bypass its __setattr__. (No local name, which could clash with a field's.)
        lines.append(f"    self.__dict__[{name!r}] = {value}" if frozen else f"    self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("    self.__post_init__()")
    text = "\n".join([f"def __init__({', '.join(parameters)}):", *(lines or ["    pass"])])
    made_here: dict[str, Any] = {}
    exec(compile(text, __file__, "exec"), known, made_here)  # a frame of this file: errors name the caller's line
    method = made_here["__init__"]
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    return method
