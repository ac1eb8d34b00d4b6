"""Records behave as dataclasses do."""

import copy
import dataclasses
import pickle
from functools import cached_property

import pytest

from hloom.ir import records
from hloom.ir.records import asdict, record, replace

pytestmark = pytest.mark.quick


def classes(decorator, fields):
    """The same classes by records and by dataclasses."""

    @decorator
    class Plain:
        """Two fields with defaults."""

        items: int
        names: list = fields.field(default_factory=list)
        grain: int = 3

        def total(self):
            return self.items * self.grain

    @decorator(frozen=True)
    class Frozen:
        name: str
        sizes: tuple = ()
        hidden: object = fields.field(default=None, repr=False)

        @cached_property
        def count(self):
            return len(self.sizes)

    @decorator(frozen=True)
    class Wider(Frozen):
        sizes: tuple = (1,)
        more: int = 7

    @decorator(eq=False)
    class Same:
        item: int

        def __post_init__(self):
            self.double = self.item * 2

    @decorator
    class Own:
        item: int

        def __repr__(self):
            return "own"

        def __eq__(self, other):
            return True

    return Plain, Frozen, Wider, Same, Own


def behaviour(decorator, fields):
    plain, frozen, wider, same, own = classes(decorator, fields)
    a, b = plain(2), plain(2)
    yield a == b, a.names is b.names, repr(a).rpartition(".")[2], a.total(), plain.grain, hasattr(plain, "names")
    a.names.append(1)
    yield a != b, fields.replace(a, items=9).items, fields.replace(a, items=9).names is a.names, fields.asdict(a)
    yield plain.__hash__ is None, plain.__match_args__, plain(items=1, grain=2).grain, plain(1, [2], 5).names
    f = frozen("x", (1, 2))
    yield f == frozen("x", (1, 2)), hash(f) == hash(frozen("x", (1, 2))), f.count, repr(f).rpartition(".")[2]
    yield f == wider("x", (1, 2)), wider("y"), [getattr(wider("y"), n) for n in ("name", "sizes", "hidden", "more")]
    yield {f: 1}[frozen("x", (1, 2))], copy.copy(f) == f, copy.deepcopy(f) == f
    s = same(4)
    yield s == same(4), s == s, s.double, hash(s) == hash(s)
    yield repr(own(1)), own(1) == 5, own.__hash__ is None
    for wrong in (
        lambda: plain(), lambda: plain(1, [], 2, 3), lambda: plain(1, other=2), lambda: setattr(f, "name", "y"),
        lambda: delattr(f, "name"), lambda: {a: 1},
    ):  # fmt: skip
        with pytest.raises((TypeError, AttributeError)) as caught:
            wrong()
        yield isinstance(caught.value, TypeError)
    match a:
        case plain(items, names):
            yield items, names


def test_as_dataclasses():
    ours = [str(x) for x in behaviour(record, records)]
    theirs = [str(x) for x in behaviour(dataclasses.dataclass, dataclasses)]
    assert [o.replace("record", "x") for o in ours] == [t.replace("dataclass", "x") for t in theirs]


@record(frozen=True)
class Sent:
    item: int
    names: tuple = ()


def test_pickled():
    assert pickle.loads(pickle.dumps(Sent(3, ("a",)))) == Sent(3, ("a",))
    assert asdict(replace(Sent(3), item=4)) == {"item": 4, "names": ()}


def test_fields_may_have_any_name():
    @record(frozen=True)
    class Named:
        fields: tuple
        default_fields: int = 2
        cls: int = 3

    assert asdict(Named((1,))) == {"fields": (1,), "default_fields": 2, "cls": 3}


def test_wrong_classes():
    with pytest.raises(TypeError, match="second has no default, but first before it has one"):

        @record
        class A:
            first: int = 1
            second: int

    with pytest.raises(ValueError, match="all instances would share"):

        @record
        class B:
            items: list = []


def test_the_error_says_what_to_do():
    with pytest.raises(AttributeError, match=r"Sent is frozen: item can't be changed; use replace\(\)"):
        Sent(1).item = 2
