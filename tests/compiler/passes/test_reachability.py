"""Which groups of fusion depend on which: what is kept while they grow and join is what a search of the graph finds."""

from __future__ import annotations

import random

import pytest

from hloom.compiler.passes.fusion import reachability
from hloom.compiler.passes.fusion.reachability import Reachability


class Node:
    """An instruction."""


class Group:
    """Instructions in one kernel, as far as reachability knows them."""

    def __init__(self, output):
        self.outputs = [output]


class Growth:
    """Groups that grow from the last instruction to the first, as fusion lets them."""

    def __init__(self, seed: int, count: int):
        self.random = random.Random(seed)
        self.nodes = [Node() for _ in range(count)]
        self.users = {
            node: self.random.sample(self.nodes[k + 1 :], min(count - 1 - k, self.random.randrange(1, 4)))
            for k, node in enumerate(self.nodes)
        }
        self.groups_of: dict[Node, set[Group]] = {}
        self.groups: list[Group] = []
        self.placed: list[Node] = []
        order = {node: k for k, node in enumerate(self.nodes)}
        self.kept = Reachability(order, self.users, self.groups_of)

    def needing(self, group: Group, outputs=None) -> set[Group]:
        """The groups that a search finds to need a group, perhaps with other outputs; itself if it is in a circle."""
        found: set[Group] = set()
        seen: set[Node] = set()
        waiting = list(outputs or group.outputs)
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            for user in self.users[node]:
                if not self.groups_of[user]:  # computed by no group
                    waiting.append(user)
                for other in self.groups_of[user]:
                    if other is group and node in group.outputs + (outputs or []):
                        continue  # reads its own output
                    found.add(other)
                    waiting += other.outputs
        return found

    def step(self, node: Node) -> None:
        self.placed.append(node)
        inside = set().union(*(self.groups_of[user] for user in self.users[node]))
        choice = self.random.random()
        self.groups_of[node] = set()
        if choice < 0.2:
            self.kept.pass_through(node)
        elif choice < 0.4 and inside and all(self.groups_of[user] for user in self.users[node]):
            self.groups_of[node] = inside  # computed again by each that reads it
        elif choice < 0.7 and self.groups and self.grown(node, self.random.choice(self.groups)):
            pass
        else:
            self.groups.append(group := Group(node))
            self.groups_of[node] = {group}
            self.kept.add(group)

    def grown(self, node: Node, group: Group) -> bool:
        """Gives a group a further output, where the search finds no circle."""
        allowed = group not in self.needing(group, [node])
        assert self.kept.add_output(group, node) == allowed
        if allowed:
            group.outputs.append(node)
            self.groups_of[node] = {group}
        return allowed

    def joined(self) -> None:
        into, other = self.random.sample(self.groups, 2)
        if self.kept.independent(into, other):
            self.kept.join(into, other)
            into.outputs += other.outputs
            self.groups.remove(other)
            for node, groups in self.groups_of.items():
                if other in groups:
                    self.groups_of[node] = groups - {other} | {into}

    def check(self) -> None:
        found = {group: self.needing(group) for group in self.groups}
        for group in self.groups:
            assert group not in found[group], "a circle"
            for other in self.groups:
                if group is not other:
                    independent = other not in found[group] and group not in found[other]
                    assert self.kept.independent(group, other) == independent


@pytest.mark.parametrize("seed", range(60))
def test_growing_groups_need_what_a_search_finds(seed):
    growth = Growth(seed, 24)
    for node in reversed(growth.nodes):
        growth.step(node)
        growth.check()
        if len(growth.groups) > 2 and growth.random.random() < 0.4:
            growth.joined()
            growth.check()


def test_groups_of_two_segments_are_never_joined(monkeypatch):
    monkeypatch.setattr(reachability, "SEGMENT", 2)
    nodes = [Node() for _ in range(4)]
    groups_of: dict[Node, set[Group]] = {node: set() for node in nodes}
    users = {node: nodes[k + 1 : k + 2] for k, node in enumerate(nodes)}
    kept = Reachability({node: k for k, node in enumerate(nodes)}, users, groups_of)
    groups = [Group(node) for node in nodes]
    for group, node in zip(reversed(groups), reversed(nodes), strict=True):
        groups_of[node] = {group}
        kept.add(group)
    assert kept.together(groups[:2]) and kept.together(groups[2:]) and not kept.together(groups[1:3])
    assert not kept.add_output(groups[2], nodes[1])
    assert not kept.independent(groups[0], groups[1])
