"""Mutable arrays (`jax.ref`): `r = new_ref(x)`, `r[...]`, `r[i] = y`, `freeze(r)`.

A Ref is a Python object with a value. Within one trace, reads and writes work as they do outside. A function that uses
a Ref from outside of its trace (jit, the body of a loop, a branch, vmap, grad) becomes one that accepts the value and
returns the new one: its caller catches `OuterRef` or `RefArgument` and runs it again with the value as an argument.
"""

from __future__ import annotations

from contextlib import contextmanager

from hloom.errors import ArgumentError, IndexOutOfBoundsError, LeakedTracerError, UnsupportedError
from hloom.tracing.signatures import wraps
from hloom.tracing.trace import RefArgument, as_array, current_trace
from hloom.tree import pytrees as tree
from hloom.tree.prefixes import mapped_axes


class OuterRef(UnsupportedError):
    """A Ref from outside was used in a trace: the caller that traces has to pass its value in."""

    def __init__(self, ref: Ref):
        self.ref = ref
        trace = current_trace()
        name = "hl.ensure_compile_time_eval" if trace is None else trace.name
        super().__init__(
            "use of a Ref from outside in a traced function",
            f"{ref.description}, used in '{name}'",
            "use it in jit, vmap, grad, scan, while_loop, fori_loop, cond or switch, or create it inside the function",
        )


class Ref:
    """A mutable array. Created by `new_ref`; functions of arrays do not accept it.

    Reading `r[index]` returns an array, `r[...]` all of it. Raises the errors of array indexing, and ArgumentError
    after `freeze`.

    >>> @hl.jit
    ... def total(x):
    ...     ref = hl.new_ref(0)
    ...     for k in range(3):
    ...         ref[...] += x[k]
    ...     return hl.freeze(ref)
    >>> total(hnp.array([1, 2, 3]))
    Array(6, dtype=int32)
    """

    __slots__ = ("_states",)
    __hash__ = object.__hash__

    def __init__(self, value):
        self._states = [(as_array(value, "the value of a Ref"), current_trace())]

    def read(self):
        """The value now. Raises OuterRef in a trace that it does not belong to."""
        if not self._states:
            raise ArgumentError("use of a Ref", "it is frozen", "use the array that freeze returned")
        value, trace = self._states[-1]
        if trace is not current_trace():
            if trace is not None and not trace.active:
                raise LeakedTracerError(
                    f"use of a Ref of '{trace.name}' after its trace ended",
                    self.description,
                    "return its value from the function",
                )
            raise OuterRef(self)
        return value

    def write(self, value) -> None:
        """Another value of the same shape and dtype."""
        self.read()
        self._states[-1] = (value, current_trace())

    @property
    def description(self) -> str:
        return f"Ref of {self._states[-1][0]._shape!r}" if self._states else "a frozen Ref"

    @property
    def shape(self) -> tuple[int, ...]:
        return self._states[-1][0].shape

    @property
    def dtype(self):
        return self._states[-1][0].dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return self._states[-1][0].size

    def __len__(self) -> int:
        return len(self._states[-1][0])

    def __array__(self, dtype=None, copy=None):
        raise ArgumentError("an array of a Ref", f"{self.description}, which is not an array", "read it: ref[...]")

    def _check(self, index) -> None:
        """Raises IndexOutOfBoundsError for an integer outside of its axis, which arrays clamp or drop."""
        for axis, entry in enumerate(index if isinstance(index, tuple) else (index,)):
            if not isinstance(entry, (int, slice)) or axis >= self.ndim:
                return
            size = self.shape[axis]
            if isinstance(entry, int) and not -size <= entry < size:
                raise IndexOutOfBoundsError(
                    f"element {entry} of axis {axis} of a Ref",
                    self.description,
                    f"index between {-size} and {size - 1}" if size else "the axis is empty",
                )

    def __getitem__(self, index):
        value = self.read()
        self._check(index)
        return value if index is Ellipsis else value[index]

    def __setitem__(self, index, new) -> None:
        self._check(index)
        self.write(self.read().at[index].set(new))

    def unsafe_buffer_pointer(self) -> int:
        """The current address of the first element; a write moves the Ref to other memory."""
        return self.read().unsafe_buffer_pointer()

    def get(self, index=...):
        """As `ref[index]`."""
        return self[index]

    def set(self, new, index=...) -> None:
        """As `ref[index] = new`."""
        self[index] = new

    def swap(self, new, index=...):
        """`ref[index] = new`; returns the old value."""
        before = self[index]
        self[index] = new
        return before

    def addupdate(self, new, index=...) -> None:
        """Adds to the elements, also where an index names one more than once."""
        self.write(self.read().at[index].add(new))

    def __repr__(self) -> str:
        if not self._states:
            return "Ref(frozen)"
        return f"Ref({repr(self._states[-1][0]).partition('(')[2]}"


