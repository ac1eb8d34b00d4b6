"""Translates an FX graph of ATen ops to an hloom module.

    translate(graph_module, sizes, name) -> Translation

The graph's nodes are walked once; the rule of each (`hloom.bridges.torch.table`) records hloom's ops in a trace. Sizes
that torch left open are replaced by the integers or expressions in `sizes`; nodes that compute them are evaluated.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from hloom import lax
from hloom.bridges.torch.conditions import Bounds, Conditions
from hloom.bridges.torch.dtypes import S64, TO_HLOOM, TO_TORCH, convert, splat
from hloom.bridges.torch.errors import RefusedOps, refusal, source_of
from hloom.bridges.torch.graphs import (
    ASSERTIONS,
    COPY,
    OF_SIZES,
    WITH_EFFECTS,
    is_evaluated,
    keeps_state,
    placeholders,
    position_of_op,
)
from hloom.bridges.torch.memory import (
    View,
    contiguous_strides,
    inverse,
    is_identity,
    order_of,
    same_elements,
    storage_of,
    views_between,
)
from hloom.bridges.torch.open_sizes.symbols import Sizes
from hloom.bridges.torch.rules import RULES, rule_of
from hloom.bridges.torch.table import IGNORED, Memory
from hloom.bridges.torch.translation import Argument, Check, Given, New, Number, Part, Translation, Update
from hloom.errors import UnsupportedError
from hloom.ir.module import Module
from hloom.ir.sizes.expressions import Size, SizeExpression
from hloom.ir.source import source_scope
from hloom.ir.types import Shape
from hloom.random.bits import raw_fold_in, raw_seed
from hloom.tracing.trace import Trace, as_array

__all__ = ["translate"]

EMBEDDED = 64  # elements of a constant tensor that become a constant of the program; larger ones are passed by address

aten = torch.ops.aten
_KEY_BYTES = 8  # of a random op's key, at the start of what torch calls the state of its generator


def translate(
    graph_module,
    sizes: Sizes,
    name: str,
    lying: Mapping[int, tuple[Size, ...]] | None = None,
    saved: Collection[int] = (),
    wanted: Mapping[int, tuple[Size, ...]] | None = None,
) -> Translation:
    """The module of a graph for these sizes. Raises RefusedOps for nodes whose rules refuse them, with the op and the
    user's line of each.

    lying: strides of arguments whose layout differs from the graph's declaration, by position. saved: indices of
    results that only the derivative's graph reads. wanted: strides of results with their own memory whose layout
    differs from the graph's declaration, by index.
    """
    return _Translator(graph_module, sizes, name, lying or {}, saved, wanted or {}).translate()


class _Translator:
    def __init__(
        self, graph_module, sizes: Sizes, name: str, lying: Mapping[int, tuple[Size, ...]], saved: Collection[int],
        wanted: Mapping[int, tuple[Size, ...]],
    ):  # fmt: skip
        self.graph_module, self.sizes, self.name = graph_module, sizes, name
        self.lying, self.saved, self.wanted = lying, saved, wanted
        self.nodes = list(graph_module.graph.nodes)
        self.output = next(n for n in self.nodes if n.op == "output")
        self.positions = {node: k for k, node in enumerate(placeholders(graph_module))}
        self.trace = Trace(name)
        self.values: dict[Any, Any] = {}
        self.arguments: list[Argument] = []
        self.updated: dict[Any, Any] = {}  # placeholder -> its new value
        self.seed = None
        self.drawn = 0
        self.new: list[New] = []
        self.outputs: list[Any] = []
        self.made: dict[Any, New] = {}
        self.strides: dict[Any, tuple[Size, ...]] = {}  # of results whose layout differs from the declared one
        self.becoming: dict[Any, Any] = {}  # a node -> the argument that it replaces
        self.sharing: dict[Any, list] = {}  # a node that made memory -> the results that have it
        self.layouts: dict[int, tuple[tuple[Size, ...], tuple[Size, ...]]] = {}
        self.checked: list[tuple[Any, str, bool]] = []
        self.lazy: list[int] = []
        self.conditions = Conditions()
        self.refused: dict[Any, str] = {}

    def translate(self) -> Translation:
        with self.trace, source_scope() as at:
            for node in self.nodes:
                if node.op == "call_function":
                    at(source_of(node))
                    self.values[node] = self._call(node)
                elif node.op == "get_attr":
                    self.values[node] = self._attribute(node)
                elif node.op == "placeholder":
                    self._placeholder(node)
            at(None)
            if self.refused:
                raise RefusedOps(self.refused)
            self._note_sharing()
            results = [self._result(r) for r in self._flat_results()]
            checks = [self._check(*checked) for checked in self.checked]
            updates = self._updates()
            if self.conditions.found:
                self.outputs.append(self.conditions.flag())
            computation = self.trace.finish(self.outputs) if self.outputs else None
        module = Module(self.name, computation) if computation is not None else None
        return Translation(module, self.arguments, results, self.new, updates, self.layouts, checks, self.lazy,
                           self._free(results), self.conditions.found)  # fmt: skip

    # --- inputs ---

    def _placeholder(self, node) -> None:
        value = node.meta.get("val")
        if any(user.target is WITH_EFFECTS and user.args[0] is node for user in node.users):
            self.values[node] = None
        elif isinstance(value, torch.Tensor):
            dims, strides = self.sizes.each(value.shape), self._strides_of(node)
            if node.users:
                self.layouts[self.positions[node]] = dims, strides
            if value.is_complex() or value.is_neg() or _is_tangent(node):
                self.lazy.append(self.positions[node])
            if any(not self._is_read_as_memory(user) for user in node.users):
                order = order_of(dims, strides)
                self.values[node] = self._parameter(value, Argument(self.positions[node], None, order), node.name)
        elif isinstance(value, torch.SymInt):
            self.values[node] = self.sizes.of(value)
        elif value is None or isinstance(value, (int, float, bool)):
            self.values[node] = value
        else:
            raise UnsupportedError(
                f"the argument {node.name} of a graph for backend='hloom'",
                f"{type(value).__name__}",
                "pass tensors and numbers",
                source_of(node) or "",
            )

    def _strides_of(self, placeholder) -> tuple[Size, ...]:
        """In the layout of the argument."""
        found = self.lying.get(self.positions[placeholder])
        return self.sizes.strides(placeholder.meta["val"]) if found is None else found

    def _is_read_as_memory(self, user) -> bool:
        return user.op == "output" or user.target in OF_SIZES

    def _parameter(self, value: torch.Tensor, argument: Argument, hint: str):
        """The tensor whose memory is a new parameter."""
        shape = self.sizes.shape(value)
        self.arguments.append(argument)
        order = argument.order
        if order is None or is_identity(order):
            return self.trace.parameter(shape, hint, None, False)
        lying = self.trace.parameter(shape.with_dims([shape.dims[k] for k in order]), hint, None, False)
        return lax.transpose(lying, inverse(order))

    def _attribute(self, node):
        owner: Any = self.graph_module
        for part in node.target.split("."):
            owner = getattr(owner, part)
        if not isinstance(owner, torch.Tensor):
            return owner
        node.meta.setdefault("val", owner)
        with unset_fake_temporarily():  # torch compiles where tensors have no elements; constants have
            tensor = owner.detach().contiguous()
            elements = tensor.tolist() if tensor.numel() <= EMBEDDED else None
        if elements is not None:
            return as_array(np.array(elements, TO_HLOOM[tensor.dtype]).reshape(tuple(tensor.shape)))
        return self._parameter(tensor, Argument(None, tensor, tuple(range(tensor.ndim))), node.name)

    def _key(self):
        """The key of the next random op: of the call's seed and the op's number."""
        if self.seed is None:
            self.arguments.append(Argument())
            self.seed = raw_seed(self.trace.parameter(Shape(S64, ()), "seed", None, False), "threefry2x32")
        self.drawn += 1
        return raw_fold_in(self.seed, "threefry2x32", lax.full((), self.drawn, np.dtype(np.uint32)))

    # --- nodes ---

    def _value(self, item):
        if isinstance(item, torch.fx.Node):
            return self.values[item]
        if isinstance(item, (list, tuple)):
            return (
                type(item)([self._value(v) for v in item])
                if type(item) in (list, tuple)
                else [self._value(v) for v in item]
            )
        if isinstance(item, slice):
            return slice(*(self._value(v) for v in (item.start, item.stop, item.step)))
        return item

    def _call(self, node):
        if is_evaluated(node) and self.sizes.knows(node.meta.get("val")):
            return self.sizes.of(node.meta["val"])
        if node.target in OF_SIZES:
            declared = node.args[0].meta["val"]
            known = (
                self.sizes.each(declared.shape),
                self.sizes.strides(declared),
                self.sizes.of(declared.storage_offset()),
            )
            return OF_SIZES[node.target](*known, *[self._value(a) for a in node.args[1:]])
        if node.target in ASSERTIONS:
            return None
        arguments = [self._value(a) for a in node.args]
        options = {k: self._value(v) for k, v in node.kwargs.items() if k not in IGNORED}
        if node.target is operator.getitem:
            return node.target(*arguments, **options)
        if is_evaluated(node):  # values that sizes can't express
            return node.target(*_as_number(arguments), **{k: _as_number(v) for k, v in options.items()})
        if node.target is COPY:
            self._refuse_views(node)
            value = RULES[aten.copy.default].build(*arguments)
            self.updated[node.args[0]] = value
            self.values[node.args[0]] = value
            return value
        return self._build(node, arguments, options)

    def _refuse_views(self, node) -> None:
        """A tensor that the graph made and changes must have no views: they would keep the old elements."""
        target = node.args[0]
        if storage_of(target) not in self.positions and (
            storage_of(target) is not target or any(storage_of(user) is target for user in target.users)
        ):
            raise UnsupportedError(
                "a tensor that is changed in place", "other tensors are views of it", "clone it before",
                source_of(node) or "",
            )  # fmt: skip

    def _build(self, node, arguments, options):
        try:
            return self._built(node, arguments, options)
        except Exception as error:  # whatever error a rule raises, torch computes this op instead
            self.refused[node] = refusal(error)
            return _each_tensor(node.meta.get("val"), self._stand_in)

    def _stand_in(self, declared: torch.Tensor):
        """A tensor of a node that was refused, so that the nodes after it are tried too."""
        return splat(0, self.sizes.shape(declared))

    def _built(self, node, arguments, options):
        target, operands, key, state = node.target, node.args, None, None
        declared = _each_tensor(node.meta.get("val"), self.sizes.shape)
        if target is WITH_EFFECTS:
            target, arguments = arguments[1], arguments[2:]
            operands, declared = operands[2:], declared[1:]
            declared = declared[0] if len(declared) == 1 else declared
        elif keeps_state(node):
            place = position_of_op(node)
            target, arguments = arguments[place], [*arguments[:place], *arguments[place + 1 :]]
            if place:
                key = _key_of_state(arguments.pop(0))
            else:
                state, declared = declared
                key = self._key()
        found = rule_of(target)
        assert found is not None, target  # `left_to_torch` has the others
        if found.result:
            options["result"] = declared
        if found.memory:
            arguments[0] = self._memory(operands[0])
        if found.lies is not None:
            options["contiguous"] = self._is_contiguous(operands[found.lies])
        if found.checks:
            options["check"] = self._note_check
        if found.bounds:
            options["bounds"] = Bounds(self.conditions, node, target)
        if found.random:
            options["key"] = self._key() if key is None else key
        value = _as_declared(found.build(*arguments, **options), declared)
        if node.target is WITH_EFFECTS:
            return None, *(value if isinstance(value, tuple) else (value,))
        return value if state is None else (_state_of_key(key, state), value)

    def _note_check(self, info, name: str, *, is_matrix: bool) -> None:
        self.checked.append((info, name, is_matrix))

    def _is_contiguous(self, node) -> bool:
        declared = node.meta["val"]
        order = order_of(self.sizes.each(declared.shape), self.sizes.strides(declared))
        return order is not None and is_identity(order)

    def _memory(self, node) -> Memory:
        """The memory in which torch holds a tensor."""
        root = same_elements(node)
        declared = root.meta["val"]
        dims = self.sizes.each(declared.shape)
        strides = self._strides_of(root) if root in self.positions else self.sizes.strides(declared)
        origin = self.sizes.of(declared.storage_offset())
        start = self.sizes.of(node.meta["val"].storage_offset()) - origin
        order = order_of(dims, strides)
        if order is not None:
            value = self.values[root]
            elements = lax.reshape(value if is_identity(order) else lax.transpose(value, order), (value.size,))
        elif root in self.positions and root not in self.updated:
            elements = self._whole(root, dims, strides)
        else:
            raise UnsupportedError("the memory of a tensor", "it has gaps", "call .contiguous() before", "")
        return Memory(elements, origin, start, dims, order if root is node else None)

    def _whole(self, placeholder, dims, strides):
        """The memory of an argument with gaps, from its first element to its last."""
        shape = self.sizes.shape(placeholder.meta["val"])
        span = 1 + sum((size - 1) * step for size, step in zip(dims, strides, strict=True))
        self.arguments.append(Argument(self.positions[placeholder], None, (0,), whole=True))
        return self.trace.parameter(shape.with_dims([span]), placeholder.name, None, False)

    # --- results ---

    def _flat_results(self) -> list:
        results = self.output.args[0]
        return list(results) if isinstance(results, (list, tuple)) else [results]

    def _result(self, item):
        if not isinstance(item, torch.fx.Node):
            return Number(item)
        if item in self.positions and isinstance(item.meta["val"], torch.Tensor):
            return Given(self.positions[item])
        if not isinstance(item.meta["val"], torch.Tensor) or self.values.get(item, item) is None:
            return Number(self.values[item])
        if item.target is COPY:
            return self._result(item.args[0])
        base = storage_of(item)
        argument = self.becoming.get(base, base)
        if argument in self.positions:
            position = self.positions[argument]
            if position in self.lying:
                return self._made(item)
            held = argument.meta["val"]
            view = self._view(item, base) if argument is base else self._view_of_updated(item, base, argument)
            return Part(Given(position, (held.is_conj(), held.is_neg())), view)
        holder = self._holder(base, item)
        return self._made(holder) if holder is item else Part(self._made(holder), self._view(item, holder))

    def _note_sharing(self) -> None:
        flat = self._flat_results()
        for result in flat:
            if isinstance(result, torch.fx.Node) and result not in self.sharing.setdefault(storage_of(result), []):
                self.sharing[storage_of(result)].append(result)
        for place, strides in self.wanted.items():
            result = flat[place]
            if isinstance(result, torch.fx.Node) and self.sharing[storage_of(result)] == [result]:
                if strides != self.sizes.strides(result.meta["val"]):
                    self.strides[result] = strides
        for node in self.nodes:
            if node.target is COPY and node.args[0] in self.positions:
                self.becoming[node.args[1]] = node.args[0]

    def _holder(self, base, item):
        """The node whose elements are written to the memory of a result, which is then a view of it: itself if no other
        result has this memory; otherwise the first result that fills the memory, or the node that made it."""
        sharing = self.sharing[base]
        if sharing == [item] and (base is item or item in self.strides or self._order(item) is not None):
            return item
        if self._order(base) is None:
            return base
        declared = base.meta["val"]
        for result in sharing:
            found = result.meta["val"]
            if found.dtype == declared.dtype and not found.is_conj() and not found.is_neg():
                if self.sizes.each(found.shape) and self._order(result) is not None:
                    if self.sizes.shape(found).size == self.sizes.shape(declared).size:
                        return result
        return base

    def _order(self, node) -> tuple[int, ...] | None:
        return order_of(self.sizes.each(node.meta["val"].shape), self._strides_of_result(node))

    def _strides_of_result(self, node) -> tuple[Size, ...]:
        found = self.strides.get(node)
        return self.sizes.strides(node.meta["val"]) if found is None else found

    def _view(self, item, base) -> View:
        """The part of another node's memory that a result reads."""
        found, held = item.meta["val"], base.meta["val"]
        offset = (self.sizes.of(found.storage_offset()) * found.itemsize
                  - self.sizes.of(held.storage_offset()) * held.itemsize)  # fmt: skip
        return View(
            found.dtype,
            self.sizes.each(found.shape),
            self.sizes.strides(found),
            offset,
            found.is_conj(),
            found.is_neg(),
        )

    def _view_of_updated(self, item, base, argument) -> View:
        """A result that is a view of an argument, as a view of the node that replaces it, whose layout may differ."""
        declared, replacing = argument.meta["val"], base.meta["val"]
        if self.sizes.strides(declared) == self.sizes.strides(replacing):
            return self._view(item, base)
        # torch makes the views, from integers.
        dims, strides = _as_number(self.sizes.each(declared.shape)), _as_number(self.sizes.strides(declared))
        with unset_fake_temporarily():
            found = torch.empty_strided(dims, strides, dtype=declared.dtype, device="meta")
            for node in views_between(base, item):
                rest, options = _as_number(self._value(node.args[1:])), self._value(list(node.kwargs.values()))
                found = node.target(found, *rest, **dict(zip(node.kwargs, _as_number(options), strict=True)))
        offset = int(found.storage_offset()) * found.itemsize
        return View(found.dtype, tuple(found.shape), found.stride(), offset, found.is_conj(), found.is_neg())

    def _made(self, item) -> New:
        found = self.made.get(item)
        if found is None:
            declared, value = item.meta["val"], self.values[item]
            dims, strides = self.sizes.each(declared.shape), self._strides_of_result(item)
            order, spread = order_of(dims, strides), None
            if order is None:
                order = tuple(range(len(dims)))
                spread = strides if all(s or n == 1 for n, s in zip(dims, strides, strict=True)) else None
                strides = contiguous_strides(dims)
            found = New(len(self.outputs), declared.dtype, dims, strides, spread)
            self.made[item] = found
            self.new.append(found)
            self.outputs.append(value if is_identity(order) else lax.transpose(value, order))
        return found

    def _free(self, results: list) -> list[int]:
        """Numbers of new tensors that are saved for the derivative, and neither returned nor the memory of others."""
        saved: set[int] = set()
        fixed: set[int] = set()
        for k, result in enumerate(results):
            alone = not isinstance(result, Part)
            while isinstance(result, Part):
                result = result.base
            if isinstance(result, New):
                (saved if alone and k in self.saved else fixed).add(result.number)
        return sorted(saved - fixed)

    def _check(self, info, name: str, is_matrix: bool) -> Check:
        made = New(len(self.outputs), TO_TORCH[info.dtype], info.shape, contiguous_strides(info.shape))
        self.new.append(made)
        self.outputs.append(info)
        return Check(made.number, name, is_matrix)

    def _updates(self) -> list[Update]:
        """The replacements of arguments; the values have the arguments' layouts."""
        found = []
        for node, value in self.updated.items():
            if node not in self.positions:  # a tensor that the graph made
                continue
            declared = node.meta["val"]
            dims, strides = self.sizes.each(declared.shape), self._strides_of(node)
            order = order_of(dims, strides)
            lies = order is not None
            strides = strides if lies else contiguous_strides(dims)
            found.append(Update(self.positions[node], declared.dtype, dims, strides, lies))
            self.outputs.append(value if order is None or is_identity(order) else lax.transpose(value, order))
        return found


