"""Module: layers as plain trees of arrays.

A layer is a class with annotated fields, like a dataclass. Its arrays are leaves, so `hl.grad`, `hl.jit`, `hl.tree.map`
and optimizers accept a layer like a dictionary of arrays; fields declared with `static()` (sizes, strings, functions)
belong to the structure.

    class Perceptron(nn.Module):
        hidden: nn.Linear
        output: nn.Linear

        def __call__(self, x):
            return self.output(nn.relu(self.hidden(x)))

    first, second = hl.random.split(hl.random.key(0))
    model = Perceptron(nn.Linear(64, 128, key=first), nn.Linear(128, 10, key=second))
    gradient = hl.grad(loss)(model, images, labels)      # a Perceptron of gradients

`print(model)` shows the tree of layers, `print(model.summary(x))` a table with output shapes, parameters and FLOPs.
Calling a layer is inference: dropout does nothing, batch normalization uses its running statistics. `apply` runs it in
training mode, and returns the module with updated statistics:

    logits, model = nn.apply(model, images, training=True, key=key)
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import threading
from typing import Any, ClassVar, dataclass_transform

from hloom import random, tree
from hloom.arrays.arguments import refused_arguments, wrong_call
from hloom.errors import ArgumentError, HloomError, PrecisionWarning
from hloom.ir.source import is_internal, warn_user
from hloom.ir.types import DTYPES, FLOATS
from hloom.nn.mistakes import check_callable, refused_call
from hloom.nn.summary import Described, recorded
from hloom.numpy.foreign import OF_LAYERS, answer, without_foreign
from hloom.tracing.trace import current_trace

F64 = DTYPES["f64"]


def static(**options):
    """A field that is part of the structure, not an array: sizes, strings, functions. It must be hashable.

    >>> class Scale(hl.nn.Module):
    ...     factor: float = hl.nn.static(default=2.0)
    ...     def __call__(self, x):
    ...         return self.factor * x
    >>> hl.tree.leaves(Scale())
    []
    """
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(field_specifiers=(dataclasses.field, static))
class Module(Described):
    """The base class of layers; see the module's docstring. Fields cannot be assigned: `replace` returns a copy.

    >>> class Scale(hl.nn.Module):
    ...     factor: hl.Array
    ...     name: str = hl.nn.static(default="scale")
    ...     def __call__(self, x):
    ...         return self.factor * x
    >>> layer = Scale(hnp.array([3.0]))
    >>> hl.grad(lambda layer: layer(hnp.array([2.0])).sum())(layer).factor
    Array([2.], dtype=float32)
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field]]

    def __init_subclass__(cls, *, init: bool = True, **options):
        super().__init_subclass__(**options)
        # A subclass without new fields inherits __init__; init=False tells type checkers so.
        inherits = "__annotations__" not in cls.__dict__ and Module not in cls.__bases__
        makes_init = init and not (inherits or "__init__" in cls.__dict__)
        dataclasses.dataclass(init=makes_init, repr=False, eq=False)(cls)
        fields = dataclasses.fields(cls)
        cls._leaves = tuple(f.name for f in fields if not f.metadata.get("static"))
        cls._static = tuple(f.name for f in fields if f.metadata.get("static"))
        cls.__init__ = _freezing(cls.__init__)  # type: ignore[method-assign]  # the class is being defined
        if "__call__" in cls.__dict__:
            cls.__call__ = recorded(cls.__call__)  # type: ignore[method-assign]  # the class is being defined
        elif (refused := refused_call(cls)) is not None:
            cls.__call__ = refused  # type: ignore[method-assign]  # the class is being defined
        tree.register_keys(cls, lambda module: [tree.GetAttrKey(n) for n in module._leaves])
        tree.register(cls, _children, lambda metadata, children: _restored(cls, metadata, children))

    def __setattr__(self, name, value):
        if getattr(self, "_frozen", False):
            raise ArgumentError(
                f"{type(self).__name__}.{name} was assigned",
                "modules cannot be changed: a traced change would be lost, or leak",
                f"write module = module.replace({name}=...)",
            )
        object.__setattr__(self, name, value)

    def replace(self, **changes) -> Module:
        """A copy with changed fields. Raises ArgumentError for an unknown field."""
        known = {f.name for f in dataclasses.fields(self)}
        for name in changes:
            if name not in known:
                raise ArgumentError(
                    f"{type(self).__name__}.replace({name}=...)",
                    f"its fields are {', '.join(sorted(known))}",
                    "name one of them",
                )
        copy = object.__new__(type(self))
        for name in known:
            object.__setattr__(copy, name, changes.get(name, getattr(self, name)))
        object.__setattr__(copy, "_frozen", True)
        return copy

    def __dir__(self):
        return without_foreign(self, object.__dir__(self))


answer(Module, OF_LAYERS)


def _freezing(init):
    """An __init__ that freezes the outermost object when it returns."""

    @functools.wraps(init)
    def wrapped(self, *args, **kwargs):
        depth = self.__dict__.get("_depth", 0)  # of nested __init__ by super()
        object.__setattr__(self, "_depth", depth + 1)
        try:
            init(self, *args, **kwargs)
        except TypeError as error:
            if not isinstance(error, HloomError):
                _check_arguments(init, type(self).__name__, args, kwargs, error)
            raise
        object.__setattr__(self, "_depth", depth)
        if depth == 0:
            _check_attributes(self)
            object.__delattr__(self, "_depth")
            object.__setattr__(self, "_frozen", True)

    return wrapped