def new_ref(init_val, *, memory_space=None, kind=None) -> Ref:
    """A Ref with the value of an array or number. memory_space, kind: accepted; there is one kind of memory.

    >>> ref = hl.new_ref(hnp.zeros(3))
    >>> ref[1] = 5.0
    >>> hl.freeze(ref)
    Array([0., 5., 0.], dtype=float32)
    """
    value = as_array(init_val.read() if isinstance(init_val, Ref) else init_val, "the value of a Ref")
    ref = Ref(value)
    if value.weak:
        ref._states[-1] = (value.astype(value.dtype), current_trace())
    return ref


def freeze(ref: Ref):
    """The value; the Ref can be used no more.

    >>> counter = hl.new_ref(0)
    >>> counter[...] += 2
    >>> hl.freeze(counter)
    Array(2, dtype=int32)
    """
    value = ref.read()
    ref._states.clear()
    return value


def get(ref: Ref, idx=...):
    """ref[idx].

    >>> hl.ref.get(hl.new_ref(hnp.array([1, 2, 3])), 1)
    Array(2, dtype=int32)
    """
    return ref[idx]


def set(ref: Ref, idx, value) -> None:  # noqa: A001  (JAX's name)
    """ref[idx] = value; None or ... as idx is all of it.

    >>> ref = hl.new_ref(hnp.zeros(3))
    >>> hl.ref.set(ref, slice(0, 2), 1.0)
    >>> hl.freeze(ref)
    Array([1., 1., 0.], dtype=float32)
    """
    ref[... if idx is None else idx] = value


def swap(ref: Ref, idx, value):
    """ref[idx] = value; returns the old value.

    >>> ref = hl.new_ref(hnp.array([1, 2]))
    >>> hl.ref.swap(ref, 0, 9), hl.freeze(ref)
    (Array(1, dtype=int32), Array([9, 2], dtype=int32))
    """
    return ref.swap(value, ... if idx is None else idx)


def addupdate(ref: Ref, idx, x) -> None:
    """Adds x to ref[idx].

    >>> ref = hl.new_ref(hnp.zeros(3))
    >>> hl.ref.addupdate(ref, 1, 5.0)
    >>> hl.freeze(ref)
    Array([0., 5., 0.], dtype=float32)
    """
    ref.addupdate(x, ... if idx is None else idx)


# --- programs around Refs -----------------------------------------------------------------------------------------


@contextmanager
def held(refs, values):
    """Within it the Refs have these values, in the current trace; the block gets a function for those at its end."""
    trace = current_trace()
    for ref, value in zip(refs, values, strict=True):
        ref._states.append((as_array(value), trace))
    try:
        yield lambda: [ref.read() for ref in refs]
    finally:
        for ref in refs:
            ref._states.pop()


def _attempt(first: OuterRef, attempt):
    """attempt(refs, values) -> (new values, result), repeated until refs holds all Refs from outside that it uses."""
    refs = [first.ref]
    while True:
        before = [ref.read() for ref in refs]
        try:
            values, result = attempt(refs, before)
        except OuterRef as found:
            if any(found.ref is ref for ref in refs):
                raise
            refs.append(found.ref)
        else:
            for ref, value in zip(refs, values, strict=True):
                ref.write(value)
            return result


def _carrying_refs(attempt):
    """The decorator of a function whose functions may use Refs: where they do, attempt(function, refs, before,
    *arguments) calls it with functions that accept the values of the Refs and return the new ones."""

    def decorate(function):
        @wraps(function)
        def call(*args, **kwargs):
            try:
                return function(*args, **kwargs)
            except OuterRef as found:
                first = found
            return _attempt(first, lambda refs, before: attempt(function, refs, before, *args, **kwargs))

        return call

    return decorate


@_carrying_refs
def scan_carries_refs(scan, refs, before, f, init, *args, **kwargs):
    """scan, whose carry also holds the Refs that the body uses."""

    def step(state, x):
        with held(refs, state[0]) as after:
            carry, y = f(state[1], x)
            return (after(), carry), y

    (values, carry), ys = scan(step, (before, init), *args, **kwargs)
    return values, (carry, ys)


@_carrying_refs
def while_carries_refs(while_loop, refs, before, cond_fun, body_fun, init_val, **kwargs):
    """while_loop, whose value also holds the Refs that the functions use."""

    def condition(state):
        with held(refs, state[0]):
            return cond_fun(state[1])

    def body(state):
        with held(refs, state[0]) as after:
            value = body_fun(state[1])
            return after(), value

    return while_loop(condition, body, (before, init_val), **kwargs)


@_carrying_refs
def branches_take_refs(choose, refs, before, name, selector, functions, titles, operands):
    """choose(name, selector, functions, titles, operands), whose functions use Refs."""

    def with_values(function):
        def branch(values, *given):
            with held(refs, values) as after:
                result = function(*given)
                return after(), result

        return branch

    return choose(name, selector, [with_values(f) for f in functions], titles, (before, *operands))


