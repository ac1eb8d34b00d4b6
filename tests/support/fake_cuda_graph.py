"""The graphs of the fake driver: built node by node, instantiated, changed and launched."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fake_cuda_model import (
    CUgraph,
    CUgraphExec,
    CUgraphNode,
    FakeKernel,
    Refused,
    Stream,
    Violation,
    call,
    reads,
    writes,
)


@dataclass(eq=False)
class Node:
    """after: nodes. kind: 'work', or 'IF', 'WHILE', 'SWITCH' with `handle` and `bodies`."""

    graph: Graph
    after: list[Node]
    accesses: list
    run: object
    what: str
    kind: str = "work"
    handle: int = 0
    bodies: list[Graph] = field(default_factory=list)
    cost: float = 0.0  # milliseconds


@dataclass(eq=False)
class Graph:
    nodes: list[Node] = field(default_factory=list)
    bodies: list[int] = field(default_factory=list)  # handles of graphs that die with it
    conditions: list[int] = field(default_factory=list)


@dataclass(eq=False)
class Executable:
    """changed: nodes with other parameters than their graph's."""

    graph: Graph
    changed: dict[Node, Node] = field(default_factory=dict)
    changing: bool = False
    spent: bool = False  # an update failed half way


class FakeGraphs:
    """A part of the fake driver."""

    @property
    def functions(self) -> dict:
        return self.__dict__.setdefault("_functions", {})

    @property
    def shared(self) -> dict:
        return self.__dict__.setdefault("_shared", {})

    @property
    def conditions(self) -> dict[int, int]:
        return self.__dict__.setdefault("_conditions", {})

    def builtin(self, name: str):
        """The kernels that set conditions."""

        def set_pred(fake, handle, place):
            fake.conditions[handle] = int(fake.view(place, 1)[0] != 0)

        def set_index(fake, handle, place, count):
            index = int(fake.view(place, 4, "int32")[0])
            fake.conditions[handle] = index if 0 <= index < count else count - 1

        if name == "set_pred":
            return FakeKernel(name, "ip", set_pred, lambda handle, place: [reads(place, 1)])
        return FakeKernel(name, "ipi", set_index, lambda handle, place, count: [reads(place, 4)])

    def add_node(self, graph: Graph, after: list[Node], accesses, run, what: str, **more) -> Node:
        node = Node(graph, after, accesses, run, what, **{"cost": self.cost(what)} | more)
        if any(other.graph is not graph for other in after):
            raise Violation(f"{what} follows a node of another graph")
        graph.nodes.append(node)
        return node

    def _added(self, graph, after, count, accesses, run, what: str, **more):
        if len(after) != count:
            raise Violation(f"{what}: {len(after)} nodes to follow, said to be {count}")
        nodes = [self._node(handle) for handle in after]
        return self._handle_of(self.add_node(self.thing(graph, Graph), nodes, accesses, run, what, **more))

    def _handle_of(self, node: Node):
        self._next += 16
        handle = CUgraphNode(self._next)
        self.__dict__.setdefault("_nodes", {})[handle] = node
        return handle

    def _node(self, handle) -> Node:
        node = self._nodes[handle]
        if not any(node.graph is thing for thing in self.things.values()):
            raise Violation(f"a node ({node.what}) of a graph that was destroyed")
        return node

    def _kernel(self, parameters):
        p = parameters
        grid, block = (p.gridDimX, p.gridDimY, p.gridDimZ), (p.blockDimX, p.blockDimY, p.blockDimZ)
        kernel = self.check_launch(p.func, grid, block, p.sharedMemBytes)
        values = self.arguments(kernel, p.kernelParams)
        return kernel.accesses(*values), kernel.work(self, grid, values), kernel.name

    def _copy(self, p):
        source, target, nbytes = int(p.srcDevice), int(p.dstDevice), p.WidthInBytes
        if (p.srcMemoryType, p.dstMemoryType, p.Height, p.Depth) != (2, 2, 1, 1) or not nbytes:
            raise Violation("a copy node that is not of one row of device memory")

        def run():
            self.view(target, nbytes)[...] = self.view(source, nbytes)

        return [reads(source, nbytes), writes(target, nbytes)], run, "a copy"

    def _fill(self, p):
        address, nbytes, value = int(p.dst), p.width * p.elementSize, p.value
        if p.height != 1 or p.elementSize != 1 or not nbytes:
            raise Violation("a fill node that is not of one row of bytes")

        def run():
            self.view(address, nbytes)[...] = value

        return [writes(address, nbytes)], run, "a fill"

    @call(1)
    def cuGraphCreate(self, flags):
        self.need_context()
        return self.make(CUgraph, Graph())

    @call()
    def cuGraphDestroy(self, graph):
        if any(int(graph) in other.bodies for other in self.things.values() if isinstance(other, Graph)):
            raise Violation("a body was destroyed, which belongs to its graph")
        self._end(graph)

    def _end(self, graph) -> None:
        for body in self.destroy(graph, Graph).bodies:
            self._end(body)

    @call(1)
    def cuGraphAddKernelNode(self, graph, after, count, parameters):
        return self._added(graph, after, count, *self._kernel(parameters))

    @call(1)
    def cuGraphAddMemcpyNode(self, graph, after, count, parameters, context):
        return self._added(graph, after, count, *self._copy(parameters))

    @call(1)
    def cuGraphAddMemsetNode(self, graph, after, count, parameters, context):
        return self._added(graph, after, count, *self._fill(parameters))

    @call(1)
    def cuGraphAddChildGraphNode(self, graph, after, count, child):
        nodes = list(self.thing(child, Graph).nodes)  # the node holds a copy

        def run():
            for node in nodes:
                node.run()

        accesses, cost = [a for n in nodes for a in n.accesses], sum(n.cost for n in nodes)
        return self._added(graph, after, count, accesses, run, "a child", cost=cost)

    @call(1)
    def cuGraphConditionalHandleCreate(self, graph, context, default, flags):
        if self.version < 12040:
            raise Refused(801)
        self._next += 16
        self.thing(graph, Graph).conditions.append(self._next)
        return self._next

    @call(1)
    def cuGraphAddNode(self, graph, after, data, count, parameters):
        p = parameters.conditional
        kind = p.type.name.removeprefix("CU_GRAPH_COND_TYPE_")
        if self.version < (12040 if kind == "WHILE" or p.size == 1 else 12080):
            raise Refused(801)
        if p.size > {"WHILE": 1, "IF": 2, "SWITCH": 1 << 20}[kind]:
            raise Refused(1)
        owner = self.thing(graph, Graph)
        if p.handle not in owner.conditions:
            raise Violation("the condition belongs to another graph")
        bodies = [Graph() for _ in range(p.size)]
        p.phGraph_out = [self.make(CUgraph, body) for body in bodies]
        owner.bodies += [int(handle) for handle in p.phGraph_out]
        return self._added(graph, after, count, [], None, kind, kind=kind, handle=p.handle, bodies=bodies)

    @call()
    def cuStreamBeginCapture(self, stream, mode):
        stream = self.thing(stream, Stream)
        if stream.recording is not None:
            raise Refused(1)
        stream.recording = Graph()

    @call(1)
    def cuStreamEndCapture(self, stream):
        stream = self.thing(stream, Stream)
        graph, stream.recording = stream.recording, None
        return self.make(CUgraph, graph)

    # --- executables ---

    @call(1)
    def cuGraphInstantiate(self, graph, flags):
        graph = self.thing(graph, Graph)
        self._check(graph)
        return self.make(CUgraphExec, Executable(graph))

    def _check(self, graph: Graph) -> None:
        """Nodes that touch the same memory have to follow each other."""
        before: dict[Node, set] = {}
        for node in graph.nodes:
            before[node] = set().union(*({n} | before[n] for n in node.after)) if node.after else set()
            for other in graph.nodes[: graph.nodes.index(node)]:
                if other not in before[node] and _conflict(_all(node), _all(other)):
                    raise Violation(f"nothing orders the nodes {other.what} and {node.what}")
            for body in node.bodies:
                self._check(body)

    @call()
    def cuGraphExecDestroy(self, executable):
        self.destroy(executable, Executable)

    def _change(self, executable, node, made) -> None:
        executable, node = self.thing(executable, Executable), self._node(node)
        if node.graph is not executable.graph:
            raise Violation("a node of another graph was changed")
        executable.changing = True
        self.pause()
        accesses, run, what = made
        executable.changed[node] = replace(node, accesses=accesses, run=run, what=what)
        executable.changing = False

    @call()
    def cuGraphExecKernelNodeSetParams(self, executable, node, parameters):
        self._change(executable, node, self._kernel(parameters))

    @call()
    def cuGraphExecMemcpyNodeSetParams(self, executable, node, parameters, context):
        self._change(executable, node, self._copy(parameters))

    @call()
    def cuGraphExecMemsetNodeSetParams(self, executable, node, parameters, context):
        self._change(executable, node, self._fill(parameters))

    @call(1)
    def cuGraphExecUpdate(self, executable, graph):
        executable, graph = self.thing(executable, Executable), self.thing(graph, Graph)
        old, new = executable.graph.nodes, graph.nodes
        if executable.graph.conditions or [n.what for n in old] != [n.what for n in new]:
            executable.spent = True
            raise Refused(910)
        executable.changed = dict(zip(old, new, strict=True))
        return

    @call()
    def cuGraphLaunch(self, executable, stream):
        executable = self.thing(executable, Executable)
        if executable.changing or executable.spent:
            raise Violation("a graph was launched while it was changed, or after a change had failed")
        changed = dict(executable.changed)
        nodes = [changed.get(node, node) for node in executable.graph.nodes]
        accesses = [access for node in nodes for access in _all(node)]
        self.enqueue(stream, accesses, lambda: self._run(nodes), "a graph")
        self.spent += sum(node.cost for node in nodes)

    def _run(self, nodes: list[Node]) -> None:
        for node in nodes:
            if node.kind == "work":
                node.run()
            elif node.kind == "WHILE":
                while self.conditions[node.handle]:
                    self._run(node.bodies[0].nodes)
            elif node.kind == "IF":
                chosen = 0 if self.conditions[node.handle] else 1
                if chosen < len(node.bodies):
                    self._run(node.bodies[chosen].nodes)
            elif self.conditions[node.handle] < len(node.bodies):
                self._run(node.bodies[self.conditions[node.handle]].nodes)


def _all(node: Node) -> list:
    return [*node.accesses, *(a for body in node.bodies for inner in body.nodes for a in _all(inner))]


def _conflict(first: list, second: list) -> bool:
    return any(
        (a.write or b.write) and a.address < b.address + b.nbytes and b.address < a.address + a.nbytes
        for a in first
        for b in second
    )