def _state_of_key(key, declared: Shape):
    """A key, u32[2], as the first bytes of a state u8[n]."""
    data = lax.reshape(lax.bitcast_convert_type(key, declared.dtype), (_KEY_BYTES,))
    return lax.pad(data, lax.full((), 0, declared.dtype), [(0, declared.size - _KEY_BYTES, 0)])


def _key_of_state(state):
    data = lax.reshape(lax.slice_in_dim(state, 0, _KEY_BYTES), (2, _KEY_BYTES // 2))
    return lax.bitcast_convert_type(data, np.dtype(np.uint32))


def _each_tensor(value, function):
    """function(tensor) for a declared tensor, or a tuple of it for several."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return tuple(_each_tensor(v, function) for v in value)
    return None


def _as_declared(value, declared):
    """A rule's result in the declared dtype. Raises UnsupportedError for one of another shape: the rule is wrong."""
    if isinstance(declared, tuple):
        return tuple(_as_declared(v, d) for v, d in zip(value, declared, strict=True))
    if value is None or declared is None:
        return value
    if value.shape != declared.dims:
        raise UnsupportedError(
            f"a result {declared!r}", f"hloom's rule made {value._shape!r}", "report this: the rule is wrong", ""
        )
    return convert(value, declared.dtype)


def _as_number(value):
    """The value with integers in place of sizes."""
    if isinstance(value, (list, tuple)):
        return type(value)([_as_number(v) for v in value])
    return int(value) if isinstance(value, SizeExpression) else value


def _is_tangent(placeholder) -> bool:
    """Whether an argument of the backward graph is passed by the user, in any form, by torch's naming convention."""
    return str(placeholder.target).startswith("tangents")
