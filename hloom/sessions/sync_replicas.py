"""Synchronous steps of several workers that each run their own program on shared variables.

As TensorFlow's SyncReplicasOptimizer: each variable collects gradients on its device, and the optimizer is applied to
their mean when enough have arrived; a gradient of values that were replaced since is dropped.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import hloom.numpy as hnp
from hloom.config import config
from hloom.errors import ArgumentError, DistributedError, SessionError
from hloom.optim import GradientTransformation, apply_updates
from hloom.sessions.graph import Node, Operation, Variable
from hloom.sessions.program import Program, program_of
from hloom.sessions.session import Session
from hloom.sessions.training import assigned, chosen_variables, colocate, gradients, new_slot
from hloom.tracing.trace import bind, resumed
from hloom.tree import pytrees as tree

_PAUSE, _LONGEST = 0.001, 0.02  # seconds between polls of the step


class SyncReplicas:
    """An optimizer for the mean gradient of several workers.

        sync = SyncReplicas(hl.optim.sgd(0.1), replicas_to_aggregate=3)
        train = sync.minimize(loss, global_step=step)
        ...
        sync.run(session, train, feed)      # returns when the step that it took part in is applied

    replicas_to_aggregate: gradients of a step. With fewer than there are workers, the last ones are dropped (backup
    workers). The optimizer is applied variable by variable, so it must not combine gradients of several variables:
    clip by a global norm in each worker, before `apply_gradients`. Raises ArgumentError.
    """

    def __init__(self, optimizer: GradientTransformation, replicas_to_aggregate: int):
        if replicas_to_aggregate < 1:
            found = f"replicas_to_aggregate={replicas_to_aggregate}"
            raise ArgumentError("SyncReplicas", found, "pass the number of gradients of a step, such as the workers'")
        self.optimizer, self.replicas = optimizer, replicas_to_aggregate
        self._step: Node | None = None  # how many steps all variables have made

    def minimize(self, loss: Node, variables: Sequence[Variable] | None = None, **options: Any) -> Operation:
        """The operation of `apply_gradients` for the gradients of a loss. options: global_step and name."""
        chosen = chosen_variables(program_of(loss), variables)
        return self.apply_gradients(list(zip(gradients(loss, chosen), chosen, strict=True)), **options)

    def apply_gradients(
        self,
        gradients_and_variables: Sequence[tuple[Any, Variable]],
        *,
        global_step: Variable | None = None,
        name: str = "train",
    ) -> Operation:
        """The operation that applies this worker's gradients to the variables. global_step increases when the first
        variable is updated. Raises ArgumentError without variables."""
        if not gradients_and_variables:
            raise ArgumentError("gradients to apply", "none", "pass pairs of a gradient and its variable")
        program = program_of(gradients_and_variables[0][1])
        groups = [self._group(program, v, g, f"{name}/{v.name}") for g, v in gradients_and_variables]
        updates = [update for made, _, _ in groups for update in made]
        if global_step is not None:
            updates.append(global_step.assign_add(hnp.astype(groups[0][1], global_step.dtype)))
        with resumed(program.trace):
            self._step = groups[0][2]
            for _, _, step in groups[1:]:
                self._step = hnp.minimum(self._step, step)
        return program.group(*updates, name=name)

    def _group(self, program: Program, variable: Variable, gradient: Any, name: str) -> tuple[list, Node, Node]:
        """(the updates of a variable and its slots, whether they are applied now, the step that the worker saw)."""
        home = variable.record.instruction.device
        with resumed(program.trace), program.outside_of_controls():
            start = variable.initial_value
            start = hnp.zeros(variable.shape, variable.dtype) if start is None else start
            total = new_slot(program, f"{name}/sum", hnp.zeros(variable.shape, variable.dtype), home)
            count, step = (new_slot(program, f"{name}/{n}", hnp.zeros((), "int32"), home) for n in ("count", "step"))
            leaves, structure = tree.flatten(self.optimizer.init({"": start}))
            state = [new_slot(program, f"{name}/state/{k}", leaf, home) for k, leaf in enumerate(leaves)]
        with resumed(program.trace):
            seen = bind("copy", step)  # when this worker read the variable
            gradient = hnp.asarray(gradient)
            begin = len(program.instructions)
            fresh = hnp.equal(seen, step)  # the update compares it with the step at which it runs
            sums = total + hnp.where(fresh, gradient, hnp.zeros_like(gradient))
            counts = count + hnp.astype(fresh, "int32")
            full = hnp.equal(counts, self.replicas)
            mean = sums / self.replicas
            updates, new_state = self.optimizer.update({"": mean}, tree.unflatten(structure, state), {"": variable})
            new = apply_updates({"": variable}, updates)[""]
            values = [
                (variable, hnp.where(full, new, variable)),
                (total, hnp.where(full, hnp.zeros_like(sums), sums)),
                (count, hnp.where(full, hnp.zeros_like(counts), counts)),
                (step, step + hnp.astype(full, "int32")),
                *((s, hnp.where(full, v, s)) for s, v in zip(state, tree.leaves(new_state), strict=True)),
            ]
            colocate(program, begin, [variable, total, count, step, *state])
            made = [assigned(program, v, value, begin) for v, value in values]
        return made, full, seen

    def run(self, session: Session, fetches: Any, feed: Mapping | None = None, timeout: float | None = None) -> Any:
        """`session.run`, and then waits until the step is applied that the gradients of this run belong to.

        timeout: seconds; None: `hl.config.distributed_timeout`. Raises DistributedError if too few gradients come.
        """
        if self._step is None:
            raise SessionError("a synchronous run", "no gradients are applied", "call sync.minimize(loss) first")
        found, before = session.run([fetches, self._step], feed)
        seconds, began, pause = config.distributed_timeout if timeout is None else timeout, time.monotonic(), _PAUSE
        while (now := int(session.run(self._step))) <= int(before):
            if time.monotonic() - began > seconds:
                raise DistributedError(
                    f"step {now} of {self.replicas} workers",
                    f"too few gradients came within {seconds:g} s",
                    "look whether all workers run, or pass a smaller replicas_to_aggregate=",
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST)
        return found


__all__ = ["SyncReplicas"]
