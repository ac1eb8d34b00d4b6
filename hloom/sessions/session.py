"""`Session`: runs a program by names and handles, and keeps its variables between runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hloom.errors import FeedError, FetchError, SessionError
from hloom.sessions.executor import Executor, executor_of
from hloom.sessions.graph import Node, Operation, Text
from hloom.sessions.lowering import needed
from hloom.sessions.placement import settings_of, within
from hloom.sessions.program import Program, current_program
from hloom.tree import pytrees as tree

_HANDLES = (Node, Operation, Text)


class Session:
    """An environment in which a program runs, with the values of its variables.

        with Session(program) as session:
            session.run(program.initializer())
            session.run("train", {"x": images, "y": labels})
            value = session.run("cost", {"x": images, "y": labels})

    program: the current one by default. target: where it runs; by default this process, or `server.target` for a
    server, whose sessions share variables. config: a SessionConfig, or a dict of its fields. options: of the target;
    those of a server are key, tls and timeout. Raises ArgumentError for others.
    """

    def __init__(self, program: Program | None = None, target: Any = None, *, config: Any = None, **options: Any):
        if isinstance(program, str):  # Session(server.target)
            program, target = None, program
        self.program = program if program is not None else current_program()
        self._settings = settings_of(config)
        self.executor: Executor = executor_of(target, **options)
        self._shared = target is not None
        self._steps: dict[tuple, Any] = {}
        self._kept: list = []  # handles whose ids are keys of _steps
        self._closed = False

    def run(self, fetches: Any, feed: Mapping | None = None, *, feed_dict: Mapping | None = None) -> Any:
        """Runs what the fetches need and returns their values in the same structure.

        fetches: nodes, operations and names ("cost", or "cost:0") in lists, tuples and dicts of any depth. Tensors are
        returned as arrays, operations as None, texts unchanged. feed: arrays for placeholders, or for any other tensor,
        by handle or name; operations needed only for a fed tensor are not computed. feed_dict: TensorFlow's name for
        it.

        It is compiled once for each combination of fetches and feeds; with unknown sizes, once for each of the first
        two sizes fed, and once for all others. Raises FetchError for an unknown fetch; FeedError for an unknown feed, a
        wrong shape or dtype, or a placeholder that is not fed; UninitializedError; SessionError in a closed session.
        """
        if self._closed:
            self._refuse_closed()
        kind = fetches.__class__
        if kind is str or isinstance(fetches, _HANDLES):
            leaves, structure = [fetches], None
        else:
            leaves, structure = tree.flatten(fetches)
        fed = (feed if feed_dict is None else _only(feed, feed_dict)) or {}
        key = (
            structure,
            tuple([f if f.__class__ is str else id(f) for f in leaves]),
            tuple([f if f.__class__ is str else id(f) for f in fed]),
        )
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = self._load(leaves, fed)
        if self._settings:
            with within(self._settings):
                results = self.executor.run(step, list(fed.values()))
        else:
            results = self.executor.run(step, list(fed.values()))
        return results[0] if structure is None else tree.unflatten(structure, results)

    __call__ = run

    def _load(self, fetches: list, feed: Mapping) -> Any:
        program = self.program
        if not isinstance(feed, Mapping):
            raise FeedError("the feed of a run", f"{type(feed).__name__}", "pass a dict: {placeholder: array}")
        targets = [program.find(fetch) for fetch in fetches]
        nodes: list[Node] = []
        for name in feed:
            try:
                node = program.find(name, "feed")
            except FetchError as error:
                raise FeedError(error.asked, error.found, error.repair) from None
            if not isinstance(node, Node):
                raise FeedError(f"feed {name!r}", f"{node!r} is not a tensor", "feed placeholders and other tensors")
            if any(other.instruction is node.instruction for other in nodes):
                raise FeedError(f"feed {node.name!r}", "it is fed twice, by name and by handle", "feed it once")
            nodes.append(node)
        self._kept += [*fetches, *feed]
        with within(self._settings):
            return self.executor.load(program, targets, nodes)

    def partial_run(self) -> PartialRun:
        """A run in several parts: values fed or fetched in one part are known in the following ones."""
        return PartialRun(self)

    def make_callable(self, fetches: Any, feeds: Any = ()) -> Any:
        """The run of these fetches as a function of its feeds, `f(*values)`, for loops: nothing is looked up."""
        if self._closed:
            self._refuse_closed()
        leaves, structure = tree.flatten(fetches)
        names = list(feeds)
        step = self._load(leaves, dict.fromkeys(names))
        executor = self.executor

        def run(*values):
            if self._closed:
                self._refuse_closed()
            if len(values) != len(names):
                raise FeedError(f"a run fed with {names}", f"{len(values)} values", "pass one value for each feed")
            with within(self._settings):
                return tree.unflatten(structure, executor.run(step, values))

        return run

    # --- variables ---

    def state(self) -> dict[str, Any]:
        """The values of the program's variables by name, of those that have one: a tree for `hl.checkpoints`."""
        if self._closed:
            self._refuse_closed()
        values = self.executor.variables(self._devices(self.program.variables))
        return {name: values[name] for name in self.program.variables if name in values}

    def restore(self, values: Mapping[str, Any]) -> None:
        """Sets variables from a tree that `state` returned. Raises FetchError for unknown names, FeedError for values
        of another shape or dtype."""
        if self._closed:
            self._refuse_closed()
        for name, value in values.items():
            node = self.program.find(name, "restore")
            if name not in self.program.variables:
                raise FetchError(f"restore {name!r}", f"{node!r} is not a variable", "restore variables only")
            shape = self.program.variables[name]._shape
            if tuple(value.shape) != shape.dims or value.dtype != shape.dtype:
                raise FeedError(
                    f"restore variable {name!r}, which is {shape!r}", f"{value.dtype}{list(value.shape)}",
                    "restore the checkpoint of this program",
                )  # fmt: skip
        self.executor.assign(values, self._devices(values))

    def uninitialized(self) -> list[str]:
        """The names of the variables without a value."""
        values = self.executor.variables(self._devices(self.program.variables))
        return [name for name in self.program.variables if name not in values]

    def _devices(self, names: Iterable[str]) -> dict[str, str]:
        """The device chosen for each variable, by name."""
        return {name: self.program.variables[name].record.instruction.device for name in names}

    # --- the end ---

    def close(self) -> None:
        """Ends the session; its variables are freed, unless a server keeps them."""
        if not self._closed:
            self._closed = True
            self._steps.clear()
            if not self._shared:
                self.executor.close()

    def _refuse_closed(self) -> None:
        raise SessionError(f"a run of '{self.program.name}'", "the session is closed", "open a new session")

    def __enter__(self) -> Session:
        _sessions.append(self)
        return self

    def __exit__(self, *exception) -> None:
        _sessions.remove(self)
        self.close()


