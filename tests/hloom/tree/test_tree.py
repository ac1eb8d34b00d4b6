"""hl.tree: every function on nested containers, and TreeError where structures differ."""

from __future__ import annotations

import pickle
from collections import OrderedDict, namedtuple

import pytest

import hloom as hl
from hloom import nn
from hloom.errors import TreeError
from hloom.tree import pytrees

pytestmark = pytest.mark.quick

TREE = {"b": (1, 2, None), "a": [3, {"x": 4}]}
Pair = namedtuple("Pair", "first second")


def test_flatten_and_unflatten():
    leaves, structure = hl.tree.flatten(TREE)
    assert leaves == hl.tree.leaves(TREE) == [3, 4, 1, 2]  # dictionaries in the order of their keys
    assert structure == hl.tree.structure(TREE)
    assert hl.tree.unflatten(structure, leaves) == TREE


def test_map_and_reduce():
    assert hl.tree.map(lambda x: -x, TREE) == {"b": (-1, -2, None), "a": [-3, {"x": -4}]}
    assert hl.tree.map(lambda x, y, z: x + y * z, TREE, TREE, TREE)["a"] == [12, {"x": 20}]
    assert hl.tree.map(lambda x: len(x), [(1, 2), (3,)], is_leaf=lambda x: isinstance(x, tuple)) == [2, 1]
    assert hl.tree.reduce(lambda x, y: x - y, TREE) == 3 - 4 - 1 - 2
    assert hl.tree.reduce(lambda x, y: x - y, TREE, 10) == 10 - 3 - 4 - 1 - 2
    assert hl.tree.all([True, (1,)]) and not hl.tree.all([True, (0,)])


def test_paths_name_the_leaves():
    assert hl.tree.paths(TREE) == [("a", 0), ("a", 1, "x"), ("b", 0), ("b", 1)]


def test_transpose_turns_inside_out():
    outer, inner = hl.tree.structure((0, 0)), hl.tree.structure({"u": 0, "v": 0})
    turned = hl.tree.transpose(outer, inner, ({"u": 1, "v": 2}, {"u": 3, "v": 4}))
    assert turned == {"u": (1, 3), "v": (2, 4)}


def test_registered_classes_and_standard_containers_pass_through_jit():
    class Point:
        def __init__(self, x, y):
            self.x, self.y = x, y

    hl.tree.register(Point, lambda p: ((p.x, p.y), None), lambda _, children: Point(*children))
    moved = hl.jit(lambda p: Point(p.x + 1, p.y))(Point(1.0, 2.0))
    assert isinstance(moved, Point) and float(moved.x) == 2
    swapped = hl.jit(lambda p: Pair(p.second, p.first))(Pair(1.0, 2.0))
    assert isinstance(swapped, Pair) and float(swapped.first) == 2
    assert list(hl.jit(lambda d: d)(OrderedDict(z=1.0, a=2.0))) == ["z", "a"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: hl.tree.map(lambda x, y: x, (1, 2), (1, 2, 3)),
        lambda: hl.tree.map(lambda x, y: x, {"a": 1}, {"b": 1}),
        lambda: hl.tree.map(lambda x, y: x, (1, (2, 3)), [1, (2, 3)]),
        lambda: hl.tree.unflatten(hl.tree.structure((1, 2)), [1]),
        lambda: hl.tree.transpose(hl.tree.structure((0, 0)), hl.tree.structure({"u": 0}), (1, {"u": 2})),
    ],
)
def test_different_structures_are_an_error_that_names_the_line(wrong):
    with pytest.raises(TreeError, match=r"test_tree\.py:\d+"):
        wrong()


def test_an_error_of_the_function_is_its_own():
    with pytest.raises(ValueError, match="my structure"):
        hl.tree.map(lambda x, y: (_ for _ in ()).throw(ValueError("my structure")), (1,), (2,))


def test_structures_print_compare_and_come_back():
    tree = {"a": (1, None, [2]), "b": 3}
    leaves, structure = hl.tree.flatten(tree)
    assert repr(structure) == "PyTreeDef({'a': (*, None, [*]), 'b': *})" == str(hl.tree.structure(tree))
    assert structure == hl.tree.structure(tree) and hash(structure) == hash(hl.tree.structure(tree))
    assert structure != hl.tree.structure({"a": 1})
    assert (structure.num_leaves, structure.num_nodes) == (3, 7)
    assert structure.unflatten(leaves) == hl.tree.unflatten(structure, leaves) == tree
    assert structure.flatten_up_to(tree) == leaves
    assert structure.node_data() == (dict, ["a", "b"]) and structure.children()[0].node_data() == (tuple, None)
    assert hl.tree.structure(5).node_data() is None
    pair = hl.tree.structure((0, 0))
    assert pair.compose(structure) == hl.tree.structure((tree, tree))
    assert pickle.loads(pickle.dumps(structure)) == structure
    assert hl.tree.transpose(pair, structure, (tree, tree))["a"][2] == [(2, 2)]
    with pytest.raises(TreeError, match="2 leaves for a structure with 3"):
        structure.unflatten([1, 2])


def test_how_structures_are_written_in_messages():
    value = {"x": [1, (2,)], "y": Pair(3, None), 5: (), "z": nn.Linear(1, 2, key=hl.random.key(0))}
    assert pytrees.written(hl.tree.structure(value["y"])) == "Pair(first=array, second=None)"
    assert pytrees.written(hl.tree.structure([1, (2,), {"k": ()}])) == "[array, (array,), {'k': ()}]"
    assert pytrees.written(hl.tree.structure(value["z"])) == "Linear(kernel=array, bias=array)"
    assert len(pytrees.written(hl.tree.structure([1] * 1000))) < 500
    with pytest.raises(TreeError) as caught:
        hl.tree.map(lambda a, b: a, {"a": 1, "b": [2]}, [1])
    assert "{'a': array, 'b': [array]}; [array]" in str(caught.value)