def _check_attributes(module) -> None:
    """Raises ArgumentError for an attribute that is not a field."""
    others = module.__dict__.keys() - {*module._leaves, *module._static, "_depth"}
    if others:
        name, layer = min(others), type(module).__name__
        raise ArgumentError(
            f"{layer}.{name} was assigned in __init__",
            f"it is not a field of {layer}: compiled functions, gradients and checkpoints would lose it",
            f"declare it in the class: `{name}: hl.Array`, or `{name}: int = hl.nn.static()` for a constant",
        )


def _check_arguments(init, layer: str, args, kwargs, error: TypeError) -> None:
    """Raises ArgumentError if __init__ does not take these arguments, or a built-in layer cannot use them."""
    signature = inspect.signature(init)
    own = signature.replace(parameters=[*signature.parameters.values()][1:])
    try:
        own.bind(*args, **kwargs)
    except TypeError as found:
        raise wrong_call(layer, own.parameters, args, kwargs, str(found)) from None
    if is_internal(init.__code__.co_filename):
        raise refused_arguments(layer, own, args, kwargs, error) from error


def _children(module: Module):
    names = module._leaves  # also the names in paths
    return [getattr(module, n) for n in names], tuple(getattr(module, n) for n in module._static), names


def _restored(cls, metadata, children):
    module = object.__new__(cls)
    for name, value in zip(cls._leaves, children, strict=True):
        object.__setattr__(module, name, value)
    for name, value in zip(cls._static, metadata, strict=True):
        object.__setattr__(module, name, value)
    object.__setattr__(module, "_frozen", True)
    return module


def warn_of_wide_input(x, parameter, layer: str) -> None:
    """Warns at the user's line, once per trace, if x is float64 and a layer's parameter has fewer bits."""
    if x.dtype != F64 or parameter.dtype not in FLOATS or parameter.dtype == F64 or x.weak:
        return
    trace = current_trace()
    if trace is not None:
        if PrecisionWarning in trace.warned:
            return
        trace.warned.add(PrecisionWarning)
    warn_user(
        f"{layer} with parameters of {parameter.dtype.name} was given a float64 input, so that the network computes "
        f"in float64, at half the speed or less; convert the input: x.astype('{parameter.dtype.name}')",
        PrecisionWarning,
    )


# --- training -----------------------------------------------------------------------------------------------------


class _Session:
    """One run of `apply`: the training flag, the random key and the values that layers recorded."""

    def __init__(self, training: bool, key):
        self.training = training
        self.key = key
        self.draws = 0
        self.recorded: dict[int, tuple[Module, dict[str, Any]]] = {}


class _Sessions(threading.local):
    def __init__(self):
        self.active: list[_Session] = []


_SESSIONS = _Sessions()


def apply(module, *args, training: bool = True, key=None, **kwargs):
    """(module(*args, **kwargs), the module with the values that its layers recorded).

    training: batch normalization uses and records the batch's statistics, dropout drops. key: for dropout. Pure: it can
    be traced, differentiated and batched. Layers that record must run in the same trace, not inside of a nested `jit`
    or `scan`.

    >>> model = hl.nn.Dropout(0.5)
    >>> y, model = hl.nn.apply(model, hnp.ones(1000), key=hl.random.key(0))
    >>> bool((y == 0).sum() > 300)
    True
    """
    check_callable(module, "nn.apply")
    return apply_function(lambda module: module(*args, **kwargs), module, training=training, key=key)


def apply_function(function, module, *args, training: bool = True, key=None):
    """(function(module, *args), the module with the values that its layers recorded): `apply` for a function that calls
    the layers of a module or of a tree of them, such as a loss."""
    session = _Session(training, key)
    _SESSIONS.active.append(session)
    try:
        result = function(module, *args)
    finally:
        _SESSIONS.active.pop()
    return result, _updated(module, session.recorded)


def is_training() -> bool:
    """Whether the layer, or the loss of `hl.training.train_step`, runs in training mode (`apply`).

    >>> hl.nn.is_training()
    False
    """
    active = _SESSIONS.active
    return bool(active) and active[-1].training


def draw_key(layer: str = "a layer"):
    """A new random key for a layer, or a loss, that runs in training mode. layer: its name in the error.

    Raises ArgumentError without a key in `apply`, or in the state of `hl.training.train_step`.
    """
    session = _SESSIONS.active[-1] if _SESSIONS.active else None
    if session is None or session.key is None:
        raise ArgumentError(
            f"{layer} draws random numbers in training",
            "nn.apply got no key",
            "write nn.apply(module, x, training=True, key=hl.random.key(0)), a new key at each step",
        )

    session.draws += 1
    return random.fold_in(session.key, session.draws)


def record(module: Module, **fields) -> None:
    """Records new values for the fields of a layer in training, for the module that `apply` returns."""
    if _SESSIONS.active:
        _SESSIONS.active[-1].recorded[id(module)] = (module, fields)


def _updated(value, recorded):
    if not recorded:
        return value
    if isinstance(value, Module):
        changes = {}
        for name in value._leaves:
            before = getattr(value, name)
            after = _updated(before, recorded)
            if after is not before:
                changes[name] = after
        changes |= recorded.get(id(value), (None, {}))[1]
        return value.replace(**changes) if changes else value
    if isinstance(value, dict):
        return type(value)((k, _updated(v, recorded)) for k, v in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_updated(v, recorded) for v in value))
    if isinstance(value, (list, tuple)):
        new = [_updated(v, recorded) for v in value]
        return value if all(a is b for a, b in zip(new, value, strict=True)) else type(value)(new)
    return value