def gradient_keeps_refs(first: OuterRef, function, has_aux: bool, transform, args, kwargs):
    """The value and gradients of a function that uses Refs from outside.

    transform(function, has_aux=True) returns ((value, aux), gradients), and raises OuterRef.
    """

    def attempt(refs, before):
        @wraps(function)
        def whole(*given, **named):
            with held(refs, before) as after:
                result = function(*given, **named)
                value, aux = result if has_aux else (result, None)
                return value, (aux, after())

        (value, (aux, values)), gradients = transform(whole, has_aux=True)(*args, **kwargs)
        return values, ((value, aux) if has_aux else value, gradients)

    return _attempt(first, attempt)


# --- Refs among arguments -----------------------------------------------------------------------------------------


def references(args, kwargs) -> tuple[list, tuple[int, ...], object]:
    """(leaves, positions of the Refs among them, structure) of arguments."""
    leaves, structure = tree.flatten((args, kwargs))
    return leaves, tuple(k for k, leaf in enumerate(leaves) if isinstance(leaf, Ref)), structure


def on_values(function, positions, closed=()):
    """The function with values in place of Refs: (new values of the arguments, of `closed`, result).

    positions: which leaves of the arguments are Refs. closed: Refs that it closes over; their values come as the
    keyword argument `values_of_refs`.
    """

    @wraps(function)
    def run(*args, values_of_refs=(), **kwargs):
        leaves, structure = tree.flatten((args, kwargs))
        inner = [Ref(leaves[k]) for k in positions]
        for k, ref in zip(positions, inner, strict=True):
            leaves[k] = ref
        given, named = tree.unflatten(structure, leaves)
        with held(closed, values_of_refs) as after:
            result = function(*given, **named)
            return [ref.read() for ref in inner], after(), result

    return run


def call_on_values(run, args, kwargs, closed):
    """Calls the result of `on_values` (or a compiled form of it) with the values of Refs, and writes the new ones."""
    leaves, positions, structure = references(args, kwargs)
    refs = [leaves[k] for k in positions]
    if len({id(ref) for ref in (*refs, *closed)}) != len(refs) + len(closed):
        raise ArgumentError("the Refs of a function are distinct", "one was passed twice, or also used by name",
                            "pass each Ref once")  # fmt: skip
    for k, ref in zip(positions, refs, strict=True):
        leaves[k] = ref.read()
    given, named = tree.unflatten(structure, leaves)
    if closed:
        named = {**named, "values_of_refs": [ref.read() for ref in closed]}
    new, after, result = run(*given, **named)
    for ref, value in zip((*refs, *closed), (*new, *after), strict=True):
        ref.write(value)
    return result


def compiled_with_refs(compile_function, versions: dict, closed: list, function):
    """call(args, kwargs) of a jitted function that uses Refs, given as arguments or closed over.

    compile_function: jit with the function's options. versions: compiled forms by positions of Refs. closed: the Refs
    found so far, which grows.
    """

    def call(args, kwargs):
        while True:
            _, positions, _ = references(args, kwargs)
            key = positions, len(closed)
            if key not in versions:
                versions[key] = compile_function(on_values(function, positions, tuple(closed)))
            try:
                return call_on_values(versions[key], args, kwargs, tuple(closed))
            except OuterRef as found:
                if any(found.ref is ref for ref in closed):
                    raise
                closed.append(found.ref)

    return call


def mapped_with_refs(map_function, function, in_axes, out_axes, args, kwargs):
    """vmap of a function that uses Refs. Those among the arguments are mapped by in_axes; those that it closes over are
    shared by all batch elements, so they can only be read, or written with a value that is also shared.
    map_function: vmap that raises OuterRef."""
    leaves, positions, structure = references(args, kwargs)
    prefix = in_axes if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
    axes = [a for axis, arg in zip(prefix, args, strict=True) for a in _axes(axis, arg)]
    axes += [0] * (len(leaves) - len(axes))
    closed: list[Ref] = []
    while True:
        run = on_values(function, positions, tuple(closed))

        def positional(values, *given, run=run):
            return run(*given, **kwargs, **({"values_of_refs": values} if values else {}))

        outer = ([axes[k] for k in positions], None, out_axes)
        mapped = map_function(positional, (None, *prefix), outer)

        def call(*given, values_of_refs=(), mapped=mapped):
            return mapped(list(values_of_refs), *given)

        try:
            return call_on_values(call, args, {}, tuple(closed))
        except OuterRef as found:
            if any(found.ref is ref for ref in closed):
                raise
            closed.append(found.ref)


def _axes(axis, argument) -> list:
    return mapped_axes(axis, argument, "in_axes of vmap")


__all__ = ["Ref", "RefArgument", "addupdate", "freeze", "get", "new_ref", "set", "swap"]
__dir__ = __all__.copy
