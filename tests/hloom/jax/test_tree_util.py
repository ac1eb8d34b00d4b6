"""Paths, keys and classes as nodes, beside JAX's own where it is installed."""

from __future__ import annotations

import collections
import dataclasses

import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import TreeError
from hloom.jax import tree_util

Point = collections.namedtuple("Point", "x y")
TREE = {"b": [1, (2, None)], "a": Point(3, {"z": 4})}


def test_paths_are_those_of_jax():
    jax = pytest.importorskip("jax")
    theirs = [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(TREE)]
    assert [(tree_util.keystr(path), leaf) for path, leaf in tree_util.tree_leaves_with_path(TREE)] == theirs


def test_map_with_path():
    named = hl.tree.map_with_path(lambda path, x: (tree_util.keystr(path, simple=True, separator="/"), x), TREE)
    assert named == {"b": [("b/0", 1), (("b/1/0", 2), None)], "a": Point(("a/x", 3), {"z": ("a/y/z", 4)})}
    with pytest.raises(TreeError, match="map over several trees"):
        hl.tree.map_with_path(lambda path, x, y: x, TREE, {"b": 1})


def test_is_leaf_sees_the_path_where_wanted():
    pairs, structure = tree_util.tree_flatten_with_path(
        TREE, is_leaf=lambda path, node: len(path) == 1, is_leaf_takes_path=True
    )
    assert [leaf for _, leaf in pairs] == [TREE["a"], TREE["b"]] and structure.num_leaves == 2
    assert tree_util.tree_unflatten(structure, [1, 2]) == {"a": 1, "b": 2}


def test_dataclasses_as_nodes():
    @tree_util.register_dataclass
    @dataclasses.dataclass
    class Layer:
        weights: object
        name: str = hl.tree.static(default="layer")

    layer = Layer(hnp.ones(3), "first")
    doubled = hl.jit(lambda layer: hl.tree.map(lambda w: 2 * w, layer))(layer)
    assert doubled.name == "first" and doubled.weights.tolist() == [2, 2, 2]
    ((path, _),) = hl.tree.leaves_with_path(layer)
    assert tree_util.keystr(path) == ".weights"
    with pytest.raises(TreeError, match="name each field once"):
        tree_util.register_dataclass(dataclasses.make_dataclass("Wrong", ["a", "b"]), ["a"], [])


def test_classes_with_their_own_methods():
    @tree_util.register_pytree_node_class
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

        def tree_flatten(self):
            return (self.a, self.b), None

        @classmethod
        def tree_unflatten(cls, metadata, children):
            return cls(*children)

    paths = [tree_util.keystr(path) for path, _ in tree_util.tree_leaves_with_path([Pair(1, 2)])]
    assert paths == ["[0][<flat index 0>]", "[0][<flat index 1>]"]
    assert tree_util.tree_leaves(tree_util.tree_map(lambda x: -x, Pair(1, 2))) == [-1, -2]


def test_partial_is_a_node():
    scale = tree_util.Partial(lambda factor, x: factor * x, hnp.array(3.0))
    assert float(hl.jit(lambda f, x: f(x))(scale, 2.0)) == 6.0
    assert float(hl.grad(lambda f: f(2.0))(scale).args[0]) == 2.0


def test_static_classes_are_structure():
    @tree_util.register_static
    @dataclasses.dataclass(frozen=True)
    class Options:
        depth: int

    assert tree_util.tree_leaves([Options(1), 2]) == [2]
    assert tree_util.tree_structure(Options(1)) != tree_util.tree_structure(Options(2))


def test_broadcast_reduce_and_transpose():
    assert hl.tree.broadcast([1, 2], [(3, 4), 5]) == [(1, 1), 2]
    with pytest.raises(TreeError, match="broadcast of a tree prefix"):
        hl.tree.broadcast([1, 2], [(3, 4)])
    assert hl.tree.reduce_associative(lambda a, b: a + b, list("hloom")) == "hloom"
    assert hl.tree.reduce_associative(max, [], identity=0) == 0
    with pytest.raises(TreeError, match="no leaves"):
        hl.tree.reduce_associative(max, [])
    assert hl.tree.transpose(hl.tree.structure([0, 0]), None, [{"a": 1}, {"a": 2}]) == {"a": [1, 2]}
    assert hl.tree.reduce(lambda a, b: (a, b), [1, 2], None) == ((None, 1), 2)


def test_questions_about_structures():
    structure = tree_util.tree_structure((1, [2, 3]))
    assert [s.num_leaves for s in tree_util.treedef_children(structure)] == [1, 2]
    assert tree_util.treedef_tuple(tree_util.treedef_children(structure)) == structure
    assert tree_util.treedef_is_leaf(tree_util.tree_structure(1)) and not tree_util.treedef_is_leaf(structure)
    assert tree_util.all_leaves([1, "a"]) and not tree_util.all_leaves([1, (2,)])
    assert tree_util.flatten_one_level([1, (2,)])[0] == [1, (2,)]
    with pytest.raises(TreeError, match="a leaf"):
        tree_util.flatten_one_level(1)
