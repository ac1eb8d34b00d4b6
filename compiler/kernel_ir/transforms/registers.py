"""Scalar replacement: elements that a loop wrote some iterations ago, and those that it always reads, as variables.

    for j in range(1, n):                   x_1 = x[0]
        x[j] = x[j - 1] * y[i] + z[j]       y_0 = y[i]
                                            for j in range(1, n):
                                                x_now = x_1 * y_0 + z[j]
                                                x[j] = x_now
                                                x_1 = x_now

An element stays in a variable where no store may change it in between, which LLVM cannot know of rows whose distance is
a size. What is read before the loop is an element that its first iterations read for certain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hloom.compiler.kernel_ir.affine.dependences import ANY, SAME, Access, Distance, Nest
from hloom.compiler.kernel_ir.affine.sums import Affine
from hloom.compiler.kernel_ir.builder import chosen, compared, constant, number, plus
from hloom.compiler.kernel_ir.nodes import Assign, Choice, Expr, Load, Logic, Stmt, Store, Var
from hloom.compiler.kernel_ir.rewrite import assigned, replaced, substituted
from hloom.compiler.kernel_ir.transforms.nests import Around, Path, has_fixed_bounds, is_straight, step_of
from hloom.compiler.kernel_ir.types import STORED
from hloom.ir.records import field, record, replace

__all__ = ["in_registers"]

FURTHEST = 3  # iterations that an element is kept


@record(eq=False)
class _Kept:
    """A store whose elements are kept. now: what it stores; earlier: what it stored 1, 2 ... iterations ago."""

    store: Store
    now: Var
    earlier: list[Var] = field(default_factory=list)


def in_registers(around: Around, nest: Nest, path: Path) -> list[Stmt] | None:
    """An innermost loop with elements in variables, and what comes before it; None where there are none.

    The loop has no branches. Loads of invariant elements move before it, and loads of what earlier iterations stored
    become variables.
    """
    loop = path[-1]
    step = step_of(loop)
    if step is None or not is_straight(loop.body) or loop.var in nest.varying:
        return None
    if not has_fixed_bounds(loop, {loop.var, *assigned(loop.body)}):
        return None
    made = _Registers(around, nest, path, step)
    made.find()
    return made.loop_and_before() if made.values else None


class _Registers:
    """values: by the load, the variable in its place."""

    def __init__(self, around: Around, nest: Nest, path: Path, step: int):
        self.around, self.nest, self.loop, self.step = around, nest, path[-1], step
        self.outside: list[Distance] = [SAME] * (len(path) - 1)
        self.own = {self.loop.var, *assigned(self.loop.body)}
        self.definitions = {var: value for var, value in nest.definitions.items() if var in self.own}
        self.kept: dict[int, _Kept] = {}  # by id of the store
        self.values: dict[tuple[int, int], Var] = {}  # by ids of the statement and the load
        self.before: list[Stmt] = []
        self.hoisted: dict[tuple[Var, Affine], Var] = {}
        self.order = {id(s): k for k, s in enumerate(self.loop.body)}

    def find(self) -> None:
        accesses = [a for a in self.nest.accesses if id(a.statement) in self.order]
        stores = [a for a in accesses if a.written]
        forms = {a: self.around.index(a.index, self.nest, self.own) for a in accesses}
        for access in accesses:
            form = forms[access]
            if access.written or form is None or access.pointer not in self.around.arrays:
                continue
            load = _load_of(access)
            if load is None or not _is_certain(access):
                continue
            if not form.terms.get(self.loop.var) and self._is_invariant(access, stores):
                self._hoist(access, load, form)
                continue
            found = self._writer(access, form, stores, forms)
            if found is not None and load.type == _kind(found[0]) and load.type not in STORED.values():
                self._keep(access, load, *found)

    # --- invariants

    def _is_invariant(self, access: Access, stores: Sequence[Access]) -> bool:
        return not any(self.nest.may_meet(store, access, [*self.outside, ANY]) for store in stores)

    def _hoist(self, access: Access, load: Load, form: Affine) -> None:
        if any(var in self.own for var in _variables(self._resolved(load.index))):
            return
        assert isinstance(load.pointer, Var)
        found = self.hoisted.get((load.pointer, form))
        if found is None:
            found = self.hoisted[load.pointer, form] = self.around.fresh(load.type, f"{load.pointer.name}_fixed")
            fixed = Load(load.type, load.pointer, self._resolved(load.index))
            self.before.append(Assign(found, self._guarded(fixed)))
        self.values[id(access.statement), id(load)] = found

    # --- what was stored

    def _writer(self, access: Access, form: Affine, stores: Sequence[Access], forms: Mapping[Access, Affine | None]):
        """(the store that wrote an element that is read, how many iterations ago), the last one."""
        best: tuple[Access, int] | None = None
        for store in stores:
            other = forms[store]
            if store.pointer is not access.pointer or other is None:
                continue
            distance = self._distance(access, form, store, other)
            if distance is None:
                continue
            if best is None or (distance, -store.number) < (best[1], -best[0].number):
                best = store, distance
        if best is None or not all(self._is_apart(other, access, *best) for other in stores if other is not best[0]):
            return None
        return best

    def _distance(self, access: Access, form: Affine, store: Access, other: Affine) -> int | None:
        """How many iterations ago a store wrote what is read; None where it is not always the same, or never."""
        apart = (form - other).number
        if apart is None:
            return None
        pace = other.terms.get(self.loop.var, 0) * self.step
        earlier = self._at(store) < self._at(access)  # in the same iteration
        if pace == 0:
            return None if apart else 0 if earlier else 1
        distance, rest = divmod(-apart, pace)
        if rest or not 0 <= distance <= FURTHEST or (distance == 0 and not earlier):
            return None
        return distance

    def _at(self, access: Access) -> int:
        return self.order[id(access.statement)]

    def _is_apart(self, other: Access, access: Access, store: Access, distance: int) -> bool:
        """Whether another store never changes the element between its store and its load."""
        after_store = self._at(other) > self._at(store)
        before_load = self._at(other) < self._at(access)
        most = distance if after_store else distance - 1
        least = 0 if before_load else 1
        between: Distance = (least, most)
        return least > most or not self.nest.may_meet(other, access, [*self.outside, between])

    def _keep(self, access: Access, load: Load, store: Access, distance: int) -> None:
        statement = store.statement
        assert isinstance(statement, Store) and isinstance(load.pointer, Var)
        kept = self.kept.get(id(statement))
        if kept is None:
            kept = _Kept(statement, self.around.fresh(load.type, f"{load.pointer.name}_now"))
            self.kept[id(statement)] = kept
        while len(kept.earlier) < distance:
            var = self.around.fresh(load.type, f"{load.pointer.name}_{len(kept.earlier) + 1}_ago")
            var.varies = True
            kept.earlier.append(var)
        self.values[id(access.statement), id(load)] = kept.earlier[distance - 1] if distance else kept.now

    # --- nodes

    def _guarded(self, load: Expr) -> Expr:
        """What is read before the loop where it has an iteration."""
        test = compared("<" if self.step > 0 else ">", self.loop.start, self.loop.stop)
        return chosen(test, load, number(0, load.type))

    def loop_and_before(self) -> list[Stmt]:
        body: list[Stmt] = []
        for statement in self.loop.body:
            kept = self.kept.get(id(statement))
            statement = self._rewritten(statement)
            if kept is None:
                body.append(statement)
            else:
                assert isinstance(statement, Store)
                body += [Assign(kept.now, statement.value), replace(statement, value=kept.now, augmented=False)]
        for kept in self.kept.values():
            for k in reversed(range(len(kept.earlier))):
                body.append(Assign(kept.earlier[k], kept.earlier[k - 1] if k else kept.now))
            for k, var in enumerate(kept.earlier):
                first = plus(self.loop.start, constant(-(k + 1) * self.step))
                at = substituted(self._resolved(kept.store.index), {self.loop.var: first})
                self.before.append(Assign(var, self._guarded(Load(var.type, kept.store.pointer, at))))
        return [*self.before, replace(self.loop, body=body)]

    def _rewritten(self, statement: Stmt) -> Stmt:
        def value(expression: Expr) -> Expr | None:
            return self.values.get((id(statement), id(expression)))

        changed = {}
        for name in statement.PARTS:
            part = getattr(statement, name)
            changed[name] = replaced(part, value)
        return replace(statement, **changed)

    def _resolved(self, index: Expr) -> Expr:
        """An index without variables of the loop's body."""
        while any(var in self.definitions for var in _variables(index)):
            index = substituted(index, self.definitions)
        return index


def _kind(store: Access) -> str:
    """The type of what is stored, where it is stored as it is; else none."""
    statement = store.statement
    assert isinstance(statement, Store)
    return statement.stored if statement.value.type == statement.stored and not statement.streamed else ""


def _load_of(access: Access) -> Load | None:
    """The load of an access."""
    for expression in access.statement.expressions():
        for one in expression.walk():
            if isinstance(one, Load) and one.index is access.index and one.pointer is access.pointer:
                return one
    return None


def _is_certain(access: Access) -> bool:
    """Whether an iteration reads the element for certain, whatever branches an expression takes."""

    def certain(expression: Expr) -> Iterator[Expr]:
        yield expression
        parts = expression.children()
        if isinstance(expression, Choice):
            parts = iter((expression.test,))
        elif isinstance(expression, Logic):
            parts = iter(expression.operands[:1])
        for part in parts:
            yield from certain(part)

    reached = (one for expression in access.statement.expressions() for one in certain(expression))
    return any(isinstance(one, Load) and one.index is access.index for one in reached)


def _variables(expression: Expr) -> Iterator[Var]:
    return (one for one in expression.walk() if isinstance(one, Var))