def _only(feed: Any, feed_dict: Any) -> Any:
    if feed:
        raise FeedError("a run with feed= and feed_dict=", "both are the feeds", "pass one of them")
    return feed_dict


class PartialRun:
    """A run in consecutive parts: between them Python decides how to continue.

        part = session.partial_run()
        scores = part.run("scores", {"x": batch})
        part.run("train", {"reward": play(scores)})      # x is known, scores are not computed again

    An update counts once: a part that needs one that an earlier part ran is an error.
    """

    def __init__(self, session: Session):
        self._session = session
        self._known: dict[Node, Any] = {}
        self._updated: set[str] = set()

    def run(self, fetches: Any, feed: Mapping | None = None, *, feed_dict: Mapping | None = None) -> Any:
        """As `Session.run`. Raises FeedError for a tensor that was already fed or fetched, FetchError for an update
        that has run."""
        program = self._session.program
        leaves, structure = tree.flatten(fetches)
        targets = [program.find(leaf) for leaf in leaves]
        known = {node.instruction: node for node in self._known}
        fed: dict[Node, Any] = {}
        given = feed if feed_dict is None else _only(feed, feed_dict)
        for name, value in (given or {}).items():
            node = program.find(name, "feed")
            if not isinstance(node, Node) or node.instruction in known:
                raise FeedError(f"feed {name!r} to a part of a run", "it has a value already", "begin another run")
            fed[node] = value
        needs = needed(program, targets, [n.instruction for n in (*self._known, *fed)], complete=False)
        if again := self._updated & needs.updates.keys():
            raise FetchError(
                f"fetch {', '.join(map(repr, leaves))} in a part of a run",
                f"{min(again)!r} has run in an earlier part",
                "fetch it in one part, or begin another run",
            )  # fmt: skip
        results = self._session.run(targets, {**self._known, **fed})
        self._updated |= needs.updates.keys()
        self._known |= fed
        for target, value in zip(targets, results, strict=True):
            if isinstance(target, Node) and target.instruction not in known:
                self._known[target] = value
        return tree.unflatten(structure, results)


_sessions: list[Session] = []


def current_session() -> Session | None:
    """The session of the surrounding `with Session(...)`."""
    return _sessions[-1] if _sessions else None


__all__ = ["PartialRun", "Session", "current_session"]
